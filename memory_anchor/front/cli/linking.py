"""Whether this folder belongs to a project that is known: asked after a command, and said by `projects link`.

Apart from `care`, since every command of every day ends here.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import typer

from memory_anchor.domain.errors import MemoryAnchorError
from memory_anchor.front.cli.link import call, data_dir, preamble
from memory_anchor.front.cli.output import err, escaped, print_dim, show_json
from memory_anchor.front.cli.typing_ahead import show_typing


def link_folder(project: str, folder: Path | None, *, moved: bool, as_json: bool) -> None:
    from memory_anchor.front.cli.passphrase import ask_human

    where = str(folder.absolute()) if folder is not None else None
    answer = call("projects_link", project=project, folder=where, moved=moved or None, human=ask_human())
    if as_json:
        show_json(answer)
        return
    print_dim(f"{answer['folder']} is project {project}")
    if answer["left_behind"]:
        print_dim(
            f"{answer['left_behind']} memories stay with {answer['was']}, which it was until now; "
            f"`memory-anchor projects merge {answer['was']} {project}` brings them"
        )


def offer_project_link() -> None:
    """Ask whether this folder belongs to a likely project, or name it where nobody can answer. Never fails."""
    file, caller = data_dir() / "projects.json", preamble()
    if caller.project or not caller.project_dir or not file.is_file():
        return
    with contextlib.suppress(OSError):
        if b'"project":' not in file.read_bytes():  # no project may be another one
            return
    from memory_anchor.adapters.projects import Projects

    on_terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    try:
        project, line = Projects(file, str).link_question(caller.project_dir, on_terminal=on_terminal)
        if line:
            err.print(escaped(line))
        show_typing()
        if project and typer.confirm("Link this folder to it now?", default=False, err=True):
            link_folder(project, None, moved=False, as_json=False)
    except typer.Abort:
        return
    except MemoryAnchorError as error:
        err.print(f"[bold red]error:[/] {escaped(str(error))}")

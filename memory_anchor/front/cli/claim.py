"""Asked once on a terminal, said once in a pipe: whether this folder is the known project that it may be (A8)."""

from __future__ import annotations

import sys

import typer

from memory_anchor.errors import MemoryAnchorError
from memory_anchor.front.cli import link
from memory_anchor.front.cli.output import err, shown


def ask_once() -> None:
    """Ask the human who ran a command, or say in one sentence, once it is done. Never fails."""
    file, caller = link.data_dir() / "projects.json", link.preamble()
    if caller.project or not caller.project_dir or not file.is_file():
        return
    from memory_anchor.adapters.projects import Projects

    on_terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    try:
        project, line = Projects(file, str).to_ask(caller.project_dir, on_terminal=on_terminal)
        if line:
            err.print(shown(line))
        if project and typer.confirm("Link this folder to it now?", default=False, err=True):
            from memory_anchor.front.cli.projects import linked

            linked(project, None, moved=False, as_json=False)
    except typer.Abort:
        return
    except MemoryAnchorError as error:
        err.print(f"[bold red]error:[/] {shown(str(error))}")

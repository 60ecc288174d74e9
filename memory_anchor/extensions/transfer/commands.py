"""`memory-anchor export` and `import`, over a session of many calls.

A session goes through the engine when one serves, else it keeps one store open; `link.call` opens and closes the store
each time, which is right for one call and not for a thousand.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from memory_anchor.base.files import file_error, replace_durably
from memory_anchor.base.json_values import Json, Record
from memory_anchor.base.terminal import visible_json
from memory_anchor.domain.errors import BadInput, NotFound, Refused, StoreBusy
from memory_anchor.extensions.transfer.opening import (
    ERRORS_SHOWN,
    FIRST_BYTES,
    Unreadable,
    check_text,
    lines_of_tool,
    writing,
)
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.link import call, data_dir, preamble, run_signed
from memory_anchor.front.cli.output import (
    INTERRUPTED,
    HumanOption,
    JsonOption,
    Ticker,
    err,
    escaped,
    handle_errors,
    out,
    print_dim,
    show_json,
)
from memory_anchor.front.cli.passphrase import human_signer
from memory_anchor.front.cli.spinner import Spinner

if TYPE_CHECKING:
    from memory_anchor.identity.keys import Signer

Ask = Callable[..., Record]


@contextmanager
def open_session() -> Iterator[Ask]:
    """Yield a function that answers calls as `link.call` does. Raises our errors."""
    from memory_anchor.runtime.engine import status

    if status(data_dir()) is not None:
        yield call
        return
    os.umask(0o077)
    from memory_anchor.runtime.lock import DirectoryLock

    try:
        lock = DirectoryLock.acquire(data_dir(), role="command")
    except StoreBusy:  # an engine that is loading answers when it is ready
        yield call
        return
    with lock:
        with Spinner("opening the store"):
            from memory_anchor.admin import nightly
            from memory_anchor.process.app import build_core, settings_of

            core = build_core(settings_of(os.environ), data_dir=data_dir(), lock=lock)
            nightly.register(core)

        def ask(name: str, *, human: Signer | None = None, **arguments: Json) -> Record:
            given = {key: value for key, value in arguments.items() if value is not None}
            return run_signed(core, name, given, human)

        try:
            yield ask
        finally:
            core.close()


TOOL_NAMES = (
    *("claude-md", "agents-md", "claude-auto-memory", "codex-memories", "server-memory", "mem0", "claude-mem"),
    *("basic-memory", "okf", "markdown"),
)
"""As in `other_tools.TOOLS`, repeated here so that no other command imports its readers."""
BAD_LINES = 2
EXPORTED = re.compile(rb'\{"(?:id":"[^"]*","(?:version|content)"|kind")')
"""The beginning of a file that `export` wrote."""


def register(app: typer.Typer) -> None:
    app.command("export")(export)
    app.command("import")(import_)


@handle_errors
def export(
    file: Annotated[
        str, typer.Argument(metavar="FILE|-|FOLDER", help="Where to; - is standard output; a folder with --to.")
    ],
    to: Annotated[str, completing.choice("jsonl", "okf", "markdown", note="; the last two are pages for people")] = (
        "jsonl"
    ),
    versions: Annotated[bool, typer.Option("--versions", help="Every version, the audit trail, proposals.")] = False,
    project: Annotated[bool, typer.Option("--project", help="Only this project's memories.")] = False,
    human: Annotated[bool, typer.Option("--human", help="Everybody's memories: asks for the passphrase.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Over a file, or into a folder, that is no export.")] = False,
    json_: JsonOption = False,
) -> None:
    """Write what you may read as JSON lines, with --human everything; `import` takes them in again."""
    from memory_anchor.extensions.transfer.transfer_files import export_lines

    if to != "jsonl":
        _export_pages(to, Path(file).absolute(), project, human, force, json_)
        return
    target = None if file == "-" else Path(file).absolute()
    if target is not None:
        _check_target(target, force=force)
    signer = human_signer(human)
    ticker, count, on_screen = Ticker("export_lines"), 0, target is None and sys.stdout.isatty()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp") if target is not None else None
    try:
        with open_session() as ask, _open_output(temporary) as stream:
            for line in export_lines(
                ask, data_dir(), versions=versions, own_project=project, everything=human, human=signer
            ):
                shown = visible_json(line) if on_screen else line
                stream.write(shown.encode("utf-8", "backslashreplace") + b"\n")
                count += 1
                ticker.at(count)
            stream.flush()
            if temporary is not None and target is not None:
                replace_durably(temporary, target)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise file_error(error, target or Path("-")) from error
    finally:
        ticker.end()
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    if target is None:
        return
    if json_:
        show_json({"file": str(target), "lines": count})
    else:
        print_dim(f"{count} lines in {target}")


def _export_pages(form: str, folder: Path, own_project: bool, human: bool, force: bool, as_json: bool) -> None:
    from memory_anchor.extensions.transfer.transfer_files import export_lines, write_pages

    signer = human_signer(human)
    try:
        with open_session() as ask:
            lines = export_lines(
                ask, data_dir(), versions=False, own_project=own_project, everything=human, human=signer
            )
            count = write_pages(form, lines, folder, force=force)
    except OSError as error:
        raise file_error(error, folder) from error
    if as_json:
        show_json({"folder": str(folder), "memories": count})
    else:
        print_dim(f"{count} memories in {folder}; `memory-anchor import --from {form} {folder}` takes them in again")


def _check_target(target: Path, *, force: bool) -> None:
    """Raise NotFound or BadInput where no file can be written there, Refused over a file that is no export."""
    if not target.parent.is_dir():
        raise NotFound(f"there is no folder {target.parent}; make it first")
    if target.is_dir() or not target.name:
        raise BadInput(f"{target} is a folder; allowed is a file to write, or - for standard output")
    if not force and target.is_file() and target.stat().st_size:
        with target.open("rb") as stream:
            if not EXPORTED.match(stream.read(FIRST_BYTES)):
                raise Refused(f"{target} is there and no export of ours; give another name, or --force to replace it")


def _open_output(file: Path | None) -> AbstractContextManager[BinaryIO]:
    """Return standard output, or a new private file, as a context."""
    if file is None:
        return nullcontext(sys.stdout.buffer)
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


@handle_errors
def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What `export` wrote; - is standard input. With --from: its place.")
    ] = "",
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TOOL",
            help=f"Another tool's memories: {', '.join(TOOL_NAMES)}.",
            autocompletion=completing.words(*TOOL_NAMES),
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would come of it.")] = False,
    project: Annotated[
        list[str] | None,
        typer.Option(metavar="ID|here|OLD=NEW", help="Where projects go that are not known here; asked on a terminal."),
    ] = None,
    human: HumanOption = False,
    json_: JsonOption = False,
) -> None:
    """Take in JSON lines, or what another tool left; what is here already is passed over, so it may be run again."""
    from memory_anchor.extensions.transfer.transfer_files import ImportResult, import_file

    if not file and not from_:
        raise BadInput("FILE is missing; allowed is what `memory-anchor export` wrote, -, or --from TOOL")
    signer = human_signer(human)
    unreadable = Unreadable()
    ticker = Ticker("line")
    try:
        path = Path(file) if file else None
        source = lines_of_tool(from_, path, unreadable, ticker.read) if from_ else _source(file)
        with source as stream, open_session() as ask:
            done = import_file(
                ask,
                stream,
                data_dir(),
                project_dir=preamble().project_dir,
                human=signer,
                tick=ticker.at,
                to=_project_map(project or ()),
                choose=_ask_project if sys.stdin.isatty() and not json_ else None,
                dry=dry_run,
                tell=(lambda line: err.print(f"[dim]{escaped(line)}[/]")) if signer is not None else len,
            )
    except KeyboardInterrupt:
        done = ImportResult(stopped_at=0)
    ticker.end()
    origins = _origins(from_, file, {error["line"] for error in done.errors}) if from_ else {}
    name = "standard input" if file == "-" else Path(file).name
    for error in done.errors:
        number, message = error["line"], error["message"]
        if number in origins:
            error["message"] = f"{origins[number]}: {message.removeprefix(f'line {number}: ')}"
        elif not from_:
            error["message"] = f"{name}, {message}"
    done.errors[:0] = unreadable.shown
    done.failed += unreadable.many
    if json_:
        show_json({**asdict(done), "dry_run": dry_run})
    elif dry_run:
        out.print(
            f"{done.lines} memories: {done.added + done.written + done.pending} new, {done.skipped} known, "
            f"{done.conflicts} against what is known; nothing was written"
        )
    else:
        out.print(f"{done.lines} lines: {done.added} versions added, {done.skipped} were here")
        if done.written or done.pending or done.rejected:
            out.print(f"  as new writes: {done.written} stored, {done.pending} pending, {done.rejected} rejected")
        if done.rejected:
            print_dim("  text that no export of ours vouches for needs a human: run it on a terminal with --human")
        if done.pending:
            print_dim("  what is pending waits for you: memory-anchor review")
        for place in done.went:
            seen = "this folder's" if place["here"] else "seen in its own folder"
            out.print(f"  {place['lines']} lines to project {escaped(place['to'])}, {seen}")
        for note in done.notes:
            out.print(f"  [yellow]{escaped(note)}[/]")
    for reason in done.reasons[:ERRORS_SHOWN] if not json_ else ():
        print_dim(f"  rejected: {reason['message']}")
    if done.stopped_at is not None:
        err.print(_stopped(done.stopped_at, dry=dry_run))
        raise typer.Exit(INTERRUPTED)
    for error in done.errors[:ERRORS_SHOWN]:
        err.print(f"[bold red]error:[/] {escaped(error['message'])}")
    if done.failed > ERRORS_SHOWN:
        err.print(f"[dim]and {done.failed - ERRORS_SHOWN} more lines[/]")
    if done.failed:
        raise typer.Exit(BAD_LINES)


def _stopped(at: int, *, dry: bool) -> str:
    if dry or not at:
        return "stopped before the first lines were acknowledged; run the same command again" if not dry else "stopped"
    return (
        f"stopped: the file is imported up to line {at}, of what comes after it nothing is sure; run the same command "
        "again, it passes over what is here"
    )


def _project_map(options: Sequence[str]) -> dict[str, str]:
    """Return id in the file -> id here, as `--project` says; "" is any project that is not known here."""
    from memory_anchor.domain.requests.checks import project_id

    targets: dict[str, str] = {}
    for option in options:
        old, is_pair, new = option.rpartition("=")
        targets[project_id(old) if is_pair else ""] = new if new == "here" else project_id(new)
    return targets


def _ask_project(project: str, lines: int) -> str:
    """Return where the human wants a project's lines: `here`, an id, or the id that they have."""
    from memory_anchor.domain.requests.checks import project_id

    err.print(f"{lines} lines are of project [cyan]{escaped(project)}[/], which is not known here")
    answer = str(typer.prompt("Bring them to: here, keep, or a project's id", default="here", err=True)).strip()
    return project if answer == "keep" else answer if answer == "here" else project_id(answer)


def _origins(tool: str, file: str, numbers: set[int]) -> dict[int, str]:
    """Return where these lines of `_lines_of_tool` come from, by reading once more: few of many lines are wrong."""
    from memory_anchor.extensions.transfer import other_tools

    if not numbers:
        return {}
    lines = (
        entry for entry in other_tools.read_items(tool, Path(file) if file else None, home=Path.home()) if entry.line
    )
    return {number: entry.location for number, entry in enumerate(lines, 1) if number in numbers}


def _source(file: str) -> BinaryIO:
    """Return the file to read, which must be seekable: standard input is copied to a temporary file."""
    if file != "-":
        try:
            if Path(file).exists() and not Path(file).is_file():  # a device would never end, a pipe never begin
                raise BadInput(f"{file} is no regular file; allowed is a file of JSON lines, or - for standard input")
            stream = Path(file).open("rb")  # noqa: SIM115 - the caller's with closes it
            check_text(file, stream)
            return stream
        except FileNotFoundError:
            raise NotFound(f"no file {file}; `memory-anchor export FILE` writes one") from None
        except OSError as error:
            raise BadInput(f"{file} cannot be read ({error.strerror}); allowed is a file of JSON lines") from error
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller's with closes it
    with writing(copy):
        while chunk := sys.stdin.buffer.read(1 << 20):
            copy.write(chunk)
    check_text("standard input", copy)
    return copy

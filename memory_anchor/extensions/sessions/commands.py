"""The commands `adopt`, `sessions` and `handoff`.

`adopt` reads in its own process: the archive is a file with locks of its own, so nothing waits for the engine, and the
engine, if one runs, finds what was read with the next question.
"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory_anchor.base.json_values import Json, Record, number, record, records, text
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, NotFound
from memory_anchor.extensions.sessions.names import AGENTS, FILE, LOOK
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.generated import Command, Values
from memory_anchor.front.cli.generated import register as register_commands
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import call, check_writable, data_dir
from memory_anchor.front.cli.output import (
    JsonOption,
    Ticker,
    block,
    escaped,
    handle_errors,
    local_time,
    out,
    print_dim,
    show_json,
)
from memory_anchor.front.cli.shorthand import parse_time

if TYPE_CHECKING:
    from memory_anchor.extensions.sessions.adopting import AdoptChoice
    from memory_anchor.extensions.sessions.archive import SessionsFile
    from memory_anchor.extensions.sessions.reading import LookReport

HELP = "Past sessions of the agents on this machine: search, list, show."
SENTENCES = 20
"""How many files that could not be read are named."""
JSONL = "jsonl"
NOTHING = "nothing was adopted yet; `memory-anchor adopt` reads what is here"


def register(app: typer.Typer) -> None:
    app.command()(adopt)
    register_commands(group(app, "sessions", HELP), *COMMANDS)
    register_commands(app, HANDOFF)


@handle_errors
def adopt(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="AGENT", help="Only this agent's; repeatable.", autocompletion=completing.words(*AGENTS)),
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only sessions that went on after it.")] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Not files whose path this matches; repeatable.")
    ] = None,
    folder: Annotated[Path | None, typer.Argument(help="With --format: where the files are.")] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="jsonl", help="Of files of an agent not known here.")
    ] = "",
    forget: Annotated[str, typer.Option(metavar="SESSION", help="Erase a session here, for good.")] = "",
    status: Annotated[bool, typer.Option("--status", help="Say what is read and what could not be.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing.")] = False,
    json_: JsonOption = False,
) -> None:
    """Read the past sessions of the agents on this machine, so that they can be searched; what is read stays here."""
    if status:
        _show_status(_status(), as_json=json_)
        return
    from memory_anchor.extensions.sessions.adopting import overview

    check_writable()
    if forget:
        _forget(forget, as_json=json_)
        return
    if format_ not in ("", JSONL) or (folder is not None) != bool(format_) or (folder and not folder.is_dir()):
        raise BadInput("--format is read with a folder that is there; allowed is --format jsonl FOLDER")
    choice = _choice(only, since, exclude, folder)
    agents = overview(found := choice.found())
    if not json_:
        _show_overview(agents)
    if not found or not (yes or _agrees()):
        if json_:
            show_json({"agents": agents, "read": 0, "bytes": 0, "passages": 0, "problems": []})
        print_dim("nothing was read")
        return
    report = _read(choice)
    if json_:
        problems: list[Json] = [{"path": path, "problem": problem} for path, problem in report.problems]
        counts: Record = {"read": report.read, "bytes": report.bytes, "passages": report.passages}
        show_json({"agents": agents, **counts, "problems": problems})
        return
    out.print(f"[green]read[/] {report.read} of {report.files} files, {report.passages} passages; they can be searched")
    if report.problems:
        print_dim(f"{len(report.problems)} files in part or not at all: `memory-anchor adopt --status`")


def _choice(only: list[str] | None, since: str | None, exclude: list[str] | None, folder: Path | None) -> AdoptChoice:
    """Return what is to be read: all that is known here, or a folder and what was chosen before."""
    from memory_anchor.extensions.sessions.adopting import AdoptChoice
    from memory_anchor.extensions.sessions.agents import places

    if unknown := next((name for name in only or () if name not in AGENTS), ""):
        raise BadInput(f"--only is {unknown[:40]!r}; allowed are {', '.join(AGENTS)}")
    begin = 0.0
    if since:
        at = datetime.fromisoformat(parse_time("since", since))
        begin = (at if at.tzinfo is not None else at.astimezone()).timestamp()
    before = _chosen() or AdoptChoice({})
    from memory_anchor.adapters.projects import PATH, Projects

    aliases = Projects(data_dir() / "projects.json", lambda: "").all().values()
    projects = [Path(alias.removeprefix(PATH)) for names in aliases for alias in names if alias.startswith(PATH)]
    chosen = before.places if folder else places(os.environ, Path.home(), only or (), [Path.cwd(), *projects])
    given = [str(folder.absolute())] if folder else []
    chosen = {**chosen, JSONL: list(dict.fromkeys([*before.places.get(JSONL, ()), *given]))}
    return AdoptChoice(
        chosen, begin or (before.since if folder else 0.0), tuple(exclude or (before.exclude if folder else ()))
    )


def _chosen() -> AdoptChoice | None:
    if not (data_dir() / FILE).exists():
        return None
    from memory_anchor.extensions.sessions.adopting import AdoptChoice

    with closing(_opened()) as archive:
        return AdoptChoice.stored(archive)


def _agrees() -> bool:
    if not sys.stdin.isatty():
        raise BadInput("adopt asks on a terminal; without one, give --yes")
    return typer.confirm("Read them", default=True)


def _read(choice: AdoptChoice) -> LookReport:
    from memory_anchor.extensions.sessions.adopting import read_all
    from memory_anchor.extensions.sessions.archive import SessionsFile

    ticker = Ticker("files", every=200)
    with closing(SessionsFile(data_dir() / FILE)) as archive:
        try:
            return read_all(archive, choice, progress=lambda one: ticker.at(one.read, one.read + one.left))
        finally:
            ticker.end()


def _opened() -> SessionsFile:
    path = data_dir() / FILE
    if not path.exists():
        raise NotFound(NOTHING)
    from memory_anchor.extensions.sessions.archive import SessionsFile

    return SessionsFile(path)


def _status() -> Record:
    with closing(_opened()) as archive:
        rows = archive.rows(
            "select agent, count(*), sum(passages), min(nullif(began, 0)), max(ended) from session "
            "where passages > 0 group by agent order by agent"
        )
        agents: list[dict[str, Json]] = [
            {"agent": str(agent), "sessions": int(n or 0), "passages": int(p or 0), "first": first, "last": last}
            for agent, n, p, first, last in rows
            if not isinstance(first, bytes) and not isinstance(last, bytes)
        ]
        problems: list[Json] = [{"path": path, "problem": problem} for path, problem in archive.problems()]
        gone, forgotten = archive.rows(
            "select (select count(*) from source where gone_at is not null), (select count(*) from tombstone)"
        )[0]
        counts: Record = {"gone": int(gone or 0), "forgotten": int(forgotten or 0), "bytes": archive.size_bytes()}
        return {"agents": agents, **counts, "problems": problems}


def _forget(name: str, *, as_json: bool) -> None:
    with closing(_opened()) as archive:
        rows = archive.rows("select id, name from session where name like ? || '%'", (name.replace("%", ""),))
        exact = [row for row in rows if row[1] == name] or rows
        if len(exact) != 1 or len(name) < 4:
            raise NotFound(f"{len(exact)} sessions begin with {name[:80]!r}; name one, as `sessions list` does")
        passages = archive.forget(int(exact[0][0] or 0))
        archive.clean()
    left = ""
    try:
        call("jobs_run", name=LOOK)
    except MemoryAnchorError as error:
        left = f"what was proposed from it stays in the inbox until the next look ({error})"
    answer: Record = {"session": str(exact[0][1]), "passages": passages, "left": left}
    if as_json:
        show_json(answer)
        return
    out.print(f"[green]forgotten[/] {escaped(answer['session'])}: {passages} passages; it is not read again")
    if left:
        print_dim(left)


def _day(at: Json) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=number(at))).strftime("%Y-%m-%d") if at else "?"


def _show_overview(agents: list[dict[str, Json]]) -> None:
    for one in agents:
        size = f"{number(one['bytes']) / 1e6:.1f} MB"
        span = f"{_day(one['first'])} to {_day(one['last'])}"
        out.print(f"[cyan]{one['agent']}[/] {one['files']} sessions, {size}, {span}, {one['projects']} projects")
    if not agents:
        print_dim("no agent that is known here has sessions on this machine")


def _show_status(answer: Record, *, as_json: bool) -> None:
    if as_json:
        show_json(answer)
        return
    for one in records(answer["agents"]):
        span = f"{_day(one['first'])} to {_day(one['last'])}"
        out.print(f"[cyan]{one['agent']}[/] {one['sessions']} sessions, {one['passages']} passages, {span}")
    out.print(f"{number(answer['bytes']) / 1e6:.1f} MB, {answer['gone']} files gone, {answer['forgotten']} forgotten")
    problems = records(answer["problems"])
    for one in problems[:SENTENCES]:
        out.print(f"  [yellow]{escaped(one['path'])}[/]: {escaped(one['problem'])}")
    if len(problems) > SENTENCES:
        print_dim(f"  and {len(problems) - SENTENCES} others; --json tells all")


def _found(answer: Record, _: Values) -> None:
    for passage in records(answer["passages"]):
        when = f" [dim]{local_time(passage['when'])}[/]" if passage.get("when") else ""
        cited = record(passage["citation"])
        out.print(f"[cyan]{escaped(cited['ref'])}[/] {escaped(passage['project'])}{when} [dim]untrusted[/]")
        out.print(block(text(passage["text"]), "  "))
        if passage.get("later"):
            out.print(block(f"later: {text(passage['later'])}", "  "))
    if not answer["passages"]:
        print_dim("nothing fits" if (data_dir() / FILE).exists() else NOTHING)


def _listed(answer: Record, _: Values) -> None:
    for one in records(answer["sessions"]):
        when = local_time(one["ended"]) if one.get("ended") else ""
        title = " ".join(text(one["title"]).split())[:80]
        out.print(
            f"[cyan]{escaped(text(one['session'])[:12])}[/] {one['agent']} {escaped(one['project'])} [dim]{when}[/]"
        )
        out.print(f"  {escaped(title)} [dim]{one['passages']} passages[/]")
    if not answer["sessions"]:
        print_dim("none" if (data_dir() / FILE).exists() else NOTHING)


def _one(answer: Record, _: Values) -> None:
    out.print(f"[cyan]{escaped(answer['session'])}[/] {answer['agent']} {escaped(answer['folder'])}")
    for passage in records(answer["passages"]):
        if passage.get("when"):
            print_dim(local_time(passage["when"]))
        out.print(block(text(passage["text"]), "  "))


def _handed(answer: Record, _: Values) -> None:
    out.print(block(text(answer["text"])))


COMMANDS = (
    Command("search", _found, ("query",), call="sessions_search"),
    Command("list", _listed, call="sessions_list"),
    Command("show", _one, ("session",), call="sessions_show"),
)
HANDOFF = Command("handoff", _handed, ("session",), call="sessions_handoff")

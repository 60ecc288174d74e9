"""`memory-anchor init`: a short dialogue that sets a project up and changes nothing that is set up already.

It asks only what is open: the goal, which of the clients found here to connect, whether to learn from sessions, whether
to read the Git history; then for the passphrase, and then it does all of it. Each question has a flag, and --yes takes
the defaults of a new user; without a terminal, an error names the flags that are missing. The key is made on a terminal
alone: without one everything else is done, and the text stays unapproved.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from memory_anchor.base import nofollow
from memory_anchor.base.files import file_error, make_private, replace_durably
from memory_anchor.base.json_values import Json, Record, record, records, texts
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, Refused, report
from memory_anchor.front.cli.completing import words
from memory_anchor.front.cli.link import call, data_dir, preamble
from memory_anchor.front.cli.output import (
    JsonOption,
    err,
    escaped,
    handle_errors,
    out,
    print_dim,
    show_json,
    show_progress,
)
from memory_anchor.front.cli.passphrase import ask_human, key_ring
from memory_anchor.runtime import wire

if TYPE_CHECKING:
    from memory_anchor.identity.identity_schema import IdentitySchema
    from memory_anchor.identity.keys import Signer

T = TypeVar("T")

STARTER = """\
# What this project is: always preloaded, changed only after three human confirmations.
version: "1"
entries:
  - id: goal
    content: {goal}
    priority: 0
"""
GOAL_MAX = 500
OPERATIONS_README = (
    "# Operations\n\nOne file per task: how it is done here. Agents find these by name and by passage.\n"
)
NO_CLIENT = "none"
READ_S = 20.0
"""How long the history is read while somebody waits; the rest is read in the background."""
TRIES = 3
YES, NO = ("", "y", "yes", "是", "好"), ("n", "no", "否", "不")


@dataclass
class _Answers:
    """What a person chose; None: not asked. goal "": later."""

    goal: str = ""
    capture: bool | None = None
    history: bool | None = None
    clients: tuple[str, ...] | None = None


@dataclass
class _Asker:
    """Asks a person at a terminal, or takes the defaults (--yes), or collects the flags that are missing."""

    is_interactive: bool
    takes_defaults: bool
    as_json: bool
    unanswered: list[str] = field(default_factory=list)

    def ask(self, question: str, read: Callable[[str], T], *, default: T, flag: str) -> T:
        """Return what `read` makes of the answer; it raises BadInput where the answer is none."""
        if self.takes_defaults:
            return default
        if not self.is_interactive:
            self.unanswered.append(flag)
            return default
        stream = sys.stderr if self.as_json else sys.stdout
        for left in range(TRIES - 1, -1, -1):
            stream.write(question)
            stream.flush()
            typed = sys.stdin.readline()
            if not typed:
                raise typer.Abort
            try:
                return read(" ".join(typed.split()))
            except BadInput as error:
                if not left:
                    raise
                stream.write(f"{error}\n")
        return default

    def agrees(self, question: str, *, flag: str) -> bool:
        return self.ask(f"{question} [Y/n]? ", _yes_or_no, default=True, flag=flag)


def register(app: typer.Typer, identity: Callable[[], IdentitySchema]) -> None:
    """identity: makes L0 of the folder that the command is run in."""

    @handle_errors
    def init(
        approver: Annotated[str, typer.Option(help="Your name in confirmations.")] = "",
        goal: Annotated[str, typer.Option(metavar="TEXT", help="What this project is for, in one sentence.")] = "",
        client: Annotated[
            list[str] | None,
            typer.Option(
                metavar="CLIENT",
                help="Connect this one; repeatable; or none.",
                autocompletion=words("claude-code", "codex", "gemini", "cursor", "vscode", NO_CLIENT),
            ),
        ] = None,
        capture: Annotated[
            bool | None, typer.Option("--capture/--no-capture", help="Ask agents at their end what is worth keeping.")
        ] = None,
        history: Annotated[
            bool | None, typer.Option("--history/--no-history", help="Let agents search the Git history.")
        ] = None,
        yes: Annotated[bool, typer.Option("--yes", help="Ask nothing but the passphrase.")] = False,
        json_: JsonOption = False,
    ) -> None:
        """Set up this project in one short dialogue; run it again at any time: nothing that exists is changed."""
        asker = _Asker(sys.stdin.isatty() and (sys.stderr if json_ else sys.stdout).isatty(), yes, json_)
        folder = preamble().project_dir
        if folder and not Path(folder).is_dir():
            raise BadInput(f"project folder {folder} is no folder; allowed is one that exists")
        clients = None if client is None else tuple(name for name in client if name != NO_CLIENT)
        schema = identity()
        root = Path(folder) if folder else schema.path.parent  # a server's: the text of no project is in its own folder
        answer, problems = _set_up(
            schema, root, asker, _Answers(goal, capture, history, clients), approver, has_folder=bool(folder)
        )
        if json_:
            show_json({**answer, "project_dir": str(root), "problems": [str(problem) for problem in problems]})
        else:
            _show(answer, root)
            for problem in problems:
                err.print(f"[bold red]error:[/] {escaped(str(problem))}")
        if problems:
            raise typer.Exit(report(problems[0]).exit_code)

    app.command()(init)


def _set_up(
    schema: IdentitySchema, root: Path, asker: _Asker, given: _Answers, approver: str, *, has_folder: bool
) -> tuple[Record, list[MemoryAnchorError]]:
    """Ask what is open, then do it; return the outcome of each part, and the errors."""
    from memory_anchor.front.clients import install
    from memory_anchor.front.clients.places import CLIENTS, note_on_env

    allowed = [name for name in CLIENTS if name != "json"]
    if unknown := [name for name in given.clients or () if name not in allowed]:
        raise BadInput(f"--client is {unknown[0]!r}; allowed are {', '.join([*allowed, NO_CLIENT])}")
    if install.runs_from_cache(os.environ) and not asker.as_json:
        print_dim("installing Memory Anchor as a tool of uv, so that it stays")
    if (note := note_on_env(os.environ)) and not asker.as_json:
        print_dim(note)
    tool = install.install_tool()  # before anything is written: where it fails, nothing was changed
    made = []
    try:
        if not has_folder:
            make_private(root)
        if _write_goal(schema, root, given.goal, asker):
            made.append("constitution.yaml")
        if has_folder and nofollow.make_folder(root, ".ai/operations"):
            nofollow.write(root, ".ai/operations/README.md", OPERATIONS_README.encode())
            made.append(".ai/operations/README.md")
    except OSError as error:
        raise file_error(error, Path(error.filename) if isinstance(error.filename, str) else root) from error
    problems: list[MemoryAnchorError] = []
    answers, learned = _ask_open(root, asker, given, install.detect_clients(CLIENTS))
    if not asker.is_interactive and not asker.takes_defaults and (asker.unanswered or not _is_in_force(schema)):
        flags = ", ".join([*asker.unanswered, "--yes for what a new user would take"])
        raise Refused(f"init asks on a terminal, where your key is made too; here it takes {flags}")
    identity, signer = _make_key(schema, asker, approver)
    connected: dict[str, Json] = {}
    done: dict[str, Json] = {**identity, "made": made, "capture": None, "clients": connected, "history": None}
    if tool:
        done["tool"] = tool
    for name in answers.clients or ():
        try:
            plan = install.install(name)
        except MemoryAnchorError as error:
            problems.append(error)
            continue
        changed = [str(change.file) for change in plan.changes if change.before != change.after]
        connected[name] = {"changed": changed, "backups": dict(plan.backups), "adopted": list(plan.adopted)}
    try:
        done["capture"] = None if answers.capture is None else _set_capture(answers.capture, learned)
        done["history"] = _read_history(root, signer, asker) if answers.history else None
    except MemoryAnchorError as error:
        problems.append(error)
    return done, problems


def _is_in_force(schema: IdentitySchema) -> bool:
    """Return whether an approved text is in force; else `init` has something to sign."""
    try:
        schema.text()
    except Refused:
        return False
    return True


def _ask_open(root: Path, asker: _Asker, given: _Answers, detected: Sequence[str]) -> tuple[_Answers, list[str]]:
    """Return all answers, asking for those that no flag or earlier run gave, and the agents to learn from."""
    clients = given.clients
    if clients is None and detected:
        clients = asker.ask(
            f"Found here 已找到: {', '.join(detected)}. Connect them 连接 [Y/n, or some of them]? ",
            lambda typed: _some_of(detected, typed),
            default=tuple(detected),
            flag="--client NAME (or none)",
        )
    capture = given.capture
    learned = _without_setting(clients or ())
    if capture is None and learned:
        capture = asker.agrees(
            "Ask an agent at a session's end what is worth keeping 会话结束时记录要点", flag="--capture or --no-capture"
        )
    history = given.history
    if history is None and (root / ".git").exists() and not _is_read(root):
        history = asker.agrees(
            "Let agents search what your commits decided 检索 Git 历史", flag="--history or --no-history"
        )
    return _Answers("", capture if learned else None, history, clients), learned


def _yes_or_no(typed: str) -> bool:
    if typed.lower() not in YES + NO:
        raise BadInput("please answer y or n")
    return typed.lower() in YES


def _some_of(detected: Sequence[str], typed: str) -> tuple[str, ...]:
    if typed.lower() in YES + NO:
        return tuple(detected) if typed.lower() in YES else ()
    named = tuple(typed.replace(",", " ").replace("，", " ").split())
    if unknown := next((name for name in named if name not in detected), ""):
        raise BadInput(f"{unknown[:40]!r} was not found here; allowed are y, n, or of {', '.join(detected)}")
    return named


def _write_goal(schema: IdentitySchema, root: Path, goal: str, asker: _Asker) -> bool:
    """Write the project's goal into a constitution.yaml that has no text yet; return whether that was done.

    goal: asked for when "". Raises BadInput: the goal, or there is a text already.
    """
    from memory_anchor.domain.requests.checks import text as checked_text
    from memory_anchor.identity.constitution_text import MAX_BYTES, PLACEHOLDER

    def checked(typed: str) -> str:
        return str(checked_text("goal", typed, most=GOAL_MAX, required=False))

    goal = checked(" ".join(goal.split()))
    file = root / "constitution.yaml"
    old = ""
    if os.path.lexists(file):
        old = (nofollow.read(root, file.name, most_bytes=MAX_BYTES) or b"").decode("utf-8", "replace")
    is_empty = not old.strip() or PLACEHOLDER in old or "entries: []" in old
    if schema.initialised or not is_empty:
        if goal:
            raise BadInput(
                "--goal is given and constitution.yaml says something already; edit the file before the first `init`, "
                "and use `memory-anchor constitution propose` after it"
            )
        return False
    if not goal:
        question = "What is this project for, in one sentence (empty: later)? 项目目标（可留空）: "
        goal = asker.ask(question, checked, default="", flag="--goal TEXT")
    if not goal:
        return False
    quoted = json.dumps(goal, ensure_ascii=False)
    whole = re.sub(rf'"[^"\n]{{0,400}}{re.escape(PLACEHOLDER)}[^"\n]{{0,400}}"', lambda _: quoted, old)
    text = whole if PLACEHOLDER in old and PLACEHOLDER not in whole else STARTER.format(goal=quoted)
    nofollow.write(root, file.name, text.encode())
    return True


def _make_key(schema: IdentitySchema, asker: _Asker, approver: str) -> tuple[Record, Signer | None]:
    """Make or open the human's key, and approve the text that waits; return the state of L0, and the signer."""
    from memory_anchor.front.cli.constitution import init_constitution

    own = schema.approver()
    if not asker.is_interactive or (schema.initialised and asker.takes_defaults):
        served = schema.load()
        return {
            "initialised": schema.initialised,
            "approver": own.name if own is not None else None,
            "entries": len(served.entries),
            "tokens": served.tokens,
            "fingerprint": schema.key_fingerprint() if own is not None else None,
        }, None
    name = approver or (_login() if asker.takes_defaults and own is None else "")
    opened: list[str] = []
    answer = init_constitution(schema, approver=name, as_json=asker.as_json, opened=opened.append)
    return answer, key_ring(data_dir()).unlock(opened[0])


def _login() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "me"


def _without_setting(clients: Sequence[str]) -> list[str]:
    """Return the clients whose sessions can be learned from and for which no setting decides it yet."""
    from memory_anchor.front.clients.places import HOOKED
    from memory_anchor.process.app import loaded_settings

    configured = loaded_settings(os.environ, "").settings.agents
    return [name for name in clients if name in HOOKED and name not in configured]


def _set_capture(wanted: bool, clients: Sequence[str]) -> bool:
    """Append the setting for these agents to the user's file; return it.

    Raises BadInput: the file has an `agents` section already, which a human edits.
    """
    import yaml

    file = Path(wire.user_config_file(os.environ))
    lines = "".join(f"  {name}:\n    enabled: {str(wanted).lower()}\n" for name in clients)
    try:
        text = file.read_bytes().decode("utf-8") if file.exists() else ""
        if "agents" in (yaml.safe_load(text) or {}):
            names = " and ".join(f"agents.{name}.enabled" for name in clients)
            raise BadInput(f"{file} speaks of agents already; set {names} to {str(wanted).lower()} there yourself")
        gap = "" if not text or text.endswith("\n") else "\n"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(f"{text}{gap}agents:\n{lines}")
        replace_durably(temporary, file)
    except (UnicodeDecodeError, TypeError, yaml.YAMLError):
        raise BadInput(f"{file} is no YAML with settings; mend it, then run `memory-anchor init` again") from None
    except OSError as error:
        raise file_error(error, file) from error
    return wanted


def _is_read(root: Path) -> bool:
    """Return whether the folder's Git history is a source already."""
    sources = call("knowledge_sources")["sources"]
    return any(source["kind"] == "git_history" and source["ref"] == str(root) for source in records(sources))


def _read_history(root: Path, signer: Signer | None, asker: _Asker) -> Record:
    """Make the Git history a source, and read it for a while; the rest is read in the background.

    It is trusted as its caller: as a human's with a passphrase, else as an agent's.
    """
    if signer is None and asker.is_interactive:
        signer = ask_human()
    source = call("knowledge_add", human=signer, ref=str(root), kind="git_history")["source"]
    until = time.monotonic() + READ_S
    id = record(source)["id"]
    more = True
    while more:
        answer = call("knowledge_sync", source=id, begin=False)
        more = bool(answer["left"]) and time.monotonic() < until
        if answer.get("read"):
            show_progress(answer, more=more)
    commits = next(
        (source["documents"] for source in records(call("knowledge_sources")["sources"]) if source["id"] == id), 0
    )
    return {"source": id, "trust": record(source)["trust"], "commits": commits, "all_read": not answer["left"]}


def _show(answer: Record, root: Path) -> None:
    for name in texts(answer["made"]):
        print_dim(f"made {name if root == Path(wire.working_folder()) else root / name}")
    if answer["fingerprint"]:
        out.print(f"your key's fingerprint, to note down: [bold]{answer['fingerprint']}[/]")
        print_dim("`memory-anchor doctor` shows it again; another one there means that somebody replaced your key")
    else:
        print_dim("no key was made: run `memory-anchor init` on a terminal, where it asks for your passphrase")
    if not answer["initialised"]:
        print_dim(
            "no text was approved: L0 stays empty until `memory-anchor init --goal TEXT`, or `init` after you wrote it"
        )
    for name, client in record(answer["clients"]).items():
        files = ", ".join(texts(record(client)["changed"])) or "nothing to change"
        out.print(f"[green]connected[/] {name} [dim]{escaped(files)}[/]")
    if tool := answer.get("tool"):
        folder = Path(str(tool)).parent
        is_found = str(folder) in os.environ.get("PATH", "").split(os.pathsep)
        hint = "" if is_found else "; `uv tool update-shell` lets your shell find it"
        out.print(f"[green]installed[/] as {escaped(str(tool))}[dim]{hint}[/]")
    if answer["clients"]:
        print_dim("they know it from their next session on; `memory-anchor uninstall CLIENT` takes it back")
    if answer["capture"] is not None:
        how = "are asked at their end what is worth keeping" if answer["capture"] else "are not learned from"
        print_dim(f"sessions {how}: agents.NAME.enabled in {wire.user_config_file(os.environ)}")
    print_dim("what agents did here before can be searched too: `memory-anchor adopt` shows what there is, and asks")
    if history := answer["history"]:
        rest = "" if record(history)["all_read"] else "; the rest is read in the background"
        commits, trust = record(history)["commits"], record(history)["trust"]
        print_dim(f"the Git history is searched from now on ({trust}), commits that decide something: {commits}{rest}")

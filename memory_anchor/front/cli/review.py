"""What waits for a human, shown with what changed word by word, and decided.

What changed between two texts, word by word: for the terminal's `review` and the dashboard alike.

`memory-anchor review`: what waits for a human, one after the other, with all that a decision needs to know.

Pending facts come first, then contradictions, then proposals for the constitution. Deciding takes the key, which the
passphrase opens once a run; a confirmation of L0 takes the passphrase each time. What a decision is about is named by
the versions that were shown (`stamps`): another one is shown again.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from memory_anchor.errors import BadInput, MemoryAnchorError, NotFound, Refused
from memory_anchor.front.cli.completing import pending, words
from memory_anchor.front.cli.link import call, key_of, through
from memory_anchor.front.cli.output import (
    TABLE_COLUMNS,
    JsonOption,
    KeyFileOption,
    ServerOption,
    block,
    err,
    guarded,
    layer_name,
    local,
    out,
    quiet,
    show_json,
    show_memories,
    show_outcome,
    shown,
)
from memory_anchor.front.cli.passphrase import ask_human
from memory_anchor.front.cli.spoken import whole_id
from memory_anchor.json_values import Json, Record, items, number, record, records, text, whole
from memory_anchor.rights import stamp
from memory_anchor.terminal import visible, visible_lines

if TYPE_CHECKING:
    from memory_anchor.identity.identity_schema import IdentitySchema
    from memory_anchor.identity.keys import Signer
    from memory_anchor.model import Proposal

COMPARED_MAX = 3_000
"""Words a side; beyond it lines are compared."""
_WORD = re.compile(r"[^\W\u2e80-\u9fff\uac00-\ud7af\u3040-\u30ff]+|\s+|.", re.DOTALL)
"""A word, white space, or a sign; Chinese, Japanese and Korean sign by sign."""


def word_diff(before: str, after: str) -> list[tuple[str, str]]:
    """Return the parts of both texts in order: ("same" | "gone" | "new", text).

    >>> word_diff("port 8080 now", "port 9090 now")
    [('same', 'port '), ('gone', '8080'), ('new', '9090'), ('same', ' now')]
    """
    old, new = _WORD.findall(before), _WORD.findall(after)
    if max(len(old), len(new)) > COMPARED_MAX:
        old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    parts: list[tuple[str, str]] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=len(old) > 400).get_opcodes():
        if kind == "equal":
            parts.append(("same", "".join(old[a:b])))
            continue
        parts += [("gone", "".join(old[a:b]))] * (b > a)
        parts += [("new", "".join(new[c:d]))] * (d > c)
    return parts


SHOWN_AGAIN_MAX = 20
"""How often one item is shown anew because somebody keeps changing it."""
CITATIONS_SHOWN = 5
PENDING = "(a)ccept, (e)dit, (r)eject, (s)kip, all of the rest: (A)ccept or (R)eject, (u)ndo, (q)uit"
DISPUTED = "keep (n)ew, keep (o)ld, (m)erge, (s)kip, (u)ndo, (q)uit"
PROPOSED = "(c)onfirm, (r)eject, (s)kip, (q)uit"
RESOLUTIONS = {"n": "keep_new", "o": "keep_old", "m": "merge"}
SURE = 0.9
"""What the gate stores without a human unless settings say otherwise; only to explain."""


@guarded
def review(
    list_only: Annotated[bool, typer.Option("--list", help="Only show what waits.")] = False,
    accept: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Let this in; repeatable.", autocompletion=pending)
    ] = None,
    reject: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Archive this; repeatable.", autocompletion=pending)
    ] = None,
    settle: Annotated[
        str | None, typer.Option(metavar="ID", help="End it; needs --resolution.", autocompletion=pending)
    ] = None,
    resolution: Annotated[
        str | None,
        typer.Option(help="keep_new, keep_old or merge.", autocompletion=words("keep_new", "keep_old", "merge")),
    ] = None,
    content: Annotated[str | None, typer.Option(metavar="TEXT", help="The text to accept, or to merge into.")] = None,
    server: ServerOption = "",
    key_file: KeyFileOption = "",
    json_: JsonOption = False,
) -> None:
    """Decide on pending facts, contradictions and proposals; deciding needs the passphrase on a terminal."""
    if settle and resolution is None:
        raise BadInput("--resolution is missing; allowed are keep_new, keep_old, merge")
    named = [*(accept or ()), *(reject or ()), *([settle] if settle else ())]
    if content is not None and (len(named) != 1 or reject):
        raise BadInput("--content is given; allowed is with one --accept ID, or with --settle ID --resolution merge")
    with through(server, key_of(key_file)):
        if named:
            _check_terminal()
            wishes = [("accept", one) for one in accept or ()] + [("reject", one) for one in reject or ()]
            wishes += [("settle", settle)] if settle else []
            if not server:
                wishes = [(what, whole_id(one)) for what, one in wishes]
            _decide_named(wishes, resolution, content, json_)
            return
        waiting, schema = records(call("inbox")["items"]), None if server else _constitution()
        proposals = _open_proposals(schema) if schema is not None else []
        if json_ or list_only:
            _show_inbox(waiting, proposals, json_)
        elif not waiting and not proposals:
            quiet("nothing waits for review")
        else:
            _Review(waiting, ask_human()).run()
            for number, one in enumerate(proposals, 1):
                if schema is not None and not _proposal(schema, one, f"{number}/{len(proposals)}"):
                    return


def _decide_named(
    wishes: Sequence[tuple[str, str]], resolution: str | None, content: str | None, as_json: bool
) -> None:
    """Show everything that is named, ask for the passphrase once, and carry it out."""
    shown_sides = {name: records(call("sides", id=name)["memories"]) for _, name in wishes}
    for sides in shown_sides.values():
        show_sides(sides, on=err)
    human, answers = ask_human(), []
    for what, name in wishes:
        given = {"resolution": resolution} if what == "settle" else {}
        answers.append(call(what, id=name, seen=stamps(shown_sides[name]), content=content, human=human, **given))
    if as_json:
        show_json(answers[0] if len(answers) == 1 else {"outcomes": answers})
        return
    for answer in answers:
        show_outcome(answer, False)


@dataclass
class _Done:
    """The last action: what it was done to, by its place in the list."""

    place: int
    ids: list[str]


@dataclass
class _Review:
    """One walk through the inbox. place: the item at hand."""

    items: list[Record]
    human: Signer
    place: int = 0
    last: _Done | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        while self.place < len(self.items):
            if not self._one():
                break
        if self.counts:
            quiet(", ".join(f"{count} {what}" for what, count in self.counts.items()))

    def _one(self) -> bool:
        """Ask about the item at hand; return whether to go on."""
        item = self.items[self.place]
        sides = _sides(item)
        for _ in range(SHOWN_AGAIN_MAX):
            out.print(f"\n[bold]{self.place + 1}/{len(self.items)}[/] [dim]{shown(sides[0]['type'])}[/]")
            show_sides(sides, on=out)
            answer = typer.prompt(DISPUTED if len(sides) > 1 else PENDING, default="s").strip()[:1]
            if answer in ("q", "Q"):
                return False
            if answer in ("u", "U"):
                self._undo()
                return True
            if answer in ("A", "R") and len(sides) == 1:
                self._rest("accept" if answer == "A" else "reject")
                return True
            wish = _wish(answer.lower(), sides)
            if not wish:
                break
            try:
                self._carry_out(wish, sides)
                break
            except MemoryAnchorError as error:
                now = records(call("sides", id=sides[0]["id"])["memories"])
                if stamps(now) == stamps(sides):
                    raise
                sides = now
                err.print(f"[yellow]{shown(str(error))}[/]")
        self.place += 1
        return True

    def _carry_out(self, wish: Record, sides: list[Record]) -> None:
        what = text(wish["call"])
        given: dict[str, Json] = {name: value for name, value in wish.items() if name != "call"}
        show_outcome(call(what, id=sides[0]["id"], seen=stamps(sides), human=self.human, **given), False)
        self._note(what, [text(one["id"]) for one in sides])

    def _note(self, what: str, ids: list[str]) -> None:
        told = {"accept": "accepted", "reject": "rejected", "settle": "settled"}[what]
        self.counts[told] = self.counts.get(told, 0) + 1
        self.last = _Done(self.place, ids)

    def _rest(self, what: str) -> None:
        """Accept or reject every pending memory from here on, after one look at all of them."""
        rest = [record(item["memory"]) for item in self.items[self.place :] if not item["against"]]
        show_memories(rest)
        for memory in rest:
            _show_why(memory, out)
        if not typer.confirm(f"{what.capitalize()} these {len(rest)}?", default=False):
            return
        for memory in rest:
            try:
                call(what, id=memory["id"], seen=stamps([memory]), human=self.human)
                self._note(what, [text(memory["id"])])
            except MemoryAnchorError as error:  # changed since, or settled elsewhere: it is told and stays
                err.print(f"[yellow]{memory['id']}: {shown(str(error))}[/]")
        self.place += next((n for n, item in enumerate(self.items[self.place :]) if item["against"]), len(rest))

    def _undo(self) -> None:
        """Take the last action back, unless somebody else wrote since; the item comes again."""
        if self.last is None:
            quiet("nothing was decided yet in this review")
            return
        plan = call("undo", what="last", human=self.human)
        if not {step["id"] for step in records(plan["steps"])} & set(self.last.ids):
            quiet(f"somebody wrote since; `memory-anchor history {self.last.ids[0]}` shows what became of it")
            return
        call("undo", what="last", apply=True, human=self.human)
        self.place, ids = self.last.place, ", ".join(self.last.ids)
        self.last = None
        waiting = {record(item["memory"])["id"]: item for item in records(call("inbox")["items"])}
        self.items[self.place] = waiting.get(record(self.items[self.place]["memory"])["id"], self.items[self.place])
        quiet(f"undone: {ids} waits again")


def _wish(answer: str, sides: list[Record]) -> Record:
    """Return the call that a human chose, {} to skip."""
    if len(sides) > 1:
        chosen = RESOLUTIONS.get(answer)
        if chosen != "merge":
            return {"call": "settle", "resolution": chosen} if chosen else {}
        merged = edited("\n".join(text(one["content"]) for one in reversed(sides)), "the one text that holds")
        return {"call": "settle", "resolution": "merge", "content": merged} if merged else {}
    name = {"a": "accept", "e": "accept", "r": "reject"}.get(answer)
    wish: dict[str, Json] = {"call": name} if name else {}
    if answer == "e":
        wording = edited(text(sides[0]["content"]), "new text (empty: as it is)")
        wish |= {"content": wording} if wording and wording != sides[0]["content"] else {}
    return wish


def _sides(item: Record) -> list[Record]:
    """Return a waiting memory and what it speaks against."""
    return [record(item["memory"]), *records(item["against"])]


def edited(text: str, about: str) -> str:
    """Return a text as a human edited it: in the line itself where it is one, else in $VISUAL or $EDITOR.

    Where neither can be, it is typed anew; "" is what was not typed.
    """
    shown_text = visible_lines(text)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if "\n" in shown_text and editor and sys.stdin.isatty():
        said = _in_editor(shown_text, editor)
    else:
        said = _in_line(shown_text.replace("\n", " "), about)
    return text if said == shown_text else said


def _in_line(text: str, about: str) -> str:
    try:
        import readline
    except ImportError:  # Windows
        return str(typer.prompt(about, default="", show_default=False)).strip()
    out.print(f"[dim]{about}:[/]")
    readline.set_startup_hook(lambda: readline.insert_text(text))
    try:
        return input("> ").strip()
    except EOFError:
        return ""
    finally:
        readline.set_startup_hook(None)


def _in_editor(text: str, editor: str) -> str:
    import shlex
    import subprocess
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "memory.txt"
        file.write_text(text, encoding="utf-8")
        try:
            subprocess.run([*shlex.split(editor), str(file)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Refused(f"the editor {editor!r} ended with an error ({error}); nothing was decided") from None
        return file.read_text(encoding="utf-8").strip()


# --- the constitution ----------------------------------------------------------------------------------------------


def _constitution() -> IdentitySchema | None:
    from memory_anchor.front.cli.setup import identity

    try:
        return identity()
    except (BadInput, NotFound, Refused):
        return None


def _open_proposals(schema: IdentitySchema) -> list[Proposal]:
    from memory_anchor.model import ProposalStatus

    return [one for one in schema.proposals() if one.status is ProposalStatus.OPEN]


def _proposal(schema: IdentitySchema, proposal: Proposal, place: str) -> bool:
    """Show one proposal and ask; return whether to go on."""
    from memory_anchor.front.cli import constitution

    told = constitution.answer(proposal)
    seen = schema.fingerprint(proposal)
    number = min(len(proposal.confirmations) + 1, whole(told["required"]))
    out.print(f"\n[bold]{place}[/] [dim]constitution, {proposal.action.value}[/] [cyan]{shown(proposal.id)}[/]")
    out.print(
        f"  [dim]proposed by {shown(proposal.proposed_by)}, {local(proposal.proposed_at)}:[/] {shown(proposal.reason)}"
    )
    for line in diff_lines(schema.diff(proposal)):
        out.print(line)
    out.print(f"  this would be confirmation [bold]{number} of {told['required']}[/] 第 {number} 次确认")
    answer = str(typer.prompt(PROPOSED, default="s")).strip().lower()[:1]
    if answer not in ("c", "r"):
        return answer != "q"
    if answer == "c":
        passphrase = constitution.asked_passphrase(schema)
        done = schema.confirm(
            proposal.id, passphrase=passphrase, approver=constitution.approver_name(schema), seen=seen
        )
    else:
        reason = typer.prompt("Why")
        passphrase = constitution.asked_passphrase(schema)
        name = constitution.approver_name(schema)
        done = schema.reject(proposal.id, passphrase=passphrase, approver=name, reason=reason, seen=seen)
    out.print(shown(constitution.line_of(done)))
    return True


# --- what is shown -------------------------------------------------------------------------------------------------


def _show_inbox(waiting: list[Record], proposals: Sequence[Proposal], as_json: bool) -> None:
    from memory_anchor.front.cli import constitution

    if as_json:
        show_json({"items": waiting, "proposals": [constitution.answer(one) for one in proposals]})
        return
    if waiting:
        show_memories(memory for item in waiting for memory in _sides(item))
    for one in proposals:
        out.print(f"{shown(constitution.line_of(one))}: {shown(one.reason)}")
    if not waiting and not proposals:
        quiet("nothing waits for review")


def show_sides(sides: list[Record], *, on: Console) -> None:
    """Show a pending memory whole, or both sides of a contradiction: next to one another where there is room."""
    first, *against = sides
    if len(against) == 1 and on.is_terminal and on.width >= TABLE_COLUMNS:
        _show_beside(against[0], first, on)
    else:
        on.print(f"[cyan]{first['id']}[/] [dim]version {first['version']}[/]")
        on.print(block(text(first["content"]), "  "))
        for other in against:
            on.print(f"  [yellow]against[/] [cyan]{other['id']}[/] [dim]version {other['version']}[/]")
            on.print(block(text(other["content"]), "  "))
    for one in sides:
        _show_why(one, on)


def _show_beside(old: Record, new: Record, on: Console) -> None:
    parts = word_diff(text(old["content"]), text(new["content"]))
    table = Table(box=None, pad_edge=False, padding=(0, 2), expand=True, header_style="")
    for name, one in (("old", old), ("new", new)):
        head = (
            Text(f"{name} ", "yellow")
            + Text(visible(text(one["id"])), "cyan")
            + Text(f" version {one['version']}", "dim")
        )
        table.add_column(head, ratio=1, overflow="fold")
    table.add_row(side(parts, "gone"), side(parts, "new"))
    on.print(table, soft_wrap=False)


def _show_why(memory: Record, on: Console) -> None:
    """Say why a memory waits, who it is from, and what it cites."""
    on.print(f"  [dim]{shown(memory['id'])}: {shown('; '.join(why(memory)))}[/]")
    citations = memory.get("citations") or ()
    for one in items(items(citations)[:CITATIONS_SHOWN]):
        on.print(f"  [dim]from {shown(cited(record(one)))}[/]")
    if len(items(citations)) > CITATIONS_SHOWN:
        on.print(f"  [dim]and {len(items(citations)) - CITATIONS_SHOWN} more sources[/]")


def why(memory: Record) -> list[str]:
    """Return why a memory waits for a human and where it comes from, in short parts."""
    origin, confidence = str(memory.get("origin", "")), number(memory.get("confidence", 1.0))
    who = str((record(memory.get("scope") or {})).get("agent") or "an agent")
    said = {
        "agent": f"saved by {who}",
        "extracted": f"taken out of a conversation with {who}",
        "document": "from a document, which is never stored without you",
        "human": "written by a human",
        "system": "made by a job",
    }.get(origin, origin)
    parts = [said, local(memory.get("recorded_at", "")), f"{layer_name(memory['layer'])} {memory['type']}"]
    if memory.get("status") == "disputed":
        parts.insert(0, "contradicts what is stored")
    elif confidence < SURE and origin != "document":
        parts.insert(0, f"confidence {confidence:g}, so it waits")
    elif memory.get("visibility") == "account":
        parts.insert(0, "wants to be known in every project")
    if memory.get("disputes") and memory.get("status") == "pending":
        parts.insert(0, f"speaks against {', '.join(map(str, items(memory['disputes'])))}")
    if memory.get("extractor_model"):
        parts.append(f"by {memory['extractor_model']}")
    return [one for one in parts if one]


def cited(one: Record) -> str:
    """Return a citation in one line: kind, place, lines, and whether it still says so."""
    locator = one.get("locator") or {}
    lines = f":{record(locator)['line_start']}" if record(locator).get("line_start") else ""
    lines += f"-{record(locator)['line_end']}" if lines and record(locator).get("line_end") else ""
    fresh = f" ({one['freshness']})" if one.get("freshness") else ""
    return f"{text(one['kind']).replace('_', ' ')} {one.get('title') or one['ref']}{lines}{fresh}"


def stamps(sides: list[Record]) -> list[str]:
    """Return what names the versions that were shown; counted from the very text that was shown."""
    return sorted(stamp(text(one["id"]), whole(one["version"]), text(one["content"])) for one in sides)


def _check_terminal() -> None:
    if not sys.stdin.isatty():
        raise Refused("this needs a human at a terminal; run it in your own shell, not through an agent")


STYLES = {"gone": "red underline", "new": "green underline", "same": ""}
"""A line of its own text is never rewritten: what changed in it is underlined, so that no text can fake a change."""


def side(parts: list[tuple[str, str]], kind: str) -> Text:
    """Return one side of a difference whole, with what only it says underlined. kind: gone (the old one) or new."""
    text = Text()
    for one, part in parts:
        if one in ("same", kind):
            text.append(visible_lines(part), STYLES[one])
    return text


def diff_lines(unified: str) -> list[Text]:
    """Return the lines of a unified diff as they are; where one line took another's place, its words are marked."""
    shown: list[Text] = []
    gone: list[int] = []
    for line in unified.split("\n"):
        if line.startswith(("--- ", "+++ ", "@@")):
            shown.append(Text(line, "dim"))
        elif line.startswith("-"):
            gone.append(len(shown))
            shown.append(Text(line, "red"))
        elif line.startswith("+"):
            if gone:
                place = gone.pop(0)
                parts = word_diff(shown[place].plain[1:], line[1:])
                shown[place] = Text("-", "red") + side(parts, "gone")
                shown.append(Text("+", "green") + side(parts, "new"))
            else:
                shown.append(Text(line, "green"))
        else:
            gone = []
            shown.append(Text(line))
    return shown

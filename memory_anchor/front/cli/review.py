"""`memory-anchor review`: the inbox, item by item; its word-by-word diff also serves the dashboard.

Pending facts come first, then contradictions, then proposals for the constitution. Deciding takes the human's key,
which the passphrase opens once a run; a confirmation of L0 asks for it each time. A decision names the versions that
were shown (`version_stamps`); when one of them changed meanwhile, the item is shown again.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from memory_anchor.base.json_values import Json, Record, items, number, record, records, text, whole
from memory_anchor.base.lines import text_lines
from memory_anchor.base.terminal import visible, visible_lines
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, NotFound, Refused
from memory_anchor.front.cli.completing import choice, pending
from memory_anchor.front.cli.link import call, read_key, via_server
from memory_anchor.front.cli.output import (
    TABLE_COLUMNS,
    JsonOption,
    KeyFileOption,
    Printer,
    ServerOption,
    block,
    err,
    escaped,
    fitted,
    handle_errors,
    layer_name,
    local_time,
    out,
    print_dim,
    show_json,
    show_memories,
    show_outcome,
)
from memory_anchor.front.cli.passphrase import ask_human, check_keyboard
from memory_anchor.front.cli.shorthand import full_id

if TYPE_CHECKING:
    from rich.text import Text

    from memory_anchor.domain.model import Proposal
    from memory_anchor.identity.identity_schema import IdentitySchema
    from memory_anchor.identity.keys import Signer

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
        old, new = text_lines(before, ends=True), text_lines(after, ends=True)
    parts: list[tuple[str, str]] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=len(old) > 400).get_opcodes():
        if kind == "equal":
            parts.append(("same", "".join(old[a:b])))
            continue
        parts += [("gone", "".join(old[a:b]))] * (b > a)
        parts += [("new", "".join(new[c:d]))] * (d > c)
    return parts


SHOWN_AGAIN_MAX = 20
"""How often one item is shown because somebody keeps changing it."""
CITATIONS_SHOWN = 5
PENDING = "(a)ccept, (e)dit, (r)eject, (s)kip, all of the rest: (A)ccept or (R)eject, (u)ndo, (q)uit"
DECIDED = "that was the last one: (u)ndo, (q)uit"
DISPUTED = "keep (n)ew, keep (o)ld, keep (b)oth, (m)erge, (s)kip, (u)ndo, (q)uit"
PROPOSED = "(c)onfirm, (r)eject, (s)kip, (q)uit"
RESOLUTIONS = {"n": "keep_new", "o": "keep_old", "b": "keep_both", "m": "merge"}
WALKED_MAX = 1_000
"""Items of one walk, the oldest; what is beyond them waits for the next."""
GROUPED_BY = ("conversation", "agent", "project", "type")
SURE = 0.9
"""What the gate stores without a human unless settings say otherwise; only to explain."""


def _pending_id(help: str) -> object:
    return typer.Option(metavar="ID", help=help, autocompletion=pending)


@handle_errors
def review(
    list_only: Annotated[bool, typer.Option("--list", help="Only show what waits.")] = False,
    by: Annotated[str | None, choice(*GROUPED_BY, note="; (A) and (R) then decide one group")] = None,
    accept: Annotated[list[str] | None, _pending_id("Let this in; repeatable.")] = None,
    reject: Annotated[list[str] | None, _pending_id("Archive this; repeatable.")] = None,
    settle: Annotated[str | None, _pending_id("End it; needs --resolution.")] = None,
    resolution: Annotated[str | None, choice("keep_new", "keep_old", "keep_both", "merge")] = None,
    content: Annotated[str | None, typer.Option(metavar="TEXT", help="The text to accept, or to merge into.")] = None,
    server: ServerOption = "",
    key_file: KeyFileOption = "",
    json_: JsonOption = False,
) -> None:
    """Decide on pending facts, contradictions and proposals; deciding needs the passphrase on a terminal."""
    if settle and resolution is None:
        raise BadInput("--resolution is missing; allowed are keep_new, keep_old, keep_both, merge")
    if by not in (None, *GROUPED_BY):
        raise BadInput(f"--by is {by!r}; allowed are {', '.join(GROUPED_BY)}")
    named = [*(accept or ()), *(reject or ()), *([settle] if settle else ())]
    if content is not None and (len(named) != 1 or reject):
        raise BadInput("--content is given; allowed is with one --accept ID, or with --settle ID --resolution merge")
    with via_server(server, read_key(key_file)):
        if named:
            check_keyboard()
            whats = ["accept"] * len(accept or ()) + ["reject"] * len(reject or ()) + ["settle"] * bool(settle)
            ids = named if server else [full_id(prefix, shows=True) for prefix in named]
            _decide_named(list(zip(whats, ids, strict=True)), resolution, content, json_)
            return
        waiting, schema = records(call("inbox", limit=WALKED_MAX)["items"]), None if server else _constitution()
        proposals = [row for row in schema.proposals() if row.status == "open"] if schema is not None else []
        if json_ or list_only:
            _show_inbox(waiting, proposals, json_)
        elif not waiting and not proposals:
            print_dim("nothing waits for review")
        else:
            _Review(sorted(waiting, key=partial(group_of, by=by)) if by else waiting, ask_human(), by).run()
            for number, proposal in enumerate(proposals, 1):
                if schema is not None and not _review_proposal(schema, proposal, f"{number}/{len(proposals)}"):
                    return


def _decide_named(
    decisions: Sequence[tuple[str, str]], resolution: str | None, content: str | None, as_json: bool
) -> None:
    """Show every item that is named, ask for the passphrase once, and carry the decisions out."""
    shown = {id: records(call("sides", id=id)["memories"]) for _, id in decisions}
    for sides in shown.values():
        show_sides(sides, on=err)
    human, answers = ask_human(), []
    for what, id in decisions:
        more = {"resolution": resolution} if what == "settle" else {}
        answers.append(call(what, id=id, seen=version_stamps(shown[id]), content=content, human=human, **more))
    if as_json:
        show_json(answers[0] if len(answers) == 1 else {"outcomes": answers})
        return
    for answer in answers:
        show_outcome(answer, False)


@dataclass
class _LastAction:
    """What `u` takes back. done: by its position in the walk, the ids that each decided item changed."""

    by: str
    since: str
    done: dict[int, list[str]]


@dataclass
class _Review:
    """One walk through the inbox. by: what its groups have in common. position: of the item that is shown."""

    items: list[Record]
    human: Signer
    by: str | None = None
    position: int = 0
    last: _LastAction | None = None
    decided: set[int] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        while self._is_left() and self._review_item():
            pass
        if self.counts:
            print_dim(", ".join(f"{count} {what}" for what, count in self.counts.items()))

    def _is_left(self) -> bool:
        """Return whether an item is left to ask about, going to it; a group is shown to be undone before the end."""
        while self.position in self.decided:
            self.position += 1
        if self.position < len(self.items) or self.last is None or len(self.last.done) < 2:
            return self.position < len(self.items)
        if typer.prompt(fitted(DECIDED), default="q").strip()[:1] not in ("u", "U"):
            return False
        self._undo()
        return self._is_left()

    def _review_item(self) -> bool:
        """Ask about one item; return whether to go on."""
        sides = _sides(self.items[self.position])
        for _ in range(SHOWN_AGAIN_MAX):
            about = " · ".join(filter(None, (text(sides[0]["type"]), group_of(self.items[self.position], self.by))))
            out.print(f"\n[bold]{self.position + 1}/{len(self.items)}[/] [dim]{escaped(about)}[/]")
            show_sides(sides, on=out)
            answer = typer.prompt(fitted(PENDING if _waits(sides[0]) else DISPUTED), default="s").strip()[:1]
            if answer in ("q", "Q"):
                return False
            if answer in ("u", "U"):
                self._undo()
                return True
            if answer in ("A", "R") and _waits(sides[0]):
                self._decide_rest("accept" if answer == "A" else "reject")
                return True
            what, arguments = _chosen_call(answer.lower(), sides)
            if not what:
                break
            seen, id = version_stamps(sides), sides[0]["id"]
            try:
                show_outcome(call(what, id=id, seen=seen, human=self.human, **arguments), False)
                self.last = None
                self._count(what, self.position, sides)
                break
            except MemoryAnchorError as error:
                sides = records(call("sides", id=id)["memories"])
                if version_stamps(sides) == seen:
                    raise
                err.print(f"[yellow]{escaped(str(error))}[/]")
        self.position += 1
        return True

    def _count(self, what: str, position: int, sides: list[Record]) -> None:
        """Count one decision, as part of the last action if there is one."""
        done, ids = (
            {"accept": "accepted", "reject": "rejected", "settle": "settled"}[what],
            [text(memory["id"]) for memory in sides],
        )
        self.counts[done] = self.counts.get(done, 0) + 1
        self.decided.add(position)
        if self.last is None:
            step = record(items(call("history", id=ids[0])["steps"])[-1])
            self.last = _LastAction(text(step["by"]).partition(":")[2], text(step["at"]), {})
        self.last.done[position] = ids

    def _decide_rest(self, what: str) -> None:
        """Accept or reject every pending memory from here on, of this group alone, after showing all of them."""
        here = group_of(self.items[self.position], self.by)
        left = [
            (position, _sides(item))
            for position, item in enumerate(self.items)
            if position >= self.position and position not in self.decided and group_of(item, self.by) == here
        ]
        rest = [(position, sides) for position, sides in left if _waits(sides[0])]
        for _, sides in rest:
            show_sides(sides, on=out)
        if not typer.confirm(f"{what.capitalize()} these {len(rest)}?", default=False):
            return
        self.last = None
        for position, sides in rest:
            try:
                call(what, id=sides[0]["id"], seen=version_stamps(sides), human=self.human)
                self._count(what, position, sides[:1])
            except MemoryAnchorError as error:  # changed or settled meanwhile: it stays in the inbox
                err.print(f"[yellow]{sides[0]['id']}: {escaped(str(error))}[/]")
                self.decided.add(position)

    def _undo(self) -> None:
        """Take the last action back, all of it or one memory's part, and show its first item again."""
        if self.last is None or not (chosen := self._chosen_of(self.last.done)):
            print_dim("nothing was decided yet in this review" if self.last is None else "nothing was undone")
            return
        ids: list[Json] = [name for position in chosen for name in self.last.done[position]]
        out.print(f"[dim]{escaped(f'taking back {ids}, by {self.last.by} since {self.last.since}')}[/]")
        done = call("undo", agent=self.last.by, since=self.last.since, only=ids, apply=True, human=self.human)
        for row in records(done["left"]):
            err.print(f"[yellow]{escaped(row['id'])}: {escaped(row['reason'])}[/]")
        undone = {text(row["id"]) for row in records(done["steps"])}
        back = [position for position in chosen if undone.intersection(self.last.done[position])]
        if not back:
            print_dim(f"nothing was undone; `memory-anchor history {ids[0]}` shows what became of it")
            return
        waiting = {record(item["memory"])["id"]: item for item in records(call("inbox", limit=WALKED_MAX)["items"])}
        for position in back:
            del self.last.done[position]
            self.decided.discard(position)
            self.items[position] = waiting.get(record(self.items[position]["memory"])["id"], self.items[position])
        self.last = self.last if self.last.done else None
        self.position = min(self.position, *back)
        print_dim(f"undone: {', '.join(sorted(undone))} waits again")

    def _chosen_of(self, done: Mapping[int, list[str]]) -> list[int]:
        """Return the positions of all of an action, or the one that the human names by its number."""
        if len(done) == 1:
            return list(done)
        for nth, position in enumerate(done, 1):
            content = visible(" ".join(text(record(self.items[position]["memory"])["content"]).split()))
            out.print(f"  [cyan]{nth}[/] {escaped(content)}", overflow="ellipsis", no_wrap=True, soft_wrap=False)
        answer = str(typer.prompt(f"Undo (a)ll, or one of 1 to {len(done)}", default="a")).strip()
        if answer[:1] in ("a", "A"):
            return list(done)
        return [list(done)[int(answer) - 1]] if answer in map(str, range(1, len(done) + 1)) else []


def _chosen_call(answer: str, sides: list[Record]) -> tuple[str, dict[str, Json]]:
    """Return the call that a human chose with its arguments; ("", {}) to skip."""
    if not _waits(sides[0]):
        resolution = RESOLUTIONS.get(answer)
        if resolution != "merge":
            return ("settle", {"resolution": resolution}) if resolution else ("", {})
        both = "\n".join(text(memory["content"]) for memory in reversed(sides))
        merged = edit_text(both, "the one text that holds")
        return ("settle", {"resolution": "merge", "content": merged}) if merged else ("", {})
    old = text(sides[0]["content"])
    new = edit_text(old, "new text (empty: as it is)") if answer == "e" else ""
    what = {"a": "accept", "e": "accept", "r": "reject"}.get(answer, "")
    return what, {"content": new} if new and new != old else {}


def group_of(item: Record, by: str | None) -> str:
    """Return the name of the group that an item of the inbox belongs to, "" without groups."""
    memory = record(item["memory"])
    return str(memory.get("type", "") if by == "type" else record(memory["scope"]).get(by, "")) if by else ""


def _waits(memory: Record) -> bool:
    """Return whether a memory waits to be let in; else it is a side of a contradiction."""
    return memory.get("status") == "pending"


def _sides(item: Record) -> list[Record]:
    """Return a waiting memory and those it contradicts."""
    return [record(item["memory"]), *records(item["against"])]


def edit_text(text: str, prompt: str) -> str:
    """Return a text as a human edited it: on the line where it is a single one, else in $VISUAL or $EDITOR.

    Where neither works it is typed again; "" where nothing was typed.
    """
    old = visible_lines(text)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if "\n" in old and editor and sys.stdin.isatty():
        new = _edit_in_editor(old, editor)
    else:
        new = _edit_in_line(old.replace("\n", " "), prompt)
    return text if new == old else new


def _edit_in_line(text: str, about: str) -> str:
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


def _edit_in_editor(text: str, editor: str) -> str:
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
        try:
            return file.read_bytes().decode("utf-8").strip()
        except UnicodeDecodeError:
            raise BadInput("the editor's text is not UTF-8; nothing was decided") from None


# --- the constitution ----------------------------------------------------------------------------------------------


def _constitution() -> IdentitySchema | None:
    from memory_anchor.front.cli.passphrase import identity

    try:
        return identity()
    except (BadInput, NotFound, Refused):
        return None


def _review_proposal(schema: IdentitySchema, proposal: Proposal, position: str) -> bool:
    """Show one proposal and ask; return whether to go on."""
    from memory_anchor.front.cli import constitution

    required = whole(constitution.as_json_record(proposal)["required"])
    seen = schema.fingerprint(proposal)
    number = min(len(proposal.confirmations) + 1, required)
    out.print(f"\n[bold]{position}[/] [dim]constitution, {proposal.action.value}[/] [cyan]{escaped(proposal.id)}[/]")
    out.print(
        f"  [dim]proposed by {escaped(proposal.proposed_by)}, {local_time(proposal.proposed_at)}:[/] "
        f"{escaped(proposal.reason)}"
    )
    for line in diff_lines(schema.diff(proposal)):
        out.print(line)
    out.print(f"  this would be confirmation [bold]{number} of {required}[/] 第 {number} 次确认")
    answer = str(typer.prompt(fitted(PROPOSED), default="s")).strip().lower()[:1]
    if answer not in ("c", "r"):
        return answer != "q"
    reason = typer.prompt("Why") if answer == "r" else ""
    passphrase, approver = constitution.ask_passphrase(schema), constitution.approver_name(schema)
    if answer == "c":
        done = schema.confirm(proposal.id, passphrase=passphrase, approver=approver, seen=seen)
    else:
        done = schema.reject(proposal.id, passphrase=passphrase, approver=approver, reason=reason, seen=seen)
    out.print(escaped(constitution.proposal_line(done)))
    return True


# --- output --------------------------------------------------------------------------------------------------------


def _show_inbox(waiting: list[Record], proposals: Sequence[Proposal], as_json: bool) -> None:
    from memory_anchor.front.cli import constitution

    if as_json:
        show_json({"items": waiting, "proposals": [constitution.as_json_record(proposal) for proposal in proposals]})
        return
    if waiting:
        show_memories(memory for item in waiting for memory in _sides(item))
    for proposal in proposals:
        out.print(f"{escaped(constitution.proposal_line(proposal))}: {escaped(proposal.reason)}")
    if not waiting and not proposals:
        print_dim("nothing waits for review")


def show_sides(sides: list[Record], *, on: Printer) -> None:
    """Show a pending memory whole, or both sides of a contradiction: next to one another where there is room."""
    first, *against = sides
    if len(against) == 1 and on.is_terminal and on.width >= TABLE_COLUMNS:
        _show_side_by_side(against[0], first, on)
    else:
        on.print(f"[cyan]{first['id']}[/] [dim]version {first['version']}[/]")
        on.print(block(text(first["content"]), "  "))
        for other in against:
            on.print(f"  [yellow]against[/] [cyan]{other['id']}[/] [dim]version {other['version']}[/]")
            on.print(block(text(other["content"]), "  "))
    for memory in sides:
        _show_reasons(memory, on)


def _show_side_by_side(old: Record, new: Record, on: Printer) -> None:
    from rich.table import Table
    from rich.text import Text

    parts = word_diff(text(old["content"]), text(new["content"]))
    table = Table(box=None, pad_edge=False, padding=(0, 2), expand=True, header_style="")
    for name, memory in (("old", old), ("new", new)):
        version = (f" version {memory['version']}", "dim")
        head = Text.assemble((f"{name} ", "yellow"), (visible(text(memory["id"])), "cyan"), version)
        table.add_column(head, ratio=1, overflow="fold")
    table.add_row(marked_side(parts, "gone"), marked_side(parts, "new"))
    on.print(table, soft_wrap=False)


def _show_reasons(memory: Record, on: Printer) -> None:
    """Print why a memory waits, who it is from, and what it cites."""
    on.print(f"  [dim]{escaped(memory['id'])}: {escaped('; '.join(reasons_to_review(memory)))}[/]")
    citations = records(memory.get("citations") or ())
    for citation in citations[:CITATIONS_SHOWN]:
        on.print(f"  [dim]from {escaped(citation_line(citation))}[/]")
    if len(citations) > CITATIONS_SHOWN:
        on.print(f"  [dim]and {len(citations) - CITATIONS_SHOWN} more sources[/]")


def reasons_to_review(memory: Record) -> list[str]:
    """Return why a memory waits for a human and where it comes from, in short parts."""
    origin, confidence = str(memory.get("origin", "")), number(memory.get("confidence", 1.0))
    who = str((record(memory.get("scope") or {})).get("agent") or "an agent")
    source = {
        "agent": f"saved by {who}",
        "extracted": f"taken out of a conversation with {who}",
        "document": "from a document, which is never stored without you",
        "human": "written by a human",
        "system": "made by a job",
    }.get(origin, origin)
    parts = [source, local_time(memory.get("recorded_at", "")), f"{layer_name(memory['layer'])} {memory['type']}"]
    if memory.get("status") == "disputed":
        parts.insert(0, "contradicts what is stored")
    elif confidence < SURE and origin != "document":
        parts.insert(0, f"confidence {confidence:g}, so it waits")
    elif memory.get("visibility") == "account":
        parts.insert(0, "wants to be known in every project")
    if memory.get("disputes") and memory.get("status") == "pending":
        against = list(map(str, items(memory["disputes"])))
        replaces = str(memory.get("previous_version_id")).partition("@")[0] in against
        parts.insert(0, f"{'would replace' if replaces else 'speaks against'} {', '.join(against)}")
    if memory.get("extractor_model"):
        parts.append(f"by {memory['extractor_model']}")
    return [part for part in parts if part]


def citation_line(citation: Record) -> str:
    """Return a citation in one line: kind, title or reference, lines, freshness."""
    locator = citation.get("locator") or {}
    lines = f":{record(locator)['line_start']}" if record(locator).get("line_start") else ""
    lines += f"-{record(locator)['line_end']}" if lines and record(locator).get("line_end") else ""
    fresh = f" ({citation['freshness']})" if citation.get("freshness") else ""
    return f"{text(citation['kind']).replace('_', ' ')} {citation.get('title') or citation['ref']}{lines}{fresh}"


def version_stamps(sides: list[Record]) -> list[str]:
    """Return stamps of the versions that were shown, computed from the very text that was shown."""
    from memory_anchor.domain.rights import version_stamp

    return sorted(
        version_stamp(text(memory["id"]), whole(memory["version"]), text(memory["content"])) for memory in sides
    )


STYLES = {"gone": "red underline", "new": "green underline", "same": ""}
"""A line of its own text is never rewritten: what changed in it is underlined, so that no text can fake a change."""


def marked_side(parts: list[tuple[str, str]], kind: str) -> Text:
    """Return one side of a diff, its changed words underlined. kind: gone (the old side) or new."""
    from rich.text import Text

    return Text.assemble(*((visible_lines(part), STYLES[change]) for change, part in parts if change in ("same", kind)))


def diff_lines(unified: str) -> list[Text]:
    """Return the lines of a unified diff; where a line replaces another, the changed words are marked."""
    from rich.text import Text

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
                index = gone.pop(0)
                parts = word_diff(shown[index].plain[1:], line[1:])
                shown[index] = Text("-", "red") + marked_side(parts, "gone")
                shown.append(Text("+", "green") + marked_side(parts, "new"))
            else:
                shown.append(Text(line, "green"))
        else:
            gone = []
            shown.append(Text(line))
    return shown

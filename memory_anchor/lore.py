"""The use cases of lorebooks: add, list, show, scan, export, remove, and what they bring into a context.

A book that a human adds on a terminal is semi-trusted and only a human replaces or removes it; what an agent adds is
untrusted, as all knowledge is. What is admitted is reference material: fenced, cited, in a budget of its own.
Only what people and agents said is scanned, without what memory recalled into it, so that no entry calls itself.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from memory_anchor import inputs, rights
from memory_anchor import requests as asks
from memory_anchor.context.context import LorebookHits
from memory_anchor.context.transcript import content_text
from memory_anchor.errors import BadInput
from memory_anchor.json_values import Json, kind_of
from memory_anchor.knowledge.lorebook import Lorebook, read_lorebook
from memory_anchor.knowledge.lorebook_scan import (
    LoreMessage,
    LoreScan,
    LoreScanner,
    LoreVerdict,
    Scanned,
    ScanSettings,
    Why,
)
from memory_anchor.knowledge.lorebooks import BookRecord, ConversationTurn, book_name, home_of
from memory_anchor.language.fences import strip_fenced
from memory_anchor.language.safety import cleaned
from memory_anchor.model import Citation, Layer, Locator, RetrievedSnippet, Tag, Trust
from memory_anchor.rights import HUMAN_AUTHOR, Deed
from memory_anchor.writes import Writes

SPEAKERS = ("user", "assistant", "system")
ROWS_KEPT = 50


class ScannedLore(TypedDict):
    """What lorebooks say to messages. places: of each snippet where it stands."""

    snippets: list[RetrievedSnippet]
    places: list[dict[str, Json]]
    report: dict[str, Json]


class Lore:
    def __init__(self, writes: Writes) -> None:
        self._writes, self._services, self._actor = writes, writes.services, writes.actor
        self._shelf = writes.services.lorebooks
        self._home = home_of(writes.services.data_dir, writes.actor.scope)
        self._settings = ScanSettings(**writes.room.settings.lorebook.model_dump())

    def add(self, asked: asks.AddLorebook) -> dict[str, Json]:
        """Keep a book; return what was read of it, and what was left out."""
        self._check(next((one for one in self._shelf.books(self._home) if one.id == book_name(asked.file)), None))
        human = rights.is_human(self._actor.caller)
        record, book = self._shelf.add(
            self._home,
            inputs.file_bytes("content", asked.content),
            file=asked.file,
            trust=Trust.SEMI_TRUSTED if human else Trust.UNTRUSTED,
            by=self._writes.author,
            at=self._services.clock.now().isoformat(timespec="seconds"),
        )
        self._services.audit.append(
            "lorebook.added", {"name": record.id, "sha": record.sha}, by=record.by, at=self._services.clock.now()
        )
        problems = [*book.problems, *LoreScanner([book], self._settings).index.wrong.all()]
        return {**_shown(record), "entries": len(book.entries), "format": book.format, "problems": problems}

    def books(self) -> dict[str, Json]:
        """Return the books of this project."""
        return {"books": [_shown(one) for one in self._shelf.books(self._home)]}

    def show(self, asked: asks.ShowLorebook) -> dict[str, Json]:
        """Return a book's entries and what of it could not be taken."""
        record = self._shelf.record(self._home, asked.name)
        scanner, lost = self._shelf.scanner(self._home, [record], self._settings)
        (book,) = scanner.books or (Lorebook(record.id, record.id, (), "damaged"),)
        return {
            **_shown(record),
            "format": book.format,
            "scan_depth": book.scan_depth,
            "token_budget": book.token_budget,
            "recursive": book.recursive,
            "entries": [
                {
                    "id": one.uid,
                    "title": one.title,
                    "keys": list(one.keys),
                    "enabled": one.enabled,
                    "constant": one.constant,
                    "place": one.place,
                    "content": one.content,
                }
                for one in book.entries
            ],
            "problems": [*book.problems, *scanner.index.wrong.all(), *lost],
        }

    def has(self, name: str) -> bool:
        return any(one.id == name for one in self._shelf.books(self._home))

    def remove(self, name: str) -> dict[str, Json]:
        """Erase a book and the timed effects of its entries; return the certificate that the end of a source has."""
        self._check(self._shelf.record(self._home, name))
        record = self._shelf.remove(self._home, name)
        self._services.audit.append(
            "lorebook.removed",
            {"name": record.id, "sha": record.sha},
            by=self._writes.author,
            at=self._services.clock.now(),
        )
        clean = not self._shelf.is_there(self._home, record)
        return {"source": record.id, "documents": 1, "passages": 0, "clean": clean}

    def export(self, asked: asks.ExportLorebook) -> dict[str, Json]:
        """Return a book's very bytes, in base64."""
        record = self._shelf.record(self._home, asked.name)
        content = self._shelf.content(self._home, record)
        return {"name": record.id, "file": Path(record.file).name, "content": base64.b64encode(content).decode()}

    def scan(self, asked: asks.ScanLorebook) -> ScannedLore:
        """Return what the books say to these messages and why; with `keep` the conversation goes on from there."""
        scanner, trusts, lost = self._scanner(asked)
        conversation = asked.conversation or self._actor.scope.conversation
        turn = self._shelf.turn(self._home, conversation)
        scanned = Scanned(
            messages=said(asked.messages),
            conversation=conversation,
            count=asked.count,
            trigger=asked.trigger,
            character=asked.character,
            tags=frozenset(asked.tags),
            names={name: value for name, value in (("user", asked.user), ("char", asked.character)) if value},
            started=turn.started,
        )
        budget = asked.budget_tokens or self._settings.budget(asked.context_window_tokens)
        found = scanner.scan(scanned, budget_tokens=budget)
        report = built(scanner, found, lost)
        if asked.keep:
            self._writes.check_writable()
            if not conversation:
                raise BadInput("keep needs a conversation; name one with --conversation")
            short = built(scanner, found, lost, whole=False)
            self._shelf.keep(self._home, conversation, ConversationTurn(scanned.at, found.started, short))
        placed = found.placed()
        snippets = [self.snippet(one, trusts, place) for place, one in enumerate(placed)]
        return {"snippets": snippets, "places": [_where(one) for one in placed], "report": report}

    def report(self, asked: asks.LorebookReport) -> dict[str, Json]:
        """Return the report of a conversation's last scan that was kept, and which timed effects run."""
        turn = self._shelf.turn(self._home, asked.conversation or self._actor.scope.conversation)
        return {"count": turn.count, "started": dict(turn.started), "report": turn.report}

    def found(self, messages: Sequence[Mapping[str, Json]], window_tokens: int, *, is_prompt: bool) -> LorebookHits:
        """Return what a context for these messages holds of the project's books.

        is_prompt: the messages are the conversation whole, so its timed effects go on with them. A named outlet is for
        whoever asks for it by name (`lorebook scan`), and stays out.
        """
        records = self._shelf.books(self._home)
        if not records:
            return LorebookHits()
        scanner, lost = self._shelf.scanner(self._home, records, self._settings)
        conversation = self._actor.scope.conversation
        turn = self._shelf.turn(self._home, conversation)
        scanned = Scanned(said(messages), conversation, 0 if is_prompt else turn.count, started=turn.started)
        found = scanner.scan(scanned, budget_tokens=self._settings.budget(window_tokens))
        report = built(scanner, found, lost, whole=False)
        if is_prompt and conversation and self._writes.may_write:
            self._shelf.keep(self._home, conversation, ConversationTurn(scanned.at, found.started, report))
        trusts = {one.id: Trust(one.trust) for one in records}
        placed = [one for one in found.placed() if one.entry.place != "outlet"]
        kept_out = len(found.admitted) - len(placed)
        decision = {
            "action": "scan_lorebooks",
            "reason": f"{len(found.admitted)} of {len(scanner.entries)} entries admitted"
            + (f", {kept_out} of them for outlets or empty" if kept_out else ""),
            **report,
        }
        return LorebookHits(tuple(self.snippet(one, trusts, at) for at, one in enumerate(placed)), (decision,))

    def snippet(self, verdict: LoreVerdict, trusts: Mapping[str, Trust], place: int) -> RetrievedSnippet:
        """Return what was admitted as recalled text that cites its entry; a secret in it is told to nobody."""
        entry = verdict.entry
        cited = Citation(
            "knowledge_chunk",
            f"lorebook:{verdict.id}",
            title=entry.title,
            locator=Locator(),
            trust=trusts.get(verdict.book, Trust.UNTRUSTED),
        )
        return RetrievedSnippet(
            id=verdict.id,
            text=cleaned(verdict.text).text,
            score=1 / (1 + place),
            layer=Layer.OPERATIONAL_KNOWLEDGE,
            type="lorebook",
            when=None,
            tags=tuple(map(Tag, ("lorebook", entry.place, *(["constant"] if verdict.why is Why.CONSTANT else [])))),
            citations=(cited,),
        )

    def _scanner(self, asked: asks.ScanLorebook) -> tuple[LoreScanner, dict[str, Trust], list[str]]:
        """Return what scans the book that was named or sent, or else every book of the project."""
        if asked.content:
            book = read_lorebook(inputs.file_bytes("content", asked.content), asked.file or "the lorebook")
            return LoreScanner([replace(book, id=book_name(asked.file))], self._settings), {}, []
        records = self._shelf.books(self._home)
        if asked.name:
            records = [self._shelf.record(self._home, asked.name)]
        scanner, lost = self._shelf.scanner(self._home, records, self._settings)
        return scanner, {one.id: Trust(one.trust) for one in records}, lost

    def _check(self, there: BookRecord | None) -> None:
        """Raise Refused: nothing may be written now, or a human added what is there."""
        self._writes.check_writable()
        rights.check(Deed.KNOWLEDGE, self._actor.caller)
        if there is not None and there.by.startswith(HUMAN_AUTHOR):
            rights.check(Deed.TRUST_KNOWLEDGE, self._actor.caller)


def said(messages: Json) -> tuple[LoreMessage, ...]:
    """Return what people and agents said, the newest messages; without what was recalled into them. Raises BadInput."""
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise BadInput(f"messages is {kind_of(messages)}; allowed is a list of {{role, content, name?}}")
    spoken = []
    for place, one in enumerate(messages):
        if not isinstance(one, Mapping) or not isinstance(one.get("role"), str):
            raise BadInput(f"messages[{place}] is no message; allowed is {{role, content, name?}}")
        if one["role"] in SPEAKERS:
            content = one.get("content")
            blocks = (
                [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else content
            )
            name = one.get("name")
            spoken.append(LoreMessage(strip_fenced(content_text(blocks)), name if isinstance(name, str) else ""))
    return tuple(spoken)


def built(scanner: LoreScanner, found: LoreScan, lost: Sequence[str], *, whole: bool = True) -> dict[str, Json]:
    """Return the report of a scan: every entry, admitted or dropped, and why.

    whole: else only the first that were admitted, or that a text came near; left_out counts the others.
    """
    notes = [*lost, *(problem for book in scanner.books for problem in book.problems), *found.notes]
    admitted = found.admitted if whole else found.admitted[:ROWS_KEPT]
    near = [one for one in found.looked_at if one.why is not Why.NO_KEY]
    dropped = found.dropped if whole else near[:ROWS_KEPT]
    return {
        "books": [book.id for book in scanner.books],
        "budget_tokens": found.budget_tokens,
        "tokens": found.tokens,
        "passes": found.passes,
        "overflowed": found.overflowed,
        "admitted": [_row(one) for one in admitted],
        "dropped": [_row(one) for one in dropped],
        "left_out": len(scanner.entries) - len(admitted) - len(dropped),
        "notes": notes if whole else notes[:ROWS_KEPT],
    }


def _row(verdict: LoreVerdict) -> dict[str, Json]:
    row: dict[str, Json] = {
        "id": verdict.id,
        "title": verdict.entry.title,
        "why": verdict.why.value,
        "pass": verdict.passed,
    }
    if verdict.admitted:
        row |= {"tokens": verdict.tokens} | _where(verdict)
    more = {"key": verdict.key, "detail": verdict.detail}
    return row | {name: value for name, value in more.items() if value}


def _where(verdict: LoreVerdict) -> dict[str, Json]:
    """Return where an entry stands: prefix, tail (at a depth of messages, as a role), or a named outlet."""
    entry = verdict.entry
    if entry.place == "outlet":
        return {"place": entry.place, "outlet": entry.outlet}
    return {"place": entry.place} | ({"depth": entry.depth, "role": entry.role} if entry.place == "tail" else {})


def _shown(record: BookRecord) -> dict[str, Json]:
    return {
        "name": record.id,
        "file": record.file,
        "bytes": record.size,
        "trust": record.trust,
        "by": record.by,
        "added_at": record.added_at,
    }

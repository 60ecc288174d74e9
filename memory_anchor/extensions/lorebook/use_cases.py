"""The use cases of lorebooks: add, list, show, scan, export, remove, and the entries that they bring into a context.

A book that a human adds on a terminal is semi-trusted and only a human replaces or removes it; one that an agent adds
is untrusted, as all knowledge is. Admitted entries are reference material: fenced, cited, in a budget of their own.
Only messages of people and agents are scanned, without recalled memories in them, so that no entry matches itself.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from memory_anchor.base.json_values import Json, kind_of
from memory_anchor.context.context import LorebookHits
from memory_anchor.domain import rights
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Citation, Layer, Locator, RetrievedSnippet, Tag, Trust
from memory_anchor.domain.requests import checks
from memory_anchor.domain.requests.fields import use_case
from memory_anchor.domain.rights import HUMAN_AUTHOR, Action
from memory_anchor.extensions.lorebook import requests
from memory_anchor.extensions.lorebook.lorebook import Lorebook, read_lorebook
from memory_anchor.extensions.lorebook.lorebook_scan import (
    LoreMessage,
    LoreScan,
    LoreScanner,
    LoreVerdict,
    Why,
)
from memory_anchor.extensions.lorebook.lorebooks import BookRecord, book_name, books_of, home_of
from memory_anchor.extensions.prompts.transcript import content_text
from memory_anchor.language.fences import strip_fenced
from memory_anchor.language.safety import cleaned
from memory_anchor.use_cases.memory import MemoryAnchor
from memory_anchor.use_cases.writes import Writes

SPEAKERS = ("user", "assistant", "system")
ROWS_KEPT = 50


class ScannedLore(TypedDict):
    """The entries that messages admit. places: where each snippet goes in a prompt."""

    snippets: list[RetrievedSnippet]
    places: list[dict[str, Json]]
    report: dict[str, Json]


class LorebookUseCases:
    def __init__(self, writes: Writes) -> None:
        self._writes, self._services, self._actor = writes, writes.services, writes.actor
        self._store = books_of(writes.services)
        self._home = home_of(writes.services.data_dir, writes.actor.scope)
        self._settings = writes.project.settings.lorebook

    @use_case(requests.AddLorebook)
    def add(self, request: requests.AddLorebook) -> dict[str, Json]:
        """Add a book; return its size and format, and problems in it."""
        name = book_name(request.file)
        self._check_may_change(next((book for book in self._store.books(self._home) if book.id == name), None))
        now = self._services.clock.now()
        record, book = self._store.add(
            self._home,
            checks.file_bytes("content", request.content),
            file=request.file,
            trust=Trust.SEMI_TRUSTED if rights.is_human(self._actor.caller) else Trust.UNTRUSTED,
            by=self._writes.author,
            at=now.isoformat(timespec="seconds"),
        )
        self._services.audit.append("lorebook.added", {"name": record.id, "sha": record.sha}, by=record.by, at=now)
        problems = [*book.problems, *LoreScanner([book], self._settings).keys.problems.all()]
        return {**_shown(record), "entries": len(book.entries), "format": book.format, "problems": problems}

    @use_case(requests.ListLorebooks)
    def books(self, _: requests.ListLorebooks) -> dict[str, Json]:
        """Return the books of this project."""
        return {"books": [_shown(record) for record in self._store.books(self._home)]}

    @use_case(requests.ShowLorebook)
    def show(self, request: requests.ShowLorebook) -> dict[str, Json]:
        """Return a book's entries and the problems in it."""
        record = self._store.record(self._home, request.name)
        scanner, problems = self._store.scanner(self._home, [record], self._settings)
        (book,) = scanner.books or (Lorebook(record.id, record.id, (), "damaged"),)
        entry_fields = ("title", "keys", "enabled", "constant", "place", "content")
        return {
            **_shown(record),
            **{name: getattr(book, name) for name in ("format", "scan_depth", "token_budget", "recursive")},
            "entries": [
                {"id": entry.uid, **{name: getattr(entry, name) for name in entry_fields}, "keys": list(entry.keys)}
                for entry in book.entries
            ],
            "problems": [*book.problems, *scanner.keys.problems.all(), *problems],
        }

    def has(self, name: str) -> bool:
        return any(record.id == name for record in self._store.books(self._home))

    @use_case(requests.RemoveLorebook)
    def remove(self, request: requests.RemoveLorebook) -> dict[str, Json]:
        """Erase a book; return a certificate like that of a removed source."""
        self._check_may_change(self._store.record(self._home, request.name))
        record = self._store.remove(self._home, request.name)
        self._services.audit.append(
            "lorebook.removed",
            {"name": record.id, "sha": record.sha},
            by=self._writes.author,
            at=self._services.clock.now(),
        )
        clean = not self._store.exists(self._home, record)
        return {"source": record.id, "documents": 1, "passages": 0, "clean": clean}

    @use_case(requests.ExportLorebook)
    def export(self, request: requests.ExportLorebook) -> dict[str, Json]:
        """Return a book's original bytes, in base64."""
        record = self._store.record(self._home, request.name)
        content = self._store.content(self._home, record)
        return {"name": record.id, "file": Path(record.file).name, "content": base64.b64encode(content).decode()}

    @use_case(requests.ScanLorebook)
    def scan(self, request: requests.ScanLorebook) -> ScannedLore:
        """Return the entries that these messages admit and why."""
        scanner, trusts, problems = self._scanner(request)
        budget = request.budget_tokens or self._settings.budget_tokens
        scan = scanner.scan(spoken_messages(request.messages), budget_tokens=budget)
        verdicts = scan.in_prompt_order()
        return {
            "snippets": self._snippets(verdicts, trusts),
            "places": [_place(verdict) for verdict in verdicts],
            "report": _report(scanner, scan, problems),
        }

    def for_context(self, messages: Sequence[Mapping[str, Json]]) -> LorebookHits:
        """Return the entries of the project's books for a context with these messages."""
        records = self._store.books(self._home)
        if not records:
            return LorebookHits()
        scanner, problems = self._store.scanner(self._home, records, self._settings)
        scan = scanner.scan(spoken_messages(messages), budget_tokens=self._settings.budget_tokens)
        verdicts = scan.in_prompt_order()
        empty = len(scan.admitted) - len(verdicts)
        reason = f"{len(scan.admitted)} of {len(scanner.entries)} entries admitted"
        reason += f", {empty} of them empty" if empty else ""
        report = _report(scanner, scan, problems, whole=False)
        decision = {"action": "scan_lorebooks", "reason": reason, **report}
        return LorebookHits(tuple(self._snippets(verdicts, _trusts(records))), (decision,))

    @staticmethod
    def _snippets(verdicts: Sequence[LoreVerdict], trusts: Mapping[str, Trust]) -> list[RetrievedSnippet]:
        """Return admitted entries as snippets that cite them, without the secrets in their texts."""
        return [
            RetrievedSnippet(
                id=verdict.id,
                text=cleaned(verdict.text).text,
                score=1 / (1 + rank),
                layer=Layer.OPERATIONAL_KNOWLEDGE,
                type="lorebook",
                when=None,
                tags=tuple(
                    map(Tag, ("lorebook", verdict.entry.place, *(["constant"] * (verdict.why is Why.CONSTANT))))
                ),
                citations=(
                    Citation(
                        "knowledge_chunk",
                        f"lorebook:{verdict.id}",
                        title=verdict.entry.title,
                        locator=Locator(),
                        trust=trusts.get(verdict.book, Trust.UNTRUSTED),
                    ),
                ),
            )
            for rank, verdict in enumerate(verdicts)
        ]

    def _scanner(self, request: requests.ScanLorebook) -> tuple[LoreScanner, dict[str, Trust], list[str]]:
        """Return a scanner of the named or sent book, else of every book of the project."""
        if request.content:
            book = read_lorebook(checks.file_bytes("content", request.content), request.file or "the lorebook")
            return LoreScanner([replace(book, id=book_name(request.file))], self._settings), {}, []
        records = self._store.books(self._home)
        if request.name:
            records = [self._store.record(self._home, request.name)]
        scanner, problems = self._store.scanner(self._home, records, self._settings)
        return scanner, _trusts(records), problems

    def _check_may_change(self, old: BookRecord | None) -> None:
        """Raise Refused: writing is not allowed now, or a human added the old book."""
        self._writes.check_writable()
        rights.check(Action.KNOWLEDGE, self._actor.caller)
        if old is not None and old.by.startswith(HUMAN_AUTHOR):
            rights.check(Action.TRUST_KNOWLEDGE, self._actor.caller)


def spoken_messages(messages: Json) -> tuple[LoreMessage, ...]:
    """Return the messages of people and agents, without recalled memories in them. Raises BadInput."""
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise BadInput(f"messages is {kind_of(messages)}; allowed is a list of {{role, content, name?}}")
    spoken = []
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise BadInput(f"messages[{number}] is no message; allowed is {{role, content, name?}}")
        if message["role"] in SPEAKERS:
            content, name = message.get("content"), message.get("name")
            if isinstance(content, list):
                content = [block for block in content if isinstance(block, Mapping)]
            spoken.append(LoreMessage(strip_fenced(content_text(content)), name if isinstance(name, str) else ""))
    return tuple(spoken)


def _trusts(records: Sequence[BookRecord]) -> dict[str, Trust]:
    return {record.id: Trust(record.trust) for record in records}


def _report(scanner: LoreScanner, scan: LoreScan, problems: Sequence[str], *, whole: bool = True) -> dict[str, Json]:
    """Return the report of a scan: each entry, admitted or dropped, and why.

    whole: else only the first admitted and the first dropped with a key in a text; left_out counts the others.
    """
    notes = [*problems, *(problem for book in scanner.books for problem in book.problems), *scan.notes]
    admitted = scan.admitted if whole else scan.admitted[:ROWS_KEPT]
    matched = [verdict for verdict in scan.examined if verdict.why is not Why.NO_KEY]
    dropped = scan.dropped if whole else matched[:ROWS_KEPT]
    return {
        "books": [book.id for book in scanner.books],
        "budget_tokens": scan.budget_tokens,
        "tokens": scan.tokens,
        "passes": scan.passes,
        "overflowed": scan.overflowed,
        "admitted": [_row(verdict) for verdict in admitted],
        "dropped": [_row(verdict) for verdict in dropped],
        "left_out": len(scanner.entries) - len(admitted) - len(dropped),
        "notes": notes if whole else notes[:ROWS_KEPT],
    }


def _row(verdict: LoreVerdict) -> dict[str, Json]:
    entry, why = verdict.entry, verdict.why.value
    row: dict[str, Json] = {"id": verdict.id, "title": entry.title, "why": why, "pass": verdict.pass_number}
    if verdict.admitted:
        row |= {"tokens": verdict.tokens} | _place(verdict)
    return row | {name: value for name in ("key", "detail") if (value := getattr(verdict, name))}


def _place(verdict: LoreVerdict) -> dict[str, Json]:
    """Return where an entry goes: prefix or tail."""
    return {"place": verdict.entry.place}


def _shown(record: BookRecord) -> dict[str, Json]:
    fields = {name: getattr(record, name) for name in ("title", "trust", "by", "added_at")}
    return {"name": record.id, "file": record.file, "bytes": record.size, **fields}


def lore_of(anchor: MemoryAnchor) -> LorebookUseCases:
    """Return the use cases of lorebooks for this caller."""
    return LorebookUseCases(anchor.writes)

"""The use cases of lorebooks: add, list, show, scan, remove, and the entries that they bring into a context.

A book that a human adds on a terminal is semi-trusted and only a human replaces or removes it; one that an agent adds
is untrusted, as all knowledge is. Admitted entries are reference material: fenced, cited, in a budget of their own.
Only messages of people and agents are scanned, without recalled memories in them, so that no entry matches itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from memory_anchor.extensions.lorebook.books import BookRecord, book_name, books_of, home_of
from memory_anchor.extensions.lorebook.reading import Lorebook, capped
from memory_anchor.extensions.lorebook.scanning import LoreMessage, LoreScan, LoreScanner, LoreVerdict, Why
from memory_anchor.extensions.lorebook.settings import LorebookSettings
from memory_anchor.extensions.prompts.transcript import content_text
from memory_anchor.language.fences import strip_fenced
from memory_anchor.language.safety import cleaned
from memory_anchor.use_cases.memory import MemoryAnchor
from memory_anchor.use_cases.writes import Writes

SPEAKERS = ("user", "assistant", "system")
ROWS_KEPT = 50


class ScannedLore(TypedDict):
    """The entries that messages admit."""

    snippets: list[RetrievedSnippet]
    report: dict[str, Json]


class LorebookUseCases:
    def __init__(self, writes: Writes) -> None:
        self._writes, self._services, self._actor = writes, writes.services, writes.actor
        self._store = books_of(writes.services)
        self._home = home_of(writes.services.data_dir, writes.actor.scope)
        self._settings = writes.project.settings.group(LorebookSettings)

    @use_case(requests.AddLorebook)
    def add(self, request: requests.AddLorebook) -> dict[str, Json]:
        """Add a book; return its size and format, and problems in it."""
        name = book_name(request.file)
        self._check_may_change(next((book for book in self._store.books(self._home) if book.id == name), None))
        record, book = self._store.add(
            self._home,
            checks.file_bytes("content", request.content),
            file=request.file,
            trust=Trust.SEMI_TRUSTED if rights.is_human(self._actor.caller) else Trust.UNTRUSTED,
            by=self._writes.author,
            at=self._services.clock.now().isoformat(timespec="seconds"),
        )
        self._noted("lorebook.added", record)
        problems = [*book.problems, *capped(LoreScanner([book], self._settings).keys.problems)]
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
        (book,) = scanner.books or (Lorebook(id=record.id, format="damaged"),)
        shown = {"uid", "title", "keys", "enabled", "constant", "place", "content"}
        return {
            **_shown(record),
            **{name: getattr(book, name) for name in ("format", "scan_depth", "token_budget", "recursive")},
            "entries": [{"id": entry.uid} | entry.model_dump(mode="json", include=shown) for entry in book.entries],
            "problems": [*book.problems, *capped(scanner.keys.problems), *problems],
        }

    @use_case(requests.RemoveLorebook)
    def remove(self, request: requests.RemoveLorebook) -> dict[str, Json]:
        """Erase a book; return whether nothing of it is left."""
        self._check_may_change(self._store.record(self._home, request.name))
        record = self._store.remove(self._home, request.name)
        self._noted("lorebook.removed", record)
        clean = record.id not in {other.id for other in self._store.books(self._home)}
        return {"source": record.id, "clean": clean}

    @use_case(requests.ScanLorebook)
    def scan(self, request: requests.ScanLorebook) -> ScannedLore:
        """Return the entries that these messages admit and why."""
        books = self._store.books(self._home)
        if request.name:
            books = [self._store.record(self._home, request.name)]
        return self._scan(books, request.messages, request.budget_tokens or self._settings.budget_tokens)

    def for_context(self, messages: Sequence[Mapping[str, Json]]) -> LorebookHits:
        """Return the entries of the project's books for a context with these messages."""
        books = self._store.books(self._home)
        if not books:
            return LorebookHits()
        scan = self._scan(books, messages, self._settings.budget_tokens)
        return LorebookHits(tuple(scan["snippets"]), ({"action": "scan_lorebooks", **scan["report"]},))

    def _scan(self, books: Sequence[BookRecord], messages: Json, budget_tokens: int) -> ScannedLore:
        scanner, problems = self._store.scanner(self._home, books, self._settings)
        scan = scanner.scan(spoken_messages(messages), budget_tokens=budget_tokens)
        trusts = {book.id: Trust(book.trust) for book in books}
        hits = [_snippet(verdict, trusts[verdict.book], rank) for rank, verdict in enumerate(scan.in_prompt_order())]
        return {"snippets": hits, "report": _report(scanner, scan, problems)}

    def _noted(self, event: str, record: BookRecord) -> None:
        what = {"name": record.id, "sha": record.sha}
        self._services.audit.append(event, what, by=self._writes.author, at=self._services.clock.now())

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


def _snippet(verdict: LoreVerdict, trust: Trust, rank: int) -> RetrievedSnippet:
    """Return an admitted entry as a snippet that cites it, without the secrets in its text."""
    tags = ("lorebook", verdict.entry.place, *(["constant"] * (verdict.why is Why.CONSTANT)))
    title = verdict.entry.title
    return RetrievedSnippet(
        id=verdict.id,
        text=cleaned(verdict.text).text,
        score=1 / (1 + rank),
        layer=Layer.OPERATIONAL_KNOWLEDGE,
        type="lorebook",
        when=None,
        tags=tuple(map(Tag, tags)),
        citations=(Citation("knowledge_chunk", f"lorebook:{verdict.id}", title=title, locator=Locator(), trust=trust),),
    )


def _report(scanner: LoreScanner, scan: LoreScan, problems: Sequence[str]) -> dict[str, Json]:
    """Return the report of a scan: the first entries admitted, and dropped with a key in a text; left_out counts the
    others."""
    notes = [*problems, *(problem for book in scanner.books for problem in book.problems), *scan.notes]
    admitted = [_row(verdict) | {"tokens": verdict.tokens} for verdict in scan.admitted[:ROWS_KEPT]]
    dropped = [_row(verdict) for verdict in scan.dropped if verdict.why is not Why.NO_KEY][:ROWS_KEPT]
    return {
        "reason": f"{len(scan.admitted)} of {len(scanner.entries)} entries admitted",
        "books": [book.id for book in scanner.books],
        "budget_tokens": scan.budget_tokens,
        "tokens": scan.tokens,
        "passes": scan.passes,
        "overflowed": scan.overflowed,
        "admitted": admitted,
        "dropped": dropped,
        "left_out": len(scanner.entries) - len(admitted) - len(dropped),
        "notes": notes[:ROWS_KEPT],
    }


def _row(verdict: LoreVerdict) -> dict[str, Json]:
    row: dict[str, Json] = {"id": verdict.id, "title": verdict.entry.title, "why": verdict.why.value}
    row |= {"pass": verdict.pass_number, "place": verdict.entry.place}
    return row | {name: value for name in ("key", "detail") if (value := getattr(verdict, name))}


def _shown(record: BookRecord) -> dict[str, Json]:
    fields = {name: getattr(record, name) for name in ("title", "trust", "by", "added_at")}
    return {"name": record.id, "file": record.file, "bytes": record.size, **fields}


def lore_of(anchor: MemoryAnchor) -> LorebookUseCases:
    """Return the use cases of lorebooks for this caller."""
    return LorebookUseCases(anchor.writes)

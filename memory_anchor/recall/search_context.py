"""One search while it is worked on: who asks for what and when, the query made ready, and the time that it names.

What a search can do before its query has a vector is done on another thread while the query is embedded. Embedding is
native code that leaves the interpreter to others, and takes four fifths of a search. It stays on the calling thread, so
that it begins at once. Rejected: embedding on the other thread, which then waits for the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo

from memory_anchor.language.questions import phrases_in_other_language
from memory_anchor.language.terms import DATE_TERM, term_id, terms
from memory_anchor.language.timewords import TimeWords, time_range
from memory_anchor.recall.centring import as_statement
from memory_anchor.recall.relevance import says
from memory_anchor.recall.request import SearchRequest, admits, refusal
from memory_anchor.recall.scoring import PreparedQuery

if TYPE_CHECKING:
    from memory_anchor.domain.model import Actor, Memory
    from memory_anchor.recall.mirror import Mirror
    from memory_anchor.recall.query_embedder import QueryEmbedder
    from memory_anchor.recall.word_table import WordScores

T = TypeVar("T")
S = TypeVar("S")
Meanwhile = Callable[[], object]
"""What is done while a query is embedded."""
Notes = MutableMapping[str, bool]
"""What an answer says about itself -> whether something is missing in it that may be there a moment later."""
FOLLOWS = "Nothing matches the question alone; some of this was found by what was said before it."
THREADS = 8
"""For so many searches at once the work is done while they embed; for more, after it."""
_POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="during-embedding")


@dataclass(frozen=True, slots=True)
class PrecomputedWords:
    """Words scored before the query had its vector; valid while the mirror is the one they were scored over.

    changes: `Mirror.changes` at that moment.
    """

    mirror: Mirror
    changes: int
    words: WordScores


@dataclass(frozen=True, slots=True)
class SearchContext:
    """period: the time named in the query, None where there is none or the request has its own. notes: grows."""

    actor: Actor
    request: SearchRequest
    query: PreparedQuery
    now: datetime
    period: TimeWords | None
    notes: Notes

    @property
    def lists_period(self) -> bool:
        """Whether everything in a period is asked for, so that nothing is more relevant than another."""
        return self.period is not None and self.period.is_hard and not self.period.rest

    def within(self, period: TimeWords) -> SearchContext:
        """Return the same search for what lies in the period alone."""
        return replace(self, request=within(self.request, period), period=replace(period, is_hard=True))

    def admits(self, memory: Memory) -> bool:
        """Return whether this search may answer with the memory."""
        return admits(self.actor, self.request, memory, now=self.now)


def prepared_query(
    embedder: QueryEmbedder,
    text: str,
    *,
    project: str,
    topic: str = "",
    share: float = 0.0,
    complete: Callable[[PreparedQuery], PreparedQuery] = lambda query: query,
) -> tuple[PreparedQuery, str]:
    """Return the query with its vector and its words in the other language, and a note of what was missing or "".

    project: whose document frequencies count. topic, share: as of `QueryEmbedder.embed_query`.
    complete: returns the query with what else is known of it before it is embedded; called where it is prepared, on
    another thread where there is an embedder.
    """

    def prepare() -> PreparedQuery:
        is_statement = says(text)
        # A statement names more than it asks for.
        translations = () if is_statement else phrases_in_other_language(text)
        ids = tuple(tuple(tuple(map(term_id, phrase)) for phrase in phrases) for phrases in translations)
        return complete(replace(PreparedQuery.of(text, project=project), abroad=ids, is_statement=is_statement))

    embed = partial(embedder.embed_query, text, topic=topic, share=share)
    embedded, query = while_embedding(embed, prepare) if embedder.embedders else (embed(), prepare())
    row = embedded.row
    if row is not None and query.is_statement:
        row = as_statement(row, query.script, embedder.identities[embedded.using])
    return replace(query, row=row, using=embedded.using), embedded.note


def while_embedding(embed: Callable[[], T], other: Callable[[], S]) -> tuple[T, S]:
    """Return what both return, `other` run on another thread in this one's context; raises what either does."""
    waiting = _POOL.submit(copy_context().run, other)
    try:
        embedded = embed()
    finally:
        done = other() if waiting.cancel() else waiting.result()  # cancelled: every thread was busy
    return embedded, done


def period_of(actor: Actor, request: SearchRequest, now: datetime) -> TimeWords | None:
    """Return the time that the query names, None where the request has its own."""
    if request.since is not None or request.until is not None or request.as_of is not None:
        return None
    return time_range(request.query, now=now, zone=actor.zone)


def next_midnight(now: datetime, zone: str) -> datetime:
    """Return when the next day begins in an IANA zone."""
    local = ZoneInfo(zone)
    return datetime.combine(now.astimezone(local).date() + timedelta(days=1), time(), local)


def within(request: SearchRequest, period: TimeWords) -> SearchRequest:
    """Return the same request for what lies in the period alone."""
    return replace(request, since=period.start, until=period.end)


def words_of(request: SearchRequest, period: TimeWords | None) -> str:
    """Return what is looked for: the query, less the words that depend on now.

    "4 days ago" stands in no memory, and would count against all of them.
    """
    return period.remaining if period is not None and period.rest and period.remaining else request.query


def names_day_in(memory: Memory, period: TimeWords) -> bool:
    """Return whether a memory names a day or a month within the period."""
    return any(
        period.start <= noon < period.end
        for term in terms(memory.content)
        if term.startswith(DATE_TERM) and (noon := _noon(term.removeprefix(DATE_TERM)))
    )


def _noon(date: str) -> datetime | None:
    """Return noon of `2023-05-08`, or of the first day of `2023-05`; None for a day that no calendar has."""
    try:
        return datetime.fromisoformat(f"{date}-01"[:10]).replace(hour=12, tzinfo=UTC)
    except ValueError:
        return None


def other_times(period: TimeWords, *, inside: bool = False, outside: bool = True) -> str:
    """Return the note of an answer from other times. inside, outside: whether it has any of the period, any other."""
    if inside:
        return f"Some of these are from other times than {period.text!r}."
    return f"Nothing is recorded for {period.text!r}" + ("; these are from other times." if outside else ".")


def nothing_similar(period: TimeWords) -> str:
    """Return the note of an answer that only lies in the period."""
    return f"Nothing in {period.text!r} resembles the question; this is what lies in it."


def is_outside(actor: Actor, request: SearchRequest, memory: Memory, period: TimeWords, now: datetime) -> bool:
    """Return whether a period that filters leaves the memory out."""
    return period.is_hard and bool(refusal(actor, within(request, period), memory, now=now))

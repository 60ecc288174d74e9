"""One search while it is worked on: what is asked, by whom, when, and the time that the query names."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from memory_anchor.language.questions import phrases_in_other_language
from memory_anchor.language.terms import DATE_TERM, term_id, terms
from memory_anchor.language.timewords import TimeWords, time_range
from memory_anchor.recall.centring import as_statement
from memory_anchor.recall.parallel import beside
from memory_anchor.recall.relevance import says
from memory_anchor.recall.request import SearchRequest, refusal
from memory_anchor.recall.scoring import PreparedQuery

if TYPE_CHECKING:
    from memory_anchor.model import Actor, Memory
    from memory_anchor.recall.query_embedder import QueryEmbedder

Notes = MutableMapping[str, bool]
"""What an answer says about itself -> whether something is missing in it that may be there a moment later."""
FOLLOWS = "Nothing matches the question alone; some of this was found by what was said before it."


@dataclass(frozen=True, slots=True)
class SearchContext:
    """period: the time named in the query, None where there is none or one is given beside it. notes: takes more."""

    actor: Actor
    request: SearchRequest
    question: PreparedQuery
    now: datetime
    period: TimeWords | None
    notes: Notes

    @property
    def lists(self) -> bool:
        """Whether everything in a period is asked for, so that nothing is more relevant than another."""
        return self.period is not None and self.period.is_hard and not self.period.rest

    def within(self, period: TimeWords) -> SearchContext:
        """Return the same for what lies in the period alone."""
        return replace(self, request=within(self.request, period), period=replace(period, is_hard=True))


def prepared_query(
    meaning: QueryEmbedder,
    text: str,
    *,
    project: str,
    topic: str = "",
    share: float = 0.0,
    completed: Callable[[PreparedQuery], PreparedQuery] = lambda question: question,
) -> tuple[PreparedQuery, str]:
    """Return what is looked for, with its row and its words in the other language, and what was gone without or "".

    project: whose document frequencies count. topic, share: as `QueryEmbedder.asked` has them.
    completed: returns the question with what else is known of it before it has its row; called where it is prepared,
    on another thread where there is an embedder.
    """

    def prepare() -> PreparedQuery:
        tells = says(text)
        said = () if tells else phrases_in_other_language(text)  # a statement names more than it asks for
        ids = tuple(tuple(tuple(map(term_id, phrase)) for phrase in phrases) for phrases in said)
        question = PreparedQuery.of(text, project=project)
        return completed(replace(question, abroad=ids, says=tells))

    embed = partial(meaning.asked, text, topic=topic, share=share)
    meant, question = beside(embed, prepare) if meaning.embedders else (embed(), prepare())
    row = meant.row
    if row is not None and question.says:
        row = as_statement(row, question.script, meaning.identities[meant.using])
    return replace(question, row=row, using=meant.using), meant.note


def period_of(actor: Actor, request: SearchRequest, now: datetime) -> TimeWords | None:
    """Return the time that the query names, where none is given beside it."""
    if request.since is not None or request.until is not None or request.as_of is not None:
        return None
    return time_range(request.query, now=now, zone=actor.zone)


def within(request: SearchRequest, period: TimeWords, *, weak: int | None = None) -> SearchRequest:
    """Return the same request for what lies in the period alone; weak: how many weak ones may join instead."""
    return replace(request, since=period.start, until=period.end, weak=request.weak if weak is None else weak)


def words_of(request: SearchRequest, period: TimeWords | None) -> str:
    """Return what is looked for: the query, less the words that hang on now.

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


def elsewhere(period: TimeWords, *, inside: bool = False, outside: bool = True) -> str:
    """Return the note of an answer from outside of the period. inside, outside: whether it holds anything of either."""
    if inside:
        return f"Some of these are from other times than {period.text!r}."
    return f"Nothing is recorded for {period.text!r}" + ("; these are from other times." if outside else ".")


def nothing_like_it(period: TimeWords) -> str:
    """Return the note of an answer that only lies in the period."""
    return f"Nothing in {period.text!r} resembles the question; this is what lies in it."


def is_outside(actor: Actor, request: SearchRequest, memory: Memory, period: TimeWords, now: datetime) -> bool:
    """Return whether a period that filters leaves the memory out."""
    return period.is_hard and bool(refusal(actor, within(request, period), memory, now=now))

"""Small nightly jobs that finish half-done writes, mark faded confidence, settle disputes, and renew tags and words.

Each reads what is there and writes what is missing, so each may be killed and repeated. None decides anything that
waits for a human: a dispute over a decision, an instruction, a preference, or a human's or pinned memory stays open.

Words: when a new version of the package cuts text into other terms, stored words are computed again; else a search for
"go" would miss a memory indexed as "went". The version that made the words is a number in the job state; if it is not
this version's, every memory is read and those whose words differ are written again, a page at a time, while searches
continue. The progress is stored with the number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from memory_anchor.base.json_values import optional_text, record, text, whole
from memory_anchor.domain.activation import age_days, confidence_of, needs_verifying
from memory_anchor.domain.errors import retry_on_conflict
from memory_anchor.domain.model import Caller, Layer, Memory, Outcome, Status, Tag
from memory_anchor.domain.ports import Entry, SparseVector
from memory_anchor.domain.rights import HUMAN_AUTHOR, Action, have_same_readers, is_read_by_all_of, may, refusal
from memory_anchor.domain.versions import parse_version_id, revise
from memory_anchor.domain.where import Between, OneOf, Where
from memory_anchor.ingest.relations import Kind, replacement
from memory_anchor.ingest.writing import PROMOTED_FROM
from memory_anchor.language.indexing import searched_words
from memory_anchor.language.safe_regex import late
from memory_anchor.language.terms import TERMS_VERSION
from memory_anchor.recall.cooccurrence import count_tags
from memory_anchor.recall.snippets import MARKS, TO_VERIFY
from memory_anchor.upkeep.history import undone_between
from memory_anchor.upkeep.job_kit import (
    COLLECTIONS_KEPT,
    PAGE,
    PLANNED_SHOWN,
    UNLIMITED,
    YIELD_EVERY,
    Change,
    JobReport,
    Limits,
    Upkeep,
    carry_out,
    current_where,
    live,
    save_state,
    scan,
)
from memory_anchor.upkeep.job_state import load_state

LOOK_BACK = timedelta(days=30)
"""Newest writes that are checked for being half-done."""
TAG_STATE = "tags"
_PROMOTED = late(rf"{PROMOTED_FROM}([A-Za-z0-9]{{1,32}})\b")
FACTS, EVENTS = Layer.VERIFIED_FACT.value, Layer.EVENT_LOG.value


def finish_supersedes(up: Upkeep, at: datetime, limits: Limits = UNLIMITED) -> JobReport:
    """End memories that a newer one names as predecessor, and mark promoted events: what a crash left half-done.

    The new record is always written first and names the old one, so every half-done change is found.
    """
    changes = _half_done(up, at, limits)
    return carry_out(up, "finish_supersedes", changes, at=at, limits=limits, action="finish")


def _half_done(up: Upkeep, at: datetime, limits: Limits) -> Iterable[Change]:
    recent = live(Between("recorded_at", at_least=at - LOOK_BACK))
    for newer in scan(up, FACTS, recent, limits):
        if newer.version != 1:
            continue
        earlier = parse_version_id(newer.previous_version_id)
        if earlier is not None and earlier[0] != newer.id:
            for old in _current(up, FACTS, [earlier[0]]):
                by = Caller.HUMAN if newer.author.startswith(HUMAN_AUTHOR) else Caller.SYSTEM
                displaced = not old.pinned and may(Action.DISPLACE, by, [old]) and is_read_by_all_of(newer, old)
                if old.status is Status.ACTIVE and displaced and old.version == earlier[1]:
                    ended = replace(old, status=Status.SUPERSEDED, valid_to=max(newer.valid_from, old.valid_from))
                    yield _change(old, ended, at, "finish_supersedes", f"superseded by {newer.id}")
        promoted = _PROMOTED.match(newer.reason)
        for event in _current(up, EVENTS, [promoted[1]]) if promoted else ():
            if event.promoted_to is None and have_same_readers(newer, event):
                marked = replace(event, promoted_to=newer.id)
                yield _change(event, marked, at, "finish_supersedes", f"promoted to {newer.id}")


def mark_to_verify(up: Upkeep, at: datetime, limits: Limits = UNLIMITED) -> JobReport:
    """Tag facts whose confidence has faded, and untag those that somebody corroborated since. Never archives."""
    changes = _to_mark(up, at, limits)
    return carry_out(up, "mark_to_verify", changes, at=at, limits=limits, action="mark")


def _to_mark(up: Upkeep, at: datetime, limits: Limits) -> Iterable[Change]:
    for fact in scan(up, FACTS, live(), limits):
        marked = any(tag.name == TO_VERIFY for tag in fact.tags)
        should_verify = needs_verifying(fact, at, up.activation)
        if marked == should_verify:
            continue
        confidence = confidence_of(fact, at, up.activation)
        since = age_days(fact.corroborated_at or fact.learned_at, at)
        why = f"confidence {confidence:.2f}, {since:.0f} days after it was last corroborated"
        tags = (*fact.tags, Tag(TO_VERIFY)) if should_verify else tuple(t for t in fact.tags if t.name != TO_VERIFY)
        yield _change(fact, replace(fact, tags=tags), at, "mark_to_verify", why)


def reconsolidate(up: Upkeep, at: datetime, limits: Limits = UNLIMITED) -> JobReport:
    """Dispute what was recalled together and contradicts, then settle the disputes that need nobody.

    Those are: the other side is gone, or the newer statement says that something changed. The rest stays disputed and
    is counted as waiting. The loser is superseded, hence restorable. A decision that was undone stays undone.
    """
    disputed = _dispute_recalled(up, at, limits)
    settled = _settle(up, at, limits)
    changed = disputed.changed + settled.changed
    return replace(
        settled,
        changed=changed,
        planned=(*disputed.planned, *settled.planned)[:PLANNED_SHOWN],
        counts={**settled.counts, **disputed.counts, "changed": changed},
    )


def _dispute_recalled(up: Upkeep, at: datetime, limits: Limits) -> JobReport:
    """Write the outcome for facts that contradict in one answer: both disputed, or one superseded."""
    disagreements = up.recalled.find(keep=limits.dry_run) if up.recalled is not None else []
    changes: list[Change] = []
    for pair in disagreements:
        older, newer = pair.older, pair.newer
        if undone_between(up.store, older, newer):
            continue
        if pair.outcome is Outcome.NEEDS_REVIEW:
            for memory, other in ((newer, older), (older, newer)):
                why = f"disputed by {other.id}: recalled together, they contradict each other"
                disputes = tuple(dict.fromkeys((*memory.disputes, other.id)))
                disputed = replace(memory, status=Status.DISPUTED, disputes=disputes)
                changes.append(_change(memory, disputed, at, "reconsolidate", why))
            continue
        loser, winner = (newer, older) if pair.outcome is Outcome.SKIPPED else (older, newer)
        why = f"superseded by {winner.id}: {pair.reason}"
        ended = replace(loser, status=Status.SUPERSEDED, valid_to=max(winner.valid_from, loser.valid_from))
        changes.append(_change(loser, ended, at, "reconsolidate", why))
    counts = {"found": float(len(disagreements))}
    return carry_out(up, "reconsolidate", changes, at=at, limits=limits, action="dispute", counts=counts)


def _settle(up: Upkeep, at: datetime, limits: Limits) -> JobReport:
    changes: list[Change] = []
    waiting = 0
    disputed = {m.id: m for m in scan(up, FACTS, live(states=(Status.DISPUTED,)), limits)}
    settled: set[str] = set()
    for memory in sorted(disputed.values(), key=lambda m: (m.learned_at, m.id), reverse=True):
        if memory.id in settled:
            continue
        opponents = [disputed[other] for other in memory.disputes if other in disputed]
        if not opponents and memory.disputes:  # a dispute that began during the scan may be in it by half
            opponents = [one for one in _current(up, FACTS, list(memory.disputes)) if one.status is Status.DISPUTED]
        if not opponents:
            active = replace(memory, status=Status.ACTIVE, disputes=())
            changes.append(_change(memory, active, at, "reconsolidate", "nothing disputes it any more"))
            continue
        old = opponents[0]
        can_settle = (
            len(opponents) == 1
            and old.learned_at <= memory.learned_at
            and old.id != memory.id
            and not refusal(Action.SETTLE, Caller.SYSTEM, [memory, old], asks_user=up.asks_user)
            and _says_it_changed(old, memory)
        )
        if not can_settle or undone_between(up.store, old, memory):
            waiting += 1
            continue
        settled |= {memory.id, old.id}
        valid_to = max(memory.valid_from, old.valid_from)
        ended = replace(old, status=Status.SUPERSEDED, disputes=(), valid_to=valid_to)
        active = replace(memory, status=Status.ACTIVE, disputes=())
        # The loser goes first: a kill in between leaves a memory that nothing disputes any more, not two active ones.
        changes += [
            _change(old, ended, at, "reconsolidate", f"superseded by {memory.id}, which says what changed"),
            _change(memory, active, at, "reconsolidate", f"it says what changed since {old.id}"),
        ]
    counts = {"waiting": float(waiting)}
    return carry_out(up, "reconsolidate", changes, at=at, limits=limits, action="settle", counts=counts)


def rebuild_tags(up: Upkeep, at: datetime, limits: Limits = UNLIMITED) -> JobReport:
    """Count which tags occur together, by audience; searches use the new table at once, and it is stored on disk."""

    def tagged() -> Iterable[tuple[str, list[str]]]:
        for collection in COLLECTIONS_KEPT:
            for memory in scan(up, collection, live(), limits):
                if memory.tags:
                    yield memory.audience, [tag.name for tag in memory.tags if tag.name not in MARKS]

    table = count_tags(tagged())
    if not limits.dry_run:
        save_state(up, TAG_STATE, table.as_json())
        if up.tags is not None:
            up.tags.replace(table)
    pairs = sum(map(len, table.pairs.values()))
    return JobReport("rebuild_tags", at, dry_run=limits.dry_run, counts={"pairs": pairs})


def _says_it_changed(old: Memory, new: Memory) -> bool:
    return replacement(old.content, new.content) is Kind.REPLACED


def _current(up: Upkeep, collection: str, ids: list[str]) -> list[Memory]:
    return up.store.find(collection, current_where().and_(OneOf("id", tuple(ids))), limit=2 * len(ids))


def _change(memory: Memory, changed: Memory, at: datetime, job: str, why: str) -> Change:
    return Change(revise(memory, changed, at=at, author=f"job:{job}", reason=why))


STATE = "words"
RENEWED = (*COLLECTIONS_KEPT, "knowledge")
SAME_WITHIN = 1e-4
"""The engine stores single precision."""


@dataclass(frozen=True, slots=True)
class _RenewalPoint:
    """The version that made the words, and how far a run came: collection, and the page after `after`."""

    terms: int = 0
    collection: str = ""
    after: str | None = None


def renew_words(up: Upkeep, at: datetime, limits: Limits = UNLIMITED, *, on_renewed: Callable[[], None]) -> JobReport:
    """Write again the words that another version made differently; a stopped run continues where it was.

    on_renewed: called when words changed, so that cached ones are read again.
    """
    progress = _load_renewal(up)
    if progress.terms == TERMS_VERSION:
        return JobReport("renew_words", at, dry_run=limits.dry_run)
    if limits.dry_run:
        total = sum(up.store.count(name, Where()) for name in RENEWED)
        return JobReport("renew_words", at, dry_run=True, left=bool(total), counts={"memories": total})
    renewed, reached = 0, _RenewalPoint(TERMS_VERSION)
    begin = RENEWED.index(progress.collection) if progress.collection in RENEWED else 0
    pages = ((name, progress.after if name == progress.collection else None) for name in RENEWED[begin:])
    for name, after in pages:
        while not (stopped := limits.should_stop()):
            page, after = up.store.scan(name, Where(), page=PAGE, after=after, with_vectors=True)
            renewed += _renew_page(up, name, page)
            if after is None:
                break
        if stopped:
            reached = _RenewalPoint(progress.terms, name, after)
            break
    if renewed:
        on_renewed()
    save_state(up, STATE, asdict(reached))
    return JobReport("renew_words", at, changed=renewed, left=reached.terms != TERMS_VERSION)


def _renew_page(up: Upkeep, name: str, page: list[Entry]) -> int:
    """Write those of a page whose words differ, as stored at that moment; return how many."""
    stale: list[str] = []
    for number, entry in enumerate(page):
        if number % YIELD_EVERY == 0:
            up.yield_to_requests()
        if not _same_words(entry.words, searched_words(entry.memory)):
            stale.append(entry.memory.point_id)
    if stale:

        def put() -> None:
            entries = up.store.get(name, stale, with_vectors=True)
            up.store.put(name, [replace(entry, words=searched_words(entry.memory)) for entry in entries])

        with up.lock:  # nobody may close a version between reading and writing it
            retry_on_conflict(put)
    return len(stale)


def _same_words(stored: SparseVector | None, wanted: SparseVector) -> bool:
    if stored is None or len(stored.indices) != len(wanted.indices):
        return False
    values = dict(zip(stored.indices, stored.values, strict=True))
    pairs = zip(wanted.indices, wanted.values, strict=True)
    return all(abs(values.get(term, -1.0) - value) < SAME_WITHIN for term, value in pairs)


def _load_renewal(up: Upkeep) -> _RenewalPoint:
    try:
        state = record(load_state(up.records, STATE))
        after = optional_text(state.get("after"))
        return _RenewalPoint(whole(state["terms"]), text(state.get("collection"), ""), after)
    except (ValueError, KeyError):
        return _RenewalPoint()

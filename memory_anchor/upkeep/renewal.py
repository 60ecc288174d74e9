"""Words of memories made anew when a new version of the package cuts text into other terms.

A store written by an older version would else be asked for "go" where "went" is indexed as such. What the words were
made by is a number beside the job state; where it is not this version's, every memory is read and those whose words
differ are written again, a page at a time, while searches go on. How far it came is kept with the number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from memory_anchor.errors import decided_anew
from memory_anchor.json_values import optional_text, record, text, whole
from memory_anchor.language.indexing import searched_words
from memory_anchor.language.terms import TERMS_VERSION
from memory_anchor.ports import Entry, SparseVector
from memory_anchor.upkeep.upkeep import (
    ASIDE_EVERY,
    COLLECTIONS_KEPT,
    PAGE,
    UNLIMITED,
    JobReport,
    Limits,
    Upkeep,
    load_state,
    save_state,
)
from memory_anchor.where import Where

STATE = "words"
RENEWED = (*COLLECTIONS_KEPT, "knowledge")
SAME_WITHIN = 1e-4
"""The engine keeps single precision."""


@dataclass(frozen=True, slots=True)
class _RenewalPoint:
    """What made the words, and where a run stands that makes them anew: collection, and the page after `after`."""

    terms: int = 0
    collection: str = ""
    after: str | None = None


def renew_words(
    up: Upkeep, at: datetime, limits: Limits = UNLIMITED, *, on_renewed: Callable[[], None] = lambda: None
) -> JobReport:
    """Write the words that another version made otherwise; a stopped run goes on where it was.

    on_renewed: told when words changed, so that whoever keeps them reads them again. Nothing without a `state_dir`.
    """
    place = _read(up)
    if up.state_dir is None or place.terms == TERMS_VERSION:
        return JobReport("renew_words", at, dry_run=limits.dry_run)
    if limits.dry_run:
        total = sum(up.store.count(name, Where()) for name in RENEWED)
        return JobReport("renew_words", at, dry_run=True, left=bool(total), counts={"memories": total})
    renewed = 0
    begin = RENEWED.index(place.collection) if place.collection in RENEWED else 0
    for name in RENEWED[begin:]:
        after = place.after if name == place.collection else None
        while True:
            if limits.should_stop():
                if renewed:
                    on_renewed()
                save_state(up, STATE, asdict(_RenewalPoint(place.terms, name, after)))
                return JobReport("renew_words", at, changed=renewed, left=True)
            page, after = up.store.scan(name, Where(), page=PAGE, after=after, with_vectors=True)
            renewed += _renewed(up, name, page)
            if after is None:
                break
    if renewed:
        on_renewed()
    save_state(up, STATE, asdict(_RenewalPoint(TERMS_VERSION)))
    return JobReport("renew_words", at, changed=renewed)


def _renewed(up: Upkeep, name: str, page: list[Entry]) -> int:
    """Put those of a page whose words differ, as they are stored at that moment; return how many."""
    stale: list[str] = []
    for number, entry in enumerate(page):
        if number % ASIDE_EVERY == 0:
            up.stand_aside()
        if not _alike(entry.words, searched_words(entry.memory)):
            stale.append(entry.memory.point_id)
    if stale:

        def put() -> None:
            entries = up.store.get(name, stale, with_vectors=True)
            up.store.put(name, [replace(entry, words=searched_words(entry.memory)) for entry in entries])

        with up.lock:  # nobody may close a version between reading and writing it
            decided_anew(put)
    return len(stale)


def _alike(one: SparseVector | None, other: SparseVector) -> bool:
    if one is None or len(one.indices) != len(other.indices):
        return False
    held = dict(zip(one.indices, one.values, strict=True))
    return all(
        abs(held.get(term, -1.0) - value) < SAME_WITHIN for term, value in zip(other.indices, other.values, strict=True)
    )


def _read(up: Upkeep) -> _RenewalPoint:
    try:
        held = record(load_state(up.state_dir, STATE))
        return _RenewalPoint(whole(held["terms"]), text(held.get("collection"), ""), optional_text(held.get("after")))
    except (ValueError, KeyError):
        return _RenewalPoint()

"""What a search is asked for, and the filter it becomes in each collection.

One rule, stated twice: `where_of` is pushed down to the engine, `admits` says the same of one memory in Python, for the
few that ranking adds by itself (an event next to a hit). A property test holds them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from memory_anchor.domain.model import SEARCHABLE_STATES, Actor, Layer, Memory, Status
from memory_anchor.domain.model import audiences as audiences_of
from memory_anchor.domain.versions import has_expired, was_searchable
from memory_anchor.domain.where import AnyOf, Between, Condition, OneOf, StartsWith, Where
from memory_anchor.recall.relevance import WEAK_SHOWN

SEARCHED_LAYERS = (Layer.VERIFIED_FACT, Layer.EVENT_LOG)
"""The layers a search reads from the store; L0 is preloaded, L1 looked up, L4 matched on its own."""
_TICK = timedelta(microseconds=1)
_NEVER_FOUND = (Status.ARCHIVED.value, Status.SUPERSEDED.value)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One search, already validated. Empty tuples and None mean: no such filter.

    since, until: half-open, on an event's `when` and a fact's `recorded_at`. as_of: what a search found at that
    instant: believed then (`recorded_at`, `recorded_to`) and neither archived, superseded nor expired.
    where: prefix of an event's place. who: any of these people. limit: 1 to 50. weak: how many weak snippets may join.
    topic: the conversation's L1 topic. before: what its user said before this, "" for nothing.
    counts_use, counts_age: whether how often a memory was used, and how far it faded, count among the priors.
    """

    query: str
    layers: tuple[Layer, ...] = ()
    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    as_of: datetime | None = None
    limit: int = 5
    weak: int = WEAK_SHOWN
    include_pending: bool = False
    detail: bool = False
    where: str | None = None
    who: tuple[str, ...] = ()
    topic: str = ""
    before: str = ""
    counts_use: bool = True
    counts_age: bool = False

    @property
    def is_unfiltered(self) -> bool:
        """Return whether nothing but the reader limits the answer."""
        limits = (self.types, self.tags, self.since, self.until, self.as_of, self.include_pending, self.where, self.who)
        return not any(limits)

    def searched(self) -> tuple[Layer, ...]:
        """Return the layers to read, in a fixed order."""
        return tuple(layer for layer in SEARCHED_LAYERS if not self.layers or layer in self.layers)


def where_of(actor: Actor, request: SearchRequest, layer: Layer) -> Where:
    """Return the filter of this request in the layer's collection."""
    conditions: list[Condition] = [OneOf("audience", tuple(sorted(audiences_of(actor.scope))))]
    excluded: list[Condition] = []
    if request.as_of is None:
        states = SEARCHABLE_STATES | ({Status.PENDING.value} if request.include_pending else frozenset())
        conditions.append(OneOf("state", tuple(sorted(states))))
    else:
        conditions.append(Between("recorded_at", below=request.as_of + _TICK))
        conditions.append(Between("recorded_to", at_least=request.as_of + _TICK))
        # A replaced version's own status is no field of the engine: `admits` reads it.
        hidden = _NEVER_FOUND if request.include_pending else (*_NEVER_FOUND, Status.PENDING.value)
        excluded.append(OneOf("state", hidden))
    if request.types:
        conditions.append(OneOf("type", request.types))
    if request.tags:
        conditions.append(OneOf("tag", request.tags))
    if request.who:
        conditions.append(OneOf("who", request.who))
    if request.where:
        conditions.append(StartsWith("where", request.where))
    if request.since is not None or request.until is not None:
        conditions.append(_recorded_between(layer, request.since, request.until))
    return Where(tuple(conditions), tuple(excluded))


def _recorded_between(layer: Layer, since: datetime | None, until: datetime | None) -> Condition:
    """Return what holds for all that was stated in a period, and for some more: `admits` decides.

    A version that only pins or marks a text is younger than the text; both of its times are stored.
    """
    if layer is Layer.EVENT_LOG:
        return Between("when", at_least=since, below=until)
    if until is None:
        return Between("recorded_at", at_least=since)
    revised = Where((Between("recorded_at", at_least=since), Between("content_at", below=until)))
    return AnyOf((Where((Between("recorded_at", at_least=since, below=until),)), revised))


def refusal(actor: Actor, request: SearchRequest, memory: Memory, *, now: datetime) -> str:
    """Return in a few words why the request may not answer with this memory; "" when it may."""
    checks = (
        (memory.audience in audiences_of(actor.scope), "it is not visible to you"),
        (memory.layer in request.searched(), f"its layer {memory.layer} is not searched"),
        (request.as_of is not None or memory.is_current, "a later version replaced it"),
        (request.as_of is not None or not has_expired(memory, now), "it has expired"),
        (not request.types or memory.type in request.types, f"its type {memory.type} is not asked for"),
        (not request.tags or any(tag.name in request.tags for tag in memory.tags), "it has none of the tags asked for"),
    )
    reason = next((reason for holds, reason in checks if not holds), "")
    if reason or admits(actor, request, memory, now=now):
        return reason
    if request.as_of is None and memory.state not in SEARCHABLE_STATES:
        return f"its status is {memory.status}"
    return "it lies outside the times, places or people asked for"


def admits(actor: Actor, request: SearchRequest, memory: Memory, *, now: datetime) -> bool:
    """Return whether the request may answer with this memory; an event past its `expires_at` never is (rule L2.ttl)."""
    if memory.audience not in audiences_of(actor.scope) or memory.layer not in request.searched():
        return False
    if request.as_of is None:
        if has_expired(memory, now):
            return False
        if not (memory.state in SEARCHABLE_STATES or (request.include_pending and memory.state == Status.PENDING)):
            return False
    else:
        is_closed = memory.recorded_to is not None and memory.recorded_to <= request.as_of
        is_hidden = not was_searchable(memory) and not (request.include_pending and memory.status is Status.PENDING)
        had_expired = has_expired(memory, request.as_of)
        if memory.recorded_at > request.as_of or is_closed or is_hidden or had_expired:
            return False
    instant = memory.happened_at if memory.layer is Layer.EVENT_LOG else memory.stated_at
    return (
        (not request.types or memory.type in request.types)
        and (not request.tags or any(tag.name in request.tags for tag in memory.tags))
        and (not request.who or any(name in request.who for name in memory.who))
        and (not request.where or (memory.where or "").startswith(request.where))
        and (request.since is None or instant >= request.since)
        and (request.until is None or instant < request.until)
    )

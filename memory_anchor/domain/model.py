"""Every domain type: frozen values, no I/O, no clock.

A memory has a stable `id` and an integer `version`; each version is stored once and its content never changes: only
`usage` (access counts) and bookkeeping (state, recorded_to) move. Layers and types: strategy document, 1, 2 and 4.2.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Literal, get_args

from memory_anchor.base.json_values import Json

FOREVER = datetime(9999, 1, 1, tzinfo=UTC)  # stored where an open end is meant: ranges are pushed down to every engine


class Layer(StrEnum):
    IDENTITY_SCHEMA = "identity_schema"  # L0
    ACTIVE_CONTEXT = "active_context"  # L1
    EVENT_LOG = "event_log"  # L2
    VERIFIED_FACT = "verified_fact"  # L3
    OPERATIONAL_KNOWLEDGE = "operational_knowledge"  # L4


LAYER_ALIASES: Mapping[str, Layer] = {
    "constitution": Layer.IDENTITY_SCHEMA,
    "fact": Layer.VERIFIED_FACT,
    **{f"l{number}": layer for number, layer in enumerate(Layer)},
    "session": Layer.EVENT_LOG,  # v1 "session" became L1 and L2; what can be stored of it is L2
}
"""Short and old names, accepted on input only."""

COLLECTIONS = ("event_log", "verified_fact", "identity_schema", "knowledge")
"""The collections of every store, on every engine."""


class MemoryType(StrEnum):
    DECISION = "decision"
    BUGFIX = "bugfix"
    REFACTOR = "refactor"
    PREFERENCE = "preference"
    FACT = "fact"
    INSTRUCTION = "instruction"
    WORKFLOW = "workflow"
    PROJECT_STATE = "project_state"
    BOOKMARK = "bookmark"
    EVENT = "event"
    DISCOVERY = "discovery"
    NOTE = "note"
    EMOTION = "emotion"
    EPISODE = "episode"
    SUMMARY = "summary"


TYPE_ALIASES: Mapping[str, MemoryType] = {"episodic": MemoryType.EPISODE, "rule": MemoryType.INSTRUCTION}

_EVENT_TYPES = (MemoryType.EVENT, MemoryType.DISCOVERY, MemoryType.NOTE, MemoryType.EMOTION, MemoryType.EPISODE)
LAYER_OF_TYPE: Mapping[MemoryType, Layer] = {
    kind: Layer.EVENT_LOG if kind in (*_EVENT_TYPES, MemoryType.SUMMARY) else Layer.VERIFIED_FACT for kind in MemoryType
}
"""The layer a type is stored in unless `layer` is given (strategy 4.2 and contracts)."""


class Status(StrEnum):
    ACTIVE = "active"
    PENDING = "pending"
    ARCHIVED = "archived"
    SUPERSEDED = "superseded"
    DISPUTED = "disputed"


HISTORY = "history"
"""The `state` of a version that a later version of the same memory replaced; a live version's state is its status."""

SEARCHABLE_STATES = frozenset({Status.ACTIVE.value, Status.DISPUTED.value})
"""States that a plain search finds."""


class Origin(StrEnum):
    HUMAN = "human"
    AGENT = "agent"
    EXTRACTED = "extracted"
    DOCUMENT = "document"
    SYSTEM = "system"


ORIGIN_ALIASES: Mapping[str, Origin] = {"ai": Origin.AGENT, "user": Origin.HUMAN}
"""The `source` of the strategy document's events."""


class WriteMode(StrEnum):
    TOOL_CALL = "tool-call"
    FIRST_PERSON = "first-person"
    GHOSTWRITER = "ghostwriter"
    FACTUAL = "factual"


class Visibility(StrEnum):
    CONVERSATION = "conversation"
    AGENT = "agent"
    PROJECT = "project"
    USER = "user"
    ACCOUNT = "account"


VISIBILITY_ALIASES: Mapping[str, Visibility] = {"private": Visibility.AGENT}
"""Of the strategy's memory entry: what one agent alone may see."""


class Caller(StrEnum):
    """Who is asking: decides what may be written and how far a confidence claim counts."""

    HUMAN = "human"
    AGENT = "agent"
    SYSTEM = "system"


class Epistemic(StrEnum):
    HYPOTHESIS = "hypothesis"
    VERIFIED = "verified"
    REFUTED = "refuted"


class Trust(StrEnum):
    TRUSTED = "trusted"
    SEMI_TRUSTED = "semi_trusted"
    AGENT = "agent"
    UNTRUSTED = "untrusted"


TRUST_OF_ORIGIN: Mapping[Origin, Trust] = {
    Origin.HUMAN: Trust.TRUSTED,
    Origin.SYSTEM: Trust.TRUSTED,
    Origin.AGENT: Trust.AGENT,
    Origin.EXTRACTED: Trust.SEMI_TRUSTED,
    Origin.DOCUMENT: Trust.UNTRUSTED,
}


DEFAULT_IMPORTANCE = 0.5
"""What a memory has of which nobody said how important it is, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose memory this is. `project` is an assigned id, never a path. collection: the name under which this agent's
    own memories are kept, shared by the agents that have the same one; "" for the agent's own."""

    account: str = "local"
    project: str = "default"
    user: str = "me"
    agent: str = "agent"
    conversation: str = ""
    collection: str = ""
    across: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Of a reader: other projects whose memories of this agent it reads too (`scope.agent_across_projects`)."""


def audience(scope: Scope, visibility: Visibility) -> str:
    """Return the one key that says who may read a memory; `audiences` gives the keys a caller holds.

    A memory is readable when its key is among the reader's: the one rule of visibility, which a store pushes down as
    one keyword match.
    """
    match visibility:
        case Visibility.CONVERSATION:
            return f"c|{scope.account}|{scope.project}|{scope.conversation}"
        case Visibility.AGENT:
            return f"g|{scope.account}|{scope.project}|{scope.user}|{scope.collection or scope.agent}"
        case Visibility.PROJECT:
            return f"p|{scope.account}|{scope.project}"
        case Visibility.USER:
            return f"u|{scope.account}|{scope.user}"
        case Visibility.ACCOUNT:
            return f"a|{scope.account}"


def account_of(key: str) -> str:
    """Return the account of an audience key."""
    return key.split("|", 2)[1]


def audiences(scope: Scope) -> frozenset[str]:
    """Return every audience key that a caller with this scope may read; asked anew for each memory that is shown."""
    return _audiences(scope, scope.across)  # an argument of its own: two scopes that differ in it alone are equal


@lru_cache(maxsize=256)
def _audiences(scope: Scope, across: tuple[str, ...]) -> frozenset[str]:
    elsewhere = (audience(replace(scope, project=other), Visibility.AGENT) for other in across)
    return frozenset([*(audience(scope, visibility) for visibility in Visibility), *elsewhere])


@dataclass(frozen=True, slots=True)
class Actor:
    """On whose behalf a call is made; every use case of `MemoryAnchor` runs as one.

    zone: IANA name in which naive times and time words of this caller are read.
    project_dir: absolute path of the caller's project, or "" when there is none. project: the id the caller asks for
    instead of the folder's, "" for none.
    person: whose access key let the call in, "" on this machine; history and audit name them.
    nonce: the transport's id of this very call; makes a resent write idempotent where no `request_id` is given.
    """

    caller: Caller = Caller.AGENT
    scope: Scope = field(default_factory=Scope)
    client: str = ""
    zone: str = "UTC"
    project_dir: str = ""
    project: str = ""
    nonce: str = ""
    read_only: bool = False
    person: str = ""


@dataclass(frozen=True, slots=True)
class Tag:
    name: str
    weight: float = 1.0


CitationKind = Literal["file", "url", "conversation", "memory_entry", "knowledge_chunk", "event"]
Freshness = Literal["fresh", "moved", "stale", "gone"]
CITATION_KINDS: tuple[CitationKind, ...] = get_args(CitationKind)
PromptPart = Literal["prefix", "tail"]
PROMPT_PARTS: tuple[PromptPart, ...] = get_args(PromptPart)
FRESHNESS: tuple[Freshness, ...] = get_args(Freshness)


@dataclass(frozen=True, slots=True)
class Locator:
    """Where in a source: lines from 1, the page of what has pages, the headings above, the passage's number."""

    line_start: int | None = None
    line_end: int | None = None
    sha: str | None = None
    chunk_index: int | None = None
    page: int | None = None
    heading: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a memory comes from, precise enough to look again."""

    kind: CitationKind
    ref: str
    title: str | None = None
    locator: Locator = field(default_factory=Locator)
    scope: Scope | None = None
    observed_at: datetime | None = None
    trust: Trust = Trust.AGENT
    freshness: Freshness | None = None
    variant: str | None = None
    index_version: str | None = None

    @property
    def place(self) -> tuple[str, str, int | None, int | None]:
        """Return what two citations of the same lines have in common."""
        return self.kind, self.ref, self.locator.line_start, self.locator.line_end


@dataclass(frozen=True, slots=True)
class Usage:
    """The mutable part of a memory, outside every hash.

    accesses: newest last, at most `USAGE_KEPT` instants of use; `count` counts all of them.
    shown: how often it merely appeared in a result.
    """

    count: int = 0
    shown: int = 0
    last_at: datetime | None = None
    accesses: tuple[datetime, ...] = ()


USAGE_KEPT = 10


@dataclass(frozen=True, slots=True)
class Receipt:
    """A stored answer to one request, so that a repeat gets the same answer.

    key: hash of account, project, client, conversation and request id. fingerprint: hash of what was asked.
    outcome: the answer as JSON.
    """

    key: str
    fingerprint: str
    outcome: Mapping[str, Json]


RECEIPTS_KEPT = 64
"""Of one memory: as many requests may be answered by it before the first of them is forgotten."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One version of one memory (L2 or L3).

    importance, confidence: 0 to 1. priority: 0 to 200. sentiment: -1 to 1. Times are aware UTC. valid_*: when it was
    true. recorded_*: when it was believed (`None` in `*_to` is an open end). first_recorded_at: when version 1 was
    recorded (None in version 1). content_at: when this very text was written (None: with this version).
    corroborated_at: when another source last said the same. written_in: the conversation that wrote this version;
    `scope.conversation` stays the first. context: neighbouring text that helps to find it; questions: what it would be
    asked for. Both are searched, never part of the memory's text. revision: which stored state of it was read, where
    several engines write to one store (`MemoryStore.put`). relations: to older memories, "repeats:ID" (`Relation`).
    """

    id: str
    content: str
    layer: Layer
    type: MemoryType
    scope: Scope
    recorded_at: datetime
    valid_from: datetime
    key: str = ""
    tags: tuple[Tag, ...] = ()
    priority: float = 50.0
    importance: float = DEFAULT_IMPORTANCE
    confidence: float = 0.9
    sentiment: float | None = None
    origin: Origin = Origin.AGENT
    write_mode: WriteMode = WriteMode.TOOL_CALL
    extractor_model: str | None = None
    visibility: Visibility = Visibility.PROJECT
    status: Status = Status.ACTIVE
    pinned: bool = False
    epistemic: Epistemic | None = None
    version: int = 1
    previous_version_id: str | None = None
    valid_to: datetime | None = None
    recorded_to: datetime | None = None
    conversation_seq: int | None = None
    half_life_days: float | None = None
    first_recorded_at: datetime | None = None
    content_at: datetime | None = None
    corroborated_at: datetime | None = None
    citations: tuple[Citation, ...] = ()
    # L2 only
    when: datetime | None = None
    where: str | None = None
    who: tuple[str, ...] = ()
    ttl_days: int | None = None
    expires_at: datetime | None = None
    promoted_to: str | None = None
    # search helpers
    context: str = ""
    questions: tuple[str, ...] = ()
    # bookkeeping
    content_hash: str = ""
    author: str = ""
    reason: str = ""
    written_in: str = ""
    disputes: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    gap: Mapping[str, Json] | None = None
    is_current: bool = True
    usage: Usage = field(default_factory=Usage)
    receipts: tuple[Receipt, ...] = ()
    revision: str | None = field(default=None, compare=False, repr=False)

    @property
    def version_id(self) -> str:
        return f"{self.id}@{self.version}"

    @property
    def point_id(self) -> str:
        return point_id(self.id, self.version)

    @property
    def state(self) -> str:
        """The keyword that searches filter on: the status of the current version, `history` of an older one."""
        return self.status.value if self.is_current else HISTORY

    @property
    def audience(self) -> str:
        return audience(self.scope, self.visibility)

    @property
    def stated_at(self) -> datetime:
        """When this text was written: pinning or marking it is no news."""
        return self.content_at or self.recorded_at

    @property
    def happened_at(self) -> datetime:
        """When the thing was: an event's `when`, else when it was told."""
        return self.when or self.stated_at

    @property
    def answers(self) -> bool:  # an answer's words prove nothing without its question
        return self.layer is Layer.VERIFIED_FACT and bool(self.context and self.questions)

    @property
    def learned_at(self) -> datetime:
        """When version 1 was recorded: age counts from here, whatever was revised since."""
        return self.first_recorded_at or self.recorded_at

    def related(self, *kinds: Relation) -> tuple[str, ...]:
        """Return the ids of the older memories to which it stands in one of these relations."""
        pairs = (relation.partition(":") for relation in self.relations)
        return tuple(other for kind, _, other in pairs if kind in kinds)

    def closed(self, at: datetime) -> Memory:
        """Return this version as history, believed until `at`."""
        return replace(self, is_current=False, recorded_to=at)


_POINTS = uuid.UUID("6f1d4f0e-5b7c-5a39-9a55-3d2f7d0c1a11")


def point_id(memory_id: str, version: int) -> str:
    """Return the UUID under which a store keeps one version."""
    return str(uuid.uuid5(_POINTS, f"{memory_id}@{version}"))


class Outcome(StrEnum):
    ADDED = "added"
    UPDATED = "updated"
    SUPERSEDED = "superseded"
    SKIPPED = "skipped"
    PENDING = "pending"
    REJECTED = "rejected"
    NEEDS_REVIEW = "needs_review"
    ARCHIVED = "archived"


class Relation(StrEnum):
    """How a new memory stands to the one that its outcome names. may_contradict: a guess. echo: of a replaced text."""

    REPEATS = "repeats"
    CONTAINS = "contains"
    CONTAINED = "contained"
    CHANGES = "changes"
    CONTRADICTS = "contradicts"
    MAY_CONTRADICT = "may_contradict"
    ECHO = "echo"
    RELATED = "related"


@dataclass(frozen=True, slots=True)
class Similar:
    id: str
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """What became of one write. `id` is None only when nothing was stored (rejected). relation: to `target_id`."""

    outcome: Outcome
    id: str | None
    layer: Layer
    status: Status | None
    reason: str = ""
    target_id: str | None = None
    similar: tuple[Similar, ...] = ()
    redactions: tuple[str, ...] = ()
    relation: Relation | None = None


Strength = Literal["vivid", "fading", "faded"]


@dataclass(frozen=True, slots=True)
class RetrievedSnippet:
    """One answer of a search: the memory's content whole, its place in the ranking and where it comes from.

    relevance: 0 to 1, the share of such snippets that were right; None where nothing was asked. weak: see
    `recall/relevance.py`. before: what the fact it superseded said. linked: why it is there where the query did not
    find it. source: `session`, of a passage of one. beside: of a cut passage, {side, text, ref, lines} of a neighbour.
    """

    id: str
    text: str
    score: float
    layer: Layer
    type: str
    when: datetime | None
    tags: tuple[Tag, ...] = ()
    status: Status = Status.ACTIVE
    strength: Strength = "vivid"
    citations: tuple[Citation, ...] = ()
    signals: Mapping[str, Json] | None = None
    relevance: float | None = None
    weak: bool = False
    origin: Origin = Origin.AGENT
    before: str = ""
    linked: str = ""
    source: str = ""
    beside: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    snippets: tuple[RetrievedSnippet, ...]
    conflicts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    decisions: tuple[Mapping[str, Json], ...] = ()
    """What the cost report of a context tells of it: why the local copy answered."""


@dataclass(frozen=True, slots=True)
class ConstitutionEntry:
    id: str
    content: str
    priority: int = 0
    source: Literal["yaml", "qdrant"] = "yaml"


@dataclass(frozen=True, slots=True)
class Constitution:
    """L0 as served: whole, never cut."""

    entries: tuple[ConstitutionEntry, ...]
    version: str
    tokens: int
    warnings: tuple[str, ...] = ()


class ProposalAction(StrEnum):
    ADD = "add"
    REPLACE = "replace"
    REMOVE = "remove"
    ADOPT = "adopt"


class ProposalStatus(StrEnum):
    OPEN = "open"
    EFFECTIVE = "effective"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """project, origin: what it is for, see `ProjectRef`."""

    by: str
    at: datetime
    proposal_hash: str
    signature: str
    project: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A wish to change L0; three human confirmations make it effective."""

    id: str
    action: ProposalAction
    content: str
    reason: str
    proposed_by: str
    proposed_at: datetime
    entry_id: str | None = None
    from_id: str | None = None
    status: ProposalStatus = ProposalStatus.OPEN
    confirmations: tuple[Confirmation, ...] = ()


@dataclass(frozen=True, slots=True)
class OperationPassage:
    """One match in L4: a passage of a file under `.ai/operations/`. relevance: as of a `RetrievedSnippet`."""

    name: str
    path: str
    title: str
    text: str
    score: float
    relevance: float = 1.0
    locator: Locator = field(default_factory=Locator)

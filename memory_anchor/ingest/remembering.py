"""From a conversation to stored memories: segment, extract, and hand each candidate to the same gate as everybody.

Extraction proposes, the writer decides: every candidate is an extracted claim with a verbatim quote, passes the gate,
and is reconciled with what is known. Each write carries a request made of the conversation and the candidate, so that
replaying a conversation adds nothing. Recalled and fenced text was stripped before anything was looked for.

Whose a memory is follows what it is about: the user's facts are shared by that user's agents, an agent's own memories
are its own, what concerns the project is the project's.

Reading a conversation's events again when it has ended: its topics, and the facts that were never saved.

What was logged is primary text and goes through the same rules, gate and reconciling as a conversation. What was itself
extracted, or came from a document, is never read again as if somebody had said it; what only one conversation or agent
may see gives no facts to others.

Episodes: where one topic of a conversation ends and the next begins, so that each memory unit is whole.

Two channels, as in HiMem. Topic shift: how far what follows a point is from what was said before it (means of a few
messages, so that one odd remark is no new topic). Surprise: how unusual that is in this conversation, in standard
deviations. A boundary is a peak of the shift that is clear by itself, or smaller and surprising. All cosines are
centred: on raw e5 cosines, which lie between 0.75 and 0.95 whatever is said, the 0.7 and 0.8 of the design documents
would never fire or always fire. The thresholds were chosen on one half of tests/corpora/topics.txt
(`scripts/bench_writepath.py`, docs/write-path.md).

Rejected: a fixed number of turns (cuts topics in two), and comparing each message with a running mean (F1 0.72 where
this has more, docs/write-path.md). Invariant: episodes cover the conversation, in order, without
gaps or overlap, each with 1 to `MAX_TURNS` messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from memory_anchor.errors import BadInput
from memory_anchor.hashing import stable_hash
from memory_anchor.ingest.candidates import Candidate
from memory_anchor.ingest.messages import Message
from memory_anchor.ingest.model_calls import Extraction, Style, extract_with_model, extract_without_model
from memory_anchor.ingest.naming import naming_rules
from memory_anchor.ingest.profile import profile_of
from memory_anchor.ingest.worth import is_trained_on
from memory_anchor.ingest.writing import FactDraft, FactWriter
from memory_anchor.layers.event_log import EventDraft, EventLog
from memory_anchor.layers.gate import ConfidenceGate
from memory_anchor.layers.records import Request
from memory_anchor.model import (
    LAYER_OF_TYPE,
    Actor,
    Caller,
    Citation,
    Layer,
    Memory,
    MemoryType,
    Origin,
    Outcome,
    Tag,
    Visibility,
    WriteMode,
    WriteOutcome,
)

if TYPE_CHECKING:
    from memory_anchor.ports import LanguageModel, Matrix

MIN_TURNS, MAX_TURNS = 2, 40
SHORT_CHARS = 12
"""Shorter messages ("yes", "好的") say nothing about the topic and never open an episode."""


@dataclass(frozen=True, slots=True)
class Boundaries:
    """shift: 1 - cosine between what was said before and after a point (0 to 2) that alone ends an episode there.

    least_shift: the least that ends one when it is also `surprise` standard deviations above the conversation's usual.
    window: messages compared on each side.
    """

    shift: float = 0.9
    least_shift: float = 0.65
    surprise: float = 0.3
    window: int = 2


DEFAULT_BOUNDARIES = Boundaries()


@dataclass(frozen=True, slots=True)
class Episode:
    """Messages `start` to `end` (exclusive). why: what ended it. shift, surprise: as measured at its end."""

    start: int
    end: int
    why: Literal["topic", "surprise", "length", "end"]
    shift: float = 0.0
    surprise: float = 0.0

    def __len__(self) -> int:
        return self.end - self.start


def episodes(
    messages: Sequence[Message], vectors: Matrix, *, boundaries: Boundaries = DEFAULT_BOUNDARIES
) -> list[Episode]:
    """Return the episodes of a conversation.

    vectors: one centred, L2-normalised row a message, (n, dimensions). Raises BadInput: another number of rows.
    """
    import numpy as np

    if len(messages) != len(vectors):
        raise BadInput(f"{len(vectors)} vectors for {len(messages)} messages; one row a message is needed.")
    if not messages:
        return []
    shifts = _shifts(vectors, boundaries.window)
    usual, spread = float(np.mean(shifts or [0.0])), float(np.std(shifts or [0.0])) or 1.0
    found: list[Episode] = []
    start = 0
    for place in range(1, len(messages)):
        shift = shifts[place - 1]
        surprise = (shift - usual) / spread
        why: Literal["topic", "surprise", "length"] | None = None
        if place - start >= MAX_TURNS:
            why = "length"
        elif place - start >= MIN_TURNS and _opens(messages[place]) and _peak(shifts, place - 1):
            if shift >= boundaries.shift:
                why = "topic"
            elif shift >= boundaries.least_shift and surprise >= boundaries.surprise:
                why = "surprise"
        if why is not None:
            found.append(Episode(start, place, why, round(shift, 3), round(surprise, 3)))
            start = place
    found.append(Episode(start, len(messages), "end"))
    return found


def _shifts(vectors: Matrix, window: int) -> list[float]:
    """Return, for each point between two messages, 1 - cosine of the mean before it and the mean after it."""
    import numpy as np

    found = []
    for place in range(1, len(vectors)):
        before = vectors[max(0, place - window) : place].sum(axis=0)
        after = vectors[place : place + window].sum(axis=0)
        found.append(1.0 - float(before @ after / (np.linalg.norm(before) * np.linalg.norm(after) + 1e-9)))
    return found


def _peak(shifts: Sequence[float], at: int) -> bool:
    """Return whether the shift is the largest within `MIN_TURNS` points: a change is felt on both sides of it."""
    return shifts[at] >= max(shifts[max(0, at - MIN_TURNS + 1) : at + MIN_TURNS])


def _opens(message: Message) -> bool:
    """Return whether a message may open an episode: no tool's answer, no mere yes or no."""
    return message.role != "tool" and len(message.content.strip()) >= SHORT_CHARS * _width(message)


def _width(message: Message) -> float:
    """Return the size of a character against a Latin one: a Chinese one says about twice as much."""
    return 0.5 if any("\u4e00" <= character <= "\u9fff" for character in message.content[:40]) else 1.0


EMBEDDED_MAX = 400
"""Messages whose topic is compared; a longer conversation is cut by length alone."""
KNOWN_MAX = 200
STANDS = frozenset({Outcome.ADDED, Outcome.SUPERSEDED, Outcome.UPDATED, Outcome.SKIPPED})
VISIBLE_TO = {"user": Visibility.USER, "agent": Visibility.AGENT, "project": Visibility.PROJECT}

Rows = Callable[[Sequence[str]], "Matrix | None"]
"""Centred rows of texts, None when nothing can embed now."""
Extract = Callable[[Sequence[Message], Sequence[str], "Rows | None", Sequence[int]], Extraction]
"""messages, contents known already, rows of sentences, where episodes begin -> candidates, with who found them."""


def extract_through(
    messages: Sequence[Message],
    known: Sequence[str],
    rows: Rows | None = None,
    starts: Sequence[int] = (),
    *,
    model: LanguageModel,
    style: Style,
    deadline_s: float,
    now: Callable[[], float],
) -> Extraction:
    """Return what a model finds in a conversation, or the rules where it fails; an `Extract` once the rest is bound."""
    return extract_with_model(
        messages, model, style=style, known=known, rows=rows, starts=starts, deadline_s=deadline_s, now=now
    )


@dataclass(frozen=True, slots=True)
class Remembered:
    """What became of one candidate, and the episode (its number and messages) it came from."""

    outcome: WriteOutcome
    episode: int
    start: int
    end: int
    quote: str


@dataclass(frozen=True, slots=True)
class Extracted:
    """What a conversation holds, before anything is written."""

    episodes: tuple[Episode, ...]
    candidates: tuple[Candidate, ...]
    by: str
    notes: tuple[str, ...] = ()
    known: tuple[Memory, ...] = ()
    """Live facts of this reader, newest first: what a later rule may end."""


class Rememberer:
    def __init__(self, facts: FactWriter, events: EventLog, rows: Rows, embedder: str) -> None:
        """embedder: whose rows they are; sentences are weighed by their meaning only on those it was trained on."""
        self._facts = facts
        self._events = events
        self._rows = rows
        self._embedder = embedder

    def find(
        self, messages: Sequence[Message], known: Sequence[Memory], *, user_facts_only: bool, extract: Extract | None
    ) -> Extracted:
        """Return the episodes and candidates of a conversation; nothing is written."""
        contents = [memory.content for memory in known[:KNOWN_MAX]]
        rows = self._rows if is_trained_on(self._embedder) else None
        whole = tuple(self._episodes(messages))
        starts = [one.start for one in whole]
        extracted = (
            extract(messages, contents, rows, starts)
            if extract
            else extract_without_model(
                messages, known=contents, rows=rows, expected=[line.text for line in profile_of(known)]
            )
        )
        found = extracted.candidates
        if user_facts_only:
            found = tuple(c for c in found if c.about == "user" and LAYER_OF_TYPE[c.type] is Layer.VERIFIED_FACT)
        return Extracted(whole, found, extracted.by, extracted.notes, tuple(known))

    def store(self, actor: Actor, found: Extracted, *, gate: ConfidenceGate, mode: WriteMode) -> list[Remembered]:
        """Write each candidate, in the order it was said; a candidate stored before gets its first answer."""
        model = None if found.by == "rules" else found.by
        done = []
        rules = _NamingRules(found.known, actor)
        for one in found.candidates:
            number, episode = next(
                ((n, e) for n, e in enumerate(found.episodes) if e.start <= one.seq < e.end), (0, found.episodes[-1])
            )
            names = naming_rules(one.content) if one.type is MemoryType.INSTRUCTION else {}
            ended = rules.ended_by(names) if one.confidence >= gate.active else []
            outcome = self._write(actor, one, gate, mode, model, ended)
            if outcome.outcome is Outcome.SUPERSEDED and outcome.target_id:
                rules.drop(outcome.target_id)
            if names and outcome.id and outcome.outcome in STANDS:
                rules.add(outcome.id, names)
            done.append(Remembered(outcome, number, episode.start, episode.end, one.quote))
        return done

    def _write(
        self,
        actor: Actor,
        one: Candidate,
        gate: ConfidenceGate,
        mode: WriteMode,
        model: str | None,
        ended: Sequence[str] = (),
    ) -> WriteOutcome:
        cited = Citation("conversation", actor.scope.conversation or "unnamed", title=one.key or None)
        tags = tuple(Tag(name) for name in one.tags)
        visibility = VISIBLE_TO[one.about]
        if visibility is Visibility.PROJECT and actor.scope.collection:
            visibility = Visibility.AGENT
        key = stable_hash("remembered", *_whose(actor), one.type.value, one.content)
        request = Request(key, key, explicit=False)
        if LAYER_OF_TYPE[one.type] is Layer.EVENT_LOG:
            draft = replace(
                EventDraft.like(one, one.content, self._events.now()),
                type=one.type,
                tags=tags,
                citations=(cited,),
                confidence=one.confidence,
                sentiment=one.sentiment,
                visibility=visibility,
                origin=Origin.EXTRACTED,
                write_mode=mode,
                extractor_model=model,
                questions=one.questions,
                redactions=one.redactions,
            )
            return self._events.log(replace(actor, nonce=""), draft, request)
        fact = replace(
            FactDraft.like(one, one.content),
            type=one.type,
            tags=tags,
            confidence=one.confidence,
            visibility=visibility,
            citations=(cited,),
            origin=Origin.EXTRACTED,
            write_mode=mode,
            quoted=bool(one.quote),
            extractor_model=model,
            questions=one.questions,
            sentiment=one.sentiment,
            gap=one.gap,
            redactions=one.redactions,
            replaces=ended[0] if ended else None,
            ends=tuple(ended[1:]),
        )
        return self._facts.save(actor, fact, request, gate=gate)

    def _episodes(self, messages: Sequence[Message]) -> list[Episode]:
        said = [message.content if message.role != "tool" else "" for message in messages]
        rows = self._rows(said) if len(messages) <= EMBEDDED_MAX else None
        return [Episode(0, len(messages), "end")] if rows is None else episodes(messages, rows)


class _NamingRules:
    """The extracted rules of names in this project: the later word on one part of one kind of names ends the first."""

    def __init__(self, known: Sequence[Memory], actor: Actor) -> None:
        """known: newest first."""
        self._signs: dict[tuple[str, str], dict[str, str]] = {}
        for memory in reversed(known):
            extracted = memory.origin is Origin.EXTRACTED and memory.type is MemoryType.INSTRUCTION
            here = memory.scope.project == actor.scope.project and memory.visibility is Visibility.PROJECT
            if extracted and here and not memory.pinned:
                self.add(memory.id, naming_rules(memory.content))

    def add(self, name: str, rules: Mapping[tuple[str, str], str]) -> None:
        """Take the rules of a memory, which count from now on."""
        for slot, sign in rules.items():
            same = {other: held for other, held in self._signs.get(slot, {}).items() if held == sign}
            self._signs[slot] = {**same, name: sign}

    def drop(self, name: str) -> None:
        """Forget a memory that does not stand any more."""
        for held in self._signs.values():
            held.pop(name, None)

    def ended_by(self, rules: Mapping[tuple[str, str], str]) -> list[str]:
        """Return the memories of which no rule would be left beside these."""
        ended: dict[str, None] = {}
        left: set[str] = set()
        for slot, held in self._signs.items():
            for name, sign in held.items():
                if slot in rules and sign != rules[slot]:
                    ended[name] = None
                else:
                    left.add(name)
        return [name for name in ended if name not in left]


def _whose(actor: Actor) -> tuple[str, ...]:
    """Return what a candidate's request belongs to: no answer of one agent is told to another."""
    scope = actor.scope
    return (scope.account, scope.project, scope.user, scope.agent, scope.conversation)


CLIENT = "consolidation"
SPOKEN = frozenset({Origin.HUMAN, Origin.AGENT})
SHARED = frozenset({Visibility.PROJECT, Visibility.USER, Visibility.ACCOUNT})
NEW = frozenset({Outcome.ADDED, Outcome.UPDATED, Outcome.SUPERSEDED, Outcome.PENDING, Outcome.NEEDS_REVIEW})


@dataclass(frozen=True, slots=True)
class EventReader:
    """rows: centred rows of texts, None when nothing can embed now. gate: what a claim must pass."""

    rememberer: Rememberer
    rows: Rows
    gate: Callable[[], ConfidenceGate]

    def topics(self, events: Sequence[Memory]) -> list[Sequence[Memory]]:
        """Return one conversation's events in whole topics, in order; one topic when nothing can embed now."""
        rows = self.rows([event.content for event in events]) if len(events) <= EMBEDDED_MAX else None
        if rows is None or not events:
            return [events]
        return [events[one.start : one.end] for one in episodes(_messages(events), rows)]

    def save_facts(self, events: Sequence[Memory]) -> int:
        """Save the facts that the events of one conversation hold; return how many were new. A repeat saves none."""
        spoken = [event for event in events if event.origin in SPOKEN and event.visibility in SHARED]
        if not spoken:
            return 0
        found = self.rememberer.find(_messages(spoken), (), user_facts_only=False, extract=None)
        facts = tuple(one for one in found.candidates if LAYER_OF_TYPE[one.type] is Layer.VERIFIED_FACT)
        actor = Actor(Caller.SYSTEM, spoken[-1].scope, client=CLIENT)
        done = self.rememberer.store(
            actor, Extracted(found.episodes, facts, found.by), gate=self.gate(), mode=WriteMode.FACTUAL
        )
        return sum(one.outcome.outcome in NEW for one in done)


def _messages(events: Sequence[Memory]) -> list[Message]:
    """Return events as turns: a human's as the user's, any other as the assistant's."""
    turn = Message("assistant", "")
    return [
        replace(turn, role="user" if event.origin is Origin.HUMAN else "assistant", content=event.content, seq=number)
        for number, event in enumerate(events)
    ]

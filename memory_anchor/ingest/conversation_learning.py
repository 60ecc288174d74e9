"""From a conversation to stored memories: split it into episodes, extract candidates, write each through the gate.

Extraction proposes, the writer decides: every candidate is an extracted claim with a verbatim quote, passes the gate,
and is reconciled with what is known. Each write carries a request made of the conversation and the candidate, so that
replaying a conversation adds nothing. Recalled and fenced text was removed before extraction. Who may read a memory
follows what it is about: the user's facts are shared by that user's agents, an agent's memories are private to it, what
concerns the project is the project's.

When a conversation has ended, its logged events are read again the same way, for topics and for facts that were never
saved. Events that were themselves extracted, or came from a document, are not; those that only one conversation or
agent may see give no facts to others.

Episodes are found as in HiMem, by topic shift (how far what follows a point is from what was said before it, on means
of a few messages, so that one odd remark is no new topic) and surprise (how unusual that shift is in this conversation,
in standard deviations). A boundary is a peak of the shift that is large, or smaller and surprising. All cosines are
centred: raw e5 cosines lie between 0.75 and 0.95 whatever is said. The thresholds were chosen on one half of
tests/corpora/topics.txt (`scripts/bench_writepath.py`, docs/write-path.md). Rejected: a fixed number of turns (cuts
topics in two), and comparing each message with a running mean (lower F1, docs/write-path.md). Invariant: episodes cover
the conversation, in order, without gaps or overlap, each with 1 to `MAX_TURNS` messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import (
    Actor,
    Caller,
    Citation,
    Layer,
    Memory,
    Origin,
    Outcome,
    Visibility,
    WriteMode,
    WriteOutcome,
)
from memory_anchor.ingest.candidates import About, Candidate, changes
from memory_anchor.ingest.capture_classifier import is_trained_on
from memory_anchor.ingest.extraction import Rows
from memory_anchor.ingest.messages import Message
from memory_anchor.ingest.model_calls import Extraction, Style, extract_with_model, extract_without_model
from memory_anchor.ingest.profile import profile_of
from memory_anchor.ingest.writing import FactWriter
from memory_anchor.language.perspective import USER
from memory_anchor.layers.event_log import EventLog
from memory_anchor.layers.gate import ConfidenceGate
from memory_anchor.layers.records import Request

if TYPE_CHECKING:
    from memory_anchor.domain.ports import LanguageModel, Matrix

MIN_TURNS, MAX_TURNS = 2, 40
SHORT_CHARS = 12
"""Shorter messages ("yes"; of Chinese, half of it: "好的") say nothing about the topic and never open an episode."""


@dataclass(frozen=True, slots=True)
class Boundaries:
    """shift: 1 - cosine between what was said before and after a point (0 to 2) that alone ends an episode there.

    least_shift: the least that ends one when it is also `surprise` standard deviations above the conversation's usual.
    window: messages compared on each side.
    """

    shift: float = 0.9
    least_shift: float = 0.5
    surprise: float = 0.6
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
    for index in range(1, len(messages)):
        shift = shifts[index - 1]
        surprise = (shift - usual) / spread
        why: Literal["topic", "surprise", "length"] | None = None
        if index - start >= MAX_TURNS:
            why = "length"
        elif index - start >= MIN_TURNS and _may_open(messages[index]) and _is_peak(shifts, index - 1):
            if shift >= boundaries.shift:
                why = "topic"
            elif shift >= boundaries.least_shift and surprise >= boundaries.surprise:
                why = "surprise"
        if why is not None:
            found.append(Episode(start, index, why, round(shift, 3), round(surprise, 3)))
            start = index
    found.append(Episode(start, len(messages), "end"))
    return found


def _shifts(vectors: Matrix, window: int) -> list[float]:
    """Return, for each point between two messages, 1 - cosine of the means before and after it."""
    import numpy as np

    shifts = []
    for index in range(1, len(vectors)):
        before = vectors[max(0, index - window) : index].sum(axis=0)
        after = vectors[index : index + window].sum(axis=0)
        shifts.append(1.0 - float(before @ after / (np.linalg.norm(before) * np.linalg.norm(after) + 1e-9)))
    return shifts


def _is_peak(shifts: Sequence[float], at: int) -> bool:
    """Return whether the shift is the largest within `MIN_TURNS` points: a change shows on both sides of it."""
    return shifts[at] >= max(shifts[max(0, at - MIN_TURNS + 1) : at + MIN_TURNS])


def _may_open(message: Message) -> bool:
    """Return whether a message may open an episode: no tool's answer, no mere yes or no."""
    chinese = any("\u4e00" <= character <= "\u9fff" for character in message.content[:40])
    return message.role != "tool" and len(message.content.strip()) >= SHORT_CHARS * (0.5 if chinese else 1.0)


EMBEDDED_MAX = 400
"""Messages whose topic is compared; a longer conversation is cut by length alone."""
KNOWN_MAX = 200
STORED = frozenset({Outcome.ADDED, Outcome.SUPERSEDED, Outcome.UPDATED, Outcome.SKIPPED})
SHARED_BY: dict[About, Visibility] = {"user": Visibility.USER, "project": Visibility.PROJECT}
VISIBLE_TO: dict[About, Visibility] = {**SHARED_BY, "agent": Visibility.AGENT}

Extract = Callable[[Sequence[Message], Sequence[str], Rows | None, Sequence[int]], Extraction]
"""messages, known contents, rows of sentences, where episodes begin -> candidates, with who found them."""


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
class CandidateOutcome:
    """The outcome of one candidate, and its episode: number, first and last message."""

    outcome: WriteOutcome
    episode: int
    start: int
    end: int
    quote: str


@dataclass(frozen=True, slots=True)
class Extracted:
    """Episodes and candidates of a conversation, before anything is written. by: `rules` or a model's name.

    known: live facts of this reader, newest first, which a later rule may end.
    """

    episodes: tuple[Episode, ...]
    candidates: tuple[Candidate, ...]
    by: str
    notes: tuple[str, ...] = ()
    known: tuple[Memory, ...] = ()


class ConversationLearner:
    def __init__(self, facts: FactWriter, events: EventLog, rows: Rows, embedder: str) -> None:
        """embedder: whose rows they are; sentences are judged by embeddings only of one the models were trained on."""
        self._facts, self._events, self._rows, self._embedder = facts, events, rows, embedder

    @property
    def rows(self) -> Rows | None:
        """What embeds sentences, None where the models were not trained on this embedder's rows."""
        return self._rows if is_trained_on(self._embedder) else None

    def find(
        self, messages: Sequence[Message], known: Sequence[Memory], *, user_facts_only: bool, extract: Extract | None
    ) -> Extracted:
        """Return the episodes and candidates of a conversation; nothing is written."""
        contents = [memory.content for memory in known[:KNOWN_MAX]]
        rows = self.rows
        texts = [message.content if message.role != "tool" else "" for message in messages]
        vectors = self._rows(texts) if len(messages) <= EMBEDDED_MAX else None
        split = [Episode(0, len(messages), "end")] if vectors is None else episodes(messages, vectors)
        if extract:
            extraction = extract(messages, contents, rows, [episode.start for episode in split])
        else:
            expected = [line.text for line in profile_of(known)]
            extraction = extract_without_model(messages, known=contents, rows=rows, expected=expected)
        candidates = tuple(_about_what_it_changes(candidate, known) for candidate in extraction.candidates)
        if user_facts_only:
            candidates = tuple(c for c in candidates if c.about == "user" and c.layer is Layer.VERIFIED_FACT)
        return Extracted(tuple(split), candidates, extraction.by, extraction.notes, tuple(known))

    def store(self, actor: Actor, found: Extracted, *, gate: ConfidenceGate, mode: WriteMode) -> list[CandidateOutcome]:
        """Write each candidate, in the order it was said; a candidate stored before gets its first answer."""
        model = None if found.by == "rules" else found.by
        remembered = []
        for candidate in found.candidates:
            number, episode = next(
                ((n, e) for n, e in enumerate(found.episodes) if e.start <= candidate.seq < e.end),
                (0, found.episodes[-1]),
            )
            outcome = self._write(actor, candidate, gate, mode, model)
            remembered.append(CandidateOutcome(outcome, number, episode.start, episode.end, candidate.quote))
        return remembered

    def _write(
        self,
        actor: Actor,
        candidate: Candidate,
        gate: ConfidenceGate,
        mode: WriteMode,
        model: str | None,
    ) -> WriteOutcome:
        scope = actor.scope
        citation = Citation("conversation", scope.conversation or "unnamed", title=candidate.key or None)
        visibility = VISIBLE_TO[candidate.about]
        if visibility is Visibility.PROJECT and scope.collection:
            visibility = Visibility.AGENT
        # Of this agent's conversation: no answer to one agent is given to another.
        owner = (scope.account, scope.project, scope.user, scope.agent, scope.conversation)
        key = stable_hash("remembered", *owner, candidate.type.value, candidate.whole)
        request = Request(key, key, explicit=False)

        draft = replace(
            candidate,
            citations=(citation,),
            visibility=visibility,
            origin=Origin.EXTRACTED,
            write_mode=mode,
            extractor_model=model,
            who=(USER,) if candidate.speaks else (),
        )
        if candidate.layer is Layer.EVENT_LOG:
            event = replace(draft, when=self._events.now(), gap=None)
            return self._events.log(replace(actor, nonce=""), event, request)
        return self._facts.save(actor, replace(draft, quoted=bool(candidate.quote)), request, gate=gate)


def _about_what_it_changes(candidate: Candidate, known: Sequence[Memory]) -> Candidate:
    """Return a candidate, about the user or the project as the newest known memory is that it says has changed.

    Which of the two a sentence is about is a guess; guessed differently, both would stand for different readers.
    """
    if candidate.about not in SHARED_BY:
        return candidate
    abouts = {visibility: about for about, visibility in SHARED_BY.items()}
    for memory in known[:KNOWN_MAX]:
        if memory.visibility in abouts and changes(memory.content, candidate):
            return replace(candidate, about=abouts[memory.visibility])
    return candidate


CLIENT = "consolidation"
SPOKEN = frozenset({Origin.HUMAN, Origin.AGENT})
SHARED = frozenset({Visibility.PROJECT, Visibility.USER, Visibility.ACCOUNT})
NEW = frozenset({Outcome.ADDED, Outcome.UPDATED, Outcome.SUPERSEDED, Outcome.PENDING, Outcome.NEEDS_REVIEW})


@dataclass(frozen=True, slots=True)
class EventReader:
    """Reads the logged events of an ended conversation again."""

    learner: ConversationLearner
    rows: Rows
    gate: Callable[[], ConfidenceGate]

    def topics(self, events: Sequence[Memory]) -> list[Sequence[Memory]]:
        """Return one conversation's events by topic, in order; one topic when nothing can embed now."""
        rows = self.rows([event.content for event in events]) if len(events) <= EMBEDDED_MAX else None
        if rows is None or not events:
            return [events]
        return [events[episode.start : episode.end] for episode in episodes(_messages(events), rows)]

    def save_facts(self, events: Sequence[Memory]) -> int:
        """Save the facts in the events of one conversation; return how many were new. A second call saves none."""
        spoken = [event for event in events if event.origin in SPOKEN and event.visibility in SHARED]
        if not spoken:
            return 0
        found = self.learner.find(_messages(spoken), (), user_facts_only=False, extract=None)
        facts = tuple(c for c in found.candidates if c.layer is Layer.VERIFIED_FACT)
        actor = Actor(Caller.SYSTEM, spoken[-1].scope, client=CLIENT)
        extracted = Extracted(found.episodes, facts, found.by)
        remembered = self.learner.store(actor, extracted, gate=self.gate(), mode=WriteMode.FACTUAL)
        return sum(one.outcome.outcome in NEW for one in remembered)


def _messages(events: Sequence[Memory]) -> list[Message]:
    """Return events as turns: a human's as the user's, any other as the assistant's."""
    return [
        Message("user" if event.origin is Origin.HUMAN else "assistant", event.content, seq=number)
        for number, event in enumerate(events)
    ]

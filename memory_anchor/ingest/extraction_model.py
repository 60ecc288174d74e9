"""From a conversation to memory candidates by a language model, with everything it says checked.

The model sees redacted, fenced text with numbered messages. Of what it answers only this is believed: a type and an
owner from fixed lists, and a quote that really stands in the message it names. A memory without a quote is worth less
at the gate, one that gives orders, repeats recalled text or harms nobody by its absence is dropped. Where no model
answers, the rules do, and the result says so. At most two rounds: the second asks for what the first missed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from memory_anchor.errors import Unavailable
from memory_anchor.ingest.extraction import (
    MIN_GAP,
    Candidate,
    Rows,
    Similarity,
    extract_by_rules,
    fresh_only,
)
from memory_anchor.ingest.messages import Message, fold, plain, recalled
from memory_anchor.ingest.prompts import (
    EXTRACTION_VERSION,
    FOUND_MAX,
    TYPES,
    ExtractionAnswer,
    ModelMemory,
    Style,
    extraction_prompt,
    extraction_system,
)
from memory_anchor.json_values import Json
from memory_anchor.language.perspective import Perspective
from memory_anchor.language.safety import cleaned, fence, instruction_like, only_secrets, redact
from memory_anchor.language.terms import is_chinese
from memory_anchor.model import Trust, WriteMode
from memory_anchor.ports import LanguageModel

MAX_ROUNDS = 2
CHUNK_CHARS = 24_000
MAX_CHUNKS = 20
OVERLAP_MESSAGES, OVERLAP_CHARS = 2, 600
"""What the end of a piece adds to the next one: messages, and characters of each."""
LEAST_CALL_S = 5.0
MESSAGE_CHARS = 4_000
KNOWN_SHOWN, KNOWN_CHARS = 30, 300
CALL_CHARS = 160
QUOTED_CONFIDENCE, UNQUOTED_CONFIDENCE = 0.9, 0.85


@dataclass(frozen=True, slots=True)
class Extraction:
    """Candidates, and who found them. by: a model's name and prompt version, or `rules`. notes: what went otherwise."""

    candidates: tuple[Candidate, ...]
    by: str
    notes: tuple[str, ...] = ()


def extract_with_model(
    messages: Sequence[Message],
    model: LanguageModel,
    *,
    style: Style = Style(),  # noqa: B008 - frozen
    known: Sequence[str] = (),
    similarity: Similarity | None = None,
    rows: Rows | None = None,
    starts: Sequence[int] = (),
    rounds: int = MAX_ROUNDS,
    deadline_s: float = 60.0,
    now: Callable[[], float],
) -> Extraction:
    """Return what a model finds worth remembering; what rules find where it fails, with a note that says so.

    What a round or a chunk gave is kept, whatever becomes of the next one; of a chunk that gave nothing the rules read
    the messages. known: contents of memories near this conversation. rows, similarity: as `extract_by_rules` takes
    them. starts: places at which an episode begins. rounds: 1 or 2 passes. deadline_s: for all calls together, in
    seconds of `now`; one call gets at most half of what is left.
    """
    ends = now() + deadline_s
    system = extraction_system(style)
    stored = _known(known)
    found: list[Candidate] = []
    notes: list[str] = []
    answered = False
    chunks = list(_chunks(messages, starts))
    for number, chunk in enumerate(chunks, start=1):
        seen, failed = _rounds(chunk, model, system, stored, style, rounds, ends, now)
        found += seen.candidates
        where = f"part {number} of {len(chunks)}: " if len(chunks) > 1 else ""
        notes += [where + note for note in seen.notes]
        if failed is None:
            answered = True
            continue
        if seen.candidates:
            answered = True
            notes.append(f"{where}what {model.name} found in the first round was kept, a second one failed: {failed}")
        else:
            rules = extract_by_rules(chunk, known=known, similarity=similarity, rows=rows)
            found += rules
            notes.append(f"{where}extracted by rules instead of {model.name}: {failed}")
    news = fresh_only(found, recalled(messages), known, similarity)
    if len(news) > FOUND_MAX * len(chunks):
        kept = sorted(news, key=lambda one: -one.importance)[: FOUND_MAX * len(chunks)]
        notes.append(f"{len(news)} memories were found; the {len(kept)} most important were kept")
        news = sorted(kept, key=lambda one: one.seq)
    by = f"{model.name}/{EXTRACTION_VERSION}" if answered or not chunks else "rules"
    return Extraction(tuple(news), by, tuple(notes))


def _rounds(
    chunk: Sequence[Message],
    model: LanguageModel,
    system: str,
    stored: str,
    style: Style,
    rounds: int,
    ends: float,
    now: Callable[[], float],
) -> tuple[Extraction, Unavailable | None]:
    """Return what the rounds over one chunk gave, and what ended them early."""
    seen: list[Candidate] = []
    notes: list[str] = []
    for _ in range(min(rounds, MAX_ROUNDS)):
        prompt = extraction_prompt(_talk(chunk), known=stored, found=_already(seen))
        left = ends - now()
        try:
            answer, usage = model.fill(
                ExtractionAnswer, system=system, prompt=prompt, deadline_s=min(left, max(left / 2, LEAST_CALL_S))
            )
        except Unavailable as failed:
            return Extraction(tuple(seen), model.name, tuple(notes)), failed
        if usage.cut:
            notes.append(f"an answer of {model.name} was cut off; its {len(answer.memories)} whole memories were read")
        if answer.unfit:
            notes.append(f"{answer.unfit} memories of {model.name} did not fit and were left out")
        fresh = [candidate for item in answer.memories if (candidate := _checked(item, chunk, style))]
        seen += fresh
        if not fresh:
            break
    return Extraction(tuple(seen), model.name, tuple(notes)), None


def _chunks(messages: Sequence[Message], starts: Sequence[int] = ()) -> Iterator[list[Message]]:
    """Yield the conversation in pieces a model reads at once; at most `MAX_CHUNKS`, the latest of them.

    A piece ends where an episode does, once it is half full, and opens with the last messages of the one before it.
    """
    chunks: list[list[Message]] = [[]]
    size, fresh = 0, 0
    begins = frozenset(starts)
    for place, message in enumerate(messages):
        length = min(len(message.content), MESSAGE_CHARS)
        full = size + length > CHUNK_CHARS or (place in begins and size > CHUNK_CHARS / 2)
        if fresh and full:
            tail = [one for one in chunks[-1][-OVERLAP_MESSAGES:] if len(one.content) <= OVERLAP_CHARS]
            chunks.append(tail)
            size, fresh = sum(len(one.content) for one in tail), 0
        chunks[-1].append(message)
        size, fresh = size + length, fresh + 1
    yield from (chunk for chunk in chunks[-MAX_CHUNKS:] if _talk(chunk))


def _talk(chunk: Sequence[Message]) -> str:
    """Return the chunk as fenced, redacted lines `[number] role: text`; what tools answered stays out."""
    lines = []
    for message in chunk:
        text = redact(plain(message)).text.strip()[:MESSAGE_CHARS]
        if text and message.role in {"user", "assistant"}:
            lines.append(f"[{message.seq}] {message.role}: {text}")
        lines += [
            f"[{message.seq}] {message.role} called {_call(call.name, call.arguments)}" for call in message.tool_calls
        ]
    return fence("\n".join(lines), source="conversation", trust=Trust.UNTRUSTED) if lines else ""


def _call(name: str, arguments: Json) -> str:
    return cleaned(f"{name} {arguments}"[:CALL_CHARS]).text.replace("\n", " ")


def _known(known: Sequence[str]) -> str:
    lines = [f"- {text[:KNOWN_CHARS]}" for text in known[:KNOWN_SHOWN]]
    return fence("\n".join(lines), source="memory", trust=Trust.AGENT) if lines else ""


def _already(seen: Sequence[Candidate]) -> str:
    return "\n".join(f"- {candidate.content}" for candidate in seen)


def _checked(item: ModelMemory, chunk: Sequence[Message], style: Style) -> Candidate | None:
    """Return the candidate of a proposal, or None where it fails: orders, no consequence, too small a gap."""
    importance = max(item.importance, item.gap.importance if item.gap else 0.0)
    if not item.wrong_without or importance <= MIN_GAP or instruction_like(item.content):
        return None
    content, key = cleaned(_in_person(item.content, style)), cleaned(item.key)
    if not content.text or only_secrets(content.text):
        return None
    quote = _verbatim(item.quote, item.message, chunk)
    gap = item.gap.model_dump() if item.gap else None
    return Candidate(
        key=key.text,
        content=content.text,
        type=TYPES[item.type],
        importance=importance,
        confidence=min(item.confidence, QUOTED_CONFIDENCE if quote else UNQUOTED_CONFIDENCE),
        quote=quote,
        about=item.about,
        seq=item.message if quote else min((message.seq for message in chunk), default=0),
        tags=tuple(dict.fromkeys(name[:64] for tag in item.tags if (name := cleaned(tag).text))),
        questions=tuple(text[:200] for question in item.asked_as if (text := cleaned(question).text)),
        sentiment=item.sentiment,
        gap={name: cleaned(value).text if isinstance(value, str) else value for name, value in gap.items()}
        if gap
        else None,
        redactions=content.kinds,
    )


def _verbatim(quote: str, seq: int, chunk: Sequence[Message]) -> str:
    """Return the quote when it stands in the message it is said to come from, else ""."""
    folded = fold(quote)
    if len(folded) < 2:
        return ""
    said = next((message for message in chunk if message.seq == seq and message.role in {"user", "assistant"}), None)
    return quote if said is not None and folded in fold(redact(plain(said)).text) else ""


_SELF = re.compile(r"(?<![A-Za-z])(?:I|my|me|we|our)(?![A-Za-z])|我", re.I)


def _in_person(content: str, style: Style) -> str:
    """Return a ghostwriter's text in the agent's first person, also where the model forgot it."""
    wanted = style.mode is WriteMode.GHOSTWRITER and style.perspective is Perspective.FIRST_PERSON
    if not wanted or _SELF.search(content):
        return content
    if is_chinese(content):
        return f"我了解到：{content}"
    return f"I learned: {content}"


def by_rules(
    messages: Sequence[Message],
    *,
    known: Sequence[str] = (),
    similarity: Similarity | None = None,
    rows: Rows | None = None,
    style: Style | None = None,
    expected: Sequence[str] | None = None,
) -> Extraction:
    """Return what rules find, as an `Extraction`; a ghostwriter's style is applied to their wording too."""
    found = extract_by_rules(messages, known=known, similarity=similarity, rows=rows, expected=expected)
    if style is not None:
        found = [replace(candidate, content=_in_person(candidate.content, style)) for candidate in found]
    return Extraction(tuple(found), "rules")

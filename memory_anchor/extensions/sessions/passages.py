"""Steps become passages and actions: bounded, cleaned, and in a form from which the index can be made again.

A passage is a few neighbouring steps of at most 1,200 characters; shorter ones lost answers (docs/sessions.md). A
longer step is cut at line ends into passages of its own. Cleaning costs more than everything else, most by the call,
so the short texts of a passage are cleaned together; where a secret or a private part goes over the edge of a text,
each is cleaned alone. A long text is cleaned before it is cut, and of a result a margin that is cleaned with what is
kept is then dropped, so that no half of a secret stays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, takewhile

from memory_anchor.extensions.sessions.steps import INPUT_CHARS, MARGIN_CHARS, SAID_CHARS, StepKind, TranscriptStep
from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.safety import cleaned, strip_private
from memory_anchor.language.terms import terms

PASSAGE_CHARS = 1_200
OF_SUCCESS, OF_FAILURE = (120, 100), (200, 300)
"""Kept of a result at its beginning and at its end, more of an error, which is what is searched for."""
CALL_CHARS = 800
"""Kept of a call: a command whole, of a written file its beginning."""
SPAN_CHARS, COMMAND_CHARS, SHAPE_CHARS = 400, 1_000, 300
"""Kept of an edit's spans, of a command, and of an error's shape in an action."""
GAP = "\n[...]\n"
_EDGE = "\n\x01\n"
"""Between texts that are cleaned together: no white space, and ASCII, or all of them would count as Unicode."""
MARKS: dict[StepKind, str] = {"user": "user: ", "agent": "agent: ", "call": "$ ", "result": "> "}
FIELDS: tuple[tuple[StepKind, ...], ...] = (("user", "agent"), ("call",), ("result",))
"""The fields of the index, in its order."""
_IN_WORD = late(r"[A-Za-z0-9_+/=.~-]")
_NUMBER = bounded(r"0x[0-9a-fA-F]{1,40}|\d{1,40}")
_FOLDERS = bounded(r"(?:[A-Za-z]:)?[\w.@~+-]{0,100}/(?:[\w.@~+-]{1,100}/){0,40}")

Part = tuple[StepKind, str]


@dataclass(slots=True)
class SessionAction:
    """What was done, as it is stored. exit: None while no result says it; shape: of its error, "" for none."""

    kind: str
    text: str
    path: str
    old: str
    new: str
    at: float
    call: str
    exit: int | None = None
    shape: str = ""


@dataclass(slots=True)
class SessionPassage:
    """first, last: offsets of the lines that it begins and ends with."""

    parts: list[Part]
    at: float
    first: int
    last: int
    actions: list[SessionAction] = field(default_factory=list)


def shown(parts: Sequence[Part]) -> str:
    """Return the text of a passage as it is quoted."""
    return "\n".join(f"{MARKS[kind]}{text}" for kind, text in parts)


def indexed(parts: Sequence[Part]) -> tuple[str, ...]:
    """Return the terms of each field of the index."""
    texts = ("\n".join(text for kind, text in parts if kind in kinds) for kinds in FIELDS)
    return tuple(" ".join(terms(text)) for text in texts)


def spoken(parts: Sequence[Part]) -> str:
    """Return what of a passage is embedded: what was said."""
    return "\n".join(text for kind, text in parts if kind in FIELDS[0])


def shape_of(output: str) -> str:
    """Return what an error says whatever its numbers and folders are: its last line that is not blank.

    >>> shape_of("Traceback\\n  /home/a/b/c.py:12: KeyError: 'x'\\n")
    "c.py:0: KeyError: 'x'"
    """
    line = next((line for line in reversed(output.split("\n")) if line.strip()), "")[-SHAPE_CHARS:]
    return _NUMBER.sub("0", _FOLDERS.sub("", line)).strip()


def clean_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts as they may be stored: cleaned together where each comes back whole."""
    told = [text for text in texts if text.strip()]
    together = cleaned(_EDGE.join(told)).text.split(_EDGE) if told else []
    clean = iter(together if len(together) == len(told) else [cleaned(text).text for text in told])
    return [next(clean) if text.strip() else "" for text in texts]


@lru_cache(maxsize=4_096)
def clean_name(name: str) -> str:
    """Return a path, a branch or a call's id as it may be stored; half a character in it is `?`."""
    return cleaned(name.encode("utf-8", "replace").decode()).text


def clean_id(name: str) -> str:
    """Return the id of a session as it may be stored: a digest of one that holds a secret."""
    return name if clean_name(name) == name else hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def kept(text: str, most: int) -> str:
    """Return a text without its private parts and of at most so many characters; where it is longer, it is clean.

    It is cleaned with what follows, and of that is dropped what stands at its end as it was: a secret that goes over
    the edge is gone whole.
    """
    after = text[most : most + MARGIN_CHARS]
    text = strip_private(text[: most + MARGIN_CHARS])
    if not after:
        return text
    text = cleaned(text).text
    as_it_was = takewhile(lambda pair: pair[0] == pair[1], zip(reversed(text), reversed(after), strict=False))
    return text[: len(text) - len(list(as_it_was))][:most]


def bounded_result(output: str, *, failed: bool) -> list[str]:
    """Return a result whole, or its head and its tail.

    The head ends between two words, and where that is at a sign it is cleaned with what follows. The tail begins with
    a margin, so that a word for a secret is seen with its value; what is kept of it is its end, once it is cleaned.
    """
    output, (head_chars, tail_chars) = strip_private(output), OF_FAILURE if failed else OF_SUCCESS
    if len(output) <= head_chars + tail_chars + MARGIN_CHARS:
        return [output]
    head = output[: head_chars + 1]
    while head and _IN_WORD.match(head[-1]):
        head = head[:-1]
    if head and not head[-1].isspace():  # a password goes on after a sign
        head = kept(output, len(head))
    return [head, output[-tail_chars - MARGIN_CHARS :]]


@dataclass(slots=True)
class _Piece:
    """A part before it is cleaned: its texts, to be joined. action: what a call is, or what failed with this result."""

    kind: StepKind
    texts: list[str]
    action: SessionAction | None = None
    is_clean: bool = False
    tail_chars: int = 0

    @property
    def size(self) -> int:
        return sum(map(len, self.texts)) + 4 * len(self.texts)

    def part(self) -> Part:
        """Return the part, and give its action what it keeps; the texts are clean."""
        texts, action = self.texts, self.action
        if self.kind == "result":
            texts = texts[:1] + [tail[-self.tail_chars :] for tail in texts[1:]]
            if action is not None:
                action.shape = shape_of(texts[-1])
            return self.kind, GAP.join(texts)
        if action is not None and action.kind in ("command", "plan"):
            action.text = texts[0][:COMMAND_CHARS]
        if len(texts) == 3:
            name, old, new = texts
            if action is not None:
                action.old, action.new = old[:SPAN_CHARS], new[:SPAN_CHARS]
            return self.kind, f"{name}\n- {old}\n+ {new}"
        return self.kind, texts[0]


class Cutter:
    """Makes passages of steps, in order."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._size, self._first, self._last, self._at = 0, 0, 0, 0.0
        self._pending: dict[str, SessionAction] = {}
        self.ended: dict[str, SessionAction] = {}
        """Calls of an earlier reading whose result came now: exit and shape say how they ended."""

    def cut(self, steps: Iterator[TranscriptStep]) -> Iterator[SessionPassage]:
        for step in steps:
            piece = self._piece(step)
            if not any(text.strip() for text in piece.texts):
                continue
            if piece.size > PASSAGE_CHARS:
                yield from self._flush()
                piece.texts = clean_texts(piece.texts)
                *before, last = list(_pieces(piece.part()[1])) or [""]
                for text in before:
                    self._add(step, _Piece(step.kind, [text], is_clean=True))
                    yield from self._flush()
                piece.texts, piece.kind, piece.is_clean = [last], step.kind, True
                self._add(step, piece)
                continue
            if self._size + piece.size > PASSAGE_CHARS:
                yield from self._flush()
            self._add(step, piece)
        yield from self._flush()

    def _piece(self, step: TranscriptStep) -> _Piece:
        call = _short(step.call)
        if step.act is not None:
            act = step.act
            action = SessionAction(act.kind, "", clean_name(act.path), "", "", step.at, call)
            if call:
                self._pending[call] = action
            texts = [act.text, act.old, act.new] if act.kind == "edit" else [act.text]
            most = INPUT_CHARS if act.kind == "read" else CALL_CHARS
            return _Piece("call", [kept(text, most) for text in texts], action)
        if step.kind != "result":
            return _Piece(step.kind, [kept(step.text, SAID_CHARS)])
        ended = self._pending.pop(call, None)
        if ended is None and call:
            ended = self.ended[call] = SessionAction("", "", "", "", "", step.at, call)
        if ended is not None:
            ended.exit = step.exit
        texts = bounded_result(step.text, failed=bool(step.exit))
        return _Piece(
            "result", texts, ended if step.exit else None, tail_chars=(OF_FAILURE if step.exit else OF_SUCCESS)[1]
        )

    def _add(self, step: TranscriptStep, piece: _Piece) -> None:
        if not self._pieces:
            self._first, self._at = step.offset, step.at
        self._pieces.append(piece)
        self._size += piece.size
        self._last = step.offset

    def _flush(self) -> Iterator[SessionPassage]:
        if not self._pieces:
            return
        pieces, self._pieces, self._size = self._pieces, [], 0
        clean = iter(clean_texts([text for one in pieces if not one.is_clean for text in one.texts]))
        parts: list[Part] = []
        for one in pieces:
            if not one.is_clean:
                one.texts = [next(clean) for _ in one.texts]
                parts.append(one.part())
            else:
                parts.append((one.kind, one.texts[0]))
        actions = [one.action for one in pieces if one.kind == "call" and one.action is not None]
        if any(text.strip() for _, text in parts):
            yield SessionPassage(parts, self._at, self._first, self._last, actions)


def _short(call: str) -> str:
    """Return a name for a call's id, which joins it with its result and tells nothing else; "" for none."""
    return hashlib.blake2b(call.encode("utf-8", "replace"), digest_size=6).hexdigest() if call else ""


def _pieces(text: str) -> Iterator[str]:
    """Yield pieces of at most `PASSAGE_CHARS` characters, cut at line ends where there is one."""
    start = 0
    while len(text) - start > PASSAGE_CHARS:
        cut = text.rfind("\n", start + PASSAGE_CHARS // 2, start + PASSAGE_CHARS)
        end = cut if cut > 0 else start + PASSAGE_CHARS
        yield text[start:end]
        start = re.compile("\n{0,8}").match(text, end).end()  # type: ignore[union-attr]
    if text[start:].strip():
        yield text[start:]


def resume_at(passages: Sequence[SessionPassage]) -> int:
    """Return the offset from which a file that grew is read again: where the last passage begins whose first line no
    passage before it shares; 0 where there is none."""
    for before, passage in reversed(list(pairwise(passages))):
        if passage.first > before.last:
            return passage.first
    return passages[0].first if passages else 0

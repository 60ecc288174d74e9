"""L4 `operational_knowledge`: how things are done, read from `.ai/operations/` of the working tree.

Markdown is cut at headings into passages, YAML and JSON are taken whole; a question is matched against file names and
passages by the same terms as every search, with the passage's rarity in this folder. Nothing is copied into the store:
Git is the record, and files are read again when their time or size changes. Read-only for agents.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from memory_anchor.errors import NotFound
from memory_anchor.model import OperationPassage
from memory_anchor.text.terms import terms

FOLDER = Path(".ai") / "operations"
SUFFIXES = frozenset({".md", ".markdown", ".yaml", ".yml", ".json", ".txt"})
FILES_MAX = 200
FILE_BYTES_MAX = 256 * 1024
PASSAGE_CHARS = 1_600
NAME_WEIGHT = 2.0
"""A term in the file's name or title counts this much more than one in the text."""
FLOOR = 0.12
"""Share of the question's rarity mass a passage must cover to be an answer at all."""
SAME_MEANING = 0.55
"""Centred cosine from which a passage answers without sharing words (other language)."""

_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$", re.MULTILINE)
Meaning = Callable[[str, Sequence[str]], Sequence[float]]
"""question, passages -> centred cosine each; answers for known passages without embedding them again."""


@dataclass(frozen=True, slots=True)
class _Passage:
    name: str
    path: str
    title: str
    text: str
    bag: Counter[str]
    named: frozenset[str]


class OperationalKnowledge:
    def __init__(self, project_dir: Path | None, meaning: Meaning | None = None) -> None:
        self._folder = project_dir / FOLDER if project_dir else None
        self._root = project_dir
        self._meaning = meaning
        self._lock = threading.Lock()
        self._stamp: tuple[tuple[str, int, int], ...] | None = None
        self._passages: tuple[_Passage, ...] = ()

    def find(self, task: str, *, limit: int) -> list[OperationPassage]:
        """Return the passages that say how to do `task`, best first, at most one a heading; empty when none fits."""
        passages = self._current()
        asked = Counter(terms(task))
        if not passages or not asked:
            return []
        holders = Counter(term for p in passages for term in set(p.bag) | p.named)
        rarity = {term: math.log(1 + len(passages) / (1 + holders[term])) for term in asked}
        mass = sum(rarity.values()) or 1.0
        nearness = list(self._meaning(task, [p.text for p in passages])) if self._meaning else [0.0] * len(passages)
        scored = []
        for passage, near in zip(passages, nearness, strict=True):
            covered = sum(rarity[t] for t in asked if t in passage.bag or t in passage.named)
            if covered / mass < FLOOR and near < SAME_MEANING:
                continue
            words = sum(
                rarity[t] * (passage.bag[t] / (passage.bag[t] + 1.2) + NAME_WEIGHT * (t in passage.named))
                for t in asked
            )
            scored.append((words / mass + max(0.0, near), passage))
        scored.sort(key=lambda pair: (-pair[0], pair[1].path, pair[1].title))
        return [OperationPassage(p.name, p.path, p.title, p.text, round(score, 4)) for score, p in scored[:limit]]

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
        pieces: list[tuple[str, str]] = []
        if path.suffix.lower() in (".md", ".markdown"):
            heads = list(_HEADING.finditer(text))
            if not heads or heads[0].start() > 0:
                pieces.append((_title(text, path), text[: heads[0].start()] if heads else text))
            for head, after in zip(heads, [*heads[1:], None], strict=True):
                pieces.append((head[2], text[head.start() : after.start() if after else len(text)]))
        else:
            pieces.append((_title(text, path), text))
        named = frozenset(terms(f"{name.replace('_', ' ')} {_title(text, path)}"))
        return [
            _Passage(
                name, self._shown(path), title, part, Counter(terms(f"{title}\n{part}")), named | set(terms(title))
            )
            for title, piece in pieces
            for part in _windows(piece)
        ]

    def _shown(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix() if self._root else path.as_posix()


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _title(text: str, path: Path) -> str:
    head = _HEADING.search(text)
    return head[2] if head else path.stem.replace("_", " ")


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

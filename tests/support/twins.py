"""A page and its Chinese twin, compared piece by piece: what both have to share whatever the language.

A piece is a heading, a paragraph, an item of a list or a row of a table. The twins have the same pieces in the same
order; each has the same code in backquotes, the same numbers, links to the same places (a page's twin is the same
place), as many cells, and promises as much: where the English says never, at most or only a human, the Chinese does,
and where the Chinese says so in a strong word, the English does. Blocks of code have the same lines but for comments,
quoted texts, and in a console what is printed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path

from quoted import ROOT

DOCS = ROOT / "docs"
CHINESE = DOCS / "zh"
TERMS = CHINESE / "terms.md"
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A) {4}[^ \-*|].*(?:\n {4}.*)*")
_PIECE = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*>] |\||#|\d+\. ))")
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`]+)`")
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])\d[\d,]*(?:\.\d+)?|(?<![A-Za-z0-9_.])\.\d+")
_MONTH = re.compile(r"(?<=\d )(?:November|December|May|April)\b|\b(?:November|December|May|April)(?= \d)")
_MONTHS = {"April": "4", "May": "5", "November": "11", "December": "12"}
_BAR = re.compile(r"(?<!\\)\|")
_PICTURE = re.compile(r"-(?:en|zh)(?=[-.])")
_WORDS = re.compile(r"(?:^|\s+)#.*|\"[^\"]*\"|'[^']*'")
_QUOTED = re.compile(r"\"[^\"]*\"")
_HAN = re.compile("[\u4e00-\u9fff]")
_NEITHER = {"English", "中文"}
PROMISES = (
    ("never", "绝|从不|从没|永不|从未|永远|从来|任何时候|都不|概不|不会|不再"),
    ("always", "始终|总|一律|永远|都|每次|任何"),
    ("at most", "最多|至多|不超过|最大|最长|最高"),
    ("cannot", "不能|无法|不可|不了|无从|不会|没法|不出|不到"),
    ("only (?:a )?humans?", "只有人|只能由人|仅由人|只由人|只有由人"),
)
"""What promises in English, and what a Chinese sentence says for it."""
_STRONG = re.compile("绝不|从不|永不|永远|总是|始终|最多|至多|只有人")
_PROMISING = re.compile(
    r"\b(?:never|always|at most|cannot|only|no|nothing|nobody|none|not|ever|without|up to|most|limits?|max\w*)\b",
    re.I,
)


def twin(page: Path) -> Path:
    """Return the Chinese page of an English one."""
    return ROOT / "README.zh.md" if page.name == "README.md" else CHINESE / page.relative_to(DOCS)


def english(page: Path) -> Path:
    """Return the English page of a Chinese one, any other page as it is."""
    if page == ROOT / "README.zh.md":
        return ROOT / "README.md"
    return DOCS / page.relative_to(CHINESE) if page.is_relative_to(CHINESE) else page


def pages() -> list[Path]:
    """Return every English page that has a Chinese twin: README, each topic, each tutorial."""
    return [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS / "tutorials").glob("*.md"))]


def pieces(text: str) -> list[str]:
    """Return the pieces of a page in order, without code blocks; a link from one language to the other is none."""
    plain = _INDENTED.sub("\n", _FENCE.sub("\n\n", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)))
    plain = _LINK.sub(lambda link: "" if link[1] in _NEITHER else link[0], plain)
    found = (" ".join(piece.split()) for piece in _PIECE.split(plain))
    return [piece.replace("()", "").replace("（）", "").strip() for piece in found if piece]


def numbers(piece: str) -> Counter[str]:
    """Return the numbers of a piece, not those in code and addresses; a month is its number, a 万 ten thousand."""
    plain = _LINK.sub(lambda link: f" {link[1]} ", _CODE.sub(" ", piece))
    plain = re.sub(r"\bL[0-4]\b|(?<=^)#+|^\d+\. ", " ", _MONTH.sub(lambda month: _MONTHS[month[0]], plain))
    plain = re.sub(r"(\d+) million", r"\g<1>000000", re.sub(r"(\d+) ?万", r"\g<1>0000", plain))
    found = (number.replace(",", "") for number in _NUMBER.findall(plain))
    return Counter(f"0{number}" if number.startswith(".") else number for number in found)


@cache
def headings(page: Path) -> tuple[str, ...]:
    """Return the anchors of a page's headings in order."""
    titles = re.findall(r"^#{1,6} +(.*?)\s*#*$", _FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return tuple(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in plain)


def places(page: Path, piece: str) -> Counter[str]:
    """Return where the links of a piece lead: the English page, and which of its headings by number."""
    found = Counter[str]()
    for _, link in _LINK.findall(piece):
        if re.match(r"[a-z]+:", link):
            found[link] += 1
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        known = headings(target) if anchor and target.is_file() else ()
        which = known.index(anchor) if anchor in known else anchor
        place = english(target).relative_to(ROOT).as_posix()
        found[f"{_PICTURE.sub('-LANGUAGE', place)}#{which}"] += 1
    return found


def blocks(text: str) -> list[tuple[str, list[str]]]:
    """Return each block of code: its language, and its lines without comments and quoted texts; of a console inputs."""
    found = []
    for _, language, body in _FENCE.findall(text):
        lines = [line for line in body.splitlines() if line.strip()]
        if language == "console":
            lines = [line for line in lines if line.startswith("$")]
        found.append((language, [_WORDS.sub("", line).strip() for line in lines]))
    return found


def alike(block: tuple[str, list[str]], other: tuple[str, list[str]]) -> bool:
    """Whether two blocks have the same lines; of a line in Chinese its first word counts, unless it is Chinese too."""
    if block[0] != other[0] or len(block[1]) != len(other[1]):
        return False
    pairs = zip(block[1], other[1], strict=True)
    return all(one == two or (_HAN.search(two) and _first(two) in ("", _first(one))) for one, two in pairs)


def _first(line: str) -> str:
    """Return the first word of a line, "" where it is not ASCII alone."""
    word = line.split()[0] if line else ""
    return word if word.isascii() else ""


def differences(page: Path, chinese: Path, told: str | None = None) -> Iterator[str]:
    """Yield a sentence for each way in which the twin of a page says something else; `told`: as if it said that."""
    text, other = page.read_text("utf-8"), chinese.read_text("utf-8") if told is None else told
    name = chinese.relative_to(ROOT)
    if len(blocks(text)) != len(blocks(other)):
        yield f"{name}: {len(blocks(other))} blocks of code, the English page has {len(blocks(text))}"
    yield from (f"{name}: {a} became {b}" for a, b in zip(blocks(text), blocks(other), strict=False) if not alike(a, b))
    meanings: dict[str, str] = {}
    for one, two in zip_longest(pieces(text), pieces(other), fillvalue=""):
        if kind(one) != kind(two):
            yield f"{name}: another order of pieces from here on: {one[:80]!r}, {two[:80]!r}"
            return
        yield from (f"{name}: {what}\n    {one}\n    {two}" for what in of_piece(page, one, chinese, two))
        meanings = meanings if one.startswith("|") else {}
        for cell, translated in zip(cells(one), cells(two), strict=True):
            if meanings.setdefault(cell, translated) != translated:
                yield f"{name}: in one table {cell!r} is {meanings[cell]!r} and {translated!r}"


def cells(piece: str) -> list[str]:
    """Return the cells of a row but the first, none of any other piece."""
    return [cell.strip() for cell in _BAR.split(piece)[2:-1]] if piece.startswith("|") else []


def kind(piece: str) -> str:
    """Return what a piece is: `##`, `|3` for a row of three cells, `-`, `1.`, or "" for a paragraph."""
    if piece.startswith("|"):
        return f"|{len(_BAR.findall(_CODE.sub('', piece))) - 1}"
    found = re.match(r"#+|[-*>](?= )|\d+\.(?= )", piece)
    return found[0] if found else ""


def of_piece(page: Path, said: str, chinese: Path, told: str) -> Iterator[str]:
    """Yield what a piece and its translation do not share."""
    for _, link in _LINK.findall(told):
        target = (chinese.parent / link.partition("#")[0]).resolve()
        if (
            target.suffix == ".md"
            and target.is_relative_to(DOCS)
            and english(target) == target
            and twin(target).is_file()
        ):
            yield f"{link} leads to the English page"
    for what, one, two in (
        ("code", Counter(_CODE.findall(said)), Counter(_CODE.findall(told))),
        ("numbers", numbers(said), numbers(told)),
        ("links", places(page, said), places(chinese, told)),
    ):
        if one != two:
            yield f"{what}: {sorted((one - two).elements())} became {sorted((two - one).elements())}"
    plain, plain_told = _QUOTED.sub("", _CODE.sub("", said)), _CODE.sub("", told)
    for word, words in PROMISES:
        if re.search(rf"\b(?:{word})\b", plain, re.IGNORECASE) and not re.search(words, plain_told):
            yield f"a promise is lost: {word}"
    if _STRONG.search(plain_told) and not _PROMISING.search(plain):
        yield f"a promise is added: {_STRONG.search(plain_told)[0]}"  # type: ignore[index]
    if not _HAN.search(told) and re.search(r"[a-z]{3,} [a-z]{3,} [a-z]{3,}", plain):
        yield "it is not translated"

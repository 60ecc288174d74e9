"""Text to terms, and terms to the one sparse vector of the word channel.

English and Chinese share one vector: stop words are dropped and words get Snowball stems (irregular forms become their
base form first), CJK runs become single characters and bigrams (measured better than segmenters, docs/retrieval.md),
identifiers are indexed whole and split (`getUserName`, `snake_case`, paths, dotted names, versions), and a date in
either language becomes one language-free term. Document weights are BM25 with k1 1.2 and b 0; the engine multiplies by
IDF at query time.

Rejected: the engines' own tokenisers. They differ between Edge and the server, and their changes would re-rank stores.
Invariant: a change of a term or a weight here raises `TERMS_VERSION`; the job `renew_words` then re-indexes every
store.
"""

from __future__ import annotations

import re
import threading
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import pairwise
from typing import Protocol

from memory_anchor.domain.ports import SparseVector
from memory_anchor.language.gates import gate
from memory_anchor.language.safe_regex import late
from memory_anchor.language.words import base_forms, listed, placed

TERMS_VERSION = 3
K1 = 1.2
"""BM25 saturation. b is 0: memories are short, and length normalisation cost 2.4 points of R@10 (docs/retrieval.md)."""
MAX_TERM_CHARS = 200
"""A longer run (base64, a minified line) becomes one term of this length."""
MAX_PHRASES = 5
_STEM_CACHE = 50_000

STOP_WORDS = frozenset(listed("left_out", "search"))
BASE_FORMS = base_forms()

CJK = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_COMPOUND = r"[A-Za-z0-9_]++(?:[._/\\:@#+\-]++[A-Za-z0-9_]++)+"
_TOKEN = late(rf"[{CJK}]+|{_COMPOUND}|[^\W{CJK}]+(?:['’][A-Za-z]+)?")
_JOINED = late(r"[._/\\:@#+\-]")
"""What joins the parts of an identifier."""
_HAN = late(rf"[{CJK}]")
_POSSESSIVE = late(r"['’](s|t|re|ve|d|ll|m)$")
_HUMP = late(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATORS = late(r"[^A-Za-z0-9]+")
_THOUSANDS = late(r"(?<=\d),(?=\d{3}(?!\d))")
_VERSION = late(r"v(\d++(?:\.\d++)+)\Z")

_MONTHS = placed("calendar", "months", first=1)
_MONTHS |= {name[:3]: month for name, month in _MONTHS.items()} | {"sept": 9}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DATES = late(
    rf"""
      (?P<y1>\d{{4}})[-/.](?P<m1>\d{{1,2}})(?:[-/.](?P<d1>\d{{1,2}}))?(?!\d)
    | (?P<y2>\d{{4}})\s{{0,8}}年\s{{0,8}}(?P<m2>\d{{1,2}})\s{{0,8}}月(?:\s{{0,8}}(?P<d2>\d{{1,2}})\s{{0,8}}[日号])?
    | (?:(?P<d3>\d{{1,2}})(?:st|nd|rd|th)?\s{{1,8}}(?:of\s{{1,8}})?)?\b(?P<m3>{_MONTH})\b\.?,?\s{{1,8}}
      (?:(?P<d4>\d{{1,2}})(?:st|nd|rd|th)?,?\s{{1,8}})?(?P<y3>\d{{4}})
    """,
    re.VERBOSE | re.IGNORECASE,
)
_QUOTED = late(r'"([^"\n]++)"|“([^“”\n]++)”|「([^「」\n]++)」|『([^『』\n]++)』|«([^«»\n]++)»')

DATE_TERM = "date:"
"""The prefix of a date's language-free term."""
_local = threading.local()


def normal(text: str) -> str:
    """Return `text` in NFKC and lower case, as phrases are compared."""
    return unicodedata.normalize("NFKC", text).lower()


class Stemmer(Protocol):
    """A Snowball stemmer."""

    def stemWord(self, word: str) -> str: ...  # noqa: N802 - the library's name


@lru_cache(maxsize=_STEM_CACHE)
def stem(word: str) -> str:
    if not (word.isalpha() and word.isascii()):
        return word
    # A Snowball stemmer is not re-entrant, so each thread has its own.
    if not hasattr(_local, "stemmer"):
        from Stemmer import Stemmer as Snowball

        _local.stemmer = Snowball("english")
    stemmer: Stemmer = _local.stemmer
    return str(stemmer.stemWord(BASE_FORMS.get(word, word)))


def _word(raw: str) -> Iterator[str]:
    lower = _POSSESSIVE.sub("", raw.lower())
    if lower and lower not in STOP_WORDS:
        yield stem(lower)


def _parts(raw: str) -> Iterator[str]:
    """Yield the humps and segments of an identifier."""
    for segment in _SEPARATORS.split(raw):
        humps = [hump for hump in _HUMP.split(segment) if hump]
        if len(humps) > 1:
            yield from _word(segment)
        for hump in humps:
            yield from _word(hump)


def _compound(raw: str) -> Iterator[str]:
    whole = raw.lower()[:MAX_TERM_CHARS]
    yield whole
    if version := _VERSION.match(whole):
        yield version[1]
    tail = re.split(r"[/\\]", whole)[-1]
    if tail != whole and _SEPARATORS.search(tail):
        yield tail
    yield from _parts(raw)


@cache
def _may_be_dated() -> Callable[[str], bool]:
    return gate(_DATES)


def _dates(text: str) -> Iterator[str]:
    """Yield `date:2023-05-08` and `date:2023-05` for every date with a year, in either language."""
    if not _may_be_dated()(text):
        return
    for match in _DATES.finditer(text):
        year = match["y1"] or match["y2"] or match["y3"]
        month_text = match["m1"] or match["m2"] or match["m3"]
        month = _MONTHS.get(month_text.lower(), 0) or int(month_text)
        day = match["d1"] or match["d2"] or match["d3"] or match["d4"]
        if not 1 <= month <= 12:
            continue
        yield f"{DATE_TERM}{year}-{month:02d}"
        if day and 1 <= int(day) <= 31:
            yield f"{DATE_TERM}{year}-{month:02d}-{int(day):02d}"


def terms(text: str) -> list[str]:
    """Return the terms of `text` in reading order, with repeats; the dates' language-free terms come last.

    >>> terms("Fixed getUserName in src/api.py")
    ['fix', 'getusernam', 'get', 'user', 'name', 'src/api.py', 'api.py', 'src', 'api', 'py']
    >>> terms("用Qdrant")
    ['用', 'qdrant']
    """
    result: list[str] = []
    plain = _THOUSANDS.sub("", text if text.isascii() else unicodedata.normalize("NFKC", text))
    for raw in _TOKEN.findall(plain):
        result += _terms_of(raw)
    result.extend(_dates(plain))
    return result


@lru_cache(maxsize=_STEM_CACHE)
def _terms_of(raw: str) -> tuple[str, ...]:
    """Return the terms of one match of `_TOKEN`; its first character and its signs say which form it has."""
    if _HAN.match(raw):
        return (*raw, *(first + second for first, second in pairwise(raw)))
    if _JOINED.search(raw):
        return tuple(_compound(raw))
    if _HUMP.search(raw):
        return tuple(_parts(raw))
    return tuple(_word(raw[:MAX_TERM_CHARS]))


def term_id(term: str) -> int:
    """Return the term's unsigned 32-bit id, the same on every machine."""
    return zlib.crc32(term.encode("utf-8", "surrogatepass"))


def is_compound(term: str) -> bool:
    """Return whether a term is a whole identifier, whose parts are terms too."""
    return _SEPARATORS.search(term) is not None and term.isascii()


def weighted(counts: Mapping[str, float]) -> SparseVector:
    """Return BM25 document weights tf*(k1+1)/(tf+k1); `counts` are term frequencies, fractions allowed."""
    values: dict[int, float] = {}
    for term, count in counts.items():
        key = term_id(term)
        values[key] = values.get(key, 0.0) + count * (K1 + 1) / (count + K1)
    return SparseVector(tuple(values), tuple(values.values()))


def query_terms(text: str) -> SparseVector:
    """Return weight 1 for every distinct term of a query."""
    ids = tuple(dict.fromkeys(term_id(term) for term in terms(text)))
    return SparseVector(ids, (1.0,) * len(ids))


def phrases(text: str) -> tuple[str, ...]:
    """Return the phrases in double or Chinese quotation marks, normalised, each once.

    >>> phrases('who said "Ship It" and 「先写测试」?')
    ('ship it', '先写测试')
    """
    quoted = (" ".join(normal(next(filter(None, groups))).split()) for groups in _QUOTED.findall(text))
    return tuple(dict.fromkeys(filter(None, quoted)))[:MAX_PHRASES]


def holds(text: str, phrase: str) -> bool:
    """Return whether normalised text has a phrase; a single letter or digit only as a word, or "2" is in "2024"."""
    if len(phrase) > 1 or not phrase.isascii() or not phrase.isalnum():
        return phrase in text
    return re.search(rf"(?<![a-z0-9]){phrase}(?![a-z0-9])", text) is not None


def is_chinese(text: str) -> bool:
    """Return whether more than 15 % of the characters are CJK: which of the two vector means applies."""
    return not text.isascii() and 20 * len(_HAN.findall(text)) > 3 * len(text)

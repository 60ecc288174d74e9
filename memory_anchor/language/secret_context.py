"""Secrets of unlisted kinds: by how random a token is, and by the words near it.

`secret_rules` has the formats that vendors publish. The rest is found by two questions that a reader asks: was this
made by a machine and not by a person (how often letters, capitals and digits change places), and does a word near it
say that it is a secret (`key`, `令牌`), or something else (`commit`, `摘要`)? The nearest word decides.

- A long token of capitals, small letters and digits is a secret unless a digest, a public key, an address or a path
  explains it.
- A token of one case, hexadecimal or a UUID is a secret only where the nearest word says so.
- After a word for a password the next value that looks chosen (letters with digits or signs) is one, also in the next
  sentence or cell, or before "is the password"; digits alone only right after the verb.

Labels are words of languages, not of vendors: the lists do not grow with each failure. Every bound has a name; all
expressions are linear.
"""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import islice, pairwise
from operator import ne
from typing import Literal

from memory_anchor.base.json_values import records, text
from memory_anchor.language.gates import gate
from memory_anchor.language.randomness import classes, machine_made_chance
from memory_anchor.language.safe_regex import late
from memory_anchor.language.words import any_phrase, filled, table

Span = tuple[int, int, str]
"""Start, end and kind of one secret."""

BEFORE, AFTER = 72, 40
"""Characters before and after a token in which a word may say what it is."""
OTHER_AFTER = 8
"""Characters after a token in which a word may say that it is no secret: " is the commit"."""
MADE_CHARS, NAME_WORDS = 8, 5
"""Least length of a password of letters alone, in both cases, and the number of words from which a value is a name."""
PASSWORD_WITHIN, CHOSEN_CHARS = 90, 6
"""Characters after a word for a password that may have its value, and the least length of a value."""
RANDOM_CHARS, LABELLED_CHARS = 20, 12
"""Least length of a token without and with a label."""
CAPITALS_CHARS, CAPITALS_VOWELS, SMALL_VOWELS = 16, 0.3, 0.19
"""A run of letters of one case of this length with so few vowels is no word: a name has some 0.4."""
LIKELY_MADE, MADE, SURELY_MADE = 0.5, 0.9, 0.99
"""Chance from which a token that also changes class often, a labelled value, and any token is a machine's."""
MIXED_CHANGES, LONG_CHANGES, PART_CHARS = 0.36, 0.28, 16
"""Changes of class in a mixed token, in a likely machine-made one, and the least length of a part judged alone."""
BODY_CHARS = 24
"""From here on a part is a body behind a prefix, of whatever case."""
LONG_CHARS = 32
"""From here on random characters contain words by chance, and only the model decides."""
VALUE_WITHIN, GROUPED_CHARS = 24, 27
"""Characters before a value that may have its label, and the least length of groups of digits: four of six."""
GLUED_CHARS = 80
"""Characters before a secret in which pieces may be attached to it."""
TOKENS_KEPT = 16_384
"""Tokens of which is remembered what they look like: most of a text's are names that come again."""
SIGNS_LEAST = 5
"""Different characters of a random token; `xxxx` stands for one."""
ENCODED_MAX = 40
"""Encoded tokens of one text that are decoded."""

_TOKEN = late(r"[A-Za-z0-9][A-Za-z0-9_+/=.~-]{11,3999}")
_DIGEST_CHARS = frozenset({40, 64})
_HEX = late(r"[0-9a-f]{12,}|[0-9A-F]{12,}")
_VENDORS = late(r"[A-Za-z][A-Za-z0-9]{1,11}[_.](?:[A-Za-z0-9]{1,16}[_.]){0,3}[A-Za-z0-9]{24,}")
"""The common form of vendors: a short name, an underscore or a dot, a long body."""
_VENDOR = late(r"[A-Z]{2,8}-(?=[0-9a-z])")
_PATH = late(r"(?:^|/)[a-z]{4,40}/|/[a-z]{4,40}$|\.[a-z]{1,5}\d?$")
_PATTERNS = {name: text(source) for name, source in table("secret_context").items()}


def _pattern(name: str, flags: int = 0) -> re.Pattern[str]:
    """Return an expression of `secrets.toml`; the words for a password are its part `{chosen}`."""
    return late(filled(_PATTERNS[name], {"chosen": any_phrase("secret_labels", "password")}), flags)


_LABELS = "|".join(
    f"(?P<{kind}>{any_phrase('secret_labels', kind)})" for kind in ("password", "private", "token", "api_key", "other")
)
_WORDS = late(rf"(?:{_LABELS})(?!(?<=[a-z0-9])[a-z])")
"""The words of `words.toml`; the group's name is what a word says about a token near it."""
_NOT_SECRET_BEFORE = _pattern("not_secret_before")
_NOT_SECRET_BODY = late(r"\AAAAA[B-Z][0-9A-Za-z]{3}|iVBORw0KGgo|R0lGOD|/9j/|MII[A-D][a-zA-Z]{1,2}C|Bearer$")
_BEGIN_PUBLIC = late(r"-----begin (?:certificate|public key|[a-z0-9 ]{0,20}public key|certificate request)")
_BLOCK_MARK = late(r"-----(?:begin|end)")
_CACHE_KEY = late(r"(?:[A-Za-z]{2,20}-){2,6}(?:[0-9a-f]{40}|[0-9a-f]{64})")
"""Names and a digest."""
_EXPONENT = late(r'"\s{0,4},\s{0,4}"e"')
"""After the number of a public RSA key in JSON."""
_WORD_RUN = late(r"[A-Z]?[a-z]{3,}")
WORDY = 0.55
"""Share of words in a token from which it is a name; random base 62 has some 0.25."""
_VALUE_SIGN = _pattern("value_sign")
_GROUPS = late(r"\d{4,8}(?:-\d{4,8}){3,9}")
_DIGIT = late("[0-9]")
_SEPARATORS = late(r"[_+/=.~-]")


def changes(token: str) -> float:
    """Return how often neighbours in a token are of different classes (capital, small letter, digit): 0 to 1.

    Random base 62 gives 0.62, random base 36 gives 0.40, an identifier in camel case 0.2, a word 0.

    >>> changes("getUserName") <= 0.4 < changes("aB3dE5fG7hI9jK1l")
    True
    """
    kinds = classes(token).replace(b"-", b"")
    return float(sum(map(ne, kinds, kinds[1:])) / max(1, len(kinds) - 1))


def _is_mixed(token: str) -> bool:
    """Return whether a token, or a long part of it, is a random mix of capitals, small letters and digits."""
    small = token.lower()
    if token in (small, token.upper()) or not _DIGIT.search(token) or in_order(token):
        return False
    if not any(len(part) >= BODY_CHARS or _has_all_classes(part) for part in _SEPARATORS.split(token)):
        return False  # short pieces of one case each: a name, an id with a suffix
    if (len(token) < LONG_CHARS and is_wordy(token)) or (made := machine_made_chance(token)) < LIKELY_MADE:
        return False
    least = 0.0 if made >= SURELY_MADE else LONG_CHANGES if made >= MADE else MIXED_CHANGES
    if changes(token) >= least and not (made < SURELY_MADE and is_wordy(token)):
        return True
    parts = _SEPARATORS.split(token)
    return len(parts) > 1 and any(len(part) >= PART_CHARS and _is_mixed(part) for part in parts)


def _has_all_classes(part: str) -> bool:
    return part not in (part.lower(), part.upper()) and _DIGIT.search(part) is not None


def in_order(token: str) -> bool:
    """Return whether a token is a table of characters: it contains the beginning or the end of the alphabet."""
    small = token.lower()
    return "abcdefgh" in small or "stuvwxyz" in small


def is_wordy(token: str) -> bool:
    """Return whether most of a token is words, each with at most one capital: an identifier."""
    words = (run for run in _WORD_RUN.findall(token) if len(run) < LABELLED_CHARS or not _is_made(run))
    return sum(map(len, words)) >= WORDY * len(token)


def is_long_name(token: str) -> bool:
    """Return whether a token has so many words, and no sign, that it names a test or a class."""
    return token.isalnum() and len(_WORD_RUN.findall(token)) >= NAME_WORDS


def _is_made(token: str) -> bool:
    return machine_made_chance(token) >= LIKELY_MADE


def _is_single(token: str) -> bool:
    """Return whether a token of one case and digits has no words: hexadecimal, base 36, a UUID."""
    name = _VENDOR.match(token)
    bare = _SEPARATORS.sub("", token[name.end() :] if name else token)
    digits = sum(sign.isdigit() for sign in bare)
    plain = (bare.isupper() or bare.isalpha()) and bare in (bare.upper(), bare.lower())
    if plain and len(bare) >= CAPITALS_CHARS and bare == token:  # base 32 may hold hardly a digit, base 26 holds none
        return sum(sign in "AEIOUaeiou" for sign in bare) <= (
            CAPITALS_VOWELS if bare.isupper() else SMALL_VOWELS
        ) * len(bare)
    if bare != bare.lower() and bare != bare.upper():
        return False
    made = sum(len(part) for part in _SEPARATORS.split(token) if _DIGIT.search(part))
    return 3 <= digits < len(bare) and made >= LABELLED_CHARS and changes(token) >= 0.2 and not _PATH.search(token)


@dataclass(slots=True)
class _Labels:
    """The label words of a text. No word goes over a line's end, so each line is searched once, if a token needs it.

    One long line costs no more than many: its ends are looked for once, and of its words those at a place are found by
    halving. last: where the line that was asked for last begins and ends.
    """

    lowered: str
    lines: dict[int, list[re.Match[str]]] = field(default_factory=dict)
    last: tuple[int, int] = (0, -1)

    def of_line(self, at: int) -> tuple[int, list[re.Match[str]]]:
        """Return where the line of a place begins, and its words."""
        if not self.last[0] <= at <= self.last[1]:
            start, end = self.lowered.rfind("\n", 0, at) + 1, self.lowered.find("\n", at)
            self.last = start, end if end >= 0 else len(self.lowered)
        start, end = self.last
        if start not in self.lines:
            self.lines[start] = list(_WORDS.finditer(self.lowered, start, end + 1))
        return start, self.lines[start]

    def before(self, at: int, within: int) -> re.Match[str] | None:
        """Return the last whole word in so many characters before a place."""
        start, words = self.of_line(at)
        while not (count := bisect_right(words, at, key=_end)) and start > max(0, at - within):
            start, words = self.of_line(start - 1)
        return words[count - 1] if count and words[count - 1].start() >= at - within else None

    def nearest(self, start: int, end: int) -> str:
        """Return what the nearest word says a token is: a kind, "other", or "" where none is near."""
        word = self.before(start, BEFORE)
        if word and self.lowered.find("\n\n", word.end(), start) < 0:
            return word.lastgroup or ""
        clause = _CLAUSE.match(self.lowered, end, end + AFTER)
        words = self.of_line(end)[1]
        first = bisect_right(words, end, key=_end)
        after = [one for one in words[first : first + 2] if end <= one.start() < end + AFTER]
        word = next((one for one in after if not self._says_nothing(one, end)), None)
        if word is None or clause is None or word.end() > clause.end():
            return ""
        return "" if word.lastgroup == "other" and word.start() - end > OTHER_AFTER else word.lastgroup or ""

    def _says_nothing(self, word: re.Match[str], end: int) -> bool:
        """Return whether a word after a token says nothing of it: a part of a path, or many of a kind."""
        joined = self.lowered[max(end, self.lowered.rfind(" ", end, word.start()) + 1) : word.start()]
        return "/" in joined or word.group().endswith(_MANY)


_end = re.Match[str].end
_MANY = ("tokens", "keys", "cookies", "secrets", "sessions")


@lru_cache(maxsize=TOKENS_KEPT)
def _looks(body: str) -> Literal["name", "mixed", "single", "made"]:
    """Return what a token looks like by itself. made: a secret only right after a label for one."""
    if _NOT_SECRET_BODY.search(body) or _CACHE_KEY.fullmatch(body) or len(set(body)) < SIGNS_LEAST:
        return "name"
    bare = _SEPARATORS.sub("", body)
    if not _HEX.fullmatch(bare) and _is_mixed(body):
        return "mixed"
    if _is_single(body):
        return "single"
    if bare.isdigit():
        return "made" if len(body) >= GROUPED_CHARS and _GROUPS.fullmatch(body) else "name"
    last = _SEPARATORS.split(body)[-1]
    parts = (body, last) if len(last) >= LABELLED_CHARS else (body,)
    is_made = max(map(machine_made_chance, parts)) >= MADE and not _PATH.search(body) and not in_order(body)
    return "made" if is_made else "name"


def _is_made_value(labels: _Labels, at: int) -> bool:
    """Return whether a label for a secret comes right before a place."""
    word = labels.before(at, VALUE_WITHIN)
    sign = word and word.lastgroup != "other" and _VALUE_SIGN.fullmatch(labels.lowered, word.end(), at)
    return bool(sign)


_IN_USE = _pattern("in_use")
_SERVICE = _pattern("service")
_GIVEN = _pattern("given")
_GIVES = frozenset("\"'=: ")


def _is_in_use(body: str, text: str, lowered: str, at: int) -> bool:
    """Return whether a random token without a label is given to a client, or said to be used with a service."""
    given = text[at - 1 : at] in _GIVES and len(body) >= PART_CHARS
    if given and _GIVEN.search(text, max(0, at - BEFORE), at):
        return True
    if len(body) < RANDOM_CHARS or not _IN_USE.search(lowered, max(0, at - VALUE_WITHIN), at):
        return False
    return (
        len(body) not in _DIGEST_CHARS
        or _SERVICE.search(lowered, max(0, at - BEFORE), at + len(body) + AFTER) is not None
    )


_CLAUSE = late(r"[^\n.。;；]*+")
_KINDS = {"password": "password", "private": "private_key", "token": "token", "api_key": "api_key"}


def _random_tokens(text: str, lowered: str) -> Iterator[Span]:
    blocks = list(_BLOCK_MARK.finditer(lowered)) if "-----begin" in lowered else []
    addresses, labels, reached = "://" in lowered, _Labels(lowered), 0
    for match in _TOKEN.finditer(text):
        token, begin = match.group().rstrip(".-=~/") if match.group()[-1] in ".-~/" else match.group(), match.start()
        end = begin + len(token)
        body = token
        if "=" in token.rstrip("="):  # name=value
            body = token.rpartition("=")[2] if not token.endswith("=") else token.partition("=")[2]
            begin = end - len(body)
        if addresses and ("/" in token or text[match.start() - 1 : match.start()] == "/"):
            address = _ADDRESS_BEFORE.search(lowered, max(0, match.start() - ADDRESS_CHARS), match.start())
            if address is not None:
                yield from _in_address(text, lowered, address.start(), *match.span())
                continue
        if begin < reached or len(body) < LABELLED_CHARS or text.startswith("(", end):
            continue
        named = _WORDS.match(lowered, begin)
        if named and named.lastgroup == "other" and text[named.end() : named.end() + 1] == "-":  # nonce-..., sha256-...
            continue
        looks = _looks(body)
        if looks == "name" or _EXPONENT.match(text, end):
            continue
        mixed = looks == "mixed"
        if looks == "made" and not _is_made_value(labels, begin):
            continue
        if _NOT_SECRET_BEFORE.search(lowered, max(0, begin - 40), begin) or _PATH.search(body):
            continue
        if blocks and _in_public_block(blocks, begin):
            continue
        label = labels.nearest(begin, end)
        if label == "other" or (label == "password" and len(body) < 8):
            continue
        if (
            label
            or (mixed and len(body) >= RANDOM_CHARS)
            or _VENDORS.match(body)
            or _is_in_use(body, text, lowered, begin)
        ):
            begin, reached = _with_glued(text, begin, end)
            yield begin, reached, _KINDS.get(label, "token")


_ADDRESS_BEFORE = late(r"://[^\s\"'`<>?#=]{0,200}\Z")
ADDRESS_CHARS = 210
_SEGMENT = late(r"[^/@]{12,400}")


def _in_address(text: str, lowered: str, begun: int, start: int, end: int) -> Iterator[Span]:
    """Yield the random parts of an address's path that come after a hook, or after a word for a secret.

    begun: where the address begins. Without such a word a part is an id, as of a document or a film.
    """
    for match in _SEGMENT.finditer(text, start, end):
        part, path = match.group(), lowered[begun : match.start()]
        words = list(_WORDS.finditer(path))
        label = "token" if "hook" in path else _KINDS.get(words[-1].lastgroup or "", "") if words else ""
        if label and (_is_mixed(part) or _is_single(part) or (_is_made(part) and not is_wordy(part))):
            yield *match.span(), label


_GLUE = ":!$|."
_GLUED_BEFORE = late(r"(?:[A-Za-z0-9+/=_-]{6,80}[:!$|.]{1,3}){1,8}\Z")
_GLUED_AFTER = late(r"[:!$|.]{1,3}[A-Za-z0-9+/=_-]{6,400}")


def _with_glued(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span of a secret with the random pieces attached to it: `id:key`, `salt$hash`."""
    glued = text[start - 1 : start] in _GLUE
    begun = _GLUED_BEFORE.search(text, max(0, start - GLUED_CHARS), start) if glued else None
    if begun and machine_made_chance(text[begun.start() : start].rstrip(_GLUE)) >= LIKELY_MADE:
        start = begun.start()
    while (after := _GLUED_AFTER.match(text, end)) and machine_made_chance(after.group().lstrip(_GLUE)) >= MADE:
        end = after.end()
    return start, end


def _in_public_block(marks: Sequence[re.Match[str]], at: int) -> bool:
    """Return whether a place stands in a certificate or public key. marks: where blocks begin and end, in order."""
    last = marks[count - 1] if (count := bisect_right(marks, at, key=_end)) else None
    return last is not None and _BEGIN_PUBLIC.match(last.string, last.start()) is not None


# --- passwords, and other values that people choose ------------------------------------------------------------------

_PASSWORD_WORD = _pattern("password_word")
_PIN_WORD = _pattern("pin_word")
_SIGNED = _pattern("signed")
_CHOSEN = late(r"[^\s\"'`“”‘’「」<>|，。；：！？、（）()\u3400-\u9fff]{5,128}")
_QUOTED_WORDS = _pattern("quoted_words")
_PIN_HINTS = _PATTERNS["pin_hints"].split()
_STOP = late(r"\n\n|\ufffc")
"""An empty line, or a redaction: a word for a password says nothing about what comes after it."""
_UNIT = _pattern("unit", re.I)
_NAMES_ONLY = late(r"[A-Za-z_][A-Za-z_]*|[A-Z][A-Z0-9_]{2,60}|[a-z]{2,20}(?:[-_/.][a-z0-9]{1,20}){1,8}|\W+")
_CODE = _pattern("code")
_NAME_REST = late(r"[A-Za-z0-9_/]*+(?:\.[A-Za-z]{1,5}(?![A-Za-z]))?(?:::[A-Za-z0-9_]*+){0,4}")


_COMPOSED = _pattern("composed", re.I)
_LOGIN = _pattern("login", re.I)
_LOGIN_CHARS = 50
"""Characters before a password that may have its user name."""
_PLAIN_WORD = _pattern("plain_word")
_NO_WORD = late(any_phrase("no_password", "english"))
_ANSWER = _pattern("answer", re.I)


def is_chosen(value: str) -> bool:
    """Return whether a value looks like a password somebody chose: letters with digits or signs, and no name or unit.

    >>> [is_chosen(value) for value in ("Tiger!2024", "hunter2x9", "v2.3.1", "DB_PASSWORD", "12")]
    [True, True, False, False, False]
    """
    bare = value.strip(".,;:!?*_~]")
    if len(bare) < CHOSEN_CHARS or _UNIT.fullmatch(bare) or _NAMES_ONLY.fullmatch(bare) or _CODE.match(bare):
        return False
    letters = any(sign.isalpha() for sign in bare)
    digits = sum(sign.isdigit() for sign in bare)
    signs = any(sign in "!@#$%^&*+=?~" for sign in bare)
    if not digits and not signs:
        return len(bare) >= MADE_CHARS and bare not in (bare.lower(), bare.upper()) and _is_made(bare)
    if is_long_name(bare):
        return False
    return letters and (
        digits >= 2 or (digits == 1 and len(bare) >= 8 and changes(bare) >= 0.2) or (signs and digits >= 1)
    )


def _passwords(text: str, lowered: str, is_reference: Callable[[str], bool]) -> Iterator[Span]:
    labels = [match.span() for match in _PASSWORD_WORD.finditer(lowered)] if _may("password", lowered) else []
    reached = 0
    for (start, end), (following, _) in pairwise([*labels, (len(lowered), 0)]):
        if lowered.startswith("pass\n", start):  # the statement
            continue
        in_path = text[start - 1 : start] == text[end : end + 1] == "/"
        if text[end - 1].isascii() and (
            text[end : end + 1] == "_" or in_path
        ):  # a file's, a function's, a setting's name
            end = _NAME_REST.match(text, end, end + PASSWORD_WITHIN).end()  # type: ignore[union-attr]
        last = min(end + PASSWORD_WITHIN, following)
        if last - end >= CHOSEN_CHARS:
            yield from _first_chosen(text, end, end + len(_STOP.split(lowered[end:last], maxsplit=1)[0]), is_reference)
        if start - reached >= CHOSEN_CHARS:
            yield from _chosen_before(text, max(reached, start - PASSWORD_WITHIN), start, is_reference)
        reached = end
    for match in _SIGNED.finditer(lowered) if _may("signed", lowered) else ():
        value = text[slice(*match.span("s"))].rstrip(".,;:?*_~")
        if is_chosen(value) and not is_reference(value) and any(sign in "!@#$%^&*" for sign in value):
            yield match.start("s"), match.start("s") + len(value), "password"
    for match in _COMPOSED.finditer(text) if _may("composed", text) else ():
        if _LOGIN.search(text, max(0, match.start() - _LOGIN_CHARS), match.start()):
            yield *match.span("s"), "password"
    for match in _ANSWER.finditer(text) if _may("answer", text) else ():
        yield *match.span("s"), "password"
    if not any(word in lowered for word in _PIN_HINTS):
        return
    for match in _PLAIN_WORD.finditer(text) if _may("plain", text) else ():
        name = "en" if match["en"] else "zh"
        if not _NO_WORD.match(match[name]) and not is_reference(match[name]):
            yield *match.span(name), "password"
    for match in _PIN_WORD.finditer(lowered) if _may("pin", lowered) else ():
        yield *match.span("s"), "password"
    for match in _QUOTED_WORDS.finditer(lowered) if _may("quoted", lowered) else ():
        if match["s"].count(" ") >= 2 and not is_reference(match["s"]):
            yield *match.span("s"), "password"


def _first_chosen(text: str, start: int, end: int, is_reference: Callable[[str], bool]) -> Iterator[Span]:
    for match in _CHOSEN.finditer(text, start, end):
        bare = match.group().rstrip(".,;:?*_~").lstrip("*_~=:>|+-/")
        if is_chosen(bare) and not is_reference(bare) and not _HEX.fullmatch(bare):
            begin = match.start() + match.group().index(bare)
            yield begin, begin + len(bare), "password"
            return


def _chosen_before(text: str, start: int, end: int, is_reference: Callable[[str], bool]) -> Iterator[Span]:
    link = _LINK.search(text, start, end)
    if link is None:
        return
    words = list(_CHOSEN.finditer(text, start, link.start()))
    if words and words[-1].end() >= link.start() - 3:
        value = words[-1].group()
        if is_chosen(value) and not is_reference(value) and not _HEX.fullmatch(value):
            yield *words[-1].span(), "password"


_LINK = _pattern("link")
_PLACED = tuple(
    (text(row["kind"]), text(row["hint"]), late(text(row["pattern"]), re.I if "flags" in row else 0))
    for row in records(table("secret_formats")["placed"])
)

_PLACEHOLDER = late(r"\[redacted:[a-z_]{1,20}\]")
_USER_PASSWORD = late(r"[\w.@+-]{1,60}:[\x21-\x7e]{6,200}")
_BASE = late(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,4000}={0,6}(?![A-Za-z0-9+/=_-])")
"""Candidates for base 64, with either alphabet, and base 32."""
_SPELT = (
    (16, late(r"(?<![0-9A-Za-z])(?:(?:\\x|0x|[%=])?[0-9A-Fa-f]{2}(?:, |[ :,-])?){12,2000}")),
    (10, late(r"(?<![0-9A-Za-z])[1-9][0-9]{1,2}(?:(?:, |[ ,])[1-9][0-9]{1,2}){11,2000}")),
    (8, late(r"(?:\\[01][0-7]{2}){12,2000}")),
    (2, late(r"(?<![0-9A-Za-z])(?:[01]{8}(?:, |[ ,])?){12,2000}")),
)
"""The base of characters written as numbers, and their form: a dump, escapes, a list of bytes."""
_ONE = {
    16: late(r"(?:0x)?([0-9A-Fa-f]{2})"),
    10: late(r"([0-9]{2,3})"),
    8: late(r"([01][0-7]{2})"),
    2: late(r"([01]{8})"),
}


def _encoded(text: str, finds: Callable[[str], str]) -> Iterator[Span]:
    """Yield encoded secrets, or an encoded name with its password: base 64, base 32, numbers of characters."""
    for start, end, plain in islice(_decoded(text), ENCODED_MAX):
        if all(sign.isprintable() or sign in "\r\n\t" for sign in plain):
            match = finds(plain) or ("password" if _USER_PASSWORD.fullmatch(plain) else "")
            if match:
                yield start, end, match


@lru_cache(maxsize=TOKENS_KEPT)
def _plain(token: str) -> str | None:
    """Return the text that a token is in base 64 or base 32, None for none."""
    token = token.rstrip("=")
    ways = [(base64.urlsafe_b64decode, 4), (base64.b32decode, 8)]
    for way, group in ways:
        with suppress(binascii.Error, UnicodeDecodeError):
            return way(token + "=" * (-len(token) % group)).decode("ascii")
    return None


def _decoded(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, text) of what decodes to text."""
    for match in _BASE.finditer(text):
        if (plain := _plain(match.group())) is not None:
            yield *match.span(), plain
    for base, pattern in _SPELT if _may("spelt", text) else ():
        for match in pattern.finditer(text):
            codes = [int(code, base) for code in _ONE[base].findall(match.group())]
            if all(code < 128 for code in codes):
                yield match.start(), match.start() + len(match.group().rstrip(" ,:-")), bytes(codes).decode("ascii")


@cache
def _gates() -> dict[str, Callable[[str], bool]]:
    return {
        "password": gate(_PASSWORD_WORD),
        "signed": gate(_SIGNED),
        "composed": gate(_COMPOSED),
        "answer": gate(_ANSWER),
        "plain": gate(_PLAIN_WORD),
        "pin": gate(_PIN_WORD),
        "quoted": gate(_QUOTED_WORDS),
        **{hint: gate(*(one for _, other, one in _PLACED if other == hint)) for _, hint, _ in _PLACED},
        "spelt": gate(*(pattern for _, pattern in _SPELT)),
    }


def _may(name: str, text: str) -> bool:
    """Return whether these expressions may find something; most texts have nothing for any of them."""
    return _gates()[name](text)


def contextual(
    text: str, lowered: str, *, is_reference: Callable[[str], bool], finds: Callable[[str], str]
) -> Iterator[Span]:
    """Yield the secrets recognised by their randomness or the words near them.

    is_reference: whether a value is code or a placeholder. finds: the kind of the first secret in another text, or "".
    """
    if "[redacted:" in lowered:
        text, lowered = (
            _PLACEHOLDER.sub(lambda match: "\ufffc" * len(match.group()), form) for form in (text, lowered)
        )
    yield from _random_tokens(text, lowered)
    yield from _passwords(text, lowered, is_reference)
    for kind, hint, pattern in _PLACED:
        for match in pattern.finditer(text) if hint in text and _may(hint, text) else ():
            if not is_reference(match["s"]):
                yield *match.span("s"), kind
    yield from _encoded(text, finds)

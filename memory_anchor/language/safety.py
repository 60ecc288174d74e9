"""Secrets and private parts of a text, removed before it is stored. Pure, and quick enough for every write.

- `cleaned` runs over every text that is stored, whatever its field: private parts out (`strip_private`), then secrets
  (`redact`). `cleaned_value` is the same for JSON, where a key names its value.
- `redact` finds secrets by shape (published key prefixes, PEM, JWT, check digits), by the word next to them
  (`password=`, `密码是`) and by how random a token is (`secret_context`), where no word near it says that it is a
  commit, a digest or an id. It reads a text again without its disguises (`readings`). Boundaries are ASCII classes,
  never a word boundary: a Chinese character counts as a word character, so `密钥sk-...` would pass.
- `readings` returns the text as a program or a reader would take it, where a secret is encoded or in pieces: unseen
  characters dropped, entities, percent and backslash escapes undone; and with pieces of one string joined again
  (`"ab" + "cd"`, a broken line, bold marks). Each reading maps back to the original, so that what is found is cut out
  of the text as written. `fences.skeleton` goes further (look-alike letters); a secret is copied by machines, which
  need the exact characters.

The shapes are in `secret_rules`. detect-secrets itself is not used: it scans files line by line, anchors at word
boundaries and knows neither phone nor identity numbers.
Invariants: every quantifier is bounded or possessive (no input makes a pattern slow); redacting twice changes nothing.
"""

from __future__ import annotations

import html
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from memory_anchor.base.json_values import Json
from memory_anchor.language.gates import gate
from memory_anchor.language.safe_regex import late
from memory_anchor.language.secret_context import Span, contextual
from memory_anchor.language.secret_rules import is_reference, rules_that_may

UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff"
)
"""Default-ignorable characters, for a character class: they are not shown, so any may be anywhere."""
_ESCAPED = late(
    rf"[{UNSEEN}]+|&(?:#\d{{1,7}}|#[xX][0-9a-fA-F]{{1,6}}|[a-zA-Z]{{2,8}});"
    r"|%[2-7][0-9a-fA-F]|\\u00[2-7][0-9a-fA-F]|\\x[2-7][0-9a-fA-F]|\\[\"'/]"
)
_IN_PIECES = late(
    r"[\"'`]\s{0,8}+[+.]?\s{0,200}+[\"'`](?=[A-Za-z0-9+/=_-])|\\\r?\n\s{0,40}+"
    r"|(?<=[A-Za-z0-9+/_-])\r?\n[> \t]{0,40}+(?=[A-Za-z0-9+/=_-]{12})|(?<=\w)\*{2,3}|\*{2,3}(?=\w)|(?<=\w)<wbr/?>"
)
_LINE_JOIN = late(r"[A-Za-z0-9+/_-]{12}\Z")


@dataclass(frozen=True, slots=True)
class PlainReading:
    """A text without disguises. places: where each replaced piece begins in it; starts: of each, (start, end) in the
    original and its length here."""

    text: str
    places: tuple[int, ...]
    starts: tuple[tuple[int, int, int], ...]

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return where a stretch of the reading is in the original; a replaced piece counts whole."""
        return self._original(start)[0], self._original(end - 1)[1]

    def _original(self, place: int) -> tuple[int, int]:
        index = bisect_right(self.places, place) - 1
        if index < 0:
            return place, place + 1
        first, last, length = self.starts[index]
        inside = place - self.places[index]
        return (first, last) if inside < length else (last + inside - length, last + inside - length + 1)


@cache
def _may_be_escaped() -> Callable[[str], bool]:
    return gate(_ESCAPED)


def readings(text: str) -> Iterator[PlainReading]:
    """Yield the readings that differ from the text; none for most texts."""
    if _may_be_escaped()(text):
        decoded = _replaced(text, _ESCAPED, _decoded)
        if decoded.text != text:
            yield decoded
    if _IN_PIECES.search(text):
        joined = _replaced(text, _IN_PIECES, _joined)
        if joined.text != text:
            yield joined


def _decoded(match: re.Match[str]) -> str:
    escape = match.group()
    if escape[0] == "&":
        character = html.unescape(escape)
        return character if len(character) == 1 and character.isprintable() else escape
    if escape[0] == "%":
        return chr(int(escape[1:], 16))
    if escape[0] == "\\":
        return chr(int(escape[2:], 16)) if escape[1] in "ux" else escape[1]
    return ""


def _joined(match: re.Match[str]) -> str:
    if match.group()[0] in "\r\n" and not _LINE_JOIN.search(match.string, max(0, match.start() - 12), match.start()):
        return match.group()
    return ""


def _replaced(text: str, pattern: re.Pattern[str], made: Callable[[re.Match[str]], str]) -> PlainReading:
    parts: list[str] = []
    places: list[int] = []
    starts: list[tuple[int, int, int]] = []
    reached = length = 0
    for match in pattern.finditer(text):
        new = made(match)
        if new == match.group():
            continue
        parts += (text[reached : match.start()], new)
        length += match.start() - reached
        places.append(length)
        starts.append((match.start(), match.end(), len(new)))
        length += len(new)
        reached = match.end()
    parts.append(text[reached:])
    return PlainReading("".join(parts), tuple(places), tuple(starts))


KINDS = ("api_key", "token", "private_key", "password", "jwt", "card", "phone", "email", "id_number")
"""Every kind `redact` reports, in the order of `Redacted.kinds`."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """Text without its secrets, and the kinds that were found (distinct, in the order of `KINDS`)."""

    text: str
    kinds: tuple[str, ...] = ()


_PLAIN = {0xFF01 + offset: 0x21 + offset for offset in range(94) if chr(0x21 + offset) not in "!\"'(),;?[]{}"} | {
    0x3000: 0x20
}
"""Full-width forms to ASCII, one to one, so that positions stay the same; punctuation that ends a clause stays."""
_FULL_WIDTH = late(r"[\uff01-\uff5e\u3000]")
_LONG_NUMBER = late(r"\d(?:[ .()-]{0,2}\d){6}")
"""Fewer digits make no card, telephone or identity number; most texts have no such run."""
_PEM = late(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = late(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = late(r"(?:\s{0,4}(?:\\n)?\s{0,4}[A-Za-z0-9+/=]{16,4096}(?:\\n)?){0,200}")


def redact(text: str, *, keep: frozenset[str] = frozenset()) -> Redacted:
    """Return the text with each secret replaced by `[redacted:KIND]`, and the kinds found.

    keep: kinds that stay as they are (a policy may allow e-mail addresses). Full-width digits and letters are read as
    ASCII. Idempotent.

    >>> redact("密钥sk-abc123def456ghi789jkl好的")
    Redacted(text='密钥[redacted:api_key]好的', kinds=('api_key',))
    """
    shadow = text if text.isascii() or not _FULL_WIDTH.search(text) else text.translate(_PLAIN)
    spans = list(_spans(shadow))
    for reading in readings(shadow):
        spans += [(*reading.origin(start, end), kind) for start, end, kind in _spans(reading.text)]
    if spans and keep:
        spans = [span for span in spans if span[2] not in keep]
    return _without(text, spans) if spans else Redacted(text)


def _spans(text: str, *, whole: bool = True) -> Iterator[Span]:
    """Yield the secrets of one reading of a text. whole: also by the words next to them, and in encoded text."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few capitals, such as the Turkish dotted I, grow in lower case
        lowered = "".join(character.lower()[:1] for character in text)
    if "private key" in lowered:
        yield from _key_blocks(text)
    numbers = _LONG_NUMBER.search(text) is not None
    for rule in rules_that_may(text, lowered):
        if numbers or not rule.numeric:
            yield from rule.spans(text, lowered)
    if whole:
        yield from contextual(text, lowered, is_reference=is_reference, finds=_first_kind)


def _first_kind(text: str) -> str:
    """Return the kind of the first secret of a published shape, "" when there is none."""
    return next((kind for _, _, kind in _spans(text, whole=False)), "")


_PLACEHOLDER = late(r"\[redacted:[a-z_]{1,20}\]")


def only_secrets(text: str) -> bool:
    """Return whether redacted text consists of placeholders alone.

    >>> only_secrets("[redacted:api_key]."), only_secrets("The key is [redacted:api_key]")
    (True, False)
    """
    rest, redacted = _PLACEHOLDER.subn(" ", text)
    return redacted > 0 and not any(character.isalnum() for character in rest)


def _key_blocks(text: str) -> list[Span]:
    """Return the spans of PEM private keys; one without an end ends with its base64."""
    spans: list[Span] = []
    for match in _PEM.finditer(text):
        if spans and match.start() < spans[-1][1]:
            continue
        closing = _PEM_END.search(text, match.end())
        body = _PEM_BODY.match(text, match.end())
        end = closing.end() if closing else (body.end() if body else match.end())
        if end > match.end():  # code that looks for keys has the heading alone
            spans.append((match.start(), end, "private_key"))
    return spans


def _without(text: str, spans: list[Span]) -> Redacted:
    """Return the text without the spans; of overlapping ones the first, then the longest, names the kind."""
    parts: list[str] = []
    kinds: set[str] = set()
    reached = 0
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start < reached:
            if end > reached:  # the tail of an overlapping secret goes too
                reached = end
            continue
        parts += (text[reached:start], f"[redacted:{kind}]")
        kinds.add(kind)
        reached = end
    parts.append(text[reached:])
    return Redacted("".join(parts), tuple(kind for kind in KINDS if kind in kinds))


_PRIVATE = late(r"[<＜]\s{0,3}([/／]?)\s{0,3}private(?:\s[^<>]{0,200})?\s{0,3}[>＞]", re.I)


def strip_private(text: str) -> str:
    """Return the text without `<private>...</private>`, also nested, in capitals, or never closed (to the end).

    >>> strip_private("keep <private>not this</private>this")
    'keep this'
    """
    if "rivate" not in text and "RIVATE" not in text and "private" not in text.lower():
        return text
    parts: list[str] = []
    depth = reached = 0
    for tag in _PRIVATE.finditer(text):
        if depth == 0:
            parts.append(text[reached : tag.start()])
        depth = max(0, depth - 1) if tag.group(1) else depth + 1
        reached = tag.end()
    if depth == 0:
        parts.append(text[reached:])
    return "".join(parts)


def cleaned(text: str) -> Redacted:
    """Return the text as it may be stored, without private parts and secrets, and the kinds found.

    >>> cleaned("the db <private>in the cellar</private>: password=hunter2secret")
    Redacted(text='the db : password=[redacted:password]', kinds=('password',))
    """
    return redact(strip_private(text).strip())


def cleaned_value(value: Json, key: str = "") -> Json:
    """Return a JSON value as it may be stored: every key and text cleaned, at any depth, the value's shape kept.

    key: the clean name of the value; what is a secret after `key: ` is one here too, also a number.

    >>> cleaned_value({"password": "hunter2secret", "port": 5432})
    {'password': '[redacted:password]', 'port': 5432}
    """
    match value:
        case dict():
            result: dict[str, Json] = {}
            for name, inner in value.items():
                clean = cleaned(name).text
                result[_free(clean, result)] = cleaned_value(inner, clean)
            return result
        case list():
            return [cleaned_value(inner, key) for inner in value]
        case str():
            return _cleaned_under(key, value)
        case int() | float() if not isinstance(value, bool):
            written = json.dumps(value)
            clean = _cleaned_under(key, written)
            return value if clean == written else clean
    return value


def _cleaned_under(key: str, text: str) -> str:
    label, own = f"{key}: " if key else "", cleaned(text)
    labelled = redact(f"{label}{own.text}")
    if labelled.text.startswith(label):
        return labelled.text[len(label) :]
    return f"[redacted:{labelled.kinds[0]}]" if labelled.kinds else own.text


def _free(name: str, taken: dict[str, Json]) -> str:
    """Return the name, numbered where two names became one."""
    names = (name if n == 1 else f"{name} {n}" for n in range(1, len(taken) + 2))
    return next(free for free in names if free not in taken)

"""What must happen to text at the gate: secrets out, private parts out.

All pure and quick enough for every write:

- `cleaned` is what every text passes that is stored, whatever field it stands in: private parts out (`strip_private`),
  then secrets (`redact`). `cleaned_value` is the same for JSON, where a key names what its value is.
- `redact` finds secrets by shape (published key prefixes, PEM, JWT, check digits), by the word beside them
  (`password=`, `密码是`) and by how random a token is (`language/secret_context.py`), where no word near by says that
  it is a commit, a digest or an id. It reads a text once more without its disguises (`readings`).
  Boundaries are spelled as ASCII classes, never as a word boundary: a Chinese character counts as a word character,
  so `密钥sk-...` would pass.

The shapes live in `language/secret_rules.py`. detect-secrets itself is not used: it scans files line by line,
anchors at word boundaries and knows neither phone nor identity numbers.
Invariants: every quantifier is bounded or possessive (no input makes a pattern slow); redacting twice changes nothing.

`readings` returns a text as a program or a reader takes it, where a secret is written in other signs or in pieces, up
to two: with unseen characters dropped, and entities, percent and backslash escapes
undone; and with pieces of one string put together again (`"ab" + "cd"`, a broken line, marks of
bold). Each keeps where its characters come from, so that what is found in it is cut out of the text as it was written.
`fences.skeleton` goes further (look-alike letters); a secret is copied by machines, which need the very signs.
"""

from __future__ import annotations

import html
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from memory_anchor.json_values import Json
from memory_anchor.language.secret_context import Span, contextual
from memory_anchor.language.secret_rules import RULES, is_reference

UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff"
)
"""Default-ignorable characters, as a class of an expression: nothing of them is shown, so any may stand anywhere."""
_WRITTEN = re.compile(
    rf"[{UNSEEN}]+|&(?:#\d{{1,7}}|#[xX][0-9a-fA-F]{{1,6}}|[a-zA-Z]{{2,8}});"
    r"|%[2-7][0-9a-fA-F]|\\u00[2-7][0-9a-fA-F]|\\x[2-7][0-9a-fA-F]|\\[\"'/]"
)
_IN_PIECES = re.compile(
    r"[\"'`]\s{0,8}+[+.]?\s{0,200}+[\"'`](?=[A-Za-z0-9+/=_-])|\\\r?\n\s{0,40}+"
    r"|(?<=[A-Za-z0-9+/_-])\r?\n[> \t]{0,40}+(?=[A-Za-z0-9+/=_-]{12})|(?<=\w)\*{2,3}|\*{2,3}(?=\w)|(?<=\w)<wbr/?>"
)
_LINE_JOIN = re.compile(r"[A-Za-z0-9+/_-]{12}\Z")


@dataclass(frozen=True, slots=True)
class PlainReading:
    """A text as it is read. places: where each replaced piece begins in the reading; shifts: from there on, how far the
    original is ahead; pieces: (start, end) of the original for what was replaced."""

    text: str
    places: tuple[int, ...]
    starts: tuple[tuple[int, int, int], ...]

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return where a stretch of the reading stands in the original; a replaced sign counts whole."""
        return self._at(start)[0], self._at(end - 1)[1]

    def _at(self, place: int) -> tuple[int, int]:
        index = bisect_right(self.places, place) - 1
        if index < 0:
            return place, place + 1
        first, last, length = self.starts[index]
        inside = place - self.places[index]
        return (first, last) if inside < length else (last + inside - length, last + inside - length + 1)


def readings(text: str) -> Iterator[PlainReading]:
    """Yield the readings in which the text is another; none for most texts."""
    written = None
    if "&" in text or "%" in text or "\\" in text or not text.isascii():
        written = _replaced(text, _WRITTEN, _sign)
        if written.text != text:
            yield written
    if _IN_PIECES.search(text):
        joined = _replaced(text, _IN_PIECES, _joint)
        if joined.text != text:
            yield joined


def _sign(found: re.Match[str]) -> str:
    written = found.group()
    if written[0] == "&":
        made = html.unescape(written)
        return made if len(made) == 1 and made.isprintable() else written
    if written[0] == "%":
        return chr(int(written[1:], 16))
    if written[0] == "\\":
        return chr(int(written[2:], 16)) if written[1] in "ux" else written[1]
    return ""


def _joint(found: re.Match[str]) -> str:
    if found.group()[0] in "\r\n" and not _LINE_JOIN.search(found.string, max(0, found.start() - 12), found.start()):
        return found.group()
    return ""


def _replaced(text: str, pattern: re.Pattern[str], made: Callable[[re.Match[str]], str]) -> PlainReading:
    parts: list[str] = []
    places: list[int] = []
    starts: list[tuple[int, int, int]] = []
    reached = length = 0
    for found in pattern.finditer(text):
        new = made(found)
        if new == found.group():
            continue
        parts += (text[reached : found.start()], new)
        length += found.start() - reached
        places.append(length)
        starts.append((found.start(), found.end(), len(new)))
        length += len(new)
        reached = found.end()
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
"""Full-width forms to ASCII, one character for one, so that positions stay the same; marks that end a clause stay."""
_FULL_WIDTH = re.compile(r"[\uff01-\uff5e\u3000]")
_LONG_NUMBER = re.compile(r"\d(?:[ .()-]{0,2}\d){6}")
"""Fewer digits make no card, telephone or identity number; most text ends here."""
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = re.compile(r"(?:\s{0,4}(?:\\n)?\s{0,4}[A-Za-z0-9+/=]{16,4096}(?:\\n)?){0,200}")


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
    """Yield the secrets of one reading of a text. whole: also by what stands beside them, and in what they encode."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few capitals, such as the Turkish dotted I, grow in lower case
        lowered = "".join(character.lower()[:1] for character in text)
    if "private key" in lowered:
        yield from _key_blocks(text)
    numbers = _LONG_NUMBER.search(text) is not None
    for rule in RULES:
        if numbers or not rule.numeric:
            yield from rule.spans(text, lowered)
    if whole:
        yield from contextual(text, lowered, is_reference=is_reference, finds=_first_kind)


def _first_kind(text: str) -> str:
    """Return the kind of the first secret of a published shape, "" when there is none."""
    return next((kind for _, _, kind in _spans(text, whole=False)), "")


_PLACEHOLDER = re.compile(r"\[redacted:[a-z_]{1,20}\]")


def only_secrets(text: str) -> bool:
    """Return whether redacted text says nothing besides what was redacted.

    >>> only_secrets("[redacted:api_key]."), only_secrets("The key is [redacted:api_key]")
    (True, False)
    """
    rest, redacted = _PLACEHOLDER.subn(" ", text)
    return redacted > 0 and not any(character.isalnum() for character in rest)


def _key_blocks(text: str) -> list[Span]:
    """Return the spans of PEM private keys; one without an end reaches as far as its base64 does."""
    spans: list[Span] = []
    for match in _PEM.finditer(text):
        if spans and match.start() < spans[-1][1]:
            continue
        closing = _PEM_END.search(text, match.end())
        body = _PEM_BODY.match(text, match.end())
        end = closing.end() if closing else (body.end() if body else match.end())
        if end > match.end():  # a heading alone stands in code that looks for keys
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


_PRIVATE = re.compile(r"[<＜]\s{0,3}([/／]?)\s{0,3}private(?:\s[^<>]{0,200})?\s{0,3}[>＞]", re.I)


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

    key: the clean name the value stands under; what is a secret after `key: ` is one here too, a number also.

    >>> cleaned_value({"password": "hunter2secret", "port": 5432})
    {'password': '[redacted:password]', 'port': 5432}
    """
    match value:
        case dict():
            made: dict[str, Json] = {}
            for name, inner in value.items():
                clean = cleaned(name).text
                made[_free(clean, made)] = cleaned_value(inner, clean)
            return made
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
    told, own = f"{key}: " if key else "", cleaned(text)
    read = redact(f"{told}{own.text}")
    if read.text.startswith(told):
        return read.text[len(told) :]
    return f"[redacted:{read.kinds[0]}]" if read.kinds else own.text


def _free(name: str, taken: dict[str, Json]) -> str:
    """Return the name, numbered where two names became one."""
    return next(one for n in range(1, len(taken) + 2) if (one := name if n == 1 else f"{name} {n}") not in taken)

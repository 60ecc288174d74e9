"""The shapes of secrets: one table of rules, read by `safety.redact`.

A rule is a pattern with a cheap test before it (a literal hint, a start word, a run of digits), because each runs over
every text that is written, and a check after it (check digits, code instead of a value), because a false alarm destroys
a memory. Sources: the key formats that detect-secrets, GitHub and the vendors publish (rows of `secrets.toml`); ISO/IEC
7812-1 for cards, GB 11643-1999 for identity numbers. Invariants: boundaries are ASCII classes, never `\\b` (a Chinese
character is a word character); every quantifier is bounded; `[redacted:...]` matches no rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from memory_anchor.base.json_values import optional_text, record, records, text
from memory_anchor.language.gates import gate
from memory_anchor.language.randomness import machine_made_chance
from memory_anchor.language.safe_regex import late
from memory_anchor.language.secret_context import (
    LABELLED_CHARS,
    LIKELY_MADE,
    MADE,
    Span,
    in_order,
    is_long_name,
    is_wordy,
)
from memory_anchor.language.words import filled, listed, table


@dataclass(frozen=True, slots=True)
class Rule:
    """One shape of one kind. The secret is group `s` where the pattern has one, else the whole match.

    hints: literals of the lower-cased text, at least one of which must occur; none: always tried.
    starts: the pattern is matched only where this is found in the lower-cased text; `None`: searched everywhere.
    numeric: needs a run of at least seven digits. accept: the final check.
    """

    kind: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...] = ()
    accept: Callable[[re.Match[str]], bool] | None = None
    starts: re.Pattern[str] | None = None
    numeric: bool = False

    def spans(self, text: str, lowered: str) -> Iterator[Span]:
        """Yield the secrets of this shape; `lowered` is the text in lower case, place for place."""
        if self.hints and not any(hint in lowered for hint in self.hints):
            return
        if self.starts is None:
            matches: Iterator[re.Match[str] | None] = self.pattern.finditer(text)
        else:
            matches = (self.pattern.match(text, start.start()) for start in self.starts.finditer(lowered))
        group = "s" if "s" in self.pattern.groupindex else 0
        for match in matches:
            if match is not None and (self.accept is None or self.accept(match)):
                yield (*match.span(group), self.kind)


_L = r"(?<![A-Za-z0-9])"  # a name and an underscore may stand before a key
_R = r"(?![A-Za-z0-9_])"


def _digits(text: str) -> str:
    return "".join(character for character in text if character.isdigit())


def _luhn(digits: str) -> bool:
    """Return whether the check digit holds (ISO/IEC 7812-1)."""
    total = 0
    for place, character in enumerate(reversed(digits)):
        value = int(character)
        if place % 2:
            value = value * 2 - 9 if value > 4 else value * 2
        total += value
    return total % 10 == 0


_BRANDS = late(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-5]|[68]\d)\d{11}|35\d{14}|6(?:011|5\d\d|4[4-9]\d)\d{12}|62\d{14,17}"
)


def _is_card(match: re.Match[str]) -> bool:
    """Return whether the digits have a card brand's prefix and length and pass Luhn; most long ids fail one."""
    digits = _digits(match.group())
    return bool(_BRANDS.fullmatch(digits)) and _luhn(digits)


_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)


def _is_resident_id(match: re.Match[str]) -> bool:
    """Return whether the check character of an 18-place Chinese identity number holds (GB 11643-1999)."""
    number = match.group("s").upper()
    total = sum(int(digit) * weight for digit, weight in zip(number[:17], _ID_WEIGHTS, strict=True))
    return bool("10X98765432"[total % 11] == number[17])


_BENIGN_VALUES = frozenset(listed("left_out", "secrets"))
_CODE_VALUE = late(
    r"[$<{(*%\[]|x{3,200}$|\.{3}|[A-Za-z_]\w{0,60}(?:\.[A-Za-z_]\w{0,60}){1,6}[\[(]?|[A-Za-z_]\w{0,60}[\[(]"
    r"|[A-Za-z]{1,30}(?:_[A-Za-z]{1,30}){1,8}$|process\.env|os\.environ|\[?redacted"
    r"|[A-Z][A-Z0-9_]{2,40}$|/[A-Za-z]|https?://|~/|--|0x[0-9a-f]{0,8}$",
    re.ASCII,
)


def is_reference(value: str) -> bool:
    """Return whether the value is code, a placeholder or a word instead of a secret."""
    bare = value.strip("\"'`.,;:!?)]}")
    if not bare or bare.lower() in _BENIGN_VALUES:
        return True
    match = _CODE_VALUE.match(bare)
    if match is None:
        return False
    # A dotted or bracketed name is code only as a whole word; `aB3.x9` with digits in it may be a password.
    return not (match.end() < len(bare) and match.group()[0].isalnum() and match.group()[-1] not in "[(")


def _mixed(value: str) -> bool:
    """Return whether the value mixes letters with digits or signs, as chosen passwords do and words do not."""
    letters = any(character.isalpha() for character in value)
    digits = any(character.isdigit() for character in value)
    signs = any(character in "!@#$%^&*+=?~" for character in value)
    return (letters and digits) or (signs and (letters or digits))


def _is_password(match: re.Match[str]) -> bool:
    value: str = match.group("s").rstrip(".,;:!?'\"")
    if is_reference(value.lstrip("-")) or len(value) < 4 or is_long_name(value):  # ${NAME:-value}
        return False
    glued = match.group("glue") if "glue" in match.re.groupindex else None
    if glued is not None and glued.strip() in {"=", ":"} and len(value) >= 6 and not glued.endswith(" "):
        # `PASSWORD=letmein`: written as an assignment, so a plain word counts too.
        return not re.fullmatch(r"\d{1,3}|[A-Z][a-z]+\d?", value)
    is_made = value.isalpha() and len(value) >= LABELLED_CHARS and machine_made_chance(value) >= MADE
    return _mixed(value) or (value.isdigit() and len(value) >= 6) or (is_made and value.islower())


_DIGEST = late(r"sha(?:1|224|256|384|512)[-:]|v?\d{1,4}(?:\.\d{1,6}){1,4}")


def _is_keyed(match: re.Match[str]) -> bool:
    """Return whether the value after `api_key=`, `token:`, `密钥是` looks like a key: long, letters and digits."""
    value: str = match.group("s").rstrip(".,;:!?'\"")
    if len(value) < 8 or is_reference(value) or _DIGEST.match(value) or is_wordy(value):
        return False
    digits = sum(character.isdigit() for character in value)
    letters = sum(character.isalpha() for character in value)
    if len(value) < 12:
        return digits >= 2 and letters >= 2
    return letters >= 2 and machine_made_chance(value) >= LIKELY_MADE and not in_order(value)


def _is_sk(match: re.Match[str]) -> bool:
    """Return whether `sk-...` is a key and not a hyphenated name such as sk-learn-contrib-imbalanced."""
    body = match.group()[3:]
    return any(c.isdigit() for c in body) or max(map(len, re.split(r"[-_]", body))) >= 16


def _is_phone(match: re.Match[str]) -> bool:
    """Return whether the digits are a telephone number and not a date, a size or a plain count."""
    found = match.group("s")
    if _ID_BEFORE.search(match.string, max(0, match.start("s") - 8), match.start("s")):
        return False
    count = len(_digits(found))
    if not 7 <= count <= 15 or re.match(r"(?:19|20)\d\d[-./ ][01]?\d[-./ ][0-3]?\d", found):
        return False
    return not re.match(
        r"\s?(?:bytes?|[KMGT]i?B|字节|行|毫秒|微秒|纳秒|[mnu]s(?![a-z])|rows|元)", match.string[match.end() :]
    )


def _is_social_security(match: re.Match[str]) -> bool:
    """Return whether the area number is one that was ever given out (never 000, 666 or 9xx)."""
    area = match.group()[:3]
    return area not in {"000", "666"} and not area.startswith("9")


_IN_URL = late(r"://[^\s/@]{0,70}:$")
_NOT_MAIL = late(r"(?<![A-Za-z0-9_-])(?:ssh|scp|sftp|rsync|mosh|ssh-copy-id)(?:\s{1,3}-?[\w/.-]{1,40}){0,5}\s{1,3}$")


_MESSAGE_ID = late(r"(?:message-id|in-reply-to|references):?\s{0,2}<$", re.I)
_ID_BEFORE = late(r"(?<![a-z])ids?\W{0,3}$", re.I)


def _is_email(match: re.Match[str]) -> bool:
    """Return whether this is a person's address and not a Git remote, a login on a host or a package version."""
    local, _, host = match.group().partition("@")
    if local.lower() == "git" or re.match(r"(?:sk-)?(?:ssh|ecdsa)-", local) or re.match(r"v?\d{1,4}\.\d", host):
        return False
    after = match.string[match.end() : match.end() + 2]
    if after[:1] == ":" and after[1:2] in "/~.":
        return False
    before = match.string[max(0, match.start() - 80) : match.start()]
    return not (_NOT_MAIL.search(before) or _IN_URL.search(before) or _MESSAGE_ID.search(before))


def _has_digit(match: re.Match[str]) -> bool:
    return any(character.isdigit() for character in match.group()[4:])


def _is_bearer(match: re.Match[str]) -> bool:
    return _has_digit(match) and not is_reference(match.group("s"))


def _is_international(match: re.Match[str]) -> bool:
    return len(_digits(match.group("s"))) >= 9 and _is_phone(match)


_FLAGS = {"": 0, "i": re.IGNORECASE, "ia": re.IGNORECASE | re.ASCII}
_CHECKS: dict[str, Callable[[re.Match[str]], bool]] = {
    "digit": _has_digit,
    "sk": _is_sk,
    "bearer": _is_bearer,
    "password": _is_password,
    "keyed": _is_keyed,
    "no_reference": lambda match: not is_reference(match.group("s")),
    "resident_id": _is_resident_id,
    "social_security": _is_social_security,
    "card": _is_card,
    "phone": _is_phone,
    "international": _is_international,
    "email": _is_email,
}


def _rules() -> Iterator[Rule]:
    """Yield the rules of `secrets.toml`, in its order."""
    formats = table("secret_formats")
    parts = {name: text(part) for name, part in record(formats["parts"]).items()}
    for row in records(formats["rules"]):
        end = "" if row.get("open") else _R
        pattern = optional_text(row.get("pattern")) or f"{_L}(?:{row['prefix']}){row['body']}{end}"
        yield Rule(
            kind=text(row["kind"]),
            pattern=late(filled(pattern, parts), _FLAGS[text(row.get("flags"), "")]),
            hints=tuple(text(row.get("hints"), "").split()),
            accept=_CHECKS[text(row["check"])] if "check" in row else None,
            starts=late(text(row["starts"])) if "starts" in row else None,
            numeric=bool(row.get("numeric")),
        )


RULES: tuple[Rule, ...] = tuple(_rules())
_BY_PATTERN = tuple(rule for rule in RULES if rule.starts is None)
_BY_START = tuple(rule for rule in RULES if rule.starts is not None)


GATED_TOGETHER = 24
"""Expressions of one gate: all 46 in one take eight times as long as in two (35 and 4 us of a thousand characters)."""


@cache
def _gates() -> tuple[tuple[Callable[[str], bool], ...], ...]:
    """Return the gates of all rules by their pattern, that of each of them, and those of the starts of the others."""
    patterns = [rule.pattern for rule in _BY_PATTERN]
    together = range(0, len(patterns), GATED_TOGETHER)
    return (
        tuple(gate(*patterns[start : start + GATED_TOGETHER]) for start in together),
        tuple(gate(pattern) for pattern in patterns),
        tuple(gate(rule.starts) for rule in _BY_START if rule.starts is not None),
    )


def rules_that_may(text: str, lowered: str) -> Iterator[Rule]:
    """Yield the rules that may find something in a text; most texts have none."""
    together, each, starts = _gates()
    if any(may(text) for may in together):
        yield from (rule for rule, is_open in zip(_BY_PATTERN, each, strict=True) if is_open(text))
    yield from (rule for rule, is_open in zip(_BY_START, starts, strict=True) if is_open(lowered))

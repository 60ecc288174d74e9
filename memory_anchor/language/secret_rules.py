"""The shapes of secrets: one table of rules, read by `safety.redact`.

A rule is a pattern with a cheap test before it (a literal hint, a start word, a run of digits), because each runs over
every text that is written, and a check after it (check digits, code instead of a value), because a false alarm destroys
a memory. Sources: the key formats that detect-secrets, GitHub and the vendors publish (rows of `words.toml`); ISO/IEC
7812-1 for cards, GB 11643-1999 for identity numbers. Invariants: boundaries are ASCII classes, never `\\b` (a Chinese
character is a word character); every quantifier is bounded; `[redacted:...]` matches no rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from memory_anchor.json_values import optional_text, records, text
from memory_anchor.language.randomness import machine_made_chance
from memory_anchor.language.secret_context import LIKELY_MADE, Span, in_order, is_wordy
from memory_anchor.language.words import listed, table


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


_L = r"(?<![A-Za-z0-9_])"
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


_BRANDS = re.compile(
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
_CODE_VALUE = re.compile(
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
    if is_reference(value) or len(value) < 4:
        return False
    glued = match.group("glue") if "glue" in match.re.groupindex else None
    if glued is not None and glued.strip() in {"=", ":"} and len(value) >= 6 and not glued.endswith(" "):
        # `PASSWORD=letmein`: written as an assignment, so a plain word counts too.
        return not re.fullmatch(r"\d{1,3}|[A-Z][a-z]+\d?", value)
    return _mixed(value) or (value.isdigit() and len(value) >= 6)


_DIGEST = re.compile(r"sha(?:1|224|256|384|512)[-:]|v?\d{1,4}(?:\.\d{1,6}){1,4}")


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


_IN_URL = re.compile(r"://[^\s/@]{0,70}:$")
_NOT_MAIL = re.compile(
    r"(?<![A-Za-z0-9_-])(?:ssh|scp|sftp|rsync|mosh|ssh-copy-id)(?:\s{1,3}-?[\w/.-]{1,40}){0,5}\s{1,3}$"
)


def _is_email(match: re.Match[str]) -> bool:
    """Return whether this is a person's address and not a Git remote, a login on a host or a package version."""
    local, _, host = match.group().partition("@")
    if local.lower() == "git" or re.match(r"v?\d{1,4}\.\d", host):
        return False
    after = match.string[match.end() : match.end() + 2]
    if after[:1] == ":" and after[1:2] in "/~.":
        return False
    before = match.string[max(0, match.start() - 80) : match.start()]
    return not (_NOT_MAIL.search(before) or _IN_URL.search(before))


def _has_digit(match: re.Match[str]) -> bool:
    return any(character.isdigit() for character in match.group()[4:])


def _is_bearer(match: re.Match[str]) -> bool:
    return _has_digit(match) and not is_reference(match.group("s"))


def _is_international(match: re.Match[str]) -> bool:
    return len(_digits(match.group("s"))) >= 9 and _is_phone(match)


def _published() -> Iterator[Rule]:
    """Yield the rules of the key formats in `words.toml`."""
    checks = {"digit": _has_digit, "sk": _is_sk}
    for row in records(table("secret_formats")["published"]):
        end = "" if row.get("open") else _R
        pattern = optional_text(row.get("pattern")) or f"{_L}(?:{row['prefix']}){row['body']}{end}"
        hints, check = text(row.get("hints"), "").split(), checks.get(text(row.get("check"), ""))
        yield Rule(text(row["kind"]), re.compile(pattern), tuple(hints), check, numeric=bool(row.get("numeric")))


_HASHES = Rule(
    "password",
    re.compile(r"\$(?:[1567y]|2[abxy]|argon2(?:i|d|id))\$[^\s\"':,;]{8,400}"),
    ("$1$", "$2", "$5$", "$6$", "$7$", "$y$", "$argon2"),
)
"""A password hash of crypt(3): it can be attacked offline."""

_SEPARATOR = (
    r"(?:\s{0,3}[\"'`]?\s{0,3}(?:=>|->|:=|==|=|:|,)\s{0,3}|\s{1,3}(?:is|was)\s{1,3}:?"
    r"|\s{0,2}(?:是|为|改成|改为|换成)\s{0,2}:?\s{0,2})"
)
_OPEN, _CLOSED = r"[\"'`“‘「]?(?P<s>(?![:=\"'`\[])", r"(?<![.,;:?'\"`)\]}>]))"
_VALUE = rf"{_OPEN}[\x21-\x7e]{{3,2000}}{_CLOSED}"
_NEXT = r"\s{0,2}(?=[\"'`“]?[A-Za-z0-9+/][A-Za-z0-9+/_-]{15})"
_PW_STARTS = re.compile(r"pass|pwd|(?<![a-z])pw|密码|口令|暗号")
_PW_WORD = r"(?:password|passwd|passphrase|passcode|pwd|pass(?=[=:])|pw(?=\s?[=:])|密码|口令|暗号)"
_KEY_STARTS = re.compile(
    r"api|secret|access|account|private|signing|encryption|master|app|client|密钥|秘钥|私钥|授权码"
)
_KEY_WORD = (
    r"(?:api[_\- ]?key|secret[_\- ]?(?:access[_\- ]?)?key|access[_\- ]?key(?:[_\- ]?(?:id|secret))?|account[_\-]?key"
    r"|(?:private|signing|encryption|master|app)[_\- ]?key|(?:app|client)[_\- ]?secret"
    r"|(?<![a-z])secret|密钥|秘钥|私钥|授权码)"
)
_TOKENISH_STARTS = re.compile(r"token|令牌|cookie")
_TOKENISH = r"(?:(?<![A-Za-z])token|令牌|cookie(?::\s?[\w-]{1,30})?)"

_WORDED: tuple[Rule, ...] = (
    Rule(
        "token",
        re.compile(r"(?:bearer|authorization:?\s{0,2}token)\s{1,3}(?P<s>[A-Za-z0-9._~+/=-]{16,4000})", re.I),
        ("bearer", "authorization"),
        _is_bearer,
    ),
    Rule(
        "password",
        re.compile(r"://[^\s:/@\"'<>]{0,100}:(?P<s>(?!\[redacted:)[^\s/@\"'<>{}$*]{1,200})@[^\s@]"),
        ("://",),
        lambda match: not is_reference(match.group("s")),
    ),
    Rule(
        "password",
        re.compile(r"authorization\s{0,2}:\s{0,2}basic\s{1,3}(?P<s>[A-Za-z0-9+/=]{8,400})", re.I),
        ("basic",),
    ),
    Rule(
        "password",
        re.compile(rf"{_PW_WORD}\w{{0,2}}(?P<glue>{_SEPARATOR}){_VALUE}", re.I | re.ASCII),
        (),
        _is_password,
        _PW_STARTS,
    ),
    Rule(
        "password",
        re.compile(rf"(?:密码|口令)[\u4e00-\u9fff,\s]{{0,6}}{_OPEN}[\x21-\x7e]{{6,128}}{_CLOSED}"),
        ("密码", "口令"),
        _is_password,
    ),
    Rule(
        "password",
        re.compile(r"(?:--pass(?:word|wd)?|sshpass\s-p|mysql\s[^\n]{0,60}-p)[ =]?[\"']?(?P<s>[\x21-\x7e]{4,128})"),
        ("--pass", "sshpass", "mysql"),
        _is_password,
    ),
    Rule(
        "password",
        re.compile(r"(?<![\w-])(?:-u|--user|--proxy-user)[ =]?[\"']?[^\s:/\"']{1,60}:(?P<s>[\x21-\x7e]{4,128})"),
        ("-u", "--user", "--proxy-user"),
        _is_password,
    ),
    Rule(
        "password",
        re.compile(
            r"(?:machine\s{1,3}\S{1,100}|default)\s{1,3}login\s{1,3}\S{1,80}\s{1,3}password\s{1,3}"
            r"(?P<s>[\x21-\x7e]{3,128})"
        ),
        ("login",),
        lambda match: not is_reference(match.group("s")),
    ),
    Rule(
        "api_key",
        re.compile(rf"{_KEY_WORD}(?:{_SEPARATOR}|{_NEXT}){_VALUE}", re.I | re.ASCII),
        (),
        _is_keyed,
        _KEY_STARTS,
    ),
    Rule(
        "token",
        re.compile(rf"{_TOKENISH}(?:{_SEPARATOR}|{_NEXT}){_VALUE}", re.I | re.ASCII),
        (),
        _is_keyed,
        _TOKENISH_STARTS,
    ),
)

_AFTER = r"(?![0-9A-Za-z_])(?!\.\d)(?!-\d)"
_PEOPLE: tuple[Rule, ...] = (
    Rule(
        "id_number",
        re.compile(
            r"(?P<s>[1-9](?<![0-9A-Za-z_.-][1-9])\d{5}"
            r"(?:18|19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}[\dXx])(?![0-9A-Za-z_])"
        ),
        (),
        _is_resident_id,
        numeric=True,
    ),
    Rule(
        "id_number",
        re.compile(r"身份(?:证|号码)[^\d\n]{0,12}(?P<s>\d{17}[\dXx]|\d{15})(?!\d)"),
        ("身份",),
        numeric=True,
    ),
    Rule(
        "id_number",
        re.compile(r"(?:护照|通行证|passport)[^\d\n]{0,14}?(?P<s>[A-Za-z]{0,2}\d{7,9})(?![0-9A-Za-z])", re.I),
        ("护照", "通行证", "passport"),
        numeric=True,
    ),
    Rule(
        "id_number",
        re.compile(rf"\d(?<![0-9A-Za-z_.]\d)(?<!\d-\d)\d\d-(?!00)\d\d-(?!0000)\d{{4}}{_AFTER}"),
        ("-",),
        _is_social_security,
        numeric=True,
    ),
    Rule(
        "card",
        re.compile(
            rf"\d(?<![0-9A-Za-z_.]\d)(?<!\d[- ]\d)(?:\d{{3}}([ -])\d{{4}}"
            rf"\1\d{{4}}\1\d{{1,4}}(?:\1\d{{3}})?"
            rf"|\d{{3}}([ -])\d{{6}}\2\d{{4,5}}|\d{{12,18}}){_AFTER}"
        ),
        (),
        _is_card,
        numeric=True,
    ),
    Rule(
        "phone",
        re.compile(
            rf"(?<![0-9A-Za-z_])(?<![0-9A-Za-z][-.])(?P<s>(?:\+?(?:00)?86[- ]?)?"
            rf"1[3-9]\d(?:\d{{8}}|([- ])\d{{4}}\2\d{{4}})){_AFTER}"
        ),
        ("1",),
        _is_phone,
        numeric=True,
    ),
    Rule(
        "phone",
        re.compile(r"(?P<s>\+(?<![0-9A-Za-z_]\+)[1-9]\d{0,2}(?:[ .-]?\(?\d{1,5}\)?){2,6})(?![0-9A-Za-z_])"),
        ("+",),
        _is_international,
        numeric=True,
    ),
    Rule(
        "phone",
        re.compile(
            rf"(?<![0-9A-Za-z_+.])(?<!\d-)(?P<s>\([2-9]\d{{2}}\) ?[2-9]\d{{2}}[-. ]\d{{4}}"
            rf"|[2-9]\d{{2}}([-.])[2-9]\d{{2}}\2\d{{4}}){_AFTER}"
        ),
        (),
        _is_phone,
        numeric=True,
    ),
    Rule(
        "phone",
        re.compile(rf"(?P<s>0(?<![0-9A-Za-z_.]0)(?<!\d-0)\d{{2,3}}-[2-9]\d{{6,7}}){_AFTER}"),
        ("-",),
        _is_phone,
        numeric=True,
    ),
    Rule(
        "phone",
        re.compile(
            r"(?:phone|tel|mobile|whatsapp|电话|手机|座机|传真)(?:[ ._-]?(?:number|no\.?|#))?"
            r"[^\d\n+(/\\=_a-z]{0,8}(?:is )?(?P<s>[+(]?\d[\d ()-]{5,18}\d)(?![0-9A-Za-z_])",
            re.I | re.ASCII,
        ),
        ("phone", "tel", "mobile", "whatsapp", "电话", "手机", "座机", "传真"),
        _is_phone,
        numeric=True,
    ),
    Rule(
        "email",
        re.compile(
            r"(?<![A-Za-z0-9._%+/-])[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@"
            r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,5}[A-Za-z]{2,24}(?![A-Za-z0-9])"
        ),
        ("@",),
        _is_email,
    ),
)

RULES: tuple[Rule, ...] = (*_published(), _HASHES, *_WORDED, *_PEOPLE)

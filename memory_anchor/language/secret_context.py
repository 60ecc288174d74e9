"""Secrets of kinds nobody has listed: by how random a token is, and by the words beside it.

Prefixes (`secret_rules`) find the formats that vendors publish. What they miss is told by two questions a reader asks:
is this made by a machine and not by a person (how often letters, capitals and digits change places), and does a word
near by say that it is a secret (`key`, `令牌`), or what else it is (`commit`, `摘要`)? The nearest word decides.

- A long token of capitals, small letters and digits is a secret unless a digest, a public key, an address or a path
  explains it.
- A token of one case, hexadecimal or a UUID is a secret only where the nearest word says so.
- After a word for a password the next thing that looks chosen (letters with digits or signs) goes, also in the next
  sentence, in the next cell, or before "is the password"; digits alone only right behind the verb.

Labels are words of languages, not of vendors: the table does not grow with each failure. Every bound has a name; all
expressions are linear.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from memory_anchor.language.randomness import machine_made

Span = tuple[int, int, str]
"""Start, end and kind of one secret."""

BEFORE, AFTER = 72, 40
"""Characters before and behind a token in which a word may say what it is."""
PASSWORD_WITHIN, CHOSEN_CHARS = 90, 6
"""Characters behind a word for a password in which its value stands, and the least a value has."""
RANDOM_CHARS, LABELLED_CHARS = 20, 12
"""Least length of a token without and with a word beside it."""
CAPITALS_CHARS, CAPITALS_VOWELS, SMALL_VOWELS = 16, 0.3, 0.19
"""A run of letters of one case as long as this with so few vowels is no word: a name has some 0.4."""
MADE, SURELY_MADE = 0.9, 0.99
"""Chance from which a value right behind its label, and a token anywhere, is taken for made by a machine."""
VALUE_WITHIN, GROUPED_CHARS = 24, 27
"""Characters before a value in which its label stands, and the least length of groups of digits: four of six."""
ENCODED_MAX = 40
"""Encoded tokens of one text that are decoded."""
ENCODED_CHARS = 4_000

_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+/=.~-]{11,3999}")
_HEX = re.compile(r"[0-9a-f]{12,}|[0-9A-F]{12,}")
_VENDORS = re.compile(r"[A-Za-z][A-Za-z0-9]{1,11}[_.](?:[A-Za-z0-9]{1,16}[_.]){0,3}[A-Za-z0-9]{24,}")
"""The form vendors have agreed on: a short name, a low line or a dot, a long body."""
_PATH = re.compile(r"(?:^|/)[a-z]{4,40}(?:/|$)|\.[a-z]{1,5}\d?$")
_SAYS_CHOSEN = (
    r"pass(?:word|wd|phrase|code|wort)s?"
    r"|(?<![a-z])(?:-{1,2}[a-z]{0,16}pass|pass|pwd|kennwort|mot de passe|contrase(?:ñ|n)a|senha"
    r"|wachtwoord|пароль)|パスワード|비밀번호|密码|口令|暗号"
)
_HELD = "(?:api|app|auth|access|secret|private|master|account|service|client|server|admin|write|signing|encryption)"
"""Whose key it is, where the two are written as one word."""
_WORDS = re.compile(
    rf"(?:(?P<password>{_SAYS_CHOSEN})|(?P<private>(?<![a-z])private|私钥)"
    r"|(?P<token>tokens?|bearer|令牌|cookie|(?:web)?hooks?"
    r"|(?<![a-z])(?:sessions?|sid|oauth|otp|totp|2fa|recovery|backup codes?|seed|login|licen[cs]e)|恢复码|备用码|种子"
    r"|加签)"
    rf"|(?P<api_key>secrets?|credentials?|access_?key|(?<![a-z])(?:psk|(?:{_HELD}[ _-]?)?keys?)"
    r"|(?<![a-z])(?:salt|auth|akid|sk|ak)|密钥|秘钥|密匙|钥匙|凭证|凭据|授权码|鉴权)"
    r"|(?P<other>(?<![a-z])(?:commits?|sha\d{0,3}|md5|checksums?|hash(?:es)?|digests?|etag|fingerprint|ids?|uuid|guid|trace"
    r"|span|requests?|build|versions?|integrity|cache|primary|foreign|public|object|image|layer|revision|branch|diff"
    r"|ssh-[a-z0-9]{2,10}|tracking|order|isbn)|摘要|提交|指纹|校验|版本|镜像|编号|会话|工单|回滚|公钥|主键|缓存))(?![a-z])"
)
"""What a word says of a token near by, in the name of its group."""
_NOT_SECRET_BEFORE = re.compile(
    r"(?:sha\d{1,3}[-:]|h1:|base64,|md5[-:]|ssh-[a-z0-9]{2,12} |ecdsa-[a-z0-9-]{2,20} |fingerprint\W{1,4}|[@/#]|v="
    r"|\[redacted:[a-z_]{0,20})$"
)
_NOT_SECRET_BODY = re.compile(r"AAAA[A-Z]3Nza|AAAAE2Vj|iVBORw0KGgo|R0lGOD|/9j/|MII[A-D][a-zA-Z]{1,2}C|Bearer$")
_BEGIN_PUBLIC = re.compile(r"-----begin (?:certificate|public key|[a-z0-9 ]{0,20}public key|certificate request)")
_WORD_RUN = re.compile(r"[A-Z]?[a-z]{3,}")
WORDY = 0.55
"""Share of words in a token from which it is a name; random base 62 has some 0.25."""
_VALUE_SIGN = re.compile(r"[\"'`)\]\s]{0,3}(?:[:：=]|=>|is|was|are|是|为|用|写的是|设为)?[\"'`“‘(\s]{0,3}")
"""What stands between a label and its value."""
_GROUPS = re.compile(r"\d{4,8}(?:-\d{4,8}){3,9}")
_SEPARATORS = re.compile(r"[_+/=.~-]")


def _classes(text: str) -> str:
    return "".join("d" if sign.isdigit() else "u" if sign.isupper() else "l" for sign in text)


def changes(token: str) -> float:
    """Return how often neighbours in a token are of another class (capital, small letter, digit): 0 to 1.

    Random base 62 gives 0.62, random base 36 gives 0.40, an identifier in camel case 0.2, a word 0.

    >>> changes("getUserName") < 0.4 < changes("aB3dE5fG7hI9jK1l")
    True
    """
    kinds = _classes(_SEPARATORS.sub("", token))
    return sum(one != other for one, other in pairwise(kinds)) / max(1, len(kinds) - 1)


def _is_mixed(token: str) -> bool:
    """Return whether a token is of capitals, small letters and digits in no order."""
    bare = _SEPARATORS.sub("", token)
    return (
        any(sign.isdigit() for sign in bare)
        and any(sign.islower() for sign in bare)
        and any(sign.isupper() for sign in bare)
        and not is_wordy(token)
        and (changes(token) >= 0.36 or machine_made(token) >= SURELY_MADE)
    )


def is_wordy(token: str) -> bool:
    """Return whether most of a token is words, each with at most one capital: an identifier."""
    return sum(map(len, _WORD_RUN.findall(token))) >= WORDY * len(token)


def _is_single(token: str) -> bool:
    """Return whether a token of one case and digits is of no words: hexadecimal, base 36, a UUID."""
    bare = _SEPARATORS.sub("", token)
    digits = sum(sign.isdigit() for sign in bare)
    plain = (bare.isupper() or bare.isalpha()) and bare in (bare.upper(), bare.lower())
    if plain and len(bare) >= CAPITALS_CHARS and bare == token:  # base 32 may hold hardly a digit, base 26 holds none
        return sum(sign in "AEIOUaeiou" for sign in bare) <= (
            CAPITALS_VOWELS if bare.isupper() else SMALL_VOWELS
        ) * len(bare)
    if bare != bare.lower() and bare != bare.upper():
        return False
    return 3 <= digits < len(bare) and changes(token) >= 0.2 and not _PATH.search(token)


def _is_made_value(body: str, lowered: str, at: int) -> bool:
    """Return whether a word for a secret stands right before what is no name: letters alone, groups of digits."""
    said = lowered[max(0, at - VALUE_WITHIN) : at]
    words = list(_WORDS.finditer(said))
    if not words or words[-1].lastgroup == "other" or not _VALUE_SIGN.fullmatch(said, words[-1].end()):
        return False
    if _SEPARATORS.sub("", body).isdigit():
        return len(body) >= GROUPED_CHARS and _GROUPS.fullmatch(body) is not None
    return max(machine_made(part) for part in (body, _SEPARATORS.split(body)[-1])) >= MADE and not _PATH.search(body)


def _label(lowered: str, start: int, end: int) -> str:
    """Return what the nearest word says a token is: a kind, "other", or "" where none is near."""
    before = lowered[max(0, start - BEFORE) : start].rpartition("\n\n")[2]
    nearest = ""
    for found in _WORDS.finditer(before):
        nearest = found.lastgroup or ""
    if nearest:
        return nearest
    behind = re.match(r"[^\n.。;；]*", lowered[end : end + AFTER])
    found_behind = _WORDS.search(behind.group()) if behind else None
    return (found_behind.lastgroup or "") if found_behind else ""


_KINDS = {"password": "password", "private": "private_key", "token": "token", "api_key": "api_key"}


def _random_tokens(text: str, lowered: str) -> Iterator[Span]:
    for found in _TOKEN.finditer(text):
        token = found.group().rstrip(".-=~/") if found.group()[-1] in ".-~/" else found.group()
        start, end = found.start(), found.start() + len(token)
        parts = [(start, token)]
        if "=" in token.rstrip("="):  # name=value
            name, _, value = token.rpartition("=") if not token.endswith("=") else token.partition("=")
            parts = [(start + len(name) + 1, value)]
        for begin, body in parts:
            if len(body) < LABELLED_CHARS or _NOT_SECRET_BODY.search(body):
                continue
            if text[begin + len(body) : begin + len(body) + 1] == "(":
                continue  # a call
            before = text[max(0, begin - 40) : begin]
            is_hex = bool(_HEX.fullmatch(_SEPARATORS.sub("", body)))
            mixed = not is_hex and _is_mixed(body)
            if not mixed and not _is_single(body) and not _is_made_value(body, lowered, begin):
                continue
            in_hook = re.search(r"(?:web)?hooks?/[\w/-]{0,40}$", lowered[max(0, begin - 60) : begin])
            if not in_hook and (_NOT_SECRET_BEFORE.search(before.lower()) or _PATH.search(body)):
                continue
            if _in_public_block(lowered, begin):
                continue
            label = "token" if in_hook else _label(lowered, begin, end)
            vendors = _VENDORS.match(body) is not None
            if label == "other" or (not label and not (vendors or (mixed and len(body) >= RANDOM_CHARS))):
                continue
            if label == "password" and len(body) < 8:
                continue
            yield begin, begin + len(body), _KINDS.get(label, "token")


def _in_public_block(lowered: str, at: int) -> bool:
    begun = lowered.rfind("-----begin", 0, at)
    return begun >= 0 and _BEGIN_PUBLIC.match(lowered, begun) is not None and lowered.find("-----end", begun, at) < 0


# --- passwords, and other values that people choose ------------------------------------------------------------------

_PASSWORD_WORD = re.compile(
    rf"(?:{_SAYS_CHOSEN}|(?<![a-z])(?:network)?(?:credentials?|log ?in as|recovery codes?|backup codes?)"
    r"|恢复码|备用码|凭据)(?![a-z])"
)
_PIN_WORD = re.compile(
    r"(?:(?<![a-z])(?:pin|pass(?:code|word|wort)|codes?)(?![a-z])|密码|口令|恢复码|备用码)"
    r"[^\d\n.。:：=@/]{0,40}?(?:\b(?:is|are|lautet|est|es)\b|是|为|[:：=])\s{0,2}[\"'“`]{0,2}(?P<s>\d{4,12})(?!\d|\.\d)"
    r"(?!\s?(?:char|digit|symbol|day|minute|hour|second|time|位|个|天|分|次|字|秒|小时|月))"
)
_SIGNED = re.compile(
    r"(?:(?<![a-z])(?:secret|psk|key)|密钥|秘钥|凭证|凭据)(?![a-z])[^\n.。;；:：=]{0,40}"
    r"(?:[:：=]|(?<![a-z])is |是|为)\s{0,2}[\"'“`]?"
    r"(?P<s>[^\s\"'`“”‘’「」<>|，。；：！？、（）()/\u3400-\u9fff]{6,128})"
)
"""A value that a person chose, behind a word that is most often said of what machines make."""
_CHOSEN = re.compile(r"[^\s\"'`“”‘’「」<>|，。；：！？、（）()\u3400-\u9fff]{5,128}")
_QUOTED_WORDS = re.compile(
    r"(?:pass(?:word|phrase|code)|seed phrase|recovery phrase|mnemonic|密码|口令|助记词)"
    r"[^\n\"“'.]{0,30}(?:\bis\b|\bwas\b|[:=]|是|为)\s{0,2}[\"“'`](?P<s>[^\"”'`\n]{12,120})[\"”'`]"
)
_PIN_HINTS = ("phrase", "mnemonic", "助记词", "pin", "pass", "code", "密码", "口令", "恢复码", "备用码")
_STOP = re.compile(r"\n\n|\ufffc")
"""An empty line, or what was redacted: a word for a password says nothing of what stands beyond."""
_UNIT = re.compile(
    r"\d{1,6}(?:[a-z]{1,8}|%|x)|v?\d{1,4}(?:[.:-]\d{1,6}){1,5}\w{0,6}|[a-z]{1,20}-?\d{1,3}|\d{1,2}(?:st|nd|rd|th)", re.I
)
_NAMES_ONLY = re.compile(r"[A-Za-z_][A-Za-z_]*|[A-Z][A-Z0-9_]{2,60}|[a-z]{2,20}(?:[-_/.][a-z0-9]{1,20}){1,8}|\W+")
_CODE = re.compile(
    r"[$<{(*%\[]|\.{3}|--|https?:|[\w.]{1,80}[\[(]|[A-Za-z_]{2,40}=|/[A-Za-z]|~/|0x|#|@|[\w.-]{1,60}@[\w-]{1,60}\.\w|redacted"
)


def is_chosen(value: str) -> bool:
    """Return whether a value looks like a password somebody chose: letters with digits or signs, and no name or unit.

    >>> [is_chosen(one) for one in ("Tiger!2024", "hunter2x9", "argon2id", "v2.3.1", "DB_PASSWORD", "12")]
    [True, True, False, False, False, False]
    """
    bare = value.strip(".,;:!?*_~")
    if len(bare) < CHOSEN_CHARS or _UNIT.fullmatch(bare) or _NAMES_ONLY.fullmatch(bare) or _CODE.match(bare):
        return False
    letters = any(sign.isalpha() for sign in bare)
    digits = sum(sign.isdigit() for sign in bare)
    signs = any(sign in "!@#$%^&*+=?~" for sign in bare)
    return letters and (
        digits >= 2 or (digits == 1 and len(bare) >= 8 and changes(bare) >= 0.2) or (signs and digits >= 1)
    )


def _passwords(text: str, lowered: str, is_reference: Callable[[str], bool]) -> Iterator[Span]:
    labels = [found.span() for found in _PASSWORD_WORD.finditer(lowered)]
    reached = 0
    for (start, end), (following, _) in pairwise([*labels, (len(lowered), 0)]):
        last = min(end + PASSWORD_WITHIN, following)
        if last - end >= CHOSEN_CHARS:
            yield from _first_chosen(text, end, end + len(_STOP.split(lowered[end:last], maxsplit=1)[0]), is_reference)
        if start - reached >= CHOSEN_CHARS:
            yield from _chosen_before(text, max(reached, start - PASSWORD_WITHIN), start, is_reference)
        reached = end
    for found in _SIGNED.finditer(lowered):
        value = text[slice(*found.span("s"))].rstrip(".,;:?*_~")
        if is_chosen(value) and not is_reference(value) and any(sign in "!@#$%^&*" for sign in value):
            yield found.start("s"), found.start("s") + len(value), "password"
    if not any(word in lowered for word in _PIN_HINTS):
        return
    for found in _PIN_WORD.finditer(lowered):
        yield *found.span("s"), "password"
    for found in _QUOTED_WORDS.finditer(lowered):
        if found["s"].count(" ") >= 2:
            yield *found.span("s"), "password"


def _first_chosen(text: str, start: int, end: int, is_reference: Callable[[str], bool]) -> Iterator[Span]:
    for found in _CHOSEN.finditer(text, start, end):
        bare = found.group().rstrip(".,;:?*_~").lstrip("*_~=:>|+-/")
        if is_chosen(bare) and not is_reference(bare) and not _HEX.fullmatch(bare):
            begin = found.start() + found.group().index(bare)
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


_LINK = re.compile(
    r"\b(?:is|as|was)(?: \w{1,20}){0,3}\s$"
    r"|是[\u3400-\u9fff\w]{0,10}$|作为[\u3400-\u9fff]{0,8}$"
)
"""What stands between a value and "password" in "x is the password", "x 是数据库的密码"."""
_PLACES: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("password", "(", re.compile(r"(?<![\w.])[\w.-]{1,40}:(?P<s>[^\s:@/\"'<>{}$]{6,80})@(?:tcp|unix|udp)\(")),
    ("password", ":", re.compile(r":\d{2,5}:[\w*]{1,40}:[\w*]{1,40}:(?P<s>[^\s:]{4,80})")),
    (
        "token",
        ":",
        re.compile(
            r"authorization[\"']?\s{0,2}[:=]\s{0,2}[\"']?(?!(?:basic|bearer|digest)(?![a-z]))[a-z]{2,20}\s{1,2}"
            r"(?P<s>[A-Za-z0-9_.~+/=-]{16,400})",
            re.I,
        ),
    ),
    ("token", "@", re.compile(r"https?://(?P<s>[0-9a-f]{32})(?::[0-9a-f]{32})?@")),
    (
        "token",
        "=",
        re.compile(
            r"[?&](?:token|key|sig|signature|secret|access_token|auth|code)=(?P<s>[A-Za-z0-9_.~%+/-]{16,400})", re.I
        ),
    ),
)
"""Where a secret stands by the form of what is around it: connection strings and addresses."""

_PLACEHOLDER = re.compile(r"\[redacted:[a-z_]{1,20}\]")
_ENCODED = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/]{16,4000}={0,2}(?![A-Za-z0-9+/=_-])")
_USER_PASSWORD = re.compile(r"[\w.@+-]{1,60}:[\x21-\x7e]{6,200}")


def _encoded(text: str, finds: Callable[[str], str]) -> Iterator[Span]:
    """Yield base 64 in which a secret is written, or a name with its password."""
    for count, found in enumerate(_ENCODED.finditer(text)):
        if count >= ENCODED_MAX:
            return
        token = found.group()
        try:
            plain = base64.b64decode(token + "=" * (-len(token) % 4), validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError):
            continue
        if plain.isprintable() and (kind := finds(plain) or ("password" if _USER_PASSWORD.fullmatch(plain) else "")):
            yield *found.span(), kind


def contextual(
    text: str, lowered: str, *, is_reference: Callable[[str], bool], finds: Callable[[str], str]
) -> Iterator[Span]:
    """Yield the secrets that their randomness or the words beside them tell.

    is_reference: whether a value is code or a placeholder. finds: the kind of the first secret in another text, or "".
    """
    if "[redacted:" in lowered:
        text, lowered = (_PLACEHOLDER.sub(lambda found: "\ufffc" * len(found.group()), one) for one in (text, lowered))
    yield from _random_tokens(text, lowered)
    yield from _passwords(text, lowered, is_reference)
    for kind, hint, pattern in _PLACES:
        for found in pattern.finditer(text) if hint in text else ():
            if not is_reference(found["s"]):
                yield *found.span("s"), kind
    yield from _encoded(text, finds)

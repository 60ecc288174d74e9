"""Which kind of thing a rule names, on which part of the name, and by which sign: the slot that a later rule replaces.

Read in each clause beside a quoted sign, in English and Chinese. Invariant: a text without a sign names no slot.
"""

from __future__ import annotations

import re

from memory_anchor.language.bounded import bounded
from memory_anchor.language.terms import STOP_WORDS

_NAMED = bounded(
    r"(?<![a-z])(?P<what>(?:[a-z]{1,24}[ -])?[a-z]{1,24}) names?(?![a-z])"
    r"|names? (?:of|for) (?:all |your |the |our ){0,2}(?P<of>[a-z]+)"
    r"|(?:naming|for) (?!convention|rule|practice|scheme|guideline|style)(?:all |your |the |our ){0,2}"
    r"(?P<naming>(?:[a-z]{1,24} )?[a-z]{2,24}s)(?![a-z])"
    r"|(?P<han>[\u4e00-\u9fff]{1,4}?)名(?![\u4e00-\u9fff]{0,2}单)",
    re.I,
)
_LEADS = frozenset(("prefix", "suffix", "use", "start", "end", "want", "need", "like", "ensure", "keep", "make"))
"""What may stand before the noun in a rule, besides stop words and forms in -ing."""
_NO_NOUN = re.compile(r"所有|全部|每个|每一|以后|今后|请把|请将|的")
_SENTENCE = re.compile(r"[.!?]\s|[。！？；\n]")
_AFFIX = re.compile(
    r"['\"`‘’“”「]([^'\"`‘’“”」\s.,]{1,40})[.,]?['\"`‘’“”」]|(?<![a-z])([a-z]{4,6})[ _-]?case(?![a-z])", re.I
)
_AT_START = bounded(r"(?<![a-z])(?:start|begin|prefix|precede|lead)|开头|前缀|打头", re.I)
_AT_END = bounded(r"(?<![a-z])(?:end|suffix|close|finish)|结尾|后缀|收尾", re.I)


def naming_rules(text: str) -> dict[tuple[str, str], str]:
    """Return (what is named, where the sign stands) -> the sign, for each rule of names in a text.

    A prefix, a suffix, a part and a way of capitals can all hold for one name; another prefix ends the first.

    >>> naming_rules("End your function names with '_fn' and your method names with '_ud'.")
    {('function', 'end'): '_fn', ('method', 'end'): '_ud'}
    """
    found: dict[tuple[str, str], str] = {}
    begins = 0
    signs = list(_AFFIX.finditer(text))
    for number, sign in enumerate(signs):
        follows = signs[number + 1].start() if number + 1 < len(signs) else len(text)
        ends = [one.end() for one in _SENTENCE.finditer(text, begins, sign.start())]
        match = next(filter(None, (_NAMED.search(text, at, sign.start()) for at in (*ends[-1:], begins))), None)
        match = match or _NAMED.search(text, sign.end(), follows)
        said, begins = text[begins:follows], sign.end()
        if match is None:
            continue
        begins = max(begins, match.end())
        what = next(part for part in match.groups() if part).lower().removesuffix(" names")
        while (no_noun := _NO_NOUN.match(what)) is not None:
            what = what[no_noun.end() :]
        named = [word for word in what.split() if not (word in STOP_WORDS or word in _LEADS or word.endswith("ing"))]
        if named:
            found.setdefault((" ".join(named).removesuffix("s"), _where(sign, said)), (sign[1] or sign[2]).lower())
    return found


def _where(sign: re.Match[str], said: str) -> str:
    """Return which part of a name a sign is."""
    if sign[2]:
        return "case"
    if sign[1][-1] in "_-" or sign[1][0] in "_-":
        return "start" if sign[1][-1] in "_-" else "end"
    return "start" if _AT_START.search(said) else "end" if _AT_END.search(said) else "part"

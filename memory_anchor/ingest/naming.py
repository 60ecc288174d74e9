"""Naming rules ("end function names with '_fn'"): for which things, on which part of the name, with which sign.

Two rules for the same things and part contradict each other (`relations`). One benchmark dictates such rules,
MemoryCode, and this module is there for it; elsewhere they are rare. Read around a quoted sign, in English and Chinese:
the things of a program that people name are a small closed class, so no phrases are listed. Rejected: the text before
the word "names" (missed 10 of 14 changes).
Invariant: a text without a sign, with one that it forbids, or with a rule for only some of these things, gives none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.slots import DENY, PREDICATE, RULE_WORDS
from memory_anchor.language.terms import CJK
from memory_anchor.language.words import LETTERS, either, listed

_THING = (
    r"function|method|class|variable|constant|argument|parameter|attribute|property|field|column|table|module|package"
    r"|file|folder|script|test|fixture|helper|decorator|interface|trait|enum|exception|error|type|struct|object"
    r"|instance|component|hook|event|queue|endpoint|route|branch|thread|logger|generator|coroutine|macro|migration"
    r"|service|view|model|index|global|identifier"
)
_KIND = r"async|private|public|protected|internal|static|abstract|boolean|integer|string|list|local|base|data"
_HAN_THING = (
    r"函数|方法|变量|常量|参数|属性|字段|接口|枚举|异常|模块|文件|目录|脚本|测试|组件|事件|队列|分支|线程|表|列|类|包"
)
_HAN_KIND = r"私有|公有|公开|内部|静态|抽象|布尔|异步|局部|全局|列表|数据"
_THINGS = bounded(
    rf"(?P<name>(?:names? (?:of|for)|naming) (?:(?:all|every|each|your|our|the|of) ){{0,3}})?"
    rf"(?<![a-z])(?P<what>(?:(?:{_THING}|{_KIND})[ -]){{0,3}}(?:{_THING}))(?:e?s)?(?![a-z])(?P<named> names?(?![a-z]))?"
    rf"|(?P<han>(?:{_HAN_KIND}|{_HAN_THING}){{0,3}}(?:{_HAN_THING}))(?P<han_named>的?名)?",
    re.I,
)
_SOME = bounded(r"\s(?:that|which|whose|inside|within)(?![a-z])", re.I)
"""After a thing: the rule is only for some of them."""
_OF_COURSE = late(r"(?<=argument) variable|(?<=parameter) variable")
_BEFORE = late(rf"(?<![a-z])([a-z]{{1,24}})[ -]\Z|([{CJK}]{{2}})\Z", re.I)
_NOT_A_KIND = frozenset((*listed("left_out", "relations"), *listed("left_out", "slots"), *"任何凡给在于定义保证统起"))
_VERB = bounded(f"{PREDICATE.pattern}|{RULE_WORDS.pattern}")
"""Which of the things, from the word before them: hotfix branches. Not a verb of naming, nor what says nothing."""
_NAMING = bounded(r"(?<![a-z])(?:re)?nam(?:e|es|ed|ing)(?![a-z])|名", re.I)
_SENTENCES = late(r"(?<=[.!?])\s|(?<=[。！？；])")
_PASSES = bounded(rf"{either('supposed', edges=LETTERS)}|{either('for_now', edges=LETTERS)}|[?？]\Z", re.I)
"""A sentence that is asked, supposed, an example (if you have ...) or so for some days only."""
_ORDERS = bounded(r"\A(?:could|can|would|will) you(?![a-z])|\A(?:能不能|能否|可否|可以)", re.I)
_SENTENCE = late(r"[.!?]\s|[。！？；\n]")
_AFFIX = late(r"['\"`‘’“”「]([^'\"`‘’“”」\s.,]{1,40})[.,]?['\"`‘’“”」]|(?<![a-z])([a-z]{4,6})[ _-]?case(?![a-z])", re.I)
_AT_START = bounded(r"(?<![a-z])(?:start|begin|prefix|precede|lead|front|before)|开头|前缀|打头|前面", re.I)
_AT_END = bounded(r"(?<![a-z])(?:end|suffix|close|finish)|结尾|后缀|收尾|后面|末尾|结束", re.I)


def naming_rules(text: str) -> dict[tuple[str, str], str]:
    """Return (things, part of the name) -> the sign, for each naming rule in a text. Parts: start, end, part, case.

    >>> naming_rules("End your function names with '_fn' and your method names with '_ud'.")
    {('function', 'end'): '_fn', ('method', 'end'): '_ud'}
    >>> naming_rules("Columns that come from the bank start with 'b_'.")
    {}
    """
    text = " ".join(part for part in _SENTENCES.split(text) if _ORDERS.match(part) or not _PASSES.search(part))
    rules: dict[tuple[str, str], str] = {}
    start = 0
    signs = [sign for sign in _AFFIX.finditer(text) if not (sign[1] or "").startswith(("@", "--"))]
    for number, sign in enumerate(signs):
        end = signs[number + 1].start() if number + 1 < len(signs) else len(text)
        sentence_ends = [match.end() for match in _SENTENCE.finditer(text, start, sign.start())]
        spans = [(sentence_ends[-1], sign.start())] if sentence_ends else []
        spans += [(start, sign.start()), (sign.end(), end)]
        things = next(filter(None, (list(_THINGS.finditer(text, *span)) for span in spans)), [])
        around, start = text[start:end], max(sign.end(), things[-1].end() if things else 0)
        part = _part(sign, around)
        if (
            not things
            or _is_denied(text[spans[0][0] : sign.start()])
            or any(_SOME.match(text, thing.end()) for thing in things)
        ):
            continue
        if part != "case" and not any(pattern.search(around) for pattern in (_NAMING, _AT_START, _AT_END)):
            continue
        named = [thing for thing in things if thing["name"] or thing["named"] or thing["han_named"]] or things
        what = " ".join(dict.fromkeys(_which(text, thing) + (thing["what"] or thing["han"]).lower() for thing in named))
        rules.setdefault((_OF_COURSE.sub("", what), part), (sign[1] or sign[2]).lower())
    return rules


def other_signs(one: Mapping[tuple[str, str], str], other: Mapping[tuple[str, str], str]) -> set[tuple[str, str]]:
    """Return the parts of the same names for which two texts ask for different signs."""
    return {slot for slot in one.keys() & other.keys() if one[slot] != other[slot]}


def _which(text: str, thing: re.Match[str]) -> str:
    """Return the word before a thing that says which of its kind, "" for none."""
    found = _BEFORE.search(text, max(0, thing.start("what" if thing["what"] else "han") - 24), thing.start())
    if thing["name"] or found is None:
        return ""
    word = found.group().lower()
    says_nothing = word.strip() in _NOT_A_KIND or word.endswith("ing ") or (found[2] and set(word) & _NOT_A_KIND)
    return "" if says_nothing or any(one.search(word) for one in (_NAMING, _AT_START, _AT_END, _VERB)) else word


def _is_denied(before: str) -> bool:
    """Return whether the clause before a sign says that it is not to be: never start names with it."""
    clause = re.split(r"[,;:，；：]", before)[-1].lower()
    return DENY.search(clause) is not None and "forget" not in clause and "忘" not in clause


def _part(sign: re.Match[str], around: str) -> str:
    """Return which part of a name a sign is."""
    if sign[2]:
        return "case"
    if sign[1][-1] in "_-" or sign[1][0] in "_-":
        return "start" if sign[1][-1] in "_-" else "end"
    return "start" if _AT_START.search(around) else "end" if _AT_END.search(around) else "part"

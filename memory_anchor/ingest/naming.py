"""Which kind of thing a rule names, on which part of the name, and by which sign: the slot that a later rule replaces.

Read beside a quoted sign, in English and Chinese: the things of a program that people name are a small closed class,
so no verb and no turn of phrase is listed. Rejected: what stands before the word "names" (missed 10 of 14 changes).
Invariant: a text without a sign, or with one for some of these things alone, names no slot.
"""

from __future__ import annotations

import re

from memory_anchor.language.bounded import bounded

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
    rf"(?P<name>names? (?:of|for) (?:(?:all|every|each|your|our|the|of) ){{0,3}})?"
    rf"(?<![a-z])(?P<what>(?:(?:{_THING}|{_KIND})[ -]){{0,3}}(?:{_THING}))(?:e?s)?(?![a-z])(?P<named> names?(?![a-z]))?"
    rf"|(?P<han>(?:{_HAN_KIND}|{_HAN_THING}){{0,3}}(?:{_HAN_THING}))(?P<han_named>的?名)?",
    re.I,
)
_SOME = bounded(r"\s(?:that|which|whose|inside|within)(?![a-z])", re.I)
"""Behind a thing: the rule is for some of them alone."""
_OF_COURSE = re.compile(r"(?<=argument) variable|(?<=parameter) variable")
_NAMING = bounded(r"(?<![a-z])(?:re)?nam(?:e|es|ed|ing)(?![a-z])|名", re.I)
_SENTENCE = re.compile(r"[.!?]\s|[。！？；\n]")
_AFFIX = re.compile(
    r"['\"`‘’“”「]([^'\"`‘’“”」\s.,]{1,40})[.,]?['\"`‘’“”」]|(?<![a-z])([a-z]{4,6})[ _-]?case(?![a-z])", re.I
)
_AT_START = bounded(r"(?<![a-z])(?:start|begin|prefix|precede|lead|front|before)|开头|前缀|打头|前面", re.I)
_AT_END = bounded(r"(?<![a-z])(?:end|suffix|close|finish)|结尾|后缀|收尾|后面|末尾|结束", re.I)


def naming_rules(text: str) -> dict[tuple[str, str], str]:
    """Return (what is named, where the sign stands) -> the sign, for each rule of names in a text.

    A prefix, a suffix, a part and a way of capitals can all hold for one name; another prefix ends the first.

    >>> naming_rules("End your function names with '_fn' and your method names with '_ud'.")
    {('function', 'end'): '_fn', ('method', 'end'): '_ud'}
    >>> naming_rules("Columns that come from the bank start with 'b_'.")
    {}
    """
    found: dict[tuple[str, str], str] = {}
    begins = 0
    signs = [sign for sign in _AFFIX.finditer(text) if not (sign[1] or "").startswith(("@", "--"))]
    for number, sign in enumerate(signs):
        follows = signs[number + 1].start() if number + 1 < len(signs) else len(text)
        ends = [one.end() for one in _SENTENCE.finditer(text, begins, sign.start())]
        spans = [(ends[-1], sign.start())] if ends else []
        spans += [(begins, sign.start()), (sign.end(), follows)]
        things = next(filter(None, (list(_THINGS.finditer(text, *span)) for span in spans)), [])
        said, begins = text[begins:follows], max(sign.end(), things[-1].end() if things else 0)
        where = _where(sign, said)
        if not things or any(_SOME.match(text, one.end()) for one in things):
            continue
        if where != "case" and not any(one.search(said) for one in (_NAMING, _AT_START, _AT_END)):
            continue
        named = [one for one in things if one["name"] or one["named"] or one["han_named"]] or things
        what = " ".join(dict.fromkeys(_OF_COURSE.sub("", (one["what"] or one["han"]).lower()) for one in named))
        found.setdefault((what, where), (sign[1] or sign[2]).lower())
    return found


def _where(sign: re.Match[str], said: str) -> str:
    """Return which part of a name a sign is."""
    if sign[2]:
        return "case"
    if sign[1][-1] in "_-" or sign[1][0] in "_-":
        return "start" if sign[1][-1] in "_-" else "end"
    return "start" if _AT_START.search(said) else "end" if _AT_END.search(said) else "part"

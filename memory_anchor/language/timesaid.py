"""Whether time words say when something happened, or are part of what is asked for.

A range that filters hides what lies outside, so words filter only where they clearly say when. Three things decide:

- What is quoted, stands in an identifier (`today.py`) or is a name (今日头条) is no time at all.
- "within 30 days" and "on Friday" are as often a rule ("returns within 30 days") as a time: they filter where the query
  says that something happened ("what did we do on Friday") or asks for nothing else.
- "the last 30 days" and "3 days ago" hang on now: they filter unless the query is about a rule ("keep the last 7 days
  of backups", "清理30天前的日志") and says of nothing that it happened.
"""

from __future__ import annotations

import re

from memory_anchor.language.bounded import bounded
from memory_anchor.language.words import listed

_QUOTED = re.compile(
    r'(?<=")[^"\n]++(?=")|(?<=“)[^“”\n]++(?=”)|(?<=「)[^「」\n]++(?=」)|(?<=『)[^『』\n]++(?=』)|(?<=«)[^«»\n]++(?=»)|'
    r"(?<=《)[^《》\n]++(?=》)|(?<=‘)[^‘’\n]++(?=’)|`[^`\n]++`|(?<!\w)'[^'\n]++'(?!\w)"
)
_HIDDEN = "ⵣ"
"""Stands for a sign that is not read: a letter, so that what is quoted still counts as a word."""
_NAME_BEHIND = bounded(
    r"(?:(?<=[A-Za-z])-+|[._/\\@=])(?=[A-Za-z_])|(?<!\d)[._/\\@=](?=\d)|(?<=[A-Za-z])(?:-+(?=\d)|\()"
)
_NAME_BEFORE = bounded(r"(?<=[A-Za-z0-9_])(?P<sign>[._/\\@=]|-+)\Z|(?<!\S)(?:[@#$]|\.{0,2}[/\\]|--)\Z")

_ADDRESS = bounded(r"\b(?:can|could|would|will|do) you\b", re.IGNORECASE)
_HAPPENED = bounded(
    r"\b(?:did(?:n['’]t)?|was(?:n['’]t)?|were(?:n['’]t)?|had|been|happened|happening|anything|what(?:['’]?s| is) new|"
    r"(?:have|has) (?:we|i|you|they|he|she|it|anyone|anybody|there))\b|"
    r"[做干][了过]|发生[了过]|(?<![超通经])[了过](?:什么|哪|啥|几|多少)|"
    r"(?:谁|哪|什么|啥)[^，。？]{0,8}(?<![为除极超通经不])[了过](?![解结滤期程去多时])",
    re.IGNORECASE,
)
"""The query says that something happened, whatever else stands in it."""
_RULE = bounded(
    r"\b(?:can(?!['’]t)|(?<!in )may|must|should|shall|need to|needs to|ha(?:ve|s) to|every|each|always|usually|never|"
    r"per|if)\b|可以|可否|能否|能不能|是否|应该|应当|必须|需要|每|总是|通常|一般|支持|要求|不得|允许|如果|"
    r"(?<![性功智可])能(?![力量源])",
    re.IGNORECASE,
)
"""The query asks what may, must or always does happen."""
_PRESENT = bounded(r"\b(?:do|does|don['’]t|doesn['’]t|is|are|what['’]s|happens|could|would|will)\b", re.IGNORECASE)
_KEEPS = bounded(
    r"\b(?:keeps?|kept|retains?|retention|purges?|prunes?|deletes?|archives?|rotates?|expires?|covers?|older than|"
    r"limits?|threshold|quota|definition|metric)\b|"
    r"保留|保存|清理|清除|删除|归档|过期|超过|至少|最多|默认|只(?:看|显示|统计)|定义|限制|阈值|上限|锁定|怎么(?:算|统计|设|配)",
    re.IGNORECASE,
)
"""What is done to things of some age, or counted over some time, rather than at some time."""
_OF_SOMETHING = bounded(r"\s+of\b", re.IGNORECASE)
_SUBJECT = bounded(
    r"\b(?:[Ww]ho|[Ww]hat|[Ww]e|I|i|[Yy]ou|[Tt]hey|[Hh]e|[Ss]he|[Ii]t|[Ss]omeone|[Aa]nyone|[A-Z][a-z]+|"
    r"(?:[Ww]hich|[Ww]hose|[Ww]hat|[Hh]ow many) \w+)"
    r"(?: (?:also|just|already|actually|not|never))? (?=(?P<verb>[a-z]+)\b)"
)
_PAST = frozenset(listed("irregular", "past"))
_HAN_PAST = bounded(r"(?<![为除极])了(?![解结])|(?<![通超经不])过(?![去期程滤多时于敏来载渡度])")

_TITLE = bounded(r"(?<=[\w,] )(?:Yesterday|Today|Tonight|Tomorrow)\Z")
_CALLED = bounded(
    r"\b(?:slogan|motto|tagline|lyrics?)\b|口号|标语|歌词|"
    r"(?:\b(?:song|film|movie|album|novel|word|phrase|titled|called|named)|歌曲|电影|书名|叫做|名叫|名为|一词)"
    r"\s*(?:is|是)?\s*[:：]?\s*\Z",
    re.IGNORECASE,
)
_LABEL = bounded(
    r" (?:view|tab|button|filter|widget|column|field|endpoint|option|flag|page|screen|chart|preset)s?\b|环比|同比|同期|"
    r"(?<=日)[^\W的了过]{0,4}(?:接口|组件|模块|按钮|字段|页面|视图)",
    re.IGNORECASE,
)
"""What makes the words before it a label: "the last week column", "今日推荐模块"."""


def unquoted(text: str) -> str:
    """Return the text with everything quoted made unreadable, every sign of the rest where it was.

    >>> unquoted('who said "on Friday"').endswith("Friday")
    False
    """
    return _QUOTED.sub(lambda found: _HIDDEN * len(found.group()), text)


def joint(text: str, first: int, last: int) -> tuple[int | None, int | None]:
    """Return where the words that an expression is written together with end and begin: `use-today`, `today.py`."""
    before, behind = _NAME_BEFORE.search(text[:first]), _NAME_BEHIND.match(text, last)
    if before and before["sign"]:
        is_number = text[first].isdigit() and text[before.start() - 1].isdigit()  # "3-5月"
        before = None if is_number or (before["sign"][0] == "-" and not text[first].isascii()) else before
    return (before.start() if before else None), (behind.end() if behind else None)


def is_name(text: str, first: int, last: int) -> bool:
    """Return whether an expression is what a thing is called: "the song Yesterday", "口号：告别昨天", "today view"."""
    return bool(_TITLE.search(text[:last]) or _CALLED.search(text[:first]) or _LABEL.match(text, last))


def tells_of_the_past(text: str) -> bool:
    """Return whether the query says that something happened: "what did we do", "who broke it", "改了什么"."""
    plain = _ADDRESS.sub(" ", text)
    if _HAPPENED.search(plain):
        return True
    if _holds_always(plain):
        return False
    return bool(_HAN_PAST.search(plain)) or any(_is_past(found["verb"]) for found in _SUBJECT.finditer(plain))


def tells_of_the_present(text: str) -> bool:
    """Return whether the query asks what is or may be at any time: "what do we do on Friday"."""
    plain = _ADDRESS.sub(" ", text)
    return _holds_always(plain) and not _HAPPENED.search(plain)


def _holds_always(plain: str) -> bool:
    return bool(_RULE.search(plain) or _PRESENT.search(plain))


def _is_past(verb: str) -> bool:
    return verb in _PAST or (len(verb) > 3 and verb.endswith("ed") and not verb.endswith("eed") and verb != "embed")


def states_a_rule(text: str, last: int) -> bool:
    """Return whether a span that ends at `last` belongs to a rule: "keep the last 7 days", "the last 7 days of x"."""
    plain = _ADDRESS.sub(" ", text)
    return bool(_RULE.search(plain) or _KEEPS.search(plain) or _OF_SOMETHING.match(text, last))

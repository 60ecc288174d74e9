"""Whether time words say when something happened, or are what is asked for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cases import cases, each_query

from memory_anchor.language.terms import phrases
from memory_anchor.language.timespans import unquoted
from memory_anchor.language.timewords import TimeWords, time_range

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
"""A Sunday."""


def read(query: str) -> TimeWords | None:
    return time_range(query, now=NOW, zone="UTC")


def filters(query: str) -> bool:
    found = read(query)
    return found is not None and found.is_hard


READINGS = [
    # time.within: "within N units" filters only where the query says that something happened.
    ("ranks", """
        may customers return goods within 30 days | refund for goods returned within 30 days |
        session expires within 2 hours | what must be done within 24 hours | 7天内无理由退货 |
        7天内拆封了还能退货吗 | SLA 24小时内 | 24小时内发生故障怎么赔 | 24小时内超过几次登录失败会锁定 |
        "ship it" within 30 days
    """),
    # time.within: a verb of the past, or nothing else being asked, says that the duration is meant.
    ("filters", """
        what happened within 2 hours | what did we change in the router within 2 hours |
        what have we fixed within a week | 一周内做了什么 | 24小时内谁改过路由器 | within a week |
        一个月内的进展
    """),
    # time.weekday: "on Friday" in the present tense is every Friday.
    ("ranks", """
        which backups run on Sunday | why do we deploy on Tuesday | what do we do on Friday |
        what happens on Friday | is the sync allowed on Monday | the meeting on Friday |
        release on the last Friday of each month | Friday | 周五的会议
    """),
    # time.weekday: a verb of the past or 上, 这, last, this say which one is meant.
    ("filters", """
        what did we do on Friday | what did we do about the router on Friday | who deployed on Friday |
        which tests failed on Friday | what Anna said on Tuesday |
        can you tell me who broke the build on Friday | the release last Friday | this Friday's release |
        上周五的发布 | 这周一的会议 | on Friday
    """),
    # time.last: what is kept, deleted or allowed for a span is no event of it.
    ("ranks", """
        keep the last 7 days of backups | the last 7 days of metrics | how long do we retain the past 3 days |
        can customers return goods bought in the last 30 days | 保留最近7天的备份 | 清理30天前的日志 |
        how do we delete logs older than 30 days ago | how long are logs kept in the last 30 days |
        近30天活跃用户的定义 | 过去24小时内登录失败3次锁定
    """),
    # time.last: "the last 3 days" hangs on now.
    ("filters", """
        what happened within the last 2 hours | 过去24小时发生了什么 | 最近三天改了什么 | 最近三天的错误 |
        errors in the last 3 days | anything about the router in the last 30 days |
        give me the last 7 days of activity | 3天前删除了什么 | who kept the backups of 3 days ago | past 3 days
    """),
    # time.name: a word written together with others by . _ / - or = is part of a name.
    ("none", """
        today.py | where is today.py | docs/today/notes.md | the use-yesterday flag | show_yesterday |
        git log --since=yesterday | date.today() is naive | the /today command | #today | @yesterday |
        昨天.md 在哪 | 2023-05-08.log
    """),
    # time.name: some names hold a time word.
    ("none", """
        今日头条 | 今日头条怎么抓取 | 今日说法 | 昨日重现的歌词 | 最近邻搜索 | least recently used
    """),
    # time.hard: what hangs on now excludes the rest.
    ("filters", """
        Yesterday we fixed what? | what did we do yesterday and what is planned for tomorrow | 昨天的代码 |
        the build today
    """),
    # time.quoted: a quoted part of a query is text to be found.
    ("none", """
        "on Friday" | what does "yesterday never comes back" mean | “昨天的代码” | 「昨天」的意思 |
        『上周的事』在哪 | «yesterday» | 《昨天》是谁写的 | the `yesterday` helper | the 'yesterday' flag |
        ‘last week’
    """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "expected"), [(query, expected) for expected, table in READINGS for query in cases(table)]
)
def test_a_time_filters_only_ranks_or_is_not_read(query: str, expected: str) -> None:
    """Rules time.within, time.weekday, time.last, time.name, time.hard, time.quoted: see the comments."""
    found = read(query)
    assert expected == ("none" if found is None else "filters" if found.is_hard else "ranks")


@pytest.mark.parametrize("query", ["what do we do on Friday", "what happens on Friday", "7天内可以做什么"])
def test_a_habit_is_something_asked_for(query: str) -> None:
    """Rule time.rest: what always happens on Fridays is not answered by all of last Friday."""
    found = read(query)
    assert found is not None and found.rest


@pytest.mark.parametrize(
    "query",
    ["Monday-Wednesday", "mid-October", "3-5月的收入", "用git昨天提交了什么", "昨天(周五)做了什么", "today/yesterday"],
)
def test_time_words_written_together_are_read(query: str) -> None:
    """Rule time.name: a dash or slash between two times, and a neighbour in another script, make no name."""
    assert read(query) is not None


@each_query("""
    the song Yesterday | who wrote the song yesterday | the USA Today crawler | a variable named today |
    口号：告别昨天，拥抱明天 | 拥抱明天，告别昨天 | compare today and tomorrow | the last week column |
    Today widget color | why is the last 3 days chart empty | 今日推荐模块 | 上月环比
""")
def test_names_and_titles_never_filter(query: str) -> None:
    """Rule time.name: a capital within a sentence, "song" before it or "column" behind it, a past by a future."""
    assert not filters(query)


@pytest.mark.parametrize(
    "query", ['who said "on Friday" yesterday', "昨天谁说了“上周五”", "the users' log of yesterday's run"]
)
def test_time_words_outside_a_quotation_are_read(query: str) -> None:
    """Rule time.quoted: only what stands within the marks is left alone."""
    found = read(query)
    assert found is not None
    assert found.start == datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize("marks", ['""', "“”", "「」", "『』", "«»"])
def test_the_quotation_marks_of_phrases_are_known_here_too(marks: str) -> None:
    """Rule time.quoted: the marks are those of a search for a phrase."""
    query = f"who said {marks[0]}on Friday{marks[1]}"
    assert phrases(query) == ("on friday",)
    assert "Friday" not in unquoted(query)
    assert len(unquoted(query)) == len(query)

"""Time words in queries, Chinese and English (strategy 7.1: "今天修复了什么", "上周完成了什么")."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cases import by_result, each_query, words
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.language.timerules import number
from memory_anchor.language.timewords import TimeWords, time_range

NOW = datetime(2025, 12, 17, 15, 30, tzinfo=UTC)
"""A Wednesday."""


def read(query: str) -> TimeWords:
    found = time_range(query, now=NOW, zone="UTC")
    assert found is not None
    return found


def days(query: str) -> tuple[str, str]:
    found = read(query)
    return found.start.date().isoformat(), found.end.date().isoformat()


def days_ago(query: str) -> tuple[int, int]:
    """Return how many days ago the range starts and ends."""
    found, today = read(query), NOW.replace(hour=0, minute=0)
    return (today - found.start).days, (today - found.end).days + 1


SPANS = {
    ("1970-01-01", "2024-01-01"): "before 2024 | 去年之前 | 2024年以前",
    ("1970-01-01", "2025-01-01"): "截至去年底",
    ("1970-01-01", "2025-11-01"): "before last month",
    ("1970-01-01", "2025-12-08"): "more than 2 weeks ago",
    ("1970-01-01", "2025-12-13"): "until last Friday",
    ("2022-01-01", "2023-01-01"): "大前年",
    ("2023-01-01", "2024-01-01"): "in 2023 | two years ago | 前年的计划",
    ("2023-01-01", "2024-06-01"): "2023年起至2024年5月",
    ("2023-01-01", "2025-01-01"): "from 2023 to 2024 | in 2023-2024",
    ("2023-05-01", "2023-06-01"): "What did Ingrid do in May 2023? | in May 2023 | 二〇二三年五月",
    ("2023-05-08", "2023-05-09"): "met on 05/08/2023 | on 8 May 2023",
    ("2023-06-01", "2023-09-01"): "in the summer of 2023",
    ("2023-12-01", "2024-03-01"): "2023年冬天",
    ("2023-12-24", "2023-12-27"): "Christmas 2023 | at Christmas in 2023 | 2023年圣诞节",
    ("2024-01-01", "2024-04-01"): "2024年第一季度",
    ("2024-01-01", "2024-07-01"): "first half of 2024",
    ("2024-01-01", "2025-01-01"): "last year | 去年的目标 | 一年前 | 去年",
    ("2024-03-01", "2024-06-01"): "from March to May 2024 | 2024年3月至5月",
    ("2024-03-02", "2024-03-08"): "where was Farid between March 2 and March 7 2024",
    ("2024-03-05", "2024-03-19"): "two weeks before March 19, 2024",
    ("2024-03-14", "2024-03-15"): "opened lately, as told on 14 March, 2024",
    ("2024-04-09", "2024-04-10"): "the talk on 9 April 2024 | April 9th, 2024",
    ("2024-05-01", "2024-06-01"): "去年五月去了哪里 | 去年五月",
    ("2024-06-01", "2024-09-01"): "去年夏天",
    ("2024-06-07", "2024-06-08"): "the Friday before June 12, 2024",
    ("2024-06-18", "2025-12-18"): "过去一年半",
    ("2024-07-01", "2024-10-01"): "goals for Q3 2024",
    ("2024-07-01", "2025-01-01"): "去年下半年",
    ("2024-10-01", "2024-10-08"): "去年国庆",
    ("2024-10-01", "2025-01-01"): "去年底",
    ("2024-10-01", "2025-04-01"): "2024年底到2025年初",
    ("2024-11-01", "2025-03-01"): "from November to February",
    ("2024-12-24", "2024-12-27"): "Christmas last year | last Christmas",
    ("2025-01-01", "2025-01-02"): "元旦",
    ("2025-01-01", "2025-04-01"): "beginning of this year | 今年年初 | 年初",
    ("2025-01-01", "2025-07-01"): "上半年",
    ("2025-01-01", "2025-12-17"): "since the beginning of the year | 今年以来",
    ("2025-03-01", "2025-04-01"): "in March",
    ("2025-03-01", "2025-06-01"): "this spring | between March and May | 今年春天 | 三月到五月 | 三月初到五月底",
    ("2025-05-08", "2025-05-09"): "on May 8",
    ("2025-05-20", "2025-05-21"): "5月20日说了什么",
    ("2025-05-31", "2025-07-01"): "end of Q2",
    ("2025-06-01", "2025-07-01"): "back in June | half a year ago | 半年前",
    ("2025-06-01", "2025-09-01"): "last summer",
    ("2025-06-18", "2025-12-18"): "过去半年",
    ("2025-07-01", "2025-10-01"): """
        Q3 | in the third quarter | last quarter | 第三季度 | 三季度的收入 | 上个季度 | Q3的目标
    """,
    ("2025-10-01", "2025-10-08"): "国庆节",
    ("2025-10-01", "2025-11-01"): "两个月前的决定 | about two months ago | the last 3 days of October | 上上个月",
    ("2025-10-01", "2026-01-01"): "this quarter | 本季度",
    ("2025-10-11", "2025-10-21"): "mid-October",
    ("2025-10-18", "2025-12-18"): "前段时间",
    ("2025-10-21", "2025-11-01"): "十月下旬",
    ("2025-11-01", "2025-11-11"): "上个月初",
    ("2025-11-01", "2025-12-01"): "last month | 上个月 | 上月的账单",
    ("2025-11-15", "2025-11-16"): "上个月15号",
    ("2025-11-17", "2025-12-18"): "over the past month | within the last 30 days | 过去一个月 | 一个月内",
    ("2025-11-21", "2025-12-01"): "at the end of last month | late November | 上个月底 | 11月底",
    ("2025-11-24", "2025-12-11"): "半个月前",
    ("2025-11-26", "2025-12-18"): "the past few weeks",
    ("2025-12-01", "2025-12-06"): "between 2025-12-01 and 2025-12-05 | 12月1日到12月5日",
    ("2025-12-01", "2025-12-08"): """
        上上周完成了什么 | two weeks ago | the week before last | around 2 weeks ago | 上上周 | 两个星期前
    """,
    ("2025-12-01", "2025-12-11"): "early this month | 月初定的目标",
    ("2025-12-01", "2025-12-17"): "less than 2 weeks ago",
    ("2025-12-01", "2026-01-01"): "this month's bugs | 本月的支出 | 2025年12月的发布 | 十二月的计划",
    ("2025-12-03", "2025-12-04"): """
        2025年12月3日的发布 | logs of 2025-12-03 | the Wednesday two weeks ago | Dec. 3rd | on the 3rd of December |
        2025/12/03 | 两周前的周三 | 这个月3号 | 2025年12月3日 | 十二月三号
    """,
    ("2025-12-03", "2025-12-10"): "between 3 and 9 December",
    ("2025-12-03", "2025-12-18"): """
        in the last two weeks | the other day | what have we done recently | 近两周 | 最近做了什么 | 前几天 |
        前两天改了什么
    """,
    ("2025-12-05", "2025-12-06"): "Friday two weeks ago",
    ("2025-12-07", "2025-12-08"): "ten days ago | 十天以前",
    ("2025-12-08", "2025-12-15"): """
        what did we finish last week | 上周完成了什么 | 上个星期完成了什么 | a week ago | 上星期做了什么
    """,
    ("2025-12-10", "2025-12-11"): "the meeting last Wednesday | 上个星期三的会",
    ("2025-12-10", "2025-12-18"): "last 7 days | within a week | 过去7天",
    ("2025-12-11", "2025-12-16"): "a few days ago",
    ("2025-12-11", "2025-12-17"): "changes since last Thursday",
    ("2025-12-11", "2025-12-21"): "本月中旬",
    ("2025-12-12", "2025-12-13"): """
        the release last Friday | 上周五的发布 | last Friday | Friday's release | what did Anna say last Fri | 上周五
    """,
    ("2025-12-12", "2025-12-17"): "between last Friday and yesterday | 自上周五以来",
    ("2025-12-13", "2025-12-15"): "last weekend | over the weekend | 上周末 | 周末去了哪里",
    ("2025-12-14", "2025-12-15"): """
        大前天谁提交的 | what did I note 3 days ago | three days ago | 三天前说了什么 | 三天前 | 3天之前
    """,
    ("2025-12-14", "2025-12-18"): """
        errors in the last 3 days | 最近三天的错误 | past 3 days | 最近三天 | 这几天 | 最近两三天
    """,
    ("2025-12-15", "2025-12-16"): "前天谁提交的 | 周一谁值班 | the day before yesterday | 前天 | 这周一",
    ("2025-12-15", "2025-12-17"): """
        what have we done since last Monday | since Monday | 从周一到现在 | 周一以来 | 前天到昨天
    """,
    ("2025-12-15", "2025-12-18"): "during the last couple of days | from Monday to Wednesday | 周一到周三",
    ("2025-12-15", "2025-12-22"): """
        what is planned this week | 本周做了什么 | 这周做了什么 | what did we do this week so far | 这个礼拜的进展
    """,
    ("2025-12-16", "2025-12-17"): """
        what broke yesterday? | 昨天的会议 | what broke yesterday morning | last night's deploy |
        what was said on Tuesday | since yesterday | in the last 24 hours | 昨天晚上的部署 | 昨晚 | 本周二 |
        过去24小时
    """,
    ("2025-12-17", "2025-12-17"): "an hour ago | 两小时前 | 刚才",
    ("2025-12-17", "2025-12-18"): """
        what did we fix today | 今天修复了什么 | errors this afternoon | earlier today | 今天上午 | 今早的会议
    """,
    ("2025-12-18", "2025-12-19"): "what is planned for tomorrow | 明天的安排",
    ("2025-12-22", "2025-12-23"): "下周一",
    ("2025-12-22", "2025-12-29"): "next week's plan",
    ("2026-01-01", "2026-02-01"): "下个月",
}


@pytest.mark.parametrize(("query", "span"), by_result(SPANS))
def test_time_words_become_half_open_days(query: str, span: tuple[str, str]) -> None:
    """Rule time.words: weeks start on Monday, days are whole, ranges are half-open, in both languages."""
    assert days(query) == span


@each_query("""
    why do we use Qdrant | 为什么用 Qdrant | may I edit the constitution | version 1.20.0 of the client |
    the second of three tests | how long is a week | marching orders | 三次审批 | 上下文预算 | ran 2023 tests |
    每周五不部署吗 | every Friday we deploy | 第三个季节 | how many days ago is too long | Q3_report.pdf 在哪 |
    一周几次 | 前天线的位置 | 周末模式 flag | 三月兔是谁写的 | the march of progress | may I see it |
    a week has seven days | 季度报表的格式 | 版本 2.3.1 | 在 10.0.0.1 上 | 秋天的色彩搭配主题 | 下周期的定义 |
    上月球 | 内存用了多少 | how to say goodbye | the weekly report format | 三年级的课本 | 以前的做法 | 之后怎么办 |
    这个月亮图标 | 前后端分离 | 光明天地小区 |
    7天前端报错 | 两周前后对比 | 3天前往北京 | 成本月报谁负责 | 成本季度报告 | 目前天气 | 当前天气 |
    我们目前天天加班 | 提前天数 | 提前年份 | 当前年度 | 晚上周会 | 早上周会 | 马上周会 | 晚上月色 | 线上周会 |
    线上月活 | 以上月份 | 基本周会 | 日本周边 | 日本月销量 | 版本周期 | 样本月度统计 | 文本周报 | 剧本周更 |
    副本月卡 | 本周边商店 | 本周年庆 | 如今年轻人 | 附近3天 | 24小时内网故障 | 三天内核升级 | 周日志 | 周一致性检查
""")
def test_other_words_are_left_alone(query: str) -> None:
    """Rule time.words: no false alarm on words that only look like dates; 成本月报 is the 月报 of 成本."""
    assert time_range(query, now=NOW, zone="UTC") is None


def test_relative_times_filter_and_calendar_dates_only_rank() -> None:
    """Rule time.hard: "last week" excludes the rest; "in May 2023" may have been told in June."""
    assert read("上周完成了什么").is_hard
    assert not read("trips in May 2023").is_hard


@pytest.mark.parametrize("query", ["on Friday 28 November", "recently, in May 2023", "周五也就是11月28日"])
def test_a_date_wins_over_a_vague_time(query: str) -> None:
    """Rule time.vague: "recently" and a bare weekday are left aside when a date is said."""
    found = read(query)
    assert found.end - found.start < timedelta(days=32)
    assert found.start.date() != NOW.date() - timedelta(days=14)


@each_query(
    "the plan for next week | 下周的计划 | tomorrow's talk | 明年的目标 | after today | after this week | 今天之后"
)
def test_the_future_never_filters(query: str) -> None:
    """Rule time.future: what will happen next week was recorded before it; "after today" begins later than now."""
    found = read(query)
    assert not found.is_hard and found.start > NOW


def test_hours_are_counted_back_from_now() -> None:
    """Rule time.hours: "in the last 24 hours" is no day of the calendar."""
    found = time_range("过去24小时", now=NOW, zone="Asia/Shanghai")
    assert found is not None and (found.start, found.end) == (NOW - timedelta(hours=24), NOW)


@pytest.mark.parametrize(
    ("query", "asks"),
    by_result(
        {
            False: """
            今天修复了什么 | what did we do last week | 昨天干了啥 | 昨天都做了啥 | 昨天的工作总结 | 总结一下昨天 |
            上周的进展 | summary of yesterday | show me yesterday's events | List everything from yesterday |
            what did I work on yesterday | recap last week
        """,
            True: """
            上周的数据库迁移 | today's parser bug | work on the router yesterday |
            List everything about Redis from yesterday | 昨天的工作流 | 上周的合作协议
        """,
        }
    ),
)
def test_a_query_for_everything_of_a_time_differs_from_one_for_a_topic(query: str, asks: bool) -> None:
    """Rule time.rest: "what happened today" is answered by all of today."""
    assert read(query).rest is asks


@pytest.mark.parametrize(
    ("query", "remaining"),
    [
        ("what did we do about the router 4 days ago", "what did we do about the router"),
        ("4天前路由器做了什么", "路由器做了什么"),
        ("anything about the router in the last 30 days?", "anything about the router?"),
        ("过去24小时内路由器发生了什么", "路由器发生了什么"),
        ("在上周路由器改了什么", "路由器改了什么"),
        ("yesterday, what broke in the Router", "what broke in the Router"),
        ("yesterday's router outage", "router outage"),
        ("昨天的会议", "会议"),
        ("昨天晚上的部署", "部署"),
        ("what did we fix yesterday morning in the router", "what did we fix in the router"),
        ("路由器 昨天 重启", "路由器 重启"),
        ('who said "Ship  It" yesterday', 'who said "Ship It"'),
        ("since last Monday the router fails", "the router fails"),
        ("昨天？", ""),
        ("last week", ""),
    ],
)
def test_relative_times_are_removed_from_the_query(query: str, remaining: str) -> None:
    """Rule time.remaining: no memory says "4 days ago" of itself, so these words count against none."""
    assert read(query).remaining == remaining


@pytest.mark.parametrize("query", ["trips in May 2023", "2025年12月的发布"])
def test_a_calendar_date_stays_in_the_query(query: str) -> None:
    """Rule time.remaining: a memory may name the date itself, whatever day it was told on."""
    assert read(query).remaining == query


def test_the_end_of_a_long_query_is_kept() -> None:
    """Rule time.remaining: time words are looked for in the beginning only, the rest is kept whole."""
    end = "word " * 500 + "end"
    assert read(f"yesterday {end}").remaining == end


def test_days_begin_in_the_callers_zone() -> None:
    """Rule time.zone: 23:30 in Shanghai is already the next UTC day's memory."""
    late = datetime(2025, 12, 17, 17, 0, tzinfo=UTC)  # 01:00 on the 18th in Shanghai
    found = time_range("今天", now=late, zone="Asia/Shanghai")
    assert found is not None
    assert found.start == datetime(2025, 12, 17, 16, 0, tzinfo=UTC)
    assert time_range("today", now=late, zone="No/Where") is not None


def test_numbers_are_read_in_three_ways() -> None:
    """Rule time.numbers: digits, English words and Chinese numerals."""
    assert [number(text) for text in words("12 twelve 十二 二十 一百零三 两 x")] == [12, 12, 12, 20, 103, 2, None]


@given(st.text(alphabet="0123456789 天周月年前上个last week ago三十百/-", max_size=40))
def test_any_text_gives_a_range_or_nothing(query: str) -> None:
    """Rule time.total: no text raises, and a range never runs backwards."""
    found = time_range(query, now=NOW, zone="UTC")
    assert found is None or found.start < found.end


# --- amounts, and on which side of a time a query looks ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("一个半月前", 37, 53),
        ("两个半月前的决定", 67, 83),
        ("half a month ago", 7, 23),
        ("one and a half months ago", 37, 53),
        ("1.5 weeks ago", 8, 13),
        ("一年半前", 456, 639),
        ("1.5 years ago", 456, 639),
        ("a year and a half ago", 456, 639),
        ("两天半前", 2, 3),
    ],
)
def test_a_fraction_spans_a_quarter_unit_to_both_sides(query: str, first: int, last: int) -> None:
    """Rule time.fraction: "a year and a half ago" is no single day, and 一个半月 is no 半月."""
    assert days_ago(query) == (last, first)


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("三四天前", 3, 4),
        ("十几天前", 11, 19),
        ("二十多天前", 20, 29),
        ("10多天前", 10, 19),
        ("十三四天前", 13, 14),
        ("3到5天前", 3, 5),
        ("3-4 days ago", 3, 4),
        ("three or four days ago", 3, 4),
        ("二十一天前", 21, 21),
        ("三天多前", 3, 4),
        ("a day or two ago", 1, 2),
    ],
)
def test_an_amount_between_two_numbers_spans_both(query: str, first: int, last: int) -> None:
    """Rule time.between: 三四天前 is three or four days ago, and filters."""
    assert read(query).is_hard
    assert days_ago(query) == (last, first)


@pytest.mark.parametrize(
    "query", ["a few days ago", "several days ago", "几天前", "好几天前", "若干天前", "几天前路由器改了什么"]
)
def test_an_amount_without_a_number_spans_some_days_and_never_filters(query: str) -> None:
    """Rule time.few: "a few days ago" is two to six days ago and only counts."""
    found = read(query)
    assert not found.is_hard
    assert days(query) == ("2025-12-11", "2025-12-16")


@pytest.mark.parametrize(
    ("query", "start"),
    by_result(
        {
            "2024-01-01": "after 2023 | 2023年之后 | 2023年以后",
            "2023-01-01": "since 2023 | 2023年以来",
            "2025-12-17": "after yesterday",
            "2025-12-15": "after last week | from Monday on",
            "2025-12-16": "since yesterday | after yesterday's meeting",
            "2025-12-08": "changes from last week onwards",
        }
    ),
)
def test_after_begins_when_a_time_is_over_and_since_when_it_begins(query: str, start: str) -> None:
    """Rule time.after: "after 2023" is without 2023, "since 2023" with it; both reach to now."""
    found = read(query)
    assert found.is_hard
    assert (found.start.date().isoformat(), found.end) == (start, NOW + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("query", "start", "is_hard"),
    [("everything from last week", "2025-12-08", True), ("photos from 2023", "2023-01-01", False)],
)
def test_from_a_time_means_that_time_only(query: str, start: str, is_hard: bool) -> None:
    """Rule time.from: "from last week" alone does not reach to now."""
    found = read(query)
    assert found.is_hard is is_hard
    assert found.start.date().isoformat() == start
    assert found.end < NOW - timedelta(days=2)


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ("一个多月前", "2025-10-01", "2025-12-01"),
        ("两年多前", "2022-01-01", "2024-01-01"),
        ("半个多月前", "2025-11-09", "2025-12-11"),
    ],
)
def test_an_amount_and_more_spans_up_to_the_next(query: str, start: str, end: str) -> None:
    """Rule time.between: 一个多月前 lies between one month ago and two."""
    found = read(query)
    assert found.is_hard
    assert days(query) == (start, end)


def test_hours_may_be_a_fraction() -> None:
    """Rule time.hours: "2.5 hours ago" is an hour around it, and not 5 hours ago."""
    found = time_range("2.5 hours ago", now=NOW, zone="UTC")
    assert found is not None
    assert (found.start, found.end) == (NOW - timedelta(hours=3.5), NOW - timedelta(hours=1.5))


# --- characters that may end or begin a time word, and belong to the next word ----------------------------------------

LAST_WEEK, THIS_WEEK = ("2025-12-08", "2025-12-15"), ("2025-12-15", "2025-12-22")
LAST_MONTH, THIS_MONTH = ("2025-11-01", "2025-12-01"), ("2025-12-01", "2026-01-01")
THREE_DAYS_AGO, TWO_DAYS_AGO = ("2025-12-14", "2025-12-15"), ("2025-12-15", "2025-12-16")


@pytest.mark.parametrize(
    ("query", "remaining"),
    [
        # no word is cut in its middle: 内 of 内存, 上 of 上线 and 的 of 的士 belong to what is asked for
        ("昨天内存泄漏怎么修的", "内存泄漏怎么修的"),
        ("昨天内网故障原因", "内网故障原因"),
        ("上周内部会议说了什么", "内部会议说了什么"),
        ("上周里程碑进展", "里程碑进展"),
        ("上周里面试了谁", "里面试了谁"),
        ("最近三天里程", "里程"),
        ("过去24小时内存占用", "内存占用"),
        ("昨天晚上线的版本", "晚上线的版本"),
        ("昨天晚上班车几点到", "晚上班车几点到"),
        ("今天早上架的商品", "早上架的商品"),
        ("昨天下午茶花了多少", "下午茶花了多少"),
        ("昨天的士费报销了吗", "的士费报销了吗"),
        ("昨天的确修好了吗", "的确修好了吗"),
        ("上周日志里的错误", "日志里的错误"),
        # 里, 内, 的 and a part of the day go where no other word begins with them
        ("上周里的问题", "问题"),
        ("本月内，路由器换了吗", "路由器换了吗"),
        ("本月内做了什么", "做了什么"),
        ("最近三天里改了什么", "改了什么"),
        ("过去24小时内路由器发生了什么", "路由器发生了什么"),
        ("最近一周内网络怎么了", "网络怎么了"),
        ("昨天晚上的部署", "部署"),
        ("昨天晚上部署失败", "部署失败"),
        ("昨天晚上报错", "报错"),
        ("昨天下午会议", "会议"),
        ("昨天的确认邮件", "确认邮件"),
    ],
)
def test_what_only_follows_a_time_word_is_cut_with_it_and_no_word_in_its_middle(query: str, remaining: str) -> None:
    """Rule time.remaining: see the comments."""
    assert read(query).remaining == remaining


@pytest.mark.parametrize(
    ("query", "start"),
    by_result(
        {
            "2025-12-10": "最近7天前端报错 | 最近7天前端口报错 | 近7天前台订单",
            "2025-11-17": "过去30天前端错误率 | 近30天前10名商品",
            "2025-12-03": "最近两周前端改了什么",
            "2025-12-15": "这两天前端的问题 | 这两天前后端联调",
            "2025-12-14": "近三天前五名",
            "2025-09-18": "最近3个月前缀匹配",
        }
    ),
)
def test_a_span_until_now_may_stand_before_a_word_that_begins_with_before(query: str, start: str) -> None:
    """Rule time.last: 最近7天前端 is the last seven days of 前端, and not seven days ago."""
    assert days(query) == (start, "2025-12-18")


@pytest.mark.parametrize("query", ["脚本周末跑", "版本周五发布", "笔记本周一到货", "原本周三上线"])
def test_a_weekday_after_such_a_word_only_ranks(query: str) -> None:
    """Rule time.weekday: 版本周五 is Friday, and of no week that is said."""
    found = read(query)
    assert not found.is_hard and found.text.startswith("周")


IN_WORDS = {
    # 3天前后端 is 后端 three days ago, and 3天前端口 is 端口
    THREE_DAYS_AGO: """
        3天前后端改了什么 | 3天前端口被占用 | 3天前提交了什么 | 3天前台风来了吗 | 3天前任务失败 | 这三天前 |
        上周日的发布 | 上周日活动 | 上周日程序崩溃
    """,
    ("2025-11-17", "2025-11-18"): "30天以前的日志",
    # 完成本周 is of this week, though 成本 is a word as well; 上周日志 is all of last week, 上周日 its Sunday
    THIS_WEEK: """
        完成本周任务 | 发版本周能上吗 | 这样本周能完成吗 | 论文本周交 | 工作日本周有几天 | 本周边缘节点 | 本周日程
    """,
    THIS_MONTH: "生成本月报告 | 达成本月目标 | 工资本月发了吗 | 本月经费",
    LAST_WEEK: """
        上周边界测试 | 上周报错 | 上周期间 | 所以上周为什么挂了 | 主线上周合并了什么 | 最晚上周交 | 晚上上周的报告 |
        上周日志里的错误 | 上周日报 | 上周日期格式 | 上周天气 | 上周一致性 | 上周一切正常
    """,
    LAST_MONTH: "产线上月停机",
    TWO_DAYS_AGO: "项目前天上线 | 所以前天为什么挂了",
    ("2023-01-01", "2024-01-01"): "项目前年启动 | 近两年前离职的人",
    ("2025-12-14", "2025-12-18"): "最近3天内部署",
    ("2025-12-10", "2025-12-18"): "一周内联系了谁",
    ("2025-12-08", "2025-12-09"): "上周一切到新库",
}


@pytest.mark.parametrize(("query", "span"), by_result(IN_WORDS))
def test_a_time_word_is_read_where_its_characters_could_belong_to_other_words(
    query: str, span: tuple[str, str]
) -> None:
    """Rule time.words: see the comments."""
    assert days(query) == span

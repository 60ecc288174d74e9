"""The sentence shapes from which rules extract memories, in English and Chinese.

One table: a cue, what it makes (type, about whom), how much it weighs and how sure it is. Order matters, the first cue
that fits wins. What a sentence must not be (a question, a wish for this moment, small talk, a supposition) is listed
apart, because one list serves every cue. Confidence is a claim: the gate caps what is extracted at 0.9 with a verbatim
quote, so only what a person plainly stated reaches 0.9, and what an assistant claims stays below it and is reviewed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from memory_anchor.language.bounded import bounded
from memory_anchor.model import MemoryType

About = Literal["user", "agent", "project"]


@dataclass(frozen=True, slots=True)
class Cue:
    """One shape. speakers: who may say it. strip: what of the match is no part of the memory (`remember that`).

    plain: an order that nothing but its wording makes a rule, so no word of the moment (`PASSING`) may stand in it.
    """

    pattern: re.Pattern[str]
    type: MemoryType
    about: About
    importance: float
    confidence: float
    tag: str
    speakers: frozenset[str] = frozenset({"user"})
    strip: bool = False
    plain: bool = False


def _cue(
    pattern: str,
    kind: MemoryType,
    about: About,
    weight: tuple[float, float],
    tag: str,
    *,
    anyone: bool = False,
    strip: bool = False,
    plain: bool = False,
) -> Cue:
    speakers = frozenset({"user", "assistant"}) if anyone else frozenset({"user"})
    return Cue(bounded(pattern, re.I), kind, about, *weight, tag, speakers, strip, plain)


_I = r"(?<![a-z'’])i"
_EN = r"(?<![a-z])"
_END = r"(?![a-z])"
_LIKE = r"(?:prefer|like|love|hate|dislike|enjoy|can(?:no|['’])t stand|want|favou?r|am used to|['’]m used to)"

CUES: tuple[Cue, ...] = (
    # asked to remember
    _cue(
        rf"^(?:please |also |oh,? |and )*(?:remember|note|keep in mind|don['’]t forget|make a note"
        rf"|for (?:the record|future reference))"
        rf"(?: that| this)?{_END}[:,]?\s*",
        MemoryType.FACT,
        "user",
        (0.8, 0.95),
        "asked",
        strip=True,
    ),
    _cue(
        r"^(?:请|帮我|麻烦|你要?)?(?:记住|记下来?|记一下|记得|别忘了|备忘)[:：,，]?\s*",
        MemoryType.FACT,
        "user",
        (0.8, 0.95),
        "asked",
        strip=True,
    ),
    # about the agent
    _cue(
        rf"{_EN}(?:your name is|(?:i['’]ll|i will|let me) call you|you(?:['’]re| are) (?:my|called|named)){_END}",
        MemoryType.FACT,
        "agent",
        (0.7, 0.9),
        "agent",
    ),
    _cue(
        r"(?:你(?:的名字)?(?:就)?叫|以后(?:我)?叫你|你是我的|你的名字是)", MemoryType.FACT, "agent", (0.7, 0.9), "agent"
    ),
    # standing instructions
    _cue(
        rf"{_EN}(?:from now on|going forward|in (?:the )?future|whenever you|every time you|as a rule){_END}",
        MemoryType.INSTRUCTION,
        "project",
        (0.8, 0.92),
        "rule",
    ),
    _cue(
        rf"^(?:please |also |and |so |but |,)*(?:always|never(?! mind)|don['’]t ever|do not ever|make sure (?:to"
        rf"|you) always|you (?:should|must) (?:always|never)){_END}",
        MemoryType.INSTRUCTION,
        "project",
        (0.8, 0.92),
        "rule",
    ),
    _cue(
        rf"^(?:please )?(?:stop|avoid|quit) (?:us|do|add|writ|creat|commit|ask)ing{_END}",
        MemoryType.INSTRUCTION,
        "project",
        (0.7, 0.9),
        "rule",
    ),
    _cue(
        r"^(?:please )?(?:use|write|name|put|keep|run|prefer) .{2,80} (?:instead of|rather than|not|, never) ",
        MemoryType.INSTRUCTION,
        "project",
        (0.7, 0.9),
        "rule",
    ),
    _cue(
        r"(?:从现在起|从今以后|从今天起|今后|以后(?:都|请|要|不要|别|一律|统一|提交|回答|写|每次|改"
        r"|再)?)(?!再说|再看|可能)",
        MemoryType.INSTRUCTION,
        "project",
        (0.8, 0.92),
        "rule",
    ),
    _cue(
        r"^(?:请|你)?(?:总是|始终|一律|务必|千万不要|千万别|绝对不要|绝不|永远不要|不要再|别再|每次都?要?"
        r"|统一(?:用|使用|采用))",
        MemoryType.INSTRUCTION,
        "project",
        (0.8, 0.92),
        "rule",
    ),
    # decisions
    _cue(
        rf"{_EN}(?:we(?:['’]ve| have)?|i(?:['’]ve| have)?|the team(?: has)?) (?:finally |just "
        rf"|all )?(?:decided|agreed|chose|chosen|settled on|picked|opted|ruled out|committed to){_END}",
        MemoryType.DECISION,
        "project",
        (0.7, 0.9),
        "decision",
    ),
    _cue(
        rf"{_EN}(?:(?:we|i)(?:['’]ll| will|['’]re going to| are going to)? (?:go|going|stick|went) with"
        rf"|let['’]s (?:go with|stick with|use|switch to|drop)|decision:){_END}",
        MemoryType.DECISION,
        "project",
        (0.65, 0.9),
        "decision",
    ),
    _cue(
        r"(?:我们?(?:已经|最终|最后)?(?:决定|选定|敲定|商定|约定|选了|选择了)|(?:最终|最后)(?:决定|选|定)"
        r"|就(?:用|选|定)|方案(?:定为|选|就)|决定(?:用|采用|改|不|把|先)|结论是)",
        MemoryType.DECISION,
        "project",
        (0.7, 0.9),
        "decision",
    ),
    # preferences
    _cue(
        rf"{_I}(?:['’]d| would|['’]ve| have| do| really| always| usually| also| much| generally| strongly"
        rf"| absolutely| don['’]t| do not| never){{0,3}} {_LIKE}{_END}",
        MemoryType.PREFERENCE,
        "user",
        (0.7, 0.92),
        "preference",
    ),
    _cue(
        rf"{_EN}my (?:all-time |personal |absolute )?(?:favou?rite|preferred|preference|go-to){_END}",
        MemoryType.PREFERENCE,
        "user",
        (0.7, 0.92),
        "preference",
    ),
    _cue(
        rf"{_I} (?:always|usually|typically|normally|never|often|no longer|don['’]t|do not|stopped|quit"
        rf"|gave up) (?:use|drink|eat|work|write|run|wear|read|watch|go|take|say|using|drinking|eating|smoking"
        rf"|working|smoke|drive){_END}",
        MemoryType.PREFERENCE,
        "user",
        (0.65, 0.9),
        "habit",
    ),
    _cue(
        r"我(?:个人|一直|平时|还是|也|更|最|比较|很|特别|真的|非常|都|不太|不|其实|现在){0,3}(?:喜欢|偏好"
        r"|偏爱|讨厌|习惯|爱(?!人|好)|倾向|受不了|反感|希望你|想要你)",
        MemoryType.PREFERENCE,
        "user",
        (0.7, 0.92),
        "preference",
    ),
    _cue(
        r"我(?:已经|现在|早就)?(?:不再|戒|改用|改喝|改吃|换成|改成)|我(?:从不|从来不|一般|通常|总是|每天"
        r"|每周|每次)(?!来)",
        MemoryType.PREFERENCE,
        "user",
        (0.65, 0.9),
        "habit",
    ),
    # facts about the user
    _cue(
        rf"{_EN}my (?:\w+ ){{0,2}}?(?:name|birthday|wife|husband|partner|son|daughter|mother|father|mom|dad"
        rf"|brother|sister|dog|cat|boss|manager|team|job|company|employer|email|time ?zone|city|hometown"
        rf"|address|phone|laptop|editor|keyboard|car|degree|major|hobby|goal|deadline|doctor|flight"
        rf"|birthplace|age){_END}(?:['’]s)?[^.?!]{{0,40}} (?:is|are|was|has|have|works?|lives?|started|will"
        rf"|turns?){_END}",
        MemoryType.FACT,
        "user",
        (0.6, 0.9),
        "personal",
    ),
    _cue(
        rf"{_I}(?:['’]m| am) (?:a|an|the|allergic|vegetarian|vegan|from|based|married|single|divorced"
        rf"|left-handed|colou?r-?blind|deaf|diabetic|pregnant|retired|learning|studying|working (?:at|for"
        rf"|as|on|in)|living|responsible|in charge|moving to|\d+ years old|called|named|new to|afraid of"
        rf"|lactose|gluten){_END}",
        MemoryType.FACT,
        "user",
        (0.6, 0.9),
        "personal",
    ),
    _cue(
        rf"{_I}(?:['’]ve| have| just| recently| now| currently| also)* (?:live|lived|work|worked|study"
        rf"|studied|speak|own|moved|grew up|was born|graduated|joined|left|quit|adopted|bought|started (?:a"
        rf"|as|at|learning|working)|switched|got (?:a|married|engaged|divorced|promoted)|have (?:a|an|two"
        rf"|three|four|\d+|no) (?:\w+ )?(?:kid|child|dog|cat|son|daughter|brother|sister|allerg|peanut"
        rf"|degree|phd|car|bike|garden|meeting every)\w*)",
        MemoryType.FACT,
        "user",
        (0.6, 0.9),
        "personal",
    ),
    _cue(
        r"我(?:叫|住在?|来自|今年|出生|毕业于|毕业|老家|对.{1,12}过敏|的(?:名字|生日|妻子|老婆|丈夫|老公"
        r"|儿子|女儿|妈妈|爸爸|哥哥|姐姐|弟弟|妹妹|狗|猫|老板|经理|团队|工作|公司|邮箱|时区|家乡|地址|电脑"
        r"|编辑器|键盘|车|专业|爱好|目标|截止|宠物|手机|孩子).{0,12}(?:是|叫|在|有|用|要|从))",
        MemoryType.FACT,
        "user",
        (0.6, 0.9),
        "personal",
    ),
    _cue(
        r"我(?:现在|目前|刚|最近|已经|上个?月|去年|今年|以前|正在|也|还)?(?:是(?:一名|一个|个|位|做|从事"
        r"|素食|左撇子|色盲|\S{1,8}(?:师|员|生|人|者|工))|在[^，。]{1,16}(?:工作|上班|读书|上学|学习|任职"
        r"|做)|负责|搬到|搬去|换了工作|辞职|离职|入职|加入|结婚|离婚|养了|买了|正在学|在学|会说|有(?:一|两"
        r"|三|个|[0-9])\S{0,3}(?:个|只|条|辆|孩|儿|女|狗|猫))",
        MemoryType.FACT,
        "user",
        (0.6, 0.9),
        "personal",
    ),
    # causes and repairs: an assistant's word counts, as a claim
    _cue(
        rf"{_EN}(?:root cause (?:is|was)|the (?:\w+ ){{0,4}}?(?:bug|issue|problem|error|failure|crash|leak"
        rf"|regression|flak\w+)(?: \w+){{0,4}}? (?:was|is) (?:caused by|due to|because|that|fixed by)"
        rf"|turn(?:s|ed) out (?:that )?|fixed (?:the |a |an |it by |by ))",
        MemoryType.BUGFIX,
        "project",
        (0.6, 0.88),
        "bugfix",
        anyone=True,
    ),
    _cue(
        r"(?:根因|根本原因|(?:问题|错误|故障|崩溃|bug|报错)(?:的)?(?:原因)?(?:是|出在|在于)|原来是|修复了"
        r"|修好了|解决了|解决办法是|解决方法是)",
        MemoryType.BUGFIX,
        "project",
        (0.6, 0.88),
        "bugfix",
        anyone=True,
    ),
    # how things are done
    _cue(
        rf"(?:{_EN}(?:to (?:deploy|release|build|test|publish|roll back|migrate|set up|install|start|run"
        rf"|debug)\b[^,.]{{0,40}},? (?:run|use|you|first|we|call|execute|push|merge|tag)"
        rf"|before (?:you )?(?:merg|commit|deploy|push|releas)\w*,? (?:always |please |you |we |must |run "
        rf"|make )|(?:release|deploy(?:ment)?|review|onboarding|build) (?:process|procedure|workflow"
        rf"|steps?) (?:is|are)){_END})",
        MemoryType.WORKFLOW,
        "project",
        (0.6, 0.9),
        "workflow",
    ),
    _cue(
        r"(?:(?:发布|部署|上线|测试|构建|回滚|评审|迁移)(?:流程|步骤|的方法|方式)(?:是|为|如下|:|：)"
        r"|(?:提交|合并|发布|部署|上线|推送)(?:代码)?(?:之前|前)(?:要|必须|先|一定|记得|都)"
        r"|先[^，。]{2,30}(?:，)?(?:再|然后|最后)[^，。]{2,})",
        MemoryType.WORKFLOW,
        "project",
        (0.6, 0.9),
        "workflow",
    ),
    # plain rules: one that speaks of all or of a limit is surer than an order, which waits for review
    _cue(
        r"^(?:please |also |and |so |but |,)*(?:(?:all|every|each|any) (?!(?:you|we|i|of|that|this|the|time)(?![a-z]))"
        r"(?:[\w/-]+ ){1,4}?(?:must|needs?|should|ha(?:s|ve) to|requires?)(?: not| never| always)? \w"
        r"|(?!(?:it|there|this|that|he|she|they|i)(?![a-z]))(?:[\w/-]+ ){1,4}?must(?: not|n['’]t) \w"
        r"|must not \w+ \S|keep .{2,60} (?:under|below|within|at most|less than|shorter than) )",
        MemoryType.INSTRUCTION,
        "project",
        (0.7, 0.9),
        "rule",
        plain=True,
    ),
    _cue(
        r"^(?:请|大家)?(?:禁止|严禁|不准|不得|不许)\S|(?<![我不])(?<!是否)必须(?!的)|一律(?!平等)|(?:不要|别|不得|不能|不应该?)超过"
        r"|^(?:请|大家)?(?:只|都)?用.{1,30}[,，、]\s*(?:别|不要|不)用",
        MemoryType.INSTRUCTION,
        "project",
        (0.7, 0.9),
        "rule",
        plain=True,
    ),
    _cue(
        r"^(?:please |also |and |so |but |,)*(?:(?:do not|don['’]t) (?!(?:worry|forget|know|think|mind|bother|panic"
        r"|hesitate|stop|be|you|we|i|they|need|have|get|give|feel|see|want|like|understand|care|even|let)(?![a-z]))"
        r"\w+ \S"
        r"|keep (?!(?:going|it|on|trying|me|us|up|in|calm|an|at|that|this|\w+ing)(?![a-z]))[^\s;]+ \w"
        r"|use (?!(?:the|an?|your|strict|it|that)(?![a-z]))[^\s:;]+(?:[ .!]|$)"
        r"|use (?:the|an?) .{2,60} (?:for|in|when) )",
        MemoryType.INSTRUCTION,
        "project",
        (0.6, 0.85),
        "rule",
        plain=True,
    ),
    _cue(
        r"^(?:请|大家)?(?:不要|别(?![的人名处墅扭致称提]))"
        r"(?!担心|着急|急|客气|紧张|停|忘|管|怕|误会|生气|问|说|紧|闹|走|了|动[。!！]|动$)[^\s，,。]{1,2}\s?\S",
        MemoryType.INSTRUCTION,
        "project",
        (0.6, 0.85),
        "rule",
        plain=True,
    ),
    # facts about the project
    _cue(
        rf"{_EN}(?:we(?:['’]re| are)? (?:now |currently |still |also |only |no longer |all )?(?:use|using"
        rf"|run|running|deploy|host|store|ship|support|target|require|moved|migrated|switched|upgraded"
        rf"|replaced|dropped|stopped|rely|have \d+|keep|don['’]t (?:use|support))|(?:our|the"
        rf"|this) (?:\w+[ -]){{0,4}}?(?:project|repo|repository|service|backend|frontend|server|database"
        rf"|api|app|pipeline|team|cluster|build|deployment|staging|production|ci|tests?|release|codebase"
        rf"|limit|timeout|port|password policy|schema|branch|sprint|standup|deadline|budget|customer"
        rf"|office)(?: \w+){{0,3}}? (?:is|are|uses?|runs?|lives?|has|have|takes?|must|requires?|needs?"
        rf"|supports?|starts?|consists?|listens?|expires?|was|were|moved|will be|belongs?)){_END}",
        MemoryType.FACT,
        "project",
        (0.55, 0.9),
        "project",
    ),
    _cue(
        r"(?:我们(?:现在|目前|已经|一直|都|还|只|统一|团队|公司|组|项目){0,2}(?:用|使用|采用|改用|换成"
        r"|迁移|部署|支持|不用|不再|依赖|运行|要求|规定|有\S{0,3}[个台名条])|(?:本|这个|我们的?|该"
        r"|整个)?(?:项目|仓库|服务|后端|前端|服务器|数据库|接口|应用|流水线|团队|集群|分支|版本|测试|构建"
        r"|部署|生产环境|测试环境|办公室|例会|周会|站会|截止日期|发布日期|预算|客户)[^，。？?]{0,16}(?:是"
        r"|用|在|有|需要|必须|为|采用|使用|支持|运行|跑|位于|定在|改到|改成|迁移|搬到|不再))",
        MemoryType.FACT,
        "project",
        (0.55, 0.9),
        "project",
    ),
    # feelings
    _cue(
        rf"{_I}(?:['’]m| am| feel| felt)(?: so| really| very| quite| a bit| pretty| extremely| just"
        rf"| feeling)* (?:happy|glad|thrilled|excited|proud|relieved|grateful|satisfied|delighted"
        rf"|frustrated|annoyed|angry|upset|sad|worried|anxious|nervous|stressed|exhausted|tired"
        rf"|disappointed|overwhelmed|burn(?:ed|t) out|scared|lonely|depressed){_END}",
        MemoryType.EMOTION,
        "user",
        (0.4, 0.9),
        "emotion",
    ),
    _cue(
        r"我(?:真的|真是|今天|最近|现在|有点|有些|很|非常|特别|太|好|感到|觉得|比较|挺){1,3}(?:开心|高兴"
        r"|兴奋|自豪|欣慰|感激|满意|沮丧|烦|生气|难过|伤心|担心|焦虑|紧张|压力|疲惫|累|失望|崩溃|害怕|孤独"
        r"|郁闷)",
        MemoryType.EMOTION,
        "user",
        (0.4, 0.9),
        "emotion",
    ),
)

GLAD = bounded(
    r"(?<![a-z])(?:happy|glad|thrilled|excited|proud|relieved|grateful|satisfied|delighted|love|enjoy|great"
    r"|fantastic)(?![a-z])|开心|高兴|兴奋|自豪|欣慰|感激|满意|喜欢|热爱",
    re.I,
)
SORRY = bounded(
    r"(?<![a-z])(?:frustrated|annoyed|angry|upset|sad|worried|anxious|nervous|stressed|exhausted|tired"
    r"|disappointed|overwhelmed|burn(?:ed|t) out|scared|lonely|depressed|hate|can['’]t stand)(?![a-z])|沮丧|烦"
    r"|生气|难过|伤心|担心|焦虑|紧张|压力|疲惫|累|失望|崩溃|害怕|孤独|郁闷|讨厌|受不了|反感",
    re.I,
)

QUESTION = bounded(
    r"[?？]\s*$|^(?:what|which|who|whom|whose|when|where|why|how|is|are|am|was|were|do|does|did|can|could"
    r"|would|will|should|shall|may|have|has)(?:n['’]t)? (?:i|you|we|they|he|she|it|the|this|that|there|these"
    r"|those|my|your|our|to|much|many|about)(?![a-z])|(?:吗|呢|么)\s*$|^(?:为什么|怎么|如何|什么|哪个|哪里"
    r"|能不能|可不可以|是不是|有没有|要不要)"
    r"|^(?:and |so |but )?(?:which|what|who|whose)(?![a-z’'])[^.!。！]*$"
    r"|(?:^|[,;:] )(?:which|what|when|where|how)(?: \w+){0,2} (?:do|does|did|should|shall|will|can|is|are)"
    r" (?:we|i|it|they|you|the|our|my|this)(?![a-z])[^.!。！]*$"
    r"|(?:(?<!没)(?<!没有)(?<!无论)(?<!不管)什么(?!(?:都|也)(?!行|可以|好|成)|的)|哪(?!怕|[个里种些儿]?[都也]))[^。！.!；]*$",
    re.I,
)
"""Asked, also where the mark is left out: a word that asks, in a sentence that nothing closes."""
MOMENT = bounded(
    r"(?<![a-z])(?:right now|at the moment|for now|just now|this time|in a (?:sec|minute|moment)|wait"
    r"|hold on|brb|one sec|real quick|this (?:file|line|function|error|diff|output|test|one|message|commit"
    r"|screenshot)"
    r"|(?:like|love|hate|prefer|want|use|do|try|fix|run|see) (?:this|that|these|those|it)(?: one)?(?:[.,!]|$))(?![a-z])"
    r"|刚才|刚刚|这次|这一?(?:行|段|个文件|个函数|个报错)|等一下|稍等|等等|先这样|暂时|(?:喜欢|用|要|试"
    r"|看看?|改)(?:这个|那个|这样|那样|它)[。！!]?$",
    re.I,
)
PASSING = bounded(
    r"(?<![a-z])(?:now|these|those|today|tonight|tomorrow|yet|first|then|next|again|until|just|here|above|below"
    r"|other|else|both|option|previous|current|currently|anymore|for a (?:moment|while|bit)"
    r"|this(?! (?:project|repo|repository|codebase"
    r"|team)(?![a-z]))|(?:it|them|that|one)(?=[.,;!]|$))(?![a-z])"
    r"|(?<![优预事首])先|这(?!个?(?:项目|仓库|团队))|那|别的|其[他它]|暂时|现在|今天|明天"
    r"|刚|它|上面|下面|目前|我(?!们)|吧[。！!]*$|了[。！!]*$",
    re.I,
)
"""Words by which an order is for the moment or for the thing at hand, and no rule."""
SUPPOSED = bounded(
    r"(?<![a-z])(?:if i|if we|if you|maybe|perhaps|might|probably|not sure|i guess|i think so|what if|suppose"
    r"|imagine|let['’]s say|hypothetically|could be|wonder|for example|e\.g\.|undecided"
    r"|(?:have|has)(?:n['’]t| not)(?: \w+){0,2}? (?:decided|settled|chosen|agreed|picked)|yet to (?:decide|choose|pick)"
    r"|not(?: yet)? (?:decided|settled|agreed))(?![a-z])|如果|假如|假设|也许"
    r"|可能|大概|好像|或许|万一|比如|例如|不确定|说不定|是否"
    r"|(?:没有?|尚未)(?:最终|完全|真正)?(?:决定|选定|敲定|确定|想好|商量好|定(?![义制时位期点向]))",
    re.I,
)
"""Supposed, or not decided yet."""
BROKEN = bounded(
    r"(?<![a-z])(?:(?:is|are|was|were|went|['’]s|keeps?)(?: \w+){0,2}? (?:broken|down|failing|crashing|stuck|offline)"
    r"|(?:build|ci|pipeline|tests?|suite|checks?|main|master|branch)(?: \w+)? (?:is|are)(?: \w+)? red)"
    r"(?: (?:again|now|today|on \w+))?\s*(?:[.,;!]|$| (?:because|since|due))|(?<![a-z])again[.!]*$"
    r"|(?:挂了|挂掉了|报错了?|有问题|崩了|坏了|不通过)[。.！!，,]*$",
    re.I,
)
"""How something is doing at the moment; a fact is what still holds tomorrow."""
ERRAND = bounded(
    r"^(?:please |now |then |ok(?:ay)?,? |and |also |next,? |so )*(?:can|could|would|will) you"
    r"|^(?:i(?:['’]d| would) (?:like|love) (?:you )?to|i (?:want|need) (?:you )?to (?!always|never)"
    r"|i want (?:a|an|the) |help me|show me|tell me|give me|let me|let['’]s (?:see|look|try|check|start"
    r"|begin|go (?:back|over|ahead)|do|move on|continue))"
    r"|^(?:请|麻烦)?(?:帮我|给我|帮忙|让我|我想(?:要|让|问|知道|看)|我要(?:你|看)|看一下|看看|试试|继续|开始)",
    re.I,
)
SMALL_TALK = bounded(
    r"^(?:hi|hey|hello|thanks?(?: you)?|thx|ok(?:ay)?|sure|yes|yep|yeah|no|nope|great|nice|cool|perfect"
    r"|awesome|good (?:morning|night|job|idea)|lgtm|sounds good|got it|makes sense|bye|lol|haha\w*|wow"
    r"|done|please continue|go (?:on|ahead)|continue)(?:[\s,!.]+(?:thanks?(?: you)?|so much|a lot|please"
    r"|there|again|everyone|all|claude|man))*[\s!.]*$"
    r"|^(?:你好|您好|嗨|谢谢|多谢|好的?|嗯+|行|可以|没问题|是的?|对的?|不是|收到|明白|知道了|辛苦了|早上好"
    r"|晚安|再见|哈哈+|太好了|不错|继续|赞)[了啊吧呀哈～~!！。,，\s]*$",
    re.I,
)
WHICH = bounded(
    r"(?<![a-z])(?:which|what(?:['’]s| is| are)?|who|where|when|how (?:often|many|long|much)|do you prefer"
    r"|would you (?:like|prefer)|should (?:we|i) use)(?![a-z])|哪个|哪种|什么|哪里|多久|几点|多少|谁"
    r"|喜欢.{0,12}还是|用.{0,12}还是",
    re.I,
)

FIRST_PERSON = bounded(r"(?<![a-z])(?:i|my|we|our)(?![a-z])|我", re.I)
ONE_PERSON = bounded(r"(?<![a-z])(?:i|my)(?![a-z])|我(?!们)", re.I)
QUOTATION = bounded(r"“[^“”]{1,2000}”|「[^「」]{1,2000}」|『[^『』]{1,2000}』|(?<!\w)\"(?=\S)[^\"]{1,2000}\"(?!\w)")
REPORT = bounded(
    r"(?!(?:as |like )?(?:i|we)(?![a-z])|我们?的?(?:想|要|再|也|意思是|是|刚才|之前)?(?:说|原话))"
    r"(?:\S.{0,40}(?<![a-z])(?:wrote|says?|said)|\S.{0,20}(?:邮件|原话|说道?|写道))[:：]"
    r"|(?:from|subject|发件人|主题)[:：]",
    re.I,
)
"""How a message opens that tells what somebody else said."""
TASK = bounded(
    r"(?:please |can you |could you )?(?:translate|proofread|rephrase|paraphrase|rewrite|summari[sz]e|fix the typo"
    r"|write an?)(?![a-z])"
    r"|[^。！？\n:：]{0,12}(?:翻译|润色|改写)(?:成|为|一下|下面|以下|这|[:：，,]|$)|[^。！？\n:：]{0,6}总结(?:一下|下面|以下)",
    re.I | re.M,
)
"""How a message opens that brings text to work on."""

RIVALS: tuple[tuple[str, ...], ...] = (
    ("npm", "pnpm", "yarn", "bun"),
    ("pip", "uv", "poetry", "conda", "pipenv", "pdm"),
    ("pytest", "unittest", "nose"),
    ("jest", "vitest", "mocha"),
    ("black", "ruff", "yapf", "autopep8"),
    ("eslint", "biome", "standard"),
    ("docker", "podman", "nerdctl"),
    ("make", "just", "task"),
    ("gradle", "mvn", "bazel"),
    ("vim", "nvim", "emacs", "nano"),
    ("webpack", "vite", "rollup", "esbuild"),
)
"""Commands that stand for one another: using one where another was expected is news."""

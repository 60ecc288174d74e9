"""The words that `slots` reads: change, denial, opposites, roles, in English and Chinese side by side.

Lists that a person can check; what they weigh is learned (`ingest/pair_model`).
"""

from __future__ import annotations

from memory_anchor.language.bounded import bounded
from memory_anchor.language.words import listed, sides

CJK = "\u3400-\u4dbf\u4e00-\u9fff"
CLAUSE = bounded(r"[,;!?，；。！？、\n]|\.(?!\d)|(?<![a-z])(?:but|because|so that)(?![a-z])|但是?|因为")

STOPS = frozenset(listed("left_out", "slots"))

CHANGE = bounded(
    r"(?<![a-z])(?:yesterday|last (?:night|week|month|year)|now|no longer|not any ?more|anymore"
    r"|from now on|since (?:then|last|yesterday|today"
    r"|this)|as of|used to"
    r"|formerly|previously|recently|moved (?:to|from)|moved?(?: \w+){0,3} (?:to|from)|switch(?:ed"
    r"|ing)? (?:\w+ ){0,4}?(?:to|from|over)|switched"
    r"|chang(?:ed|ing) (?:\w+ ){0,4}?(?:to|from)|changed|replac(?:ed|ing|es)|migrat(?:ed|ing)|upgraded"
    r"|downgraded|renamed|postponed"
    r"|rescheduled|raised|lowered|increased|reduced|decreased|grew|shrank|dropped|stopped|quit|gave up"
    r"|given up|left|instead of|since (?:\w+ )?(?:january|february|march|april|may|june|july|august|september|october"
    r"|november|december|spring|summer|autumn|monday|(?:19|20)\d\d)"
    r"|rather than|became|has become|(?:has|have|had|was|were) (?:been |now )?turned o(?:n|ff)|forgotten"
    r"|divorced|deprecated|retired|superseded|updated to|(?:user|he|she|i) (?:is|am) done with|back to)(?![a-z])"
    r"|(?:昨天|上周|上个?月|去年)[^，。]{1,12}了|不再|改名|移到|改用|改为|改成|改由|改到|改存|改喝|改吃|改在|换成"
    r"|换到|换了|换为|搬到|搬去|搬家|搬了|迁移|迁到"
    r"|升级|降级|现在|如今|目前已|从现在起|以后|今后"
    r"|已经不|已不|已停|已弃|停用|弃用|废弃|取消|推迟|提前到|延期|提高到|降低到|调整|增加到|减少到|扩大到"
    r"|缩短|离开|离职|辞职|辞去|辞掉|放弃了?|戒了|戒掉|不喜欢了|替换|代替|取代|更新为"
    r"|变成|变为|转到|转为|离婚|又开始|不怕了|忘了|不[^，。不了]{1,8}了(?!解)|从[^，。]{1,6}起|(?:下|上)调|调(?:到|至|为|高|低)"
    r"|最近(?:开始|才|又|不)"
)
"""Words by which a statement says itself that something changed; only these let rules supersede."""
CHANGED_TO = bounded(
    r"(?<![a-z])(?:now|(?:moved?|switch(?:ed|ing)?|chang(?:ed|ing)|migrat(?:ed|ing)|renamed|raised|lowered|increased"
    r"|reduced|decreased|postponed|rescheduled)(?: \w+){0,4}? to)(?![a-z])"
    r"|现在|[改迁换搬](?:移|名)?[到为成叫]|(?:提高|降低|增加|减少|推迟|延期|提前|调整?|扩大|缩短)[到为至]"
)
"""Verbs of change as far as what follows is the new value: said again with another value, they change it again."""
DENY = bounded(
    r"(?<![a-z])(?:not|no|never|none|without|cannot|nor|neither|no longer|stopped|quit|stop|avoid"
    r"|[a-z]+n['’]t|dont|doesnt|forbidden|refuses?)(?![a-z])"
    r"|从不|不再|不能|不会|不要|不用|不需要|不必|不是|不得|不许|无需|没有|没|禁止|严禁|未|别|勿|戒|拒绝"
    r"|不(?!但|仅|过[，,是]|同|错|断|久|如|管|论|稳定)"
)
IMPLIED = bounded(
    r"(?<![a-z])(?:allerg(?:y|ic|ies)|lack(?:s|ing)?|missing|absent|except(?:ion)?|exclud(?:es?|ed|ing)|fails?"
    r"|unable|impossible|un(?!der|it|i[fqov]|ion|til|less|pack|lock|do)[a-z]{3,}(?:ed|able))(?![a-z])|过敏|缺少|缺乏|除外|无法"
)
"""Words that deny by their meaning; beside a denial in words they are no contradiction."""
BOUND = bounded(
    r"不(?:能|得|可|会)?(?:超过|低于|少于|多于|大于|小于|早于|晚于)|no (?:more|less|fewer|later"
    r"|earlier) than|not (?:more|less"
    r"|exceed)|至多|至少|at (?:most|least)|不稳定|flaky"
)
CONTRAST = bounded(
    r"(?<![a-z])(?:over|rather than|instead of|(?:and |but )?not with|and not|but not|than)(?![a-z])\s(?!\d)"
    r"|[,，]\s?(?:not|never|no)(?![a-z])\s"
    r"|[,，](?:不用|不要|不是|不能用|不能|禁止|而不是|而非|别用|不)|而不是|而非|(?:代替|取代|替代)"
)
FROM = bounded(
    r"(?<![a-z])from (?P<en>[\w.#+-]+(?: [\w.#+-]+)?) (?:to|into)(?![a-z])|从(?P<zh>[^，。,]{1,16}?)(?:换|改|迁"
    r"|搬|升|转|变|提高|降低|降到|增加|增至|减少|减到|调整|扩大|缩短)|(?:left|replac(?:ed|ing)(?: his| her"
    r"| my| the| our)?"
    r"|stopped using|dropped|quit)\s?(?P<old>[a-z0-9_.#+-]+(?: \d+)?)|(?:离开|辞掉|辞去|告别"
    r"|放弃)了?(?P<left>[^，。,]{1,8})|把(?P<ba>[^，。,]{1,12}?)(?:换|改|升|降)"
)

VERBS = bounded(r"^[\s用要能会再是有需得许使再让]{0,3}")

OPPOSITES = sides("opposites", between="/", within="|")
"""Words that exclude each other in one slot, both languages side by side."""
RULE_WORDS = bounded(
    r"(?<![a-z])(?:please|always|never|avoid|must|not|don['’]t)(?![a-z])|不要|禁止|避免|不得|严禁|务必|一律|必须"
)
ASIDES = sides("asides", between="|", within="=")
"""Words that say which of several things is meant: another one is another slot, unless it is the whole difference."""
PREDICATE = bounded(
    r"(?<![a-z])(?:is|are|was|were|has|have|had|must|should|shall|can|may|will|needs?|runs?|takes?|uses?"
    r"|lives?|works?|prefers?|likes?|loves?"
    r"|hates?|wants?|supports?|costs?|speaks?|owns?|drives?|plays?|studies|studied|moved|left|joined"
    r"|starts?|ends?|opens?|closes?|happens?|contains?|holds?"
    r"|returns?|does|did|do|got|gets?|became|becomes|made|makes|eats?|drinks?|writes?|wrote|built|builds"
    r"|sends?|keeps?)(?![a-z])"
    r"|[是在有用对由每喜偏必需要住会能支开关保采最跑存放做养吃喝说写设属位来去上装选学教买卖打怕爱恨讨搬换改叫]"
)
PLACED = bounded(
    r"(?<![a-z])(?:(?:is|are|was|were|has|have|had) )?(?:moved|relocated|moving) to(?![a-z])"
    r"|(?<![a-z])(?:resides?|(?:is|are|was|were) (?:now )?(?:based|located|living)|settled) in(?![a-z])"
    r"|(?:已经?)?(?:搬|迁|移居)(?:家)?[到去至]了?|定居在?|住在"
)
"""Ways to say where something is now; moving somewhere and living there state one slot."""
NUMERAL = bounded(r"[0-9零一二两三四五六七八九十百千万]")
COPULAS = frozenset(("is", "are", "was", "were", "是"))
PRONOUNS = frozenset("我你他她它")
SINGLE = bounded(
    r"(?:is|are|was|were|lives?|works?|located|stored|kept|hosted|deployed|written|built|scheduled|called"
    r"|named|born|caused)"
    r"|[是在由住位属叫]"
)
"""Predicates that hold one value at a time: another value in the same place is a contradiction."""
MANY = bounded(
    r"^(?:please )?(?:always|never|avoid|do not|don['’]t|no)(?![a-z])"
    r"|^(?:不要|禁止|避免|不得|严禁|别)|里(?:不要|不能|禁止)"
    r"|(?<![a-z])(?:supports?|needs?|requires?|reads|writes|publishes|stores|consumes|imports|includes?"
    r"|allergic)(?![a-z])"
    r"|支持|需要|都要|过敏|写入|发布到|读取"
)
"""Predicates and rules that hold many values at a time: another one beside the first contradicts nothing."""
ONLY = bounded(r"(?<![a-z])(?:only|exactly|solely|just)(?![a-z])|只|仅|唯一")
"""What makes a value the single one, whatever the predicate."""
EXCLUSIVE = bounded(
    r"(?<![a-z])(?:owners?|owns?|leads?|maintain(?:s|er)|responsible|in charge|manages|manager of"
    r"|approves?|on call|boss|cto|ceo|head of)(?![a-z])|负责|主管|批准|审批|值班|队长|组长|总监"
)
"""Roles that one holds alone: another holder is a contradiction, not another fact."""


NAME = bounded(
    r"(?<![A-Za-z0-9_])(?:[A-Z][a-z]*[A-Z0-9][A-Za-z0-9]*|[A-Z]{2,}[a-z0-9]*|[A-Z][a-z]+|[a-z]+[A-Z]\w*"
    r"|\w+\.(?:com|io|dev|js|py))(?![A-Za-z0-9_])"
)
ASCII_WORD = bounded(r"[A-Za-z][A-Za-z0-9_.+#-]*[A-Za-z0-9]")
NOT_A_NAME = frozenset(listed("left_out", "names"))

"""What in a conversation is worth remembering: its sentences, and choices that go against a habit.

A gap is what somebody usually chooses against what the tool calls of a conversation show. A habit is a line of the
profile that says what is usual and names the value; a choice is a short value that a call was given by name. Both are
about the same thing where they share a word, or are near in meaning (the habit may be Chinese and the tool English).
Rejected: a memory for each call; five calls of one turn are one change of taste.

How much a sentence is worth remembering, and as what, say small linear models. What they see is the sentence's
vector, centred, and a few figures of its form (who speaks, length, a question, names and numbers, closed classes of
words such as "must" or "because"). No list of phrases: on dialogues that nobody here wrote, cue lists kept half of
the rules and two sentences of noise for each. Short messages have numbers of their own, which also see the message
around the sentence: trained together with lectures, a tenth of what is worth keeping in a working session was lost. A
third set reads the form alone: it picks the sentences that are embedded at all, and stands in where no embedder runs.
The numbers stand in `worth.json`; `scripts/train_capture.py` makes them and says from what.

Invariant: deterministic; nothing of a sentence is stored here.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.ingest.messages import Message
from memory_anchor.json_values import Record, items, number, parsed, record, text
from memory_anchor.language.bounded import bounded
from memory_anchor.language.terms import is_chinese

if TYPE_CHECKING:
    from memory_anchor.ports import Matrix

GREATEST_GAP = 0.6
LINE_WIDTH = 300
HABITS_MAX = 24
"""Habits, and choices of a conversation, that are compared."""
ABOUT_THE_SAME, LEAD = 0.34, 0.1
"""Centred cosine from which a habit and a choice are about the same thing, and how far the next one lies behind
(a Chinese habit over English calls: .35 against .17; unrelated ones reach .33, close together)."""
_HABIT = bounded(
    r"(?<![a-z])(?:usually|normally|always|mostly|often|prefers?|likes?|loves?|favou?rite|tends)(?![a-z])"
    r"|通常|一般|总是|平时|经常|常用|喜欢|偏好|偏爱|习惯|最爱",
    re.I,
)
_CHOICE = re.compile(r"[^\s/\\{}<>=]{2,24}(?: [^\s/\\{}<>=]{2,24}){0,2}")
_VALUE = bounded(r"[A-Za-z][\w+#]*(?:[.-][\w+#]+)*|(?<=[「“'\"])[^「」“”'\"]{1,24}(?=[」”'\"])")


@dataclass(frozen=True, slots=True)
class OtherChoice:
    """A habit, and what was chosen instead: argument `name` of a tool was given `value`. size: of the gap, 0 to 1."""

    habit: str
    tool: str
    name: str
    value: str
    size: float
    seq: int


def deviation(other: int, expected: int) -> float:
    """Return how far counts of something else lie from what was expected: half of the greatest where both are alike."""
    return round(GREATEST_GAP * other / (other + expected), 2)


def other_choices(
    messages: Sequence[Message], known: Sequence[str], rows: Callable[[Sequence[str]], Matrix | None] | None
) -> list[OtherChoice]:
    """Return for each habit among the known texts the choice that deviates from it the most clearly, if any."""
    habits = [text for text in known if _HABIT.search(text) and len(text) <= LINE_WIDTH][:HABITS_MAX]
    chosen, seqs = _choices(messages) if habits else (Counter[tuple[str, str, str]](), {})
    options = list(chosen)[:HABITS_MAX]
    if not options:
        return []
    told = [" ".join([*_parts(tool), *_parts(name), value]) for tool, name, value in options]
    made = rows([*habits, *told]) if rows is not None else None
    found = []
    for at, habit in enumerate(habits):
        usual = {word.lower() for word in _VALUE.findall(_HABIT.split(habit, maxsplit=1)[-1])}
        as_usual = {one for one in options if one[2].lower() in usual}
        near: list[tuple[float, tuple[str, str, str]]] = []
        for row, one in enumerate(options if usual else ()):
            if one in as_usual:
                continue
            shares = {*_parts(one[0]), *_parts(one[1])} & usual or any(one[:2] == other[:2] for other in as_usual)
            cosine = float(made[at] @ made[len(habits) + row]) if made is not None else 0.0
            near.append((1.0 if shares else cosine, one))
        near.sort(key=lambda pair: -pair[0])
        leads = len(near) < 2 or near[0][0] - near[1][0] >= LEAD or near[0][0] == 1.0
        if near and near[0][0] >= ABOUT_THE_SAME and leads:
            best = near[0][1]
            size = deviation(chosen[best], sum(chosen[one] for one in as_usual if one[:2] == best[:2]))
            found.append(OtherChoice(habit, *best, size, seqs[best]))
    return found


def _choices(messages: Sequence[Message]) -> tuple[Counter[tuple[str, str, str]], dict[tuple[str, str, str], int]]:
    """Return (tool, argument, value) with how often and where last."""
    chosen: Counter[tuple[str, str, str]] = Counter()
    seqs: dict[tuple[str, str, str], int] = {}
    for message in messages:
        for call in message.tool_calls:
            for name, value in call.arguments.items():
                if isinstance(value, str) and _CHOICE.fullmatch(value):
                    choice = (call.name, name, value)
                    chosen[choice] += 1
                    seqs[choice] = message.seq
    return chosen, seqs


def _parts(name: str) -> list[str]:
    return [word for word in re.split(r"[_\W]+", name.lower()) if word]


NUMBERS = Path(__file__).with_name("worth.json")
KINDS = ("rule", "decision", "fix", "fact", "task", "person", "preference", "emotion")
"""What a sentence worth keeping may be."""


ROW_SCALE = 8.0
"""A row has length 1; so its parts weigh like figures of form."""
ASSISTANT_SCALE = 0.7
"""How much what an assistant says may differ in meaning from what a user says."""
LECTURE = 0.5
"""From here on a conversation is one."""
CHAT = 0.33
"""Below it, messages are short: those of our working sessions lie at 0.3 and less, of dialogues at 0.34 and more."""
SHORT_ANSWER = 40
"""Characters of an answer that says nothing without its question."""
FEW_FROM, FEW_MOST = 3, 1
"""Messages from which on a conversation is not short any more, and up to which it is nothing but what was handed over:
a client that hands over turn by turn gives two."""
FEW_SCALE = 3.0
"""How freely what is handed over alone may be worth more as a whole."""
READ_WHOLE = 3
"""Sentences of a message that is also read as a whole."""
TALKATIVE = 5.0
"""Sentences a message of a conversation that is all lectures."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """A sentence where it was said. before: the sentence said before it, by whomever. place, of: which of how many
    sentences of its message. talk: how long this conversation's messages are, 0 to 1: a lecture is weighed otherwise
    than an order. asked: what was said before is another one's question. message: what it was said in, where that is
    short; "" where it is the whole of it."""

    text: str
    role: str
    before: str = ""
    place: int = 0
    of: int = 1
    talk: float = 0.25
    message: str = ""
    few: float = 1.0

    @property
    def asked(self) -> bool:
        return self.place == 0 and bool(_ASKS.search(self.before))

    @property
    def read_as(self) -> str:
        """Return the text whose row says what this is about: a short answer is read with its question."""
        return f"{self.before} {self.text}" if self.asked and len(self.text) <= SHORT_ANSWER else self.text

    @property
    def read_within(self) -> str:
        """Return the text whose row says what this belongs to: a cause and its cure are told in two sentences."""
        return max(self.message, self.read_as, key=len)


_ASKS = bounded(r"[?？]\W*$|(?:吗|呢|么|没有|没)[\s。.!！]*$")
_WORDS: tuple[re.Pattern[str], ...] = tuple(
    bounded(pattern, re.I)
    for pattern in (
        r"(?<![a-z])(?:because|since|as|so that|due to|hence|therefore|otherwise|or else|caused|reason)(?![a-z])"
        r"|因为|所以|不然|否则|导致|由于|原因|是因|引起|免得|省得",
        r"(?<![a-z])(?:must|always|never|every|each|all|only|any|everything|nothing|no|none|have to|has to"
        r"|should|required"
        r"|need|needs|don['’]t|not|without|at least|at most|max|until|unless|before|whenever)(?![a-z])"
        r"|必须|一律|不准|不许|不要|不能|别|都|只|统一|禁止|每|凡是|所有|任何|一定|至少|最多|不得|谁",
        r"(?<![a-z])(?:i|i['’]\w+|my|me|mine)(?![a-z])|我(?!们)",
        r"(?<![a-z])(?:we|we['’]\w+|our|us|ours)(?![a-z])|我们|咱|团队|公司|大家",
        r"(?<![a-z])(?:you|you['’]\w+|your|yours)(?![a-z])|你|您",
        r"(?<![a-z])(?:maybe|perhaps|might|could|would|think|guess|wonder|probably|if|sure|seems?|hope|suggest"
        r"|let me)(?![a-z])"
        r"|可能|也许|大概|如果|好像|觉得|应该|或者|要不|建议|猜|希望|想",
        r"(?<![a-z])(?:now|today|tomorrow|yesterday|just|again|moment|first|next|then|here|still|yet|running"
        r"|done)(?![a-z])"
        r"|现在|今天|昨天|明天|刚|再|先|正在|一下|这里|上面|接着|下一步|了$|了[。！!]",
        r"(?<![a-z])(?:from now on|instead|rather than|no longer|anymore|any more|going forward|switch\w*"
        r"|change\w*|becomes?"
        r"|moved?|replaces?)(?![a-z])|以后|今后|改成|改用|改为|换成|换到|不再|作废|换了|改到",
        r"(?<![a-z])(?:jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec|january|february|march|april|august"
        r"|september"
        r"|october|november|december|monday|tuesday|wednesday|thursday|friday|saturday|sunday|week|month|quarter|by|due"
        r"|deadline|remind)(?![a-z])|月|号|周[一二三四五六日末]|星期|下周|之前|截止|到期|年底|月底|提醒|别忘",
        r"^\W*(?:it|its|it['’]s|this|that|that['’]s|these|those|they|them|he|she|one|which|both|either)(?![a-z])"
        r"|^\W*(?:这|那|它|他|她|其)",
        r"^\W*(?:ok(?:ay)?|yes|yep|yeah|no|nope|sure|done|great|nice|good|thanks?|cool|perfect|hi|hello|hey"
        r"|fine|right|got"
        r"|understood|noted|sorry|hm+|oh|ah|wow|lol|haha\w*|alright|absolutely|exactly|of course|well)(?![a-z])"
        r"|^\W*(?:好|嗯|行|对|可以|是的|谢|哦|哈|收到|明白|记|了解|知道|不错|赞|牛|ok|没问题|抱歉|早|你好)",
        r"^\W*(?:i|i['’]\w+)(?![a-z])|^\W*我",
        r"(?<![a-z])(?:prefer|like|love|hate|enjoy|favou?rite|dislike|used to)(?![a-z])"
        r"|喜欢|偏好|讨厌|习惯|最爱|受不了",
        r"(?<![a-z])(?:decid\w+|agree\w*|chose|settled?|go with|went with|let['’]s|we['’]ll|stick|drop"
        r"|use)(?![a-z])|决定|选|定|就用|采用",
        r"(?<![a-z])(?:fixed|fix|bug|error|crash\w*|fail\w*|missing|leak|turned out|root|found)(?![a-z])|修|解决"
        r"|报错|根因|崩|查到|原来是",
        r"(?<![a-z])(?:he|she|his|her|owns?|works?|lives?|name|allergic|responsible|in charge|ask"
        r"|contact)(?![a-z])|负责|找|归|住|叫|过敏|对接",
        r"(?<![a-z])(?:remember|note|keep in mind|don['’]t forget|for the record)(?![a-z])|记住|记下|记得",
        r"(?<![a-z])(?:happy|proud|frustrated|worried|nervous|relieved|stressed|exhausted|excited|burnt out"
        r"|thrilled)(?![a-z])"
        r"|压力|自豪|担心|崩溃|开心|紧张|难过|焦虑|沮丧",
        r"^\W*(?:what|which|who|when|where|why|how|is|are|do|does|did|can|could|would|will|should|shall|have"
        r"|has)(?![a-z])"
        r"|怎么|什么|哪|为什么|多少|几|要不要|能不能|可不可以|是不是|有没有",
    )
)
_ACKNOWLEDGES = _WORDS[10]
_NUMBER = re.compile(r"\d")
_LITERAL = bounded(
    r"[`'\"“”‘’「][^`'\"“”‘’「」\n]{1,60}[`'\"“”‘’」]|[A-Za-z0-9]+[_/\\=@#:][\w./@#=-]+|--[a-z]|[a-z][A-Z]"
    r"|\w\.[a-z]{2,4}(?!\w)"
)
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][\w-]+")
_LATIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+")
_HAN = re.compile(r"[\u4e00-\u9fff]")


def form_features(said: Utterance) -> list[float]:
    """Return the figures of a sentence's form, each about 0 to 2."""
    import math

    text = said.text
    han = len(_HAN.findall(text))
    length = math.log2(1 + len(text) + han) / 8
    assistant = float(said.role == "assistant")
    literal = min(3, len(_LITERAL.findall(text))) / 2
    number = min(3, len(_NUMBER.findall(text))) / 2
    words = [float(bool(pattern.search(text))) for pattern in _WORDS]
    asks = float(bool(_ASKS.search(text)))
    chinese = float(han * 4 > len(text))
    names = min(3, len(_NAME.findall(text) if not chinese else _LATIN.findall(text))) / 2
    figures = [
        assistant,
        length,
        length * length,
        asks,
        float(said.asked),
        float(said.place == 0),
        min(said.of, 6) / 4,
        number,
        literal,
        names,
        chinese,
        said.talk,
        *words,
    ]
    # What an assistant says of its own work reads like what a user decides: each figure again for the assistant alone.
    return [*figures, *(figure * assistant for figure in figures[1:])]


def brevity_of(messages: int) -> float:
    """Return how short a conversation of so many messages is, 0 to 1."""
    return min(1.0, max(0.0, (FEW_FROM - messages) / (FEW_FROM - FEW_MOST)))


def acknowledges(text: str) -> bool:
    """Return whether a sentence opens with a yes, a thanks or the like."""
    return bool(_ACKNOWLEDGES.search(text))


@dataclass(frozen=True, slots=True)
class Worth:
    """chance: that a careful reader keeps it, 0 to 1. keeps: it opens a memory; joins: it stays with a neighbour that
    does; sure: enough so to stand without review."""

    chance: float
    kind: str
    keeps: bool
    joins: bool
    sure: bool

    @classmethod
    def none(cls) -> Worth:
        """Return the worth of what is not looked at."""
        return cls(0.0, KINDS[0], keeps=False, joins=False, sure=False)


@dataclass(frozen=True, slots=True)
class LinearModel:
    """One set of numbers. weights: (kinds + 1, figures + 1), the constant last, the first row the chance.

    keep, join, sure: from which chance on, for a sentence of Latin letters, for a Chinese one, and in a lecture;
    a short answer counts as its question does.
    """

    weights: Matrix
    keep: tuple[float, ...]
    join: tuple[float, ...]
    sure: tuple[float, ...]

    def judge(self, figures: Matrix, said: Utterance) -> Worth:
        import numpy as np

        totals = self.weights[:, :-1] @ figures + self.weights[:, -1]
        chance = float(1 / (1 + np.exp(-np.clip(totals[0], -40, 40))))
        kind = KINDS[int(np.argmax(totals[1:]))]
        place = 2 if said.talk >= LECTURE else int(is_chinese(said.read_as))
        keep, join, sure = (limit[place] for limit in (self.keep, self.join, self.sure))
        return Worth(chance, kind, keeps=chance >= keep, joins=chance >= join, sure=chance >= sure)


@dataclass(frozen=True, slots=True)
class WorthModel:
    """All sets of numbers: by form, of any conversation, of short messages.

    read_from: the least chance by form from which a sentence is embedded; leans_from: the
    least chance with which a sentence that leans on its neighbour joins it."""

    form_only: LinearModel
    meaning: LinearModel
    chat: LinearModel
    read_from: float
    leans_from: float
    embedder: str

    def by_form(self, said: Utterance) -> Worth:
        import numpy as np

        return self.form_only.judge(np.array(form_features(said)), said)

    def by_embedding(self, said: Utterance, row: Matrix, within: Matrix) -> Worth:
        """row, within: of `read_as` and of `read_within`."""
        if said.talk < CHAT:
            return self.chat.judge(chat_features(said, row, within), said)
        return self.meaning.judge(embedding_features(said, row), said)


def embedding_features(said: Utterance, row: Matrix) -> Matrix:
    """Return what the second set reads: form and centred row, and both again as far as this is a lecture."""
    import numpy as np

    seen = np.concatenate([np.array(form_features(said), dtype=np.float32), ROW_SCALE * row])
    return np.concatenate([seen, seen * said.talk])


def chat_features(said: Utterance, row: Matrix, within: Matrix) -> Matrix:
    """Return what the numbers of short messages read: form, each of both rows, their sum again for the assistant, and
    how short the conversation is: alone, a fact about somebody is worth it more often than in the midst of work.

    Of sessions left out, apart they rank English .844 and Chinese .909 (average precision), as one mean .837 and .904.
    """
    import numpy as np

    own, around = ROW_SCALE / 2 * row, ROW_SCALE / 2 * within
    is_assistant = ASSISTANT_SCALE * float(said.role == "assistant")
    seen = np.array([*form_features(said), FEW_SCALE * said.few], dtype=np.float32)
    return np.concatenate([seen, own, around, is_assistant * (own + around)])


@cache
def worth_model() -> WorthModel:
    """Return the model as it ships, read once."""
    numbers = record(parsed(NUMBERS.read_text("utf-8")))
    form, meaning, chat = (_numbers(record(numbers[name])) for name in ("form", "meaning", "chat"))
    return WorthModel(
        form,
        meaning,
        chat,
        number(numbers["read_from"]),
        number(numbers["leans_from"]),
        text(numbers["embedder"]),
    )


def is_trained_on(embedder: str) -> bool:
    """Return whether the second set was trained on the rows of this embedder; others say nothing to it."""
    return embedder.partition("@")[0] == worth_model().embedder


def _numbers(stored: Record) -> LinearModel:
    import numpy as np

    rows = np.frombuffer(base64.b85decode(text(stored["weights"])), dtype=np.int8).reshape(len(KINDS) + 1, -1)
    weights = rows.astype(np.float32) * np.array(stored["steps"], dtype=np.float32)[:, None]
    keep, join, sure = (tuple(map(number, items(stored[name]))) for name in ("keep", "join", "sure"))
    return LinearModel(weights, keep, join, sure)

"""What in a conversation is worth remembering: its sentences, and choices that go against a habit.

Small linear models say how much a sentence is worth and what kind of memory it makes. They see its centred embedding
and features of its form (speaker, length, a question, names and numbers, closed classes of words such as "must" or
"because"). Rejected: lists of phrases (on dialogues written elsewhere they kept half of the rules and two sentences of
noise for each). Conversations of short messages have a model of their own, which also sees the message around the
sentence: trained together with lectures, a tenth of what is worth keeping in a working session was lost. A third model
reads the form alone: it picks the sentences to embed, and decides where no embedder runs. The weights are in
`worth.json`, made by `scripts/train_capture.py`.

A habit is a line of the profile that says what is usual and names the value; a choice is a short value that a tool call
was given by name. They are compared where they share a word or are near in meaning (the habit may be Chinese and the
tool English). Rejected: a memory for each call; five calls of one turn are one change of taste.

Invariant: deterministic; no text is stored here.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.base.json_values import Record, items, number, parsed, record, text
from memory_anchor.ingest.messages import Message
from memory_anchor.ingest.relations import FOR_NOW, SUPPOSED
from memory_anchor.language.coverage import DENIES
from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.terms import is_chinese
from memory_anchor.language.words import pattern, table

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Matrix

GAP_MAX = 0.6
HABIT_CHARS_MAX = 300
HABITS_MAX = 24
"""Habits, and choices of a conversation, that are compared."""
SAME_TOPIC, LEAD = 0.34, 0.1
"""Centred cosine from which a habit and a choice are about the same thing, and by how much the best choice must lead
(a Chinese habit over English calls: .35 against .17; unrelated ones reach .33, close together)."""
_HABIT = bounded(
    r"(?<![a-z])(?:usually|normally|always|mostly|often|prefers?|likes?|loves?|favou?rite|tends)(?![a-z])"
    r"|通常|一般|总是|平时|经常|常用|喜欢|偏好|偏爱|习惯|最爱",
    re.I,
)
_CHOICE = late(r"[^\s/\\{}<>=]{2,24}(?: [^\s/\\{}<>=]{2,24}){0,2}")
_VALUE = bounded(r"[A-Za-z][\w+#]*(?:[.-][\w+#]+)*|(?<=[「“'\"])[^「」“”'\"]{1,24}(?=[」”'\"])")


@dataclass(frozen=True, slots=True)
class OtherChoice:
    """A habit, and what was chosen instead: `value` for argument `name` of a tool. size: of the gap, 0 to 1."""

    habit: str
    tool: str
    name: str
    value: str
    size: float
    seq: int


def deviation(other: int, expected: int) -> float:
    """Return the size of a gap by how often something else was chosen, and how often what was expected."""
    return round(GAP_MAX * other / (other + expected), 2)


def other_choices(
    messages: Sequence[Message], known: Sequence[str], rows: Callable[[Sequence[str]], Matrix | None] | None
) -> list[OtherChoice]:
    """Return for each habit among the known texts the choice that deviates from it most clearly, if any."""
    habits = [text for text in known if _HABIT.search(text) and len(text) <= HABIT_CHARS_MAX][:HABITS_MAX]
    counts, seqs = _choices(messages) if habits else (Counter[tuple[str, str, str]](), {})
    options = list(counts)[:HABITS_MAX]
    if not options:
        return []
    texts = [" ".join([*_parts(tool), *_parts(name), value]) for tool, name, value in options]
    vectors = rows([*habits, *texts]) if rows is not None else None
    deviations = []
    for at, habit in enumerate(habits):
        usual = {word.lower() for word in _VALUE.findall(_HABIT.split(habit, maxsplit=1)[-1])}
        as_usual = {option for option in options if option[2].lower() in usual}
        scored: list[tuple[float, tuple[str, str, str]]] = []
        for row, (tool, name, value) in enumerate(options if usual else ()):
            if (tool, name, value) in as_usual:
                continue
            shares = {*_parts(tool), *_parts(name)} & usual or any(other[:2] == (tool, name) for other in as_usual)
            cosine = float(vectors[at] @ vectors[len(habits) + row]) if vectors is not None else 0.0
            scored.append((1.0 if shares else cosine, (tool, name, value)))
        scored.sort(key=lambda pair: -pair[0])
        leads = len(scored) < 2 or scored[0][0] - scored[1][0] >= LEAD or scored[0][0] == 1.0
        if scored and scored[0][0] >= SAME_TOPIC and leads:
            best = scored[0][1]
            size = deviation(counts[best], sum(counts[option] for option in as_usual if option[:2] == best[:2]))
            deviations.append(OtherChoice(habit, *best, size, seqs[best]))
    return deviations


def _choices(messages: Sequence[Message]) -> tuple[Counter[tuple[str, str, str]], dict[tuple[str, str, str], int]]:
    """Return (tool, argument, value) -> how often it was chosen, and -> the message where last."""
    counts: Counter[tuple[str, str, str]] = Counter()
    seqs: dict[tuple[str, str, str], int] = {}
    for message in messages:
        for call in message.tool_calls:
            for name, value in call.arguments.items():
                if isinstance(value, str) and _CHOICE.fullmatch(value):
                    choice = (call.name, name, value)
                    counts[choice] += 1
                    seqs[choice] = message.seq
    return counts, seqs


def _parts(name: str) -> list[str]:
    return [word for word in re.split(r"[_\W]+", name.lower()) if word]


NUMBERS = Path(__file__).with_name("worth.json")
KINDS = ("rule", "decision", "fix", "fact", "task", "person", "preference", "emotion")
"""Kinds of sentences worth keeping."""

ROW_SCALE = 8.0
"""An embedding has length 1; scaled so that its parts weigh like features of form."""
ASSISTANT_SCALE = 0.7
"""How much what an assistant says may differ in meaning from what a user says."""
LECTURE = 0.5
"""Verbosity from which a conversation is a lecture."""
CHAT = 0.33
"""Verbosity below which messages are short: our working sessions lie at 0.3 and less, dialogues at 0.34 and more."""
SHORT_ANSWER = 40
"""Characters of an answer that says nothing without its question."""
NOT_BRIEF_FROM, BRIEF_MAX = 3, 1
"""Messages from which a conversation is not brief any more, and up to which it is nothing but what was handed over:
a client that hands over turn by turn gives two."""
LISTED = (0.25, 0.45)
"""Share of lasting statements from which a conversation begins to be a list of rules, and from which it is one."""
LASTS = -2
"""Where `alone_features` has whether a statement says what always holds."""
ALONE = 0.5
"""Brevity from which the user's sentences are judged as standing alone."""
BREVITY_SCALE = 3.0
"""How freely what is handed over alone may be worth more as a whole."""
SHORT_MESSAGE_SENTENCES = 3
"""Sentences of a message that is also read as a whole."""
LECTURE_SENTENCES = 5.0
"""Sentences a message in a conversation that is all lectures."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """A sentence in its context.

    previous: the sentence before it, by either speaker. position, siblings: its place in its message, from 0, and how
    many sentences that has. verbosity: how long this conversation's messages are, 0 to 1. message: the whole message
    where that is short and has more sentences, else "". brevity: how few messages the conversation has, 0 to 1. asked:
    the question that the message before answers.
    """

    text: str
    role: str
    previous: str = ""
    position: int = 0
    siblings: int = 1
    verbosity: float = 0.25
    message: str = ""
    brevity: float = 1.0
    asked: str = ""

    @property
    def answers(self) -> bool:
        """Whether it is the first reply to a question."""
        return self.position == 0 and bool(_ASKS.search(self.previous))

    @property
    def assents(self) -> bool:
        """Whether a user briefly says yes to what was proposed just before."""
        is_brief = self.role == "user" and self.position == 0 and len(self.text) <= SHORT_ANSWER
        yes = _ASSENTS.match(self.text) if is_brief else None
        is_yes = yes is not None and not DENIES.search(self.text[yes.end() :])
        return is_yes and bool(_ASKS.search(self.previous) or _PROPOSES.search(self.previous))

    @property
    def judged(self) -> Utterance:
        """What says what it is worth: a yes is worth what it agrees to, as if its user had said, not asked, that."""
        proposed = self.previous.rstrip("?？。. ")
        if not _OF_ONESELF.search(proposed):  # what one offers to do oneself is an order
            proposed = _QUESTION_FORM.sub("", proposed)
        return replace(self, text=proposed, previous=self.asked) if self.assents else self

    @property
    def embedded_text(self) -> str:
        """The text whose embedding says what it is about: a short answer with its question."""
        return f"{self.previous} {self.text}" if self.answers and len(self.text) <= SHORT_ANSWER else self.text

    @property
    def embedded_message(self) -> str:
        """The text whose embedding says what it belongs to: a cause and its cure often take two sentences."""
        return max(self.message, self.embedded_text, key=len)


_ASKS = bounded(r"[?？]\W*$|(?:吗|呢|么|没有|没)[\s。.!！]*$")
_ASSENTS = bounded(
    r"(?:\W*(?:(?:yes|yep|yeah|ok(?:ay)?|sure|agreed|exactly|absolutely|sounds good|go ahead|please do|do (?:it|that)"
    r"|let['’]s do (?:it|that)|no problem)(?![a-z])|好|行|可以|对|嗯|没问题|同意|就这么|就这样|就按))+",
    re.I,
)
_QUESTION_FORM = bounded(pattern("moods", "question_form"), re.I)
_PROPOSES = bounded(
    r"(?<![a-z])(?:suggest|propose|recommend|i['’]d|i would|let['’]s|we (?:could|should))(?![a-z])|建议|提议|要不|不如",
    re.I,
)
_WORDS = tuple(bounded(text(source), re.I) for source in record(table("patterns")["capture"]).values())
_OF_ONESELF, _ACKNOWLEDGES = _WORDS[2], _WORDS[10]
_MOODS = {
    name: bounded(pattern("moods", name), re.I)
    for name in ("praises", "reports", "labels", "deictic", "definite", "lasts")
}
SHORT_RULE = 48
"""Width (a Chinese character counts two) of a statement from which it is not brief."""
_NUMBER = late(r"\d")
_LITERAL = bounded(
    r"[`'\"“”‘’「][^`'\"“”‘’「」\n]{1,60}[`'\"“”‘’」]|[A-Za-z0-9]+[_/\\=@#:][\w./@#=-]+|--[a-z]|[a-z][A-Z]"
    r"|\w\.[a-z]{2,4}(?!\w)"
)
_NAME = late(r"(?<=[a-z,;:] )[A-Z][\w-]+")
_LATIN = late(r"[A-Za-z][A-Za-z0-9+.-]+")
_HAN = late(r"[\u4e00-\u9fff]")


def form_features(said: Utterance) -> list[float]:
    """Return the features of a sentence's form, each about 0 to 2."""
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
        float(said.answers),
        float(said.position == 0),
        min(said.siblings, 6) / 4,
        number,
        literal,
        names,
        chinese,
        said.verbosity,
        *words,
    ]
    # What an assistant says of its own work reads like what a user decides: each feature again for the assistant alone.
    return [*figures, *(figure * assistant for figure in figures[1:])]


def alone_features(said: Utterance, chance: float) -> list[float]:
    """Return what tells a user's rule that stands alone from what only sounds like one: how it is said, 0 to 1 each.

    chance: of the model that reads its embedding too. A linear model needs told what lasts: no deixis, no object at
    hand, no question, meant, and the user's own.
    """
    import math

    text, lower = said.text, said.text.lower()
    moods = {name: bool(mood.search(text)) for name, mood in _MOODS.items()}
    is_moment = moods["deictic"] or moods["definite"] or bool(_ASKS.search(text))
    is_supposed, is_passing = SUPPOSED.search(lower) is not None, FOR_NOW.search(lower) is not None
    lasts = is_lasting(text) and not is_moment and not (is_supposed or is_passing)
    shortness = max(0.0, 1 - (len(text) + len(_HAN.findall(text))) / SHORT_RULE)
    said_how = (*moods.values(), is_supposed, is_passing, lasts)
    return [math.log(chance / (1 - chance)), *form_features(said), *map(float, said_how), lasts * shortness]


def is_lasting(text: str) -> bool:
    """Return whether a statement says what always holds, in earnest and in its speaker's own words."""
    return bool(_MOODS["lasts"].search(text)) and not any(_MOODS[name].search(text) for name in ("praises", "reports"))


def brevity_of(messages: int, lasting: float = 0.0) -> float:
    """Return how much what is said stands alone, 0 to 1: in few messages, or among many that say what always holds.

    lasting: share of the user's sentences that do; of working sessions at most .2, of a list of rules most.
    """
    few = (NOT_BRIEF_FROM - messages) / (NOT_BRIEF_FROM - BRIEF_MAX)
    return min(1.0, max(0.0, few, (lasting - LISTED[0]) / (LISTED[1] - LISTED[0])))


def acknowledges(text: str) -> bool:
    """Return whether a sentence opens with a yes, a thanks or the like."""
    return bool(_ACKNOWLEDGES.search(text))


@dataclass(frozen=True, slots=True)
class Worth:
    """chance: that a careful reader keeps it, 0 to 1. keeps: it starts a memory; joins: it belongs to the memory of a
    neighbour; sure: no review is needed."""

    chance: float
    kind: str
    keeps: bool
    joins: bool
    sure: bool


NO_WORTH = Worth(0.0, KINDS[0], keeps=False, joins=False, sure=False)


GENERAL_KEEPS = 0.5
"""Least chance, in long messages, of what a user says always holds."""


@dataclass(frozen=True, slots=True)
class LinearModel:
    """weights: (kinds + 1, features + 1), the constant last; the first row gives the chance, the others the kinds.

    keep, join, sure: least chances, each for a sentence of Latin letters, for a Chinese one (a short answer counts as
    its question does), and in a lecture; alone for one that says what always holds, and for another.
    """

    weights: Matrix
    keep: tuple[float, ...]
    join: tuple[float, ...]
    sure: tuple[float, ...]

    def judge(self, figures: Matrix, said: Utterance, place: int | None = None) -> Worth:
        import numpy as np

        totals = self.weights[:, :-1] @ figures + self.weights[:, -1]
        chance = float(1 / (1 + np.exp(-np.clip(totals[0], -40, 40))))
        kind = KINDS[int(np.argmax(totals[1:]))] if len(totals) > 1 else KINDS[0]
        if place is None:
            place = 2 if said.verbosity >= LECTURE else int(is_chinese(said.embedded_text))
        keep, join, sure = (limit[place] for limit in (self.keep, self.join, self.sure))
        return Worth(chance, kind, keeps=chance >= keep, joins=chance >= join, sure=chance >= sure)


@dataclass(frozen=True, slots=True)
class WorthModel:
    """form_only: without embeddings. meaning: of long messages. chat: of short ones. alone: of what a user says alone.

    read_from: least chance by form of a sentence to embed. leans_from: least chance of one that joins its neighbour in
    a short message. embedder: whose rows the models were trained on.
    """

    form_only: LinearModel
    meaning: LinearModel
    chat: LinearModel
    alone: LinearModel
    read_from: float
    leans_from: float
    embedder: str

    def by_form(self, said: Utterance) -> Worth:
        import numpy as np

        return self.form_only.judge(np.array(form_features(said)), said)

    def by_embedding(self, said: Utterance, row: Matrix, within: Matrix) -> Worth:
        """row, within: embeddings of `embedded_text` and of `embedded_message`."""
        import numpy as np

        if said.verbosity < CHAT:
            worth = self.chat.judge(chat_features(said, row, within), said)
            if said.role == "assistant" or said.brevity < ALONE:
                return worth
            figures = alone_features(said, worth.chance)
            judged = self.alone.judge(np.array(figures), said, place=int(not figures[LASTS]))
            return replace(judged, kind=worth.kind)
        worth = self.meaning.judge(embedding_features(said, row), said)
        is_general = said.role == "user" and worth.chance >= GENERAL_KEEPS and is_lasting(said.text)
        return replace(worth, keeps=True) if is_general else worth


def embedding_features(said: Utterance, row: Matrix) -> Matrix:
    """Return form and centred row, and both again weighted by how much of a lecture this is."""
    import numpy as np

    seen = np.concatenate([np.array(form_features(said), dtype=np.float32), ROW_SCALE * row])
    return np.concatenate([seen, seen * said.verbosity])


def chat_features(said: Utterance, row: Matrix, within: Matrix) -> Matrix:
    """Return form, both rows, their sum again for the assistant, and how brief the conversation is: alone, a fact about
    somebody is worth keeping more often than in the midst of work.

    Average precision on held-out sessions with both rows: English .844, Chinese .909; with their mean: .837 and .904.
    """
    import numpy as np

    own, around = ROW_SCALE / 2 * row, ROW_SCALE / 2 * within
    is_assistant = ASSISTANT_SCALE * float(said.role == "assistant")
    seen = np.array([*form_features(said), BREVITY_SCALE * said.brevity], dtype=np.float32)
    return np.concatenate([seen, own, around, is_assistant * (own + around)])


@cache
def worth_model() -> WorthModel:
    """Return the shipped model, read once."""
    stored = record(parsed(NUMBERS.read_text("utf-8")))
    form_only, meaning, chat, alone = (_linear_model(record(stored[n])) for n in ("form", "meaning", "chat", "alone"))
    least = number(stored["read_from"]), number(stored["leans_from"])
    return WorthModel(form_only, meaning, chat, alone, *least, text(stored["embedder"]))


def is_trained_on(embedder: str) -> bool:
    """Return whether the models were trained on this embedder's rows; those of others mean nothing to them."""
    return embedder.partition("@")[0] == worth_model().embedder


def _linear_model(stored: Record) -> LinearModel:
    import numpy as np

    steps = np.array(stored["steps"], dtype=np.float32)
    rows = np.frombuffer(base64.b85decode(text(stored["weights"])), dtype=np.int8).reshape(len(steps), -1)
    weights = rows.astype(np.float32) * steps[:, None]
    keep, join, sure = (tuple(map(number, items(stored[name]))) for name in ("keep", "join", "sure"))
    return LinearModel(weights, keep, join, sure)

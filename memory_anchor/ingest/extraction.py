"""From a conversation to memory candidates by rules, offline, in English and Chinese.

Two rounds, no more. The first reads sentence by sentence with the cues of `extraction_rules`; the second asks what the
first could not see: short answers to questions, and what the tool calls show. Every candidate then has to answer three
questions of its own (when would it be needed, how would it be asked for, what goes wrong without it), and only what
deviates from what is known already is kept, with the gap. Fewer and whole memories beat many: an audited store of a
peer was 97.8 % junk, most of it recalled text extracted again.

Invariants: a quote is verbatim text of the message; the same conversation gives the same candidates; an assistant's
word never becomes a fact about the user.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from memory_anchor.ingest.extraction_rules import (
    BROKEN,
    CUES,
    ERRAND,
    FIRST_PERSON,
    GLAD,
    MOMENT,
    ONE_PERSON,
    PASSING,
    QUESTION,
    QUOTATION,
    REPORT,
    RIVALS,
    SMALL_TALK,
    SORRY,
    SUPPOSED,
    TASK,
    WHICH,
    About,
    Cue,
)
from memory_anchor.ingest.messages import Message, fold, plain, recalled
from memory_anchor.ingest.reconcile import Relation, relation
from memory_anchor.language.perspective import stated, title
from memory_anchor.language.safety import cleaned, instruction_like, only_secrets, redact
from memory_anchor.language.slots import contrast, read
from memory_anchor.language.terms import is_chinese
from memory_anchor.model import MemoryType

MAX_CANDIDATES = 200
"""Of one conversation; the most important are kept, in the order they were said."""
MAX_COMPARED = 8
"""Earlier candidates of a conversation that a new one is compared with: those that share the most words with it."""
MAX_SENTENCES = 400
"""Of one message."""
MIN_CHARS, MAX_CHARS = 6, 500
MIN_GAP = 0.3
"""A deviation at or below this importance is no memory (prediction-gap rule of the extraction design)."""
MAX_ANSWER_WORDS, MAX_ANSWER_CHARS = 8, 60
MIN_COMMAND_RUNS = 3
MAX_COMMAND_CHARS = 160

Similarity = Callable[[str, str], float]
"""Centred cosine of two texts, -1 to 1."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible memory. quote: verbatim from message `seq`. about: whose it is (a user's facts are shared by that
    user's agents, an agent's memories are its own). gap: predicted, actual, type, importance. redactions: kinds."""

    key: str
    content: str
    type: MemoryType
    importance: float
    confidence: float
    quote: str
    about: About
    seq: int
    tags: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    sentiment: float | None = None
    gap: dict[str, Any] | None = field(default=None)
    redactions: tuple[str, ...] = ()


def extract_by_rules(
    messages: Sequence[Message],
    *,
    known: Sequence[str] = (),
    similarity: Similarity | None = None,
) -> list[Candidate]:
    """Return what is worth remembering of a conversation, in the order it was said.

    known: contents of memories already stored near this conversation; what they say already is not extracted again.
    similarity: of two texts, from the store's embedder; without it shared words decide.
    """
    found = _first_round(messages) + _second_round(messages, known)
    return fresh_only(found, recalled(messages), known, similarity)


def fresh_only(
    found: Sequence[Candidate], from_memory: str, known: Sequence[str], similarity: Similarity | None = None
) -> list[Candidate]:
    """Return those candidates that are news: not recalled, not said twice, not known; each with its gap, in order."""
    compare = similarity or shared_words
    said = _latest_word((candidate for candidate in found if not _comes_from(candidate, from_memory)), compare)
    news = [gap for candidate in said if (gap := _with_gap(candidate, known, compare)) is not None]
    if len(news) > MAX_CANDIDATES:
        news = sorted(news, key=lambda candidate: -candidate.importance)[:MAX_CANDIDATES]
    return sorted(news, key=lambda candidate: candidate.seq)


# --- round one: sentences ----------------------------------------------------------------------------------------

_SENTENCE = re.compile(
    r"(?<=[.!?])\s{1,8}+(?=[\"'“(]?[A-Z0-9\u4e00-\u9fff])"
    r"|(?<=[。！？；])|\n++|(?<=[a-z0-9)])\s{0,8}+;\s{1,8}+"
)
_BULLET = re.compile(r"\A\s*+(?:[-*•·]|\d{1,2}[.)、])\s++")
_GATE = re.compile(
    r"(?<![a-z])(?:i|i['’](?:m|ve|d|ll)|my|we|we['’](?:ve|re|ll)|our|your|you['’]?re|always|never|from now"
    r"|going forward|remember|note|keep|use|please|let['’]s"
    r"|decision|the|this|root|fixed|turn(?:s|ed)|to|before|stop|avoid|as a rule|in (?:the )?future"
    r"|for (?:the|future)|don['’]t|do not|must|mustn['’]t|all|every|each|any|make|whenever|every time)(?![a-z])"
    r"|[我你请记别帮麻以从总始一务千绝永不每统就最方决结根问错故崩原修解发部上测构回评迁提合推先本这该整项仓服后前数接应流团集分版生办例周站截预客不必禁严]",
    re.I,
)


def sentences(text: str) -> list[str]:
    """Return the sentences of a prose text, bullets and white space stripped, at most `MAX_SENTENCES`."""
    parts = (_BULLET.sub("", part).strip() for part in _SENTENCE.split(text))
    return [part for part in parts if part][:MAX_SENTENCES]


def _first_round(messages: Iterable[Message]) -> list[Candidate]:
    found: list[Candidate] = []
    for message in messages:
        if message.role not in {"user", "assistant"} or not message.content:
            continue
        text = plain(message).lstrip()
        task = TASK.match(text)
        if task and _brings_text(text, task.end()):
            continue
        others = FIRST_PERSON if REPORT.match(text) else ONE_PERSON if task else None
        quoted = [match.span() for match in QUOTATION.finditer(text)]
        at = 0
        for sentence in sentences(text):
            at = max(text.find(sentence, at), at)
            inside = [(start - at, end - at) for start, end in quoted if start < at + len(sentence) and end > at]
            candidate = _from_sentence(sentence, message, others, inside)
            if candidate is not None:
                found.append(candidate)
    return found


def _brings_text(text: str, start: int) -> bool:
    """Return whether a colon behind a task's head says that what follows is the text to work on."""
    line = text[start - 1 :].partition("\n")[0]
    return re.search(r"[:：](?=\s|[^\x00-\x7f]|$)", line) is not None


def _own(
    cue: Cue, sentence: str, others: re.Pattern[str] | None, quoted: Sequence[tuple[int, int]]
) -> re.Match[str] | None:
    """Return where the cue fits in the speaker's own words: the "I" of a quotation or a report is somebody else's."""
    match = cue.pattern.search(sentence)
    if match is None or (cue.plain and PASSING.search(sentence)):
        return None
    if not (others or quoted):
        return match
    for match in cue.pattern.finditer(sentence):
        borrowed = (others and others.search(match.group())) or (
            FIRST_PERSON.search(match.group()) and any(start <= match.start() < end for start, end in quoted)
        )
        if not borrowed:
            return match
    return None


def _from_sentence(
    sentence: str, message: Message, others: re.Pattern[str] | None, quoted: Sequence[tuple[int, int]]
) -> Candidate | None:
    """Return the candidate of one sentence, or None where no cue fits or it fails its questions.

    others: the persons that stand for somebody else in this message. quoted: (start, end) of quotations.
    """
    if not MIN_CHARS <= len(sentence) <= MAX_CHARS or not _GATE.search(sentence) or SMALL_TALK.match(sentence):
        return None
    speaks = message.role
    cue, match = next(
        ((cue, match) for cue in CUES if speaks in cue.speakers and (match := _own(cue, sentence, others, quoted))),
        (None, None),
    )
    if cue is None or match is None:
        return None
    if instruction_like(sentence):
        return None
    safe = redact(sentence)
    body = redact(sentence[match.end() :].strip()).text if cue.strip else safe.text
    if only_secrets(body):
        return None
    cue, about = _refined(cue, body, message)
    content = stated(body, about=about, speaker=message.role)
    questions = self_questions(body, cue.type, said=content)
    if not questions:
        return None
    return Candidate(
        key=title(content),
        content=content,
        type=cue.type,
        importance=cue.importance,
        confidence=cue.confidence,
        quote=safe.text,
        about=about,
        seq=message.seq,
        tags=(cue.tag,),
        questions=questions,
        sentiment=_sentiment(body) if cue.type in {MemoryType.EMOTION, MemoryType.PREFERENCE} else None,
        redactions=safe.kinds,
    )


def _refined(cue: Cue, body: str, message: Message) -> tuple[Cue, About]:
    """Return the cue to use: what one was asked to remember takes the type of its own words."""
    if not cue.strip:
        return cue, cue.about
    inner = next((other for other in CUES[2:] if message.role in other.speakers and other.pattern.search(body)), None)
    if inner is None:
        about: About = "user" if re.search(r"(?<![a-z])(?:i|my|me)(?![a-z])|我(?!们)", body, re.I) else "project"
        return cue, about
    return replace(inner, importance=cue.importance, confidence=cue.confidence, tag=cue.tag), inner.about


# --- the candidate's own questions -------------------------------------------------------------------------------

_ASKED_AS: dict[MemoryType, tuple[str, str]] = {
    MemoryType.PREFERENCE: ("What does the user prefer about {}?", "用户对{}有什么偏好？"),
    MemoryType.INSTRUCTION: ("What is the rule about {}?", "关于{}有什么规矩？"),
    MemoryType.DECISION: ("What was decided about {}?", "关于{}决定了什么？"),
    MemoryType.BUGFIX: ("What caused or fixed {}?", "{}的问题是怎么解决的？"),
    MemoryType.WORKFLOW: ("How is {} done?", "{}怎么做？"),
    MemoryType.EMOTION: ("How did the user feel about {}?", "用户对{}的感受如何？"),
    MemoryType.FACT: ("What is known about {}?", "关于{}知道些什么？"),
}
TOPIC_WORDS = 6
_OBJECT = re.compile(
    r"(?<![a-z])(?:about|because|with|that|when|since|by|at|of|over)(?![a-z])|因为|对|关于|让我|由于|的[时事]", re.I
)
_TASTE = re.compile(r"prefer|like|want|favou?rite|喜欢|偏好|想要", re.I)
_NOT_GLAD = re.compile(
    r"(?:not|n['’]t|never|不)(?:\s?(?:really|so|very|太|很|是))?\s?"
    r"(?:like|happy|glad|love|enjoy|喜欢|满意|高兴|开心)",
    re.I,
)
_LOOKING = re.compile(r"(?:ls|cat|cd|echo|grep|rg|sed|head|tail|find|pwd|git (?:status|diff|log|add|show))(?![\w-])")
"""Commands that only look: however often they run, they are no habit worth keeping."""
MIN_TOPIC_WORDS = 1


def self_questions(sentence: str, kind: MemoryType, *, said: str = "") -> tuple[str, ...]:
    """Return how the memory would be asked for; empty when it fails one of its three questions.

    When would it be needed: not when it is a question, an errand, a supposition, or holds for this moment only. How
    would it be asked for: it must name something. What goes wrong without it: a feeling must have an object.
    said: the sentence as it is stored, from which the questions take their words.
    """
    if QUESTION.search(sentence) or ERRAND.match(sentence) or SUPPOSED.search(sentence) or MOMENT.search(sentence):
        return ()
    if kind is MemoryType.FACT and BROKEN.search(sentence):
        return ()
    chinese = is_chinese(sentence)
    topic = _topic(said or sentence, chinese=chinese)
    if not topic:
        return ()
    if kind is MemoryType.EMOTION and not _OBJECT.search(sentence):
        return ()
    english, han = _ASKED_AS.get(kind, _ASKED_AS[MemoryType.FACT])
    return ((han if chinese else english).format(topic),)


_CUE_WORDS = frozenset(
    {
        "prefers",
        "likes",
        "loves",
        "user",
        "prefer",
        "like",
        "love",
        "hate",
        "always",
        "never",
        "use",
        "please",
        "remember",
        "want",
        "not",
        "no",
        "now",
    }
    | {"don't", "i'm", "we're", "it's", "really", "favourite", "favorite"}
)
_HAN_RUN = re.compile(r"[\u4e00-\u9fff]{2,}|[A-Za-z0-9_.+#-]+")
_HAN_CUE = re.compile(
    r"我们?|用户|你|喜欢|偏好|讨厌|以后|从现在起|请|总是|不要|不再|决定|记住|一直|现在|已经|都|的|了|很|最(?!近)|更|在|是"
    r"|用"
)


def _topic(sentence: str, *, chinese: bool) -> str:
    """Return the words the memory would be asked for by, "" when nothing is named."""
    if chinese:
        runs = [run for part in _HAN_RUN.findall(_HAN_CUE.sub(" ", sentence)) if len(run := part.strip()) > 1]
        return "".join(run if re.match(r"[\u4e00-\u9fff]", run) else f" {run} " for run in runs[:3]).strip()[:24]
    words = [token for token in read(sentence).tokens if token not in _CUE_WORDS and len(token) > 1]
    return " ".join(words[:TOPIC_WORDS]) if len(words) >= MIN_TOPIC_WORDS else ""


def _sentiment(text: str) -> float:
    """Return -1 to 1 by the share of glad and sorry words."""
    glad, sorry = len(GLAD.findall(text)), len(SORRY.findall(text))
    if _NOT_GLAD.search(text):
        glad, sorry = 0, sorry + 1
    return round((glad - sorry) / max(1, glad + sorry), 2)


# --- round two: answers, and what the tool calls show ------------------------------------------------------------


def _second_round(messages: Sequence[Message], known: Sequence[str]) -> list[Candidate]:
    return _answers(messages) + _behaviour(messages, known)


def _answers(messages: Sequence[Message]) -> list[Candidate]:
    """Return what a user answered in a word or two to an assistant's question, with the question as its sense."""
    found: list[Candidate] = []
    spoken = [message for message in messages if message.role in {"user", "assistant"} and message.content.strip()]
    for before, after in pairwise(spoken):
        if (before.role, after.role) != ("assistant", "user"):
            continue
        given = redact(plain(after).strip().rstrip(".。!！"))
        answer = given.text
        asked = [part for part in sentences(plain(before)) if QUESTION.search(part) and WHICH.search(part)]
        if not asked or not _is_answer(answer) or only_secrets(answer) or instruction_like(answer):
            continue
        question = redact(asked[-1]).text
        chinese = is_chinese(question)
        topic = _topic(question, chinese=chinese)
        if not topic or len(question) > MAX_CHARS:
            continue
        asked_en, asked_zh = 'Asked "{}", the user answered: {}', "被问到“{}”时，用户回答：{}"
        content = (asked_zh if chinese else asked_en).format(question, answer)
        kind = MemoryType.PREFERENCE if _TASTE.search(question) else MemoryType.DECISION
        found.append(
            Candidate(
                key=title(f"{topic}: {answer}"),
                content=content,
                type=kind,
                importance=0.6,
                confidence=0.9,
                quote=answer,
                about="user",
                seq=after.seq,
                tags=("answer",),
                questions=(question,),
                redactions=given.kinds,
            )
        )
    return found


def _is_answer(answer: str) -> bool:
    if not answer or "\n" in answer or len(answer) > MAX_ANSWER_CHARS or len(answer.split()) > MAX_ANSWER_WORDS:
        return False
    found = (QUESTION.search(answer), SUPPOSED.search(answer), MOMENT.search(answer))
    return not any(found) and not SMALL_TALK.match(answer) and not ERRAND.match(answer)


_COMMAND_HEAD = re.compile(
    r"\A\s*+(?:(?:cd\s++\S{1,400}+\s*+&&|sudo|time|env|\w{1,64}+=\S{1,400}+)\s*+){0,8}"
    r"(?P<command>[^|;&\n]{2,400})"
)


def _commands(messages: Iterable[Message]) -> list[tuple[str, int]]:
    """Return (command, seq) of every shell call, without its `cd`, environment and pipes."""
    found = []
    for message in messages:
        for call in message.tool_calls:
            raw = call.arguments.get("command", call.arguments.get("cmd", ""))
            line = " ".join(map(str, raw)) if isinstance(raw, list) else str(raw)
            match = _COMMAND_HEAD.match(line[:2000])
            if match and len(command := " ".join(match["command"].split())) <= MAX_COMMAND_CHARS:
                safe = cleaned(command).text
                found += [(safe, message.seq)] if safe else []
    return found


def _behaviour(messages: Sequence[Message], known: Sequence[str]) -> list[Candidate]:
    """Return what the tool calls show: a command run again and again, a tool used where another was expected."""
    commands = _commands(messages)
    last = dict(commands)
    found: list[Candidate] = []
    heads: Counter[str] = Counter(command.split()[0] for command, _ in commands)
    for family in RIVALS:
        used = [name for name in family if heads[name] >= MIN_COMMAND_RUNS]
        for text in known:
            words = set(read(text).tokens)
            expected = [name for name in family if name in words]
            for name in used:
                if expected and name not in expected:
                    example = next(command for command, _ in commands if command.split()[0] == name)
                    gap = {"predicted": text[:MAX_CHARS], "actual": example, "type": "new_behavior", "importance": 0.5}
                    content = f"Commands here were run with `{name}`, where `{expected[0]}` was expected."
                    found.append(_shown(content, example, last[example], gap))
    for command, runs in Counter(command for command, _ in commands).items():
        if runs >= MIN_COMMAND_RUNS and " " in command and not _LOOKING.match(command):
            found.append(_shown(f"Command used again and again here: `{command}`", command, last[command], None))
    return found


def _shown(content: str, command: str, seq: int, gap: dict[str, Any] | None) -> Candidate:
    topic = " ".join(command.split()[:3])
    return Candidate(
        title(content),
        content,
        MemoryType.WORKFLOW,
        0.5,
        0.75,
        command,
        "project",
        seq,
        ("tool-calls",),
        (f"Which command is used for {topic}?",),
        None,
        gap,
    )


# --- what is news ------------------------------------------------------------------------------------------------


def _comes_from(candidate: Candidate, from_memory: str) -> bool:
    """Return whether memory itself said this in the conversation: a loop, not news."""
    return bool(from_memory) and (
        fold(candidate.quote).rstrip(".。!！") in from_memory or fold(candidate.content).rstrip(".。!！") in from_memory
    )


def shared_words(one: str, other: str) -> float:
    """Return a stand-in for the centred cosine where no embedder runs: the share of words in common, 0 to 1.

    Chinese paraphrases share fewer bigrams than English ones share stems, hence the offset.
    """
    first, second = read(one).content, read(other).content
    shared = len(first & second) / (min(len(first), len(second)) or 1)
    return min(1.0, shared + 0.15) if shared and is_chinese(one) else shared


def _latest_word(candidates: Iterable[Candidate], similarity: Similarity) -> list[Candidate]:
    """Return the candidates without repeats, and without what a later one of the same owner ended."""
    kept: list[Candidate] = []
    seen: set[str] = set()
    for candidate in sorted(candidates, key=lambda candidate: candidate.seq):
        folded = fold(candidate.content)
        if folded in seen:
            continue
        seen.add(folded)
        words = read(candidate.content).content
        repeated = False
        for place in _closest(words, kept):
            earlier = kept[place]
            kind, _ = relation(earlier.content, candidate.content, similarity(earlier.content, candidate.content))
            if kind is Relation.DUPLICATE and "tool-calls" not in candidate.tags:
                repeated = True
                break
            if kind is Relation.CONFLICT and earlier.about == candidate.about and _ended(earlier, candidate):
                del kept[place]
        if not repeated:
            kept.append(candidate)
    return kept


def _closest(words: frozenset[str], kept: Sequence[Candidate]) -> list[int]:
    """Return the places of the candidates to compare with, latest first: few, since a comparison costs the most."""
    places = range(max(0, len(kept) - MAX_CANDIDATES), len(kept))
    shared = [(len(words & read(kept[place].content).content), place) for place in places]
    best = sorted((pair for pair in shared if pair[0]), reverse=True)[:MAX_COMPARED]
    return sorted((place for _, place in best), reverse=True)


def _ended(earlier: Candidate, later: Candidate) -> bool:
    """Return whether of two contradicting candidates the later one alone stands; else reconcile sees both.

    It says that something changed, or it gives the same subject another number or value. The quote is asked too, since
    an opening "actually" is no part of the content.
    """
    after = read(later.content)
    if after.changed or read(later.quote).changed:
        return True
    seen = contrast(read(earlier.content), after)
    return seen.value or (seen.span and (seen.numbers or seen.opposites))


def _with_gap(candidate: Candidate, known: Sequence[str], similarity: Similarity) -> Candidate | None:
    """Return the candidate with what was predicted beside what was said, or None where nothing deviates."""
    if candidate.gap is not None:
        return candidate if candidate.gap["importance"] > MIN_GAP else None
    predicted, kind, importance = "", "new_behavior", candidate.importance
    words = read(candidate.content).content
    for text in known:
        if not words & read(text).content:
            continue
        related, _ = relation(text, candidate.content, similarity(text, candidate.content))
        if related is Relation.DUPLICATE:
            return None
        if related is Relation.CONFLICT:
            predicted = text
            kind = "preference_shift" if candidate.type is MemoryType.PREFERENCE else "contradiction"
            importance = min(1.0, candidate.importance + 0.2)
    if importance <= MIN_GAP:
        return None
    gap = {"predicted": predicted, "actual": candidate.content, "type": kind, "importance": round(importance, 2)}
    return replace(candidate, gap=gap, importance=round(importance, 2))

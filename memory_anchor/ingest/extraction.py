"""From a conversation to memory candidates without a language model, offline, in English and Chinese.

Each sentence is weighed by a small trained model (`worth`): is it worth remembering, and as what? One that is opens a
memory; its neighbours in the message that belong to it join it, so that subject, condition and reason stay together.
Where the words lean on what was said before (a short answer, an opening "it"), that sentence is taken in. Nothing is
reworded: a memory is what was said, with its speaker put in front where it says "I". What the tool calls show is looked
at apart. Only what deviates from what is known already is kept, with the gap. Fewer and whole memories beat many: an
audited store of a peer was 97.8 % junk, most of it recalled text extracted again.

Rejected: lists of phrases (docs/write-path.md: they found 11 to 20 % of what a careful reader keeps of sessions they
were not written for). Invariants: a quote is verbatim text of the message; the same conversation gives the same
candidates; an assistant's word never becomes a fact about the user.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memory_anchor.ingest.candidates import (
    MIN_GAP,
    TYPE_OF,
    About,
    Candidate,
    Similarity,
    gap_of,
    new_candidates,
    shared_words,
)
from memory_anchor.ingest.messages import Message, prose_of, recalled_text
from memory_anchor.ingest.naming import naming_rules
from memory_anchor.ingest.worth import (
    CHAT,
    READ_WHOLE,
    TALKATIVE,
    Utterance,
    Worth,
    acknowledges,
    brevity_of,
    deviation,
    other_choices,
    worth_model,
)
from memory_anchor.json_values import Json
from memory_anchor.language.bounded import bounded
from memory_anchor.language.fences import instruction_like
from memory_anchor.language.perspective import title, with_speaker
from memory_anchor.language.safety import cleaned, only_secrets, redact
from memory_anchor.language.slots import read
from memory_anchor.language.terms import is_chinese
from memory_anchor.model import MemoryType

if TYPE_CHECKING:
    from memory_anchor.ports import Matrix

MAX_SENTENCES = 400
"""Of one message."""
MAX_EMBEDDED = 240
"""Sentences of one conversation whose meaning is asked for (some 70 ms each, behind): the likeliest by their form, each
perhaps with its message."""
USUAL_MESSAGES = 6
MIN_WORDS = 2
"""Below, what is no answer is a date, a number or a sign; of Chinese, signs count."""
LEAST_LEFT = 16
"""Characters that must be left of a text when its secrets are out."""
MIN_CHARS, MAX_CHARS = 2, 500
MAX_CONTENT_CHARS = 700
MIN_COMMAND_RUNS = 3
MAX_COMMAND_CHARS = 160
SHORT_WIDTH = 30
"""A first sentence narrower than this (a Chinese sign counts two) says too little without what was said before."""
SHORT_MESSAGE = 4
"""Sentences of a message that speaks of one thing: what has any worth in it stays together."""

Rows = Callable[[Sequence[str]], "Matrix | None"]
"""Centred rows of texts, None when nothing can embed now."""


def extract_by_rules(
    messages: Sequence[Message],
    *,
    known: Sequence[str] = (),
    similarity: Similarity | None = None,
    rows: Rows | None = None,
    expected: Sequence[str] | None = None,
) -> list[Candidate]:
    """Return what is worth remembering of a conversation, in the order it was said.

    expected: lines of the profile, from which is predicted what the tool calls will show; None: what is known.
    known: contents of memories already stored near this conversation; what they say already is not extracted again.
    similarity: of two texts, from the store's embedder; without it shared words decide. rows: without them sentences
    are weighed by their form alone, which finds less.
    """
    found = _from_sentences(messages, rows)
    found += _behaviour(messages, known if expected is None else expected, found, rows)
    return new_candidates(found, recalled_text(messages), known, similarity or _nearness(found, rows))


def _nearness(found: Sequence[Candidate], rows: Rows | None) -> Similarity | None:
    """Return the cosines of what was found, with shared words where a text has no row; None without an embedder."""
    texts = list(dict.fromkeys(one.content for one in found[:MAX_EMBEDDED]))
    made = rows(texts) if rows is not None and texts else None
    if made is None:
        return None
    at = dict(zip(texts, made, strict=True))

    def similarity(one: str, other: str) -> float:
        return float(at[one] @ at[other]) if one in at and other in at else shared_words(one, other)

    return similarity


# --- sentences ---------------------------------------------------------------------------------------------------

_SENTENCE = re.compile(
    r"(?<=[.!?])\s{1,8}+(?=[\"'“(]?[A-Z0-9\u4e00-\u9fff])"
    r"|(?<=[。！？；])|\n++|(?<=[a-z0-9)])\s{0,8}+;\s{1,8}+"
)
_WORD = re.compile(r"[A-Za-z]{2,}|[\u4e00-\u9fff]")
_BULLET = re.compile(r"\A\s*+(?:[-*•·]|\d{1,2}[.)、])\s++")
_FIRST_PERSON = bounded(r"(?<![a-z])(?:i|i['’]\w+|my|we|we['’]\w+|our)(?![a-z])|我", re.I)
_ONE_PERSON = bounded(r"(?<![a-z])(?:i|i['’]\w+|my)(?![a-z])|我(?!们)", re.I)
_QUOTATION = bounded(r"“[^“”]{1,2000}”|「[^「」]{1,2000}」|『[^『』]{1,2000}』|(?<!\w)\"(?=\S)[^\"]{1,2000}\"(?!\w)")
_REPORT = bounded(
    r"(?!(?:as |like )?(?:i|we)(?![a-z])|我们?的?(?:想|要|再|也|意思是|是|刚才|之前)?(?:说|原话))"
    r"(?:\S.{0,40}(?<![a-z])(?:wrote|says?|said)|\S.{0,20}(?:邮件|原话|说道?|写道))[:：]"
    r"|(?:from|subject|发件人|主题)[:：]",
    re.I,
)
"""How a message opens that gives what somebody else said."""
_TASK = bounded(
    r"(?:please |can you |could you )?(?:translate|proofread|rephrase|paraphrase|rewrite|summari[sz]e|fix the typo"
    r"|write an?)(?![a-z])"
    r"|[^。！？\n:：]{0,12}(?:翻译|润色|改写)(?:成|为|一下|下面|以下|这|[:：，,]|$)|[^。！？\n:：]{0,6}总结(?:一下|下面|以下)",
    re.I | re.M,
)
"""How a message opens that brings text to work on."""


def sentences(text: str) -> list[str]:
    """Return the sentences of a prose text, bullets and white space stripped, at most `MAX_SENTENCES`."""
    parts = (_BULLET.sub("", part).strip() for part in _SENTENCE.split(text))
    return [part for part in parts if part][:MAX_SENTENCES]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of message `seq`. said: it and where it stands; open: it may begin a memory; apart: a line of its
    own, which belongs to no line above."""

    seq: int
    said: Utterance
    open: bool = True
    apart: bool = False


def sentences_of(messages: Iterable[Message]) -> list[Sentence]:
    """Return what user and assistant said, sentence by sentence; somebody else's words open no memory."""
    found: list[Sentence] = []
    before, speaker = "", ""
    for message in messages:
        if message.role not in {"user", "assistant"} or not message.content:
            continue
        text = prose_of(message).lstrip()
        task = _TASK.match(text)
        brought = bool(task and _brings_text(text, task.end()))
        others = _FIRST_PERSON if _REPORT.match(text) else _ONE_PERSON if task else None
        quoted = [match.span() for match in _QUOTATION.finditer(text)]
        parts = sentences(text)
        whole = " ".join(parts) if 1 < len(parts) <= READ_WHOLE else ""
        at = 0
        before, speaker = "" if speaker == message.role else before, message.role
        for place, part in enumerate(parts):
            end, at = at, max(text.find(part, at), at)
            inside = [(start - at, stop - at) for start, stop in quoted if start < at + len(part) and stop > at]
            one = Utterance(part, message.role, before, place, len(parts), message=whole)
            own = not brought and MIN_CHARS <= len(part) <= MAX_CHARS and _is_own(part, others, inside)
            own = own and (one.asked or len(_WORD.findall(part)) >= MIN_WORDS)
            found.append(Sentence(message.seq, one, own, "\n" in text[end:at]))
            before, at = part, at + len(part)
    # A few usual messages are counted in, so that one long message is no lecture yet.
    spoken = len({one.seq for one in found}) + USUAL_MESSAGES
    talk = min(1.0, (len(found) + USUAL_MESSAGES) / TALKATIVE / spoken)
    short = brevity_of(spoken - USUAL_MESSAGES)
    return [replace(one, said=replace(one.said, talk=talk, few=short)) for one in found]


def _brings_text(text: str, start: int) -> bool:
    """Return whether a colon behind a task's head says that what follows is the text to work on."""
    line = text[start - 1 :].partition("\n")[0]
    return re.search(r"[:：](?=\s|[^\x00-\x7f]|$)", line) is not None


def _is_own(sentence: str, others: re.Pattern[str] | None, quoted: Sequence[tuple[int, int]]) -> bool:
    """Return whether a sentence is the speaker's own: the "I" of a quotation or a report is somebody else's.

    others: the persons that stand for somebody else in this message. quoted: (start, end) of quotations.
    """
    if others is not None and others.search(sentence):
        return False
    persons = list(_FIRST_PERSON.finditer(sentence)) if quoted else []
    return not persons or not all(any(start <= one.start() < end for start, end in quoted) for one in persons)


# --- from sentences to memories ----------------------------------------------------------------------------------

SURE, UNSURE, CLAIMED = 0.92, 0.85, 0.88
"""Confidence of what a user said and the model is sure of, of what it is less sure of, and of an assistant's word."""
_LEANS_BACK = bounded(
    r"\A\W*+(?:(?:and|but|so|then|also|yes|no|ok|okay)[\s,]+)*+(?:it|its|it['’]s|this|that|that['’]s|these|those|they|them|he|she"
    r"|one|both|either|same|because|since|otherwise|which)(?![a-z])|\A\W*+(?:这|那(?!么)|它|他|她|其|因为|不然|否则|所以|也)",
    re.I,
)
"""A sentence that says what it is about with a word for what was said before."""
_TO_AGENT = bounded(
    r"(?<![a-z])(?:your name is|(?:i['’]ll|i will|let me) call you|you(?:['’]re| are) (?:called|named))(?![a-z])"
    r"|你(?:的名字)?(?:就)?叫|以后(?:我)?叫你|你的名字是",
    re.I,
)
_REDACTED = re.compile(r"\[redacted:\w{1,40}\]")
_ASKED_TO_KEEP = bounded(
    r"\A(?:please |also |oh,? |and )*(?:remember|note|keep in mind|don['’]t forget|for the record)"
    r"(?: that| this)?(?! to)(?![a-z])[:,]?\s*"
    r"|\A(?:请|帮我|麻烦)?(?:记住|记下来?|记一下|备忘)[:：,，]?\s*",
    re.I,
)


def _width(text: str) -> int:
    return sum(2 if "\u4e00" <= sign <= "\u9fff" else 1 for sign in text)


def _from_sentences(messages: Sequence[Message], rows: Rows | None) -> list[Candidate]:
    every = sentences_of(messages)
    worths = weigh([one.said if one.open else None for one in every], rows)
    return memories_of(every, worths)


def memories_of(every: Sequence[Sentence], worths: Sequence[Worth]) -> list[Candidate]:
    """Return the memories that these sentences of a conversation make, each of this worth."""
    found = [_candidate([every[at] for at in group], [worths[at] for at in group]) for group in _groups(every, worths)]
    return [candidate for candidate in found if candidate is not None]


def weigh(said: Sequence[Utterance | None], rows: Rows | None) -> list[Worth]:
    """Return the worth of each sentence, 0 for None: by form first, then the likeliest by their meaning."""
    model = worth_model()
    by_form = [Worth.none() if one is None else model.by_form(one) for one in said]
    if rows is None:
        return by_form
    likely = sorted(range(len(said)), key=lambda at: -by_form[at].chance)
    likely = [at for at in likely if by_form[at].chance >= model.read_from][:MAX_EMBEDDED]
    chosen = [one for at in likely if (one := said[at]) is not None]
    texts = list(
        dict.fromkeys([one.read_as for one in chosen] + [one.read_within for one in chosen if one.talk < CHAT])
    )
    made = rows(texts) if texts else None
    if made is None:
        return by_form
    row_of = dict(zip(texts, made, strict=True))
    worths = [Worth.none()] * len(said)
    for at, one in zip(likely, chosen, strict=True):
        row = row_of[one.read_as]
        worths[at] = model.by_embedding(one, row, row_of.get(one.read_within, row))
    return worths


def _groups(every: Sequence[Sentence], worths: Sequence[Worth]) -> list[list[int]]:
    """Return the places of the sentences of each memory: one that is worth it, and what belongs to it beside it."""
    groups: list[list[int]] = []
    taken = -1
    for at, worth in enumerate(worths):
        if at <= taken or not (worth.keeps or (worth.joins and _asked_to_keep(every[at].said))):
            continue
        first = last = at
        while last + 1 < len(every) and _joins(every, worths, last, last + 1):
            last += 1
        while first - 1 > taken and _joins(every, worths, first, first - 1):
            first -= 1
        groups.append(list(range(first, last + 1)))
        taken = last
    return groups


def _asked_to_keep(said: Utterance) -> bool:
    """Return whether a user asks in so many words to remember this; a lecturer says "remember" all the time."""
    return said.role == "user" and said.talk < CHAT and bool(_ASKED_TO_KEEP.match(said.text))


def _joins(every: Sequence[Sentence], worths: Sequence[Worth], of: int, other: int) -> bool:
    """Return whether the sentence at `other` belongs to the memory that the one at `of`, beside it, is part of."""
    if every[of].seq != every[other].seq or not every[other].open or every[max(of, other)].apart:
        return False
    if naming_rules(every[of].said.text) and naming_rules(every[other].said.text):
        return False
    if every[of].said.of <= SHORT_MESSAGE:
        return worths[other].chance >= worth_model().leans_from
    leans = bool(_LEANS_BACK.match(every[max(of, other)].said.text))
    return worths[other].joins and (leans or worths[of].kind == worths[other].kind)


def _candidate(group: Sequence[Sentence], worths: Sequence[Worth]) -> Candidate | None:
    """Return the memory of neighbouring sentences, or None where it gives orders to a reader or is a secret alone."""
    best, at = max(((worth, at) for at, worth in enumerate(worths)), key=lambda pair: pair[0].chance)
    said = group[0].said
    body = " ".join(one.said.text for one in group)
    stripped = _ASKED_TO_KEEP.sub("", body, count=1)
    if instruction_like(body) or only_secrets(redact(stripped).text):
        return None
    about: About = "project"
    if said.role == "user":
        if _TO_AGENT.search(body):
            about = "agent"
        elif best.kind in ("preference", "emotion") or (best.kind in ("person", "fact") and _ONE_PERSON.search(body)):
            about = "user"
    content = with_speaker(stripped, speaker="user" if said.role == "user" and about != "agent" else "")
    before = _taken_in(said, body)
    if before:
        content = f"{before} {content}"
    safe, quote = redact(content[:MAX_CONTENT_CHARS]), redact(group[at].said.text)
    if len(_REDACTED.sub("", safe.text).strip()) < (LEAST_LEFT if safe.kinds else 1):
        return None
    is_exact = TYPE_OF[best.kind]["type"] is MemoryType.INSTRUCTION and bool(naming_rules(content))
    confidence = CLAIMED if said.role == "assistant" else SURE if best.sure or is_exact else UNSURE
    return Candidate(
        key=title(safe.text),
        content=safe.text,
        **TYPE_OF[best.kind],
        confidence=confidence,
        quote=quote.text,
        about=about,
        seq=group[at].seq,
        tags=(best.kind,),
        questions=(redact(said.before).text,) if said.asked and len(said.before) <= 200 else (),
        redactions=safe.kinds,
    )


def _taken_in(said: Utterance, body: str) -> str:
    """Return the sentence said before where a stranger needs it: for a short answer, or an opening "it"."""
    short = said.place == 0 and _width(body) < SHORT_WIDTH and not acknowledges(said.before)
    needs = said.asked or short or _LEANS_BACK.match(body)
    if not said.before or not needs or len(said.before) > MAX_CHARS or instruction_like(said.before):
        return ""
    return (
        said.before if said.before[-1] in ".?!。？！:：" else f"{said.before}{'。' if is_chinese(said.before) else '.'}"
    )


# --- what the tool calls show ------------------------------------------------------------------------------------

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
_LOOKING = re.compile(r"(?:ls|cat|cd|echo|grep|rg|sed|head|tail|find|pwd|git (?:status|diff|log|add|show))(?![\w-])")
"""Commands that only look: however often they run, they are no habit worth keeping."""
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


def _behaviour(
    messages: Sequence[Message], known: Sequence[str], said: Sequence[Candidate], rows: Rows | None
) -> list[Candidate]:
    """Return what the tool calls show: a command run again and again, a tool or a value where another was expected.

    said: what was found in words; what a person said of the same choice needs no second memory.
    """
    commands = _commands(messages)
    last = dict(commands)
    found: list[Candidate] = []
    heads: Counter[str] = Counter(command.split()[0] for command, _ in commands)
    for family in RIVALS:
        used = [name for name in family if heads[name]]
        for text in known if used else ():
            words = set(read(text).tokens)
            expected = [name for name in family if name in words]
            for name in used:
                if expected and name not in expected:
                    size = deviation(heads[name], sum(heads[one] for one in expected))
                    example = next(command for command, _ in commands if command.split()[0] == name)
                    gap = gap_of(text[:MAX_CHARS], example, "new_behavior", size)
                    content = f"Commands here were run with `{name}`, where `{expected[0]}` was expected."
                    found.append(_shown(content, example, last[example], gap))
    found += _other_choices(messages, known, said, rows)
    for command, runs in Counter(command for command, _ in commands).items():
        if runs >= MIN_COMMAND_RUNS and " " in command and not _LOOKING.match(command):
            found.append(_shown(f"Command used again and again here: `{command}`", command, last[command], None))
    return found


def _other_choices(
    messages: Sequence[Message], known: Sequence[str], said: Sequence[Candidate], rows: Rows | None
) -> list[Candidate]:
    """Return one memory for each habit that the tool calls deviate from: usually vintage, this time cyberpunk."""
    found = []
    for one in other_choices(messages, known, rows):
        if one.size <= MIN_GAP or any(one.value.lower() in candidate.content.lower() for candidate in said):
            continue
        head = "这次 {} 选了 `{}`，而此前：" if is_chinese(one.habit) else "This time {} was `{}`; before: "
        safe, actual = redact(head.format(one.name, one.value) + one.habit), f"{one.tool} {one.name}={one.value}"
        shown = replace(
            _shown(safe.text, actual, one.seq, None), type=MemoryType.PREFERENCE, about="user", questions=()
        )
        found.append(shown.with_gap(gap_of(one.habit, actual, "preference_shift", one.size)))
    return found


def _shown(content: str, command: str, seq: int, gap: dict[str, Json] | None) -> Candidate:
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
        from_tools=True,
    )

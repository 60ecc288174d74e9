"""From a conversation to memory candidates without a language model, offline, in English and Chinese.

A small trained model (`capture_classifier`) says of each sentence whether it is worth remembering, and as what. One
that is starts a memory; neighbours in its message that belong to it join, so that subject, condition and reason stay
together. A sentence that depends on what another message says (a short answer, a yes) carries that as its context.
Nothing is reworded. Tool calls are read separately. Only what deviates from what is known is kept, with the gap. Few
complete memories beat many: an audited store of a peer was 97.8 % junk, mostly recalled text extracted again.

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

from memory_anchor.base.json_values import Json
from memory_anchor.domain.model import MemoryType, Tag
from memory_anchor.ingest.candidates import (
    MIN_GAP,
    TYPE_OF,
    About,
    Candidate,
    Similarity,
    gap_of,
    new_candidates,
    shared_words,
    stored_as,
)
from memory_anchor.ingest.capture_classifier import (
    CHAT,
    LECTURE_SENTENCES,
    NO_WORTH,
    SHORT_MESSAGE_SENTENCES,
    Utterance,
    Worth,
    acknowledges,
    brevity_of,
    deviation,
    is_lasting,
    other_choices,
    worth_model,
)
from memory_anchor.ingest.messages import Message, prose_of, recalled_text
from memory_anchor.ingest.naming import naming_rules
from memory_anchor.ingest.relations import wording
from memory_anchor.language.fences import instruction_like
from memory_anchor.language.perspective import by_user, title, without_opening
from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.safety import cleaned, only_secrets, redact
from memory_anchor.language.slots import read
from memory_anchor.language.terms import is_chinese
from memory_anchor.language.words import pattern

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Matrix

MAX_SENTENCES = 400
"""Of one message."""
MAX_EMBEDDED = 240
"""Sentences of one conversation that are embedded (some 70 ms each, in the background), the likeliest by their form."""
USUAL_MESSAGES = 6
MIN_WORDS = 2
"""Of a sentence that is no answer; with fewer it is a date, a number or a sign. Chinese characters count as words."""
MIN_UNREDACTED_CHARS = 16
"""Of a text whose secrets were taken out."""
MIN_CHARS, MAX_CHARS = 2, 500
MAX_CONTENT_CHARS = 700
MIN_COMMAND_RUNS = 3
MAX_COMMAND_CHARS = 160
SHORT_WIDTH = 30
"""A first sentence narrower than this (a Chinese character counts two) says too little without the one before."""
ONE_TOPIC_SENTENCES = 4
"""A message of at most so many is about one thing: everything in it with any worth stays together."""

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

    known: contents of stored memories near this conversation; what they say is not extracted again. similarity: of two
    texts; default: cosines of `rows`, else shared words. rows: without them sentences are judged by their form alone,
    which finds less. expected: lines of the profile that predict what the tool calls will show; default: `known`.
    """
    sentences = sentences_of(messages)
    worths = weigh([sentence.said if sentence.open else None for sentence in sentences], rows)
    candidates = memories_of(sentences, worths)
    candidates += _from_tool_calls(messages, known if expected is None else expected, candidates, rows)
    return new_candidates(candidates, recalled_text(messages), known, similarity or _similarity(candidates, rows))


def _similarity(candidates: Sequence[Candidate], rows: Rows | None) -> Similarity | None:
    """Return the candidates' cosines, or shared words for a text without a row; None without an embedder."""
    texts = list(dict.fromkeys(candidate.content for candidate in candidates[:MAX_EMBEDDED]))
    vectors = rows(texts) if rows is not None and texts else None
    if vectors is None:
        return None
    row_of = dict(zip(texts, vectors, strict=True))

    def similarity(first: str, second: str) -> float:
        if first in row_of and second in row_of:
            return float(row_of[first] @ row_of[second])
        return shared_words(first, second)

    return similarity


# --- sentences ---------------------------------------------------------------------------------------------------

_SENTENCE = late(
    r"(?<=[.!?])\s{1,8}+(?=[\"'“(]?[A-Z0-9\u4e00-\u9fff])"
    r"|(?<=[。！？；])|\n++|(?<=[a-z0-9)])\s{0,8}+;\s{1,8}+"
)
_WORD = late(r"[A-Za-z]{2,}|[\u4e00-\u9fff]")
_BULLET = late(r"\A\s*+(?:[-*•·]|\d{1,2}[.)、])\s++")
_FIRST_PERSON = bounded(r"(?<![a-z])(?:i|i['’]\w+|my|we|we['’]\w+|our)(?![a-z])|我", re.I)
_ONE_PERSON = bounded(r"(?<![a-z])(?:i|i['’]\w+|my)(?![a-z])|我(?!们)", re.I)
_QUOTATION = bounded(r"“[^“”]{1,2000}”|「[^「」]{1,2000}」|『[^『』]{1,2000}』|(?<!\w)\"(?=\S)[^\"]{1,2000}\"(?!\w)")
_REPORT = bounded(pattern("moods", "quotes"), re.I)
"""How a message opens that reports what somebody else said."""
_TASK = bounded(pattern("moods", "brings_text"), re.I | re.M)
"""How a message opens that brings text to work on."""
_SUPPOSES = bounded(pattern("moods", "supposes"), re.I)
"""How a sentence opens that only supposes; a stated condition ("if the build fails", 如果测试失败) opens otherwise."""
_MOCKS = bounded(pattern("moods", "mocks"), re.I)
"""Signs that what is said is not meant."""
_CITES = bounded(pattern("moods", "cites"), re.I)
"""How a sentence opens that passes on what a tool or a text says, with or without quotation marks."""
_SAYS = bounded(rf"(?<![a-z])(?:{pattern('moods', 'says')})[:,：，]?\s*\Z|[:：]\s*\Z", re.I)
QUOTED_SHARE = 0.4
"""Share of a sentence in quotation marks, behind a word of saying, from which it is somebody else's."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of message `seq`. open: it may be part of a memory. apart: it begins a new line.

    source: the prose of its message, in which it stands at `start`.
    """

    seq: int
    said: Utterance
    open: bool = True
    apart: bool = False
    source: str = ""
    start: int = 0


def sentences_of(messages: Iterable[Message]) -> list[Sentence]:
    """Return what user and assistant said, sentence by sentence; somebody else's words open no memory."""
    sentences: list[Sentence] = []
    previous, speaker, asked = "", "", ""
    for message in messages:
        if message.role not in {"user", "assistant"} or not message.content:
            continue
        text = prose_of(message).lstrip()
        task = _TASK.match(text)
        brings_text = bool(task and _brings_text(text, task.end()))
        others = _FIRST_PERSON if _REPORT.match(text) else _ONE_PERSON if task else None
        quoted = [match.span() for match in _QUOTATION.finditer(text)]
        parts = [part for raw in _SENTENCE.split(text) if (part := _BULLET.sub("", raw).strip())][:MAX_SENTENCES]
        short_message = " ".join(parts) if 1 < len(parts) <= SHORT_MESSAGE_SENTENCES else ""
        at = 0
        if speaker == message.role:
            previous = asked = ""
        speaker, question = message.role, previous
        for position, part in enumerate(parts):
            end, at = at, max(text.find(part, at), at)
            inside = [(start - at, stop - at) for start, stop in quoted if start < at + len(part) and stop > at]
            said = Utterance(part, message.role, previous, position, len(parts), message=short_message, asked=asked)
            is_open = (
                not brings_text
                and MIN_CHARS <= len(part) <= MAX_CHARS
                and not (_SUPPOSES.search(part) or _MOCKS.search(part) or _CITES.search(part))
                and not _is_quoted(part, inside)
                and _is_speakers_own(part, others, inside)
                and (said.answers or said.assents or len(_WORD.findall(part)) >= MIN_WORDS)
            )
            sentences.append(Sentence(message.seq, said, is_open, "\n" in text[end:at], text, at))
            previous, at = part, at + len(part)
        asked = question if parts and sentences[-len(parts)].said.answers else ""
    spoken = len({sentence.seq for sentence in sentences})
    # A few usual messages are counted in, so that one long message is no lecture yet.
    verbosity = min(1.0, (len(sentences) + USUAL_MESSAGES) / LECTURE_SENTENCES / (spoken + USUAL_MESSAGES))
    users_own = [is_lasting(sentence.said.text) for sentence in sentences if sentence.said.role == "user"]
    is_answered = any(sentence.said.role == "assistant" for sentence in sentences)
    brevity = brevity_of(spoken if is_answered else 1, sum(users_own) / (len(users_own) or 1))
    return [
        replace(sentence, said=replace(sentence.said, verbosity=verbosity, brevity=brevity)) for sentence in sentences
    ]


def _brings_text(text: str, start: int) -> bool:
    """Return whether a colon after a task's first words says that the text to work on follows."""
    line = text[start - 1 :].partition("\n")[0]
    return re.search(r"[:：](?=\s|[^\x00-\x7f]|$)", line) is not None


def _is_quoted(sentence: str, quoted: Sequence[tuple[int, int]]) -> bool:
    """Return whether most of a sentence is a quotation that its words before attribute to somebody."""
    return any(
        min(end, len(sentence)) - max(start, 0) >= QUOTED_SHARE * len(sentence)
        and _SAYS.search(sentence[: max(start, 0)])
        for start, end in quoted
    )


def _is_speakers_own(sentence: str, others: re.Pattern[str] | None, quoted: Sequence[tuple[int, int]]) -> bool:
    """Return False where the "I" of a sentence is somebody else's: in a report or a quotation.

    others: pronouns that mean somebody else in this message. quoted: (start, end) of quotations.
    """
    if others is not None and others.search(sentence):
        return False
    pronouns = [match.start() for match in _FIRST_PERSON.finditer(sentence)] if quoted else []
    return not pronouns or not all(any(start <= at < end for start, end in quoted) for at in pronouns)


# --- from sentences to memories ----------------------------------------------------------------------------------

SURE, UNSURE, BY_ASSISTANT = 0.92, 0.85, 0.88
"""Confidence in what a user said, where the model is sure and where it is less so, and in an assistant's word."""
_LEANS_BACK = bounded(
    r"\A\W*+(?:(?:and|but|so|then|also|yes|no|ok|okay)[\s,]++)*(?:it|its|it['’]s|this|that|that['’]s|these|those|they|them|he|she"
    r"|one|both|either|same|because|since|otherwise|which)(?![a-z])|\A\W*+(?:这|那(?!么)|它|他|她|其|因为|不然|否则|所以|也)",
    re.I,
)
"""A sentence that refers back for what it is about."""
_TO_AGENT = bounded(pattern("moods", "names_agent"), re.I)
_REDACTED = late(r"\[redacted:\w{1,40}\]")
_ASKED_TO_KEEP = bounded(
    r"\A(?:please |also |oh,? |and )*(?:remember|note|keep in mind|don['’]t forget|for the record)"
    r"(?: that| this)?(?! to)(?![a-z])[:,]?\s*"
    r"|\A(?:请|帮我|麻烦)?(?:记住|记下来?|记一下|备忘)[:：,，]?\s*",
    re.I,
)


def _width(text: str) -> int:
    return sum(2 if "\u4e00" <= character <= "\u9fff" else 1 for character in text)


def memories_of(sentences: Sequence[Sentence], worths: Sequence[Worth]) -> list[Candidate]:
    """Return the memories that the sentences of a conversation make. worths: one a sentence."""
    spans = _spans(sentences, worths)
    candidates = (_candidate(sentences[start:end], worths[start:end]) for start, end in spans)
    return [candidate for candidate in candidates if candidate is not None]


def weigh(utterances: Sequence[Utterance | None], rows: Rows | None) -> list[Worth]:
    """Return the worth of each sentence, 0 for None: by form first, then the likeliest by their embeddings."""
    model = worth_model()
    utterances = [said and said.judged for said in utterances]
    by_form = [NO_WORTH if said is None else model.by_form(said) for said in utterances]
    if rows is None:
        return by_form
    likely = sorted(range(len(by_form)), key=lambda at: -by_form[at].chance)
    likely = [at for at in likely if by_form[at].chance >= model.read_from][:MAX_EMBEDDED]
    chosen = [said for at in likely if (said := utterances[at]) is not None]
    whole_messages = [said.embedded_message for said in chosen if said.verbosity < CHAT]
    texts = list(dict.fromkeys([*(said.embedded_text for said in chosen), *whole_messages]))
    vectors = rows(texts) if texts else None
    if vectors is None:
        return by_form
    row_of = dict(zip(texts, vectors, strict=True))
    worths = [NO_WORTH] * len(by_form)
    for at, said in zip(likely, chosen, strict=True):
        row = row_of[said.embedded_text]
        worths[at] = model.by_embedding(said, row, row_of.get(said.embedded_message, row))
    return worths


def _spans(sentences: Sequence[Sentence], worths: Sequence[Worth]) -> list[tuple[int, int]]:
    """Return (start, end) of each memory: a sentence that is worth keeping, and the neighbours that belong to it."""
    spans: list[tuple[int, int]] = []
    end = 0
    for at, worth in enumerate(worths):
        if at < end or not (worth.keeps or (worth.joins and _asks_to_remember(sentences[at].said))):
            continue
        first = last = at
        while last + 1 < len(sentences) and _joins(sentences, worths, last, last + 1):
            last += 1
        while first > end and _joins(sentences, worths, first, first - 1):
            first -= 1
        end = last + 1
        spans.append((first, end))
    return spans


def _asks_to_remember(said: Utterance) -> bool:
    """Return whether a user asks to remember this, which a lecturer often does, or agrees to an answer."""
    is_asked = said.role == "user" and said.verbosity < CHAT and bool(_ASKED_TO_KEEP.match(said.text))
    return is_asked or bool(said.assents and said.asked)


def _joins(sentences: Sequence[Sentence], worths: Sequence[Worth], member: int, neighbour: int) -> bool:
    """Return whether the sentence at `neighbour` belongs to the memory of the one at `member`."""
    inner, outer, second = sentences[member], sentences[neighbour], sentences[max(member, neighbour)]
    if inner.seq != outer.seq or not outer.open or second.apart:
        return False
    if naming_rules(inner.said.text) and naming_rules(outer.said.text):
        return False
    if inner.said.assents != outer.said.assents:
        return False  # what is agreed to is one memory, what is said besides another
    is_rule = worths[member].kind == "rule" or naming_rules(inner.said.text)
    if is_rule and wording(outer.said.text).announces:
        return True  # "I have an update for you": the word of change of the rule beside it
    if inner.said.siblings <= ONE_TOPIC_SENTENCES:
        return worths[neighbour].chance >= worth_model().leans_from
    same_kind = worths[member].kind == worths[neighbour].kind
    return worths[neighbour].joins and (same_kind or bool(_LEANS_BACK.match(second.said.text)))


def _candidate(group: Sequence[Sentence], worths: Sequence[Worth]) -> Candidate | None:
    """Return the memory of neighbouring sentences, or None where it gives orders to a reader or is a secret alone."""
    best, at = max(((worth, at) for at, worth in enumerate(worths)), key=lambda pair: pair[0].chance)
    said = group[0].said
    body = _quoted(group)
    stripped = _ASKED_TO_KEEP.sub("", body, count=1)
    if instruction_like(body) or only_secrets(redact(stripped).text):
        return None
    about: About = "project"
    if said.role == "user":
        if _TO_AGENT.search(body):
            about = "agent"
        elif best.kind in ("preference", "emotion") or (best.kind in ("person", "fact") and _ONE_PERSON.search(body)):
            about = "user"
    content, context = without_opening(stripped), _context_for(said, body)
    speaks = said.role == "user" and about != "agent" and not said.assents and by_user(content) != content
    if said.assents:  # what is agreed to is what holds
        content, context = without_opening(said.previous), f"{said.asked} {body}".strip()
    elif context and said.position:  # of the same message: one piece of it
        source, start = group[0].source, group[0].start
        content = " ".join(source[source.rfind(said.previous, 0, start) : start + len(body)].split())
        context = ""
    safe, quote = redact(content[:MAX_CONTENT_CHARS]), redact(group[at].said.text)
    if len(_REDACTED.sub("", safe.text).strip()) < (MIN_UNREDACTED_CHARS if safe.kinds else 1):
        return None
    is_exact = TYPE_OF[best.kind]["type"] is MemoryType.INSTRUCTION and bool(naming_rules(content))
    confidence = BY_ASSISTANT if said.role == "assistant" else SURE if best.sure or is_exact else UNSURE
    return Candidate(
        key=title(safe.text),
        content=safe.text,
        **TYPE_OF[best.kind],
        confidence=confidence,
        quote=quote.text,
        about=about,
        seq=group[at].seq,
        tags=(Tag(best.kind),),
        questions=(redact(said.previous).text,) if said.answers and len(said.previous) <= 200 else (),
        redactions=safe.kinds,
        speaks=speaks,
        context=redact(context).text,
    )


def _quoted(group: Sequence[Sentence]) -> str:
    """Return what neighbouring sentences say with what stands between them: one piece of their message."""
    last = group[-1]
    return group[0].source[group[0].start : last.start + len(last.said.text)]


def _context_for(said: Utterance, body: str) -> str:
    """Return the sentence before it where `body` cannot be understood without; else ""."""
    previous = said.previous
    short = said.position == 0 and _width(body) < SHORT_WIDTH and not acknowledges(previous)
    needed = said.answers or short or _LEANS_BACK.match(body)
    if not previous or not needed or len(previous) > MAX_CHARS or instruction_like(previous):
        return ""
    return previous


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
"""Commands that replace one another: using one where another was expected is news."""
_READ_ONLY = late(r"(?:ls|cat|cd|echo|grep|rg|sed|head|tail|find|pwd|git (?:status|diff|log|add|show))(?![\w-])")
"""Commands that only look: however often they run, they are no habit worth keeping."""
_COMMAND_HEAD = late(
    r"\A\s*+(?:(?:cd\s++\S{1,400}+\s*+&&|sudo|time|env|\w{1,64}+=\S{1,400}+)\s*+){0,8}"
    r"(?P<command>[^|;&\n]{2,400})"
)

_RUNNER = late(r"\A(?:python[\d.]{0,5} -m|npx|bunx|uvx|(?:uv|poetry|pdm) run|(?:npm|pnpm|yarn) exec) ([\w-]{1,64})")


def _commands(messages: Iterable[Message]) -> list[tuple[str, int]]:
    """Return (command, seq) of each shell call, without its `cd`, environment and pipes."""
    commands = []
    for message in messages:
        for call in message.tool_calls:
            raw = call.arguments.get("command", call.arguments.get("cmd", ""))
            line = " ".join(map(str, raw)) if isinstance(raw, list) else str(raw)
            match = _COMMAND_HEAD.match(line[:2000])
            if match and len(command := " ".join(match["command"].split())) <= MAX_COMMAND_CHARS:
                safe = cleaned(command).text
                commands += [(safe, message.seq)] if safe else []
    return commands


def _programs(command: str) -> set[str]:
    """Return the program of a command, and the one that it runs: unittest in "python -m unittest"."""
    run = _RUNNER.match(command)
    return {command.split()[0]} | ({run[1]} if run else set())


def _from_tool_calls(
    messages: Sequence[Message], known: Sequence[str], said: Sequence[Candidate], rows: Rows | None
) -> list[Candidate]:
    """Return what the tool calls show: a command run repeatedly, a tool or a value where another was expected.

    said: candidates found in the text; a choice that one of them mentions needs no second memory.
    """
    commands = _commands(messages)
    last = dict(commands)
    candidates: list[Candidate] = []
    programs: Counter[str] = Counter(program for command, _ in commands for program in _programs(command))
    for text in known if commands else ():
        rule = read(text)
        refused = rule.refused | wording(text).over
        asked = {token for token in rule.tokens if not {token, *read(token).content} & refused}
        for name in sorted(programs):
            family = next((rivals for rivals in RIVALS if name in rivals), ())
            expected = [rival for rival in family if rival in asked]
            if name in asked or not (expected or name in rule.tokens):
                continue
            size = deviation(programs[name], sum(programs[rival] for rival in expected))
            example = next(command for command, _ in commands if name in _programs(command))
            gap = gap_of(text[:MAX_CHARS], example, "new_behavior", size)
            instead = f"where `{expected[0]}` was expected" if expected else "which a rule refuses"
            content = f"Commands here were run with `{name}`, {instead}."
            candidates.append(_workflow(content, example, last[example], gap))
    candidates += _changed_habits(messages, known, said, rows)
    for command, runs in Counter(command for command, _ in commands).items():
        if runs >= MIN_COMMAND_RUNS and " " in command and not _READ_ONLY.match(command):
            content = f"Command used again and again here: `{command}`"
            candidates.append(_workflow(content, command, last[command], None))
    return candidates


def _changed_habits(
    messages: Sequence[Message], known: Sequence[str], said: Sequence[Candidate], rows: Rows | None
) -> list[Candidate]:
    """Return one memory for each habit that the tool calls deviate from: usually vintage, this time cyberpunk."""
    candidates = []
    for choice in other_choices(messages, known, rows):
        if choice.size <= MIN_GAP or any(choice.value.lower() in candidate.content.lower() for candidate in said):
            continue
        head = "这次 {} 选了 `{}`，而此前：" if is_chinese(choice.habit) else "This time {} was `{}`; before: "
        safe = redact(head.format(choice.name, choice.value) + choice.habit)
        actual = f"{choice.tool} {choice.name}={choice.value}"
        memory = _workflow(safe.text, actual, choice.seq, None)
        memory = replace(memory, type=MemoryType.PREFERENCE, about="user", questions=())
        candidates.append(memory.with_gap(gap_of(choice.habit, actual, "preference_shift", choice.size)))
    return candidates


def _workflow(content: str, command: str, seq: int, gap: dict[str, Json] | None) -> Candidate:
    topic = " ".join(command.split()[:3])
    return Candidate(
        key=title(content),
        content=content,
        **stored_as(MemoryType.WORKFLOW, 0.5),
        confidence=0.75,
        quote=command,
        about="project",
        seq=seq,
        tags=(Tag("tool-calls"),),
        questions=(f"Which command is used for {topic}?",),
        gap=gap,
    )

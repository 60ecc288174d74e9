"""What a conversation gets back after its compaction: its own decisions, rejected paths, open tasks and commands.

A summary keeps what was decided three times in four and hardly a command. So the transcript is read once more, by its
form and by a few words (`acts.toml`), with no model and no embedding: what the user said that is no question, what the
agent proposed and the user accepted, what either says was tried and given up, what is still open, and the commands that
worked, first those that worked after others had failed. Read is the end of the file, in linear time; what comes out is
cleaned of secrets, quoted as it was said, and fenced. A transcript that cannot be read gives nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memory_anchor.base.json_values import Json
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.domain.model import Trust
from memory_anchor.ingest.capture_classifier import is_lasting
from memory_anchor.ingest.extraction import Sentence, sentences_of, weigh
from memory_anchor.ingest.messages import Message
from memory_anchor.ingest.transcripts import read_end
from memory_anchor.language.acts import cue_in, programs_at_work
from memory_anchor.language.fences import fence, neutralise
from memory_anchor.language.safe_regex import bounded
from memory_anchor.language.safety import cleaned
from memory_anchor.language.tokens import estimate_tokens

READ_BYTES = 4 * 1024 * 1024
"""The end of a transcript that is read."""
SENTENCES_MAX = 8_000
"""The newest that are weighed, half a megabyte of speech; a transcript is results of tools for the most part."""
TOKENS = 330.0
"""Of the lines that are given back; with fence and titles below 400."""
LINE_CHARS, MIN_WIDTH = 220, 8
KINDS = {"decided": 9, "given up": 4, "still open": 5, "worked here": 5}
"""What is given back, and how many lines of it at most."""
TITLES = {
    "decided": "Decided",
    "given up": "Given up",
    "still open": "Still open",
    "worked here": "Commands that worked",
}
LASTING, CHOSEN, REASONED = 0.3, 0.4, 0.2
"""What it adds to a sentence's worth that it always holds, chooses, or says why."""
LATE = 0.2
"""What the last sentence has more than the first."""
FIXED, ONCE_MORE, MAX_COMMAND = 2.0, 0.5, 160
_FAILED = bounded(r"\s*(?:<tool_use_error>|Error\b|(?:Error: )?Exit code:? [1-9]|Process exited with code [1-9])")
_ASKS = bounded(r"(?:[?？]|[吗呢][。！]?)\s*$")
_WANTED = frozenset(("pending", "in_progress", "open", "todo"))


@dataclass(slots=True)
class _CommandRun:
    """A command of a conversation. fixed: it worked after another line of its program had failed."""

    line: str
    worked: bool = False
    fixed: bool = False
    runs: int = 0
    last: int = 0


@dataclass(slots=True)
class CompactedSession:
    """What a conversation holds that outlives its compaction: words -> how much they matter, by kind."""

    found: dict[str, dict[str, float]] = field(default_factory=lambda: {kind: {} for kind in KINDS})

    def add(self, kind: str, worth: float, words: str) -> None:
        words = " ".join(cleaned(neutralise(words)).text.split())[:LINE_CHARS]
        if words:
            self.found[kind].setdefault(words, worth)

    def lines(self, kind: str) -> list[str]:
        """Return the lines of a kind, those that matter most, in the order in which they were said.

        What another line holds whole is left out. Compared are the chosen few: every two would be quadratic.
        """
        best: list[str] = []
        for words in sorted(self.found[kind], key=lambda words: -self.found[kind][words]):
            if len(best) == KINDS[kind]:
                break
            if not any(words in other or other in words for other in best):
                best.append(words)
        return [words for words in self.found[kind] if words in best]


def given_back(path: str, budget: float = TOKENS) -> str:
    """Return what a compacted conversation gets back of its own, fenced; "" for nothing, or for no transcript."""
    try:
        messages = read_end(Path(path), READ_BYTES) if path else ()
    except (BadInput, NotFound):
        return ""
    session = of_messages(messages)
    shown: list[str] = []
    left = budget
    for share, kind in zip((0.5, 0.45, 0.6, 1.0), KINDS, strict=True):
        own, lines = left * share, list[str]()
        chosen = session.lines(kind)
        for words in sorted(chosen, key=lambda words: -session.found[kind][words]):
            price = estimate_tokens(f"- {words}") + 1
            if price <= own:
                own, left = own - price, left - price
                lines.append(words)
        ordered = [f"- {words}" for words in chosen if words in lines]
        shown += [f"{TITLES[kind]}:", *ordered] if ordered else []
    if not shown:
        return ""
    head = "[Memory Anchor] From this very session, before it was compacted; quoted, not summarised:"
    return "\n".join([head, fence("\n".join(shown), source="this session", trust=Trust.AGENT)])


def of_messages(messages: Sequence[Message]) -> CompactedSession:
    """Return what these messages hold that outlives a compaction."""
    session = CompactedSession()
    sentences = sentences_of(messages)[-SENTENCES_MAX:]
    worths = weigh([one.said for one in sentences], None)
    proposed: Sentence | None = None
    for place, (one, worth) in enumerate(zip(sentences, worths, strict=True)):
        text, late = one.said.text, LATE * place / max(len(sentences) - 1, 1)
        if _ASKS.search(text):
            continue
        is_open, is_given_up = cue_in("open", text), cue_in("given_up", text)
        if is_open:
            session.add("still open", late + 1, text)
        if is_given_up:
            session.add("given up", worth.chance + late, text)
        if one.said.role != "user":
            proposed = one if cue_in("proposed", text) else proposed
            continue
        if proposed is not None and cue_in("accepted", text):
            session.add("decided", worth.chance + CHOSEN + late, f"{text} ({proposed.said.text})")
            proposed = None
        elif len(text.encode()) >= MIN_WIDTH and not is_open:
            chosen = CHOSEN * cue_in("decided", text) + REASONED * cue_in("reason", text) + LASTING * is_lasting(text)
            session.add("decided", worth.chance + chosen + late, text)
    for task in _open_tasks(messages):
        session.add("still open", 2.0, task)
    for run in _runs(messages):
        session.add("worked here", FIXED * run.fixed + ONCE_MORE * run.runs + LATE * run.last / len(messages), run.line)
    return session


def _open_tasks(messages: Sequence[Message]) -> Iterator[str]:
    """Yield what is not done of the newest list of tasks that a tool was given."""
    lists = (tasks for one in reversed(messages) for call in one.tool_calls for tasks in _lists(call.arguments))
    for task in next(lists, []):
        if str(task.get("status")) in _WANTED:
            yield str(task.get("content") or task.get("step") or task.get("title") or "")


def _lists(arguments: Mapping[str, Json]) -> Iterator[list[Mapping[str, Json]]]:
    for value in arguments.values():
        tasks = [task for task in value if isinstance(task, Mapping)] if isinstance(value, list) else []
        if tasks and all("status" in task for task in tasks):
            yield tasks


def _runs(messages: Iterable[Message]) -> list[_CommandRun]:
    """Return the commands whose last run worked and that do more than look, in their order."""
    waiting: deque[str] = deque()
    runs: dict[str, _CommandRun] = {}
    failed: Counter[str] = Counter()
    for place, message in enumerate(messages):
        for call in message.tool_calls:
            waiting.append(str(call.arguments.get("command") or call.arguments.get("cmd") or ""))
        if message.role != "tool" or not waiting or not (line := waiting.popleft()) or len(line) > MAX_COMMAND:
            continue
        run, programs = runs.setdefault(line, _CommandRun(line)), programs_at_work(line)
        run.worked, run.runs, run.last = _FAILED.match(message.content) is None, run.runs + 1, place
        if run.worked:
            run.fixed = run.fixed or any(failed[program] for program in programs)
            failed.subtract({program: failed[program] for program in programs})
        else:
            failed.update(programs)
    return [run for run in runs.values() if run.worked and programs_at_work(run.line)]

"""What is measured in a scratch memory: answers to questions, and how much of a conversation is kept.

Bundled and given questions asked of a scratch memory, and what came back, measured.

Run a case through the whole memory and measure what comes back: recall, time, tokens.

Each case gets a scratch data directory and project of its own, the settings under test and the embedder they name; its
memories go in through `MemoryAnchor` as an agent's would, redaction, gate and reconciling included, and what became of
the writes is part of the result. The clock is moved by hand, so that recency and "last week" mean the same on any day.

Rejected: asking the searcher directly (routing to L0 and L4, and the tokens of an answer, would go unmeasured), and
writing into the user's store (an evaluation must leave no trace there).

Knowledge asked bundled questions: 60 about the project's own `docs/`, half of them in Chinese.

Each question names the document and the heading that must answer. They were written from the headings alone, before any
was asked; where another place states the same fact, it is named beside it with words that the passage must hold. The
documents are not in the wheel: this runs in a checkout of the project.

How much of a conversation is kept: bundled working sessions with what a careful reader keeps, and own transcripts.

Each session goes through `remember_conversation` into a scratch memory of its own, under the settings that are asked
about. Recall: wanted items of which one live memory holds every literal and half of the words. Precision: live memories
that share a literal or most of their words with a wanted item; what the session itself replaced is a wrong one. A
transcript has no such list: it is told what would be kept of it.

A session file: `U:` and `A:` lines, then under the message where it was said `+ type | text | literals` for what a
careful reader keeps, `~` for what a later message of the session replaces. The sessions and their lists are our own.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from memory_anchor import shapes
from memory_anchor.adapters.system import ManualClock
from memory_anchor.app import build_core
from memory_anchor.core import Core
from memory_anchor.errors import BadInput
from memory_anchor.evaluation import metrics
from memory_anchor.evaluation.demo import approve
from memory_anchor.evaluation.questions import Case, Question
from memory_anchor.json_values import Json, Record
from memory_anchor.language.terms import is_chinese
from memory_anchor.language.tokens import count_tokens
from memory_anchor.memory import MemoryAnchor
from memory_anchor.model import Actor, Caller, Layer, Memory, RetrievedSnippet, Scope
from memory_anchor.ports import Embedder, MemoryStore
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings

ASKED_DEPTH = 10
"""What recall is measured on."""
SHOWN = 5
"""The default limit of `search_memory`: what tokens are counted on, and within which a question counts as found."""
EMBED_BATCH = 64
TOLD_EVERY = 200
"""Memories embedded between two lines of progress: some 20 s on a laptop."""
CLIENT = "evaluation"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Answered:
    """One question and what came back. ranked: names, best first. tokens: of the answer as a tool gives it; beyond:
    those of them that are not the memories' own text; structured: those of the JSON beside it that are not."""

    question: Question
    ranked: tuple[str, ...]
    ms: float
    tokens: int = 0
    beyond: int = 0
    structured: int = 0

    @property
    def rank(self) -> int | None:
        """Place of the first wanted memory, from 1; None where none came."""
        return next((place for place, name in enumerate(self.ranked, 1) if name in self.question.gold), None)

    @property
    def found(self) -> bool:
        """Whether the default answer holds what was wanted: one of the gold, or nothing where there is none."""
        return not self.ranked if not self.question.answerable else (self.rank or SHOWN + 1) <= SHOWN


@dataclass(slots=True)
class Tally:
    """What a run adds up. writes: outcome -> count."""

    answers: list[Answered] = field(default_factory=list)
    writes: Counter[str] = field(default_factory=Counter)
    stores: int = 0

    def figures(self) -> dict[str, Json]:
        return {"stores": self.stores, "writes": dict(self.writes), **figures(self.answers)}


def run(
    cases: Iterable[Case],
    settings: Settings,
    embedder: Embedder | None,
    *,
    say: Say,
    make_store: Callable[[], MemoryStore] | None = None,
) -> dict[str, Json]:
    """Return the figures over all cases. settings: those under test, the user's own places left out by `scratch`.

    make_store: gives each case its store; None: an embedded one in the case's scratch folder.
    """
    tally = Tally()
    for case in cases:
        if not case.questions:
            continue
        say(f"{case.name}: {len(case.memories)} memories, {len(case.questions)} questions")
        run_case(case, settings, embedder, tally, say=say, store=make_store() if make_store else None)
    return tally.figures()


def run_case(
    case: Case,
    settings: Settings,
    embedder: Embedder | None,
    tally: Tally,
    *,
    say: Say,
    store: MemoryStore | None = None,
) -> None:
    """Add one case to the tally. Raises our errors: a store or a model that fails."""
    with tempfile.TemporaryDirectory(prefix="memory-anchor-eval-") as folder:
        room = Path(folder).resolve()
        project = _project(case, room / "project")
        clock = ManualClock(case.now)
        with DirectoryLock.acquire(room / "data", role="evaluation") as lock:
            core = build_core(
                scratch(settings), data_dir=room / "data", lock=lock, clock=clock, store=store, embedder=embedder
            )
            try:
                names = _write(core, clock, case, project, tally, say)
                reader = core.anchor(_actor(project, ""))
                if case.constitution:
                    approve(reader.room.identity)
                _warm(core, reader, case)
                for question in case.questions:
                    asker = core.anchor(_actor(project, question.id))
                    core.services.said.note(asker.actor.scope, question.before)
                    tally.answers.append(_ask(asker, question, names))
            finally:
                core.close()
    tally.stores += 1


def scratch(settings: Settings) -> Settings:
    """Return the settings without the user's own places, names and pauses: an embedded store, no cached answers."""
    plain = settings.model_dump()
    plain |= {"data_dir": "", "project_dir": "", "paused": False, "read_only": False, "scope": {}, "store": {}}
    plain["retrieval"] = {**plain["retrieval"], "cache_ttl_s": 0}
    return Settings.model_validate(plain)


def figures(answers: Sequence[Answered]) -> dict[str, Json]:
    """Return metrics over all, by language and by category, times and tokens, and the place of each question."""
    with_gold = [one for one in answers if one.question.answerable]
    without = [one for one in answers if not one.question.answerable]
    spent = [one.ms for one in answers]
    return {
        "questions": len(answers),
        "overall": _metrics(with_gold),
        "by_language": _split(with_gold, lambda one: one.question.language),
        "by_category": _split(with_gold, lambda one: one.question.category),
        "unanswerable": {"questions": len(without), "empty": sum(one.found for one in without)},
        "ms": {"p50": round(metrics.percentile(spent, 0.5), 2), "p95": round(metrics.percentile(spent, 0.95), 2)},
        "intervals": {
            "found": [round(one, 4) for one in metrics.share_interval(sum(a.found for a in answers), len(answers))],
            "ms": [round(one, 2) for one in metrics.median_interval(spent)],
            "tokens": [round(one, 1) for one in metrics.median_interval([one.tokens for one in answers if one.tokens])],
        },
        "answer_tokens": metrics.pooled_tokens([one.tokens for one in answers if one.tokens]),
        "answer_tokens_beyond_text": metrics.pooled_tokens([one.beyond for one in answers if one.tokens]),
        "structured_tokens_beyond_text": metrics.pooled_tokens([one.structured for one in answers if one.tokens]),
        "results": [
            {"id": one.question.id, "query": one.question.text, "rank": one.rank, "found": one.found} for one in answers
        ],
    }


def _metrics(answers: Sequence[Answered]) -> dict[str, float]:
    rows = [metrics.question_metrics(one.ranked, one.question.gold) for one in answers]
    return {name: round(value, 4) for name, value in metrics.mean(rows).items()}


def _split(answers: Sequence[Answered], part: Callable[[Answered], str]) -> dict[str, Json]:
    return {
        name: {"questions": len(chosen), **_metrics(chosen)}
        for name in sorted({part(one) for one in answers})
        if (chosen := [one for one in answers if part(one) == name])
    }


def _actor(project: Path, conversation: str) -> Actor:
    return Actor(Caller.AGENT, Scope("", "", "", CLIENT, conversation), client=CLIENT, project_dir=str(project))


def _project(case: Case, root: Path) -> Path:
    """Make a project that holds the case's L0 and L4."""
    import yaml

    (root / ".ai" / "operations").mkdir(parents=True)
    (root / ".git").mkdir()
    if case.constitution:
        entries = [{"id": name, "content": text} for name, text in case.constitution.items()]
        whole = yaml.safe_dump({"version": 1, "entries": entries}, allow_unicode=True)
        (root / "constitution.yaml").write_text(whole, encoding="utf-8")
    for name, text in case.operations.items():
        (root / ".ai" / "operations" / f"{name}.md").write_text(text, encoding="utf-8")
    return root


def _write(
    core: Core, clock: ManualClock, case: Case, project: Path, tally: Tally, say: Say
) -> dict[str, tuple[str, ...]]:
    """Store the memories in the order they were learned; return id -> names."""
    names: dict[str, tuple[str, ...]] = {}
    for memory in sorted(case.memories, key=lambda one: one.on):
        clock.set(memory.on)
        anchor = core.anchor(_actor(project, memory.conversation))
        store = anchor.log_event if memory.layer is Layer.EVENT_LOG else anchor.save_memory
        done = store(**memory.fields())
        tally.writes[done.outcome.value] += 1
        if done.id is not None:
            names[done.id] = (*names.get(done.id, ()), memory.name)
    clock.set(case.now)
    embedded = 0
    while done_now := core.services.searcher.embed_pending(EMBED_BATCH):
        embedded += done_now
        if embedded // TOLD_EVERY > (embedded - done_now) // TOLD_EVERY:
            say(f"{case.name}: {embedded} of {len(case.memories)} embedded")
    return names


def _warm(core: Core, reader: MemoryAnchor, case: Case) -> None:
    """Let L0 and L4 be embedded, as an engine does behind the first question after a start."""
    reader.search(case.questions[0].text, limit=1)
    if case.constitution or case.operations:
        reader.search("identity", layers=[Layer.IDENTITY_SCHEMA.value, Layer.OPERATIONAL_KNOWLEDGE.value])
    while core.nearness.embed_waiting(EMBED_BATCH):
        pass


def _ask(reader: MemoryAnchor, question: Question, names: Mapping[str, tuple[str, ...]]) -> Answered:
    started = time.perf_counter()
    answer = reader.search(question.text, limit=ASKED_DEPTH)
    ms = (time.perf_counter() - started) * 1000
    shown = reader.search(question.text, limit=SHOWN)
    told = shapes.search_answer(shown, reader=reader.actor.scope)
    tokens = count_tokens(shapes.lines(told, now=reader.services.clock.now()))
    structured = count_tokens(shapes.compact(shapes.lean(told)))
    own = sum(count_tokens(one.text) for one in shown.snippets)
    counted = [one for one in answer.snippets if question.answerable or not one.weak]
    return Answered(question, ranked_names(counted, names), ms, tokens, max(0, tokens - own), max(0, structured - own))


def ranked_names(snippets: Sequence[RetrievedSnippet], names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names that the snippets stand for, each once, best first; what has no name keeps its id."""
    told: dict[str, None] = {}
    for one in snippets:
        told.update(dict.fromkeys(names.get(one.id, (one.id,))))
    return tuple(told)


QUESTIONS = "knowledge_questions.tsv"
DEPTH = 10
SYNC_MAX = 1_000


class AnswerPlace(NamedTuple):
    """Where an answer stands. words: what the passage must hold, "" for any passage under the heading."""

    document: str
    heading: str
    words: str = ""

    def holds(self, found: RetrievedSnippet) -> bool:
        """Return whether a passage found is of this place."""
        cited = found.citations[0]
        return cited.ref == self.document and self.heading in cited.locator.heading and self.words in found.text


class DocsQuestion(NamedTuple):
    """A question and the places of its answer, the one it was written for first."""

    query: str
    places: tuple[AnswerPlace, ...]


def questions() -> list[DocsQuestion]:
    """Return the bundled questions: one a line, its document and heading, then other places and their words."""
    text = files("memory_anchor.evaluation").joinpath(QUESTIONS).read_text(encoding="utf-8")
    return [_question(line.split("\t")) for line in text.splitlines() if line]


def _question(cells: list[str]) -> DocsQuestion:
    query, document, heading, *others = cells
    also = [AnswerPlace(*others[start : start + 3]) for start in range(0, len(others), 3)]
    return DocsQuestion(query, (AnswerPlace(document, heading), *also))


def run_knowledge(docs: Path, settings: Settings, embedder: Embedder | None) -> list[dict[str, Json]]:
    """Return the figures of each language: R@1, R@5, MRR by heading, and of documents, ms a search (median).

    Raises BadInput: `docs` does not hold the documents that are asked for.
    """
    from memory_anchor.adapters.dict_store import DictStore
    from memory_anchor.app import build_core

    asked = questions()
    named = {place.document for question in asked for place in question.places}
    if missing := sorted(name for name in named if not (docs / name).is_file()):
        raise BadInput(f"{docs} lacks {', '.join(missing)}; run this in a checkout of the project")
    with tempfile.TemporaryDirectory(prefix="memory-anchor-eval-") as folder:
        core = build_core(settings, data_dir=Path(folder), store=DictStore(), embedder=embedder)
        try:
            anchor = core.anchor(Actor(Caller.HUMAN))
            anchor.knowledge_add(str(docs), "files")
            for _ in range(SYNC_MAX):
                if not anchor.knowledge_sync("", False)["left"]:
                    break
            while core.knowledge.embed(64):
                pass
            return _figures(anchor, asked)
        finally:
            core.close()


def _figures(anchor: MemoryAnchor, asked: list[DocsQuestion]) -> list[dict[str, Json]]:
    found: dict[str, list[tuple[int, int, float]]] = {"en": [], "zh": []}
    for query, answers in asked:
        started = time.perf_counter()
        snippets = anchor.knowledge_search(query, limit=DEPTH)
        took = 1000 * (time.perf_counter() - started)
        places = [at for at, one in enumerate(snippets, 1) if any(place.holds(one) for place in answers)]
        right = {place.document for place in answers}
        documents = [at for at, one in enumerate(snippets, 1) if one.citations[0].ref in right]
        row = (places[0] if places else 0, documents[0] if documents else 0, took)
        found["zh" if is_chinese(query) else "en"].append(row)
    return [
        {
            "kind": "knowledge",
            "language": language,
            "questions": len(rows),
            "R@1": round(sum(at == 1 for at, _, _ in rows) / len(rows), 3),
            "R@5": round(sum(0 < at <= 5 for at, _, _ in rows) / len(rows), 3),
            "MRR": round(sum(1 / at for at, _, _ in rows if at) / len(rows), 3),
            "document@5": round(sum(0 < at <= 5 for _, at, _ in rows) / len(rows), 3),
            "search_ms": round(sorted(took for _, _, took in rows)[len(rows) // 2], 1),
        }
        for language, rows in found.items()
    ]


SESSIONS = Path(__file__).with_name("data")
COVERS, IS_ABOUT = 0.5, 0.5
LITERAL_COUNTS = 0.2
LIVE = ("active", "pending", "disputed")
LISTED_MOST = 200
HELD_OUT_PREFIXES = ("2", "5")
"""Sessions whose number begins so train nothing."""
COMMON = frozenset(
    re.findall("[a-z]+", "the and for with that this are was has have not but from they them its user will all any")
)
KINDS: dict[str, frozenset[str]] = {
    "rule": frozenset({"instruction", "workflow"}),
    "fix": frozenset({"bugfix"}),
    "task": frozenset({"project_state", "bookmark"}),
    "person": frozenset({"fact"}),
    "fact": frozenset({"fact", "project_state"}),
    "decision": frozenset({"decision"}),
    "preference": frozenset({"preference"}),
    "emotion": frozenset({"emotion"}),
}
"""What a wanted item's kind may be stored as."""


@dataclass(frozen=True, slots=True)
class WantedItem:
    """One thing a careful reader keeps. message: where it was said; replaced: a later message ends it."""

    kind: str
    text: str
    literals: tuple[str, ...]
    message: int
    replaced: bool = False


@dataclass(slots=True)
class WorkingSession:
    name: str
    language: str
    half: str
    messages: list[dict[str, str]] = field(default_factory=list)
    wanted: list[WantedItem] = field(default_factory=list)


def read_session(path: Path) -> WorkingSession:
    """Return a session and what is wanted of it."""
    number = int(path.name[:2])
    half = "held" if path.name.startswith(HELD_OUT_PREFIXES) else "test" if number % 2 == 0 else "dev"
    session = WorkingSession(path.stem, path.parent.name[-2:], half)
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(("U: ", "A: ")):
            session.messages.append({"role": "user" if line[0] == "U" else "assistant", "content": line[3:]})
        elif re.match(r"[+~] \w+ \| ", line):
            kind, text, literals = line[2:].split(" | ")
            names = tuple(name.strip() for name in re.split("[;；]", literals) if name.strip())
            session.wanted.append(WantedItem(kind, text, names, len(session.messages) - 1, line[0] == "~"))
        elif line:
            session.messages[-1]["content"] += "\n" + line
    return session


def sessions(half: str = "") -> list[WorkingSession]:
    """Return the bundled sessions, or one half of them: `dev` has trained what ships, so has `test`; `held` never
    trains."""
    found = map(read_session, sorted(SESSIONS.glob("sessions_*/*.txt")))
    return [one for one in found if half in ("", one.half)]


def words(text: str) -> frozenset[str]:
    """Return the stems of English words and the pairs of Chinese signs in a text."""
    small = text.lower()
    stems = {word[:5] for word in re.findall(r"[a-z][a-z_]{2,}|\d+", small)} - COMMON
    return frozenset(
        stems | {run[at : at + 2] for run in re.findall("[\u4e00-\u9fff]{2,}", small) for at in range(len(run) - 1)}
    )


def holds(text: str, literal: str) -> bool:
    """Return whether a text has a literal, blanks and case aside; `a|b` is either."""
    folded = re.sub(r"\s", "", text).lower()
    return any(re.sub(r"\s", "", name).lower() in folded for name in literal.split("|"))


def coverage(of: frozenset[str], by: frozenset[str]) -> float:
    """Return how much of the words of one text another has, 0 to 1."""
    return len(of & by) / (len(of) or 1)


def says_item(item: WantedItem, content: str) -> bool:
    """Return whether a memory says a wanted item: every literal, half of its words."""
    return all(holds(content, name) for name in item.literals) and coverage(words(item.text), words(content)) >= COVERS


def nearest(content: str, wanted: Sequence[WantedItem]) -> WantedItem | None:
    """Return the wanted item that a memory is about, None for none."""
    said = words(content)
    best, most = None, 0.0
    for item in wanted:
        asked = words(item.text)
        share = max(coverage(said, asked), coverage(asked, said))
        share += LITERAL_COUNTS if any(holds(content, name) for name in item.literals) else 0.0
        if share > most:
            best, most = item, share
    return best if most >= IS_ABOUT else None


def live_memories(core: Core) -> list[Memory]:
    """Return the live facts and events of a scratch memory."""
    return [m for m in core.anchor(_learner("reader")).listing(limit=LISTED_MOST) if m.status.value in LIVE]


def run_capture(
    found: Sequence[WorkingSession], settings: Settings, embedder: Embedder | None, *, say: Callable[[str], None]
) -> dict[str, Json]:
    """Return recall and precision by language, with what was missed and what was too much.

    say: told what is in work.
    """
    totals: dict[str, Counter[str]] = {}
    told: list[dict[str, Json]] = []
    for session in found:
        say(f"{session.language}/{session.name}")
        kept = _kept(session.messages, session.name, settings, embedder)
        wanted = [item for item in session.wanted if not item.replaced]
        hit = {item for item in wanted if any(says_item(item, one.content) for one in kept)}
        about = {one.id: nearest(one.content, session.wanted) for one in kept}
        right = [one for one in kept if (item := about[one.id]) is not None and not item.replaced]
        typed = sum(one.type.value in KINDS[item.kind] for one in right if (item := about[one.id]) is not None)
        counts = {"wanted": len(wanted), "found": len(hit), "kept": len(kept), "right": len(right), "typed": typed}
        for group in ("all", session.language):
            totals.setdefault(group, Counter()).update(counts)
        told.append(
            {
                "session": f"{session.language}/{session.name}",
                **counts,
                "missed": [{"kind": item.kind, "text": item.text} for item in wanted if item not in hit],
                "too_much": [_line(one) for one in kept if one not in right],
                "memories": [_line(one) for one in right],
            }
        )
    return {"by_language": {name: _shares(total) for name, total in totals.items()}, "sessions": told}


def would_keep(messages: Sequence[Record], name: str, settings: Settings, embedder: Embedder | None) -> dict[str, Json]:
    """Return what would be kept of one's own transcript, by kind and state; it is written nowhere."""
    kept = _kept(messages, name, settings, embedder)
    return {
        "transcript": name,
        "messages": len(messages),
        "kept": len(kept),
        "by_type": dict(Counter(one.type.value for one in kept).most_common()),
        "by_status": dict(Counter(one.status.value for one in kept).most_common()),
        "memories": [_line(one) for one in kept],
    }


def _line(memory: Memory) -> dict[str, str]:
    return {"type": memory.type.value, "status": memory.status.value, "content": memory.content}


def _shares(total: Counter[str]) -> dict[str, Json]:
    recall, precision = total["found"] / max(1, total["wanted"]), total["right"] / max(1, total["kept"])
    typed = total["typed"] / max(1, total["right"])
    return {**total, "recall": round(recall, 3), "precision": round(precision, 3), "type_right": round(typed, 3)}


def _kept(messages: Sequence[Record], name: str, settings: Settings, embedder: Embedder | None) -> list[Memory]:
    """Return what a memory of its own keeps of a conversation."""
    with tempfile.TemporaryDirectory(prefix="memory-anchor-eval-") as folder:
        core = in_memory(Path(folder), settings, embedder)
        try:
            core.anchor(_learner(name)).remember_conversation(list(messages))
            return live_memories(core)
        finally:
            core.close()


def in_memory(folder: Path, settings: Settings, embedder: Embedder | None) -> Core:
    """Return a memory in RAM with these settings."""
    from memory_anchor.adapters.dict_store import DictStore
    from memory_anchor.app import build_core

    return build_core(settings, data_dir=folder, store=DictStore(), embedder=embedder)


def _learner(conversation: str) -> Actor:
    return Actor(Caller.AGENT, Scope(account="me", project="", user="me", agent="agent", conversation=conversation))

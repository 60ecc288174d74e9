"""Evaluations in a scratch memory: answers to questions, knowledge, and how much of a conversation is kept.

Questions: each case gets a scratch data directory and project, the settings under test and their embedder. Its memories
go in through `MemoryAnchor` as an agent's would, redaction, gate and reconciling included, and the outcomes of the
writes are part of the result. The clock is moved by hand, so that recency and "last week" mean the same on any day.
Rejected: asking the searcher directly (routing to L0 and L4, and the tokens of an answer, would go unmeasured), and
writing into the user's store (an evaluation must leave no trace there).

Knowledge: 60 questions about the project's own `docs/`, half of them in Chinese. Each names the document and the
heading that must answer. They were written from the headings alone, before any was asked; another place that states the
same fact is named too, with words that the passage must have. A place counts in either language.

Capture: bundled working sessions, each with a list of what a careful reader keeps, go through `remember_conversation`
into a scratch memory. Recall: wanted items of which one live memory has every literal and half of the words. Precision:
live memories that share a literal or most of their words with a wanted item; what the session itself replaced is wrong.
A session file has `U:` and `A:` lines, and under a message `+ type | text | literals` for what a careful reader keeps
of it, `~` for what a later message replaces.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from demo import approve

from evaluation.cases import DATA, Case, Question
from memory_anchor.adapters.system import ManualClock
from memory_anchor.base.json_values import Json, Record
from memory_anchor.base.lines import text_lines
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Actor, Caller, Layer, Memory, RetrievedSnippet, Scope
from memory_anchor.domain.ports import Embedder, MemoryStore
from memory_anchor.extensions.evaluation.golden import ASKED_DEPTH
from memory_anchor.extensions.evaluation.metrics import SHOWN, Answered, figures, mean_metrics
from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.front import views
from memory_anchor.language.perspective import worded_for
from memory_anchor.language.terms import is_chinese
from memory_anchor.language.tokens import count_tokens
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.use_cases.memory import MemoryAnchor

EMBED_BATCH = 64
PROGRESS_EVERY = 200
"""Memories embedded between two lines of progress: some 20 s on a laptop."""
CLIENT = "evaluation"

Say = Callable[[str], None]


@dataclass(slots=True)
class Tally:
    """The results of a run so far. structured: tokens of each answer as JSON that are not the memories' own text.
    writes: outcome -> count."""

    questions: list[Question] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)
    structured: list[int] = field(default_factory=list)
    writes: Counter[str] = field(default_factory=Counter)
    stores: int = 0

    def figures(self) -> dict[str, Json]:
        return {
            "stores": self.stores,
            "writes": dict(self.writes),
            **figures(self.answers),
            "structured_tokens_beyond_text": round(sum(self.structured) / max(1, len(self.structured)), 1),
            "by_language": self._split(lambda question: question.language),
            "by_category": self._split(lambda question: question.category),
        }

    def _split(self, part: Callable[[Question], str]) -> dict[str, Json]:
        groups: dict[str, list[Answered]] = {}
        for question, answer in zip(self.questions, self.answers, strict=True):
            if question.gold:
                groups.setdefault(part(question), []).append(answer)
        return {name: {"questions": len(group), **mean_metrics(group)} for name, group in sorted(groups.items())}


def run(
    cases: Iterable[Case],
    settings: Settings,
    embedder: Embedder | None,
    *,
    say: Say,
    make_store: Callable[[], MemoryStore] | None = None,
) -> dict[str, Json]:
    """Return the figures over all cases. make_store: default: an embedded store in the case's scratch folder."""
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
        project, data = _project(case, Path(folder).resolve() / "project"), Path(folder).resolve() / "data"
        clock = ManualClock(case.now)
        with DirectoryLock.acquire(data, role="evaluation") as lock:
            core = build_core(scratch(settings), data_dir=data, lock=lock, clock=clock, store=store, embedder=embedder)
            try:
                names = _write(core, clock, case, project, tally, say)
                reader = core.anchor(_actor(project, ""))
                if case.constitution:
                    approve(reader.project.identity)
                _warm_up(core, reader, case)
                for question in case.questions:
                    asker = core.anchor(_actor(project, question.id))
                    core.services.recent_prompts.note(asker.actor.scope, question.before)
                    _ask(asker, question, names, tally)
            finally:
                core.close()
    tally.stores += 1


def scratch(settings: Settings) -> Settings:
    """Return the settings for an embedded store without the user's paths, names and pauses, and without a cache."""
    plain = settings.model_dump()
    plain |= {"data_dir": "", "project_dir": "", "paused": False, "read_only": False, "scope": {}, "store": {}}
    plain["retrieval"] = {**plain["retrieval"], "cache_ttl_s": 0}
    return Settings.model_validate(plain)


def _actor(project: Path, conversation: str) -> Actor:
    return Actor(Caller.AGENT, Scope("", "", "", CLIENT, conversation), client=CLIENT, project_dir=str(project))


def _project(case: Case, root: Path) -> Path:
    """Make a project with the case's L0 and L4; return `root`."""
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
    for memory in sorted(case.memories, key=lambda memory: memory.on):
        clock.set(memory.on)
        anchor = core.anchor(_actor(project, memory.conversation))
        store = anchor.log_event if memory.layer is Layer.EVENT_LOG else anchor.save_memory
        outcome = store(**memory.fields())
        tally.writes[outcome.outcome.value] += 1
        if outcome.id is not None:
            names[outcome.id] = (*names.get(outcome.id, ()), memory.name)
    clock.set(case.now)
    embedded = 0
    while batch := core.services.searcher.index.embed_pending(EMBED_BATCH):
        embedded += batch
        if embedded // PROGRESS_EVERY > (embedded - batch) // PROGRESS_EVERY:
            say(f"{case.name}: {embedded} of {len(case.memories)} embedded")
    return names


def _warm_up(core: Core, reader: MemoryAnchor, case: Case) -> None:
    """Have L0 and L4 embedded, as an engine does in the background after the first question."""
    reader.search(case.questions[0].text, limit=1)
    if case.constitution or case.operations:
        reader.search("identity", layers=[Layer.IDENTITY_SCHEMA.value, Layer.OPERATIONAL_KNOWLEDGE.value])
    while core.nearness.embed_waiting(EMBED_BATCH):
        pass


def _ask(reader: MemoryAnchor, question: Question, names: Mapping[str, tuple[str, ...]], tally: Tally) -> None:
    started = time.perf_counter()
    answer = reader.search(question.text, limit=ASKED_DEPTH)
    ms = (time.perf_counter() - started) * 1000
    shown = reader.search(question.text, limit=SHOWN)
    as_json = views.search_answer(shown, reader=reader.actor.scope)
    tokens = count_tokens(views.lines(as_json, now=reader.services.clock.now()))
    own = sum(count_tokens(snippet.text) for snippet in shown.snippets)
    counted = [snippet for snippet in answer.snippets if question.answerable or not snippet.weak]
    ranked, beyond = ranked_names(counted, names), max(0, tokens - own)
    tally.questions.append(question)
    tally.answers.append(Answered(question.id, question.text, question.gold, ranked, ms, tokens, beyond))
    tally.structured.append(max(0, count_tokens(views.compact(views.lean(as_json))) - own))


def ranked_names(snippets: Sequence[RetrievedSnippet], names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names of the snippets' memories, each once, best first; the id of one without a name."""
    return tuple(dict.fromkeys(name for snippet in snippets for name in names.get(snippet.id, (snippet.id,))))


QUESTIONS = "knowledge_questions.tsv"
DEPTH = 10
SYNC_MAX = 1_000


class AnswerPlace(NamedTuple):
    """Where an answer is written. words: what the passage must have, "" for any passage under the heading."""

    document: str
    heading: str
    words: str = ""

    def holds(self, found: RetrievedSnippet) -> bool:
        """Return whether a passage is from this place."""
        cited = found.citations[0]
        return cited.ref == self.document and self.heading in cited.locator.heading and self.words in found.text


class DocsQuestion(NamedTuple):
    """A question and the places of its answer, the one it was written for first."""

    query: str
    places: tuple[AnswerPlace, ...]


def questions() -> list[DocsQuestion]:
    """Return the bundled questions. A line: the question, its document and heading, then other places and words."""
    text = (DATA / QUESTIONS).read_text(encoding="utf-8")
    questions_read = []
    for line in filter(None, text_lines(text)):
        query, document, heading, *more = line.split("\t")
        also = [AnswerPlace(*more[start : start + 3]) for start in range(0, len(more), 3)]
        questions_read.append(DocsQuestion(query, (AnswerPlace(document, heading), *also)))
    return questions_read


def run_knowledge(docs: Path, settings: Settings, embedder: Embedder | None) -> list[dict[str, Json]]:
    """Return the figures of each language: R@1, R@5, MRR by heading, and of documents, ms a search (median).

    Raises BadInput: `docs` does not hold the documents that are asked for.
    """
    docs_questions = questions()
    documents = {place.document for question in docs_questions for place in question.places}
    if missing := sorted(name for name in documents if not (docs / name).is_file()):
        raise BadInput(f"{docs} lacks {', '.join(missing)}; mend {QUESTIONS}")
    if unknown := [place for question in docs_questions for place in question.places if not _is_there(docs, place)]:
        raise BadInput(f"{docs} has no {unknown[0]}; mend {QUESTIONS}")
    with tempfile.TemporaryDirectory(prefix="memory-anchor-eval-") as folder:
        core = in_memory(Path(folder), settings, embedder)
        try:
            anchor = core.anchor(Actor(Caller.HUMAN))
            knowledge_of(anchor).add(str(docs), "files")
            for _ in range(SYNC_MAX):
                if not knowledge_of(anchor).sync("", False)["left"]:
                    break
            while library_of(core.services).embed(64):
                pass
            return _knowledge_figures(anchor, [_in_both(docs, question) for question in docs_questions])
        finally:
            core.close()


def _in_both(docs: Path, question: DocsQuestion) -> DocsQuestion:
    """Return a question with the same places in Chinese: the heading that stands where the English one does."""
    also = []
    for place in question.places:
        twin = docs / "zh" / place.document
        if place.words or not twin.is_file():
            continue
        known = _headings(docs / place.document)
        also.append(AnswerPlace(f"zh/{place.document}", _headings(twin)[known.index(place.heading)]))
    return question._replace(places=(*question.places, *also))


def _headings(page: Path) -> list[str]:
    """Return the headings of a page in order; a comment in a block of code is none."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [line.lstrip("# ") for line in text_lines(text) if line.startswith("#")]


def _is_there(docs: Path, place: AnswerPlace) -> bool:
    """Return whether a document still has the heading, with the words below it."""
    text = (docs / place.document).read_text(encoding="utf-8")
    titled = any(line.lstrip("# ") == place.heading for line in text.splitlines() if line.startswith("#"))
    return titled and place.words in text.partition(f"# {place.heading}\n")[2].partition("\n## ")[0]


def _knowledge_figures(anchor: MemoryAnchor, docs_questions: list[DocsQuestion]) -> list[dict[str, Json]]:
    ranks: dict[str, list[tuple[int, int, float]]] = {"en": [], "zh": []}
    for query, places in docs_questions:
        started = time.perf_counter()
        snippets = knowledge_of(anchor).search(query, limit=DEPTH)
        ms = 1000 * (time.perf_counter() - started)
        documents = {place.document for place in places}
        by_place = (rank for rank, hit in enumerate(snippets, 1) if any(place.holds(hit) for place in places))
        by_document = (rank for rank, hit in enumerate(snippets, 1) if hit.citations[0].ref in documents)
        ranks["zh" if is_chinese(query) else "en"].append((next(by_place, 0), next(by_document, 0), ms))
    return [
        {
            "kind": "knowledge",
            "language": language,
            "questions": len(rows),
            "R@1": round(sum(rank == 1 for rank, _, _ in rows) / len(rows), 3),
            "R@5": round(sum(0 < rank <= 5 for rank, _, _ in rows) / len(rows), 3),
            "MRR": round(sum(1 / rank for rank, _, _ in rows if rank) / len(rows), 3),
            "document@5": round(sum(0 < rank <= 5 for _, rank, _ in rows) / len(rows), 3),
            "search_ms": round(sorted(ms for _, _, ms in rows)[len(rows) // 2], 1),
        }
        for language, rows in ranks.items()
    ]


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
    """One thing a careful reader keeps. message: index of the one that says it. replaced: by a later message."""

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
    """Return a session with its wanted items."""
    number = int(path.name[:2])
    half = "held" if path.name.startswith(HELD_OUT_PREFIXES) else "test" if number % 2 == 0 else "dev"
    session = WorkingSession(path.stem, path.parent.name[-2:], half)
    for line in text_lines(path.read_bytes().decode("utf-8")):
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
    """Return the bundled sessions, or one half: the shipped model was trained on `dev` and `test`, not on `held`."""
    all_sessions = map(read_session, sorted(DATA.glob("sessions_*/*.txt")))
    return [session for session in all_sessions if half in ("", session.half)]


def words(text: str) -> frozenset[str]:
    """Return the stems of English words and the Chinese bigrams of a text."""
    lower = text.lower()
    stems = {word[:5] for word in re.findall(r"[a-z][a-z_]{2,}|\d+", lower)} - COMMON
    runs = re.findall("[\u4e00-\u9fff]{2,}", lower)
    return frozenset(stems | {run[at : at + 2] for run in runs for at in range(len(run) - 1)})


def holds(text: str, literal: str) -> bool:
    """Return whether a text has a literal, blanks and case ignored; `a|b` is either."""
    folded = re.sub(r"\s", "", text).lower()
    return any(re.sub(r"\s", "", name).lower() in folded for name in literal.split("|"))


def coverage(of: frozenset[str], by: frozenset[str]) -> float:
    """Return the share of the words `of` that are in `by`, 0 to 1."""
    return len(of & by) / (len(of) or 1)


def says_item(item: WantedItem, content: str) -> bool:
    """Return whether a memory says a wanted item: every literal, half of its words."""
    return all(holds(content, name) for name in item.literals) and coverage(words(item.text), words(content)) >= COVERS


def nearest(content: str, wanted: Sequence[WantedItem]) -> WantedItem | None:
    """Return the wanted item that a memory is about, None for none."""

    def score(item: WantedItem) -> float:
        ours, theirs = words(content), words(item.text)
        has_literal = any(holds(content, name) for name in item.literals)
        return max(coverage(ours, theirs), coverage(theirs, ours)) + (LITERAL_COUNTS if has_literal else 0.0)

    best = max(wanted, key=score, default=None)
    return best if best is not None and score(best) >= IS_ABOUT else None


def live_memories(core: Core) -> list[Memory]:
    """Return the live facts and events of a scratch memory."""
    return [m for m in core.anchor(_learner("reader")).curation.listing(limit=LISTED_MOST) if m.status.value in LIVE]


def run_capture(
    chosen: Sequence[WorkingSession], settings: Settings, embedder: Embedder | None, *, say: Callable[[str], None]
) -> dict[str, Json]:
    """Return recall and precision by language, and each session's missed items and wrong memories."""
    totals: dict[str, Counter[str]] = {}
    reports: list[dict[str, Json]] = []
    for session in chosen:
        say(f"{session.language}/{session.name}")
        memories = _captured(session.messages, session.name, settings, embedder)
        wanted = [item for item in session.wanted if not item.replaced]
        hit = {item for item in wanted if any(says_item(item, shown(memory)) for memory in memories)}
        about = {memory.id: nearest(shown(memory), session.wanted) for memory in memories}
        right = [memory for memory in memories if (item := about[memory.id]) is not None and not item.replaced]
        typed = sum(memory.type.value in KINDS[item.kind] for memory in right if (item := about[memory.id]))
        counts = {"wanted": len(wanted), "found": len(hit), "kept": len(memories), "right": len(right), "typed": typed}
        for group in ("all", session.language):
            totals.setdefault(group, Counter()).update(counts)
        reports.append(
            {
                "session": f"{session.language}/{session.name}",
                **counts,
                "missed": [{"kind": item.kind, "text": item.text} for item in wanted if item not in hit],
                "too_much": [_line(memory) for memory in memories if memory not in right],
                "memories": [_line(memory) for memory in right],
            }
        )
    return {"by_language": {name: _shares(total) for name, total in totals.items()}, "sessions": reports}


def shown(memory: Memory) -> str:
    """Return the text of a memory as its readers see it: a reply with its context."""
    return worded_for(memory, memory.scope)


def _line(memory: Memory) -> dict[str, str]:
    return {"type": memory.type.value, "status": memory.status.value, "content": memory.content}


def _shares(total: Counter[str]) -> dict[str, Json]:
    recall, precision = total["found"] / max(1, total["wanted"]), total["right"] / max(1, total["kept"])
    typed = total["typed"] / max(1, total["right"])
    return {**total, "recall": round(recall, 3), "precision": round(precision, 3), "type_right": round(typed, 3)}


def _captured(messages: Sequence[Record], name: str, settings: Settings, embedder: Embedder | None) -> list[Memory]:
    """Return what a scratch memory keeps of a conversation."""
    with tempfile.TemporaryDirectory(prefix="memory-anchor-eval-") as folder:
        core = in_memory(Path(folder), settings, embedder)
        try:
            core.anchor(_learner(name)).remember_conversation(list(messages))
            return live_memories(core)
        finally:
            core.close()


def in_memory(folder: Path, settings: Settings, embedder: Embedder | None) -> Core:
    """Return a memory in RAM with these settings."""
    from memory_anchor.testing import memory_store

    return build_core(settings, data_dir=folder, store=memory_store(), embedder=embedder)


def _learner(conversation: str) -> Actor:
    return Actor(Caller.AGENT, Scope(account="me", project="", user="me", agent="agent", conversation=conversation))

"""What the sessions of a project propose to its human: decisions and reasons, fixes, commands, procedures. Pure.

Read from a session's steps in their order, without a model; nothing is summed up, each proposal quotes. Somebody's
word counts where it answers: a person's statement that takes up what the agent just said, so that a task, a report of a
bug and what was pasted are none (a long or marked text is nobody's); an agent's where it says why. What a later
statement takes back, of this session or another, is not proposed. A fix is a command that failed and, soon after it,
one for the same thing that worked in another way, with what the agent said of it; `cd`, `python3` for `python` and a
folder before a name are no other way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.model import MemoryType
from memory_anchor.ingest.capture_classifier import is_lasting
from memory_anchor.ingest.extraction import sentences_of, weigh
from memory_anchor.ingest.messages import Message
from memory_anchor.ingest.relations import wording
from memory_anchor.language.acts import acts_of, cue_in
from memory_anchor.language.commands import commands_of
from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.terms import is_chinese, terms
from memory_anchor.recall.fixes import names_in

ANSWERED = 2
"""Of the agent's last messages, those that a person's statement may answer."""
ASKED, SURE, UNASKED = 0.25, 0.6, 0.8
"""How likely a careful reader keeps an agent's sentence that is proposed: a reason, then anything else, of what it was
asked about by name; a reason that it gave unasked."""
REASONS, FIXES, COMMANDS, PROCEDURES = 1, 3, 8, 6
"""Proposed at most: of a session's reasons and fixes, of a project's commands and procedures."""
REVERSED, LIMIT = "a later statement takes it back", "others come before it"
STATEMENT_CHARS, SHARED_LEAST = 400, 2
"""The longest message that is a statement and not pasted, and the words that two about one thing share at least."""
SOON, LINE_CHARS, REASON_CHARS = 12, 300, 240
"""Steps after a failure within which its fix comes; the longest command and reason that are proposed."""
OFTEN, STEPS, STEPS_MAX = 3, 3, 8
"""Sessions in which a command or a sequence recurs; steps of a sequence."""
_ASKS = bounded(r"[?？]\s*$|[吗呢][。！]?\s*$")
_REQUESTS = bounded(r"(?i)\bplease\b|(?:^|[^\u4e00-\u9fff])请(?!求)|帮我|麻烦")
"""请 asks where it begins a clause; within one it is a part of a word (申请), and 请求 is a thing."""
_NUMBERS = bounded(r"(?<![A-Za-z0-9])v?\d{1,9}(?:\.\d{1,9}){0,4}(?![A-Za-z0-9])|(?<=[\"'])[^\"'\n]{1,200}(?=[\"'])")
_ERROR = bounded(r"(?i)(?<!(?<!\d)0 )(?<!(?<!\d)0 个)(?:error|错误|失败)")
"""What says an error; "0 errors" says none."""
SENTENCE = late(r"(?<=[.!?])\s+|(?<=[。！？])|\n")
_ENVIRONMENT = late(r"(?:^|\s)([A-Za-z_][A-Za-z0-9_]{0,80}=\S{0,200})")
_FILES = frozenset(("git", "ls", "mkdir", "rm", "cp", "mv", "touch", "chmod", "tar"))
"""Programs that keep files in order, in every project."""
_TAIL = bounded(r"\s{0,4}(?:2>&1\s{0,4})?\|\s{0,4}(?:tail|head|grep|cat)\b[^|&;\n]{0,200}$|\s{0,4}2>&1$")
_CD = late(r"^\s*cd\s+\S{1,400}\s*&&\s*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MARKED = ("\n>", "```", "「", "\n\t", "\n    ", "“")
_WORDS = {
    False: ("`{}` failed: {}. What worked: {}.", "Works in this project: `{}`", "the change to {}", "Done so on {}"),
    True: ("`{}` 失败：{}。可行的做法：{}。", "在本项目中可用的命令：`{}`", "修改 {}", "这几天都这样做：{}"),
}


@dataclass(frozen=True, slots=True)
class SessionProposal:
    """One thing to decide. session, first, at, place: where it is quoted from, the last among the session's steps.
    same: what stays of it when it is met again, where that is not its text. kept_out: why it is not proposed, `LIMIT`
    or `REVERSED`; "" where it is."""

    kind: str
    type: MemoryType
    text: str
    session: int
    first: int
    at: float
    same: str = ""
    place: int = 0
    kept_out: str = ""

    @property
    def key(self) -> str:
        return stable_hash("proposal", self.kind, self.same or " ".join(self.text.split()))


@dataclass(slots=True)
class SessionStep:
    """kind: `user`, `agent`, or of an action. first, at: where and when it stands. exit: None for what nothing says it
    of. shape: of its error; printed: what it printed, where that is known."""

    kind: str
    text: str
    first: int
    at: float
    exit: int | None = None
    shape: str = ""
    path: str = ""
    printed: str = ""

    @property
    def error(self) -> str:
        """Return the line that says the error."""
        lines = [line.strip() for line in self.printed.split("\n") if line.strip()]
        return next((line for line in lines if _ERROR.search(line)), (lines or [self.shape])[-1])[:LINE_CHARS]


@dataclass(frozen=True, slots=True)
class ReadSteps:
    """What a session proposes by itself, what its person said, and the commands that worked, for what recurs."""

    id: int
    request: str
    proposals: Sequence[SessionProposal]
    said: Sequence[tuple[float, int, int, str]]
    worked: Sequence[SessionStep]


def read_steps(session: int, steps: Sequence[SessionStep]) -> ReadSteps:
    """Return what one session proposes by its steps."""
    said = [
        (one.at, one.first, place, one.text)
        for place, one in enumerate(steps)
        if one.kind == "user" and _is_own(one.text)
    ]
    request = next((one.text for one in steps if one.kind == "user"), "")
    worked = [
        one for one in steps if one.kind == "command" and not one.exit and one.exit is not None and _core(one.text)
    ]
    return ReadSteps(session, request, [*_statements(session, steps), *_fixes(session, steps)], said, worked)


def of_project(sessions: Sequence[ReadSteps]) -> list[SessionProposal]:
    """Return what a project's sessions propose, oldest first, and what is kept out; a later statement takes back what
    was said before, and a limit keeps out what may wait already."""
    said = [(one.id, *statement) for one in sessions for statement in one.said if wording(statement[-1]).reports]
    own = [
        replace(one, kept_out=REVERSED) if _is_reversed(one, said) else one
        for read in sessions
        for one in read.proposals
    ]
    drafts = list(_procedures(sessions))
    steps = {form for draft in drafts if not draft.kept_out for form in draft.same.split("\n")}
    every = sorted(
        [*own, *_commands(sessions, steps), *drafts], key=lambda one: (REVERSED, LIMIT, "").index(one.kept_out)
    )
    return sorted({one.key: one for one in every}.values(), key=lambda one: one.at)


def _limited(proposals: Iterable[SessionProposal], most: int) -> Iterator[SessionProposal]:
    """Yield them, those after so many as kept out."""
    for number, one in enumerate(proposals):
        yield one if number < most else replace(one, kept_out=LIMIT)


# --- what was said ---------------------------------------------------------------------------------------------------


def _is_own(text: str) -> bool:
    """Return whether a person said this, and did not paste or quote it."""
    return len(text) <= STATEMENT_CHARS and not any(mark in text for mark in _MARKED) and not text.startswith(">")


def _statements(session: int, steps: Sequence[SessionStep]) -> Iterator[SessionProposal]:
    said = [
        (at, one) for at, one in enumerate(steps) if one.kind == "agent" or (one.kind == "user" and _is_own(one.text))
    ]
    talk = [one for _, one in said]
    roles = {"agent": "assistant", "user": "user"}
    sentences = sentences_of([Message(roles[one.kind], one.text, seq=at) for at, one in enumerate(talk)])  # type: ignore[arg-type]
    worths = weigh([one.said if one.open else None for one in sentences], None)
    reasons = list[tuple[float, SessionProposal]]()
    asked, asked_in = "", -1
    for sentence, worth in zip(sentences, worths, strict=True):
        text, step = sentence.said.text, talk[sentence.seq]
        if step.kind == "user" and sentence.seq != asked_in:
            asked, asked_in = "", sentence.seq
        if _ASKS.search(text):
            asked = text if step.kind == "user" and names_in(text) else asked
            continue
        if not sentence.open:
            continue
        if step.kind == "user" and _answers(text, talk[: sentence.seq]):
            place = said[sentence.seq][0]
            yield SessionProposal("decision", MemoryType.DECISION, text, session, step.first, step.at, place=place)
        elif step.kind == "agent" and worth.kind == "fix":
            least = (ASKED if asked else UNASKED) if cue_in("reason", text) else (SURE if asked else 1.0)
            if worth.chance >= least:
                place, told = said[sentence.seq][0], f"{asked} {text}".strip()
                found = SessionProposal("reason", MemoryType.FACT, told, session, step.first, step.at, place=place)
                reasons.append((worth.chance, found))
    yield from _limited((one for _, one in sorted(reasons, key=lambda pair: -pair[0])), REASONS)


def _answers(text: str, before: Sequence[SessionStep]) -> bool:
    """Return whether a statement settles what the agent just spoke of: it shares words with it, and has a cue."""
    heard = [one.text for one in before if one.kind == "agent"][-ANSWERED:]
    if _REQUESTS.search(text):
        return False
    cued = any(cue_in(cue, text) for cue in ("decided", "given_up", "accepted"))
    if not heard or not (cued or is_lasting(text) or wording(text).reports):
        return False
    shared = set(terms(text)) & {term for one in heard for term in terms(one)}
    return any(len(term) > 1 for term in shared)


def _is_reversed(one: SessionProposal, said: Sequence[tuple[int, float, int, int, str]]) -> bool:
    """Return whether a later statement takes a decision back, or a reason in its own session. said: what reports a
    change, with its session."""
    if one.kind not in ("decision", "reason"):
        return False
    own = {term for term in terms(one.text) if len(term) > 1}
    return any(
        len(own & set(terms(text))) >= SHARED_LEAST
        for session, at, first, place, text in said
        if (at, first, place) > (one.at, one.first, one.place) and (one.kind == "decision" or session == one.session)
    )


# --- what was done ---------------------------------------------------------------------------------------------------


def _core(line: str) -> tuple[tuple[str, ...], ...]:
    """Return what a line does, whatever folder it is done in: programs with their words and options; () for looking."""
    acts = [
        act.command for act in acts_of(commands_of(line), line) if not act.look_only and act.command.program != "cd"
    ]
    return tuple(
        (act.program.rstrip("0123456789."), *(word.rpartition("/")[2] for word in act.words), *sorted(act.options))
        for act in acts
    )


def _shown(line: str) -> str:
    return _TAIL.sub("", _CD.sub("", line.strip()))


def _fixes(session: int, steps: Sequence[SessionStep]) -> Iterator[SessionProposal]:
    """Yield the fixes of a session: what failed, how, what worked then, and what the agent said in between."""
    found: dict[str, SessionProposal] = {}
    for at, failed in enumerate(steps):
        if (
            failed.kind != "command"
            or not failed.exit
            or len(failed.text) > LINE_CHARS
            or not (core := _core(failed.text))
        ):
            continue
        tried = steps[at + 1 : at + 1 + SOON]
        place = next(
            (n for n, one in enumerate(tried) if one.kind == "command" and one.exit == 0 and _same(core, one)), -1
        )
        if place < 0 or len((then := tried[place]).text) > LINE_CHARS:
            continue
        between = tried[:place]
        new = {term for term in terms(f"{failed.error} {then.text}") if len(term) > 1} - set(terms(failed.text))
        spoken = (sentence for one in between if one.kind == "agent" for sentence in SENTENCE.split(one.text))
        why = " ".join(sentence for sentence in spoken if new & set(terms(sentence)))[:REASON_CHARS].strip()
        files = {one.path for one in between if one.kind in ("edit", "write") and one.path}
        alike = _core(then.text) == core and _environment(then.text) == _environment(failed.text)
        is_told = (
            len(files) == 1 and cue_in("reason", why) and not any(Path(path).name in failed.text for path in files)
        )
        if not why or (alike and not is_told):
            continue
        form, _, change, _ = _WORDS[is_chinese(why)]
        how = change.format(*files) if alike else f"`{_shown(then.text)}`"
        text = " ".join([form.format(_shown(failed.text), failed.error.rstrip(".。"), how), why]).strip()
        same = repr((core, failed.shape))
        found.setdefault(same, SessionProposal("fix", MemoryType.BUGFIX, text, session, failed.first, failed.at, same))
    yield from _limited(found.values(), FIXES)


def _same(core: tuple[tuple[str, ...], ...], then: SessionStep) -> bool:
    """Return whether a command is for the same thing as one that failed: a program of it, with all of its words."""
    program, *words = core[-1]
    wanted = {word for word in words if not word.startswith("-")}
    return any(words[0] == program and wanted <= set(words) for words in _core(then.text))


def _environment(line: str) -> frozenset[str]:
    return frozenset(_ENVIRONMENT.findall(line))


def _is_projects(line: str) -> bool:
    """Return whether a command does more than keep files in order."""
    return any(words[0] not in _FILES and len(words) > 1 for words in _core(line))


def _form(line: str) -> str:
    return _NUMBERS.sub("<…>", _shown(line))


def _commands(sessions: Iterable[ReadSteps], steps: Container[str]) -> Iterator[SessionProposal]:
    """Yield the commands that worked in several sessions. steps: those of procedures, which stand there."""
    last: dict[str, tuple[SessionStep, int, str]] = {}
    often: Counter[str] = Counter()
    for read in sessions:
        own = (one for one in read.worked if len(one.text) <= LINE_CHARS and _form(one.text) not in steps)
        lines = {_shown(one.text): one for one in own if _is_projects(one.text)}
        often.update(lines.keys())
        last |= {line: (one, read.id, read.request) for line, one in lines.items()}
    for number, (line, count) in enumerate(often.most_common()):
        if count < OFTEN:
            return
        step, session, request = last[line]
        text, why = _WORDS[is_chinese(request)][1].format(line), LIMIT if number >= COMMANDS else ""
        yield SessionProposal("command", MemoryType.WORKFLOW, text, session, step.first, step.at, kept_out=why)


def _procedures(sessions: Sequence[ReadSteps]) -> Iterator[SessionProposal]:
    """Yield the longest sequences of steps that recur, numbers and names aside, as drafts."""
    forms = {read.id: [_form(one.text) for one in read.worked] for read in sessions}
    often = Counter(form for own in forms.values() for form in set(own))
    runs: dict[tuple[str, ...], list[tuple[ReadSteps, SessionStep]]] = defaultdict(list)
    for read in sessions:
        pairs = [(form, one) for form, one in zip(forms[read.id], read.worked, strict=True) if often[form] >= OFTEN]
        known = set[tuple[str, ...]]()
        for start in range(len(pairs)):
            for end in range(start + STEPS, min(start + STEPS_MAX, len(pairs)) + 1):
                run = tuple(form for form, _ in pairs[start:end])
                if run not in known and len(set(run)) == len(run):
                    known.add(run)
                    runs[run].append((read, pairs[start][1]))
    kept: list[tuple[str, ...]] = []
    for run in sorted(
        (run for run, seen in runs.items() if len(seen) >= OFTEN), key=lambda run: -len(run) * len(runs[run])
    ):
        if any(set(run) & set(other) for other in kept) or sum(map(_is_projects, run)) < 2:
            continue
        kept.append(run)
        read, step = runs[run][-1]
        title = " ".join(read.request.split())[:100]
        days = ", ".join(f"{_EPOCH + timedelta(seconds=one.at):%Y-%m-%d}" for _, one in runs[run][-OFTEN:])
        lines = [f"{number}. `{form}`" for number, form in enumerate(run, 1)]
        text = "\n".join([f"# {title}", "", _WORDS[is_chinese(title)][3].format(days), "", *lines])
        same, why = "\n".join(run), LIMIT if len(kept) > PROCEDURES else ""
        yield SessionProposal("procedure", MemoryType.WORKFLOW, text, read.id, step.first, step.at, same, kept_out=why)

"""What a coding agent's lifecycle hooks get from the memory: event and payload in, text for the agent out.

The rules are the clients': SessionStart and UserPromptSubmit may add context, PreCompact's text joins the compaction
prompt, PostCompact brings the summary, SessionEnd ends the conversation. `brief` composes what is shown, each memory
once a conversation: what its client did not wait for was not shown. Before a tool runs, a known trap of its file or
command is shown; after a command failed, a known fix. Neither ever blocks. Nothing to say is an empty text.

An agent that writes its memories itself (`first-person`) is asked once a session. Stop looks whether there is a reason;
the question goes with the next prompt, where nobody sees it and it costs no answer. Rejected: holding the agent at its
stop, which clients show as "Stop hook reported a problem", after the answer and with a second one. Nobody can be asked
when a session ends: SessionEnd only observes.

Nobody writes a memory as well as the agent that had the experience. The small model looks at the newest messages by
their form and at the likeliest sentences by their embedding too, and only where it is sure of something that the user
said after the agent's last own write is the agent asked, in the language that its user writes. Rejected: asking at
every n-th stop, which asks about small talk; by form alone (of 60 plain orders it asked after 24).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cachetools import LRUCache

from memory_anchor.base import terminal
from memory_anchor.base.json_values import Json
from memory_anchor.base.pausing import pause_of
from memory_anchor.base.request_gate import in_background
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.domain.model import Layer, WriteMode
from memory_anchor.domain.requests import checks
from memory_anchor.hooks import at_the_act, brief
from memory_anchor.ingest.capture_classifier import is_lasting
from memory_anchor.ingest.extraction import Rows, sentences_of, weigh
from memory_anchor.ingest.messages import MAX_MESSAGES, MEMORY_TOOLS, READ_CHARS, Message
from memory_anchor.ingest.transcripts import codex_exit_code, read_end, read_transcript
from memory_anchor.language.fences import strip_fenced
from memory_anchor.language.safe_regex import late
from memory_anchor.language.safety import cleaned
from memory_anchor.language.terms import is_chinese
from memory_anchor.runtime.wire import UNTIL
from memory_anchor.use_cases.memory import MemoryAnchor
from memory_anchor.use_cases.used_memories import (
    SHOWN_SESSIONS_FILE,
    USED_MEMORIES_FILE,
    ShownMemory,
    ShownSessions,
    UsedMemories,
    traces_in,
    used_ids,
)

WRITES_MEMORY = late(r"(?:save_memory|add_memory|log_event|remember_conversation|promote_to_fact|end_session)$")
LOOKED_AT = 40
"""The newest messages with text that are looked at."""
EMBEDDED_AT_STOP = 4
"""Sentences of the user's that are judged by their embedding too, some 70 ms each."""
SURE_ENOUGH = 0.85
"""Chance from which the agent is asked whatever is said; from the keeping one where it says what always holds. Of 120
plain orders 10 ask, and of 80 statements and small talks worth keeping 70 (`bench_capture.py --alone`)."""

ASK = (
    "[Memory Anchor] While you answer, save with save_memory what was said before this prompt that later sessions must "
    "know and memory does not hold yet: decisions and why, fixes and their cause, the user's preferences and rules, "
    "mistakes not to repeat; log_event for work done. Your own words, one statement each, nothing memory told you. "
    "Nothing to save is fine. Not a word about it to the user."
)
ASK_IN_CHINESE = (
    "[Memory Anchor] 回答的同时，用 save_memory 保存此前说过、以后必须知道而记忆里还没有的：决定与理由、修复与原因、"
    "用户的偏好和规则、不可重犯的错误；做过的事用 log_event。用自己的话，一条一事。没有就不存，不必告诉用户。"
)


@dataclass(frozen=True, slots=True)
class Unwritten:
    """candidates: sentences of the user's that are surely worth keeping and came after the agent's last own write."""

    candidates: int
    in_chinese: bool

    @property
    def question(self) -> str:
        """The words in which the agent is asked."""
        return ASK_IN_CHINESE if self.in_chinese else ASK


def unwritten_in(messages: Sequence[Message], rows: Rows | None = None) -> Unwritten:
    """Return what the newest messages of a conversation hold that is not saved yet. rows: None judges by form alone."""
    spoken = [place for place, message in enumerate(messages) if _is_spoken(message)]
    newest = messages[spoken[-LOOKED_AT:][0] :] if spoken else ()
    wrote = [
        place
        for place, message in enumerate(newest)
        if any(WRITES_MEMORY.search(call.name) for call in message.tool_calls)
    ]
    unwritten = newest[wrote[-1] + 1 :] if wrote else newest
    sentences = [sentence.said for sentence in sentences_of(unwritten) if sentence.open]
    by_form = zip(weigh(sentences, None), sentences, strict=True)
    users_own = [(worth.chance, said) for worth, said in by_form if said.role == "user"]
    likeliest = [said for _, said in sorted(users_own, key=lambda pair: -pair[0])[:EMBEDDED_AT_STOP]]
    judged = zip(weigh(likeliest, rows), likeliest, strict=True)
    candidates = sum(w.chance >= SURE_ENOUGH or (w.keeps and is_lasting(said.text)) for w, said in judged)
    users = "\n".join(message.content[:400] for message in newest if message.role == "user")
    return Unwritten(candidates, is_chinese(users))


COLD_START = "memory_anchor_cold_start"
"""In a SessionStart's payload: this conversation's instructions came from the package, without the constitution."""
UNPROMPTED = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure")
EVENTS = (*UNPROMPTED, "PreCompact", "PostCompact", "Stop", "SessionEnd")
KEEPS_COSTS = ("Stop", "SessionEnd")
MIN_PROMPT_CHARS = 8
SUMMARY_PARTS = 4
SHOWN_MAX = 200
"""Memories of a conversation whose use is looked for in what its agent did."""
STATUS_READ = 200
"""The newest memories of each layer that a status line counts."""
FAILURE_CHARS = 120
RED, PLAIN = "\x1b[31m", "\x1b[0m"
CONVERSATIONS_KEPT = 500

TRANSCRIPT_MESSAGES = 400
"""The newest messages of user and agent that are learned from; earlier ones were there at an earlier compaction."""
LEARNS_AT = {"Stop": "per-turn", "SessionEnd": "session-end"}
UNATTENDED = ("ghostwriter", "factual")
"""Modes in which the transcript is read without the agent."""
MESSAGES_A_STOP = 2
"""A question and its answer: what is between two Stops, counted like `min_turns`."""
EXIT_CODES = ("exit_code", "exitCode", "returnCode", "code")

KEEP_IN_CHINESE = (
    "摘要里请保留：决定了什么、为什么；试过什么、为什么失败；未解决的问题；正在改的文件名和函数名；用户说过的偏好和规则；下一步。"
    "<recalled-memory> 里的内容不用写，记忆里已有。"
)
KEEP = (
    "Keep in the summary: what was decided and why, what was tried and failed, open questions, names of files and "
    "functions in work, the user's stated preferences and rules, and the next step. Leave out text inside "
    "<recalled-memory>: the memory has it."
)


@dataclass(slots=True)
class _Session:
    """What is remembered of one conversation, counted in messages.

    recalled: ids of memories shown whole. shown: every line shown, to see which the agent uses. owes_rules: its next
    prompt brings L0. is_briefed: its first prompt was answered. question: what its next prompt asks the agent to save.
    transcript: where it is compacted.
    """

    messages: int = 0
    asked_at: int = 0
    question: str = ""
    transcript: str = ""
    recalled: frozenset[str] = frozenset()
    shown: dict[str, ShownMemory] = field(default_factory=dict)
    owes_rules: bool = False
    is_briefed: bool = False


class Hooks:
    """Answers hooks of every conversation. Thread-safe.

    It only remembers which facts a conversation has been shown, and when its agent was last asked for memories.
    """

    def __init__(self) -> None:
        self._sessions: LRUCache[str, _Session] = LRUCache(CONVERSATIONS_KEPT)
        self._lock = threading.Lock()

    def answer(self, anchor: MemoryAnchor, event: str, payload: Mapping[str, Json], *, budget_tokens: int = 0) -> str:
        """Return what the hook prints, "" for nothing, and count what it costs; see `_answer`."""
        text = self._answer(anchor, event, payload, budget_tokens)
        services, scope = anchor.services, anchor.actor.scope
        services.costs.note(event, text)
        if event == "SessionStart" and payload.get("source") != "compact" and not payload.get(COLD_START):
            whose = (scope.account, scope.project, scope.agent)
            services.costs.note_start(whose, services.searcher.index.mirror.changes, text)
        if event in KEEPS_COSTS and anchor.writes.may_write:
            with services.save_health.tolerating_failure():
                services.costs.kept(services.data_dir)
        return text

    def _answer(self, anchor: MemoryAnchor, event: str, payload: Mapping[str, Json], budget_tokens: int) -> str:
        """Return what the hook prints, "" for nothing; an event we have no part in has none.

        budget_tokens: for a session's start, 0 for what the settings give.
        Raises Refused: a read-only caller's hook would have to write. Raises what the use cases raise.
        """
        pause = pause_of(anchor.services.data_dir, anchor.services.clock.now())
        if pause is not None and pause.silent and event in UNPROMPTED:
            return ""
        tool_input = payload.get("tool_input")
        tool_input = tool_input if isinstance(tool_input, Mapping) else {}
        match event:
            case "Statusline":
                return self._status(anchor, is_paused=pause is not None)
            case "SessionStart":
                source = "compact" if payload.get(COLD_START) else str(payload.get("source", "startup"))
                with self._lock:
                    session = self._session(anchor)
                    session.recalled, session.is_briefed = frozenset(), False
                    session.owes_rules = source == "compact" and not _in_time(anchor, payload)
                    transcript = str(payload.get("transcript_path") or session.transcript)
                own = transcript if payload.get("source") == "compact" else ""
                return self._show(anchor, brief.start(anchor, source, budget_tokens, own), payload, event)
            case "UserPromptSubmit":
                return self._prompt(anchor, payload)
            case "PreToolUse":
                return self._show(
                    anchor, at_the_act.for_tool(anchor, tool_input, self._recalled(anchor)), payload, event
                )
            case "PostToolUse" | "PostToolUseFailure":
                command, error = str(tool_input.get("command") or ""), failure_of(payload)
                fixes = at_the_act.for_failure(anchor, command, error, self._recalled(anchor))
                return self._show(anchor, fixes, payload, event)
            case "PreCompact":
                with self._lock:
                    self._session(anchor).transcript = str(payload.get("transcript_path") or "")
                unwritten = _unwritten_in(payload)
                return KEEP_IN_CHINESE if unwritten and unwritten.in_chinese else KEEP
            case "Stop":
                self._look_for_a_question(anchor, payload)
            case "PostCompact" if anchor.agent_settings.enabled:
                store_summary(anchor, str(payload.get("compact_summary") or payload.get("summary") or ""))
            case "SessionEnd":
                anchor.end_session()
        return ""

    def in_background(self, anchor: MemoryAnchor, event: str, payload: Mapping[str, Json]) -> int:
        """Do what nobody waits for: learn from the transcript; return how many memories came of it.

        Before a compaction unless the agent's settings forbid it, after each answer or at the end only where they say
        so. At the end of a session whose agent is asked to write by itself, what is found besides waits for review. A
        transcript that was read before adds nothing. Raises what reading and storing raise.
        """
        chosen = anchor.agent_settings.extraction
        path = str(payload.get("transcript_path") or "")
        learns, shown = self._learns(anchor, event), self._take_shown(anchor, event)
        if not path or not (learns or shown):
            return 0
        messages, _ = read_transcript(Path(path))
        if shown and anchor.writes.may_write:
            used, folder = used_in(shown, messages), anchor.services.data_dir
            UsedMemories(folder / USED_MEMORIES_FILE).note(shown, used)
            ShownSessions(folder / SHOWN_SESSIONS_FILE).note(
                anchor.actor.scope, anchor.services.clock.now(), shown, used
            )
        if not learns or sum(map(_is_spoken, messages)) < chosen.min_turns:
            return 0
        mode = chosen.mode if chosen.mode in UNATTENDED else WriteMode.FACTUAL.value
        waits = event == "SessionEnd" and chosen.mode not in UNATTENDED
        with in_background():
            saved, _ = anchor.remember_conversation(newest(messages), mode=mode, waits=waits)
        return len(saved)

    def _take_shown(self, anchor: MemoryAnchor, event: str) -> list[ShownMemory]:
        """Return what this conversation was shown since it was last looked at, where it ends or is compacted."""
        if event not in ("SessionEnd", "PreCompact"):
            return []
        with self._lock:
            session = self._session(anchor)
            shown, session.shown = list(session.shown.values()), {}
        return shown

    def _learns(self, anchor: MemoryAnchor, event: str) -> bool:
        chosen = anchor.agent_settings.extraction
        if not anchor.agent_settings.enabled or chosen.trigger == "manual":
            return False
        if event == "SessionEnd" and chosen.asks:
            return True
        return event == "PreCompact" or (chosen.mode in UNATTENDED and LEARNS_AT.get(event) == chosen.trigger)

    def _look_for_a_question(self, anchor: MemoryAnchor, payload: Mapping[str, Json]) -> None:
        """Let the next prompt ask the agent to write down what it learned, where there is something.

        `stop_hook_active` says that another hook held the agent: no turn ended. Where the transcript can be read, only
        what it holds is asked about; where it cannot, only an agent that a user chose. Only `per-turn` asks again.
        """
        chosen = anchor.agent_settings.extraction
        asks = anchor.agent_settings.enabled and chosen.asks
        if not asks or payload.get("stop_hook_active") or not anchor.writes.may_write:
            return
        with self._lock:
            session = self._session(anchor)
            session.messages += MESSAGES_A_STOP
            messages, asked_at = session.messages, session.asked_at
        if messages - asked_at < chosen.min_turns or (asked_at and chosen.trigger != "per-turn"):
            return
        unwritten = _unwritten_in(payload, anchor.services.learner.rows)
        if (unwritten is None and chosen.mode == "auto") or (unwritten is not None and not unwritten.candidates):
            return
        with self._lock:
            session = self._session(anchor)
            session.asked_at = messages
            session.question = chosen.prompt_template or (unwritten.question if unwritten else ASK)

    def _prompt(self, anchor: MemoryAnchor, payload: Mapping[str, Json]) -> str:
        prompt = _said(str(payload.get("prompt") or payload.get("user_prompt") or ""), most=checks.QUERY_MAX)
        if len(prompt.encode()) < MIN_PROMPT_CHARS or prompt.startswith("/"):
            return ""
        anchor.services.recent_prompts.note(anchor.actor.scope, prompt)
        with self._lock:
            is_first = not self._session(anchor).is_briefed
        found = brief.for_prompt(anchor, prompt, self._recalled(anchor), first=is_first)
        text = self._show(anchor, found, payload, "UserPromptSubmit")
        with self._lock:
            session = self._session(anchor)
            owes_rules, question = session.owes_rules, session.question
            if _in_time(anchor, payload):
                session.is_briefed, session.owes_rules, session.question = True, False, ""
        rules = brief.constitution_text(anchor) if owes_rules else ""
        return "\n\n".join(part for part in (rules, text, question) if part)

    def _show(self, anchor: MemoryAnchor, found: brief.Brief, payload: Mapping[str, Json], hook: str) -> str:
        """Return the text of a brief and note what it showed, unless nobody waits for it any more."""
        if found.text and _in_time(anchor, payload):
            with self._lock:
                session = self._session(anchor)
                session.recalled |= found.whole_ids
                for line in found.lines[: SHOWN_MAX - len(session.shown)]:
                    shown = ShownMemory(line.id, line.layer.value, hook, traces_in(line.words))
                    session.shown.setdefault(line.id, shown)
            brief.note_due(anchor, found)
        return found.text

    def _status(self, anchor: MemoryAnchor, *, is_paused: bool) -> str:
        """Return one line for a client's status bar: what this conversation was shown and wrote, red when it cannot."""
        loaded = len(self._recalled(anchor))
        layers = (Layer.VERIFIED_FACT.value, Layer.EVENT_LOG.value)
        memories = [memory for layer in layers for memory in anchor.curation.listing(layer=layer, limit=STATUS_READ)]
        conversation, now = anchor.actor.scope.conversation, anchor.services.clock.now()
        saved = [
            memory
            for memory in memories
            if conversation and (memory.written_in or memory.scope.conversation) == conversation
        ]
        parts = [f"{loaded} loaded", f"{len(saved)} saved"]
        if saved:
            parts.append(f"last {_since(now, max(memory.recorded_at for memory in saved))} ago")
        if waiting := anchor.curation.waiting(0)[0]:
            parts.append(f"{waiting} wait for review")
        if failure := anchor.services.save_health.failure:
            return f"{RED}memory: saving fails: {terminal.visible(failure)[:FAILURE_CHARS]}{PLAIN}"
        return " · ".join([*parts, *(["paused"] if is_paused else [])])

    def _recalled(self, anchor: MemoryAnchor) -> frozenset[str]:
        with self._lock:
            return self._session(anchor).recalled

    def _session(self, anchor: MemoryAnchor) -> _Session:
        """Return what is remembered of this conversation; the lock is held."""
        scope = anchor.actor.scope
        return self._sessions.setdefault(f"{scope.account}|{scope.project}|{scope.conversation}", _Session())


def _is_spoken(message: Message) -> bool:
    return message.role in ("user", "assistant") and bool(message.content.strip())


def _unwritten_in(payload: Mapping[str, Json], rows: Rows | None = None) -> Unwritten | None:
    """Return what the end of the transcript holds that is not saved; None where there is none to read."""
    path = str(payload.get("transcript_path") or "")
    if not path:
        return None
    try:
        return unwritten_in(read_end(Path(path)), rows)
    except (BadInput, NotFound):
        return None


def newest(messages: Sequence[Message]) -> list[dict[str, Json]]:
    """Return the newest messages of a transcript, with the tool calls and answers between them, to be learned from.

    A message is cut where extraction stops reading it. Of what tools answered only our own are read, to know what was
    recalled; an answer whose call was left out is left out too.
    """
    spoken = [place for place, message in enumerate(messages) if _is_spoken(message)][-TRANSCRIPT_MESSAGES:]
    found: list[dict[str, Json]] = []
    called = ours = False
    for message in messages[max(spoken[0] if spoken else 0, len(messages) - MAX_MESSAGES) :]:
        if message.tool_calls:
            called, ours = True, any(MEMORY_TOOLS.search(call.name) for call in message.tool_calls)
        if message.role != "tool" or called:
            text = message.content[:READ_CHARS] if message.role != "tool" or ours else ""
            calls: list[Json] = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls]
            found.append({"role": message.role, "content": text, "tool_calls": calls})
    return found


def _said(text: str, *, most: int) -> str:
    """Return what a client's hook was told, as a request may have it: cleaned before it is cut, or half would stay."""
    return cleaned(strip_fenced(text[: 2 * most]).replace("\0", " ")).text[:most]


def store_summary(anchor: MemoryAnchor, summary: str) -> None:
    """Store a compaction's summary as events, in at most `SUMMARY_PARTS` parts; an empty one is no event."""
    size = checks.CONTENT_MAX
    text = _said(summary, most=size * SUMMARY_PARTS)
    parts = [text[start : start + size] for start in range(0, len(text), size)][:SUMMARY_PARTS]
    for number, part in enumerate(parts, start=1):
        place = f" {number}/{len(parts)}" if len(parts) > 1 else ""
        request = f"{anchor.actor.nonce}/{number}" if anchor.actor.nonce else None
        anchor.log_event(part, type="summary", key=f"compaction summary{place}", request_id=request)


def _since(now: datetime, then: datetime) -> str:
    seconds = max(0, int((now - then).total_seconds()))
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min" if seconds < 3600 else f"{seconds // 3600} h"


def used_in(shown: Sequence[ShownMemory], messages: Sequence[Message]) -> frozenset[str]:
    """Return the ids of what the agent of a conversation used: traces in its words or in the input of its tools."""
    by_user = "\n".join(strip_fenced(message.content) for message in messages if message.role == "user")
    by_agent = [strip_fenced(message.content) for message in messages if message.role == "assistant"]
    calls = [json.dumps(call.arguments, ensure_ascii=False) for message in messages for call in message.tool_calls]
    return used_ids(shown, by_agent="\n".join([*by_agent, *calls]), by_user=by_user)


def failure_of(payload: Mapping[str, Json]) -> str:
    """Return what a failing command printed, "" for one that did not fail, as far as its client says.

    Codex hands on only what was printed: how the command ended is in its transcript.
    """
    response = payload.get("tool_response")
    if payload.get("hook_event_name") == "PostToolUseFailure" or payload.get("error"):
        return str(payload.get("error") or response or "")
    if isinstance(response, Mapping):
        code = next((response[name] for name in EXIT_CODES if response.get(name)), 0)
        if code or response.get("is_error") or response.get("isError"):
            return "\n".join(str(response.get(name) or "") for name in ("stdout", "error", "stderr"))
    call, path = payload.get("tool_use_id"), payload.get("transcript_path")
    if isinstance(response, str) and isinstance(call, str) and call and isinstance(path, str) and path:
        try:
            return response if codex_exit_code(Path(path), call) else ""
        except (BadInput, NotFound):
            return ""
    return ""


def _in_time(anchor: MemoryAnchor, payload: Mapping[str, Json]) -> bool:
    until = payload.get(UNTIL)
    return not isinstance(until, int | float) or anchor.services.clock.now().timestamp() <= until

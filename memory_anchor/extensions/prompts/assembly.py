"""A whole prompt within a model's window: the conversation, its tools and what memory has to say.

Collect the conversation, retrieve for its task, assemble, record. Over budget, the cheapest goes first and no more than
necessary, always in this order: retrieved snippets, old tool results (trimmed, then cleared), old turns; then a
compaction is asked for, and the tool profile is reduced. The constitution, system messages and the last user turns are
never touched: when these alone are too much, the prompt is returned as small as it gets and the report says by how many
tokens it is over. Inputs are never mutated.

Tool results are what grows a coding agent's prompt and what it can have again by repeating the call. So the oldest are
shortened to head and tail first, then emptied, one at a time and only as many as it takes; the message, its ids and the
call stay, hence no result is ever left without its call. Then whole turns go, oldest first. The last turns are never
touched. This changes one prompt; it never rewrites a conversation (that is compaction, which the caller is asked for).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from memory_anchor.base.json_values import Json, Record, records
from memory_anchor.context.context import ContextBuilder, Decision, Gathered, token_estimates
from memory_anchor.context.sections import RETRIEVED, Body, ContextCostReport, Section
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Citation
from memory_anchor.domain.requests import checks
from memory_anchor.domain.requests.fields import use_case
from memory_anchor.domain.requests.requests import TASK_MAX
from memory_anchor.extensions.prompts.profiles import Shown, narrow, read_tools
from memory_anchor.extensions.prompts.requests import AssemblePrompt
from memory_anchor.extensions.prompts.transcript import (
    Message,
    Result,
    Transcript,
    content_text,
    cost_of,
    last_user_text,
    read,
)
from memory_anchor.language.tokens import count_tokens, cut_to_tokens
from memory_anchor.use_cases.memory import MemoryAnchor

LARGE_SHARE = 0.25
"""Retrieved text above this share of the prompt's room shows one profile fewer tools: both compete for attention."""
NAMES_REPORTED = 50


@dataclass(frozen=True, slots=True)
class AssembledContext:
    """messages, tools: what to send, in the form they came. text: the context to place before the conversation."""

    messages: list[Mapping[str, Json]]
    tools: list[Mapping[str, Json]]
    text: str
    report: ContextCostReport
    citations: tuple[Citation, ...] = ()
    report_id: str = ""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Draft:
    """A prompt while it is made to fit into `room` tokens."""

    room: int
    transcript: Transcript
    tools: Shown
    body: Body
    policy: PrunePolicy
    unprunable: frozenset[str]
    decisions: list[Decision]
    memory_tokens: int = field(default=0)

    def over(self) -> int:
        """Return by how many tokens the prompt exceeds its room, 0 when it fits."""
        return max(0, self.transcript.total() + self.tools.tokens + self.memory_tokens - self.room)

    def note(self, action: str, reason: str, **details: Json) -> Decision:
        decision: Decision = {"action": action, "reason": reason, **details}
        self.decisions.append(decision)
        return decision

    def put(self, body: Body) -> None:
        self.body, self.memory_tokens = body, count_tokens(body.text())


class PromptAssembler:
    def __init__(self, builder: ContextBuilder) -> None:
        self._builder = builder
        self._policy = PrunePolicy()

    def assemble(
        self,
        messages: Json,
        tools: Json = None,
        *,
        context_window_tokens: int,
        reserved_output_tokens: int = 0,
        task: str | None = None,
        strict_tools: bool = False,
    ) -> AssembledContext:
        """Return the prompt to send, with its context and what it costs.

        task: what memory is asked for; omitted, what the user said last. reserved_output_tokens: below the window.
        strict_tools: make the tools' argument schemas strict.
        The sizes are as `AssemblePrompt` checks them. Raises BadInput: messages or tools that no model API would take,
        a reserve that is no smaller than the window.
        """
        builder = self._builder
        started = builder.monotonic()
        window, reserved = context_window_tokens, reserved_output_tokens
        if reserved >= window:
            raise BadInput(f"reserved_output_tokens is {reserved}; allowed is less than the window of {window} tokens")
        query = checks.text("task", task, most=TASK_MAX, required=False)
        transcript, known = read(messages), read_tools(tools, strict=strict_tools)
        collect_ms = builder.elapsed_ms(started)
        shown = transcript.shown()
        found = builder.gather(query or last_user_text(shown), shown)
        started = builder.monotonic()
        room = window - reserved
        draft = _Draft(
            room=room,
            transcript=transcript,
            tools=Shown("full", known),
            body=found.body,
            policy=self._policy,
            unprunable=frozenset(tool.name for tool in known if not tool.prunable),
            decisions=found.decisions,
        )
        draft.put(builder.fit(found, min(room, builder.tokens_for(found))).body)
        _degrade(draft)
        _reduce_for_retrieval(draft)
        found.stage_ms["collect"] = round(found.stage_ms["collect"] + collect_ms, 3)
        found.stage_ms["assemble"] = builder.elapsed_ms(started)
        report = _report(draft, found, window=window, reserved=reserved)
        return AssembledContext(
            messages=draft.transcript.shown(),
            tools=[tool.shown for tool in draft.tools.tools],
            text=draft.body.text(),
            report=report,
            citations=report.citations,
            report_id=builder.record(report, found.notes),
            notes=tuple(found.notes),
        )


@use_case(AssemblePrompt)
def assemble(anchor: MemoryAnchor, request: AssemblePrompt) -> AssembledContext:
    """Return a prompt that fits its window, with its context and cost report. Raises BadInput."""
    return PromptAssembler(anchor.process.context_builder(anchor)).assemble(
        request.messages,
        request.tools,
        context_window_tokens=request.context_window_tokens,
        reserved_output_tokens=request.reserved_output_tokens,
        task=request.task,
        strict_tools=request.strict_tools,
    )


def _degrade(draft: _Draft) -> None:
    """Make the prompt fit, one kind of loss after the other."""
    if not draft.over():
        return
    _drop_memory(draft)
    for strategy in ("soft_trim", "hard_clear"):
        _prune(draft, strategy)
    _shrink(draft)
    if not (over := draft.over()):
        return
    reason = f"{over} tokens too many with only protected turns left; send a summary of them instead"
    request = draft.note("request_compaction", reason, over_by_tokens=over)
    _reduce(draft, need=over, reason=f"{over} tokens too many with everything else given up")
    request["still_over_tokens"] = draft.over()


def _drop_memory(draft: _Draft) -> None:
    count, before, over = draft.body.count(RETRIEVED), draft.memory_tokens, draft.over()
    while draft.over() and (less := draft.body.without_last(RETRIEVED)) is not None:
        draft.put(less)
    if dropped := count - draft.body.count(RETRIEVED):
        reason = f"the prompt is {over} tokens over its room of {draft.room}"
        saved = before - draft.memory_tokens
        draft.note("drop_memory_results", reason, dropped=dropped, kept=count - dropped, saved_tokens=saved)


def _prune(draft: _Draft, strategy: Strategy) -> None:
    if not (over := draft.over()):
        return
    saving = prune_results(
        draft.transcript,
        strategy=strategy,
        need=over,
        prunable=lambda tool: tool not in draft.unprunable,
        policy=draft.policy,
    )
    draft.transcript = saving.transcript
    if saving.results:
        draft.note(
            "prune_tool_results",
            f"{over} tokens over with memory results gone",
            strategy=strategy,
            protected_turns=draft.policy.protected_turns,
            results=saving.results,
            saved_tokens=saving.tokens,
        )


def _shrink(draft: _Draft) -> None:
    if not (over := draft.over()):
        return
    saving: Saving = shrink_history(draft.transcript, need=over, policy=draft.policy)
    draft.transcript = saving.transcript
    if saving.turns:
        draft.note(
            "shrink_history",
            f"{over} tokens over with old tool results pruned",
            dropped_turns=saving.turns,
            dropped_messages=saving.messages,
            protected_turns=draft.policy.protected_turns,
            saved_tokens=saving.tokens,
        )


def _reduce(draft: _Draft, *, need: int, reason: str, steps: int = 3) -> None:
    before = draft.tools
    draft.tools = narrow(before.tools, need=need, required=_required(draft), steps=steps)
    if draft.tools.dropped:
        dropped, profiles = draft.tools.dropped, {"from": before.profile, "to": draft.tools.profile}
        draft.note(
            "reduce_profile",
            reason,
            **profiles,
            dropped=list(dropped[:NAMES_REPORTED]),
            dropped_tools=len(dropped),
            saved_tokens=before.tokens - draft.tools.tokens,
        )


def _reduce_for_retrieval(draft: _Draft) -> None:
    retrieved = sum(section.tokens for section in draft.body.sections() if section.name in RETRIEVED)
    if draft.tools.profile == "full" and retrieved > LARGE_SHARE * draft.room:
        reason = f"retrieved text takes {retrieved} of {draft.room} tokens, above {LARGE_SHARE:.0%}"
        _reduce(draft, need=0, reason=reason, steps=1)


def _required(draft: _Draft) -> frozenset[str]:
    """Return the tools that messages still in the prompt call: an API refuses a call whose tool it is not given."""
    shown = draft.transcript.messages
    return frozenset(tool for index, tools in draft.transcript.calls.items() if index in shown for tool in tools)


def _report(draft: _Draft, found: Gathered, *, window: int, reserved: int) -> ContextCostReport:
    tokens = draft.transcript.tokens()
    sections = draft.body.sections()
    outside = (
        Section("tools", "prefix", draft.tools.tokens),
        Section("system", "prefix", tokens["system"]),
        Section("history", "tail", tokens["history"]),
        Section("tool_results", "tail", tokens["tool_results"]),
    )
    return ContextCostReport(
        context_window_tokens=window,
        reserved_output_tokens=reserved,
        estimated_tokens=token_estimates(sections, tools_schema=draft.tools.tokens, **tokens),
        sections=(*outside[:2], *sections, *outside[2:]),
        decisions=tuple(draft.decisions),
        citations=draft.body.citations(),
        stage_ms=found.stage_ms,
        cache=found.cache,
    )


Strategy = Literal["soft_trim", "hard_clear"]
WORTH_TOKENS = 16
"""A result that would save less stays: so what is already trimmed or cleared is left as it is."""


@dataclass(frozen=True, slots=True)
class PrunePolicy:
    """protected_turns: user turns at the end that stay as they are. Tokens: results above `trim_above` are trimmed to
    `head` + `tail` and a mark; a failing command says why at its end, a file what it is at its start."""

    protected_turns: int = 2
    trim_above: int = 600
    head: int = 250
    tail: int = 150

    def __post_init__(self) -> None:
        if self.protected_turns < 1 or min(self.head, self.tail) < 0 or self.head + self.tail >= self.trim_above:
            raise BadInput(
                f"prune policy is {self.protected_turns} protected turns, {self.head} + {self.tail} tokens of "
                f"{self.trim_above}; allowed are at least 1 turn and head + tail below the limit"
            )


@dataclass(frozen=True, slots=True)
class Saving:
    """What one step of making smaller did. results, messages, turns: how many it touched or left out."""

    transcript: Transcript
    tokens: int = 0
    results: int = 0
    messages: int = 0
    turns: int = 0


def prune_results(
    transcript: Transcript, *, strategy: Strategy, need: int, prunable: Callable[[str], bool], policy: PrunePolicy
) -> Saving:
    """Return the transcript with old tool results made smaller, oldest first, until `need` tokens are saved or none is
    left to prune. prunable: tool name -> may its results be touched."""
    protected = transcript.protected_from(policy.protected_turns)
    old = frozenset(index for turn in transcript.turns[:protected] for index in turn.messages)
    changed: dict[int, Message] = {}
    saved = touched = 0
    for result in transcript.results:
        if saved >= need:
            break
        if result.message not in old or not prunable(result.tool):
            continue
        message = changed.get(result.message, transcript.messages[result.message])
        smaller = _smaller(message, result, strategy, policy)
        if smaller is None:
            continue
        gained = cost_of(message).total - cost_of(smaller).total
        if gained >= WORTH_TOKENS:
            changed[result.message] = smaller
            saved, touched = saved + gained, touched + 1
    return Saving(transcript.with_messages(changed), saved, results=touched)


def shrink_history(transcript: Transcript, *, need: int, policy: PrunePolicy) -> Saving:
    """Return the transcript less its oldest turns, until `need` tokens are saved or only protected turns are left."""
    saved = turns = 0
    dropped: list[int] = []
    for turn in transcript.turns[: transcript.protected_from(policy.protected_turns)]:
        if saved >= need:
            break
        saved += sum(transcript.costs[index].total for index in turn.messages)
        dropped.extend(turn.messages)
        turns += 1
    return Saving(transcript.without(frozenset(dropped)), saved, messages=len(dropped), turns=turns)


def soft_trim(text: str, *, tool: str, policy: PrunePolicy) -> str:
    """Return head and tail of a tool result with a mark between; whole when it is short."""
    tokens = count_tokens(text)
    if tokens <= policy.trim_above:
        return text
    head = cut_to_tokens(text, policy.head)
    tail = _last_tokens(text[len(head) :], policy.tail)
    left_out = tokens - count_tokens(head) - count_tokens(tail)
    return f"{head}\n[... about {left_out} tokens left out; call {tool} again for the whole ...]\n{tail}"


def hard_clear(*, tool: str, call_id: str, tokens: int) -> str:
    """Return what replaces a cleared tool result: what it was and how to have it again."""
    return f"[result of {tool} cleared, {tokens} tokens; repeat call {call_id} above to fetch it again]"


def _smaller(message: Message, result: Result, strategy: Strategy, policy: PrunePolicy) -> Message | None:
    if result.block is None:
        content = _content(message.get("content"), result, strategy, policy)
        return None if content is None else {**message, "content": content}
    blocks = records(message["content"])
    content = _content(blocks[result.block].get("content"), result, strategy, policy)
    if content is None:
        return None
    blocks[result.block] = {**blocks[result.block], "content": content}
    return {**message, "content": blocks}


def _content(content: Json, result: Result, strategy: Strategy, policy: PrunePolicy) -> Json:
    """Return the smaller content in the form it had (text or blocks), None when it cannot be made smaller.

    A trim keeps images and other blocks where they are; a clear takes everything.
    """
    text = content_text(content)
    if strategy == "hard_clear":
        cleared = hard_clear(tool=result.tool, call_id=result.call_id, tokens=count_tokens(text))
        return cleared if isinstance(content, str) else [{"type": "text", "text": cleared}] if content else None
    trimmed = soft_trim(text, tool=result.tool, policy=policy)
    if trimmed == text:
        return None
    return trimmed if isinstance(content, str) else _retexted(records(content), trimmed)


def _retexted(blocks: Sequence[Record], text: str) -> list[Record]:
    """Return the blocks with `text` in the first text block and without the others."""
    first = next((block for block in blocks if isinstance(block.get("text"), str)), None)
    others = (block for block in blocks if block is first or not isinstance(block.get("text"), str))
    return [{**block, "text": text} if block is first else block for block in others]


def _last_tokens(text: str, limit: int) -> str:
    """Return the longest suffix found to have at most `limit` tokens."""
    low, high = 0, len(text)
    while low < high:  # at most log2(len) counts
        middle = (low + high + 1) // 2
        if count_tokens(text[-middle:]) <= limit:
            low = middle
        else:
            high = middle - 1
    return text[len(text) - low :]

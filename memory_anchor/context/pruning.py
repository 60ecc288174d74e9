"""A prompt made smaller at its cheapest places: old tool results first, then old turns. Pure.

Tool results are what grows a coding agent's prompt and what it can have again by repeating the call. So the oldest are
shortened to head and tail first, then emptied, one at a time and only as many as it takes; the message, its ids and the
call stay, hence no result is ever left without its call. Then whole turns go, oldest first. The last turns are never
touched. This changes one prompt; it never rewrites a conversation (that is compaction, which the caller is asked for).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from memory_anchor.context.transcript import Message, Result, Transcript, content_text, cost_of
from memory_anchor.errors import BadInput
from memory_anchor.json_values import Json, Record, records
from memory_anchor.language.tokens import count_tokens, cut_to_tokens

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
    first = transcript.protected_from(policy.protected_turns)
    old = frozenset(index for turn in transcript.turns[:first] for index in turn.messages)
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
    saved = 0
    gone: list[int] = []
    turns = 0
    for turn in transcript.turns[: transcript.protected_from(policy.protected_turns)]:
        if saved >= need:
            break
        saved += sum(transcript.costs[index].total for index in turn.messages)
        gone.extend(turn.messages)
        turns += 1
    return Saving(transcript.without(frozenset(gone)), saved, messages=len(gone), turns=turns)


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
    """Return what stands in place of a cleared tool result: what it was and how to have it again."""
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
    found: list[Record] = []
    placed = False
    for block in blocks:
        if not isinstance(block.get("text"), str):
            found.append(block)
        elif not placed:
            found.append({**block, "text": text})
            placed = True
    return found


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

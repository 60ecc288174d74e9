"""A conversation as a model API takes it, read once: turns, which tool result answers which call, what each part costs.

Both common forms are understood, also mixed: content blocks (`tool_use` in an assistant's message, `tool_result` in the
user's next one) and messages (`tool_calls`, then `role: tool`). A turn opens with a user message that carries no tool
result and runs to the next one; turns that split a call from its result count as one, so that leaving out whole turns
never separates a pair. Nothing is mutated: what changes is a new message.

Invariant: in what is read, every tool result follows the call it answers; a conversation without that is refused,
because every model API would refuse it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from memory_anchor.base.json_values import Json, Record, items, kind_of, record, records, text
from memory_anchor.domain.errors import BadInput
from memory_anchor.language.tokens import count_tokens

MESSAGES_MAX = 20_000
ROLES = ("system", "developer", "user", "assistant", "tool")
SYSTEM_ROLES = ("system", "developer")
MESSAGE_TOKENS = 4
"""What a message costs beyond its content: role and separators."""
MEDIA_TOKENS = 1_600
"""What one image or file block is counted as: the most one image costs at the size APIs scale it to."""
_MEDIA = frozenset(
    {"image", "image_url", "input_image", "document", "file", "input_file", "input_audio", "audio", "video"}
)

Message = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Result:
    """Where one tool result is. block: index in the message's content, None when the message is the result."""

    message: int
    block: int | None
    tool: str
    call_id: str


@dataclass(frozen=True, slots=True)
class Turn:
    """Messages that stay or go together. users: how many user turns it holds (0 before the first one)."""

    messages: tuple[int, ...]
    users: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of one message: of its tool results, and of everything else in it."""

    own: int = 0
    results: int = 0

    @property
    def total(self) -> int:
        return self.own + self.results


@dataclass(frozen=True, slots=True)
class Transcript:
    """messages: by index as they came; those in no turn are system messages. calls: index -> tools it calls."""

    messages: Mapping[int, Message]
    costs: Mapping[int, Cost]
    turns: tuple[Turn, ...]
    results: tuple[Result, ...]
    calls: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def shown(self) -> list[Message]:
        return [self.messages[index] for index in sorted(self.messages)]

    def tokens(self) -> dict[str, int]:
        """Return the tokens of system, history and tool_results; they add up to all messages' cost."""
        tokens = {"system": 0, "history": 0, "tool_results": 0}
        for index, cost in self.costs.items():
            is_system = self.messages[index]["role"] in SYSTEM_ROLES
            tokens["system" if is_system else "history"] += cost.own
            tokens["tool_results"] += cost.results
        return tokens

    def protected_from(self, turns: int) -> int:
        """Return the index in `turns` from which on the last `turns` user turns are."""
        users = 0
        for index in range(len(self.turns) - 1, -1, -1):
            if users >= turns:
                return index + 1
            users += self.turns[index].users
        return 0

    def total(self) -> int:
        return sum(cost.total for cost in self.costs.values())

    def with_messages(self, changed: Mapping[int, Message]) -> Transcript:
        """Return the transcript with some messages in another wording, of the same shape."""
        costs = {index: cost_of(message) for index, message in changed.items()}
        return replace(self, messages={**self.messages, **changed}, costs={**self.costs, **costs})

    def without(self, gone: frozenset[int]) -> Transcript:
        """Return the transcript less whole turns, given by the indices of all their messages."""
        return replace(
            self,
            messages={index: message for index, message in self.messages.items() if index not in gone},
            costs={index: cost for index, cost in self.costs.items() if index not in gone},
            turns=tuple(turn for turn in self.turns if not gone.intersection(turn.messages)),
            results=tuple(result for result in self.results if result.message not in gone),
        )


def read(messages: Json) -> Transcript:
    """Return the transcript of a list of messages.

    Raises BadInput: not a list, an unknown role or content, a tool result without its call, or what is not JSON.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise BadInput(f"messages is {kind_of(messages)}; allowed is a list of messages with role and content")
    if len(messages) > MESSAGES_MAX:
        raise BadInput(f"messages has {len(messages)} entries; allowed are at most {MESSAGES_MAX}")
    checked = [_checked(message, f"messages[{index}]") for index, message in enumerate(messages)]
    results, calls, joined = _pairs(checked)
    return Transcript(
        messages=dict(enumerate(checked)),
        costs={index: cost_of(message) for index, message in enumerate(checked)},
        turns=_turns(checked, joined),
        results=tuple(results),
        calls=calls,
    )


def cost_of(message: Message) -> Cost:
    """Return an estimate of what a message costs in a prompt."""
    content = message.get("content")
    if message["role"] == "tool":
        return Cost(MESSAGE_TOKENS, _content_tokens(content))
    own, results = MESSAGE_TOKENS, 0
    if isinstance(content, str):
        own += count_tokens(content)
    for block in _blocks(message):
        if block["type"] == "tool_result":
            results += _content_tokens(block.get("content")) + MESSAGE_TOKENS
        else:
            own += _block_tokens(block)
    for call in items(message.get("tool_calls")):
        own += count_tokens(_json(call))
    return Cost(own, results)


def last_user_text(messages: Sequence[Message]) -> str:
    """Return the last text of the user, "" where there is none."""
    for message in reversed(messages):
        if message["role"] == "user" and (text := content_text(message.get("content")).strip()):
            return text
    return ""


def content_text(content: Json) -> str:
    """Return the text of a content: itself, or that of its text blocks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    return "\n".join(text for block in content if isinstance(text := record(block).get("text"), str))


def _content_tokens(content: Json) -> int:
    if isinstance(content, str):
        return count_tokens(content)
    return sum(_block_tokens(record(block)) for block in content) if isinstance(content, Sequence) else 0


def _block_tokens(block: Mapping[str, Json]) -> int:
    kind = block["type"]
    if kind in _MEDIA:
        return MEDIA_TOKENS
    if isinstance(text := block.get("text"), str):
        return count_tokens(text)
    if kind == "thinking":
        return count_tokens(str(block.get("thinking", "")))
    return count_tokens(_json(block))


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _checked(message: Json, where: str) -> Message:
    if not isinstance(message, Mapping):
        raise BadInput(f"{where} is {kind_of(message)}; allowed is a mapping with role and content")
    role = message.get("role")
    if role not in ROLES:
        raise BadInput(f"{where}.role is {str(role)[:40]!r}; allowed are {', '.join(ROLES)}")
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, (str, bytes)):
        for at, block in enumerate(content):
            _check_block(block, f"{where}.content[{at}]", role)
    elif not isinstance(content, str) and not (content is None and role in ("assistant", "tool")):
        raise BadInput(f"{where}.content is {kind_of(content)}; allowed is text or a list of blocks")
    for at, call in enumerate(_list(message, "tool_calls", where)):
        _check_call(call, f"{where}.tool_calls[{at}]", role)
    if role == "tool":
        _id(message, "tool_call_id", where)
    try:
        _json(message).encode()
    except (TypeError, ValueError, RecursionError):
        raise BadInput(f"{where} holds what is not JSON or not valid Unicode; allowed is any JSON value") from None
    return message


def _check_block(block: Json, where: str, role: str) -> None:
    if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
        raise BadInput(f"{where} is {kind_of(block)} without a type; allowed is a content block with its type")
    kind = block["type"]
    if kind == "tool_use":
        _allowed_in(kind, role, "assistant", where)
        _id(block, "id", where)
        _id(block, "name", where)
    elif kind == "tool_result":
        _allowed_in(kind, role, "user", where)
        _id(block, "tool_use_id", where)
        inner = block.get("content")
        if isinstance(inner, Sequence) and not isinstance(inner, (str, bytes)):
            for at, part in enumerate(inner):
                if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
                    raise BadInput(f"{where}.content[{at}] has no type; allowed is a content block with its type")
        elif inner is not None and not isinstance(inner, str):
            raise BadInput(f"{where}.content is {kind_of(inner)}; allowed is text or a list of blocks")
    elif kind == "text" and not isinstance(block.get("text"), str):
        raise BadInput(f"{where}.text is {kind_of(block.get('text'))}; allowed is text")


def _check_call(call: Json, where: str, role: str) -> None:
    _allowed_in("tool_calls", role, "assistant", where)
    if not isinstance(call, Mapping):
        raise BadInput(f"{where} is {kind_of(call)}; allowed is a mapping with id and function")
    _id(call, "id", where)
    function = call.get("function", call.get("custom"))
    if not isinstance(function, Mapping):
        raise BadInput(f"{where}.function is {kind_of(function)}; allowed is a mapping with name and arguments")
    _id(function, "name", f"{where}.function")


def _allowed_in(what: str, role: str, allowed: str, where: str) -> None:
    if role != allowed:
        raise BadInput(f"{where} is a {what} in a {role} message; allowed is a {what} in messages of role {allowed}")


def _id(holder: Mapping[str, Json], name: str, where: str) -> None:
    value = holder.get(name)
    if not isinstance(value, str) or not value:
        raise BadInput(f"{where}.{name} is {str(value)[:40]!r}; allowed is text that is not empty")


def _list(message: Message, name: str, where: str) -> Sequence[Json]:
    value = message.get(name)
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise BadInput(f"{where}.{name} is {kind_of(value)}; allowed is a list")
    return value


def _blocks(message: Message) -> Sequence[Record]:
    content = message.get("content")
    return records(content) if not isinstance(content, str) else []


def _pairs(messages: Sequence[Message]) -> tuple[list[Result], dict[int, tuple[str, ...]], list[tuple[int, int]]]:
    """Return the results, the tools each message calls, and (call's, result's) message index for every pair.

    An id may be used again (some servers count from 0 in every answer): a result answers the latest call before it.
    """
    called: dict[str, tuple[int, str]] = {}
    results: list[Result] = []
    calls: dict[int, tuple[str, ...]] = {}
    joined: list[tuple[int, int]] = []
    for index, message in enumerate(messages):
        blocks = _blocks(message)
        made = [(text(block["id"]), text(block["name"])) for block in blocks if block["type"] == "tool_use"]
        made.extend(
            (text(call["id"]), text(record(call.get("function") or call["custom"])["name"]))
            for call in records(message.get("tool_calls"))
        )
        called.update((call_id, (index, tool)) for call_id, tool in made)
        if made:
            calls[index] = tuple(tool for _, tool in made)
        found: list[tuple[int | None, str]] = [
            (at, text(block["tool_use_id"])) for at, block in enumerate(blocks) if block["type"] == "tool_result"
        ]
        if message["role"] == "tool":
            found.append((None, text(message["tool_call_id"])))
        for at, call_id in found:
            if call_id not in called:
                raise BadInput(
                    f"messages[{index}] is a tool result for call {call_id[:40]!r}, which no message before it makes; "
                    "send the call with it, or leave both out"
                )
            made_at, tool = called[call_id]
            results.append(Result(index, at, tool, call_id))
            joined.append((made_at, index))
    return results, calls, joined


def _turns(messages: Sequence[Message], joined: Sequence[tuple[int, int]]) -> tuple[Turn, ...]:
    users = frozenset(
        index
        for index, message in enumerate(messages)
        if message["role"] == "user" and not any(block["type"] == "tool_result" for block in _blocks(message))
    )
    # A turn may not open between a call and its result: count how many pairs span each message.
    over = [0] * (len(messages) + 1)
    for call, result in joined:
        over[call + 1] += 1
        over[result + 1] -= 1
    turns: list[Turn] = []
    current: list[int] = []
    open_pairs = 0
    for index, message in enumerate(messages):
        open_pairs += over[index]
        if index in users and open_pairs == 0 and current:
            turns.append(Turn(tuple(current), len(users.intersection(current))))
            current = []
        if message["role"] not in SYSTEM_ROLES:
            current.append(index)
    if current:
        turns.append(Turn(tuple(current), len(users.intersection(current))))
    return tuple(turns)

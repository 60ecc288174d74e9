"""OpenAI's Agents SDK (extra `openai-agents`): a session whose history is kept here, and the memory as tools.

The items of a session are notes that only its conversation reads, so no search of another finds them; what is worth
keeping of what was said becomes memories of the user (`learn`). An item longer than a note is kept in parts. The newest
1,000 notes of a session are read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any, Unpack

import anyio.to_thread
from agents import FunctionTool, function_tool
from agents.memory.session import SessionABC

from memory_anchor.extensions.library.answers import StoredMemory
from memory_anchor.extensions.library.memory import Memory, Whose
from memory_anchor.integrations.tools import functions

TAG = "openai-session"
PART_CHARS = 7_000
NOTES_MAX = 1_000


class MemorySession(SessionABC):
    """`Runner.run(agent, text, session=MemorySession("s-1", memory, user="u-17"))`."""

    def __init__(self, session_id: str, memory: Memory, *, user: str = "", learn: bool = True) -> None:
        self.session_id = session_id
        self._memory, self._learn = memory, learn
        self._whose: Whose = {"user": user, "conversation": session_id} if user else {"conversation": session_id}

    async def get_items(self, limit: int | None = None) -> list[Any]:
        items = [json.loads("".join(note.content for note in notes)) for notes in await self._items()]
        return items if limit is None else items[-limit:] if limit > 0 else []

    async def add_items(self, items: list[Any]) -> None:
        await anyio.to_thread.run_sync(self._add, items)

    async def pop_item(self) -> Any | None:
        items = await self._items()
        if not items:
            return None
        await self._forget(items[-1])
        return json.loads("".join(note.content for note in items[-1]))

    async def clear_session(self) -> None:
        await self._forget([note for notes in await self._items() for note in notes])

    async def _items(self) -> list[list[StoredMemory]]:
        """Return the notes of each item, oldest first."""
        read = partial(self._memory.list, layer="event_log", tag=TAG, limit=NOTES_MAX, **self._whose)
        notes = [note for note in await anyio.to_thread.run_sync(read) if note.where == self.session_id]
        ordered = sorted(notes, key=lambda note: note.key)
        return [list(parts) for _, parts in groupby(ordered, key=lambda note: note.key.rpartition("/")[0])]

    def _add(self, items: Sequence[Any]) -> None:
        for item in items:
            text, stamp = json.dumps(item), time.time_ns()
            for part in range(0, len(text), PART_CHARS):
                self._memory.log(
                    text[part : part + PART_CHARS],
                    type="note",
                    key=f"{stamp:020d}/{part:09d}",
                    where=self.session_id,
                    tags=[TAG],
                    visibility="conversation",
                    **self._whose,
                )
        said = [each for each in map(_message, items) if each is not None]
        if self._learn and said:
            self._memory.remember(said, **self._whose)

    async def _forget(self, notes: Sequence[StoredMemory]) -> None:
        for note in notes:
            await anyio.to_thread.run_sync(
                partial(self._memory.forget, note.id, reason="removed from the session", **self._whose)
            )


def memory_tools(memory: Memory, **whose: Unpack[Whose]) -> list[FunctionTool]:
    """Return the memory as tools for `Agent(tools=...)`. whose: the user, agent and conversation of every call."""
    return [function_tool(each) for each in functions(memory, whose)]


def _message(item: Any) -> dict[str, str] | None:
    """Return an item as {role, content}, None for what nobody said."""
    content = item.get("content")
    if isinstance(content, list):
        content = "\n".join(str(part["text"]) for part in content if "text" in part)
    role = item.get("role")
    return {"role": role, "content": content} if role in ("user", "assistant") and content else None

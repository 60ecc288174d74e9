"""`Memory` and `AsyncMemory`: the memory as a program uses it, with typed answers and no server to start.

Both are thin: a method names a call of the table, and `doors` says who answers it. Nothing here approves anything: the
constitution is read and never changed, and what only a human may do needs a terminal.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, Self, TypeAlias, TypedDict, TypeVar, Unpack

from memory_anchor.base.installation import reported
from memory_anchor.base.json_values import Json, Record, records
from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions.library.answers import (
    ApprovedRules,
    Found,
    StoredMemory,
    TaskContext,
    Written,
)
from memory_anchor.extensions.library.doors import Door, HttpDoor, LocalDoor, Who

if TYPE_CHECKING:
    Time = str | datetime
    Names = str | Iterable[str]

P = ParamSpec("P")
R = TypeVar("R")
Memories: TypeAlias = list[StoredMemory]
"""`list` is a method below."""


class Whose(TypedDict, total=False):
    """On whose behalf one call is made, instead of what the memory was opened with."""

    user: str
    agent: str
    conversation: str


class Memory:
    """A long-term memory.

    project: a name, or a folder whose Git history and settings count; without one, the folder of this process.
    path: where it is stored, instead of the usual place. user, agent, conversation: on whose behalf calls are made,
    unless a call says otherwise. url, key: a served memory instead of this machine's.

    What is saved for a named `user` is read by that user alone, unless `visibility` says otherwise. One object serves
    any number of threads. Raises BadInput, NotFound, Refused, StoreBusy, Unavailable: each a `MemoryAnchorError`.
    """

    def __init__(
        self,
        project: str | os.PathLike[str] = "",
        *,
        path: str | os.PathLike[str] | None = None,
        user: str = "",
        agent: str = "",
        conversation: str = "",
        url: str = "",
        key: str = "",
    ) -> None:
        if url and path is not None:
            raise BadInput("a memory has a url or a path, and both were given; name one")
        name = project if isinstance(project, str) else os.path.join(os.fspath(project), "")  # noqa: PTH118
        self._who = Who(user, agent, conversation)
        self._door: Door = HttpDoor(name, url, key) if url else LocalDoor(name, path)

    # --- writing -------------------------------------------------------------------------------------------------

    def save(
        self,
        content: str,
        *,
        type: str = "fact",
        key: str = "",
        tags: Names = (),
        importance: float | None = None,
        confidence: float | None = None,
        visibility: str = "",
        files: Names = (),
        replaces: str = "",
        request_id: str = "",
        **whose: Unpack[Whose],
    ) -> Written:
        """Save what lasts: a decision, a rule, a preference, a fix. replaces: the id of what it corrects."""
        who = self._for(whose)
        given = _given(
            content=content,
            type=type,
            key=key,
            tags=_names(tags),
            importance=importance,
            confidence=confidence,
            visibility=visibility or _of_user(who),
            files=_names(files),
            replaces=replaces,
            request_id=request_id,
        )
        return Written.of(self._call("add", given, who))

    def log(
        self,
        content: str,
        *,
        when: Time | None = None,
        where: str = "",
        who: Names = (),
        type: str = "event",
        key: str = "",
        tags: Names = (),
        ttl_days: int | None = None,
        visibility: str = "",
        files: Names = (),
        request_id: str = "",
        **whose: Unpack[Whose],
    ) -> Written:
        """Log what happened: when, where, and who took part. ttl_days: how long it is kept, 0 for ever."""
        caller = self._for(whose)
        given = _given(
            content=content,
            when=_time(when),
            where=where,
            who=_names(who),
            type=type,
            key=key,
            tags=_names(tags),
            ttl_days=ttl_days,
            visibility=visibility or _of_user(caller),
            files=_names(files),
            request_id=request_id,
        )
        return Written.of(self._call("log", given, caller))

    def remember(
        self, messages: Sequence[Mapping[str, object]], *, only: str = "", **whose: Unpack[Whose]
    ) -> list[Written]:
        """Keep what is worth it of a conversation. messages: {role, content} in order. only: `user_facts`."""
        given = _given(messages=[_plain(message) for message in messages], only=only)
        answer = self._call("remember", given, self._for(whose))
        return [Written.of(outcome) for outcome in records(answer["outcomes"])]

    def forget(self, id: str, *, reason: str = "", **whose: Unpack[Whose]) -> Written:
        """Archive a memory: no search finds it any more, and a human can restore it."""
        return Written.of(self._call("forget", _given(id=id, reason=reason), self._for(whose)))

    # --- reading -------------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        limit: int = 5,
        layers: Names = (),
        types: Names = (),
        tags: Names = (),
        since: Time | None = None,
        until: Time | None = None,
        as_of: Time | None = None,
        include_pending: bool = False,
        **whose: Unpack[Whose],
    ) -> Found:
        """Return what answers a question, best first, by meaning, words and time."""
        given = _given(
            query=query,
            limit=limit,
            layers=_names(layers),
            types=_names(types),
            tags=_names(tags),
            since=_time(since),
            until=_time(until),
            as_of=_time(as_of),
            include_pending=include_pending,
        )
        return Found.of(self._call("search", given, self._for(whose)))

    def events(
        self,
        start: Time | None = None,
        end: Time | None = None,
        *,
        query: str = "",
        where: str = "",
        who: Names = (),
        limit: int = 20,
        **whose: Unpack[Whose],
    ) -> Memories:
        """Return events of a time range, newest first, or best first with a query."""
        given = _given(start=_time(start), end=_time(end), query=query, where=where, who=_names(who), limit=limit)
        answer = self._call("events", given, self._for(whose))
        return [StoredMemory.of(event) for event in records(answer["events"])]

    def list(
        self,
        *,
        layer: str = "",
        type: str = "",
        status: str = "",
        tag: str = "",
        limit: int = 50,
        **whose: Unpack[Whose],
    ) -> Memories:
        """Return memories, newest first."""
        given = _given(layer=layer, type=type, status=status, tag=tag, limit=limit)
        answer = self._call("list", given, self._for(whose))
        return [StoredMemory.of(memory) for memory in records(answer["memories"])]

    def get(self, id: str, **whose: Unpack[Whose]) -> StoredMemory:
        """Return one memory. Raises NotFound: there is none that the caller may read."""
        return StoredMemory.of(self._call("get", {"id": id}, self._for(whose)))

    def history(self, id: str, **whose: Unpack[Whose]) -> Memories:
        """Return every version of a memory, oldest first."""
        answer = self._call("history", {"id": id}, self._for(whose))
        return [StoredMemory.of(version) for version in records(answer["versions"])]

    def context(self, task: str, *, budget: int | None = None, **whose: Unpack[Whose]) -> TaskContext:
        """Return what a task needs to know, as one text for a prompt. budget: in tokens."""
        return TaskContext.of(self._call("context", _given(task=task, budget_tokens=budget), self._for(whose)))

    def constitution(self, **whose: Unpack[Whose]) -> ApprovedRules:
        """Return the rules that humans approved (L0)."""
        return ApprovedRules.of(self._call("constitution", {}, self._for(whose)))

    # --- life ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the store where this process owns it; the next call opens it again. Done at exit by itself."""
        self._door.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, name: str, arguments: Record, who: Who) -> Record:
        with reported():
            return self._door.call(name, arguments, who)

    def _for(self, whose: Whose) -> Who:
        if unknown := [name for name in whose if name not in Whose.__annotations__]:
            raise TypeError(f"a call of a memory got the unexpected argument {unknown[0]!r}")
        mine = self._who
        return Who(
            whose.get("user", mine.user), whose.get("agent", mine.agent), whose.get("conversation", mine.conversation)
        )


class _Awaited(Generic[P, R]):
    """A method of `Memory`, done on a worker thread and awaited."""

    def __init__(self, method: Callable[Concatenate[Memory, P], R]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, owner: AsyncMemory, _: type[AsyncMemory] | None = None) -> Callable[P, Awaitable[R]]:
        async def run(*args: P.args, **kwargs: P.kwargs) -> R:
            from anyio import to_thread

            return await to_thread.run_sync(partial(self._method, owner.sync, *args, **kwargs))

        return run


class AsyncMemory:
    """`Memory`, its methods awaited; `async with` closes it. sync: the memory itself."""

    def __init__(
        self,
        project: str | os.PathLike[str] = "",
        *,
        path: str | os.PathLike[str] | None = None,
        user: str = "",
        agent: str = "",
        conversation: str = "",
        url: str = "",
        key: str = "",
    ) -> None:
        self.sync = Memory(project, path=path, user=user, agent=agent, conversation=conversation, url=url, key=key)

    save = _Awaited(Memory.save)
    log = _Awaited(Memory.log)
    remember = _Awaited(Memory.remember)
    forget = _Awaited(Memory.forget)
    search = _Awaited(Memory.search)
    events = _Awaited(Memory.events)
    list = _Awaited(Memory.list)
    get = _Awaited(Memory.get)
    history = _Awaited(Memory.history)
    context = _Awaited(Memory.context)
    constitution = _Awaited(Memory.constitution)
    close = _Awaited(Memory.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _given(**arguments: Json) -> dict[str, Json]:
    """Return the arguments that say something."""
    return {name: value for name, value in arguments.items() if value not in (None, "", [])}


def _names(value: Names) -> Sequence[str]:
    return [value] if isinstance(value, str) else [*value]


def _time(value: Time | None) -> str | None:
    return value.isoformat() if isinstance(value, datetime) else value


def _of_user(who: Who) -> str:
    return "user" if who.user else ""


def _plain(message: Mapping[str, object]) -> dict[str, Json]:
    """Return a message as JSON. Raises BadInput: it is no mapping."""
    if not isinstance(message, Mapping):
        raise BadInput(f"a message is a {type(message).__name__}; allowed is a mapping of role and content")
    return {str(name): value for name, value in message.items()}  # type: ignore[misc]

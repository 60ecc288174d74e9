"""The seam: what an extension adds to the core. All of it is imported when it is asked for, not before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import typer

    from memory_anchor.admin.merges import ProjectBelongings
    from memory_anchor.admin.purge import Holder
    from memory_anchor.base.setting_groups import Group
    from memory_anchor.context.context import ContextSources
    from memory_anchor.domain.model import Actor, RetrievedSnippet, SearchAnswer, WriteOutcome
    from memory_anchor.domain.requests.fields import BaseRequest
    from memory_anchor.front.rows import Row
    from memory_anchor.identity.keys import Signer
    from memory_anchor.process.wiring import Core
    from memory_anchor.upkeep.jobs import Job
    from memory_anchor.use_cases.memory import MemoryAnchor


R = TypeVar("R", bound="BaseRequest")


class ServedMemory(Protocol):
    """A memory elsewhere that searches ask first and that writes are sent to; `local` is the use case here."""

    def search(self, actor: Actor, request: R, local: Callable[[R], SearchAnswer]) -> SearchAnswer: ...
    def queue(self, actor: Actor, path: str, request: BaseRequest, outcome: WriteOutcome) -> WriteOutcome: ...
    def forget(self, actor: Actor, request: R, local: Callable[[R], WriteOutcome]) -> WriteOutcome: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What an extension does in one process.

    part: what its own use cases and calls work with. remote: a memory that is asked before this one. jobs: joined to
    the scheduler's. on_hook: told of each lifecycle event of a client, before it is answered; it must not wait.
    begin, end: the process works by itself, or does not any more; close: nothing asks it any more. idle: does a little
    when no memory waits, and returns how much. invalidate: something was written past its caches.
    context: adds to what a context is made of. passages: what it knows about a search that found no memory; besides:
    the answer of one, with what stands behind its memories.
    frozen: it writes nothing while this is held, for a backup. holders: what may hold a memory's text, for a purge.
    moves: what goes along when projects are merged, by name; given the accounts that it may ask for.
    """

    part: object = None
    remote: ServedMemory | None = None
    jobs: Sequence[Job] = ()
    on_hook: Callable[[str], None] = lambda _: None
    begin: Callable[[], None] = lambda: None
    end: Callable[[], None] = lambda: None
    close: Callable[[], None] = lambda: None
    idle: Callable[[Callable[[], None]], int] = lambda _: 0
    invalidate: Callable[[], None] = lambda: None
    context: Callable[[MemoryAnchor, ContextSources], ContextSources] = lambda _, sources: sources
    passages: Callable[[MemoryAnchor, str], Sequence[RetrievedSnippet]] = lambda *_: ()
    besides: Callable[[MemoryAnchor, str, SearchAnswer], SearchAnswer] = lambda _, __, answer: answer
    frozen: Callable[[], AbstractContextManager[None]] = nullcontext
    holders: Callable[[], Sequence[Holder]] = tuple
    moves: Callable[[Callable[[], list[str]]], Mapping[str, ProjectBelongings]] = lambda _: {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """What the core may ask of an extension.

    commands: the words that its module `commands` registers (`register`); its module `rows` has its use cases (`ROWS`).
    readers: agents whose sessions its modules of these names read (`extensions/sessions/agents.py` says how); it has
    no use cases then.
    has_settings: its module `settings` has its groups of the settings file (`GROUPS`).
    start: begins its work in a process, None for nothing to begin.
    purged: called in the terminal after a human purged these ids.
    """

    name: str
    commands: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    has_settings: bool = False
    start: Callable[[Core], Running] | None = None
    purged: Callable[[Signer, Sequence[str]], None] = lambda *_: None

    def register(self, app: typer.Typer) -> None:
        """Add its commands."""
        if self.commands:
            self._module("commands").register(app)

    def rows(self) -> Sequence[Row]:
        """Return its use cases in the table."""
        rows: Sequence[Row] = () if self.readers else self._module("rows").ROWS
        return rows

    def settings(self) -> Mapping[str, type[Group]]:
        """Return its groups of the settings file, by name."""
        groups: Mapping[str, type[Group]] = self._module("settings").GROUPS if self.has_settings else {}
        return groups

    def _module(self, part: str) -> ModuleType:
        return import_module(f"memory_anchor.extensions.{self.name}.{part}")

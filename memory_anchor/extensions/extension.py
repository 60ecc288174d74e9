"""The seam: what an extension adds to the core. All of it is imported when it is asked for, not before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

    from memory_anchor.base.json_values import Json, Record
    from memory_anchor.front.rows import Row
    from memory_anchor.identity.keys import Signer
    from memory_anchor.process.wiring import Core
    from memory_anchor.upkeep.jobs import Job
    from memory_anchor.use_cases.memory import MemoryAnchor

    Call = Callable[[Core, MemoryAnchor, dict[str, Json]], Record]
    """The process, who asks in which project, and the arguments -> the answer as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What an extension does in one process.

    part: what its own calls work with. jobs: joined to the scheduler's. on_hook: told of each lifecycle event of a
    client, before it is answered; it must not wait.
    """

    part: object
    jobs: Sequence[Job] = ()
    on_hook: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """What the core may ask of an extension.

    commands: registers its commands. rows: its use cases in the table. calls: what its commands ask of the process, by
    name. start: begins its work in a process, None for nothing to begin. purged: called in the terminal after a human
    purged these ids.
    """

    name: str
    commands: Callable[[typer.Typer], None] = lambda _: None
    rows: Callable[[], Sequence[Row]] = tuple
    calls: Callable[[], Mapping[str, Call]] = dict
    start: Callable[[Core], Running] | None = None
    purged: Callable[[Signer, Sequence[str]], None] = lambda *_: None

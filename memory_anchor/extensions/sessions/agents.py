"""The agents whose sessions are read, and where their files are. One reader each, imported when it is needed.

The formats are the agents' own; what is known of them is in each reader's note. Readers of lines are here; other
extensions bring those of agents that keep databases, or one session in many files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from memory_anchor.base import nofollow
from memory_anchor.base.hashing import stable_hash
from memory_anchor.extensions.sessions.names import AGENTS, READERS
from memory_anchor.extensions.sessions.passages import clean_name
from memory_anchor.extensions.sessions.steps import Facts, Lines, TranscriptStep

FILES_MAX, DEPTH_MAX = 200_000, 12
ODD = (ValueError, TypeError, ArithmeticError, RecursionError, AttributeError, LookupError)
"""What a reader raises over a format that changed: one file's, or one folder's; the others are read."""
UNKNOWN_FORMAT = "its format is not known here"


class LineReader(Protocol):
    """PATTERN: how its files are named. SKIPPED: how lines begin that say nothing. GROWS: whether a file is read on
    from where it was; else whole. steps: a session's steps, line by line, its facts filled in on the way."""

    PATTERN: str
    SKIPPED: tuple[bytes, ...]
    GROWS: bool

    def roots(self, env: Mapping[str, str], home: Path) -> Sequence[Path]: ...

    def steps(self, lines: Lines, facts: Facts) -> Iterator[TranscriptStep]: ...


@runtime_checkable
class StoreReader(Protocol):
    """found: the sessions below a folder. whole: all steps of one, in order, its facts filled in on the way."""

    def roots(self, env: Mapping[str, str], home: Path) -> Sequence[Path]: ...

    def found(self, root: Path) -> Iterable[FoundSession]:
        """Raises OSError: the folder cannot be listed."""

    def whole(self, found: FoundSession, facts: Facts) -> Iterable[TranscriptStep]:
        """Raises BadInput, NotFound: it cannot be read now."""


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A file of an agent, or a part of one that is a session. size, mtime_ns: what changes with it. problem: why it is
    not read, else "". file_bytes: of the file that it is a part of. folder: that it was in; it, title and parent stand
    here where they are known already."""

    agent: str
    path: Path
    size: int
    mtime_ns: int
    problem: str = ""
    part: str = ""
    file_bytes: int = 0
    folder: str = ""
    title: str = ""
    parent: str = ""

    @property
    def key(self) -> str:
        """What the file is called in the archive: its path; where a name in it is a secret, the rest and a digest."""
        path = f"{self.path}#{self.part}" if self.part else str(self.path)
        clean = clean_name(path)
        return path if clean == path else f"{clean}#{stable_hash(path)[:16]}"


@cache
def reader(agent: str) -> LineReader | StoreReader:
    return cast("LineReader | StoreReader", import_module(f"{READERS[agent]}.{agent.replace('-', '_')}"))


def places(
    env: Mapping[str, str], home: Path, only: Sequence[str] = (), projects: Sequence[Path] = ()
) -> dict[str, list[str]]:
    """Return where each agent keeps its sessions. projects: folders, for agents that write into them."""
    own = {
        agent: (reader(agent), projects if hasattr(reader(agent), "IN_PROJECTS") else ()) for agent in only or AGENTS
    }
    return {
        agent: list(dict.fromkeys(str(root.absolute()) for root in (*one.roots(env, home), *more)))
        for agent, (one, more) in own.items()
    }


def find(folders: Mapping[str, Sequence[str]]) -> list[FoundSession]:
    """Return every agent's files, newest first. folders: of each agent."""
    found = [one for agent, roots in folders.items() for root in roots for one in _of_agent(agent, Path(root))]
    return sorted(found, key=lambda one: (-one.mtime_ns, str(one.path)))


def _of_agent(agent: str, root: Path) -> Iterator[FoundSession]:
    own = reader(agent)
    try:
        yield from list(own.found(root)) if isinstance(own, StoreReader) else files(agent, root, own.PATTERN, DEPTH_MAX)
    except OSError as error:
        yield FoundSession(agent, root, 0, 0, f"it cannot be listed ({error.strerror})")
    except ODD:
        yield FoundSession(agent, root, 0, 0, UNKNOWN_FORMAT)


def files(agent: str, root: Path, pattern: str, depth: int) -> list[FoundSession]:
    """Return the files below a folder that are named so. Raises OSError: it cannot be listed."""
    names = nofollow.walk(root, "", most=FILES_MAX, depth=depth)
    return [
        FoundSession(agent, root / name.ref, name.size, name.mtime_ns, name.problem)
        for name in names
        if fnmatchcase(name.ref.rpartition("/")[2], pattern)
    ]

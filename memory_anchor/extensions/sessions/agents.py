"""The agents whose sessions are read, and where their files are. One reader each, imported when it is needed.

The formats are the agents' own; what is known of them is in each reader's note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from memory_anchor.base import nofollow
from memory_anchor.base.hashing import stable_hash
from memory_anchor.extensions.sessions.passages import clean_name
from memory_anchor.extensions.sessions.steps import Facts, Lines, TranscriptStep

AGENTS = ("claude-code", "codex", "gemini", "qwen", "copilot")
FILES_MAX, DEPTH_MAX = 200_000, 12


class Reader(Protocol):
    """PATTERN: how its files are named. SKIPPED: how lines begin that say nothing. GROWS: whether a file is read on
    from where it was; else whole. steps: a session's steps, line by line, its facts filled in on the way."""

    PATTERN: str
    SKIPPED: tuple[bytes, ...]
    GROWS: bool

    def roots(self, env: Mapping[str, str], home: Path) -> Sequence[Path]: ...

    def steps(self, lines: Lines, facts: Facts) -> Iterator[TranscriptStep]: ...


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A file of an agent. problem: why it is not read, else ""."""

    agent: str
    path: Path
    size: int
    mtime_ns: int
    problem: str = ""

    @property
    def key(self) -> str:
        """What the file is called in the archive: its path; where a name in it is a secret, the rest and a digest."""
        path = str(self.path)
        clean = clean_name(path)
        return path if clean == path else f"{clean}#{stable_hash(path)[:16]}"


@cache
def reader(agent: str) -> Reader:
    return cast("Reader", import_module(f"memory_anchor.extensions.sessions.readers.{agent.replace('-', '_')}"))


def places(env: Mapping[str, str], home: Path, only: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return where each agent keeps its sessions."""
    return {agent: [str(root.absolute()) for root in reader(agent).roots(env, home)] for agent in only or AGENTS}


def find(folders: Mapping[str, Sequence[str]]) -> list[FoundSession]:
    """Return every agent's files, newest first. folders: of each agent."""
    found = [one for agent, roots in folders.items() for root in roots for one in _of_agent(agent, Path(root))]
    return sorted(found, key=lambda one: (-one.mtime_ns, str(one.path)))


def _of_agent(agent: str, root: Path) -> Iterator[FoundSession]:
    pattern = reader(agent).PATTERN
    try:
        names = list(nofollow.walk(root, "", most=FILES_MAX, depth=DEPTH_MAX))
    except OSError as error:
        yield FoundSession(agent, root, 0, 0, f"it cannot be listed ({error.strerror})")
        return
    for name in names:
        if fnmatchcase(name.ref.rpartition("/")[2], pattern):
            yield FoundSession(agent, root / name.ref, name.size, name.mtime_ns, name.problem)

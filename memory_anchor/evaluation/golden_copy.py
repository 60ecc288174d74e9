"""Golden questions under other settings: asked of a private copy of the user's memory, which is gone afterwards.

An engine holds its store and goes by the settings it started with, so settings are compared on a backup that it makes
while it serves, restored into a scratch directory of this process. Nothing is written to the user's store; the data
directory's list of backups names the copy as long as it exists, so that a purge meanwhile, or after a kill, says where
it may still be.

Rejected: a second searcher inside the engine, whose caches and measured times would be shared with whoever works there.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory_anchor.app import build_core, open_store
from memory_anchor.care import backup
from memory_anchor.core import Core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings

EMBED_BATCH = 64
WARM_ROUNDS_MAX = 1_000
Ask = Callable[[Core, Sequence[str]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Copy:
    """A memory of its own: the data directory, with its lock held."""

    home: Path
    lock: DirectoryLock

    def answers(self, settings: Settings, questions: Sequence[str], ask: Ask) -> dict[str, Any]:
        """Return what `ask` says of the questions under these settings, L0 and L4 embedded before. Raises our errors.

        ask(core, questions): as the caller would be answered.
        """
        core = build_core(_here(settings), data_dir=self.home, lock=self.lock)
        try:
            ask(core, questions[:1])
            for _ in range(WARM_ROUNDS_MAX):
                if not core.nearness.embed_waiting(EMBED_BATCH):
                    break
            return ask(core, questions)
        finally:
            core.close()


@contextmanager
def copied(data_dir: Path, make_backup: Callable[[str], object]) -> Iterator[Copy]:
    """Yield a copy of the memory in `data_dir`. make_backup(path): writes a backup of it there. Raises our errors."""
    room = Path(tempfile.mkdtemp(prefix="memory-anchor-eval-")).resolve()
    file, home = room / "memory.tar.gz", room / "data"
    try:
        make_backup(str(file))
        with DirectoryLock.acquire(home, role="evaluation") as lock:
            backup.restore(
                home,
                file,
                force=False,
                lock=lock,
                open_store=lambda new: open_store(Settings(), new, lock),
                tick=lambda _done, _total: None,
            )
            file.unlink()
            yield Copy(home, lock)
    finally:
        shutil.rmtree(room)
        backup.forget_known(data_dir, file)


def _here(settings: Settings) -> Settings:
    """Return the settings over an embedded store, without cached answers: every question is searched for."""
    plain = settings.model_dump() | {"data_dir": "", "store": {}}
    plain["retrieval"] = {**plain["retrieval"], "cache_ttl_s": 0}
    return Settings.model_validate(plain)

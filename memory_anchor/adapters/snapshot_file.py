"""`ports.Snapshot` as one file: the arrays that were derived from the store, for the next process to load.

It is never trusted: its reader asks the store about every version. So it is not fsync'ed; what a power cut leaves of it
fails the checksum of each array (`.npz` is a zip) and counts as nothing. It holds ids, hashed words, vectors, tags and
people's names, no text of a memory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.files import remove_durably
from memory_anchor.runtime.wire import VERSION

if TYPE_CHECKING:
    from numpy.typing import NDArray

SNAPSHOT_FILE = "mirror.npz"
MADE_BY = "made_by"
"""Name of the array with this package's version: another version may derive something else."""

log = logging.getLogger(__name__)


class SnapshotFile:
    """One file, 0600; used only by the process that holds the directory's lock."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self) -> Mapping[str, NDArray[np.generic]] | None:
        """Return the arrays and remove the file; None where it is missing, broken or of another version."""
        try:
            with np.load(self._path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
            log.warning("%s could not be read (%s); the store is read instead", self._path.name, error)
            arrays = {}
        self.drop()
        made_by = arrays.pop(MADE_BY, None)
        return arrays if made_by is not None and made_by.tobytes().decode() == VERSION else None

    def put(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Replace the file; where there is no space for it, remove it."""
        unfinished = self._path.with_name(f".{self._path.name}.tmp")
        made_by = np.frombuffer(VERSION.encode(), dtype=np.uint8)
        try:
            unfinished.unlink(missing_ok=True)
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                np.savez(file, **{**arrays, MADE_BY: made_by})  # type: ignore[arg-type]
            unfinished.replace(self._path)
        except OSError as error:
            log.warning("%s could not be written (%s); the next start reads the store", self._path.name, error)
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)
            self.drop()

    def drop(self) -> None:
        """Remove the file."""
        try:
            remove_durably(self._path)  # a purge removes it too, and it must not come back
        except OSError as error:
            log.warning("%s could not be removed (%s)", self._path.name, error)

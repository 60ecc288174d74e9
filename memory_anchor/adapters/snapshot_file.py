"""`ports.Snapshot` as one file: arrays that were derived, for the next process to load.

The store's (`SNAPSHOT_FILE`) is never trusted; its reader asks the store for each version. Those of L0 and L4
(`ROWS_FILE`) are rows by the hash of a text, right whatever happened since. So neither is fsync'ed; what a power cut
leaves fails the checksum of each array (`.npz` is a zip) and counts as nothing. They hold ids, hashes, hashed words,
vectors, tags and people's names, no text.
"""

from __future__ import annotations

import logging
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.base.files import remove_durably
from memory_anchor.runtime.wire import VERSION

if TYPE_CHECKING:
    from numpy.typing import NDArray

SNAPSHOT_FILE, ROWS_FILE = "mirror.npz", "passages.npz"
MADE_BY = "made_by"
"""Name of the array with this package's version: another version may derive something else."""

log = logging.getLogger(__name__)


class SnapshotFile:
    """One file, 0600; used only by the process that holds the directory's lock."""

    def __init__(self, path: Path) -> None:
        self._path, self._unfinished = path, path.with_name(f".{path.name}.tmp")

    def read(self) -> Mapping[str, NDArray[np.generic]] | None:
        """Return the arrays; None where the file is missing, and where it is broken or of another version: removed."""
        try:
            with np.load(self._path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
            log.warning("%s could not be read (%s); what it held is made again", self._path.name, error)
            arrays = {}
        made_by = arrays.pop(MADE_BY, None)
        if made_by is not None and made_by.tobytes().decode() == VERSION:
            return arrays
        self.drop()
        return None

    def put(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Replace the file; where there is no space for it, remove it."""
        made_by = np.frombuffer(VERSION.encode(), dtype=np.uint8)
        try:
            self._unfinished.unlink(missing_ok=True)
            with os.fdopen(os.open(self._unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                np.savez(file, **{**arrays, MADE_BY: made_by})  # type: ignore[arg-type]
            self._unfinished.replace(self._path)
        except OSError as error:
            log.warning("%s could not be written (%s); the next start makes it again", self._path.name, error)
            self.drop()

    def drop(self) -> None:
        """Remove the file, and what a process that was killed had written of the next one."""
        try:
            self._unfinished.unlink(missing_ok=True)
            remove_durably(self._path)  # a purge removes it too, and it must not come back
        except OSError as error:
            log.warning("%s could not be removed (%s)", self._path.name, error)

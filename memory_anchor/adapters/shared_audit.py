"""The audit trail of one of several replicas, with a copy on the server they share; the others' are read from there.

Each replica has a chain of its own, in its data directory. Once the lines of a write are synced, their bytes are sent
to the records `audit/CHAIN/OFFSET.jsonl` before anybody is answered, so a lost replica takes no acknowledged line with
it. Concatenated, these records are the file, byte for byte, and verify as it does. Where the server does not accept
them the lines wait, and nothing more is written here until it does. A data directory that went back in time (a backup)
begins another chain: nothing on the server is overwritten but the last record, by a longer version of the same.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath

from memory_anchor.adapters.audit import BrokenLink, JsonlAudit
from memory_anchor.base.durability import Durability
from memory_anchor.base.files import file_error, make_private, write_atomic
from memory_anchor.base.json_values import Json
from memory_anchor.domain.errors import ChangedMeanwhile, MemoryAnchorError, Unavailable, retry_on_conflict
from memory_anchor.domain.ports import SharedRecords

log = logging.getLogger("memory_anchor")
FOLDER = "audit"
SEGMENT_BYTES = 128 << 10
"""Size from which the next lines begin another record: each write sends the last one again."""
UPLOAD_BYTES = 8 << 20
"""Sent in one record where much waits."""
CHAINS_OF_ONE = 100
DOWNLOADS = "replicas"
"""Folder beside the trail: other chains as they were last read."""


class SharedAudit(JsonlAudit):
    """chain: the replica's name; thread-safe, and safe across processes of one data directory."""

    def __init__(self, path: Path, records: SharedRecords, chain: str, *, durability: Durability | None = None) -> None:
        super().__init__(path, durability=durability)
        self._records, self._replica = records, chain
        self._chain, self._segment, self._uploaded, self._revision = "", 0, 0, ""
        self._uploading = threading.Lock()
        self._must_upload = False

    def append(self, kind: str, what: Mapping[str, Json], *, by: str, at: datetime) -> str:
        if self._must_upload:
            self.upload()
        return super().append(kind, what, by=by, at=at)

    def _sync(self) -> None:
        super()._sync()
        try:
            self.upload()
        except MemoryAnchorError as error:  # on disk here; the next write waits for the server
            self._must_upload = True
            log.warning("audit lines wait for the server: %s", error)

    def upload(self) -> None:
        """Send what the server does not have yet. Raises Unavailable and what the server's errors become."""
        with self._uploading:
            retry_on_conflict(self._upload)
            self._must_upload = False

    def _upload(self) -> None:
        self._chain = self._chain or self._find_chain()
        while fresh := self._read(self._uploaded, UPLOAD_BYTES):
            if self._uploaded - self._segment >= SEGMENT_BYTES:
                self._segment, self._revision = self._uploaded, ""
            segment = self._read(self._segment, self._uploaded - self._segment) + fresh
            name = f"{FOLDER}/{self._chain}/{self._segment:012}.jsonl"
            try:
                self._revision = self._records.write(name, segment, before=self._revision)
            except ChangedMeanwhile:  # another process of this folder sent some of it
                self._chain = ""
                raise
            self._uploaded += len(fresh)

    def _find_chain(self) -> str:
        """Return this file's chain on the server: the newest one that it continues, or a new one."""
        for number in range(CHAINS_OF_ONE):
            chain = f"{self._replica}-{number}" if number else self._replica
            names = self._segments(chain)
            if not names:
                self._segment, self._uploaded, self._revision = 0, 0, ""
                return chain
            last = self._records.read(names[-1])
            begin = int(PurePosixPath(names[-1]).stem)
            if last is not None and self._read(begin, len(last.content), whole=False) == last.content:
                self._segment, self._uploaded, self._revision = begin, begin + len(last.content), last.revision
                return chain
        raise Unavailable(f"{CHAINS_OF_ONE} chains of {self._replica} are on the server; start with an empty folder")

    def _segments(self, chain: str) -> list[str]:
        return [record.name for record in self._records.listed(f"{FOLDER}/{chain}")]

    def _read(self, begin: int, count: int, *, whole: bool = True) -> bytes:
        """Return bytes of the file, up to the end of a line."""
        try:
            with self.path.open("rb") as file:
                file.seek(begin)
                content = file.read(count)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise file_error(error, self.path) from error
        return content[: content.rfind(b"\n") + 1] if whole else content

    # --- the chains of all replicas --------------------------------------------------------------------------------

    def chains(self) -> list[str]:
        """Return every chain of the service, this one among them."""
        return sorted({PurePosixPath(record.name).parent.name for record in self._records.listed(FOLDER)})

    def verify_all(self) -> Iterator[tuple[Path, int, BrokenLink | None]]:
        """Yield each chain as a file to read, how many records it has, and its first broken link."""
        for chain in self.chains():
            trail = self.downloaded(chain)
            yield trail.path, sum(1 for _ in trail.records()), trail.verify()

    def downloaded(self, chain: str) -> JsonlAudit:
        """Return a chain as the server has it, in a file of its own beside this trail."""
        folder = self.path.parent / DOWNLOADS
        make_private(folder)
        trail = _Download(folder / f"{chain}.jsonl")
        records = map(self._records.read, self._segments(chain))
        trail.replace(b"".join(record.content for record in records if record is not None))
        return trail


class _Download(JsonlAudit):
    """Another replica's chain."""

    def replace(self, content: bytes) -> None:
        """Become these bytes, acknowledged up to their end."""
        write_atomic(self.path, content)
        self._head.unlink(missing_ok=True)
        last = next(iter(deque(self.records(), maxlen=1)), None)
        if last is not None:
            self._write_head(last["n"], last["hash"])

"""Which human key is the installation's: the first one a human made, remembered where a swapped key file is not.

One key an installation (a data directory), whatever projects it serves. Its public half is noted at once in a file of
the data directory and in the audit chain (`constitution.approver`), so that moving `approver.json` away and making
another one changes nothing: the other key is a stranger, nothing it signed counts, and every start says so until the
first key is back or has vouched for it. Where the two notes disagree no key counts. An installation older than the
notes is taken as it stands at its first human act. Rejected: a note signed by the key itself, which whoever brings
another key would sign too. Out of reach: a process of the same user that rewrites the note and the whole chain.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.files import read_bounded, write_whole

if TYPE_CHECKING:
    from memory_anchor.ports import AuditLog

NOTE_FILE = "first_key.json"
MAX_NOTE_BYTES = 4_000
MADE = "constitution.approver"
"""The kind of the audit record that tells of a key made here, with `key`: its public half."""
GROUPS, GROUP_CHARS = 8, 4


def fingerprint_of(public: str) -> str:
    """Return 32 hex digits of a public key's hash in groups of four, fit to be noted down and compared by eye."""
    digits = hashlib.sha256(public.encode("utf-8", "surrogatepass")).hexdigest()
    return " ".join(digits[GROUP_CHARS * n : GROUP_CHARS * (n + 1)] for n in range(GROUPS))


class FirstKey:
    """The notes of one data directory. audit: None where only the file is asked."""

    def __init__(self, data_dir: Path, audit: AuditLog | None) -> None:
        self._note = data_dir / NOTE_FILE
        self._audit = audit

    def noted(self) -> tuple[str, ...]:
        """Return the public keys that the notes name: none before the first, two when they disagree."""
        chained = self._audit.first(MADE) if self._audit is not None else None
        named = [self._in_file(), str(chained.get("key", "")) if chained is not None else ""]
        return tuple(dict.fromkeys(one for one in named if one))

    def remember(self, public: str) -> None:
        """Write the file's note, durable on return; the chain's is the record that tells of the key."""
        if self._in_file() != public:
            write_whole(self._note, (json.dumps({"public": public, "is": fingerprint_of(public)}) + "\n").encode())

    def _in_file(self) -> str:
        try:
            note = json.loads(read_bounded(self._note, most_bytes=MAX_NOTE_BYTES) or b"{}")
            return str(note.get("public", ""))
        except (OSError, ValueError, AttributeError, RecursionError):
            return "?"  # a note that cannot be read is no leave to take another key

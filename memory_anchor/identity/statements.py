"""Everything that a human's key ever signs: one type for each kind, made in the process that shows what it says.

A signature is over canonical JSON that begins with its purpose, so none can pass for another, and that ends with the
installation where it counts: this one, for a purge that of the key (other devices know only the key), for a decision
over HTTP the one server whose access key is used. So nothing that is signed here counts anywhere else. `Signer` takes
these types and nothing else: no bytes, and no record that came over a socket, out of a file or from a server. The
installation is no part of what is stored. Earlier versions signed the same fields without it; those signatures count
where they always counted (`Approver.signed`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

from memory_anchor.base.json_values import Json


@dataclass(frozen=True, slots=True)
class Statement:
    """One signed sentence. WHAT: its purpose."""

    WHAT: ClassVar[str] = ""

    def record(self) -> dict[str, Json]:
        """Return the fields that are signed, without the installation."""
        return {"what": self.WHAT, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Confirmed(Statement):
    """A human confirms a proposal for L0. text: SHA-256 of its content; proposal: hash of all of it and of what it
    replaces; number: 1 to 3; project, origin: see `ProjectRef`."""

    WHAT = "memory-anchor confirmation 2"

    project: str
    origin: str
    id: str
    action: str
    text: str
    proposal: str
    number: int
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class Rejected(Statement):
    """A human rejects a proposal. proposal: its hash."""

    WHAT = "memory-anchor rejection 1"

    proposal: str
    by: str
    at: str
    reason: str


@dataclass(frozen=True, slots=True)
class Closed(Statement):
    """What this machine keeps of a rejection, out of reach of an agent's editor: the id is closed in this project."""

    WHAT = "memory-anchor/rejected/1"

    project: str
    id: str
    at: str


@dataclass(frozen=True, slots=True)
class Approved(Statement):
    """A link of the trail: a text took effect. digest: of its content; previous: id of the link before, "" for none."""

    WHAT = "memory-anchor approved 1"

    digest: str
    previous: str
    proposal: str
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class Sealed(Statement):
    """A text of L0 is in force. previous: see `SealedRevision`; text: SHA-256; link: id of its approval."""

    WHAT = "memory-anchor sealed text 2"

    previous: str
    project: str
    number: int
    text: str
    link: str
    applied: tuple[str, ...]

    def record(self) -> dict[str, Json]:
        chained: dict[str, Json] = {"what": self.WHAT, "previous": self.previous}
        return {
            **(chained if self.previous else {"what": "memory-anchor sealed text 1"}),
            "project": self.project,
            "number": self.number,
            "text": self.text,
            "link": self.link,
            "applied": list(self.applied),
        }


@dataclass(frozen=True, slots=True)
class Bound(Statement):
    """A folder belongs to a project."""

    WHAT = "memory-anchor/folder of a project/1"

    path: str
    project: str


@dataclass(frozen=True, slots=True)
class Decided(Statement):
    """A human asks for one call. arguments, challenge: SHA-256; caller: see `signed_requests.CALLER_FIELDS`.

    server: SHA-256 of the access key that it is sent with, "" for the engine of this installation."""

    WHAT = "memory-anchor/request/2"

    call: str
    arguments: str
    caller: Mapping[str, Json]
    challenge: str
    server: str = ""

    def record(self) -> dict[str, Json]:
        parts: dict[str, Json] = {"what": self.WHAT, "call": self.call, "arguments": self.arguments}
        return {**parts, "caller": dict(self.caller), "challenge": self.challenge}


@dataclass(frozen=True, slots=True)
class Purged(Statement):
    """Other devices of a sync folder purge these memories too."""

    WHAT = "memory-anchor/sync/purge/1"

    folder: str
    ids: tuple[str, ...]
    at: str

    def record(self) -> dict[str, Json]:
        return {"what": self.WHAT, "folder": self.folder, "ids": sorted(self.ids), "at": self.at}


@dataclass(frozen=True, slots=True)
class Vouched(Statement):
    """A colleague's signatures count here."""

    WHAT = "memory-anchor approver 1"

    name: str
    public: str


@dataclass(frozen=True, slots=True)
class Admitted(Statement):
    """An access key of a served memory. digest: SHA-256 of the key; public: an approver's key, "" for none."""

    WHAT = "memory-anchor/key/1"

    id: str
    digest: str
    account: str
    user: str
    role: str
    project: str
    note: str
    public: str
    created_at: str
    created_by: str
    expires_at: str


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def server_of(access_key_digest: str) -> str:
    """Return the name of a server as an installation: the digest of an access key, which that server alone made."""
    return f"server with access key {access_key_digest}"

"""A caller's credential and role; apart from `keys`, so that importing it loads nothing heavy."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum

from memory_anchor.domain.errors import BadInput

NAME_MAX = 120
_NAME = re.compile(rf"[^|\x00-\x1f\x7f]{{1,{NAME_MAX}}}")


class Role(StrEnum):
    """What a key may do; each role may also do what the one before it may. `rights` has the table."""

    READER = "reader"
    WRITER = "writer"
    APPROVER = "approver"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Credential:
    """Whom a request was authenticated as. user, project: "" where the request itself may name one.

    key: names the credential in limits and audit; never the secret. public: its holder's public signing key, "" for
    one who does not approve. by_name: the credential names its account, so a body need not. digest: of an access key.
    """

    account: str
    user: str = ""
    project: str = ""
    role: Role = Role.WRITER
    key: str = ""
    public: str = ""
    by_name: bool = False
    digest: str = ""

    @property
    def principal(self) -> str:
        """Unique to a credential: a session that one began is closed to all others."""
        return "|".join((self.account, self.user, self.project, self.role.value, self.key))


def key_digest(key: str) -> str:
    """Return what a key file keeps of an access key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def scope_name(what: str, name: str) -> str:
    """Return the name if a scope may hold it. Raises BadInput."""
    if not (_NAME.fullmatch(name) and name == name.strip() and name.isprintable()):
        raise BadInput(f"{what} is {name[:40]!r}; allowed are 1 to {NAME_MAX} printable characters without '|'")
    return name

"""A caller's credential and role; apart from `keys`, so that importing it loads nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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

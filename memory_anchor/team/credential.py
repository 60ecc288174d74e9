"""For whom a request was let in, and with which role; apart from the keys, so that nothing heavy comes along."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a key may do, each all that the one before it may; `rights` has the table."""

    READER = "reader"
    WRITER = "writer"
    APPROVER = "approver"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Credential:
    """For whom a request was let in. user, project: "" where the request itself may name one.

    key: what names the credential in limits and audit, never what opens it. public: of the signing key with which its
    holder approves, "" for who does not. by_name: it names its account itself, so
    that a body need not.
    """

    account: str
    user: str = ""
    project: str = ""
    role: Role = Role.WRITER
    key: str = ""
    public: str = ""
    by_name: bool = False

    @property
    def principal(self) -> str:
        """What no other credential shares: a session that one began is none of another's."""
        return "|".join((self.account, self.user, self.project, self.role.value, self.key))

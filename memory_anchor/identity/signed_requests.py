"""Requests that count as a human's: signed in the terminal's own process, good for one call, once.

The passphrase unlocks the key in the process where it is typed and is sent nowhere: anybody could be listening on the
engine's socket (`run/engine.json` is a file). The command asks the engine for a challenge and signs its request; the
engine verifies the signature with the public key that the installation trusts, never one from the request. Every part
that decides the effect is signed: the call's name, all arguments, the caller as the preamble states it, the account and
project resolved from it, the challenge and its expiry. So a signature that is intercepted, or passed on by a false
engine, does the one thing the human asked for, or nothing. Rejected: a session key after one passphrase, which would
sign whatever a relay presents.

A decision is bound to what was shown: arguments are signed as they are, and among them is a hash of the shown version
(made from the text on the screen, not taken from the engine).
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from memory_anchor.base.json_values import Json
from memory_anchor.errors import ChangedMeanwhile, Refused
from memory_anchor.identity.keys import Approver, Signer, digest_of, signed_by
from memory_anchor.ports import SharedRecords

CHALLENGE_CALL = "human_challenge"
"""The call that hands out a challenge; the proof comes back as the argument `human`."""
GOOD_FOR = timedelta(seconds=60)
"""From challenge to signed request: both come after the passphrase, so typing time does not count."""
OUTSTANDING_MAX = 256
FOLDER = "challenges"
CHALLENGE_MAX = 100
SWEPT_EVERY = 64
MAX_PART = 400
"""Characters of one part of a proof."""
CALLER_FIELDS = ("account", "project", "user", "agent", "client", "conversation", "project_dir", "zone", "read_only")
"""The fields of a preamble that decide for whom and where a call works."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof in a signed request. account, project: as the engine resolved them for this caller."""

    challenge: str
    expires_at: str
    account: str
    project: str
    signature: str = ""

    @classmethod
    def of(cls, value: Json) -> Proof:
        """Return a validated proof. Raises Refused: it is none."""
        names = ("challenge", "expires_at", "account", "project", "signature")
        if isinstance(value, Mapping):
            fields = {name: value.get(name, "") for name in names}
            parts = {name: part for name, part in fields.items() if isinstance(part, str) and len(part) <= MAX_PART}
            if parts.keys() == fields.keys():
                return cls(**parts)
        raise Refused("the request's signature is not readable; nothing was changed")


@dataclass(frozen=True, slots=True)
class SignedCall:
    """A received call with the proof that a human signed it.

    caller: the fields of the preamble; see `CALLER_FIELDS`.
    """

    call: str
    arguments: Mapping[str, Json]
    caller: Mapping[str, Json]
    proof: Proof

    def statement(self) -> dict[str, Json]:
        """Return what a human signs for this call."""
        return {
            "what": "memory-anchor/request/1",
            "call": self.call,
            "arguments": digest_of(self.arguments),
            "caller": {name: self.caller.get(name) for name in CALLER_FIELDS},
            "account": self.proof.account,
            "project": self.proof.project,
            "challenge": self.proof.challenge,
            "expires_at": self.proof.expires_at,
        }


def sign_request(
    signer: Signer, call: str, arguments: Mapping[str, Json], caller: Mapping[str, Json], challenge: Mapping[str, Json]
) -> dict[str, str]:
    """Return the argument `human` for a call. challenge: the engine's answer to `CHALLENGE_CALL`."""
    proof = Proof.of({**challenge, "signature": ""})
    signature = signer.sign(SignedCall(call, arguments, caller, proof).statement())
    return {
        "challenge": proof.challenge,
        "expires_at": proof.expires_at,
        "account": proof.account,
        "project": proof.project,
        "signature": signature,
    }


class Challenges:
    """The challenges of one process, or of replicas of one service: each is valid once, for a minute. Thread-safe.

    new_token: returns an unguessable text. records: shared by replicas, any of which may receive the signed request.
    """

    def __init__(self, new_token: Callable[[], str], records: SharedRecords | None = None) -> None:
        self._new_token = new_token
        self._records = records
        self._issued = 0
        self._open: OrderedDict[str, datetime] = OrderedDict()
        self._lock = threading.Lock()

    def issue(self, now: datetime) -> tuple[str, str]:
        """Return a challenge and when it expires."""
        challenge, until = self._new_token(), now + GOOD_FOR
        if self._records is not None:
            self._store(self._records, challenge, until)
            return challenge, until.isoformat()
        with self._lock:
            self._open[challenge] = until
            while len(self._open) > OUTSTANDING_MAX:
                self._open.popitem(last=False)
        return challenge, until.isoformat()

    def check(
        self, signed: SignedCall, *, account: str, project: str, approver: Approver | None, now: datetime
    ) -> None:
        """Consume the challenge and verify that the request is this approver's. Raises Refused: it is not."""
        proof = signed.proof
        if self._records is not None:
            until = self._consume(self._records, proof.challenge)
        else:
            with self._lock:
                until = self._open.pop(proof.challenge, None)
        if until is None or now > until or proof.expires_at != until.isoformat():
            raise Refused("the signed request is too old, was used before, or is another engine's; run it again")
        if (proof.account, proof.project) != (account, project):
            raise Refused("the signed request is for another account or project; nothing was changed")
        if approver is None or not signed_by(approver.public, signed.statement(), proof.signature):
            raise Refused(
                "the request is not signed by this installation's key (or none was made: `memory-anchor init`); "
                "nothing was changed"
            )

    def _store(self, records: SharedRecords, challenge: str, until: datetime) -> None:
        records.write(f"{FOLDER}/{challenge}", until.isoformat().encode(), before="", durable=False)
        self._issued += 1
        if self._issued % SWEPT_EVERY == 1:
            old = until.timestamp() - 2 * GOOD_FOR.total_seconds()
            for record in records.listed(FOLDER):
                if record.at < old:
                    with contextlib.suppress(ChangedMeanwhile):
                        records.delete(record.name, before=record.revision)

    @staticmethod
    def _consume(records: SharedRecords, challenge: str) -> datetime | None:
        """Consume a challenge that any replica issued; of two simultaneous callers only one gets its expiry."""
        if not challenge.isalnum() or len(challenge) > CHALLENGE_MAX:
            return None
        name = f"{FOLDER}/{challenge}"
        record = records.read(name)
        if record is None or not record.content:
            return None
        try:
            revision = records.write(name, b"", before=record.revision, durable=False)
        except ChangedMeanwhile:
            return None
        with contextlib.suppress(ChangedMeanwhile):
            records.delete(name, before=revision)
        return datetime.fromisoformat(record.content.decode())

"""Requests that count as a human's: signed in the terminal's own process, good for one call, once.

The passphrase unlocks the key in the process where it is typed and is sent nowhere: anybody could be listening on the
engine's socket (`run/engine.json` is a file). The command asks the engine for a challenge and signs its request; the
engine verifies the signature with the public key that the installation trusts, never one from the request. Every part
that decides the effect is signed: the call's name, all arguments, the caller as the preamble states it (account and
project follow from it, and a challenge is good for those that it was issued for), and where it counts. Of what came
over the socket the signature covers a hash of the challenge and nothing else, so a false engine or server puts no word
into it. A signature that is intercepted, or passed on, does the one thing the human asked for, or nothing. Rejected: a
session key after one passphrase, which would sign whatever a relay presents.

A decision is bound to what was shown: arguments are signed as they are, and among them is a hash of the shown version
(made from the text on the screen, not taken from the engine).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json
from memory_anchor.domain.errors import Refused
from memory_anchor.identity.keys import Approver, Signer, digest_of
from memory_anchor.identity.statements import Decided, text_digest

CHALLENGE_CALL = "human_challenge"
"""The call that hands out a challenge; the proof comes back as the argument `human`."""
GOOD_FOR = timedelta(seconds=60)
"""From challenge to signed request: both come after the passphrase, so typing time does not count."""
OUTSTANDING_MAX = 256
MAX_PART = 400
"""Characters of one part of a proof."""
CALLER_FIELDS = ("account", "project", "user", "agent", "client", "conversation", "project_dir", "zone", "read_only")
"""The fields of a preamble that decide for whom and where a call works."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof in a signed request."""

    challenge: str
    signature: str

    @classmethod
    def of(cls, value: Json) -> Proof:
        """Return a validated proof. Raises Refused: it is none."""
        if isinstance(value, Mapping):
            parts = [value.get(name) for name in ("challenge", "signature")]
            challenge, signature = (part if isinstance(part, str) and len(part) <= MAX_PART else "" for part in parts)
            if challenge and signature:
                return cls(challenge, signature)
        raise Refused("the request's signature is not readable; nothing was changed")


@dataclass(frozen=True, slots=True)
class SignedCall:
    """A received call with the proof that a human signed it. caller: the fields of the preamble."""

    call: str
    arguments: Mapping[str, Json]
    caller: Mapping[str, Json]
    proof: Proof


def decision(
    call: str, arguments: Mapping[str, Json], caller: Mapping[str, Json], challenge: str, *, server: str = ""
) -> Decided:
    """Return what a human signs for a call. server: see `Decided`."""
    signed_caller = {name: caller.get(name) for name in CALLER_FIELDS}
    return Decided(call, digest_of(arguments), signed_caller, text_digest(challenge), server)


def sign_request(
    signer: Signer,
    call: str,
    arguments: Mapping[str, Json],
    caller: Mapping[str, Json],
    challenge: Json,
    *,
    server: str = "",
) -> dict[str, str]:
    """Return the argument `human` for a call. challenge: as the engine gave it. Raises Refused: it is none."""
    if not isinstance(challenge, str) or not 0 < len(challenge) <= MAX_PART:
        raise Refused("the engine gave no challenge to sign; nothing was changed")
    signature = signer.decide(decision(call, arguments, caller, challenge, server=server))
    return {"challenge": challenge, "signature": signature}


class Issued(NamedTuple):
    """Until when a challenge is good, and a hash of account and project that it is good for."""

    until: datetime
    scope: str


class Challenges:
    """The challenges of one process: each is valid once, for a minute. Thread-safe.

    new_token: returns an unguessable text.
    """

    def __init__(self, new_token: Callable[[], str]) -> None:
        self._new_token = new_token
        self._open: OrderedDict[str, Issued] = OrderedDict()
        self._lock = threading.Lock()

    def issue(self, now: datetime, *, account: str, project: str) -> str:
        """Return a new challenge for requests of one account and project."""
        challenge, issued = self._new_token(), Issued(now + GOOD_FOR, stable_hash(account, project))
        with self._lock:
            self._open[challenge] = issued
            while len(self._open) > OUTSTANDING_MAX:
                self._open.popitem(last=False)
        return challenge

    def check(
        self, signed: SignedCall, *, account: str, project: str, approver: Approver | None, now: datetime
    ) -> None:
        """Consume the challenge and verify that the request is this approver's. Raises Refused: it is not."""
        proof = signed.proof
        with self._lock:
            issued = self._open.pop(proof.challenge, None)
        if issued is None or now > issued.until:
            raise Refused("the signed request is too old, was used before, or is another engine's; run it again")
        if issued.scope != stable_hash(account, project):
            raise Refused("the signed request is for another account or project; nothing was changed")
        statement = decision(signed.call, signed.arguments, signed.caller, proof.challenge).record()
        if approver is None or not approver.signed(statement, proof.signature):
            raise Refused(
                "the request is not signed by this installation's key (or none was made: `memory-anchor init`); "
                "nothing was changed"
            )

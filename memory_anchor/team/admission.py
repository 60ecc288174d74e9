"""Who a bearer token lets in: the one place where account, user, project and role of a request come from.

Three kinds of token, told apart by their form: keys of this server (`keys`), a configured issuer's JWTs (`issuer`), and
tokens of the settings (`http.tokens`), which are bound to an account alone. Refused ones count against their address,
let in ones against their key.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

from memory_anchor.errors import NoCredential, TooMany
from memory_anchor.json_values import Record
from memory_anchor.team.credential import Credential, Role
from memory_anchor.team.keys import PREFIX, KeyFile, digest_of
from memory_anchor.team.limits import Bucket, RefusedCredentials

TOKEN_CHARS_MAX = 16_384
HOW = "no valid bearer token or path secret; `memory-anchor serve` prints how to come in"


class Issuer(Protocol):
    def is_mine(self, token: str) -> bool:
        """Return whether a token has the form of this issuer's."""
        ...

    def opened(self, token: str) -> Credential:
        """Return whom it lets in. Raises NoCredential; Unavailable: the issuer is away and its keys are not known."""
        ...

    def metadata(self) -> Record:
        """Return what tells a client where tokens come from (RFC 9728)."""
        ...

    def metadata_url(self) -> str:
        """Return where that is served."""
        ...


class Admission:
    """tokens: bearer token -> account. requests_a_minute: of one key. now, monotonic: clocks."""

    def __init__(
        self,
        keys: KeyFile,
        *,
        tokens: Mapping[str, str],
        requests_a_minute: int,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        issuer: Issuer | None = None,
    ) -> None:
        self.keys = keys
        self.issuer = issuer
        self._tokens = {digest_of(token): account for token, account in tokens.items()}
        self._now = now
        self._tries = RefusedCredentials(monotonic)
        self._asked = Bucket(requests_a_minute, monotonic)

    def of_bearer(self, token: str, address: str) -> Credential:
        """Return whom a token lets in.

        Raises NoCredential, Unavailable: see `Issuer`. TooMany: of refused ones from there, or of requests with it.
        """
        if not token or len(token) > TOKEN_CHARS_MAX:
            raise NoCredential(HOW)
        digest = digest_of(token)
        self._tries.check(address, digest)
        try:
            credential = self._opened(token, digest)
        except NoCredential:
            self._tries.refused(address)
            raise
        self._tries.came_in(address, digest)
        if wait := self._asked.take(credential.key):
            raise TooMany(f"this key has asked too often; wait {wait} s (`http.requests_per_minute`)", wait)
        return credential

    def may_wait(self, token: str) -> bool:
        """Return whether somebody else may have to be asked about a token."""
        if token.startswith(f"{PREFIX}_"):
            return self.keys.may_wait
        return self.issuer is not None and self.issuer.is_mine(token)

    def _opened(self, token: str, digest: str) -> Credential:
        account = next((own for known, own in self._tokens.items() if hmac.compare_digest(known, digest)), None)
        if account is not None:
            return Credential(account, role=Role.WRITER, key=f"token-{digest[:12]}")
        if token.startswith(f"{PREFIX}_"):
            return self.keys.opened(token, self._now())
        if self.issuer is not None and self.issuer.is_mine(token):
            return self.issuer.opened(token)
        raise NoCredential(HOW)

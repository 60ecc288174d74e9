"""Authentication of bearer tokens: the only source of a request's account, user, project and role.

Three kinds of token, recognised by their form: keys of this server (`keys`), a configured issuer's JWTs (`issuer`), and
tokens of the settings (`http.tokens`), which name only an account. Refused ones count against their address, accepted
ones against their key.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

from memory_anchor.base.json_values import Record
from memory_anchor.domain.credential import Credential, Role, key_digest
from memory_anchor.domain.errors import NoCredential, TooMany
from memory_anchor.extensions.service.keys import PREFIX, KeyFile
from memory_anchor.extensions.service.limits import Bucket, RefusedCredentials

TOKEN_CHARS_MAX = 16_384
HOW = "no valid bearer token or path secret; `memory-anchor serve` prints how to connect"


class Issuer(Protocol):
    def is_mine(self, token: str) -> bool:
        """Return whether a token has the form of this issuer's."""
        ...

    def authenticate(self, token: str) -> Credential:
        """Return its credential. Raises NoCredential; Unavailable: the issuer is down and its keys are not known."""
        ...

    def metadata(self) -> Record:
        """Return the metadata that tells a client where to get tokens (RFC 9728)."""
        ...

    def metadata_url(self) -> str:
        """Return the address of that metadata."""
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
        self._tokens = {key_digest(token): account for token, account in tokens.items()}
        self._now = now
        self._tries = RefusedCredentials(monotonic)
        self._requests = Bucket(requests_a_minute, monotonic)

    def authenticate(self, token: str, address: str) -> Credential:
        """Return a token's credential.

        Raises NoCredential, Unavailable: see `Issuer`. TooMany: too many refused from there, or requests with it.
        """
        if not token or len(token) > TOKEN_CHARS_MAX:
            raise NoCredential(HOW)
        digest = key_digest(token)
        self._tries.check(address, digest)
        try:
            credential = self._credential(token, digest)
        except NoCredential:
            self._tries.refused(address)
            raise
        self._tries.accepted(address, digest)
        if wait := self._requests.take(credential.key):
            raise TooMany(f"this key has asked too often; wait {wait} s (`http.requests_per_minute`)", wait)
        return credential

    def may_wait(self, token: str) -> bool:
        """Return whether checking a token may take a request to its issuer, or to a database."""
        if token.startswith(f"{PREFIX}_"):
            return self.keys.may_wait
        return self.issuer is not None and self.issuer.is_mine(token)

    def _credential(self, token: str, digest: str) -> Credential:
        account = next((name for stored, name in self._tokens.items() if hmac.compare_digest(stored, digest)), None)
        if account is not None:
            return Credential(account, role=Role.WRITER, key=f"token-{digest[:12]}")
        if token.startswith(f"{PREFIX}_"):
            return self.keys.authenticate(token, self._now())
        if self.issuer is not None and self.issuer.is_mine(token):
            return self.issuer.authenticate(token)
        raise NoCredential(HOW)

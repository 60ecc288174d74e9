"""JWTs of a configured issuer: this server is a resource server (RFC 9728) and issues no tokens itself.

A token is valid when a key of the issuer signed it with an asymmetric algorithm, for our address, and it is in force,
with a bounded clock difference. The issuer's keys are cached: fetched again when they are old or a token names an
unknown one, at most every few seconds, and used further while the issuer is down. Without keys the answer is that the
issuer is unavailable, never that the token is wrong: a client would throw it away.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json, Record, items, parsed, record
from memory_anchor.domain.credential import Credential, Role, scope_name
from memory_anchor.domain.errors import BadInput, NoCredential, Unavailable
from memory_anchor.extensions.service.settings import JwtSettings

if TYPE_CHECKING:
    from jwt import PyJWK

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
REQUIRED = ("exp", "iss", "aud", "sub")
KEYS_KEPT_S = 300.0
KEYS_STALE_S = 86_400.0
"""How long keys are used further while their issuer is down."""
ASK_AGAIN_S = 10.0
"""Between two requests for keys, answered or not."""
FETCH_TIMEOUT_S = 3.0
KEYS_BYTES_MAX = 1 << 20
PARTS = 3
METADATA = "/.well-known/oauth-protected-resource"


class JwtIssuer:
    """An `Issuer` (`admission`). fetch(url): its bytes, bounded; raises OSError. monotonic: seconds. Thread-safe.

    account: used where the settings name neither an account nor a claim for it.
    """

    def __init__(
        self, chosen: JwtSettings, *, account: str, fetch: Callable[[str], bytes], monotonic: Callable[[], float]
    ) -> None:
        check(chosen)
        self._chosen = chosen
        self._account = account
        self._fetch = fetch
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._keys: Mapping[str, PyJWK] = {}
        self._fetched_at = self._asked_at = -KEYS_STALE_S

    def is_mine(self, token: str) -> bool:
        """Return whether it has the three parts of a signed JWT."""
        return token.count(".") == PARTS - 1

    def metadata(self) -> Record:
        """Return the metadata of RFC 9728: where a client gets tokens for this server."""
        return {
            "resource": self._chosen.audience,
            "authorization_servers": [self._chosen.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Memory Anchor",
        }

    def metadata_url(self) -> str:
        """Return the address of `metadata`, as clients derive it from our address."""
        parts = urlsplit(self._chosen.audience)
        return f"{parts.scheme}://{parts.netloc}{METADATA}{parts.path.rstrip('/')}"

    def authenticate(self, token: str) -> Credential:
        """Return a token's credential. Raises NoCredential: it is not valid; Unavailable: the issuer is down."""
        import jwt

        try:
            head = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise NoCredential("the token is no JWT; ask its issuer for another one") from None
        if head.get("alg") not in ALGORITHMS:
            raise NoCredential(
                f"the token is signed with {str(head.get('alg'))[:20]!r}; allowed are {', '.join(ALGORITHMS)}"
            )
        key = self._key(head.get("kid"))
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=list(ALGORITHMS),
                audience=self._chosen.audience,
                issuer=self._chosen.issuer,
                leeway=self._chosen.leeway_s,
                options={"require": list(REQUIRED)},
            )
        except jwt.ExpiredSignatureError:
            raise NoCredential("the token has expired; ask its issuer for a new one") from None
        except jwt.InvalidAudienceError:
            raise NoCredential(f"the token is for another server; ask for one for {self._chosen.audience}") from None
        except jwt.InvalidIssuerError:
            raise NoCredential(f"the token is another issuer's; allowed is {self._chosen.issuer}") from None
        except jwt.MissingRequiredClaimError as error:
            raise NoCredential(f"the token lacks the claim {error.claim!r}") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise NoCredential("the token is not signed by its issuer, or not in force yet") from None
        return self._credential(claims)

    def _credential(self, claims: Record) -> Credential:
        chosen = self._chosen
        account = chosen.account or self._account
        if chosen.account_claim:
            account = _named(claims, chosen.account_claim)
        role = Role(chosen.role)
        if chosen.role_claim:
            claim = claims.get(chosen.role_claim)
            names = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
            role = max((item for item in Role if item.value in names), key=list(Role).index, default=Role.READER)
        user = _named(claims, chosen.user_claim)
        return Credential(account, user, "", role, f"jwt-{stable_hash(account, user)[:12]}", by_name=True)

    def _key(self, kid: Json) -> PyJWK:
        """Return the issuer's key of this name. Raises NoCredential: it has none; Unavailable: it cannot be asked."""
        with self._lock:
            now = self._monotonic()
            key = self._cached(kid) if now - self._fetched_at < KEYS_STALE_S else None
            if key is not None and now - self._fetched_at < KEYS_KEPT_S:
                return key
            if now - self._asked_at >= ASK_AGAIN_S:
                self._asked_at = now
                try:
                    self._keys = _keys_of(self._fetch(self._chosen.jwks_url))
                    self._fetched_at = now
                except (OSError, ValueError):
                    pass  # down: cached keys are used further; without one Unavailable is raised below
                key = self._cached(kid) if now - self._fetched_at < KEYS_STALE_S else None
            if key is not None:
                return key
            if now - self._fetched_at < KEYS_KEPT_S and self._fetched_at >= self._asked_at:
                raise NoCredential("the token is signed with a key that its issuer does not have")
            raise Unavailable(f"the keys of {self._chosen.issuer} cannot be had now; try again in {ASK_AGAIN_S:.0f} s")

    def _cached(self, kid: Json) -> PyJWK | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid) if isinstance(kid, str) else None


def check(chosen: JwtSettings) -> None:
    """Raise BadInput unless issuer, audience and JWKS address are https, or http on loopback."""
    for name in ("issuer", "audience", "jwks_url"):
        parts = urlsplit(getattr(chosen, name))
        local = parts.hostname in ("127.0.0.1", "localhost", "::1")
        if not parts.hostname or (parts.scheme != "https" and not (parts.scheme == "http" and local)):
            raise BadInput(f"http.jwt.{name} is {getattr(chosen, name)[:80]!r}; allowed is an https address")


def _keys_of(raw: bytes) -> Mapping[str, PyJWK]:
    """Return name -> key of a JWKS; keys of unknown kinds and symmetric ones are left out. Raises ValueError."""
    import jwt

    try:
        entries = items(record(parsed(raw))["keys"])
    except (KeyError, ValueError, RecursionError):
        raise ValueError("no JWKS") from None
    keys = {}
    for index, entry in enumerate(entries):
        try:
            key = dict(record(entry))
            if key.get("kty") in ("RSA", "EC", "OKP") and key.get("use", "sig") == "sig":
                keys[str(key.get("kid", index))] = jwt.PyJWK(key)
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
            continue
    if not keys:
        raise ValueError("no key that signs")
    return keys


def _named(claims: Record, claim: str) -> str:
    value = claims.get(claim)
    try:
        return scope_name(claim, value if isinstance(value, str) else "")
    except BadInput:
        raise NoCredential(f"the token's claim {claim!r} is no name; allowed is text without '|'") from None

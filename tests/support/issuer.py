"""An identity provider on loopback: public keys over HTTP, tokens of any claims."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

import jwt
from answering import Answering
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

OURS = "https://memory.example.org/mcp"


class IssuerNearby:
    """Serves its public keys; may be away, slow to know a key, or talk nonsense."""

    def __init__(self) -> None:
        self.keys = {"k1": Ed25519PrivateKey.generate()}
        self.answer: bytes | None = None
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                body = outer.jwks() if outer.answer is None else outer.answer
                self.send_response(200 if body else 500)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        self._server = Answering(Handler)
        self.url = self._server.url

    def jwks(self) -> bytes:
        listed = [
            {**json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"}
            for kid, key in self.keys.items()
        ]
        return json.dumps({"keys": listed}).encode()

    def token(self, kid: str = "k1", **claims: Any) -> str:
        import time

        now = int(time.time())
        said = {"iss": self.url, "aud": OURS, "sub": "eve", "exp": now + 60, "org": "acme", "roles": ["writer"]}
        whole = {name: value for name, value in {**said, **claims}.items() if value is not None}
        return jwt.encode(whole, self.keys[kid], algorithm="EdDSA", headers={"kid": kid})

    def close(self) -> None:
        self._server.close()

"""Attack: a request whose headers say two things, of which a proxy believes the one and the server the other.

Every request is written byte by byte to the socket of the real server, since no client sends such a thing.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from dashhouse import House
from serving import Served, bearer, core_to_serve, key_for

from memory_anchor.extensions.service.http_api import build_http
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock

BODY = json.dumps({"query": "whales"})
CHUNKED = f"{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"


@pytest.fixture
def held(tmp_path: Path, project: Path, clock: ManualClock) -> Iterator[Core]:
    with core_to_serve(tmp_path / "core", project, clock) as made:
        yield made


@pytest.fixture
def served(held: Core) -> Iterator[Served]:
    made = Served(build_http(held, held.settings))
    yield made
    made.close()


def said(served: Served, lines: Sequence[str], body: str = BODY, first: str = "POST /v1/memory/search HTTP/1.1") -> str:
    """Return the whole answer to a request, read until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as link:
        link.sendall("\r\n".join([first, *lines, "", body]).encode())
        answer = b""
        while piece := link.recv(65_536):
            answer += piece
    return answer.decode()


def lines_of(served: Served, core: Core, *more: str) -> list[str]:
    (credential,) = bearer(key_for(core, "acme")[0]).values()
    own = f"Host: 127.0.0.1:{served.port}"
    return [own, f"Authorization: {credential}", "Content-Type: application/json", *more]


def test_an_honest_request_is_answered_either_way(served: Served, held: Core) -> None:
    """The same requests with one header each: nothing below is refused for another reason."""
    close, length = "Connection: close", f"Content-Length: {len(BODY)}"
    origin = f"Origin: http://127.0.0.1:{served.port}"
    assert said(served, lines_of(served, held, close, length, origin)).startswith("HTTP/1.1 200")
    chunked = lines_of(served, held, close, "Transfer-Encoding: chunked")
    assert said(served, chunked, CHUNKED).startswith("HTTP/1.1 200")


@pytest.mark.parametrize(
    ("twice", "named"),
    [
        (("Origin: http://127.0.0.1", "Origin: https://evil.example"), "two origin headers"),
        (("Origin: https://evil.example", "Origin: http://127.0.0.1"), "two origin headers"),
        (("Origin: http://127.0.0.1", "Origin: http://127.0.0.1"), "two origin headers"),
        (("Host: evil.example",), ""),  # refused by the protocol itself
        (("X-KM-Project: one", "X-KM-Project: two"), "two x-km-project headers"),
        (("X-KM-Variant: one", "X-KM-Variant: two"), "two x-km-variant headers"),
        (("Content-Type: text/plain",), "two content-type headers"),
    ],
)
def test_a_header_that_decides_and_comes_twice_is_refused(
    served: Served, held: Core, twice: tuple[str, ...], named: str
) -> None:
    """Rule http.once: which of two counts is nobody's guess; one sentence names the header."""
    answer = said(served, lines_of(served, held, f"Content-Length: {len(BODY)}", *twice))
    assert answer.startswith("HTTP/1.1 400")
    assert named in answer


def test_a_body_of_two_lengths_is_refused_and_nothing_behind_it_is_read(served: Served, held: Core) -> None:
    """Rule http.once: what follows the shorter body would be a second request of whoever sent the first."""
    hidden = "\r\n".join(["GET /v1/version HTTP/1.1", *lines_of(served, held), "", ""])
    for length in (len(CHUNKED), 5, 0):
        both = lines_of(served, held, "Transfer-Encoding: chunked", f"Content-Length: {length}")
        answer = said(served, both, CHUNKED + hidden)
        assert answer.startswith("HTTP/1.1 400") and answer.count("HTTP/1.1") == 1, answer
        assert "both Content-Length and Transfer-Encoding" in answer


def test_the_dashboard_refuses_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule http.once: the same reading of headers before any page."""
    house = House(tmp_path / "dashboard")
    with house.here(monkeypatch):
        made = Served(house.browser().app)
        try:
            for more in (("Origin: http://a", "Origin: http://b"), ("Transfer-Encoding: chunked", "Content-Length: 5")):
                lines = [f"Host: 127.0.0.1:{made.port}", "Connection: close", *more]
                assert said(made, lines, "0\r\n\r\n", "POST /inbox HTTP/1.1").startswith("HTTP/1.1 400")
        finally:
            made.close()
            house.core.close()

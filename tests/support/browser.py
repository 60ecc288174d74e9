"""A browser without a window or JavaScript: it keeps cookies, sends Origin with forms, and reads forms off a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import anyio
import anyio.to_thread

PORT = 7878


@dataclass
class Answer:
    status: int
    headers: list[tuple[str, str]]
    text: str

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    @property
    def forms(self) -> list[Form]:
        reader = _Forms()
        reader.feed(self.text)
        return reader.forms

    def form(self, action: str, **having: str) -> Form:
        """Return the first form of this action whose fields have these values."""
        return next(
            one for one in self.forms if one.action == action and all(one.fields.get(k) == v for k, v in having.items())
        )


@dataclass
class Form:
    action: str
    fields: dict[str, str] = field(default_factory=dict)


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._text: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(given.get("action", "")))
        if not self.forms or "name" not in given:
            return
        if tag == "textarea":
            self._text = given["name"]
            self.forms[-1].fields[self._text] = ""
        elif tag == "input" and (given.get("type") not in ("radio", "checkbox") or "checked" in given):
            self.forms[-1].fields[given["name"]] = given.get("value", "")

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self.forms[-1].fields[self._text] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._text is not None:
            fields = self.forms[-1].fields
            fields[self._text] = fields[self._text].removeprefix("\n")
            self._text = None


class Browser:
    def __init__(self, app: Any, *, port: int = PORT, language: str = "en") -> None:
        self.app, self.host, self.cookies = app, f"127.0.0.1:{port}", {}
        self.language = language

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, b"", headers)

    def post(self, path: str, fields: dict[str, str], **headers: str) -> Answer:
        kept = {"content-type": "application/x-www-form-urlencoded", "origin": f"http://{self.host}"} | headers
        return self.ask("POST", path, urlencode(fields).encode(), kept)

    def send(self, form: Form, **fields: str) -> Answer:
        """Submit a form with some of its fields filled, and follow where it leads."""
        answer = self.post(
            form.action, form.fields | {name.replace("__", "."): value for name, value in fields.items()}
        )
        return self.get(answer.header("location")) if answer.status == 303 else answer

    def upload(self, form: Form, name: str, content: bytes, **fields: str) -> Answer:
        """Submit a form with a file, as a browser does."""
        mark = "----browser"
        parts = [
            f'--{mark}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
            for key, value in (form.fields | fields).items()
            if key != "file"
        ]
        head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        body = "".join(parts).encode() + head.encode() + content + f"\r\n--{mark}--\r\n".encode()
        kept = {"content-type": f"multipart/form-data; boundary={mark}", "origin": f"http://{self.host}"}
        return self.ask("POST", form.action, body, kept)

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        return anyio.run(self._ask, method, path, body, headers)

    def watch(self, path: str, meanwhile: Callable[[], object], *, until: str) -> Answer:
        """Return what a stream sent until it said this, then leave the page. meanwhile: done once it is open."""
        return anyio.run(self._ask, "GET", path, b"", {}, until, meanwhile)

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: dict[str, str],
        until: str = "",
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Answer:
        address, _, query = path.partition("?")
        sent = {"host": self.host, "accept-language": self.language} | headers
        if self.cookies:
            sent.setdefault("cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": address,
            "raw_path": address.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in sent.items()],
            "server": ("127.0.0.1", PORT),
            "client": ("127.0.0.1", 1),
            "state": {},
        }
        messages: list[dict[str, Any]] = []
        body_parts = [{"type": "http.request", "body": body, "more_body": False}]

        left = anyio.Event()

        async def receive() -> dict[str, Any]:
            if body_parts:
                return body_parts.pop()
            if until:
                await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)
            if message["type"] == "http.response.start":
                await anyio.to_thread.run_sync(meanwhile)
            elif until.encode() in message.get("body", b""):
                left.set()

        await self.app(scope, receive, send)
        head = [(name.decode(), value.decode()) for name, value in messages[0]["headers"]]
        for value in (value for name, value in head if name == "set-cookie"):
            name, _, rest = value.partition("=")
            self.cookies[name] = rest.partition(";")[0].strip('"')
        return Answer(messages[0]["status"], head, b"".join(one.get("body", b"") for one in messages[1:]).decode())

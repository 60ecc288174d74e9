"""Attack: a false engine and a false server against every command that asks for the passphrase.

The engine answers every call with one record that has every field any command reads. Each text in it holds marks that
are found again wherever they go. A command may sign a mark only after it showed it to the human (or the human typed
it), and a hash only of a text that it showed whole. The commands come from the table: a new one that can ask for the
passphrase fails here until it is tried.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commandtable import that_ask
from false_engine import FalseEngine
from typer.testing import CliRunner

from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.rights import purge_digest
from memory_anchor.extensions.devices import commands as devices
from memory_anchor.front.cli import care, constitution, init, keep, passphrase, review
from memory_anchor.front.cli.app import app
from memory_anchor.identity import signed_requests
from memory_anchor.identity.keys import Signer, digest_of
from memory_anchor.identity.statements import Decided, Statement
from memory_anchor.runtime import engine as runtime_engine
from memory_anchor.testing import PASSPHRASE, cheap_keys, human_of

MARK = re.compile(r"evil\d+x")
AT = "2026-01-02T03:04:05+00:00"
TEXT = 'version: "1"\nentries:\n  - id: goal\n    content: "{}"\n    priority: 0\n'
HANDLES = {("export_page", "after"): r"[0-9a-f-]{1,40}", ("export_page", "instant"): r"[0-9T:.+-]{1,40}"}
"""What a later page of an export is asked for by: of a fixed shape, and nothing that a human could read."""


@dataclass
class Liar:
    """Makes the false answers, and remembers every text that it told."""

    numbers: Iterator[int] = field(default_factory=itertools.count)
    texts: list[str] = field(default_factory=list)
    lists: list[list[dict[str, Any]]] = field(default_factory=list)

    def mark(self) -> str:
        return f"evil{next(self.numbers)}x"

    def text(self) -> str:
        """Return a text that is too long to be shown in part without losing a mark."""
        told = "\n".join(f"{self.mark()} {'and more of it ' * 20}{self.mark()}" for _ in range(3))
        self.texts.append(told)
        return told

    def memory(self, name: str) -> dict[str, Any]:
        memory = {"id": name, "version": 1, "content": self.text(), "type": "fact", "layer": "verified_fact"}
        scope = {"account": self.mark(), "project": self.mark(), "user": "", "agent": self.mark()}
        more = {
            "status": "pending",
            "origin": "agent",
            "confidence": 0.5,
            "recorded_at": AT,
            "tags": [],
            "citations": [],
        }
        return {
            **memory,
            **more,
            "scope": scope,
            "key": self.mark(),
            "where": None,
            "disputes": [],
            "when": AT,
            "citations": [],
        }

    def answer(self, call: str, given: Mapping[str, Any]) -> dict[str, Any]:
        named = [str(name) for name in (*(given.get("ids") or ()), *([given["id"]] if given.get("id") else ()))]
        if call == "purge_preview":
            names = named or [self.mark(), self.mark()]
            versions = [
                {"id": name, "versions": [{"version": n, "content": self.text()} for n in (1, 2)]} for name in names
            ]
            self.lists.append(versions)
            return {"memories": versions, "count": len(versions), "seen": self.mark()}
        memories = [self.memory(name) for name in (named or [f"1m8{self.mark()}"])]
        waiting = [{"memory": self.memory(self.mark()), "against": []} for _ in range(2)]
        disputed = {**self.memory(self.mark()), "status": "disputed"}
        waiting.append({"memory": disputed, "against": [self.memory(self.mark())]})
        project = {
            **{"id": f"proj{self.mark()}", "remotes": [self.mark()], "first_commits": [self.mark()], "here": True},
            **{"may_be": self.mark(), "why": self.mark(), "folders": [], "paths": [], "memories": 1},
        }
        source = {"id": self.mark(), "name": self.mark(), "documents": 1, "kind": "git_history", "trust": "trusted"}
        line = {"project": self.mark(), "id": self.mark(), "content": self.text()}
        said = {"what": "memory-anchor approver 1", "name": self.mark(), "public": self.mark()}
        return {
            **{"memories": memories, "memory": memories[0], "items": waiting, "projects": [project]},
            **{"sources": [source], "source": source, "lines": [line], "project": self.mark(), "said": said},
            **{"collections": ["verified_fact", self.mark()], "instant": AT, "after": None, "seen": self.mark()},
            **{"renamed": {"theirs": self.mark()}, "ids": [self.mark(), self.mark()], "statement": said},
            **{"outcome": "added", "id": self.mark(), "layer": "verified_fact", "status": "active", "reason": ""},
            **{"steps": [{"action": "restore", "id": self.mark(), "reason": self.mark()}], "left": [], "what": "x"},
            **{"versions": 2, "emptied": [], "removed": {}, "files": {}, "mentions": [], "still_in": [], "clean": True},
            **{"out_of_reach": [], "set_up": True, "sent": 0, "received": 0, "purged": 0, "disputed": 0, "notes": []},
            **{"unsigned": 2, "signed": 2, "generation": 1, "segment": 7, "folder": self.mark(), "left_behind": 0},
            **{"was": self.mark(), "errors": [], "added": 1, "skipped": 0, "written": 0, "pending": 0, "rejected": 0},
            **{"conflicts": 0, "done": True, "entries": 1, "name": self.mark(), "paused": False, "begun": False},
            **{"passages": 1, "documents": 1, "chunks": 1, "account": self.mark(), "keys": [], "by": self.mark()},
        }


class FalseServer:
    """What stands at the address that a human types: it answers every path of `/v1/review`."""

    def __init__(self, liar: Liar) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
                name = self.path.rpartition("/")[2]
                told = {"challenge": liar.mark()} if name == "challenge" else liar.answer(name, body)
                content = json.dumps(told).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass
class Watched:
    """One signature: what it says, and what had been on the screen when it was made."""

    statement: Statement
    arguments: Mapping[str, Any]
    screen: str


@dataclass
class Scene:
    """One human's installation with a false engine, a false server, and every signature that is made."""

    root: Path
    liar: Liar
    engine: FalseEngine
    server: FalseServer
    made: list[Watched] = field(default_factory=list)

    def run(self, line: list[str], typed: str) -> Any:
        with cheap_keys():
            return CliRunner().invoke(app, line, input=typed)

    def faults(self, line: list[str], typed: str) -> list[str]:
        """Return what signatures say that the human neither saw nor typed."""
        named = [*line, typed, PASSPHRASE]
        named += [Path(word).read_text(encoding="utf-8") for word in line if Path(word).is_file()]
        return [fault for one in self.made for fault in self._beyond(one, _squeezed("".join(named)))]

    def _beyond(self, one: Watched, typed: str) -> Iterator[str]:
        seen = _squeezed(one.screen)

        def unseen(text: str) -> list[str]:
            return [mark for mark in MARK.findall(text) if mark not in _marks(seen) and mark not in _marks(typed)]

        hashes = {stable_hash(text)[:32]: text for text in self.liar.texts}
        digests = {purge_digest(shown): json.dumps(shown) for shown in self.liar.lists}
        signed = {"statement": one.statement.record(), "arguments": one.arguments}
        for path, leaf in _leaves(signed):
            call = one.statement.call if isinstance(one.statement, Decided) else ""
            if shape := HANDLES.get((call, path[-1])):
                if not re.fullmatch(shape, leaf):
                    yield f"{path}: {leaf} is no handle"
                continue
            text = hashes.get(leaf.rpartition(":")[2], digests.get(leaf, leaf))
            if hidden := unseen(text):
                yield f"{'.'.join(path)}: {leaf} says {hidden}"
            if "seen" in path and text is leaf:
                yield f"{'.'.join(path)}: {leaf} is the name of nothing that was told"


def _squeezed(text: str) -> str:
    return "".join(text.replace("│", "").split())


def _marks(squeezed: str) -> set[str]:
    return set(MARK.findall(squeezed))


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(name, (*path, "name"))
            yield from _leaves(part, (*path, str(name)))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part, path)
    elif value is not None:
        yield path, str(value)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    data, project, home = tmp_path / "data", tmp_path / "project", tmp_path / "home"
    for folder in (data, project, home):
        folder.mkdir(exist_ok=True)
    (project / "constitution.yaml").write_text(TEXT.format("Keep the greenhouse at 21 degrees"), encoding="utf-8")
    for name, value in (("DATA_DIR", data), ("EMBEDDER__KIND", "none"), ("PROJECT_DIR", project)):
        monkeypatch.setenv(f"MEMORY_ANCHOR_{name}", str(value))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.chdir(project)
    for module in (passphrase, devices, care, keep):
        monkeypatch.setattr(module, "ask_hidden", lambda *_: PASSPHRASE)
    monkeypatch.setattr(passphrase, "_ask_on_tty", lambda: PASSPHRASE)
    monkeypatch.setitem(runtime_engine.stop.__kwdefaults__, "wait_s", 0.5)  # a false engine never ends
    for module in (passphrase, review):
        monkeypatch.setattr(module, "check_keyboard", lambda: None)
    monkeypatch.setattr(constitution, "check_terminal", lambda **_: None)
    monkeypatch.setattr(constitution.getpass, "getpass", lambda *_: PASSPHRASE)
    asker = init._Asker
    monkeypatch.setattr(init, "_Asker", lambda _, takes_defaults, as_json: asker(True, takes_defaults, as_json))
    monkeypatch.setattr(devices, "_device", lambda _: SimpleNamespace(folder_id="shared", folder=str(home)))
    human_of(data)
    liar = Liar()
    engine, server = FalseEngine(data, liar.answer), FalseServer(liar)
    scene = Scene(tmp_path, liar, engine, server)
    arguments: dict[str, Mapping[str, Any]] = {}
    decision, signed = signed_requests.decision, Signer._signed

    def note_decision(call: str, given: Mapping[str, Any], *rest: Any, **more: Any) -> Decided:
        arguments[digest_of(given)] = given
        return decision(call, given, *rest, **more)

    def note_signature(self: Signer, statement: Statement, *rest: Any) -> str:
        screen = ""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            screen += stream.buffer.getvalue().decode()  # type: ignore[attr-defined]
        of = arguments[statement.arguments] if isinstance(statement, Decided) else {}
        scene.made.append(Watched(statement, of, screen))
        return signed(self, statement, *rest)

    monkeypatch.setattr(signed_requests, "decision", note_decision)
    monkeypatch.setattr(Signer, "_signed", note_signature)
    try:
        yield scene
    finally:
        engine.close()
        server.close()


EXPORTED = {"id": "1m83pvrpgtsjv", "version": 1, "content": "Ferries leave at nine", "project": "theirs"}
PUBLIC = "6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw="


def _file(root: Path, name: str, content: str) -> str:
    (root / name).write_text(content, encoding="utf-8")
    return str(root / name)


TRIES: dict[str, list[tuple[list[str], str]]] = {
    "add": [(["add", "Tea at four", "--human"], "")],
    "log": [(["log", "The ferry left", "--human"], "")],
    "edit": [(["edit", "9m8x", "New words", "--human"], "")],
    "pin": [(["pin", "9m8x", "--human"], "")],
    "unpin": [(["unpin", "9m8x", "--human"], "")],
    "forget": [(["forget", "9m8x", "--human"], "")],
    "restore": [(["restore", "9m8x", "--human"], "")],
    "undo": [(["undo", "last", "--yes", "--human"], "")],
    "pause": [(["pause", "--off"], "")],
    "purge": [
        (["purge", "9m8x"], "y\n"),
        (["purge", "9m8x", "9m9x", "--json"], ""),
        (["purge", "--matching", "ferries", "--yes"], ""),
    ],
    "review": [
        (["review"], "a\na\nn\n"),
        (["review"], "e\nother words\nA\ny\ns\n"),
        (["review"], "a\nu\nR\ny\no\n"),
        (["review"], "s\ns\nm\nboth\n"),
        (["review", "--accept", "9m8x", "--json"], ""),
        (["review", "--accept", "9m8x", "--reject", "9m9x"], ""),
        (["review", "--settle", "9m8x", "--resolution", "keep_new"], ""),
        (["review", "--server", "URL", "--key-file", "KEY", "--accept", "1m83pvrpgtsjv"], ""),
        (["review", "--server", "URL", "--key-file", "KEY"], "a\nr\nn\n"),
        (["review", "--server", "URL", "--key-file", "KEY"], "A\ny\n"),
    ],
    "export": [(["export", "OUT", "--human"], ""), (["export", "-", "--human", "--versions"], "")],
    "import": [(["import", "LINES", "--human"], ""), (["import", "LINES", "--human", "--project", "here"], "")],
    "knowledge add": [(["knowledge", "add", "PROJECT", "--human"], "")],
    "knowledge remove": [(["knowledge", "remove", "1m8", "--human"], "")],
    "lorebook add": [(["lorebook", "add", "BOOK", "--human"], "")],
    "lorebook remove": [(["lorebook", "remove", "book", "--human"], "")],
    "projects link": [(["projects", "link", "proj"], ""), (["projects", "link"], "y\n")],
    "projects move": [(["projects", "move", "proj", "--folder", "PROJECT"], ""), (["projects", "move", "proj"], "")],
    "projects merge": [(["projects", "merge", "proj", "other"], ""), (["projects", "merge", "proj", "--undo"], "")],
    "sync setup": [(["sync", "setup", "SHARED"], "")],
    "sync now": [(["sync", "now", "--human"], "")],
    "sync revoke": [(["sync", "revoke", "phone"], "")],
    "keys create": [(["keys", "create", "--user", "eve"], "")],
    "init": [(["init", "--client", "none", "--no-history"], "")],
    "constitution propose": [(["constitution", "propose", "Water at dawn", "--reason", "dry", "--human"], "")],
    "constitution adopt": [(["constitution", "adopt"], "")],
    "constitution found": [(["constitution", "--account", "acme", "found", "TEXT"], "")],
    "constitution approve": [(["constitution", "approve", "p-0123456789"], "")],
    "constitution reject": [(["constitution", "reject", "p-0123456789", "--reason", "no"], "")],
    "constitution rules": [(["constitution", "rules", "--min-interval-s", "5"], "")],
    "constitution trust": [(["constitution", "trust", "zoe", PUBLIC], "")],
    "migrate": [(["migrate", "--to", "qdrant://127.0.0.1:9"], "")],
    "backup restore": [(["backup", "restore", "TEXT", "--force"], "")],
}
"""Command -> lines, each with what is typed at its prompts. Words in capitals are filled in."""
SIGNS_NOTHING = {"constitution rules", "migrate", "backup restore", "constitution propose", "sync revoke", "sync setup"}
"""Commands whose passphrase only opens the key, or whose lines here end before a signature (tried elsewhere)."""
ENDS_EARLY = {"constitution adopt", "constitution approve", "constitution reject"}
"""Local decisions about proposals that are not there; `test_proposals` and others try them with what was swapped."""


def test_every_command_that_asks_for_the_passphrase_is_tried() -> None:
    """Rule: found by walking the table of commands, so that a new one is tried here before it is released."""
    assert that_ask() == TRIES.keys()


@pytest.mark.parametrize(
    ("name", "line", "typed"), [(name, line, typed) for name, lines in TRIES.items() for line, typed in lines]
)
def test_no_signature_says_more_than_was_shown(scene: Scene, name: str, line: list[str], typed: str) -> None:
    """Attack: everything that the engine or the server says is a lie; what is signed was on the screen before."""
    places = {
        "URL": scene.server.url,
        "KEY": _file(scene.root, "key", f"ma_{'a' * 8}_{'b' * 52}"),
        "OUT": str(scene.root / "out.jsonl"),
        "LINES": _file(scene.root, "lines.jsonl", json.dumps(EXPORTED) + "\n"),
        "PROJECT": str(scene.root / "project"),
        "BOOK": _file(scene.root, "book.json", json.dumps({"entries": {"0": {"key": ["a"], "content": "b"}}})),
        "SHARED": str(scene.root / "home"),
        "TEXT": _file(scene.root, "text.yaml", TEXT.format("Ship anvils on time")),
    }
    filled = [places.get(word, word) for word in line]

    done = scene.run(filled, typed)

    assert not scene.faults(filled, typed), done.output[-500:]
    if name not in SIGNS_NOTHING | ENDS_EARLY:
        assert scene.made, f"{done.exception!r} {done.output[-500:]}"


def test_the_liar_is_noticed(scene: Scene) -> None:
    """The test itself: a hash that the engine gave, and an id that was never shown, are found in a signature."""
    hidden = scene.liar.text()
    for seen in (scene.liar.mark(), f"1m8@1:{stable_hash(hidden)[:32]}", hashlib.sha256(b"x").hexdigest()):
        scene.made[:] = [Watched(Decided("accept", "", {}, ""), {"id": "1m8", "seen": [seen]}, "1m8")]
        assert scene.faults(["review"], ""), seen

"""The tools that `scripts/compare` measures: how each is installed, started, given a text and asked.

A class a tool, with nothing but what differs; all are spoken to through `Door`, an MCP client over stdio.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[1]
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "compare", "version": "1"}}
NOT_KEPT = ("MEMORY_ANCHOR", "CLAUDE", "PYTHONDONTWRITEBYTECODE", "OPENAI", "MCP_")
ANSWER_S = 180.0
DIMENSIONS = 384
SQLITE = "pysqlite3-binary==0.5.4.post2"


class Failed(Exception):
    """A tool said no, ended, or did not answer; its own words."""


def clean() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_KEPT)}
    return {**kept, "DO_NOT_TRACK": "1", "MEM0_TELEMETRY": "False"}


def run(command: Sequence[str], **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        said = [one for one in (done.stderr or done.stdout).splitlines() if one.strip()]
        raise Failed(said[-1] if said else f"{command[0]} ended with {done.returncode}")
    return done.stdout


def npm_install(home: Path, packages: Sequence[str]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    run(["npm", "install", "--no-audit", "--no-fund", "--silent", *packages], cwd=home)


def safe(name: str) -> str:
    """Return a turn's id as a name that a file may have."""
    return name.replace(":", ".")


class Door:
    """An MCP server over stdio; calls may be made from several threads at once."""

    def __init__(self, command: Sequence[str], env: dict[str, str], cwd: Path) -> None:
        self.began = time.perf_counter()
        self.errors = cwd / f"stderr-{uuid.uuid4().hex[:6]}.txt"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env, cwd=cwd
            )
        self._waiting: dict[int, tuple[threading.Event, list[dict[str, Any]]]] = {}
        self._lock = threading.Lock()
        self._last, self._gone = 0, False
        self.shown = ""  # the last answer as Claude Code and Codex show it: its JSON where it has some, else its text
        threading.Thread(target=self._read, daemon=True).start()
        self.call("initialize", HELLO)
        self.ready_s = time.perf_counter() - self.began
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Failed(self.last_words()) from error

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError, AttributeError):  # a line that is no message
                message = json.loads(line)
                with self._lock:
                    waiter = self._waiting.pop(message.get("id"), None)
                if waiter:
                    waiter[1].append(message)
                    waiter[0].set()
        with self._lock:
            self._gone = True
            for event, _ in self._waiting.values():
                event.set()

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return a result. Raises Failed: an error, no answer, or the server ended."""
        event, answer = threading.Event(), list[dict[str, Any]]()
        with self._lock:
            if self._gone:
                raise Failed(self.last_words())
            self._last += 1
            number = self._last
            self._waiting[number] = (event, answer)
            self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        if not event.wait(ANSWER_S):
            raise Failed(f"no answer within {ANSWER_S:.0f} s")
        if not answer:
            raise Failed(self.last_words())
        if "error" in answer[0]:
            raise Failed(str(answer[0]["error"].get("message")))
        result: dict[str, Any] = answer[0]["result"]
        return result

    def tool(self, name: str, arguments: dict[str, Any], meta: dict[str, Any] | None = None) -> str:
        """Return the text of a tool's answer. Raises Failed: it is an error."""
        params = {"name": name, "arguments": arguments, **({"_meta": meta} if meta else {})}
        result = self.call("tools/call", params)
        text = "\n".join(part.get("text", "") for part in result.get("content", ()))
        structured = result.get("structuredContent")
        self.shown = json.dumps(structured, ensure_ascii=False) if structured else text
        if result.get("isError"):
            raise Failed(text)
        return text

    def last_words(self) -> str:
        """Return the last line that says something of what a server that ended wrote to stderr."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        lines = self.errors.read_text("utf-8", errors="replace").splitlines()
        return next((one.strip() for one in reversed(lines) if re.search(r"[A-Za-z]{3}", one)), "it ended")

    def close(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Opened(Protocol):
    """A folder of data of a tool: `scripts/compare` has it."""

    data: Path
    env: dict[str, str]

    def open(self) -> Door: ...

    def save(self, door: Door, text: str, name: str, session: str = "") -> str: ...


class Peer:
    """How a tool is installed, started, given a text and asked; a subclass says only what differs."""

    name = version = note = note_zh = ""
    packages: tuple[str, ...] = ()
    needs_python = "3.11"
    embeds = False

    def __init__(self, home: Path) -> None:
        self.home = home / self.name.replace(" ", "-")

    def install(self) -> None:
        python = shutil.which(f"python{self.needs_python}") or sys.executable
        run([python, "-m", "venv", str(self.home)])
        run([self.bin("pip"), "-q", "install", "--no-input", *self.packages])
        if SQLITE in self.packages:  # a Python without loadable extensions: that of a package in its place
            line = (
                "import sys, pysqlite3; sys.modules.update({'sqlite3': pysqlite3, 'sqlite3.dbapi2': pysqlite3.dbapi2})"
            )
            next(self.home.glob("lib/python*/site-packages")).joinpath("loadable.pth").write_text(line + "\n")

    def bin(self, name: str) -> str:
        return str(self.home / "bin" / name)

    def command(self) -> list[str]:
        raise NotImplementedError

    def arguments(self, data: Path, lent: str) -> list[str]:
        """Return what its command gets besides."""
        return []

    def env(self, data: Path, lent: str) -> dict[str, str]:
        """Return what it needs in its environment; lent: the address of the embedder, empty for none."""
        return {}

    def save(self, text: str, name: str, session: str) -> dict[str, Any]:
        """Return the arguments of `Door.tool` that store a text."""
        raise NotImplementedError

    def ask(self, question: str, limit: int | None) -> dict[str, Any]:
        """Return those that search, with the tool's own number of results where limit is None."""
        raise NotImplementedError

    def fill(self, store: Opened, turns: Sequence[Any]) -> Door:
        """Store the turns of a case; return the server that is asked then."""
        door = store.open()
        for turn in turns:
            store.save(door, turn.text, safe(turn.id), f"s{turn.conversation}")
        return door

    def refused(self, answer: str) -> bool:
        """Say whether an answer without an error still says that nothing was stored or searched."""
        return False

    def settle(self, door: Door) -> None:
        """Wait until what was saved can be found by all means that the tool has."""

    def stored(self, door: Door, data: Path) -> str:
        """Return everything that is in the store, as one text."""
        raise NotImplementedError

    def names(self, answer: str) -> list[str] | None:
        """Return the names of the memories that an answer lists, best first; None: it quotes them instead."""
        return None

    def sessions(self, answer: str) -> list[str] | None:
        """Return the sessions that an answer lists, best first; None: those of its memories."""
        return None


class Ours(Peer):
    name, packages = "Memory Anchor", (str(ROOT),)
    note = "an answer is counted as JSON; what `memory-anchor install` sets up has lines only, which cost less."
    note_zh = "回答按 JSON 计数；`memory-anchor install` 设置的只有文本行，更省。"
    needs_python = f"{sys.version_info.major}.{sys.version_info.minor}"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.version = run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]).strip()

    def command(self) -> list[str]:
        return [self.bin("memory-anchor"), "mcp"]

    def env(self, data: Path, lent: str) -> dict[str, str]:
        return {"MEMORY_ANCHOR_DATA_DIR": str(data / "memory"), "MEMORY_ANCHOR_PROJECT_DIR": str(data)}

    def save(self, text: str, name: str, session: str) -> dict[str, Any]:
        meta = {"memory-anchor/conversation_id": session} if session else None
        when = re.match(r"\[(\d+ \w+ \d{4})\]", text)
        dated = {"when": datetime.strptime(when[1], "%d %B %Y").date().isoformat()} if when else {}
        return {"name": "log_event", "arguments": {"content": text, "ttl_days": 0, **dated}, "meta": meta}

    def ask(self, question: str, limit: int | None) -> dict[str, Any]:
        return {"name": "search_memory", "arguments": {"query": question, **({"limit": limit} if limit else {})}}

    def settle(self, door: Door) -> None:
        for _ in range(1200):
            stats = json.loads(door.call("resources/read", {"uri": "memory://stats"})["contents"][0]["text"])
            if not stats.get("unembedded"):
                return
            time.sleep(0.5)
        raise Failed("not embedded after 600 s")

    def stored(self, door: Door, data: Path) -> str:
        env = {**clean(), **self.env(data, "")}
        return run([self.bin("memory-anchor"), "list", "--limit", "1000", "--json"], env=env, cwd=data)


class ServerMemory(Peer):
    name, version = "server-memory", "2026.8.31"
    packages = (f"@modelcontextprotocol/server-memory@{version}",)
    note = "asked by the longest lower-case word of a question, since it looks for all of what it is asked, unranked."
    note_zh = "用每个问题里最长的小写词去问：它按整串文字查找，不排序。"

    def install(self) -> None:
        npm_install(self.home, self.packages)

    def command(self) -> list[str]:
        return ["node", str(self.home / "node_modules/@modelcontextprotocol/server-memory/dist/index.js")]

    def env(self, data: Path, lent: str) -> dict[str, str]:
        return {"MEMORY_FILE_PATH": str(data / "memory.jsonl")}

    def save(self, text: str, name: str, session: str) -> dict[str, Any]:
        entity = {"name": name, "entityType": "turn", "observations": [text]}
        return {"name": "create_entities", "arguments": {"entities": [entity]}}

    def ask(self, question: str, limit: int | None) -> dict[str, Any]:
        longest = max(re.findall(r"\w+", question), key=lambda word: (word[0].islower(), len(word)))
        return {"name": "search_nodes", "arguments": {"query": longest}}

    def stored(self, door: Door, data: Path) -> str:
        return door.tool("read_graph", {})


class BasicMemory(Peer):
    name, version, needs_python, embeds = "basic-memory", "0.24.1", "3.12", True
    note = "for recall its notes are written as files and indexed by its `reindex`, since a save takes it a second."
    note_zh = "测召回时笔记写成文件，再由它的 `reindex` 建索引，因为保存一条要一秒。"
    packages = (f"basic-memory=={version}", SQLITE)

    def command(self) -> list[str]:
        return [self.bin("basic-memory"), "mcp"]

    def env(self, data: Path, lent: str) -> dict[str, str]:
        own = {"PROVIDER": "openai", "MODEL": "e5", "API_BASE": lent, "API_KEY": "none", "DIMENSIONS": str(DIMENSIONS)}
        return {f"BASIC_MEMORY_SEMANTIC_EMBEDDING_{key}": value for key, value in own.items()} if lent else {}

    def save(self, text: str, name: str, session: str) -> dict[str, Any]:
        return {"name": "write_note", "arguments": {"title": name, "content": text, "directory": session or "notes"}}

    def fill(self, store: Opened, turns: Sequence[Any]) -> Door:
        """Write the notes as files, as its users may, and index them once: saving each takes it a second."""
        store.open().close()
        for turn in turns:
            note = store.data / "basic-memory" / f"s{turn.conversation}" / f"{safe(turn.id)}.md"
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(f"---\ntitle: {safe(turn.id)}\ntype: note\n---\n\n{turn.text}\n", encoding="utf-8")
        run([self.bin("basic-memory"), "reindex"], env=store.env, cwd=store.data)
        return store.open()

    def ask(self, question: str, limit: int | None) -> dict[str, Any]:
        return {"name": "search_notes", "arguments": {"query": question, **({"page_size": limit} if limit else {})}}

    def refused(self, answer: str) -> bool:
        return answer.startswith(("# Search Failed", "# Error", "Error"))

    def names(self, answer: str) -> list[str] | None:
        return re.findall(r"^### (\S+)$", answer, re.MULTILINE)

    def stored(self, door: Door, data: Path) -> str:
        return "\n".join(note.read_text("utf-8") for note in (data / "basic-memory").rglob("*.md"))


class McpMemoryService(Peer):
    name, version, needs_python, embeds = "mcp-memory-service", "12.4.0", "3.12", True
    note = "with the lent embedder its semantic deduplication is off: by its threshold nearly all texts are alike then."
    note_zh = "用借来的嵌入模型时关掉它的语义去重：按它的阈值，几乎所有文本都算相同。"
    packages = (f"mcp-memory-service=={version}", SQLITE)

    def command(self) -> list[str]:
        return [self.bin("memory"), "server"]

    def env(self, data: Path, lent: str) -> dict[str, str]:
        own = {"MCP_EXTERNAL_EMBEDDING_URL": f"{lent}/embeddings", "MCP_SEMANTIC_DEDUP_ENABLED": "false"}
        return own if lent else {}

    def save(self, text: str, name: str, session: str) -> dict[str, Any]:
        more = {"conversation_id": session} if session else {}
        return {"name": "memory_store", "arguments": {"content": text, **more}}

    def ask(self, question: str, limit: int | None) -> dict[str, Any]:
        return {"name": "memory_search", "arguments": {"query": question, **({"limit": limit} if limit else {})}}

    def refused(self, answer: str) -> bool:
        return answer.startswith("Error")

    def stored(self, door: Door, data: Path) -> str:
        pages = (door.tool("memory_list", {"page": number, "page_size": 100}) for number in range(1, 6))
        return "\n".join(pages)


class Mem0(Peer):
    name, version, needs_python, embeds = "mem0", "2.2.1", "3.12", True
    note = "no MCP server of its own: its Python API, with `infer=False`, so that no model rewrites what is saved."
    note_zh = "没有自己的 MCP 服务器：用它的 Python API，`infer=False`，没有模型改写保存的内容。"
    packages = (f"mem0ai=={version}",)
    driver = """
import json, os, sys
from mem0 import Memory
data, url = sys.argv[1:]
own = {"openai_base_url": url, "api_key": "none"}
config = {"vector_store": {"provider": "qdrant", "config": {"path": data + "/qdrant", "on_disk": True}}}
config["history_db_path"] = data + "/history.db"
if url:
    config["vector_store"]["config"]["embedding_model_dims"] = 384
    config |= {"embedder": {"provider": "openai", "config": {**own, "embedding_dims": 384}}}
    config |= {"llm": {"provider": "openai", "config": own}}
memory, answers = Memory.from_config(config), os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    asked = json.loads(line)
    params, result = asked.get("params", {}), {"tools": []}
    if asked["method"] == "tools/call":
        try:
            found = getattr(memory, params["name"])(**params["arguments"])
            result = {"content": [{"type": "text", "text": json.dumps(found, ensure_ascii=False, default=str)}]}
        except Exception as error:
            result = {"isError": True, "content": [{"type": "text", "text": f"{type(error).__name__}: {error}"}]}
    if "id" in asked:
        print(json.dumps({"id": asked["id"], "result": result}), file=answers, flush=True)
"""

    def command(self) -> list[str]:
        return [self.bin("python"), "-c", self.driver]

    def arguments(self, data: Path, lent: str) -> list[str]:
        return [str(data), lent]

    def save(self, text: str, name: str, session: str) -> dict[str, Any]:
        return {"name": "add", "arguments": {"messages": text, "user_id": "one", "infer": False}}

    def ask(self, question: str, limit: int | None) -> dict[str, Any]:
        more = {"top_k": limit} if limit else {}
        return {"name": "search", "arguments": {"query": question, "filters": {"user_id": "one"}, **more}}

    def stored(self, door: Door, data: Path) -> str:
        return door.tool("get_all", {"filters": {"user_id": "one"}, "top_k": 100_000})


class DejaVu(Peer):
    name = "deja-vu"
    note = (
        "it reads session files, so turns are written as such; `remember` saves; an answer lists sessions with lines."
    )
    note_zh = "它读取会话文件，所以轮次写成会话文件，保存用 `remember`；回答列出会话和其中几行。"
    checkout: Path | None = None

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.version = run(["git", "-C", str(self.checkout), "describe", "--tags", "--always"]).strip()

    def install(self) -> None:
        self.home.mkdir(parents=True)
        run(["go", "build", "-o", self.bin("deja"), "./cmd/deja"], cwd=self.checkout)

    def command(self) -> list[str]:
        return [self.bin("deja"), "mcp"]

    def save(self, text: str, name: str, session: str) -> dict[str, Any]:
        return {"name": "remember", "arguments": {"text": text}}

    def fill(self, store: Opened, turns: Sequence[Any]) -> Door:
        """Write the turns as a client's session files, which is what it reads."""
        folder = store.data / ".claude" / "projects" / "-work-talk"
        folder.mkdir(parents=True)
        for number, turn in enumerate(turns):
            at = ((turn.when or datetime(2026, 1, 1, tzinfo=UTC)) + timedelta(seconds=number)).isoformat()
            line = {"type": "user", "sessionId": f"s{turn.conversation}", "cwd": "/work/talk", "timestamp": at}
            line["message"] = {"role": "user", "content": turn.text}
            with (folder / f"s{turn.conversation}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        run([self.bin("deja"), "index"], env=store.env)
        return store.open()

    def ask(self, question: str, limit: int | None) -> dict[str, Any]:
        return {"name": "recall", "arguments": {"query": question, **({"limit": limit} if limit else {})}}

    def sessions(self, answer: str) -> list[str] | None:
        return re.findall(r"^\d+\. \[\w+\].*? · s(\w+) · ", answer, re.MULTILINE)

    def stored(self, door: Door, data: Path) -> str:
        return (data / ".local/share/deja/notes.jsonl").read_text("utf-8")


PEERS: tuple[type[Peer], ...] = (Ours, ServerMemory, BasicMemory, McpMemoryService, Mem0, DejaVu)

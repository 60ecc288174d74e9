"""What an agent puts in the engine's place: it stands where `run/engine.json` leads and answers as an engine would."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory_anchor.identity.signed_requests import CHALLENGE_CALL

Answers = Callable[[str, dict[str, Any]], dict[str, Any]]


class FalseEngine:
    """heard: every line that came. answers: of a call's name and arguments; a challenge is always handed out."""

    def __init__(self, data: Path, answers: Answers, *, kind: str = "unix") -> None:
        self.heard: list[bytes] = []
        self._answers = answers
        self._listener = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
        where = str(data.parent / "false.sock") if kind == "unix" else ("127.0.0.1", 0)
        self._listener.bind(where)
        self._listener.listen()
        address = {"unix": where} if kind == "unix" else {"tcp": self._listener.getsockname()[1], "token": "t" * 32}
        (data / "run").mkdir(parents=True, exist_ok=True)
        state = {"pid": os.getpid(), "version": "0.1.0", "state": "serving", "address": address}
        (data / "run" / "engine.json").write_text(json.dumps(state))
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> FalseEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            with link, link.makefile("rb") as lines:
                line = lines.readline()
                if line.endswith(b"\n"):
                    self.heard.append(line)
                    asked = json.loads(line)
                    name, given = str(asked.get("name")), asked.get("arguments") or {}
                    told = {"challenge": "c" * 32} if name == CHALLENGE_CALL else self._answers(name, given)
                    link.sendall(json.dumps({"anchor": 1, "ok": True, "result": told}).encode() + b"\n")

    def close(self) -> None:
        self._listener.close()

"""The examples of the HTTP page, sent to a served memory, the writes first: each answer says what is shown."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from serving import bearer, core_to_serve, key_for, serving

from memory_anchor.testing import ManualClock

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
EXAMPLE = re.compile(r"^```sh\n(curl .*?)\n```\n\n```json\n(.*?)\n```", re.DOTALL | re.MULTILINE)


def holds(answer: Any, shown: Any) -> bool:
    """Whether an answer has all that is shown of it: names, values, the first of a list; "…" stands for anything."""
    if isinstance(shown, dict):
        return isinstance(answer, dict) and all(name in answer and holds(answer[name], shown[name]) for name in shown)
    if isinstance(shown, list):
        return isinstance(answer, list) and len(answer) >= len(shown) and all(map(holds, answer, shown))
    return shown == "…" or bool(answer == shown)


def test_every_example_of_the_http_page_is_answered_as_shown(tmp_path: Path, project: Path, clock: ManualClock) -> None:
    """Rule docs: every request shown is sent by a test; the paths that agents live by have one."""
    examples = sorted(EXAMPLE.findall(PAGE.read_text("utf-8")), key=lambda one: not re.search("/(store|log)", one[0]))
    shown = []
    with core_to_serve(tmp_path / "core", project, clock) as core, serving(core) as served:
        key, _ = key_for(core, "acme", user="eve")
        for command, answer in examples:
            words = shlex.split(command.replace("$KEY", key).replace("$URL", served.base))
            program, _, flag, header, address, *body = words
            path = address.removeprefix(served.base)
            more = {"json": json.loads(body[1])} if body else {}
            said = served.ask("POST" if body else "GET", path, headers=bearer(key), **more)
            shown.append(path)

            assert (program, flag, header) == ("curl", "-H", f"Authorization: Bearer {key}")
            assert said.status_code in (200, 202), said.text
            assert holds(said.json(), json.loads(answer)), f"{command}\n{json.dumps(said.json(), ensure_ascii=False)}"

    wanted = {"ready", "memory/store", "memory/search", "memory/log", "memory/events", "memory/context", "ingest"}
    assert {f"/v1/{name}" for name in wanted} <= set(shown)
    assert not holds({"a": 1}, {"a": 2}) and not holds({"a": []}, {"a": ["…"]}) and not holds({}, {"a": "…"})

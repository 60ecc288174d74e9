"""A walk over the commands: ids by their beginning, layers by number, times in words, wherever they are taken."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import make_commands
import pytest
from human_seat import Seat
from typer.testing import Result

from memory_anchor.domain.model import Layer
from memory_anchor.domain.requests.fields import Moment
from memory_anchor.extensions.knowledge import commands as knowledge
from memory_anchor.extensions.lorebook import commands as lorebooks
from memory_anchor.front.cli import care, memories
from memory_anchor.front.cli.generated import Command
from memory_anchor.front.cli.shorthand import parse_time
from memory_anchor.front.table import ROWS
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

Run = Callable[..., Result]
GENERATED = (*memories.COMMANDS, *care.COMMANDS, *knowledge.COMMANDS, *lorebooks.COMMANDS)
ZONE = "Asia/Shanghai"


def fields(kind: object) -> Iterator[tuple[Command, str, str]]:
    """Yield (command, its option, the field) of every generated command whose field is of this kind."""
    for command in GENERATED:
        for option, name in command._fields():
            if kind in list(make_commands.kinds_in(ROWS[command.call_name].request.model_fields[name].annotation)):
                yield command, option, name


WAYS: dict[str, list[str]] = {
    "edit": ["ID", "We use uv 0.9"],
    "show": ["ID"],
    "history": ["ID"],
    "why-not": ["ID", "what makes environments"],
    "forget": ["ID"],
    "restore": ["ID"],
    "due": ["--done", "ID"],
    "pin": ["ID"],
    "add": ["We use uv 1.0 now", "--replaces", "ID"],
}
"""Every generated command with an id, in an order in which each can be done; `unpin` is a human's."""


def test_every_command_takes_the_beginning_of_an_id(run: Run, core: Core, anchor: MemoryAnchor) -> None:
    """Rule cli.ids: what names one memory is enough, and several are told."""
    id = str(anchor.save_memory("We use uv, not pip", tags=["todo"]).id)
    named = {
        command.name for command in GENERATED for _, name in command._fields() if name in ("id", "replaces", "done")
    }
    assert named == set(WAYS) | {"unpin"}

    for name, words in WAYS.items():
        if name == "add":  # the next one may share all but the last sign of its id
            assert run("eval", "--save", "what makes environments", "--expects", id[:12]).exit_code == 0
            assert json.loads(run("show", f"{id[:12]}@1", "--json").stdout)["memory"]["version"] == 1
        result = run(name, *(id[:12] if word == "ID" else word for word in words))
        assert result.exit_code == 0, (name, result.output)
    several = run("show", f"{id[:9]}@1")
    assert several.exit_code == 2 and "begins 2 ids" in several.stderr


@pytest.mark.parametrize("layer", [f"L{number}" for number in range(5)] + [layer.value for layer in Layer])
def test_every_option_that_takes_a_layer_takes_its_number(run: Run, core: Core, layer: str) -> None:
    """Rule cli.layers: L0 to L4 and their names; a layer that cannot be meant is refused with where it lives."""
    taking = {(command.name, option) for command, option, _ in fields(Layer)}
    assert taking == {("search", "layer"), ("list", "layer"), ("add", "layer")}

    for name, words in {"search": ["uv"], "list": [], "add": ["We use uv, not pip"]}.items():
        result = run(name, *words, "--layer", layer)
        means = Layer.EVENT_LOG.value in layer or Layer.VERIFIED_FACT.value in layer or layer in ("L2", "L3")
        means = means or name == "search" or (name == "list" and layer in ("L0", "identity_schema"))
        assert result.exit_code == 0 or not means, (name, result.output)
        assert (
            result.exit_code == 0
            or "memory-anchor" in result.stderr
            or "only humans" in result.stderr
            or "(" in result.stderr
        )


SAID = {
    "yesterday": "2026-11-22T00:00",
    "昨天": "2026-11-22T00:00",
    "last Monday": "2026-11-16T00:00",
    "上周一": "2026-11-16T00:00",
    "3 days ago": "2026-11-20T00:00",
    "三天前": "2026-11-20T00:00",
    "yesterday 10:00": "2026-11-22T10:00",
    "昨天下午3点": "2026-11-22T15:00",
    "昨天上午九点半": "2026-11-22T09:30",
    "last week": "2026-11-16T00:00",
    "上个月": "2026-10-01T00:00",
    "Nov 3": "2026-11-03T00:00",
    "11月3日": "2026-11-03T00:00",
    "January": "2026-01-01T00:00",
    "2025": "2025-01-01T00:00",
    "2026-11-01": "2026-11-01T00:00",
    "noon": "2026-11-23T12:00",
    "yesterday at noon": "2026-11-22T12:00",
    "5:30 p.m.": "2026-11-23T17:30",
    "12am": "2026-11-23T00:00",
    "22:00": "2026-11-22T22:00",
    "3 Nov 2025 at 14:30": "2025-11-03T14:30",
    "2026/11/01 10:00": "2026-11-01T10:00",
    "05/08/2023": "2023-05-08T00:00",
    "13/08/2023": "2023-08-13T00:00",
    "tomorrow 9am": "2026-11-24T09:00",
    "in 2 hours": "2026-11-23T22:30",
    "2h": "2026-11-23T18:30",
    "20 mins ago": "2026-11-23T20:10",
    "3天后": "2026-11-26T20:30",
    "now": "2026-11-23T20:30",
    "昨晚8点": "2026-11-22T20:00",
    "下周一上午9点": "2026-11-30T09:00",
    "昨天凌晨两点": "2026-11-22T02:00",
    "十五点": "2026-11-23T15:00",
    "中午1点": "2026-11-23T13:00",
}


@pytest.mark.parametrize("written", SAID)
def test_times_are_read_as_people_write_them(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule cli.times: in the caller's zone; a month or year is its beginning, a time of the day counts."""
    from memory_anchor.front.cli import shorthand

    now = datetime(2026, 11, 23, 20, 30, tzinfo=ZoneInfo(ZONE))
    monkeypatch.setenv("TZ", ZONE)

    at = datetime.fromisoformat(parse_time("since", written, now=now))
    at = at.replace(tzinfo=ZoneInfo(ZONE)) if at.tzinfo is None else at.astimezone(ZoneInfo(ZONE))

    assert at.isoformat()[:16] == SAID[written]
    assert shorthand.END_OF_RANGE


def test_every_option_that_takes_a_time_takes_it_in_words(run: Run, core: Core, anchor: MemoryAnchor) -> None:
    """Rule cli.times: each option of the requests, and --at."""
    id = str(anchor.save_memory("We use uv, not pip").id)
    first = {"search": ["uv"], "log": ["It rained"], "show": [id], "undo": ["--agent", "codex"], "why-not": [id, "uv"]}
    taking = {(command.name, option) for command, option, _ in fields(Moment)}
    assert taking == {
        ("search", "since"),
        ("search", "until"),
        ("search", "as-of"),
        ("log", "when"),
        ("show", "as-of"),
        ("undo", "since"),
    } or taking == {(name, option.replace("-", "_")) for name, option in taking}

    for name, option in taking:
        for time in ("last Monday", "昨天"):
            result = run(name, *first[name], f"--{option.replace('_', '-')}", time)
            assert "allowed is an ISO 8601 time" not in result.output, (name, option, result.output)


def cells(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line if not unicodedata.combining(c))


@pytest.mark.slow
def test_pages_of_the_terminal_fit_sixty_columns_in_both_languages(tmp_path: Path) -> None:
    """Rule cli.columns: list, search, show, history and stats at 60, 80 and 120 columns; a pipe is plain text."""
    seat = Seat(tmp_path)
    text = "锅炉每周一检修，由小王负责，检修前要关闭主阀并通知值班员 and the humidity must stay above sixty percent"
    id = json.loads(seat.shell("add", text, "--json").stdout)["id"]
    seat.shell("edit", id, f"{text} 否则阀门会过热")
    for width in (60, 80, 120):
        for words in (("list",), ("search", "锅炉 humidity"), ("show", id), ("history", id), ("stats",)):
            screen = seat.human(*words, COLUMNS=str(width), TZ=ZONE, NO_COLOR="1")[1]
            plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", re.sub(r"[^\n]*\x1b\[K", "", screen))
            assert [line for line in plain.split("\n") if cells(line) > width] == [], (width, words)
            assert words[0] in ("stats",) or "CST" in plain, (words, plain)
            assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", screen), "a colour although NO_COLOR is set"
    assert "\x1b" not in seat.shell("list").stdout + seat.shell("show", id).stdout + seat.shell("stats").stdout

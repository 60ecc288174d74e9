"""What people type at a command: times in words, layers by number, the beginning of an id, the version."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import Result

from memory_anchor.process.wiring import Core

Run = Callable[..., Result]


def ids(run: Run, *words: str) -> list[str]:
    return [memory["id"] for memory in json.loads(run("list", *words, "--json").stdout)["memories"]]


def test_the_version_is_told(run: Run, core: Core) -> None:
    """Rule cli.version: before anything else is asked."""
    result = run("--version")
    assert (result.exit_code, result.stdout.split()[0]) == (0, "memory-anchor")


@pytest.mark.parametrize("layer", ["L3", "l3", "verified_fact", "fact"])
def test_a_layer_goes_by_its_number_too(run: Run, core: Core, layer: str) -> None:
    """Rule cli.layers: the numbers of the documents are names everywhere."""
    run("add", "We use uv, not pip")
    run("log", "The lighthouse was painted")
    assert len(ids(run, "--layer", layer)) == 1


@pytest.mark.parametrize(("said", "days"), [("2 days ago", 2), ("昨天", 1), ("yesterday 10:00", 1)])
def test_a_time_may_be_said_in_words(run: Run, core: Core, said: str, days: int) -> None:
    """Rule cli.times: as people write them, in the caller's zone; a time of the day counts."""
    run("log", "The lighthouse was painted", "--when", said)
    (event,) = json.loads(run("list", "--json").stdout)["memories"]
    when = datetime.fromisoformat(event["when"])
    assert when.date() == (datetime.now(UTC) - timedelta(days=days)).date()
    assert ":" not in said or when.hour == 10


def test_what_is_no_time_is_one_sentence(run: Run, core: Core) -> None:
    """Rule cli.times: words that name no time are refused, and told that words are taken."""
    result = run("log", "x", "--when", "gibberish")
    assert result.exit_code == 2
    assert (
        "when is 'gibberish'; allowed is a time such as 2026-01-31T09:30:00Z, yesterday 10:00"
        in result.stderr.replace("\n", " ")
    )


def test_an_id_may_be_cut_short_where_it_stays_one(run: Run, core: Core) -> None:
    """Rule cli.ids: the beginning of one id names it, archived ones too; of several it is told."""
    run("add", "We use uv, not pip")
    run("add", "Deploys happen on Tuesdays")
    newer, older = ids(run)
    shared = next(n for n, (a, b) in enumerate(zip(newer, older, strict=True)) if a != b)

    assert newer in run("show", newer[: max(4, shared + 1)], "--json").stdout
    assert run("forget", older[: max(4, shared + 1)]).exit_code == 0
    assert run("restore", older[: max(4, shared + 1)]).exit_code == 0
    several = run("show", newer[:shared])
    assert several.exit_code == 2
    assert "begins 2 ids" in several.stderr.replace("\n", " ")
    assert run("show", "zzzz").exit_code == 3


def test_every_command_says_when_too_little_of_an_id_is_given(run: Run, core: Core) -> None:
    """Rule ids: the same lower bound wherever an id is cut short; a slip of the hand forgets nothing."""
    id = json.loads(run("add", "The cache port is 6380", "--json").stdout)["id"]

    for command in (("show",), ("history",), ("forget",), ("edit",), ("why-not",), ("pin",)):
        rest = ("cache",) if command[0] in ("edit", "why-not") else ()
        short, enough = run(*command, id[:3], *rest), run(*command, id[:4], *rest)
        assert short.exit_code == 2 and "allowed are 4 characters or more" in " ".join(short.output.split()), command
        assert enough.exit_code == 0, (command, enough.output)
        run("restore", id)

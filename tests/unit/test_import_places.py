"""N2: an import says where every line went, and nothing that was added is invisible without a word."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.domain.model import Actor, Caller
from memory_anchor.extensions.transfer.transfer_files import ImportResult, export_lines, import_file
from memory_anchor.front import calls
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ephemeral_core


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Core]:
    """Another machine."""
    with closing(ephemeral_core(tmp_path / "other")) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    folder = tmp_path / "fresh"
    folder.mkdir()
    return folder


def asking(core: Core, actor: Actor) -> Callable[..., dict[str, Any]]:
    def ask(name: str, **given: Any) -> dict[str, Any]:
        sent = {key: value for key, value in given.items() if value is not None and key != "human"}
        answer: dict[str, Any] = json.loads(json.dumps(calls.answer(name, core.anchor(actor), sent)))
        return answer

    return ask


def lines_of(core: Core, actor: Actor, **how: Any) -> list[str]:
    human = replace(actor, caller=Caller.HUMAN)
    return list(export_lines(asking(core, human), core.data_dir, **{"versions": False, "own_project": False, **how}))


def into(core: Core, actor: Actor, lines: list[str], **how: Any) -> ImportResult:
    file = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    human = actor.caller is Caller.HUMAN
    return import_file(
        asking(core, actor),
        file,
        core.data_dir,
        project_dir=actor.project_dir,
        human="signs" if human else None,
        tick=lambda _: None,
        **how,
    )


@pytest.fixture
def one(core: Core, agent: Actor) -> list[str]:
    anchor = core.anchor(agent)
    for number in range(6):
        anchor.save_memory(f"The vault of floor {number} is blue.")
    return lines_of(core, agent)


@pytest.fixture
def several(core: Core, agent: Actor, tmp_path: Path) -> list[str]:
    """Lines of two projects."""
    lines = []
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        own = replace(agent, project_dir=str(tmp_path / name))
        core.anchor(own).save_memory(f"The {name} vault is blue.")
        lines += lines_of(core, own, own_project=True)
    return lines


@pytest.mark.parametrize("caller", [Caller.AGENT, Caller.HUMAN])
def test_a_file_of_one_project_is_visible_in_the_folder_it_is_brought_to(
    caller: Caller, one: list[str], other: Core, agent: Actor, fresh: Path
) -> None:
    """N2: "68 added", 66 invisible."""
    actor = replace(agent, project_dir=str(fresh), caller=caller)

    done = into(other, actor, one)
    again = into(other, actor, one)

    assert (done.added, done.failed, again.skipped, again.failed) == (6, 0, 6, 0)
    assert [(place["lines"], place["here"]) for place in done.went] == [(6, True)]
    assert len(other.anchor(actor).search("which vault is blue", limit=10).snippets) == 6


def test_an_export_carries_what_its_projects_are_known_by(one: list[str], core: Core, agent: Actor) -> None:
    """N2: each line is one memory still; the first of a project also names its paths."""
    records = [json.loads(line) for line in one]

    assert all(record["id"] and record["content"] for record in records)
    assert records[0]["project_aliases"] == [f"path:{agent.project_dir}"]
    assert all("project_aliases" not in record for record in records[1:])
    again = into(core, replace(agent, caller=Caller.HUMAN), one)
    assert (again.added, again.skipped, again.failed) == (0, 6, 0)


def test_several_unknown_projects_are_never_added_unseen_without_a_word(
    several: list[str], other: Core, agent: Actor, fresh: Path
) -> None:
    """N2: kept under their ids, named one by one with the commands; an agent's are refused by their lines."""
    human = replace(agent, project_dir=str(fresh), caller=Caller.HUMAN)

    refused = into(other, replace(human, caller=Caller.AGENT), several)
    done = into(other, human, several)

    assert (refused.added, refused.failed) == (0, 2)
    assert [place["here"] for place in done.went] == [False, False]
    assert done.added == 2
    for place, note in zip(done.went, done.notes, strict=True):
        assert f"memory-anchor projects link {place['to']}" in note
        assert "--project here" in note
    target = done.went[0]["to"]
    calls.answer("projects_link", other.anchor(human), {"project": target})
    assert other.anchor(human).actor.scope.project == target
    assert len(other.anchor(human).search("which vault is blue").snippets) == 1


def test_where_projects_go_is_said_by_option_or_on_the_terminal(
    several: list[str], other: Core, agent: Actor, fresh: Path
) -> None:
    """N2: `--project here`, `--project OLD=NEW`, or one question for each."""
    human = replace(agent, project_dir=str(fresh), caller=Caller.HUMAN)
    ids = [json.loads(line)["project"] for line in several]
    asked: list[tuple[str, int]] = []

    def choose(project: str, lines: int) -> str:
        asked.append((project, lines))
        return "here" if project == ids[0] else "team"

    done = into(other, human, several, choose=choose)

    assert sorted(asked) == sorted((name, 1) for name in ids)
    assert {place["project"]: place["to"] for place in done.went} == {
        ids[0]: other.anchor(human).actor.scope.project,
        ids[1]: "team",
    }


def test_project_here_brings_all(several: list[str], other: Core, agent: Actor, fresh: Path) -> None:
    """N2: the way out that the note names."""
    actor = replace(agent, project_dir=str(fresh))

    done = into(other, actor, several, to={"": "here"})

    assert (done.added, [place["here"] for place in done.went]) == (2, [True, True])
    assert len(other.anchor(actor).search("which vault is blue").snippets) == 2


def test_a_project_that_is_known_here_keeps_its_lines(
    several: list[str], core: Core, agent: Actor, tmp_path: Path
) -> None:
    """N2: bringing an export back moves nothing, whatever folder it is done in."""
    left = replace(agent, project_dir=str(tmp_path / "left"), caller=Caller.HUMAN)

    done = into(core, left, several, to={"": "here"})

    assert (done.added, done.skipped, done.failed) == (0, 2, 0)
    assert sum(place["here"] for place in done.went) == 1

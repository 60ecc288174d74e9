"""A17, A24: a project's constitution, proposals, trail and settings are never read or written through a link."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.admin.purge import _human_files
from memory_anchor.domain.errors import MemoryAnchorError
from memory_anchor.domain.model import Actor, ProposalAction
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.identity.proposals import FOLDER, proposals_of
from memory_anchor.process.wiring import Core

PASSPHRASE = "correct horse battery staple"
CONSTITUTION = 'version: "1"\nentries:\n  - {id: goal, content: "Serve the vault.", priority: 0}\n'


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


@pytest.fixture
def schema(core: Core, agent: Actor) -> IdentitySchema:
    return core.anchor(agent).project.identity


def proposed(schema: IdentitySchema) -> Any:
    return schema.propose(
        content="Run the tests.", reason="we do", action=ProposalAction.ADD, entry_id=None, from_id=None, by="agent"
    )


@pytest.mark.parametrize("link", ["constitution.yaml", ".ai", ".ai/operations", ".ai/operations/README.md"])
def test_init_writes_nothing_outside(
    link: str, project: Path, outside: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack A17: `init` through a dangling link wrote wherever it pointed."""
    place = project / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside / "made" if link.endswith((".yaml", ".md")) else outside)

    run("init", "--approver", "me", "--json")

    assert list(outside.rglob("*")) == []


def test_a_constitution_that_is_a_link_is_neither_read_nor_written(
    project: Path, outside: Path, schema: IdentitySchema
) -> None:
    """Attack A17, A24: what it points to is not this project's; the warning says what is wrong."""
    (outside / "theirs.yaml").write_text(CONSTITUTION, encoding="utf-8")
    (project / "constitution.yaml").symlink_to(outside / "theirs.yaml")

    served = schema.load()

    assert served.entries == ()
    assert "links are not followed" in " ".join(served.warnings) or "vault" not in repr(served)
    with pytest.raises(MemoryAnchorError):
        schema.init(passphrase=PASSPHRASE, approver="me", old_passphrase=None)
    (outside / "theirs.yaml").unlink()
    with pytest.raises(MemoryAnchorError):
        schema.init(passphrase=PASSPHRASE, approver="me", old_passphrase=None)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("link", [".ai", ".ai/proposals"])
def test_a_proposal_is_not_written_through_a_link(
    link: str, project: Path, outside: Path, schema: IdentitySchema
) -> None:
    """Attack A17: `.ai/proposals` as a link wrote outside the project, and read from there."""
    (project / link).parent.mkdir(parents=True, exist_ok=True)
    (project / link).symlink_to(outside)

    with pytest.raises(MemoryAnchorError, match="links are not followed"):
        proposed(schema)

    assert list(outside.iterdir()) == []
    assert schema.proposals() == []


def test_a_proposal_that_is_a_link_or_a_pipe_is_named_and_not_read(
    project: Path, outside: Path, core: Core, schema: IdentitySchema, agent: Actor
) -> None:
    """Attack A24: neither lists, export nor purge read what such a name points to, and none waits."""
    text = (project / FOLDER / f"{proposed(schema).id}.yaml").read_text(encoding="utf-8")
    (outside / "theirs.yaml").write_text(text.replace("Run the tests.", "vault"), encoding="utf-8")
    linked = project / FOLDER / "p-0123456789.yaml"
    linked.symlink_to(outside / "theirs.yaml")
    os.mkfifo(project / FOLDER / "p-0123456780.yaml")

    assert "vault" not in repr(schema.proposals())
    assert len(schema.unreadable_proposals()) == 2
    owner = core.anchor(agent).actor.scope.project
    assert "vault" not in repr(proposals_of(core.data_dir, owner, core.projects.all()[owner]))
    assert linked not in _human_files(project)


def test_settings_of_a_project_that_are_a_link_quote_nothing(
    project: Path, outside: Path, core: Core, agent: Actor
) -> None:
    """Attack A24: a mistake in `memory-anchor.yaml` is quoted, so it must be the project's own."""
    (outside / "hosts.yml").write_text("github.com:\n  oauth_token: gho_vault\n", encoding="utf-8")
    (project / "memory-anchor.yaml").symlink_to(outside / "hosts.yml")

    with pytest.raises(MemoryAnchorError, match="links are not followed") as refused:
        core.anchor(agent)

    assert "github" not in str(refused.value)

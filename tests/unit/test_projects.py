"""Projects: one assigned id, found again by path, worktree and remote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from repos import git, repository

from memory_anchor.adapters.projects import Projects, normalised_remote


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[], Projects]:
    """Open the projects of one file again and again, as one process after the other does."""
    ids = (f"project-{n}" for n in range(100))
    return lambda: Projects(tmp_path / "projects.json", lambda: next(ids))


def test_a_folder_inside_a_checkout_is_its_project(tmp_path: Path, opened: Callable[[], Projects]) -> None:
    """Rule project: the checkout is the project, wherever in it one stands."""
    top = repository(tmp_path / "app")
    (top / "src").mkdir()
    projects = opened()

    assert projects.of(str(top / "src")) == projects.of(str(top)) == ("project-0", str(top))


def test_worktrees_and_clones_share_one_project(tmp_path: Path, opened: Callable[[], Projects]) -> None:
    """Rule project: by the shared Git folder, and by a common remote with the same first commit."""
    top = repository(tmp_path / "app")
    git(top, "remote", "add", "origin", "git@example.org:team/app.git")
    git(top, "worktree", "add", "-q", str(tmp_path / "feature"))
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(top), str(clone))
    git(clone, "remote", "add", "upstream", "https://user:secret@example.org/team/app")
    projects = opened()

    assert {projects.of(str(folder))[0] for folder in (top, tmp_path / "feature", clone)} == {"project-0"}
    assert "secret" not in (tmp_path / "projects.json").read_text()


def test_adding_a_remote_loses_nothing(tmp_path: Path, opened: Callable[[], Projects]) -> None:
    """Rule project: the id was never made from path or remote."""
    top = repository(tmp_path / "app")
    before = opened().of(str(top))[0]
    git(top, "remote", "add", "origin", "ssh://git@example.org/team/app.git")

    after = opened().of(str(top))[0]
    moved = tmp_path / "moved"
    top.rename(moved)

    assert before == after == opened().of(str(moved))[0]


def test_two_unrelated_folders_are_two_projects(tmp_path: Path, opened: Callable[[], Projects]) -> None:
    """Rule project: nothing in common, nothing shared; no folder at all is the default project."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    projects = opened()

    assert projects.of(str(tmp_path / "a"))[0] != projects.of(str(tmp_path / "b"))[0]
    assert projects.of("") == ("default", "")


def test_a_renamed_folder_without_git_is_told_how_to_link(tmp_path: Path, opened: Callable[[], Projects]) -> None:
    """Rule project: a rename leaves no proof, so it joins nothing; two that are gone say nothing."""
    old, new, third = (tmp_path / name for name in ("notes", "renamed", "third"))
    old.mkdir()
    project = opened().of(str(old))[0]
    third.mkdir()
    assert opened().note(opened().of(str(third))[0]) == ""
    old.rename(new)

    own = opened().of(str(new))[0]

    assert own != project
    assert f"`memory-anchor projects link {project}`" in opened().note(own)
    third.rmdir()
    (tmp_path / "fourth").mkdir()
    assert opened().note(opened().of(str(tmp_path / "fourth"))[0]) == ""


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://user:pw@Example.org:8443/Team/app.git", "example.org/team/app"),
        ("git@example.org:team/app", "example.org/team/app"),
        ("ssh://git@example.org:22/team/app.git/", "example.org/team/app"),
        ("/srv/git/app.git", None),
        ("file:///srv/git/app.git", None),
    ],
)
def test_a_remote_is_known_by_host_and_path_alone(url: str, name: str | None) -> None:
    """Rule project: no scheme, port, credentials or suffix; a local path is no alias."""
    assert normalised_remote(url) == name

"""Projects: one assigned id, found again by path, worktree and remote."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from memory_anchor.adapters.projects import Projects, normalised_remote


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        check=True,
        capture_output=True,
    )


def repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


@pytest.fixture
def ids() -> object:
    return iter(f"project-{n}" for n in range(100))


def opened(file: Path, ids: object) -> Projects:
    return Projects(file, lambda: next(ids))  # type: ignore[call-overload]


def test_a_folder_inside_a_checkout_is_its_project(tmp_path: Path, ids: object) -> None:
    """Rule project: the checkout is the project, wherever in it one stands."""
    top = repository(tmp_path / "app")
    (top / "src").mkdir()
    projects = opened(tmp_path / "projects.json", ids)

    assert projects.of(str(top / "src")) == projects.of(str(top)) == ("project-0", str(top))


def test_worktrees_and_clones_share_one_project(tmp_path: Path, ids: object) -> None:
    """Rule project: by the shared Git folder, and by a common remote with the same first commit."""
    top = repository(tmp_path / "app")
    git(top, "remote", "add", "origin", "git@example.org:team/app.git")
    git(top, "worktree", "add", "-q", str(tmp_path / "feature"))
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(top), str(clone))
    git(clone, "remote", "add", "upstream", "https://user:secret@example.org/team/app")
    projects = opened(tmp_path / "projects.json", ids)

    names = {projects.of(str(folder))[0] for folder in (top, tmp_path / "feature", clone)}

    assert names == {"project-0"}
    assert "secret" not in (tmp_path / "projects.json").read_text()


def test_adding_a_remote_loses_nothing(tmp_path: Path, ids: object) -> None:
    """Rule project: the id was never made from path or remote."""
    top = repository(tmp_path / "app")
    before = opened(tmp_path / "projects.json", ids).of(str(top))[0]
    git(top, "remote", "add", "origin", "ssh://git@example.org/team/app.git")

    after = opened(tmp_path / "projects.json", ids).of(str(top))[0]
    moved = tmp_path / "moved"
    top.rename(moved)

    assert before == after == opened(tmp_path / "projects.json", ids).of(str(moved))[0]


def test_two_unrelated_folders_are_two_projects(tmp_path: Path, ids: object) -> None:
    """Rule project: nothing in common, nothing shared; no folder at all is the default project."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    projects = opened(tmp_path / "projects.json", ids)

    assert projects.of(str(tmp_path / "a"))[0] != projects.of(str(tmp_path / "b"))[0]
    assert projects.of("") == ("default", "")


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

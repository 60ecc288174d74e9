"""Git repositories made for a test."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(folder: Path, *arguments: str, stdin: str = "") -> str:
    """Run Git in a folder; return what it prints. Raises CalledProcessError."""
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, input=stdin).stdout.strip()


def repository(folder: Path, *, message: str = "first", remote: str = "") -> Path:
    """Return a new repository with one empty commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    if remote:
        git(folder, "remote", "add", "origin", remote)
    return folder

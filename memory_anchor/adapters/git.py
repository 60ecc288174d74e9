"""Asking Git, read only: one quick call, bounded, and never an error where there is no Git or no repository."""

from __future__ import annotations

import os
import subprocess

TIMEOUT_S = 2.0
# A repository's own settings must not make asking it run anything.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")


def asked(folder: str, *arguments: str, undecodable: str = "surrogateescape") -> str | None:
    """Return what Git printed, None when there is no Git, no repository, or no answer in time.

    undecodable: what becomes of bytes that are no UTF-8; the default gives paths that can be opened, `replace` text
    that can be written down.
    """
    try:
        done = subprocess.run(
            [*_GIT, "-C", folder, *arguments],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors=undecodable,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None

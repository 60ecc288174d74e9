"""A Git working copy as a sync folder: fetched before an exchange, committed and pushed after it.

Files are never edited and each has one writer, so no merge can conflict. A repository's own hooks, file system monitor
and editor are switched off and nothing is asked on a terminal; remotes and credentials are the user's, who named the
folder. A remote that is away leaves a note, and the exchange goes on with what is here.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

TIMEOUT_S = 60.0
TRIES = 3
SAID_MAX = 200
_SAFE = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false"),
    *("-c", "user.name=memory-anchor", "-c", "user.email=memory-anchor@localhost", "-c", "core.editor=true"),
    *("-c", "core.autocrlf=false", "-c", "gc.auto=0"),
)


class GitCarrier:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fetch(self, note: Callable[[str], None]) -> None:
        if self._has_remote():
            wrong = self._pulled()
            if wrong:
                note(f"Git could not fetch ({wrong}); what is here was exchanged: run `git pull` in {self._folder}")

    def send(self, note: Callable[[str], None]) -> None:
        self._git("add", "--all", "--force", "--", ".")
        if self._git("diff", "--cached", "--quiet")[0]:
            self._git("commit", "--quiet", "--no-verify", "-m", "sync")
        if not self._has_remote():
            return
        for _ in range(TRIES):
            code, said = self._git("push", "--quiet", "--no-verify", "origin", "HEAD")
            if code == 0:
                return
            if wrong := self._pulled():
                said = wrong
                break
        note(f"Git could not push ({said}); nothing is lost: run `git push` in {self._folder}, or sync again")

    def _pulled(self) -> str:
        """Merge what the remote has; return what went wrong, "" for nothing."""
        code, said = self._git("fetch", "--quiet", "origin")
        if code:
            return said
        branch = self._git("rev-parse", "--abbrev-ref", "HEAD")[1] or "main"
        if self._git("rev-parse", "--verify", "--quiet", f"origin/{branch}")[0]:
            return ""  # nothing was pushed yet
        code, said = self._git("merge", "--quiet", "--no-edit", "--allow-unrelated-histories", f"origin/{branch}")
        if code:
            self._git("merge", "--abort")
        return said if code else ""

    def _has_remote(self) -> bool:
        return bool(self._git("remote")[1])

    def _git(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code and the last line of what Git said."""
        try:
            done = subprocess.run(
                ["git", "-C", str(self._folder), *_SAFE, *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                check=False,
                start_new_session=True,  # no terminal to ask on
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return 1, type(error).__name__
        said = (done.stdout.strip() or done.stderr.strip()).splitlines()
        return done.returncode, (said[-1] if said else "")[:SAID_MAX]

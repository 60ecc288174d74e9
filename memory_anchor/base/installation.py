"""An installation of which a part is gone: one sentence, with the command that mends it. Standard library only.

A package that was removed, a file that a full disk cut short, an interpreter that was upgraded below its packages: all
end in a failed import, whatever its error, or in a file of the installation that cannot be read. One command installs
everything again, so nothing here asks which part it was.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
NAME = "memory-anchor"
HOOKS = ("hook", "statusline")
"""Commands that clients start by themselves and show as failed where their exit code is not 0."""
CAUSE_CHARS = 200


def damage(error: BaseException) -> str:
    """Return one sentence where an error says that a part of the installation is missing or damaged, else ""."""
    if type(error).__name__ == "ZoneInfoNotFoundError" and "UTC" in str(error):
        return f"this system has no time zones; run `{sys.executable} -m pip install tzdata`"
    if isinstance(error, OSError):
        is_ours = str(error.filename or "").startswith(HERE + os.sep)
    else:
        is_ours = isinstance(error, ImportError | SyntaxError) or _was_importing(error.__traceback__)
    cause = " ".join(f"{type(error).__name__}: {error}".split())[:CAUSE_CHARS]
    return f"the installation is not whole ({cause}); run `{again()}`" if is_ours else ""


def again() -> str:
    """Return the command that installs this package and what it needs again, the way it was installed."""
    folders = sys.prefix.replace("\\", "/").split("/")
    if "pipx" in folders:
        return f"pipx reinstall {NAME}"
    if "uv" in folders and "tools" in folders:
        return f"uv tool install --reinstall {_source()}"
    return f"{sys.executable} -m pip install --force-reinstall {_source()}"


def _source() -> str:
    """Return what was installed: a folder or an address where that is on record, else the package's name."""
    import json
    import shlex
    from importlib import metadata

    try:
        url = json.loads(metadata.distribution(NAME).read_text("direct_url.json") or "{}").get("url", "")
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        url = ""
    return shlex.quote(str(url).removeprefix("file://")) if url else NAME


def _was_importing(frames: TracebackType | None) -> bool:
    """Return whether a module was being loaded, of ours or of a package, when it happened."""
    while frames is not None:
        frame = frames.tb_frame
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            return True
        frames = frames.tb_next
    return False

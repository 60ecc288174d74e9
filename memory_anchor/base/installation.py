"""An installation of which a part is gone: one sentence, with the command that mends it. Standard library only.

A package that was removed, a file that a full disk cut short, an interpreter that was upgraded below its packages: most
end in a failed import, whatever its error, or in a file of the installation that cannot be read. What a file that was
cut between two functions does is anybody's guess, so whatever fails is compared with the installer's list of files. One
command installs everything again, whichever part it was.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from memory_anchor.base.json_values import Json, Record

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
NAME = "memory-anchor"
CAUSE_CHARS = 200
LATEST = "2025-11-25"
"""The newest version of MCP here, for a client that names none."""


def damage(error: BaseException) -> str:
    """Return one sentence where an error says that a part of the installation is missing or damaged, else ""."""
    if type(error).__name__ == "ZoneInfoNotFoundError" and "UTC" in str(error):
        return f"this system has no time zones; run `{sys.executable} -m pip install tzdata`"
    if isinstance(error, OSError):
        is_ours = str(error.filename or "").startswith(HERE + os.sep)
    else:
        is_ours = isinstance(error, ImportError | SyntaxError) or _was_importing(error.__traceback__)
    return sentence(f"{type(error).__name__}: {error}") if is_ours else lacking()


def lacking() -> str:
    """Return one sentence where a file of this package is not as it was installed, "" where all are, or none is listed.

    A few ms: for what has failed already.
    """
    import csv
    from glob import escape, glob

    root = os.path.dirname(HERE)  # noqa: PTH120
    for listed in glob(os.path.join(escape(root), "memory_anchor-*.dist-info", "RECORD")):  # noqa: PTH118, PTH207
        with open(listed, encoding="utf-8", errors="replace", newline="") as rows:  # noqa: PTH123
            for path, _, size in (row for row in csv.reader(rows) if len(row) == 3 and row[2].isdigit()):
                file = os.path.join(root, path)  # noqa: PTH118
                there = os.path.getsize(file) if os.path.isfile(file) else 0  # noqa: PTH113, PTH202
                if there != int(size) and path.startswith(f"{os.path.basename(HERE)}/"):  # noqa: PTH119
                    return sentence(f"{path} has {there} of {size} bytes")
    return ""


def sentence(cause: str) -> str:
    """Return what is wrong with the installation, and the command that mends it."""
    return f"the installation is not whole ({' '.join(cause.split())[:CAUSE_CHARS]}); run `{again()}`"


@contextmanager
def reported() -> Iterator[None]:
    """Raise BrokenInstallation in place of what a broken installation raises in the block."""
    try:
        yield
    except Exception as error:
        try:
            from memory_anchor.domain.errors import BrokenInstallation, MemoryAnchorError
        except Exception:
            raise ImportError(damage(error)) from error
        if isinstance(error, MemoryAnchorError) or not (why := damage(error)):
            raise
        raise BrokenInstallation(why) from error


def answer_agent(why: str) -> None:
    """Serve MCP on stdin and stdout without a tool, until the agent closes its end: it is told why, its hooks nothing.

    A client shows a server that ended as failed, and then each hook that asks it, at every command.
    """
    import json

    for line in sys.stdin:
        try:
            message = json.loads(line)
            request, method, params = message["id"], message["method"], message.get("params") or {}
            answer: Record = {"result": {}}
            if method == "initialize":
                version, server = params.get("protocolVersion") or LATEST, {"name": NAME, "version": "0"}
                result: Record = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
                answer = {"result": {**result, "instructions": why}}
            elif method == "tools/list":
                answer = {"result": {"tools": []}}
            elif method == "tools/call":
                text: list[Json] = [] if str(params.get("name")).endswith("_hook") else [{"type": "text", "text": why}]
                answer = {"result": {"content": text, "isError": bool(text)}}
            elif method != "ping":
                answer = {"error": {"code": -32601, "message": f"Method not found: {str(method)[:CAUSE_CHARS]}"}}
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # a notification, or nothing that this can answer
        print(json.dumps({"jsonrpc": "2.0", "id": request, **answer}), flush=True)


def again() -> str:
    """Return the command that installs this package and what it needs again, the way it was installed."""
    from importlib.util import find_spec
    from shlex import quote

    folders, origin = sys.prefix.replace("\\", "/").split("/"), quote(source())
    if "pipx" in folders:
        return f"pipx reinstall {NAME}"
    if "uv" in folders and "tools" in folders:
        return f"uv tool install --reinstall {origin}"
    if find_spec("pip") is None:  # an environment that uv made
        return f"uv pip install --python {sys.executable} --reinstall {origin}"
    return f"{sys.executable} -m pip install --force-reinstall {origin}"


def source() -> str:
    """Return what was installed, with extras: a folder, a file or an address where one is on record, else a version.

    The package's name alone where nothing is on record.
    """
    import json
    from importlib import metadata
    from urllib.parse import unquote

    try:
        ours = metadata.distribution(NAME)
        origin, name = json.loads(ours.read_text("direct_url.json") or "{}"), NAME + _extras(ours.requires or [])
        url, folder, git = str(origin.get("url", "")), str(origin.get("subdirectory", "")), origin.get("vcs_info", {})
        kind, revision = str(git.get("vcs", "")), str(git.get("commit_id", ""))
        if not url:
            return f"{name}=={ours.metadata['Version']}"
    except (metadata.PackageNotFoundError, ValueError, AttributeError, KeyError, TypeError):
        return NAME
    if url.startswith("file://") and not kind and not folder:
        return unquote(url.removeprefix("file://")) + name.removeprefix(NAME)
    address = f"{kind}+{url}@{revision}" if kind and revision else f"{kind}+{url}" if kind else url
    return f"{name} @ {address}{'#subdirectory=' if folder else ''}{folder}"


def _extras(requires: list[str]) -> str:
    """Return the extras of which every package is here, as they follow a name: "[code,server]", "" for none."""
    import re
    from importlib import metadata

    here: dict[str, bool] = {}
    for requirement in requires:
        marker = requirement.replace("'", '"').partition('extra == "')[2]
        package, extra = re.match(r"[\w.-]+", requirement), marker.partition('"')[0]
        if package and extra:
            is_here = any(metadata.distributions(name=package.group()))
            here[extra] = here.get(extra, True) and is_here
    kept = [extra for extra, is_here in here.items() if is_here]
    return f"[{','.join(kept)}]" if kept else ""


def _was_importing(frames: TracebackType | None) -> bool:
    """Return whether a module was being loaded, of ours or of a package, when it happened."""
    while frames is not None:
        frame = frames.tb_frame
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            return True
        frames = frames.tb_next
    return False

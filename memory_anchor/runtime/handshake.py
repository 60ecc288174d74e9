"""What an engine answered to the handshake, kept on disk so that a cold start can answer at once.

An agent's first request is made while its servers start: without its tools by then, the first turn goes without
memory. So the bridge answers `initialize`, `server/discover` and `tools/list` from the file of this project, version,
profile and rights, or from the one packaged with this version, and the engine takes over once it is loaded.
Standard library only. A file that is damaged or of another version counts as none.
"""

from __future__ import annotations

import json
import os
from binascii import crc32

from memory_anchor.runtime import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FOLDER = "handshakes"
PACKAGED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "handshake.json")  # noqa: PTH100, PTH118, PTH120
MAX_BYTES = 4 << 20
MAX_FILES = 500
CLIENT = {"name": "memory-anchor", "version": wire.VERSION}


def key(preamble: wire.Preamble) -> str:
    """Return what a handshake depends on, as one line of JSON."""
    return json.dumps([wire.VERSION, preamble.project_dir, preamble.profile, preamble.read_only])


def _path(data: str, kept: str) -> str:
    # crc32 twice, since hashlib loads OpenSSL (3 MB); the file repeats its key, so a collision is only a miss.
    raw = kept.encode("utf-8", "surrogatepass")
    return os.path.join(data, FOLDER, f"{crc32(raw):08x}{crc32(raw[::-1]):08x}.json")  # noqa: PTH118


def load(data: str, preamble: wire.Preamble) -> dict[str, Any] | None:
    """Return the recorded handshake of this caller, else the packaged one of its profile, else None."""
    kept = key(preamble)
    own = _read(_path(data, kept))
    if own is not None and own.get("key") == kept and _is_sound(own):
        return own
    packaged = _read(PACKAGED) or {}
    if packaged.get("version") != wire.VERSION:
        return None
    found = (packaged.get("profiles") or {}).get(packaged_name(preamble))
    return found if isinstance(found, dict) and _is_sound(found) else None


def packaged_name(preamble: wire.Preamble) -> str:
    """Return the name of the packaged handshake of this profile and these rights."""
    return f"{preamble.profile or 'standard'}{' read-only' if preamble.read_only else ''}"


def save(data: str, preamble: wire.Preamble, recorded: Mapping[str, Any]) -> None:
    """Write what was recorded for this caller; unchanged, nothing is written. Raises OSError."""
    kept = key(preamble)
    path = _path(data, kept)
    told = {"key": kept, **recorded}
    if _read(path) == told:
        return
    folder = os.path.dirname(path)  # noqa: PTH120
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    if len(os.listdir(folder)) >= MAX_FILES:  # noqa: PTH208
        forget(data)
    wire.write_private(path, json.dumps(told, ensure_ascii=False, separators=(",", ":")))


def forget(data: str) -> None:
    """Drop every recorded handshake; to be called when what `instructions` carry has changed."""
    folder = os.path.join(data, FOLDER)  # noqa: PTH118
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except FileNotFoundError:
        return
    for name in names:
        try:
            os.unlink(os.path.join(folder, name))  # noqa: PTH108, PTH118
        except FileNotFoundError:
            continue


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            value = json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _is_sound(recorded: Mapping[str, Any]) -> bool:
    results, versions = recorded.get("results"), recorded.get("versions")
    if not isinstance(results, list) or not isinstance(versions, dict):
        return False
    found = [index for methods in versions.values() if isinstance(methods, dict) for index in methods.values()]
    return (
        all(isinstance(methods, dict) for methods in versions.values())
        and all(isinstance(index, int) and 0 <= index < len(results) for index in found)
        and "initialize" in versions.get(recorded.get("latest"), {})
    )


# --- recording, in an engine -----------------------------------------------------------------------------------


def legacy_versions() -> tuple[str, ...]:
    """Return the protocol versions that open with `initialize`, oldest first."""
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

    return HANDSHAKE_PROTOCOL_VERSIONS


def modern_versions() -> tuple[str, ...]:
    """Return the protocol versions without a handshake."""
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    return MODERN_PROTOCOL_VERSIONS


def requests(version: str) -> list[dict[str, Any]]:
    """Return the messages whose answers are kept for one protocol version."""
    if version in legacy_versions():
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
        return [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        ]
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": CLIENT,
    }
    return [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": {"_meta": meta}}
        for number, method in enumerate(("server/discover", "tools/list"), start=1)
    ]


def packed(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return version -> method -> result with equal results kept once."""
    results: list[Any] = []
    versions: dict[str, dict[str, int]] = {}
    for version, methods in answers.items():
        versions[version] = {}
        for method, result in methods.items():
            if result not in results:
                results.append(result)
            versions[version][method] = results.index(result)
    return {"latest": legacy_versions()[-1], "versions": versions, "results": results}

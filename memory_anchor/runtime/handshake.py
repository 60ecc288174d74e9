"""What the bridge answers to the handshake while no engine serves, so that a cold start can answer at once.

An agent makes its first request while its servers start; if its tools are not listed by then, the first turn has no
memory. So the bridge answers `initialize`, `server/discover` and `tools/list` from the file packaged with this version,
and the engine takes over once it is loaded. A caller's profile may depend on settings that the bridge does not read, so
an engine notes the profile's name, and only the name, for the next start: what a model reads comes from the package,
never from a file that any process of this user may write. So there is no constitution either; the text says where it
is, and the SessionStart hook of that session has it. Standard library only. A note that is damaged, of another version
or of no packaged profile is ignored.
"""

from __future__ import annotations

import json
import os
from binascii import crc32
from contextlib import suppress

from memory_anchor.base.json_values import parsed, record
from memory_anchor.runtime import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypedDict, TypeGuard

    from memory_anchor.base.json_values import Json, Record

    class Handshake(TypedDict):
        """A server's answers. versions: protocol version -> method -> index in results."""

        latest: str
        versions: Mapping[str, Mapping[str, int]]
        results: list[Json]


FOLDER = "handshakes"
PACKAGED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "handshake.json")  # noqa: PTH100, PTH118, PTH120
MAX_BYTES = 4 << 20
MAX_NOTE_BYTES = 16_000
MAX_FILES = 500
CLIENT = {"name": "memory-anchor", "version": wire.VERSION}


def key(preamble: wire.Preamble) -> str:
    """Return what a handshake depends on, as one line of JSON."""
    return json.dumps([wire.VERSION, preamble.project_dir, preamble.profile, preamble.read_only])


def _path(data: str, caller: str) -> str:
    # crc32 twice, since hashlib loads OpenSSL (3 MB); the file repeats its key, so a collision is only a miss.
    raw = caller.encode("utf-8", "surrogatepass")
    return os.path.join(data, FOLDER, f"{crc32(raw):08x}{crc32(raw[::-1]):08x}.json")  # noqa: PTH118


def load(data: str, preamble: wire.Preamble) -> Handshake | None:
    """Return the packaged handshake of the profile noted for this caller, else of the one it asks for, else None."""
    profiles = _packaged()
    caller = key(preamble)
    note = _read(_path(data, caller), MAX_NOTE_BYTES) or {}
    noted = note.get("profile") if note.get("key") == caller else None
    profile = profiles.get(noted) if isinstance(noted, str) else None
    profile = profile if profile is not None else profiles.get(packaged_name(preamble))
    return _without_memory(profile) if profile is not None and preamble.memory == "off" else profile


def _without_memory(handshake: Handshake) -> Handshake:
    """Return the handshake with instructions that say that this session has no memory."""
    results: list[Json] = [
        result | {"instructions": f"Memory Anchor: {wire.WITHOUT_MEMORY}."}
        if isinstance(result, dict) and "instructions" in result
        else result
        for result in handshake["results"]
    ]
    return {"latest": handshake["latest"], "versions": handshake["versions"], "results": results}


def _packaged() -> dict[str, Handshake]:
    """Return profile -> handshake, the valid ones of this version."""
    packaged = _read(PACKAGED, MAX_BYTES) or {}
    profiles = packaged.get("profiles") if packaged.get("version") == wire.VERSION else None
    return {name: value for name, value in profiles.items() if _is_valid(value)} if isinstance(profiles, dict) else {}


def packaged_name(preamble: wire.Preamble) -> str:
    """Return the name of the packaged handshake of this profile and these rights."""
    return f"{preamble.profile or 'standard'}{' read-only' if preamble.read_only else ''}"


def profile_of(recorded: Handshake) -> str:
    """Return the packaged profile with the recorded answers, whatever the instructions; "" for none."""
    instructions = _without_instructions(recorded)
    return next((name for name, packaged in _packaged().items() if _without_instructions(packaged) == instructions), "")


def _without_instructions(handshake: Handshake) -> dict[str, dict[str, Json]]:
    """Return version -> method -> result without the instructions, which differ from caller to caller."""
    results = [
        {name: part for name, part in result.items() if name != "instructions"} if isinstance(result, dict) else result
        for result in handshake["results"]
    ]
    return {
        version: {method: results[index] for method, index in methods.items()}
        for version, methods in handshake["versions"].items()
    }


def save(data: str, preamble: wire.Preamble, profile: str) -> None:
    """Note this caller's packaged profile, where it has changed. Raises OSError."""
    caller = key(preamble)
    path = _path(data, caller)
    note = {"key": caller, "profile": profile}
    if _read(path, MAX_NOTE_BYTES) == note:
        return
    folder = os.path.dirname(path)  # noqa: PTH120
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    if len(os.listdir(folder)) >= MAX_FILES:  # noqa: PTH208
        delete_notes(data)
    wire.write_private(path, json.dumps(note, ensure_ascii=False, separators=(",", ":")))


def delete_notes(data: str) -> None:
    """Delete every note."""
    folder = os.path.join(data, FOLDER)  # noqa: PTH118
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except FileNotFoundError:
        return
    for name in names:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))  # noqa: PTH108, PTH118


def _read(path: str, most_bytes: int) -> Record | None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            value = parsed(file.read(most_bytes))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_valid(recorded: Json) -> TypeGuard[Handshake]:
    if not isinstance(recorded, dict):
        return False
    results, versions, latest = recorded.get("results"), recorded.get("versions"), recorded.get("latest")
    if not isinstance(results, list) or not isinstance(versions, dict):
        return False
    indices = [index for methods in versions.values() if isinstance(methods, dict) for index in methods.values()]
    return (
        all(isinstance(methods, dict) for methods in versions.values())
        and all(isinstance(index, int) and 0 <= index < len(results) for index in indices)
        and isinstance(latest, str)
        and "initialize" in record(versions.get(latest))
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


def requests(version: str) -> list[Record]:
    """Return the messages whose answers are recorded for one protocol version."""
    if version in legacy_versions():
        params: Record = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
        return [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        ]
    meta: Record = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": CLIENT,
    }
    return [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": {"_meta": meta}}
        for number, method in enumerate(("server/discover", "tools/list"), start=1)
    ]


def packed(answers: Mapping[str, Record]) -> Handshake:
    """Return the handshake of version -> method -> result, with equal results stored once."""
    results: list[Json] = []
    versions: dict[str, dict[str, int]] = {}
    for version, methods in answers.items():
        versions[version] = {}
        for method, result in methods.items():
            if result not in results:
                results.append(result)
            versions[version][method] = results.index(result)
    return {"latest": legacy_versions()[-1], "versions": versions, "results": results}

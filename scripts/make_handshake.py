"""Write the packaged handshake: the answers of this version before any engine has run for a project.

Run it after a change of tools, instructions or version: `.venv/bin/python scripts/make_handshake.py`; a test fails
while the packaged file and the server differ. The bridge gives these answers on the very first start only.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, get_args

import anyio

from memory_anchor.front.backend import MemoryBackend
from memory_anchor.front.mcp_answers import instructions_for
from memory_anchor.runtime import handshake, wire
from memory_anchor.runtime.recording import record_handshake
from memory_anchor.settings import Profile
from memory_anchor.testing import ephemeral_core


async def _recorded(backend: MemoryBackend, preamble: wire.Preamble) -> dict[str, Any]:
    wire.PREAMBLE.set(preamble)
    server = backend.server(preamble)
    async with server.lifespan(server) as state:
        recorded = await record_handshake(server, state)
    told = instructions_for(None, read_only=bool(preamble.read_only))
    results = [{**one, "instructions": told} if "instructions" in one else one for one in recorded["results"]]
    return {**recorded, "results": results}


def packaged() -> dict[str, Any]:
    """Return the whole file: version, and the handshake of every profile with and without the right to write."""
    with tempfile.TemporaryDirectory() as folder:
        backend = MemoryBackend(ephemeral_core(Path(folder)))
        try:
            profiles = {}
            for profile in get_args(Profile):
                for read_only in (None, True):
                    caller = wire.Preamble(profile=profile, read_only=read_only)
                    profiles[handshake.packaged_name(caller)] = anyio.run(_recorded, backend, caller)
        finally:
            backend.close()
    return {"version": wire.VERSION, "profiles": profiles}


if __name__ == "__main__":
    text = json.dumps(packaged(), ensure_ascii=False, indent=1, sort_keys=True)
    Path(handshake.PACKAGED).write_text(f"{text}\n", encoding="utf-8")
    print(f"{handshake.PACKAGED}: {len(text)} bytes")

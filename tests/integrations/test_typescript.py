"""The TypeScript client (clients/typescript) against a real server, by Node's own test runner."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from serving import core_to_serve, key_for, serving

from memory_anchor.domain.credential import Role
from memory_anchor.testing import ManualClock

CLIENT = Path(__file__).resolve().parents[2] / "clients" / "typescript"
BUILT = CLIENT / "dist" / "index.js"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("node") is None or not BUILT.is_file(),
        reason="the TypeScript client is not built; `scripts/integrations` builds and tests it",
    ),
]


def test_every_operation_answers_the_typescript_client_as_it_is_described(
    tmp_path: Path, project: Path, clock: ManualClock
) -> None:
    with core_to_serve(tmp_path / "server", project, clock) as core, serving(core) as served:
        key, _ = key_for(core, "acme", role=Role.ADMIN)
        env = {**os.environ, "MEMORY_URL": served.base, "MEMORY_KEY": key}
        done = subprocess.run(["node", "--test", "test/"], cwd=CLIENT, env=env, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout[-5000:]


def test_the_types_are_those_of_the_description(tmp_path: Path) -> None:
    """Rule generated: `npm run generate` changes nothing."""
    made = tmp_path / "schema.d.ts"
    maker, description = CLIENT / "node_modules" / ".bin" / "openapi-typescript", CLIENT.parents[1] / "docs"
    subprocess.run([maker, description / "openapi.json", "-o", made], check=True, capture_output=True)

    assert made.read_text("utf-8") == (CLIENT / "src" / "schema.d.ts").read_text("utf-8")

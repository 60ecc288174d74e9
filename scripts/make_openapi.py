"""Write docs/openapi.json, the paths of `memory-anchor serve` as the server describes them. No store is opened."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
FILE = ROOT / "docs" / "openapi.json"


def document() -> str:
    from memory_anchor.extensions.service.http_api import build_http
    from memory_anchor.testing import ephemeral_core

    with tempfile.TemporaryDirectory() as folder:
        core = ephemeral_core(Path(folder))
        try:
            told = build_http(core, core.settings).api.openapi()
        finally:
            core.close()
    return json.dumps(told, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
    print(f"wrote {FILE.relative_to(ROOT)}")

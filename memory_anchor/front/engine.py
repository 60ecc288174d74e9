"""`python -m memory_anchor.front.engine`: the engine process. Nothing heavy is imported before it holds the lock."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from memory_anchor.runtime import engine

USAGE = (
    "an engine serves the folder of MEMORY_ANCHOR_DATA_DIR until nobody needs it; bridges and commands start it, "
    "`memory-anchor engine status` shows it and `memory-anchor engine stop` ends it"
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_anchor.runtime.lock import DirectoryLock
    from memory_anchor.runtime.service import Backend


def memory(lock: DirectoryLock) -> Backend:
    """Return the memory of the locked directory as a backend; see `front.backend.build`."""
    from memory_anchor.front.backend import build

    backend = build(lock)
    gc.freeze()  # whatever is loaded now stays; later collections need not walk it
    gc.enable()
    return backend


def main(argv: Sequence[str]) -> int:
    """Serve and return the exit code; an engine takes no arguments, only its environment."""
    if argv:
        complaint = "" if argv[0] in ("-h", "--help") else f"{argv[0]!r} is no argument of an engine; it takes none. "
        print(f"memory-anchor: {complaint}{USAGE}", file=sys.stderr)
        return 2 if complaint else 0
    return engine.main(memory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

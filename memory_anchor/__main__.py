"""The command `memory-anchor`: `mcp` and `hook` start without importing anything heavy, the rest is the CLI's.

An agent waits for these two: typer, pydantic and the memory itself would cost them seconds.
"""

from __future__ import annotations

import sys

from memory_anchor.runtime.threads import one_for_algebra

IN_THE_CLI = ("--in-process", "--transport", "--help", "-h")
"""Options of `mcp` that the bridge has no part in."""


def main() -> int:
    """Run the command line and return the exit code."""
    command, rest = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    if command == "mcp" and not any(option.split("=")[0] in IN_THE_CLI for option in rest):
        from memory_anchor.runtime.bridge import main as bridge

        return bridge(rest)
    if command == "statusline" and not rest:
        from memory_anchor.front.clients.hooks import main as hook

        return hook("Statusline")
    if command == "hook" and len(rest) == 1 and not rest[0].startswith("-"):
        from memory_anchor.front.clients.hooks import main as hook

        return hook(rest[0])
    one_for_algebra()
    from memory_anchor.front.cli.app import app

    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())

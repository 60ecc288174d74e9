"""The command `memory-anchor`: `mcp` and `hook` start without importing anything heavy, the rest is the CLI's.

An agent waits for these two: typer, pydantic and the memory itself would cost them seconds.
"""

from __future__ import annotations

import gc
import os
import sys

from memory_anchor import not_whole

IN_THE_CLI = ("--in-process", "--transport", "--help", "-h")
"""Options of `mcp` that the bridge has no part in."""
HOOKS = ("hook", "statusline")
"""Commands that clients start by themselves and show as failed where their exit code is not 0."""


def main() -> int:
    """Run the command line and return the exit code."""
    open_closed()
    speak_utf8()
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        return _run(command, sys.argv[2:])
    except Exception as error:
        try:
            from memory_anchor.base import installation
        except Exception:
            sys.stderr.write(f"memory-anchor: {not_whole(error)}\n")
            return 0 if command in HOOKS else 1
        if not (why := installation.damage(error)):
            raise
        sys.stderr.write(f"memory-anchor: {why}\n")
        if command == "mcp":
            installation.answer_agent(why)
        return 0 if command in HOOKS else 1


def _run(command: str, rest: list[str]) -> int:
    if command == "mcp" and not any(option.split("=")[0] in IN_THE_CLI for option in rest):
        from memory_anchor.runtime.bridge import main as bridge

        return bridge(rest)
    from memory_anchor.runtime.threads import no_plugins, one_for_algebra, uncollected

    event = rest[0] if command == "hook" and len(rest) == 1 and not rest[0].startswith("-") else None
    if command == "statusline" and not rest:
        event = "Statusline"
    if event is not None:
        with uncollected():
            from memory_anchor.front.clients.hooks import main as hook

            code = hook(event)
        gc.freeze()
        return code
    from memory_anchor.front.cli.spinner import Spinner
    from memory_anchor.front.cli.typing_ahead import hide_typing

    one_for_algebra()
    no_plugins()
    hide_typing(sys.argv[1:])
    try:
        with Spinner("loading"), uncollected():
            from memory_anchor.front.cli.app import command_line

            app = command_line(command)
        app()
    except KeyboardInterrupt:  # before a command began, which says itself how far it is
        sys.stderr.write("stopped before anything was done\n")
        return 130
    finally:
        gc.freeze()  # what is loaded goes with the process; its end would look through all of it
    return 0


def open_closed() -> None:
    """Let output that was closed (`memory-anchor list >&-`) go nowhere: no file of ours may take its number."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115


def speak_utf8() -> None:
    """Read and write UTF-8 whatever the locale or the code page says; arguments too, where their bytes are UTF-8.

    What is not UTF-8 on standard input keeps its bytes as lone surrogates, which every field refuses in a sentence.
    """
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "backslashreplace"), (sys.stderr, "replace")):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors=errors, newline="\n" if stream is sys.stdin else None)
    if sys.platform != "win32":
        sys.argv[1:] = [_as_utf8(word) for word in sys.argv[1:]]


def _as_utf8(word: str) -> str:
    try:
        return os.fsencode(word).decode("utf-8")
    except UnicodeError:
        return word


if __name__ == "__main__":
    sys.exit(main())

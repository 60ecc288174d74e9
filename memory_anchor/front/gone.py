"""What earlier versions had and this one has not: a command or path that names it gets one sentence on what to do."""

from __future__ import annotations

from collections.abc import Sequence

APPROVALS = (
    "approvals of the constitution over HTTP are gone: a human approves on the server's own terminal or over SSH, "
    "`memory-anchor constitution approve`"
)
KEYS = (
    "access keys are made, listed and revoked on the server's own terminal or over SSH, `memory-anchor keys`; "
    "doing it over HTTP is gone"
)
LORE_EFFECTS = (
    "a scan of a lorebook keeps nothing any more, its entries have no effects over messages: `memory-anchor lorebook "
    "scan` says what the messages activate now"
)
LORE_EXPORT = "a lorebook is not exported any more: `memory-anchor lorebook show NAME --json` has its entries"
DEMO = "the demo is started in a checkout of the project: `scripts/demo`"
SETS = (
    "`memory-anchor eval` asks your own golden questions; bundled and public sets are measured in a checkout of the "
    "project: `scripts/evaluate.py`"
)
CAPTURE = (
    "what would be kept of a conversation is shown by `memory-anchor extract FILE`; bundled sessions are scored in a "
    "checkout of the project: `scripts/evaluate.py capture`"
)
COMMANDS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("constitution", "review"), "", APPROVALS),
    (("demo",), "", DEMO),
    *((("eval",), option, SETS) for option in ("--bundled", "--knowledge", "--locomo", "--longmemeval", "--stores")),
    (("eval",), "--capture", CAPTURE),
    (("eval",), "--transcript", CAPTURE),
    (("keys", "create"), "--server", KEYS),
    (("keys", "list"), "--server", KEYS),
    (("keys", "revoke"), "--server", KEYS),
    (("lorebook", "export"), "", LORE_EXPORT),
    (("lorebook", "report"), "", LORE_EFFECTS),
    (("lorebook", "scan"), "--keep", LORE_EFFECTS),
)
"""(words of a command, an option of it or "", sentence)."""
PATHS = (("/v1/constitution/", APPROVALS), ("/v1/keys", KEYS))
"""(beginning of a path, sentence)."""


def about_command(line: Sequence[str]) -> str:
    """Return the sentence on a command line that could not be read, "" if it names nothing that is gone.

    >>> about_command(["constitution", "review", "--list"])[:32]
    'approvals of the constitution ov'
    """
    words = tuple(word for word in line if not word.startswith("-"))
    options = {word.partition("=")[0] for word in line}
    return next(
        (what for command, option, what in COMMANDS if words[: len(command)] == command and option in {"", *options}),
        "",
    )


def about_path(path: str) -> str:
    """Return the sentence on a path that is not served, "" if it names nothing that is gone."""
    return next((what for beginning, what in PATHS if path.startswith(beginning)), "")

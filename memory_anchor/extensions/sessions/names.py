"""What a command may say of past conversations without opening the archive, and without the settings."""

from __future__ import annotations

from memory_anchor.extensions import installed

FILE, LOOK = "sessions.db", "look_at_sessions"
"""The file in the data directory that keeps what was read, and the job that looks again."""
READERS = dict.fromkeys(("claude-code", "codex"), f"{__package__}.readers") | {
    agent: f"{__package__.rpartition('.')[0]}.{one.name}" for one in installed() for agent in one.readers
}
AGENTS = tuple(READERS)

"""The settings of past conversations, and what a command may say of them without opening the archive."""

from __future__ import annotations

from pydantic import Field

from memory_anchor.base.setting_groups import Group
from memory_anchor.extensions import installed


class SessionsSettings(Group):
    """keep: whether what was adopted of agents' sessions stays when the agent deletes its file: always, never, or for
    so many days."""

    keep: str = Field("always", pattern=r"^(always|never|[0-9]{1,5})$")


FILE, LOOK = "sessions.db", "look_at_sessions"
"""The file in the data directory that keeps what was read, and the job that looks again."""
READERS = dict.fromkeys(("claude-code", "codex"), f"{__package__}.readers") | {
    agent: f"{__package__.rpartition('.')[0]}.{one.name}" for one in installed() for agent in one.readers
}
AGENTS = tuple(READERS)
GROUPS = {"sessions": SessionsSettings}

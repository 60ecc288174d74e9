"""The settings of past conversations."""

from __future__ import annotations

from pydantic import Field

from memory_anchor.base.setting_groups import Group


class SessionsSettings(Group):
    """keep: whether what was adopted of agents' sessions stays when the agent deletes its file: always, never, or for
    so many days."""

    keep: str = Field("always", pattern=r"^(always|never|[0-9]{1,5})$")


GROUPS = {"sessions": SessionsSettings}

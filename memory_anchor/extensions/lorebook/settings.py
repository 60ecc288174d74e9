"""The settings of lorebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from memory_anchor.base.setting_groups import Group, Switch


class LorebookSettings(Group):
    """How lorebooks are scanned that do not say it themselves (docs/lorebook.md)."""

    GONE: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("include_names", "case_sensitive", "match_whole_words"),
        "names of speakers are always scanned, and how a key is matched stands at its entry; leave it out",
    )
    scan_depth: int = Field(2, ge=0, le=1000)
    recursive: Switch = False
    max_recursion_steps: int = Field(0, ge=0, le=1000)
    budget_tokens: int = Field(500, ge=0, le=50_000)


GROUPS = {"lorebook": LorebookSettings}

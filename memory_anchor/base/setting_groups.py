"""What a group of the settings file is made of: the core's groups and those that extensions bring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from memory_anchor.base.switches import ALLOWED, parse_switch

NAME_SHOWN, NAME_LONG = 4, 12


def _switched(value: str | bool) -> bool:
    try:
        return parse_switch(str(value))
    except ValueError:
        raise PydanticCustomError("switch", ALLOWED) from None


Switch = Annotated[bool, BeforeValidator(_switched)]
"""On or off, in the words that bridge and commands accept too."""


class Group(BaseModel):
    """A group. SECRET_NAMES: what in it has secrets as names. GONE: names that it had, and what serves instead."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    SECRET_NAMES: ClassVar[tuple[str, ...]] = ()
    GONE: ClassVar[Mapping[str, str]] = {}


def masked_names(names: Iterable[str]) -> dict[str, str]:
    """Return name -> how it is shown: the first characters of a long one, and no two alike."""
    shown: dict[str, str] = {}
    for name in names:
        head = f"{name[:NAME_SHOWN]}…" if len(name) >= NAME_LONG else "…"
        alike = sum(other.partition(" ")[0] == head for other in shown.values())
        shown[name] = f"{head} {alike + 1}" if alike else head
    return shown

"""Write what commands are packaged with: their options, made from the requests, and what they say beside their work.

Run it after a change of a request or of `scripts/data/guide.toml`: `.venv/bin/python scripts/make_commands.py`; a test
fails while the packaged file and the models differ.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Iterator
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from memory_anchor.domain.model import Layer
from memory_anchor.domain.requests.fields import BaseRequest, Moment
from memory_anchor.domain.requests.requests import ENTRY_FIELDS, NOT_OFFERED_FOR_EVENTS, LogEvent
from memory_anchor.front.cli import guide
from memory_anchor.front.cli.output import LAYERS
from memory_anchor.front.table import ROWS

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "scripts" / "data" / "guide.toml"
PACKAGED = Path(guide.__file__).with_name(guide.PACKAGED)
SINGULAR = {"layers": "layer", "types": "type", "tags": "tag", "files": "file"}
NO_OPTIONS = ENTRY_FIELDS | {"source", "seen", "request_id", "waits"}
TIME_EXAMPLES = ("yesterday", "last Monday", "3 days ago", "last week", "昨天", "上周")


def packaged() -> dict[str, Any]:
    """Return the whole file: what commands say by their names, what is asked for by the names of calls."""
    options = {name: _request(row.request) for name, row in ROWS.items()}
    made: dict[str, Any] = json.loads(
        json.dumps({"guide": tomllib.loads(GUIDE.read_text("utf-8")), "options": options})
    )
    return made


def _request(model: type[BaseRequest]) -> dict[str, Any]:
    hidden = (model.unlisted & NO_OPTIONS) | (NOT_OFFERED_FOR_EVENTS if model is LogEvent else set())
    fields = {name: _field(name, info) for name, info in model.model_fields.items() if name not in hidden}
    return {"about": inspect.getdoc(model) or "", "fields": fields}


def _field(name: str, info: FieldInfo) -> dict[str, Any]:
    """Return an option as `front/cli/generated.py` reads it, without what is empty."""
    kind, is_time = _kind(info.annotation)
    extra: dict[str, Any] = dict(info.json_schema_extra or {})  # type: ignore[arg-type]
    default = info.default.value if isinstance(info.default, StrEnum) else info.default
    is_given = not info.is_required() and kind != "list" and default != ""
    told = {
        "option": extra.get("option") or SINGULAR.get(name, name),
        "kind": kind,
        "help": info.description,
        "bounds": _bounds(info),
        "words": _words(info.annotation),
        "time": is_time,
        "required": info.is_required(),
    }
    shown = {key: value for key, value in told.items() if value}
    return shown | ({"default": default} if is_given and default is not None else {})


def _bounds(field: FieldInfo) -> str:
    inner = [bound for part in get_args(field.annotation) for bound in getattr(part, "__metadata__", ())]
    limits = {n: getattr(bound, n) for bound in (*field.metadata, *inner) for n in ("ge", "le") if hasattr(bound, n)}
    return f"{limits['ge']:g} to {limits['le']:g}" if {"ge", "le"} <= set(limits) else ""


def _kind(annotation: object) -> tuple[str, bool]:
    """Return the type that typer reads a field as, and whether it is a time."""
    parts = [part for part in get_args(annotation) if part is not type(None)]
    base = parts[0] if type(None) in get_args(annotation) and parts else annotation
    base = getattr(base, "__origin__", base) if hasattr(base, "__metadata__") else base
    if getattr(base, "__origin__", None) is tuple:
        return "list", False
    return (base.__name__ if base in (bool, int, float) else "str"), base is Moment  # type: ignore[attr-defined]


def _words(annotation: object) -> list[str]:
    """Return what completes a field: an enumeration, a literal or a time; [] for any other."""
    kinds = list(kinds_in(annotation))
    if Layer in kinds:
        return [*LAYERS.values(), *(layer.value for layer in Layer)]
    if Moment in kinds:
        return [*TIME_EXAMPLES]
    enums = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum)]
    values = [str(member.value) for kind in enums for member in kind]
    return values or [kind for kind in kinds if isinstance(kind, str)]


def kinds_in(annotation: object) -> Iterator[object]:
    yield annotation
    for part in get_args(annotation):
        yield from kinds_in(part)


if __name__ == "__main__":
    text = json.dumps(packaged(), ensure_ascii=False, indent=1)
    PACKAGED.write_text(f"{text}\n", encoding="utf-8")
    print(f"{PACKAGED}: {len(text)} bytes")

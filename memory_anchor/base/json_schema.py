"""The JSON Schema of a model, as clients take it: with bounds and defaults, without titles and null unions."""

from __future__ import annotations

from functools import cache

from pydantic import BaseModel

from memory_anchor.base.json_values import Json, Record, items, number, record

BOUNDS = {"ge": "minimum", "le": "maximum"}
"""JSON Schema's words for bounds that pydantic leaves as they are after a validator of ours."""


@cache
def schema_of(model: type[BaseModel]) -> dict[str, Json]:
    """Return the JSON Schema of a request, with bounds and defaults, without titles and null unions."""
    return dict(record(without_titles(model.model_json_schema())))


def without_titles(schema: Json, *, defaults: bool = True) -> Json:
    """Return a JSON Schema without titles and null unions, and without defaults where asked."""
    if isinstance(schema, list):
        return [without_titles(inner, defaults=defaults) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    options = [option for option in items(schema.get("anyOf")) if option != {"type": "null"}]
    if len(options) == 1:
        schema = {**record(options[0]), **{name: inner for name, inner in schema.items() if name != "anyOf"}}
    return {
        BOUNDS.get(name, name): {key: without_titles(inner, defaults=defaults) for key, inner in record(value).items()}
        if name == "properties"
        else without_titles(value, defaults=defaults)
        for name, value in schema.items()
        if name != "title" and (name != "default" or (defaults and value is not None))
    }


def bounds_in_words(field: Record) -> str:
    """Return the bounds and the default of a field in words.

    >>> bounds_in_words({"minimum": 1, "maximum": 50, "default": 5}), bounds_in_words({"maxItems": 32})
    ('1-50, default 5', 'up to 32')
    """
    limits = []
    if "minimum" in field:
        limits.append(f"{number(field['minimum']):g}-{number(field['maximum']):g}")
    elif "maxItems" in field:
        limits.append(f"up to {field['maxItems']}")
    elif "maxLength" in field:
        limits.append(f"1-{field['maxLength']} characters")
    if isinstance(default := field.get("default"), int | float):
        limits.append(f"default {default:g}")
    return ", ".join(limits)

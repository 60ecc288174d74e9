"""Strict tool schemas: nothing undeclared, nothing referenced, and what was right stays right."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from figures import figure
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions.prompts.profiles import DEPTH_MAX, NODES_MAX, strict_schema


def accepts(schema: Any, value: Any) -> bool:
    return bool(Draft202012Validator(schema).is_valid(value))


def test_an_object_refuses_undeclared_names_at_every_level() -> None:
    """additionalProperties: false, also in items and nested objects; the given schema is not changed."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "object", "properties": {"b": {"type": "string"}}},
            "c": {"type": "array", "items": {"type": "object", "properties": {}}},
        },
        "required": ["a"],
    }
    before = copy.deepcopy(schema)

    strict = strict_schema(schema)

    assert schema == before
    assert strict["additionalProperties"] is False
    assert strict["properties"]["a"]["additionalProperties"] is False
    assert strict["properties"]["c"]["items"]["additionalProperties"] is False
    assert strict["required"] == ["a"]
    assert accepts(strict, {"a": {"b": "x"}, "c": [{}]})
    assert not accepts(strict, {"a": {"b": "x", "z": 1}})


def test_missing_properties_are_filled() -> None:
    """A tool without arguments gets an empty object; a required name that is not declared is declared."""
    assert strict_schema({"type": "object"}) == {"type": "object", "additionalProperties": False, "properties": {}}
    strict = strict_schema({"type": "object", "required": ["path"]})
    assert strict["properties"] == {"path": {}}
    assert accepts(strict, {"path": "x"})


@pytest.mark.parametrize(
    "condition",
    [
        {"dependentRequired": {"card": ["address"]}},
        {"dependencies": {"card": ["address"]}},
        {"dependentSchemas": {"card": {"required": ["address"]}}},
        {"dependencies": {"card": {"required": ["address"]}}},
        {"dependentSchemas": {"card": {"dependentRequired": {"card": ["address"]}}}},
        {"allOf": [{"dependentRequired": {"card": ["address"]}}]},
    ],
)
@pytest.mark.parametrize("properties", [{"card": {"type": "string"}}, {}])
def test_a_name_that_another_name_asks_for_is_declared(condition: dict[str, Any], properties: dict[str, Any]) -> None:
    """Both names of a dependency can be given, as draft 7 and 2020-12 spell it; others are still refused."""
    schema = {"type": "object", "properties": properties, **condition}

    strict = strict_schema(schema)

    assert strict["additionalProperties"] is False
    assert set(strict["properties"]) == {"card", "address"}
    assert accepts(strict, {"card": "1", "address": "here"})
    assert not accepts(strict, {"card": "1", "address": "here", "z": 1})
    assert "dependencies" in condition or not accepts(strict, {"card": "1"})
    assert strict_schema(strict) == strict


@pytest.mark.parametrize("condition", [{"required": ["a"]}, {"dependentRequired": {"a": ["b"]}}])
def test_a_map_that_asks_for_a_name_stays_a_map(condition: dict[str, Any]) -> None:
    """Asking for a name declares no property: every other name is as right as before."""
    schema = {"type": "object", "additionalProperties": True, **condition}

    assert accepts(strict_schema(schema), {"a": 1, "b": 2, "z": 3})


def test_references_are_inlined_and_definitions_dropped() -> None:
    """Local pointers of every spelling; notes beside a reference win."""
    schema = {
        "type": "object",
        "$defs": {"Color": {"enum": ["red"], "description": "a color"}, "a/b": {"type": "integer"}},
        "definitions": {"Old": {"type": "boolean"}},
        "properties": {
            "color": {"$ref": "#/$defs/Color", "description": "of the car"},
            "count": {"$ref": "#/$defs/a~1b"},
            "old": {"$ref": "#/definitions/Old"},
            "same": {"$ref": "#/properties/count"},
            "boxed": {"allOf": [{"$ref": "#/$defs/Color"}], "default": "red"},
        },
    }

    strict = strict_schema(schema)

    assert "$ref" not in json.dumps(strict)
    assert "$defs" not in strict
    assert "definitions" not in strict
    assert strict["properties"]["color"] == {"enum": ["red"], "description": "of the car"}
    assert strict["properties"]["count"] == strict["properties"]["same"] == {"type": "integer"}
    assert strict["properties"]["boxed"] == {"enum": ["red"], "description": "a color", "default": "red"}


def test_a_reference_with_conditions_beside_it_keeps_both() -> None:
    """Only notes may be merged; a condition must still hold."""
    schema = {
        "$defs": {"Base": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/Base", "properties": {"b": {"type": "string"}}}},
    }

    strict = strict_schema(schema)

    assert accepts(strict, {"x": {"a": 1, "b": "s"}})
    assert not accepts(strict, {"x": {"b": "s"}})
    assert not accepts(strict, {"x": {"a": 1, "c": 1}})


def test_a_definition_that_contains_itself_is_written_out_a_few_levels() -> None:
    """Recursion has a bound, below which anything of the kind is taken."""
    node = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
        "required": ["name"],
    }
    strict = strict_schema({"$defs": {"Node": node}, "$ref": "#/$defs/Node"})

    def tree(depth: int) -> dict[str, Any]:
        return {"name": "n", "kids": [tree(depth - 1)] if depth else []}

    assert "$ref" not in json.dumps(strict)
    assert accepts(strict, tree(9))
    assert not accepts(strict, {"name": "n", "kids": [{"kids": []}]})
    assert strict_schema(strict) == strict
    assert strict_schema({"properties": {"self": {"$ref": "#"}}})["properties"]["self"]["properties"]


def test_one_of_becomes_any_of_and_keeps_an_any_of_beside_it() -> None:
    """Models and strict dialects know anyOf only; both conditions still hold."""
    union = {"oneOf": [{"type": "string"}, {"type": "integer"}], "discriminator": {"propertyName": "kind"}}
    assert strict_schema({"properties": {"x": union}})["properties"]["x"] == {
        "anyOf": [{"type": "string"}, {"type": "integer"}]
    }
    both = strict_schema({"properties": {"x": {"anyOf": [{"minimum": 1}], "oneOf": [{"type": "integer"}]}}})
    assert accepts(both, {"x": 2})
    assert not accepts(both, {"x": 0})
    assert not accepts(both, {"x": "s"})
    assert "oneOf" not in json.dumps(both)


def test_one_of_in_a_negation_is_left_alone() -> None:
    """Under `not` and `if` a wider union would refuse what was right."""
    schema = {"properties": {"x": {"not": {"oneOf": [{"minimum": 1}, {"type": "integer"}]}}}}

    assert accepts(strict_schema(schema), {"x": 5}) is accepts(schema, {"x": 5}) is True


def test_alternatives_are_closed_each_and_branches_of_one_object_together() -> None:
    """A union of whole objects refuses foreign names; branches of one object all see its declared names."""
    cat = {"type": "object", "properties": {"kind": {"const": "cat"}, "meow": {"type": "integer"}}}
    dog = {"type": "object", "properties": {"kind": {"const": "dog"}, "bark": {"type": "string"}}}
    union = strict_schema({"properties": {"pet": {"oneOf": [cat, dog]}}})
    assert accepts(union, {"pet": {"kind": "cat", "meow": 3}})
    assert not accepts(union, {"pet": {"kind": "cat", "bark": "no"}})

    either = strict_schema(
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "anyOf": [{"required": ["a"]}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
        }
    )
    assert accepts(either, {"a": "x"})
    assert accepts(either, {"b": 1})
    assert not accepts(either, {"b": "x"})
    assert not accepts(either, {"a": "x", "z": 1})

    together = strict_schema({"allOf": [cat, {"type": "object", "properties": {"age": {"type": "integer"}}}]})
    assert accepts(together, {"kind": "cat", "meow": 1, "age": 2})
    assert not accepts(together, {"kind": "cat", "color": "black"})


def test_an_object_described_twice_is_not_closed_on_one_side() -> None:
    """A property that a branch describes too stays open, else each side refuses the other's names."""
    schema = {
        "type": "object",
        "properties": {"p": {"type": "object", "properties": {"x": {}}}},
        "allOf": [{"properties": {"p": {"type": "object", "properties": {"y": {}}}}}, {"minProperties": 1}],
    }

    assert accepts(strict_schema(schema), {"p": {"x": 1, "y": 2}})


def test_a_declared_map_stays_a_map() -> None:
    """Closing a map would refuse everything it exists for; its values are still normalised."""
    schema = {
        "type": "object",
        "properties": {
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
            "any": {"type": "object", "additionalProperties": True},
            "named": {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
            "deep": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {}}}},
            "x": {"type": "object", "patternProperties": {"^x-": {"type": "string"}}},
        },
    }

    strict = strict_schema(schema)

    assert accepts(strict, {"env": {"PATH": "/bin"}, "any": {"z": 1}, "named": {"a": 1}, "x": {"x-y": "s"}})
    assert not accepts(strict, {"named": {"b": 1}})
    assert not accepts(strict, {"deep": {"k": {"b": 1}}})
    assert not accepts(strict, {"x": {"other": "s"}})


def test_data_that_looks_like_a_schema_is_left_alone() -> None:
    """Enum values, defaults and property names are not keywords."""
    schema = {
        "type": "object",
        "properties": {"$ref": {"type": "string"}, "oneOf": {"enum": [{"oneOf": [1]}], "default": {"$ref": "#/no"}}},
    }

    strict = strict_schema(schema)

    assert strict["properties"] == schema["properties"]


def test_all_can_be_required_with_null_for_what_was_optional() -> None:
    """Some APIs want every name required; optional ones become nullable, once."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": ["string", "null"]}},
        "required": ["a"],
    }

    strict = strict_schema(schema, require_all=True)

    assert strict["required"] == ["a", "b", "c"]
    assert accepts(strict, {"a": "x", "b": None, "c": None})
    assert not accepts(strict, {"a": None, "b": 1, "c": None})
    assert strict_schema(strict, require_all=True) == strict


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ([], "schema is a list"),
        (None, "schema is null"),
        ({"$ref": "#/$defs/No"}, "leads nowhere"),
        ({"$ref": "https://example.com/s.json"}, "leads nowhere"),
        ({"properties": {"a": {"$ref": 5}}}, r"\$ref that is a number"),
        ({"properties": ["a"]}, "properties that are a list"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused(schema: Any, words: str) -> None:
    """One sentence: what, the value, what is allowed."""
    with pytest.raises(BadInput, match=words):
        strict_schema(schema)


def test_a_schema_that_explodes_or_has_no_bottom_is_refused() -> None:
    """Twenty definitions that each use the next one twice are a million parts written out."""
    defs: dict[str, Any] = {
        f"d{n}": {"properties": {"l": {"$ref": f"#/$defs/d{n + 1}"}, "r": {"$ref": f"#/$defs/d{n + 1}"}}}
        for n in range(20)
    }
    defs["d20"] = {"type": "string"}
    with pytest.raises(BadInput, match=str(NODES_MAX)):
        strict_schema({"$defs": defs, "$ref": "#/$defs/d0"})

    deep: dict[str, Any] = {"type": "string"}
    for _ in range(DEPTH_MAX + 1):
        deep = {"type": "object", "properties": {"a": deep}}
    with pytest.raises(BadInput, match=f"{DEPTH_MAX} levels"):
        strict_schema(deep)

    ring: dict[str, Any] = {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}
    assert strict_schema(ring) == {}


# --- laws -------------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c")
leaves = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"enum": [1, "x"]}, {}, True, {"$ref": "#/$defs/S"}, {"minimum": 2}]
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
            "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
            "description": st.just("d"),
            "additionalProperties": st.sampled_from([True, False, {"type": "integer"}]),
        },
    )


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        objects(inner),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        lists.map(lambda every: {"anyOf": every}),
        lists.map(lambda every: {"oneOf": every}),
        lists.map(lambda every: {"allOf": every}),
        st.tuples(objects(inner), lists).map(lambda pair: {**pair[0], "anyOf": pair[1]}),
        st.tuples(objects(inner), lists).map(lambda pair: {**pair[0], "allOf": pair[1]}),
        st.tuples(st.just({"$ref": "#/$defs/S"}), inner).map(
            lambda pair: {**(pair[1] if isinstance(pair[1], dict) else {}), **pair[0]}
        ),
        inner.map(lambda one: {"not": one}),
    )


schemas = st.recursive(leaves, grown, max_leaves=8)
roots = st.tuples(objects(schemas), objects(leaves)).map(lambda pair: {**pair[0], "$defs": {"S": pair[1]}})
values = st.recursive(
    st.sampled_from([1, 3, "x", None]),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from((*NAMES, "z")), inner, max_size=3), st.lists(inner, max_size=2)
    ),
    max_leaves=6,
)


@settings(max_examples=figure(60, 150), deadline=None)
@given(roots, st.booleans())
def test_normalising_twice_is_normalising_once(schema: dict[str, Any], require_all: bool) -> None:
    """strict(strict(s)) == strict(s), and nothing is left to resolve."""
    once = strict_schema(schema, require_all=require_all)

    assert strict_schema(once, require_all=require_all) == once
    assert "$ref" not in json.dumps(once)
    assert "$defs" not in json.dumps(once)
    Draft202012Validator.check_schema(once)


def declared(schema: Any, root: Any, value: Any) -> Any:
    """Return the value less the names that the schema, at this place, does not declare anywhere."""
    if not isinstance(value, dict) or not isinstance(schema, dict):
        return value
    named = schema.get("properties", {})
    return {key: declared(named[key], root, inner) for key, inner in value.items() if key in named}


flat = st.recursive(leaves.filter(lambda one: one != {"$ref": "#/$defs/S"}), objects, max_leaves=6)


@settings(max_examples=figure(60, 150), deadline=None)
@given(objects(flat), values)
def test_an_argument_of_declared_names_that_was_right_stays_right(schema: dict[str, Any], value: Any) -> None:
    """Strictness takes undeclared names away and nothing else."""
    if not isinstance(value, dict):
        value = {"a": value}
    argument = declared(schema, schema, value)

    if accepts(schema, argument):
        assert accepts(strict_schema(schema), argument)


plain = st.sampled_from([{"type": "string"}, {"type": "integer"}, {"enum": [1, "x"]}, {}, {"minimum": 2}])
needs = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True).map(lambda names: {"required": names})
branches = st.lists(st.one_of(objects(plain), needs), min_size=1, max_size=3)
branchy = st.tuples(objects(plain), st.sampled_from(["anyOf", "oneOf", "allOf"]), branches).map(
    lambda parts: {**parts[0], parts[1]: parts[2]}
)


@settings(max_examples=figure(60, 150), deadline=None)
@given(st.one_of(branchy, branches.map(lambda every: {"allOf": every})), st.data())
def test_an_object_may_use_every_name_that_it_or_a_branch_declares(schema: dict[str, Any], data: st.DataObject) -> None:
    """Branches of one object are not closed one by one: they all see the same names."""
    parts = [schema, *(branch for word in ("anyOf", "oneOf", "allOf") for branch in schema.get(word, []))]
    names = sorted({name for part in parts for name in (*part.get("properties", {}), *part.get("required", []))})
    scalars = st.sampled_from([1, 3, "x"])
    value = data.draw(st.dictionaries(st.sampled_from(names), scalars) if names else st.just({}))

    if accepts(schema, value):
        assert accepts(strict_schema(schema), value)


def _asks_for_what_it_forbids(schema: Any) -> bool:
    """Return whether a closed object somewhere requires a property it does not have; the strict form supplies it."""
    if isinstance(schema, list):
        return any(_asks_for_what_it_forbids(one) for one in schema)
    if not isinstance(schema, dict):
        return False
    closed = schema.get("additionalProperties") is False
    missing = set(schema.get("required", ())) - set(schema.get("properties", {}))
    return (closed and bool(missing)) or any(_asks_for_what_it_forbids(one) for one in schema.values())


@settings(max_examples=figure(60, 150), deadline=None)
@given(roots, values)
def test_what_the_strict_form_takes_is_no_looser_than_the_given_but_for_unions(
    schema: dict[str, Any], value: Any
) -> None:
    """Only `oneOf` as `anyOf`, the recursion bound and a required name that nothing may carry let more through."""
    if "oneOf" in json.dumps(schema) or "not" in json.dumps(schema) or _asks_for_what_it_forbids(schema):
        return
    if accepts(strict_schema(schema), value):
        assert accepts(schema, value)


def test_the_schemas_of_a_real_library_become_strict() -> None:
    """A pydantic model with nested, optional and recursive parts, as tools are declared with."""
    from pydantic import BaseModel, Field

    class Step(BaseModel):
        name: str = Field(description="what")
        env: dict[str, str] = {}
        after: list[Step] = []

    class Plan(BaseModel):
        title: str | None = None
        steps: list[Step]

    strict = strict_schema(Plan.model_json_schema())

    good = {"steps": [{"name": "a", "env": {"X": "1"}, "after": [{"name": "b", "after": [{"name": "c"}]}]}]}
    assert accepts(strict, good)
    assert not accepts(strict, {"steps": [{"name": "a", "colour": "red"}]})
    assert not accepts(strict, {"steps": [{}]})

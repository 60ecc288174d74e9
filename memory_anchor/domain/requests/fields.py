"""The field types of requests, and what is made from a request: error messages, JSON Schema, a tool's schema.

Fields accept raw values and hold checked ones: stripped text, cleaned names, tuples, enums. One formatter, `sentence`,
says what is wrong: the field, the value, what is allowed. Clients send numbers, flags, lists and objects as JSON in a
text, and `""` or `"null"` for what they leave out: both are read so wherever a text has no other reading.
Rejected: pydantic's own messages (several lines, with the refused text).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial, wraps
from types import EllipsisType
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    ModelWrapValidatorHandler,
    PlainValidator,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_schema import bounds_in_words
from memory_anchor.base.json_values import Json, parsed, record, text
from memory_anchor.domain.errors import BadInput, retry_on_conflict
from memory_anchor.domain.model import (
    CITATION_KINDS,
    LAYER_ALIASES,
    TYPE_ALIASES,
    VISIBILITY_ALIASES,
    Citation,
    Epistemic,
    Layer,
    Locator,
    MemoryType,
    ProposalAction,
    Status,
    Tag,
    Visibility,
    WriteMode,
)
from memory_anchor.domain.requests.checks import (
    CONTENT_MAX,
    FILE_MAX,
    FILES_MAX,
    INVALID,
    KEY_MAX,
    NAME_MAX,
    PATH_MAX,
    PEOPLE_MAX,
    QUERY_MAX,
    REASON_MAX,
    REQUEST_ID_MAX,
    TAG_MAX,
    TAGS_MAX,
    YEARS,
    field_of,
    json_value,
    sentence,
    shortened,
)

L1_BYTES_MAX = 16 * 1024
SEEN_MAX, STAMP_MAX = 50, 200
WEIGHT_MAX = 10
OWNER_FIELDS = ("account_id", "user_id", "conversation_id")
HALF_LIFE_DAYS_MAX = 36_500
SOURCE_ALIASES = {"dag_node": "conversation"}

Schema = dict[str, Json]
Raw: TypeAlias = "Json | datetime | Moment | Tag | Citation | BaseModel | Sequence[Raw] | Mapping[str, Raw]"
"""A field's value before it is checked: JSON, or the type that it is turned into."""
T = TypeVar("T")
Anchor = TypeVar("Anchor")
Request = TypeVar("Request", bound="BaseRequest")
Answer = TypeVar("Answer")


# --- kinds of values ---------------------------------------------------------------------------------------------


def _invalid(what: str) -> PydanticCustomError:
    """Return a validation error; `sentence` puts the field's name before it."""
    return PydanticCustomError(INVALID, "{what}", {"what": what})


def _short(value: Raw) -> str:
    return shortened(repr(value))


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise _invalid(f"has a NUL character at position {text.index(chr(0))}; allowed is text without NUL")
    return text


_removed: ContextVar[set[str] | None] = ContextVar("removed", default=None)
"""Kinds of what was removed from the request that is being read."""


def clean(text: str) -> str:
    """Return the text as anybody behind a request may see it: without secrets and private parts."""
    from memory_anchor.language.safety import cleaned  # a command's options need none of its rules

    safe = cleaned(text)
    if safe.kinds and (removed := _removed.get()) is not None:
        removed.update(safe.kinds)
    return safe.text


def is_left_out(value: Raw) -> bool:
    """Return whether a value says nothing: null, or what clients write for it in a text."""
    return value is None or (isinstance(value, str) and value.strip() in ("", "null"))


def unquoted(value: T | None, *kinds: type) -> T | Json:
    """Return the value of a JSON text where it is of one of these kinds; anything else as it is.

    >>> unquoted("5", int), unquoted("True", bool), unquoted('["a"]', list), unquoted("5", list)
    (5, True, ['a'], '5')
    """
    if not isinstance(value, str):
        return value
    try:
        inner = parsed(value.lower() if kinds == (bool,) else value)
    except (ValueError, RecursionError):
        return value
    return inner if isinstance(inner, kinds) and (bool in kinds or not isinstance(inner, bool)) else value


def from_json(*kinds: type) -> BeforeValidator:
    """Return a validator that takes JSON of these kinds in a text too."""
    return BeforeValidator(lambda value: unquoted(value, *kinds))


def _as_list(value: Raw) -> Raw:
    """Return a list without what says nothing; one text counts as a list of one, JSON of a list as that list."""
    value = unquoted(value, list)
    if isinstance(value, str):
        return [value]
    if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping | BaseModel):
        return [member for member in value if member is not None and member != ""]
    return value


def _messages(value: Raw) -> Raw:
    value = unquoted(value, list)
    return [unquoted(message, dict) for message in value] if isinstance(value, list) else value


def _unique(values: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(value for value in values if value))


def _whole(value: Raw) -> Raw:
    value = unquoted(value, int, float)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _tag(value: Raw) -> Tag:
    """Return a tag from its name or from {name, weight}."""
    if isinstance(value, Tag):
        value = {"name": value.name, "weight": value.weight}
    name, weight = (value.get("name"), value.get("weight", 1.0)) if isinstance(value, Mapping) else (value, 1.0)
    if not isinstance(name, str) or not 1 <= len(name.strip()) <= TAG_MAX:
        raise _invalid(f"is {_short(name)}; allowed is text of 1 to {TAG_MAX} characters")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= WEIGHT_MAX:
        raise _invalid(f"has the weight {_short(weight)}; allowed is a number from 0 to {WEIGHT_MAX}")
    return Tag(clean(_without_nul(name.strip())), float(weight))


def _tags(tags: tuple[Tag, ...]) -> tuple[Tag, ...]:
    """Return each name once; an explicit weight wins over the default."""
    by_name: dict[str, Tag] = {}
    for tag in tags:
        if tag.name and (tag.name not in by_name or tag.weight != 1):
            by_name[tag.name] = tag
    return tuple(by_name.values())


@dataclass(frozen=True, slots=True)
class Moment:
    """A time as given: in the caller's zone where it names none; a bare date is a whole day."""

    text: str
    at: datetime
    is_day: bool = False

    def start(self, zone: str) -> datetime:
        """Return the first instant of it, in UTC."""
        aware = self.at if self.at.tzinfo is not None else self.at.replace(tzinfo=ZoneInfo(zone))
        return aware.astimezone(UTC)

    def end(self, zone: str) -> datetime:
        """Return the exclusive end of a range: after that day, or just after that instant."""
        first = self.start(zone)
        if self.is_day:
            return (first.astimezone(ZoneInfo(zone)) + timedelta(days=1)).astimezone(UTC)
        return first + timedelta(microseconds=1)


def _moment(value: Raw) -> Moment:
    if isinstance(value, Moment):
        return value
    raw = value.isoformat() if isinstance(value, datetime) else value.strip() if isinstance(value, str) else ""
    try:
        at = datetime.fromisoformat(raw)
    except ValueError:
        raise _invalid(f"is {_short(value)}; allowed is an ISO 8601 time such as 2026-01-31T09:30:00Z") from None
    if not YEARS[0] <= at.year <= YEARS[1]:
        raise _invalid(f"is {_short(value)}; allowed are the years {YEARS[0]} to {YEARS[1]}")
    return Moment(raw, at, len(raw) == len("2026-01-31") and "T" not in raw)


def _half_life(value: Raw) -> float:
    value = unquoted(value, dict, int, float)
    days = value.get("half_life_days") if isinstance(value, Mapping) and len(value) == 1 else value
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 < days <= HALF_LIFE_DAYS_MAX:
        raise _invalid(f"is {_short(value)}; allowed is {{half_life_days}} above 0, at most {HALF_LIFE_DAYS_MAX}")
    return float(days)


def _owner(value: Raw) -> tuple[tuple[str, str], ...]:
    if isinstance(value, tuple | list) and all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in value):
        value = {str(name): owner for name, owner in value}  # checked before
    value = unquoted(value, dict)
    if not isinstance(value, Mapping) or not all(
        name in OWNER_FIELDS and isinstance(owner, str) and len(owner) <= NAME_MAX for name, owner in value.items()
    ):
        raise _invalid(f"is {_short(value)}; allowed is an object of {', '.join(OWNER_FIELDS)}")
    return tuple((name, str(value[name])) for name in OWNER_FIELDS if value.get(name))


def _cited_source(value: Raw) -> Citation:
    """Return a source of a memory entry, `{kind, ref, title?, locator?}`, as a citation."""
    if isinstance(value, Citation):
        return value
    given = unquoted(value, dict)
    source = given if isinstance(given, Mapping) else {}
    name = SOURCE_ALIASES.get(str(source.get("kind")), source.get("kind"))
    kind = next((known for known in CITATION_KINDS if known == name), None)
    ref, title, locator = source.get("ref"), source.get("title"), source.get("locator") or {}
    if kind is None or not isinstance(ref, str) or not 1 <= len(ref.strip()) <= FILE_MAX:
        kinds = ", ".join(CITATION_KINDS)
        raise _invalid(f"is {_short(value)}; allowed is {{kind, ref}}, kind one of {kinds}")
    lines = (locator.get("line_start"), locator.get("line_end")) if isinstance(locator, Mapping) else (0, 0)
    first, last = (line if isinstance(line, int) and line >= 1 else None for line in lines)
    if (first, last) != lines:
        raise _invalid(f"has the locator {_short(locator)}; allowed are line_start and line_end from 1")
    cleaned_title = clean(_without_nul(title[:KEY_MAX])) if isinstance(title, str) else None
    return Citation(kind, clean(_without_nul(ref.strip())), cleaned_title, Locator(first, last))


def _json(value: Json, info: ValidationInfo) -> Json:
    """Return a JSON value as it would come back from its text, cleaned under its key, too."""
    from memory_anchor.language.safety import cleaned_value

    return cleaned_value(parsed(json_value("value", value, most_bytes=L1_BYTES_MAX)), str(info.data.get("key", "")))


def _document(encoded: str) -> str:
    """Return the bytes of a document in base64; those of a text are cleaned."""
    try:
        whole = base64.b64decode(encoded, validate=True)
    except ValueError:
        raise _invalid("is not Base64; allowed is the bytes of one file in Base64") from None
    with suppress(UnicodeDecodeError):
        return base64.b64encode(clean(whole.decode("utf-8")).encode()).decode()
    return encoded


def enum_name(aliases: Mapping[str, StrEnum] | None = None) -> BeforeValidator:
    """Return a validator that takes an enum's name in any case, and its aliases."""

    def read(value: Raw) -> Raw:
        name = value.strip().lower() if isinstance(value, str) else value
        return (aliases or {}).get(name, name) if isinstance(name, str) else value

    return BeforeValidator(read, json_schema_input_type=str)


@dataclass(frozen=True, slots=True)
class Text:
    """Stripped text without secrets and private parts; least=0 allows it to be empty.

    exact: it stays as it was given, because it is compared, hashed or opened; nothing stores or shows it as a text.
    """

    most: int
    least: int = 1
    exact: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        bounds = StringConstraints(
            strict=True, strip_whitespace=True, min_length=self.least or None, max_length=self.most
        )
        return handler.generate_schema(Annotated[source, bounds, AfterValidator(self._read)])

    def _read(self, text: str) -> str:
        made = _without_nul(text) if self.exact else clean(_without_nul(text))
        if text and self.least and not made:
            raise _invalid("is empty once its private part is left out; allowed is text outside <private>")
        return made


Exact = partial(Text, exact=True)


@dataclass(frozen=True, slots=True)
class Listed:
    """A tuple without repeats, in order; one text counts as a list of one."""

    most: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        bounded = Annotated[source, Field(max_length=self.most), AfterValidator(_unique), BeforeValidator(_as_list)]
        return handler.generate_schema(bounded)


Content = Annotated[str, Text(CONTENT_MAX)]
Identifier = Annotated[str, Text(NAME_MAX)]
Name = Annotated[str, Exact(NAME_MAX, 0)]
"""Of somebody or something, as it is known elsewhere."""
Label = Annotated[str, Text(NAME_MAX, 0)]
"""A name that is stored with a text and tells something about it."""
Path = Annotated[str, Exact(PATH_MAX)]
Reason = Annotated[str, Text(REASON_MAX)]
OptionalReason = Annotated[str, Text(REASON_MAX, 0)]
Key = Annotated[str, Text(KEY_MAX, 0)]
EncodedDocument = Annotated[str, AfterValidator(_document)]
Query = Annotated[str, Text(QUERY_MAX)]
RequestId = Annotated[str, Exact(REQUEST_ID_MAX, 0)]
Flag = Annotated[bool, Field(strict=True), from_json(bool)]
Polarity = Annotated[float, Field(strict=True, ge=-1, le=1, allow_inf_nan=False), from_json(int, float)]
Decay = Annotated[float, PlainValidator(_half_life), WithJsonSchema({"type": "object"})]
"""`{half_life_days}` of a memory entry, as days."""
Sources = Annotated[
    tuple[Annotated[Citation, PlainValidator(_cited_source), WithJsonSchema({"type": "object"})], ...],
    Field(max_length=FILES_MAX),
    BeforeValidator(_as_list),
]
OwnerIds = Annotated[tuple[tuple[str, str], ...], PlainValidator(_owner), WithJsonSchema({"type": "object"})]
"""`{account_id, user_id, conversation_id}` of a memory entry: (name, id) of each that was given."""
Share = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False), from_json(int, float)]
Integer = Annotated[int, Field(strict=True), BeforeValidator(_whole)]
When = Annotated[Moment, PlainValidator(_moment), WithJsonSchema({"type": "string"})]
OneTag = Annotated[Tag, PlainValidator(_tag), WithJsonSchema({"type": "string"})]
Tags = Annotated[tuple[OneTag, ...], Field(max_length=TAGS_MAX), AfterValidator(_tags), BeforeValidator(_as_list)]
TagName = Annotated[str, Text(TAG_MAX)]
TagNames = Annotated[tuple[TagName, ...], Listed(TAGS_MAX)]
Files = Annotated[tuple[Annotated[str, Text(FILE_MAX)], ...], Listed(FILES_MAX)]
People = Annotated[tuple[Annotated[str, Text(NAME_MAX)], ...], Listed(PEOPLE_MAX)]
AnyLayer = Annotated[Layer, enum_name(LAYER_ALIASES), WithJsonSchema({"type": "string"})]
AnyType = Annotated[MemoryType, enum_name(TYPE_ALIASES), WithJsonSchema({"type": "string"})]
AnyVisibility = Annotated[Visibility, enum_name(VISIBILITY_ALIASES), WithJsonSchema({"type": "string"})]
AnyAction = Annotated[ProposalAction, enum_name(), WithJsonSchema({"type": "string"})]
AnyMode = Annotated[WriteMode, enum_name(), WithJsonSchema({"type": "string"})]
AnyStatus = Annotated[Status, enum_name(), WithJsonSchema({"type": "string"})]
AnyEpistemic = Annotated[Epistemic, enum_name(), WithJsonSchema({"type": "string"})]
Stamps = Annotated[tuple[Annotated[str, Exact(STAMP_MAX)], ...], Listed(SEEN_MAX)]
"""Stamps of the versions that a human was shown."""
AnyJson = Annotated[JsonValue, PlainValidator(_json), WithJsonSchema({})]
Messages = Annotated[
    JsonValue, PlainValidator(_messages), WithJsonSchema({"type": "array", "items": {"type": "object"}})
]
"""Checked message by message by extraction, with an error message for each."""


def arg(
    default: Raw | EllipsisType = ...,
    help: str = "",
    *,
    tool: str | None = None,
    option: str = "",
    ge: float | None = None,
    le: float | None = None,
    max_length: int | None = None,
) -> Any:
    """Return a field. help: for people, in options and HTTP. tool: what an agent reads instead; its `{}` becomes the
    bounds and the default. option: the command's option, where it is not named like the field."""
    extra: dict[str, JsonValue] = {"tool": tool, "option": option}
    return Field(default, description=help or None, json_schema_extra=extra, ge=ge, le=le, max_length=max_length)


# --- requests ----------------------------------------------------------------------------------------------------


class BaseRequest(BaseModel):
    """A use case's arguments: no unknown fields, frozen; the validator is built when first needed."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    unlisted: ClassVar[frozenset[str]] = frozenset()
    """Fields that a tool accepts without listing them: a schema costs tokens in every conversation."""
    terse: ClassVar[frozenset[str]] = frozenset()
    """Fields that a tool lists without a description, because another tool has it."""
    not_compared: ClassVar[frozenset[str]] = frozenset({"request_id"})
    """Fields that do not make a request a different one."""
    other_names: ClassVar[Mapping[str, str]] = {}
    """Other name -> field: used where the field's own name is not given."""
    encoded: ClassVar[frozenset[str]] = frozenset()
    """Fields with bytes in base64, whose text was cleaned where it is one."""
    _redactions: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _noting_redactions(cls, given: Raw, read: ModelWrapValidatorHandler[Self]) -> Self:
        removed: set[str] = set()
        token = _removed.set(removed)
        try:
            request = read(given)
        finally:
            _removed.reset(token)
        if removed:
            from memory_anchor.language.safety import KINDS

            request._redactions = tuple(kind for kind in KINDS if kind in removed)
        return request

    @property
    def redactions(self) -> tuple[str, ...]:
        """The kinds that were removed from any text of this request."""
        return self._redactions

    @model_validator(mode="before")
    @classmethod
    def _named_and_given(cls, given: Raw) -> Raw:
        """Return the arguments under the fields' own names, without optional ones that are left out."""
        if not isinstance(given, Mapping):
            return given
        renamed = {other: name for other, name in cls.other_names.items() if name not in given}
        named = {renamed.get(name, name): value for name, value in given.items()}
        fields = cls.model_fields
        return {n: v for n, v in named.items() if (n in fields and fields[n].is_required()) or not is_left_out(v)}

    @classmethod
    def required(cls) -> list[str]:
        return [name for name, field in cls.model_fields.items() if field.is_required()]

    @classmethod
    def of(cls, *values: Raw, **fields: Raw) -> Self:
        """Return the checked request; positional values are its first fields. Raises BadInput: one sentence."""
        if len(values) > len(cls.model_fields):
            raise TypeError(f"{cls.__name__} has {len(cls.model_fields)} fields, {len(values)} were given")
        return cls.read(dict(zip(cls.model_fields, values, strict=False)) | fields, cls.__name__)

    @classmethod
    def read(cls, given: Mapping[str, Raw], what: str) -> Self:
        """Return the checked request. what: its name in messages. Raises BadInput: one sentence."""
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            unknown = (problem for problem in errors if problem["type"] == "extra_forbidden")
            first = next(unknown, errors[0])  # an unknown name is often a typing mistake
            raise BadInput(sentence(first, cls, what)) from None

    def canonical(self, **resolved: Json) -> dict[str, Json]:
        """Return the canonical form by which a repeated request is recognised; receipts hold a hash of it.

        resolved: values of the fields that depend on the caller.
        """
        compared = (name for name in type(self).model_fields if name not in self.not_compared)
        return {name: _plain(getattr(self, name)) for name in compared} | resolved

    def as_body(self) -> dict[str, Json]:
        """Return the fields that were given as JSON, which `read` turns into this request again, without any secret.

        Exact texts are cleaned, too, since a body is sent or waits on disk; a request id becomes its hash then, so
        that repeats stay repeats.
        """
        from memory_anchor.language.safety import cleaned_value

        body: dict[str, Json] = {}
        for name in sorted(self.model_fields_set):
            value = _given(getattr(self, name))
            body[name] = value if name in self.encoded else cleaned_value(value)
            if name == "request_id" and body[name] != value:
                body[name] = stable_hash("request_id", str(value))
        return {name: value for name, value in body.items() if value is not None}


def use_case(model: type[Request]) -> Callable[[Callable[[Anchor, Request], Answer]], Callable[..., Answer]]:
    """Return a decorator: a method that takes one request accepts its fields too, `search("text", limit=3)`.

    Where another engine changed the store first, the whole use case runs again (`errors.retry_on_conflict`).
    """

    def wrap(method: Callable[[Anchor, Request], Answer]) -> Callable[..., Answer]:
        @wraps(method)
        def run(self: Anchor, *values: Raw, **fields: Raw) -> Answer:
            if len(values) == 1 and isinstance(values[0], model) and not fields:
                request = values[0]
            else:
                request = model.of(*values, **fields)
            return retry_on_conflict(lambda: method(self, request))

        return run

    return wrap


def _plain(value: Json | Moment | Tag | Citation | tuple[Tag | Citation, ...]) -> Json:
    if isinstance(value, Citation):
        return list(value.place)
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [(member.name, member.weight) if isinstance(member, Tag) else _plain(member) for member in value]
    return str(value) if isinstance(value, Moment | Tag) else value


def _given(value: Json | Moment | Tag | Citation | tuple[Tag | Citation, ...]) -> Json:
    """Return a checked value in the form in which it may be given again."""
    match value:
        case Moment():
            return value.text
        case Tag():
            return {"name": value.name, "weight": value.weight}
        case Citation():
            lines: Json = {"line_start": value.locator.line_start, "line_end": value.locator.line_end}
            return {"kind": value.kind, "ref": value.ref, "title": value.title, "locator": lines}
        case StrEnum():
            return value.value
        case tuple():
            return [_given(member) for member in value]
    return value


# --- what is made from a request -------------------------------------------------------------------------------------


OF_PROGRAMS = frozenset({"request_id"})
"""Taken from every caller; a model has no use for it, and the protocol's own ids make its repeats harmless."""


def tool_schema(model: type[BaseRequest]) -> Schema:
    """Return what an agent is shown of a request: types and short descriptions.

    Bounds and defaults are part of the descriptions, because some clients drop them from the schema.
    """
    properties: Schema = {}
    shown: Schema = {"type": "object", "properties": properties}
    shown_names = [name for name in model.model_fields if name not in model.unlisted and name not in OF_PROGRAMS]
    for name, field in ((name, field_of(model, name)) for name in shown_names):
        property_schema = {key: field[key] for key in ("type", "items") if key in field}
        if "items" in property_schema:
            property_schema["items"] = {"type": record(property_schema["items"])["type"]}
        if name not in model.terse and (words := text(field.get("tool"), "").replace("{}", bounds_in_words(field))):
            property_schema["description"] = words
        properties[name] = property_schema
    if required := model.required():
        shown["required"] = required
    return shown

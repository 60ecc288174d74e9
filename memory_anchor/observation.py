"""An observation: what an agent or a hook writes down in a file, in the strategy document's form (section 4.1).

The same fields as the strategy's JSON Schema, generalised to every type and to the old layer names. Its JSON Schema is
generated from this model into `.ai/operations/templates/observation.json`, and a test fails when the two drift. The
summary becomes a memory's key, the details its content; nothing else is stored than what `save_memory` and `log_event`
check themselves, so a file gains no right that a tool call lacks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memory_anchor import inputs
from memory_anchor.errors import BadInput
from memory_anchor.fields import sentence, without_titles
from memory_anchor.json_values import Json, kind_of, record
from memory_anchor.model import LAYER_OF_TYPE, Layer

SUMMARY_MAX = 200
OBSERVATIONS_MAX = 100
"""Of one file."""

ObservationType = Literal[
    "decision",
    "bugfix",
    "refactor",
    "preference",
    "fact",
    "instruction",
    "workflow",
    "project_state",
    "bookmark",
    "event",
    "discovery",
    "note",
    "emotion",
    "episode",
    "summary",
]
ObservationLayer = Literal["identity_schema", "event_log", "verified_fact", "constitution", "fact", "session"]
_Name = Annotated[str, Field(min_length=1, max_length=inputs.NAME_MAX)]


@dataclass(frozen=True, slots=True)
class Asked:
    """What an observation asks for: the use case, and its arguments by name."""

    use_case: Literal["save_memory", "log_event"]
    arguments: Mapping[str, Json]


class Observation(BaseModel):
    """One thing worth remembering, written down as a file. Times without a zone are local."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="Observation")

    type: ObservationType = Field(description="What kind of memory it is; decides the layer it belongs to.")
    summary: str = Field(min_length=1, max_length=SUMMARY_MAX, description="One line; becomes the memory's key.")
    details: str | None = Field(
        None, min_length=1, max_length=inputs.CONTENT_MAX, description="The memory's text; the summary when left out."
    )
    files: tuple[str, ...] = Field((), max_length=inputs.FILES_MAX, description="`path` or `path:10-20`.")
    layer: ObservationLayer = Field(
        description="event_log or verified_fact; identity_schema is only changed by a proposal. Old names are accepted."
    )
    when: datetime | None = Field(None, description="When it happened; created_at when left out.")
    where: _Name | None = Field(None, description="A file, a service, a place.")
    who: tuple[_Name, ...] = Field((), max_length=inputs.PEOPLE_MAX, description="Who took part.")
    tags: tuple[str, ...] = Field((), max_length=inputs.TAGS_MAX)
    created_at: datetime = Field(description="When it was written down.")
    author: _Name = Field(description="Who wrote it down.")

    @classmethod
    def read_all(cls, value: Json) -> list[Observation]:
        """Return the checked observations of a file: one, or a list of them. Raises BadInput as `read` does."""
        values = value if isinstance(value, list) else [value]
        if not 1 <= len(values) <= OBSERVATIONS_MAX:
            raise BadInput(f"the file holds {len(values)} observations; allowed are 1 to {OBSERVATIONS_MAX}")
        return [cls.read(one) for one in values]

    @classmethod
    def read(cls, value: Json) -> Observation:
        """Return the checked observation.

        Raises BadInput: not an object, a field missing, unknown or of the wrong kind; one sentence on the first.
        """
        if not isinstance(value, Mapping):
            raise BadInput(f"an observation is {kind_of(value)}; allowed is a JSON object")
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise BadInput(sentence(error.errors(include_url=False)[0], cls, "the observation")) from None

    def asks(self) -> Asked:
        """Return the use case and arguments that store it.

        Raises Refused, later and from the use case itself, when the layer is one that only humans change.
        """
        layer = inputs.layer(self.layer)
        arguments: dict[str, Json] = {"content": self.details or self.summary, "type": self.type}
        if self.details:
            arguments["key"] = self.summary
        if self.tags:
            arguments["tags"] = list(self.tags)
        if self.files:
            arguments["files"] = list(self.files)
        arguments |= {"author": self.author, "written_at": self.created_at.isoformat()}
        if layer is not Layer.EVENT_LOG:
            if layer is not LAYER_OF_TYPE[inputs.memory_type(self.type)]:
                arguments["layer"] = layer.value
            return Asked("save_memory", arguments)
        arguments["when"] = (self.when or self.created_at).isoformat()
        arguments["who"] = list(self.who) or [self.author]
        if self.where:
            arguments["where"] = self.where
        return Asked("log_event", arguments)


def observation_schema() -> dict[str, Json]:
    """Return the JSON Schema of an observation file: plain, closed, without titles and null unions."""
    made = record(without_titles(Observation.model_json_schema(), defaults=False))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Observation", **made}


if __name__ == "__main__":  # python -m memory_anchor.observation > .ai/operations/templates/observation.json
    print(json.dumps(observation_schema(), ensure_ascii=False, indent=2))

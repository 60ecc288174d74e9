"""Observations that an agent or a hook wrote down (strategy document, section 4.1), for `add --observation FILE`.

Every type and the old layer names are allowed. Their JSON Schema is generated from the model into
`.ai/operations/templates/observation.json`, and a test fails when the two drift. The summary becomes a memory's key,
the details its content; `save_memory` and `log_event` check the rest, so a file has no right that a tool call lacks.
Apart from the commands, which do without pydantic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memory_anchor.base.json_schema import without_titles
from memory_anchor.base.json_values import Json, kind_of, record
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import LAYER_OF_TYPE, Layer
from memory_anchor.domain.requests import checks

SUMMARY_MAX = 200
OBSERVATIONS_MAX = 100
"""Of one file."""

# fmt: off
ObservationType = Literal[
    "decision", "bugfix", "refactor", "preference", "fact", "instruction", "workflow", "project_state", "bookmark",
    "event", "discovery", "note", "emotion", "episode", "summary",
]
# fmt: on
ObservationLayer = Literal["identity_schema", "event_log", "verified_fact", "constitution", "fact", "session"]
_Name = Annotated[str, Field(min_length=1, max_length=checks.NAME_MAX)]


@dataclass(frozen=True, slots=True)
class UseCaseCall:
    """The use case that stores an observation, and its arguments by name."""

    use_case: Literal["save_memory", "log_event"]
    arguments: Mapping[str, Json]


class Observation(BaseModel):
    """One thing worth remembering, written down as a file. Times without a zone are local."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="Observation", defer_build=True)

    type: ObservationType = Field(description="What kind of memory it is; decides the layer it belongs to.")
    summary: str = Field(min_length=1, max_length=SUMMARY_MAX, description="One line; becomes the memory's key.")
    details: str | None = Field(
        None, min_length=1, max_length=checks.CONTENT_MAX, description="The memory's text; the summary when left out."
    )
    files: tuple[str, ...] = Field((), max_length=checks.FILES_MAX, description="`path` or `path:10-20`.")
    layer: ObservationLayer = Field(
        description="event_log or verified_fact; identity_schema is only changed by a proposal. Old names are accepted."
    )
    when: datetime | None = Field(None, description="When it happened; created_at when left out.")
    where: _Name | None = Field(None, description="A file, a service, a place.")
    who: tuple[_Name, ...] = Field((), max_length=checks.PEOPLE_MAX, description="Who took part.")
    tags: tuple[str, ...] = Field((), max_length=checks.TAGS_MAX)
    created_at: datetime = Field(description="When it was written down.")
    author: _Name = Field(description="Who wrote it down.")

    @classmethod
    def read_all(cls, value: Json) -> list[Observation]:
        """Return the checked observations of a file: one, or a list of them. Raises BadInput as `read` does."""
        values = value if isinstance(value, list) else [value]
        if not 1 <= len(values) <= OBSERVATIONS_MAX:
            raise BadInput(f"the file holds {len(values)} observations; allowed are 1 to {OBSERVATIONS_MAX}")
        return [cls.read(observation) for observation in values]

    @classmethod
    def read(cls, value: Json) -> Observation:
        """Return the checked observation.

        Raises BadInput: not an object, or a field missing, unknown or of the wrong kind (the first is named).
        """
        if not isinstance(value, Mapping):
            raise BadInput(f"an observation is {kind_of(value)}; allowed is a JSON object")
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise BadInput(checks.sentence(error.errors(include_url=False)[0], cls, "the observation")) from None

    def to_call(self) -> UseCaseCall:
        """Return the use case and arguments that store it; the use case refuses a layer that only humans change."""
        layer = checks.layer(self.layer)
        optional = {"key": self.summary if self.details else "", "tags": list(self.tags), "files": list(self.files)}
        arguments: dict[str, Json] = {"content": self.details or self.summary, "type": self.type}
        arguments |= {name: value for name, value in optional.items() if value}
        arguments |= {"author": self.author, "written_at": self.created_at.isoformat()}
        if layer is not Layer.EVENT_LOG:
            if layer is not LAYER_OF_TYPE[checks.memory_type(self.type)]:
                arguments["layer"] = layer.value
            return UseCaseCall("save_memory", arguments)
        arguments["when"] = (self.when or self.created_at).isoformat()
        arguments["who"] = list(self.who) or [self.author]
        if self.where:
            arguments["where"] = self.where
        return UseCaseCall("log_event", arguments)


def observation_schema() -> dict[str, Json]:
    """Return the JSON Schema of an observation file: plain, closed, without titles and null unions."""
    made = record(without_titles(Observation.model_json_schema(), defaults=False))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Observation", **made}


if __name__ == "__main__":  # python -m memory_anchor.front.cli.observations > .ai/operations/templates/observation.json
    print(json.dumps(observation_schema(), ensure_ascii=False, indent=2))

"""What sets settings, read into plain nested mappings: YAML files and environment variables.

Nothing here knows a setting's name or range (`settings` does, once all is merged). YAML is read so that a name said
twice is an error and a stranger's file cannot take long; where a value came from is noted as sources are merged.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path

import yaml

from memory_anchor import beneath
from memory_anchor.bounded_yaml import TooMuchYaml
from memory_anchor.bounded_yaml import check as check_yaml
from memory_anchor.errors import BadInput
from memory_anchor.json_values import Json, kind_of, parsed, record

ENV_PREFIX = "MEMORY_ANCHOR_"
ENV_ONLY = frozenset({"TEST_CLOCK", "CONFIG_FILE", "CONVERSATION", "PASSPHRASE_FILE"})
"""Environment names that are not settings: test clock, another user file."""
MAX_SETTINGS_BYTES = 256 * 1024
TOKENS = "http.tokens"


class _Doubled(Exception):
    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


class _EachOnce(yaml.SafeLoader):
    """Takes no name twice in one mapping; YAML itself would keep the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Json]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for at, (key, _) in enumerate(node.value):
            if isinstance(key, yaml.ScalarNode) and key.value in names[:at]:
                raise _Doubled(key.start_mark.line + 1)
        return super().construct_mapping(node, deep)


def read_file(path: Path, *, is_foreign: bool = False) -> dict[str, Json]:
    """Return what a YAML file sets, nothing where there is none.

    is_foreign: whoever wrote the repository wrote it, so that no link is followed: errors quote what was read.
    Raises BadInput: too large, or not a mapping that YAML can read.
    """
    if not path.is_file() and not (is_foreign and path.is_symlink()):
        return {}
    if path.is_file() and path.stat().st_size > MAX_SETTINGS_BYTES:
        raise BadInput(f"settings file {path} is {path.stat().st_size} bytes; allowed are {MAX_SETTINGS_BYTES}")
    try:
        told = beneath.read(path.parent, path.name, most_bytes=MAX_SETTINGS_BYTES) if is_foreign else path.read_bytes()
        text = (told or b"").decode("utf-8")
        check_yaml(text)
        value = yaml.load(text, _EachOnce)  # noqa: S506 - a safe loader
    except OSError as error:
        raise BadInput(f"settings file {path} cannot be read ({error.strerror}); mend it or move it away") from None
    except TooMuchYaml as error:
        raise BadInput(f"settings file {path}: {error}; mend it or move it away") from None
    except RecursionError:
        raise BadInput(f"settings file {path} is nested too deeply; mend it or move it away") from None
    except _Doubled as error:
        raise BadInput(f"settings file {path} says at line {error.line} what it said before; keep one") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        at = f" at line {line + 1}" if line is not None else ""
        raise BadInput(f"settings file {path} is not readable YAML{at}; mend it or move it away") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"settings file {path} holds {kind_of(value)}; allowed is a mapping of settings")
    return {str(name): inner for name, inner in value.items()}


def from_env(env: Mapping[str, str]) -> dict[str, Json]:
    """Return what `MEMORY_ANCHOR_GROUP__NAME` variables set, each below its group. Raises BadInput."""
    nested: dict[str, Json] = {}
    for name, text in sorted(env.items()):
        if not name.startswith(ENV_PREFIX) or name[len(ENV_PREFIX) :] in ENV_ONLY:
            continue
        *parents, last = name[len(ENV_PREFIX) :].lower().split("__")
        at = nested
        for parent in parents:
            inner = at.setdefault(parent, {})
            if not isinstance(inner, dict):
                shown = _variable_shown(name)
                raise BadInput(f"environment variable {shown} goes below another variable, which sets the whole")
            at = inner
        at[last] = _value(name, text)
    return nested


def _value(name: str, text: str) -> Json:
    if not text.startswith(("[", "{")):
        return text
    try:
        return parsed(text)
    except ValueError:
        raise BadInput(
            f"environment variable {_variable_shown(name)} starts like JSON and is not; allowed is JSON or plain text"
        ) from None


def _variable_shown(name: str) -> str:
    head = f"{ENV_PREFIX}{TOKENS.upper().replace('.', '__')}__"
    return f"{head}…" if name.upper().startswith(head) else name


def merge(
    into: dict[str, Json], new: Mapping[str, Json], origin: str, origins: dict[str, str], prefix: str = ""
) -> None:
    """Put what a later source sets over what the earlier ones did, and note where each value is from."""
    for name, value in new.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping) and isinstance(into.get(name, {}), Mapping):
            inner = dict(record(into.get(name)))
            merge(inner, value, origin, origins, f"{dotted}.")
            into[name] = inner
            if not value:
                origins[dotted] = origin
        else:
            into[name] = value
            origins[dotted] = origin

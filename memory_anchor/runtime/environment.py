"""Which settings an engine may take from the environment of whoever starts it. Standard library only.

One engine serves every project, and a bridge's environment comes from a client's configuration, which a cloned
repository can contain: one project could lower the gate and choose the language model for all others. There are two
kinds of data directory:

- The user's: the platform's folder, or the one that the user's file names. Settings come from that file alone. The file
  is found without `MEMORY_ANCHOR_CONFIG_FILE` and noted in the directory at its first use, so that another HOME or
  XDG_CONFIG_HOME does not lead to another file.
- One that only an environment names (a check, a second memory). A variable counts there only while every project that
  uses the directory sets it to the same value.

What belongs to one caller travels in its preamble instead: project, scope, profile, answers, budget, and rights, which
only become narrower. Invariant: an engine never serves a bridge whose environment lacks a setting that the engine took.
Rejected: the first starter's environment for all (an attacker may be first) and environments per connection (store,
embedder and model exist once in a process).
Noted are names and digests, never values: one may be an API key.
"""

from __future__ import annotations

import json
import os
from collections import namedtuple

from memory_anchor.runtime import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_anchor.base.json_values import Record

PREFIX = "MEMORY_ANCHOR_"
CONFIG_FILE = "MEMORY_ANCHOR_CONFIG_FILE"
DATA_DIR = "MEMORY_ANCHOR_DATA_DIR"
OF_ONE_CALLER = (
    "MEMORY_ANCHOR_PROJECT_DIR",
    "MEMORY_ANCHOR_PROFILE",
    "MEMORY_ANCHOR_ANSWERS",
    "MEMORY_ANCHOR_READ_ONLY",
    "MEMORY_ANCHOR_CONVERSATION",
    "MEMORY_ANCHOR_PASSPHRASE_FILE",
    "MEMORY_ANCHOR_NO_MEMORY",
)
OF_ONE_CALLER_PREFIXES = ("MEMORY_ANCHOR_SCOPE__", "MEMORY_ANCHOR_BUDGET__")
_NO_ENGINES = (CONFIG_FILE, "MEMORY_ANCHOR_TEST_CLOCK")
NOTES_FILE = "environments.json"
MAX_PROJECTS = 500
DIGEST_CHARS = 24

_Fields = namedtuple("_Fields", "env left reason")


class Accepted(_Fields):
    """env: the variables an engine takes. left: names that are set and not taken. reason: why not, "" for none."""

    __slots__ = ()


def accepted(env: Mapping[str, str], data: str) -> Accepted:
    """Return which `MEMORY_ANCHOR_` variables of `env` an engine for `data` takes; nothing is noted."""
    settings, notes = _settings_in(env), _notes(data)
    if user_file := user_file_of(env, data):
        ignored = sorted(name for name, value in settings.items() if not (name == CONFIG_FILE and value == user_file))
        why = f"an engine for {data} takes them from {user_file} alone" if ignored else ""
        return Accepted({CONFIG_FILE: user_file}, ignored, why)
    own_digests = digests(settings)
    agreed = {
        name: value
        for name, value in settings.items()
        if all(digests_of.get(name) == own_digests[name] for digests_of in _projects(notes).values())
    }
    ignored = sorted(set(settings) - set(agreed))
    why = f"projects that share {data} do not all bring the same; say it in {wire.user_config_file(env)}"
    if CONFIG_FILE in ignored:
        agreed[CONFIG_FILE] = os.devnull
        why = f"projects that share {data} do not all bring the same"
    return Accepted(agreed, ignored, why if ignored else "")


def remember(env: Mapping[str, str], data: str, project: str) -> None:
    """Note this project's settings, or for the user's directory, which file governs. Raises OSError."""
    notes = _notes(data)
    if user_file := user_file_of(env, data):
        if notes.get("user_file") != user_file:
            _write_notes(data, {**notes, "user_file": user_file})
        return
    own_digests, projects = digests(_settings_in(env)), _projects(notes)
    if projects.get(project) == own_digests:
        return
    projects_left = {name: noted for name, noted in projects.items() if name != project}
    newest = dict(list(projects_left.items())[-(MAX_PROJECTS - 1) :])
    _write_notes(data, {**notes, "projects": {**newest, project: own_digests}})


def differs(state: Record, env: Mapping[str, str], data: str) -> bool:
    """Return whether an engine took a setting that this caller does not have. state: the engine's state file."""
    took = state.get("took")
    if not isinstance(took, dict) or not took:
        return False  # a server that a human started, in the human's environment, lists none
    user_file = user_file_of(env, data)
    allowed = digests({CONFIG_FILE: user_file} if user_file else _settings_in(env))
    if not user_file and took.get(CONFIG_FILE) == digests({CONFIG_FILE: os.devnull})[CONFIG_FILE]:
        took = {name: digest for name, digest in took.items() if name != CONFIG_FILE}
    return any(allowed.get(str(name)) != digest for name, digest in took.items())


def not_applied(state: Record, env: Mapping[str, str], data: str) -> str:
    """Return in one sentence which settings of an environment the running engine did not take, "" where it took all.

    state: the engine's state file; of a server that a human started, its own settings are not known.
    """
    took = state.get("took")
    if not isinstance(took, dict):
        return ""
    own = {name: value for name, value in engine_settings(env).items() if name not in _NO_ENGINES}
    missing = sorted(name for name, digest in digests(own).items() if took.get(name) != digest)
    if not missing:
        return ""
    never = accepted(env, data)
    why = never.reason if set(missing) & set(never.left) else "it began without them: `memory-anchor engine stop` first"
    return f"the running engine does not apply {', '.join(missing)}; {why}"


def user_file_of(env: Mapping[str, str], data: str) -> str:
    """Return the settings file that governs `data` when it is the user's directory, else ""."""
    noted = _notes(data).get("user_file")
    if isinstance(noted, str) and noted:
        return noted
    bare = {name: value for name, value in env.items() if name not in (DATA_DIR, CONFIG_FILE)}
    for home in (bare, _system_account()):
        if home and _is_same_folder(wire.data_dir(home), data):
            return wire.user_config_file(home)
    return ""


def _system_account() -> dict[str, str]:
    """Return HOME by the system's user database, which no client can set."""
    try:
        import pwd
    except ImportError:  # Windows
        return {}
    try:
        return {"HOME": pwd.getpwuid(os.getuid()).pw_dir}
    except KeyError:  # a container's user without an entry
        return {}


def digests(variables: Mapping[str, str]) -> dict[str, str]:
    """Return name -> a digest that tells two values apart without revealing them."""
    if not variables:
        return {}
    import hashlib  # 4 ms, for those who set something

    return {
        name: hashlib.sha256(f"{name}={value}".encode("utf-8", "surrogateescape")).hexdigest()[:DIGEST_CHARS]
        for name, value in variables.items()
    }


def engine_settings(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an engine's environment that are settings for all its callers."""
    return {
        name: value
        for name, value in env.items()
        if name.startswith(PREFIX)
        and name != DATA_DIR
        and name not in OF_ONE_CALLER
        and not name.startswith(OF_ONE_CALLER_PREFIXES)
    }


def _settings_in(env: Mapping[str, str]) -> dict[str, str]:
    settings = engine_settings(env)
    path = wire.user_config_file(env)
    if CONFIG_FILE in settings or os.path.exists(path):  # noqa: PTH110
        settings[CONFIG_FILE] = path
    return settings


def _notes(data: str) -> Record:
    return wire.read_json(os.path.join(data, NOTES_FILE)) or {}  # noqa: PTH118


def _projects(notes: Record) -> dict[str, Record]:
    projects = notes.get("projects")
    if not isinstance(projects, dict):
        return {}
    return {str(name): noted for name, noted in projects.items() if isinstance(noted, dict)}


def _write_notes(data: str, notes: Record) -> None:
    wire.run_dir(data)
    wire.write_private(os.path.join(data, NOTES_FILE), json.dumps(notes, ensure_ascii=False))  # noqa: PTH118


def _is_same_folder(first: str, second: str) -> bool:
    try:
        return os.path.samefile(first, second)  # noqa: PTH121
    except OSError:
        return os.path.realpath(first) == os.path.realpath(second)

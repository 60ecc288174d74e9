"""A mistyped setting in the environment is refused whether an engine answers or the command works alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from typing import get_args

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from memory_anchor.domain.errors import BadInput
from memory_anchor.front.cli.app import app
from memory_anchor.runtime import env_names, wire
from memory_anchor.settings import ENV_ONLY, ENV_PREFIX, Settings, load_settings


def groups(model: type[BaseModel], at: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yield every dotted group of the settings with the names in it."""
    yield at, set(model.model_fields)
    for name, field in model.model_fields.items():
        path = f"{at}.{name}" if at else name
        kinds = (field.annotation, *get_args(field.annotation))
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is field.annotation and inner is not None:
            yield from groups(inner, path)
        elif "Mapping" in str(field.annotation):
            yield path, {env_names.ANY}
            if inner is not None:
                yield from groups(inner, f"{path}.{env_names.ANY}")


def test_the_table_names_what_the_settings_name() -> None:
    """Rule settings.names: kept beside the settings for speed, and equal to them."""
    assert {group: set(names.split()) for group, names in env_names.KNOWN.items()} == dict(groups(Settings))
    assert (env_names.PREFIX, env_names.NO_SETTINGS) == (ENV_PREFIX, ENV_ONLY)


@pytest.mark.parametrize("name", ["RETRIEVAL__BOGUS", "BOGUS", "BOGUS__X", "AGENTS__CODEX__BOGUS", "STORE__KINDS"])
def test_the_table_says_what_the_settings_say(name: str) -> None:
    """Rule settings.names: one sentence for one mistake."""
    env = {f"MEMORY_ANCHOR_{name}": "1"}
    with pytest.raises(BadInput) as refused:
        load_settings(env=env, user_file=None)

    assert env_names.unknown_setting(env) == str(refused.value)


def test_a_token_below_a_mistyped_name_is_not_shown() -> None:
    """Rule safety: of the tokens the names are the secrets."""
    told = env_names.unknown_setting({"MEMORY_ANCHOR_HTTP__TOKENS__SUPERSECRET__X": "acc"})

    assert "http.tokens" in told and "supersecret" not in told


@pytest.mark.parametrize("engine", [True, False])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("STORE__KIND", "mongo"), ("GATE__ACTIVE", "nan"), ("GATE__ACTIVE", "banana"), ("BUDGET__FACTS", "")),
        *(("LIFECYCLE__FORGET_FACTS", '["bogus"]'), ("RETRIEVAL__WEIGHTS", '{"x":1}'), ("PROFILE", "huge")),
        *(("READ_ONLY", "maybe"), ("read_only", "maybe"), ("SCOPE__AGENT", "{x"), ("STORE__KIND", "qdrant")),
        *(("RETRIEVAL__BOGUS", "1"), ("BOGUS", "1"), ("AGENTS__CODEX__BOGUS", "1"), ("PROFILE__X", "1")),
        *(("GATE__PENDING", "0.99"), ("PAUSED", "2"), ("HTTP__PORT", "70000"), ("HTTP__TOKENS", '{"secret":5}')),
    ],
)
def test_a_wrong_name_or_value_is_refused_with_and_without_an_engine(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, engine: bool
) -> None:
    """Rule settings.names, settings.values: one sentence and exit code 2, and no engine is asked."""
    asked = []
    if engine:
        monkeypatch.setattr(wire, "ask", lambda *_, **given: asked.append(given) or {"result": {"memories": []}})
    monkeypatch.setenv(f"MEMORY_ANCHOR_{name}", value)

    done = CliRunner().invoke(app, ["list", "--json"])

    assert (done.exit_code, asked) == (2, []), done.output
    assert done.stderr.count("error:") == 1
    assert "BOGUS" not in name or "environment" in done.stderr


def test_a_value_is_judged_together_with_the_users_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rule settings.values: what the file says may be what makes it right."""
    monkeypatch.setattr(wire, "ask", lambda *_, **__: {"result": {"memories": []}})
    (tmp_path / "config.yaml").write_text("store: {url: http://localhost:6333}\n")
    monkeypatch.setenv("MEMORY_ANCHOR_CONFIG_FILE", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("MEMORY_ANCHOR_STORE__KIND", "qdrant")

    assert CliRunner().invoke(app, ["list", "--json"]).exit_code == 0


def test_where_things_are_and_who_asks_is_checked_without_the_settings() -> None:
    """Rule settings.names: what most commands need to start stays as small as it was."""
    env = {
        "MEMORY_ANCHOR_DATA_DIR": "/d",
        "MEMORY_ANCHOR_SCOPE__AGENT": "a",
        "MEMORY_ANCHOR_READ_ONLY": "1",
        "MEMORY_ANCHOR_CONVERSATION": "c",
    }
    code = (
        "import sys; from memory_anchor.runtime import env_names\n"
        f"env_names.check({env!r}); print('memory_anchor.settings' in sys.modules)"
    )

    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_bridge_refuses_a_mistyped_setting(tmp_path: Path) -> None:
    """Rule settings.names: one sentence on stderr, exit code 2, nothing on stdout; no engine is started."""
    env = {"HOME": str(tmp_path), "MEMORY_ANCHOR_DATA_DIR": str(tmp_path / "data"), "MEMORY_ANCHOR_FOO": "huge"}
    done = run([sys.executable, "-m", "memory_anchor", "mcp"], input="", env=env, capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "unknown setting 'foo' in environment" in done.stderr
    assert not (tmp_path / "data").exists()

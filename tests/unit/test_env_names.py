"""A mistyped setting in the environment is refused whether an engine answers or the command works alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from subprocess import run
from typing import get_args

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from memory_anchor.interfaces.cli import env_names
from memory_anchor.interfaces.cli.app import app
from memory_anchor.runtime import wire
from memory_anchor.settings import ENV_ONLY, ENV_PREFIX, Settings


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


@pytest.mark.parametrize("engine", [True, False])
@pytest.mark.parametrize("name", ["RETRIEVAL__BOGUS", "BOGUS", "AGENTS__CODEX__BOGUS", "PROFILE__X"])
def test_a_mistyped_setting_is_refused_with_and_without_an_engine(
    monkeypatch: pytest.MonkeyPatch, name: str, engine: bool
) -> None:
    """Rule settings.names: one sentence and exit code 2, and no engine is asked."""
    asked = []
    if engine:
        monkeypatch.setattr(wire, "ask", lambda *_, **given: asked.append(given) or {"result": {"memories": []}})
    monkeypatch.setenv(f"MEMORY_ANCHOR_{name}", "1")

    done = CliRunner().invoke(app, ["list", "--json"])

    assert (done.exit_code, asked) == (2, []), done.output
    assert done.stderr.count("error:") == 1
    assert "environment" in done.stderr


@pytest.mark.parametrize("name", ["RETRIEVAL__LENS", "AGENTS__CODEX__ENABLED", "CONVERSATION", "LIFECYCLE__POLICY"])
def test_a_known_setting_is_passed_without_reading_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Rule settings.names: the engine goes by its own settings, so a command beside it reads none."""
    monkeypatch.setattr(wire, "ask", lambda *_, **__: {"result": {"memories": []}})
    monkeypatch.setenv(f"MEMORY_ANCHOR_{name}", "0")

    assert CliRunner().invoke(app, ["list", "--json"]).exit_code == 0


def test_checking_names_loads_no_settings() -> None:
    """Rule settings.names: what a command needs to start stays as small as it was."""
    code = (
        "import sys; from memory_anchor.interfaces.cli import env_names\n"
        "env_names.check({'MEMORY_ANCHOR_RETRIEVAL__LENS': '0.1'}); print('memory_anchor.settings' in sys.modules)"
    )

    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"

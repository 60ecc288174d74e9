"""What a context cost and cited is read again by its own account and project alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory_anchor.domain.errors import NotFound
from memory_anchor.front import calls
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble


def ask(core: Core, caller: Preamble, name: str, **given: Any) -> dict[str, Any]:
    return calls.run(core, caller, name, given)


def test_a_report_is_neither_read_nor_listed_by_another_account_or_project(core: Core, tmp_path: Path) -> None:
    """Attack A20: the id of another account's report, guessed or seen, opens nothing."""
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    mine = Preamble(project_dir=str(tmp_path / "mine"), account="acme")
    built = ask(core, mine, "context", task="the release")
    made = built["report_id"]
    strangers = (
        mine._replace(account="evil"),
        mine._replace(account=""),
        mine._replace(project_dir=str(tmp_path / "other")),
    )

    assert ask(core, mine, "context_report", id=made)["id"] == made
    assert [one["id"] for one in ask(core, mine, "context_reports")["reports"]] == [made]
    for stranger in strangers:
        with pytest.raises(NotFound, match="no context report"):
            ask(core, stranger, "context_report", id=made)
        assert ask(core, stranger, "context_reports")["reports"] == []

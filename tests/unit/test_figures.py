"""Every number that README and docs quote from a measurement stands in docs/figures.json, and the other way round."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, cast

import pytest
import quoted
from quoted import PAGES, ROOT, TRANSLATED, load, measured, numbers, numbers_of, sentences

FIGURES = load()
SHOWN = "run `.venv/bin/python scripts/figures record` after a measurement, or add a bound to `limits`"


def found(page: str, beginning: str) -> list[str]:
    return [one for one in sentences((ROOT / page).read_text("utf-8")) if one.startswith(beginning)]


@pytest.mark.parametrize("page", PAGES)
def test_every_number_of_a_measurement_is_a_figure(page: str) -> None:
    """Claims: what a page quotes from a measurement has a name, a commit, a machine and a day."""
    listed = [*FIGURES["limits"].get(page, ())]
    listed += [figure["in"][page] for figure in FIGURES["figures"].values() if page in figure["in"]]

    unlisted = [
        one for one in measured((ROOT / page).read_text("utf-8")) if not any(one.startswith(begin) for begin in listed)
    ]

    assert unlisted == [], f"{page} quotes these; {SHOWN}: {unlisted}"


def test_every_figure_is_quoted_as_it_was_measured() -> None:
    """Claims, the other way round: a changed figure changes its sentences, a changed sentence its figure."""
    wrong = []
    for name, figure in FIGURES["figures"].items():
        for page, beginning in figure["in"].items():
            quotes = found(page, beginning)
            if len(quotes) != 1:
                wrong.append(f"{name}: {len(quotes)} sentences of {page} begin with {beginning!r}")
                continue
            said, values = Counter(numbers(quotes[0])), Counter(numbers_of(figure))
            exact = isinstance(figure["values"], list) and page not in TRANSLATED.values()
            if page in TRANSLATED.values():  # a paragraph is one sentence there, with other numbers beside
                said, values = values if isinstance(figure["values"], list) else Counter(), said
            if said - values or (exact and said != values):
                wrong.append(f"{name}: {page} says {[*said.elements()]}, measured were {[*values.elements()]}")

    assert wrong == [], SHOWN


def test_every_figure_says_when_and_where_it_was_measured() -> None:
    """Claims: how do you know? by this command, at this commit, on this machine, that day."""
    for name, figure in FIGURES["figures"].items():
        assert set(figure) == {"values", "by", "commit", "machine", "at", "in"}, name
        assert figure["values"] and all(figure[key] for key in ("by", "commit", "machine", "at")), name


def test_what_readme_quotes_is_bound_in_both_languages() -> None:
    """Claims: README.zh.md says the same figures."""
    alone = [name for name, one in FIGURES["figures"].items() if "README.md" in one["in"] and len(one["in"]) < 2]

    assert alone == []


def test_every_limit_still_stands_in_its_page() -> None:
    """Claims, the other way round: a list of what is no longer said holds nothing."""
    counts = {(page, one): len(found(page, one)) for page, ones in FIGURES["limits"].items() for one in ones}

    assert {place: count for place, count in counts.items() if count != 1} == {}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_comparison_shows_what_was_measured_and_nothing_else(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims: the tables of docs/comparison.md are those of docs/comparison.json, in both languages."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    loader = SourceFileLoader("compare", str(ROOT / "scripts" / "compare"))
    compare: Any = module_from_spec(cast(ModuleSpec, spec_from_loader("compare", loader)))
    loader.exec_module(compare)
    content = json.loads(compare.RESULTS.read_text("utf-8"))
    page = compare.PAGES[language].read_text("utf-8")

    shown = page.partition(compare.MARKS[0])[2].partition(compare.MARKS[1])[0].strip()

    assert shown == compare.tables(content, language), "run `.venv/bin/python scripts/compare --render`"
    assert set(content) == {peer.name for peer in compare.PEERS}


def test_the_night_keeps_its_figures_with_commit_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims: what `scripts/nightly` printed is in docs/figures.json under its own names."""
    file = tmp_path / "figures.json"
    file.write_text(json.dumps({"figures": {}, "limits": {}}))
    (tmp_path / "soak.txt").write_text('· noise\n{"passed": true, "acknowledged": 20031, "kills": {"engine": 65}}\n')
    (tmp_path / "kills.txt").write_text('{"passed": true, "kills": 100, "lost": 0, "commit": "abc", "machine": "m"}\n')

    subprocess.run(
        [sys.executable, ROOT / "scripts" / "figures", "gather", tmp_path, "--file", file], check=True, timeout=60
    )
    monkeypatch.setattr(quoted, "FILE", file)
    kept = load()["figures"]

    assert kept["nightly.soak"]["values"] == {"acknowledged": 20031, "kills.engine": 65}
    assert (kept["nightly.kills"]["commit"], kept["nightly.kills"]["machine"]) == ("abc", "m")
    assert kept["nightly.soak"]["commit"] and kept["nightly.soak"]["machine"] and kept["nightly.soak"]["at"]

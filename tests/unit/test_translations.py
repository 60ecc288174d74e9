"""Every page in English has a Chinese twin that says the same: pieces, code, numbers, links, promises."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from twins import CHINESE, DOCS, TERMS, differences, english, pages, twin

ROOT = DOCS.parent
WORDS = ROOT / "memory_anchor" / "extensions" / "dashboard" / "words"


def terms() -> list[list[str]]:
    """Return the rows of the table of terms: English, Chinese, key of the dashboard's catalogue, wrong words."""
    rows = [line[1:-1].split("|") for line in TERMS.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_and_its_chinese_twin_say_the_same(page: Path) -> None:
    """Rule both-languages: who changes one changes the other; a promise and a figure are the same in both."""
    assert twin(page).is_file(), f"{page.relative_to(ROOT)} has no {twin(page).relative_to(ROOT)}"

    assert list(differences(page, twin(page))) == []


@pytest.mark.slow
@pytest.mark.nightly
def test_every_sentence_in_english_was_looked_at_in_chinese() -> None:
    """Rule both-languages: words alone drift as well; `scripts/translated --record` once the Chinese says it."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "translated"], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == ""


def test_no_chinese_page_is_left_without_its_english_one() -> None:
    """Rule both-languages, the other way round; the table of terms is for Chinese alone."""
    alone = [page for page in CHINESE.rglob("*.md") if page != TERMS and not english(page).is_file()]

    assert alone == []


@pytest.mark.parametrize(
    ("changed", "was", "becomes", "told"),
    [
        ("a cell", "| 总是完整地预先载入 |", "| 总是完整地预先载入 | 键 |", "another order"),
        ("a number", "最多两次", "最多 3 次", "numbers"),
        ("a name", "`run/server.lock`", "`run/lock`", "code"),
        ("a promise", "它从不接管", "它不接管", "a promise is lost"),
        ("a link", "(write-path.md)", "(store.md)", "links"),
        ("a paragraph", "\n## 进程\n", "\n一段。\n\n## 进程\n", "another order"),
        ("a line of code", "  settings.py ", "  options.py ", "became"),
        ("a link to the English page", "(write-path.md)", "(../write-path.md)", "leads to the English page"),
    ],
)
def test_what_drifts_is_noticed(changed: str, was: str, becomes: str, told: str) -> None:
    """Rule both-languages: one change of the Chinese map is told by its kind."""
    page = CHINESE / "architecture.md"
    text = page.read_text("utf-8")
    assert was in text, changed

    said = list(differences(DOCS / "architecture.md", page, text.replace(was, becomes, 1)))

    assert any(told in one for one in said), said


def test_a_right_that_a_translation_gives_away_is_noticed() -> None:
    """Rule both-languages: a cell of the table of rights is translated as everywhere in it."""
    page = CHINESE / "security.md"
    row = next(line for line in page.read_text("utf-8").splitlines() if line.startswith("| 清除 |"))

    said = list(
        differences(DOCS / "security.md", page, page.read_text("utf-8").replace(row, row.replace("不可以", "可以", 1)))
    )

    assert any("in one table 'no' is" in one for one in said), said


def test_the_table_of_terms_is_the_dashboards_own_and_its_wrong_words_stand_nowhere() -> None:
    """Rule both-languages: one word for one thing, in pages, README and dashboard."""
    catalogue = tomllib.loads((WORDS / "zh.toml").read_text("utf-8"))
    texts = {
        path: path.read_text("utf-8") for path in [*CHINESE.rglob("*.md"), ROOT / "README.zh.md", WORDS / "zh.toml"]
    }
    wrong = []
    for _, word, key, others in terms():
        found = re.fullmatch(r"`(\w+)\.(\w+)`", key)
        if found and word not in catalogue[found[1]][found[2]]:
            wrong.append(f"{key} is {catalogue[found[1]][found[2]]}, the table says {word}")
        for other in () if others == "—" else others.split("、"):
            wrong += [f"{path.name}: {other}" for path, text in texts.items() if path != TERMS and other in text]

    assert len(terms()) > 40
    assert wrong == []

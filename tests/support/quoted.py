"""What pages quote from measurements: their sentences, the numbers in these, and `docs/figures.json`.

A sentence quotes a measurement if it has a number and a sign of measuring (`MEASURED`): a share, a percentile, a time
in ms, a score. `docs/figures.json` binds it to a figure by name: `values` (a list: exactly these numbers; an object:
these among others), what made it (`by`), at which `commit`, when (`at`), on which `machine`, and where it is quoted
(`in`: page and beginning of the sentence). `limits` lists sentences whose numbers are bounds of the code or the
settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "figures.json"
PAGES = ("README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))))
TRANSLATED = {"README.md": "README.zh.md"}
MEASURED = re.compile(
    r"\bof \d|\d ?ms\b|\bp(?:50|95|99)\b|R@\d|(?<![\d.])\.\d\d?\b|\d ?%|\bF1\b|\d MB/s|of CPU|\b0\.\d\d|\d,\d{3}"
    r"|\b\d[\d,.]* (?:times|points|tokens|of)\b|lost\b.*\d|\d.*\blost|\bscored?\b|\bmeasured\b|median"
)
_NAMES = re.compile(r"`[^`]*`|\]\([^)]*\)|\bL[0-4]\b")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?|(?<![\w.])\.\d+")
_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_GENERATED = re.compile(r"<!-- compare -->.*?<!-- /compare -->", re.DOTALL)
"""Tables that `scripts/compare` writes from docs/comparison.json: bound as a whole."""
_PART = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\. ))")
_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(\"“])")


def sentences(text: str) -> list[str]:
    """Return the sentences of a page in order, blanks made one; a row of a table is one."""
    found: list[str] = []
    for part in _PART.split(_GENERATED.sub("", _BLOCK.sub("\n\n", text))):
        line = re.sub(r"^(?:[-*>]|\d+\.) +", "", " ".join(part.split()))
        found += [line] if line.startswith("|") else _END.split(line)
    return found


def numbers(sentence: str) -> list[str]:
    """Return the numbers of a sentence in order, without names in backquotes: `0.9` for .9, `1300` for 1,300."""
    found = (number.replace(",", "") for number in _NUMBER.findall(_NAMES.sub("", sentence)))
    return [f"0{number}" if number.startswith(".") else number for number in found]


def measured(text: str) -> list[str]:
    """Return the sentences of a page that quote a measurement."""
    return [one for one in sentences(text) if numbers(one) and MEASURED.search(_NAMES.sub("", one))]


def numbers_of(figure: Mapping[str, Any]) -> list[str]:
    """Return a figure's values as a page writes them."""
    values = figure["values"]
    return [str(value) for value in (values.values() if isinstance(values, dict) else values)]


def load() -> dict[str, Any]:
    """Return `docs/figures.json`: {figures, limits}."""
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def save(content: Mapping[str, Any]) -> None:
    """Write `docs/figures.json`, one figure a line."""
    lines = [f"  {json.dumps(n)}: {json.dumps(f, ensure_ascii=False)}" for n, f in sorted(content["figures"].items())]
    limits = json.dumps(content["limits"], ensure_ascii=False, indent=1, sort_keys=True)
    FILE.write_text('{"figures": {\n' + ",\n".join(lines) + '\n},\n"limits": ' + limits + "}\n", encoding="utf-8")

"""Training data of `train_moments.py`: memories, prompts they decide, near misses, and prompts that need nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

DATA = Path(__file__).resolve().parent / "data"


@dataclass(frozen=True, slots=True)
class Rule:
    """A stored memory: its type, its words, prompts that it decides, and prompts that it only resembles."""

    type: str
    text: str
    decides: tuple[str, ...]
    resembles: tuple[str, ...]


def read(language: str) -> tuple[list[Rule], list[str], list[str]]:
    """Return a language's memories, prompts that need none, and tasks that may need one; the test is not among them."""
    rules, others, tasks = list[Rule](), list[str](), list[str]()
    for line in (DATA / f"unasked_train_{language}.txt").read_text(encoding="utf-8").splitlines():
        parts = [part.strip() for part in line.split(" | ")]
        if line.startswith("="):
            others += [part.removeprefix("=").strip() for part in parts]
        elif line.startswith("+"):
            tasks += [part.removeprefix("+").strip() for part in parts]
        elif line and not line.startswith("#"):
            said = parts[2:]
            rules.append(
                Rule(
                    parts[0],
                    parts[1],
                    tuple(one[2:] for one in said if one.startswith("+ ")),
                    tuple(one[2:] for one in said if one.startswith("- ")),
                )
            )
    older = yaml.safe_load((DATA / "prompts_train.yaml").read_text(encoding="utf-8"))[language]
    rules += [Rule(kind, text, (prompt,), ()) for kind, text, prompt in older["decides"]]
    return rules, [*others, *map(str, older["others"])], tasks

"""A week of a team's memory in one language, put in by the commands' own calls: what browser tests and pictures show.

The sentences lie beside in `gallery.toml`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from chromium import here
from human_seat import Seat

from memory_anchor.domain.model import ProposalAction
from memory_anchor.front.cli import link
from memory_anchor.front.cli.passphrase import identity
from memory_anchor.testing import PASSPHRASE, human_of

SAID: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def furnish(seat: Seat, language: str) -> dict[str, Any]:
    """Fill a seat's memory and return the ids of what the pages are asked for by name."""
    here(seat)
    texts = SAID[language]
    (seat.project / "src").mkdir(exist_ok=True)
    (seat.project / "src" / "prices.py").write_text("def cents(price):\n    return round(price * 100)\n" * 8, "utf-8")
    human = human_of(seat.data)
    ids: dict[str, Any] = {"ask": texts["ask"]}
    for content, kind in texts["facts"]:
        more = {"files": ["src/prices.py:2-6"]} if kind == "bugfix" else {}
        ids[kind] = link.call("add", content=content, type=kind, confidence=0.95, tags=["shop"], **more)["id"]
    ids["pinned"] = ids["decision"]
    link.call("pin", human=human, id=ids["pinned"])
    ids["doubts"] = [link.call("add", content=doubt, confidence=0.75)["id"] for doubt in texts["doubts"]]
    ids["long"] = link.call("add", content=texts["long"], confidence=0.8, tags=["import"])["id"]
    ids["ports"] = [link.call("add", content=row, confidence=0.95)["id"] for row in texts["ports"]]
    ids["moved"] = [link.call("add", content=row, confidence=0.95)["id"] for row in texts["moved"]]
    for content in texts["events"]:
        link.call("log", content=content, who=["Ana"], where="Berlin")
    gone = link.call("add", content=texts["gone"], confidence=0.95)["id"]
    link.call("forget", human=human, id=gone)
    ids["gone"] = gone
    link.call("edit", human=human, id=ids["bugfix"], content=f"{texts['facts'][2][0]} (src/prices.py)")
    (seat.project / "docs").mkdir(exist_ok=True)
    (seat.project / "docs" / "deploy.md").write_text(f"# Deploy\n\n{texts['long']}\n", "utf-8")
    link.call("knowledge_add", ref=str(Path(seat.project)), kind="files", human=human)
    schema = identity()
    wish = {"content": texts["law_new"], "reason": texts["law_why"], "entry_id": "goal"}
    made = schema.propose(**wish, action=ProposalAction.REPLACE, from_id=None, by="agent:claude-code")
    schema.confirm(made.id, passphrase=PASSPHRASE, approver="alice", seen=schema.fingerprint(made))
    ids["proposal"] = made.id
    return ids

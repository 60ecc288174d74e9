"""Two projects of one installation and their one human, with cheap keys in this process and real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.domain.model import Proposal, ProposalAction
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.testing import PASSPHRASE, ManualClock

TEXT = 'version: "1"\nentries:\n  - id: goal\n    content: "Keep the greenhouse at 21 degrees"\n    priority: 0\n'


class Desk:
    def __init__(self, root: Path, name: str, clock: ManualClock, *, data: str = "data", init: bool = True) -> None:
        self.root, self.name, self.clock, self.data = root / f"{data}-{name}", name, clock, root / data
        self.root.mkdir(exist_ok=True)
        self.file = self.root / "constitution.yaml"
        if not self.file.exists():
            self.file.write_text(TEXT, encoding="utf-8")
        self.audit = JsonlAudit(self.data / "audit" / "audit.jsonl")
        if init:
            self.schema().init(passphrase=PASSPHRASE, approver="alice", old_passphrase=None)
            clock.advance(seconds=1)

    def schema(self, **options: Any) -> IdentitySchema:
        home = self.data / "identity" / self.name
        return IdentitySchema(
            project_dir=self.root, project_id=self.name, home=home, clock=self.clock, audit=self.audit, **options
        )

    def propose(self, content: str = "Water at dawn", **more: Any) -> Proposal:
        defaults: dict[str, Any] = {"reason": "asked", "action": ProposalAction.ADD, "entry_id": None, "from_id": None}
        return self.schema().propose(content=content, **{**defaults, "by": "agent", **more})

    def confirm(self, name: str, **options: Any) -> Proposal:
        self.clock.advance(seconds=1)
        return self.schema(**options).confirm(name, passphrase=PASSPHRASE, approver="alice")

    def approve(self, content: str = "Water at dawn") -> Proposal:
        """Propose an entry and confirm it three times."""
        proposal = self.propose(content)
        for _ in range(3):
            proposal = self.confirm(proposal.id)
        return proposal

    def record(self, name: str) -> Path:
        return self.root / ".ai" / "proposals" / f"{name}.yaml"

    def edit(self, name: str, **changes: Any) -> None:
        """Change a proposal's file as an editor does; None takes a key out."""
        content = yaml.safe_load(self.record(name).read_text(encoding="utf-8"))
        content = {key: value for key, value in (content | changes).items() if value is not None}
        self.record(name).write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")

    def served(self) -> list[str]:
        return [entry.content for entry in self.schema().load().entries]

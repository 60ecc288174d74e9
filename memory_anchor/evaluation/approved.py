"""The approval that the demo and the evaluation need before L0 says anything: the real one, with a key of their own.

Nothing is served as L0 that was not sealed with a human's key, and a check that went around that would check another
product. So a throwaway data folder gets a throwaway passphrase, and the project's file is approved as `init` does it.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from memory_anchor.identity.identity_schema import IdentitySchema

APPROVER = "demo"


def approve(*schemas: IdentitySchema) -> None:
    """Approve the files of projects of one data folder under a passphrase that nobody keeps.

    Raises BadInput: a file is broken.
    """
    passphrase = secrets.token_urlsafe(24)
    for schema in schemas:
        schema.init(passphrase=passphrase, approver=APPROVER, old_passphrase=None)


def approve_in(data: Path, project: Path) -> None:
    """Approve the file of `project` for the data folder `data`, which nothing else uses yet."""
    from memory_anchor.adapters.audit import JsonlAudit
    from memory_anchor.adapters.projects import Projects
    from memory_anchor.adapters.system import Ids, SystemClock
    from memory_anchor.files import make_private

    make_private(data)
    clock = SystemClock()
    project_id, root = Projects(data / "projects.json", Ids(clock).new).of(str(project))
    approve(
        IdentitySchema(
            project_dir=Path(root),
            project_id=project_id,
            home=data / "identity" / project_id,
            clock=clock,
            audit=JsonlAudit(data / "audit" / "audit.jsonl"),
        )
    )

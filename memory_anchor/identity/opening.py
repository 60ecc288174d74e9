"""L0 of a project by the settings: for an engine, and for a command that opens it without one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.errors import BadInput
from memory_anchor.identity.identity_schema import IdentitySchema

if TYPE_CHECKING:
    from memory_anchor.domain.model import Scope
    from memory_anchor.domain.ports import AuditLog, Clock
    from memory_anchor.settings import Settings

TENANT = "tenant-"
"""How the folder of the rules of another account's project begins."""


def identity_of(
    settings: Settings,
    project_id: str,
    root: str,
    *,
    data_dir: Path,
    clock: Clock,
    audit: AuditLog,
    account: str,
) -> IdentitySchema:
    """Return L0 of a project. root: its folder here, "" for none; account: whose it is."""
    return IdentitySchema(
        project_dir=Path(root) if root else None,
        project_id=project_id,
        home=data_dir / "identity" / project_id,
        clock=clock,
        audit=audit,
        budget_tokens=settings.budget.identity,
        min_interval_s=settings.constitution.min_interval_s,
        distinct_approvers=settings.constitution.distinct_approvers,
        account=account,
    )


def rules_folder(scope: Scope, root: str, *, local_account: str) -> str:
    """Return the name of the folder that holds a project's rules: no two accounts share one.

    root: the project's folder here, which only callers of this machine have. local_account: the account of this
    installation, whose projects go by their ids. Ids are names, and two accounts may use the same.
    Raises BadInput: an id that looks like such a folder of another account.
    """
    if scope.project.startswith(TENANT):
        raise BadInput(f"project id is {scope.project!r}; ids that begin with {TENANT!r} are this server's own")
    if root or scope.account == local_account:
        return scope.project
    return f"{TENANT}{stable_hash(scope.account, scope.project)[:32]}"

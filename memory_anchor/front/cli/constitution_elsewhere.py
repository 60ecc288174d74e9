"""`memory-anchor constitution review --server URL`: an approver reads a served L0's proposals and decides on them here.

The difference that is shown is made here, from the text and the proposal that the server told, and so is all that the
passphrase signs: a server, or whoever stands between, that shows one thing and applies another gets a signature that
fits neither. The key stays here; what leaves are signatures, good for this proposal, text, server and moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from memory_anchor.errors import BadInput, MemoryAnchorError, NotFound
from memory_anchor.front.callers import REVIEWER
from memory_anchor.front.cli.constitution import check_terminal
from memory_anchor.front.cli.link import asked_of, key_of
from memory_anchor.front.cli.output import JsonOption, KeyFileOption, ServerOption, err, guarded, out, quiet, show_json
from memory_anchor.front.cli.passphrase import ask_human
from memory_anchor.json_values import Record, optional_text, record, records, text, whole
from memory_anchor.terminal import visible, visible_lines

if TYPE_CHECKING:
    from memory_anchor.identity.approval import Signer
    from memory_anchor.identity.elsewhere import Ground
    from memory_anchor.model import Proposal

CALL, REJECT = "constitution_approve", "constitution_reject"
CHOICES = "(c)onfirm, (r)eject, (s)kip, (q)uit"


@guarded
def review(
    context: typer.Context,
    server: ServerOption = "",
    key_file: KeyFileOption = "",
    list_only: Annotated[bool, typer.Option("--list", help="Only show what waits.")] = False,
    approve: Annotated[list[str] | None, typer.Option(metavar="ID", help="Confirm this one; repeatable.")] = None,
    reject: Annotated[list[str] | None, typer.Option(metavar="ID", help="Close this one; repeatable.")] = None,
    reason: Annotated[str, typer.Option(help="Why it is rejected; asked for when left out.")] = "",
    json_: JsonOption = False,
) -> None:
    """Confirm or reject proposals of a served memory with your own passphrase; three approvers make one effective."""
    if not server:
        raise BadInput("--server is missing; on this machine it is `memory-anchor review`")
    if context.parent is not None and any(context.parent.params.get(name) for name in ("account", "project")):
        raise BadInput("--account and --project are not taken beside --server; the access key says whose L0 it is")
    if reject and not reason.strip():
        raise BadInput("reason is missing; --reject needs --reason TEXT, which is kept with the proposal")
    named = [*(approve or ()), *(reject or ())]
    if len(set(named)) < len(named):
        raise BadInput("a proposal is named twice; allowed is one decision for each")
    url, key = server.rstrip("/"), key_of(key_file)
    told = asked_of(url, key, "constitution/proposals", {})
    rows = {str(row.get("proposal_id")): row for row in records(told.get("proposals", []))}
    if list_only or (json_ and not named):
        _list(told, rows, as_json=json_)
        return
    if unknown := [one for one in named if one not in rows]:
        raise NotFound(f"no proposal {unknown[0][:40]!r} waits there; those that wait are {', '.join(rows) or 'none'}")
    if not rows:
        quiet("nothing waits for approval")
        return
    check_terminal(as_json=True)  # what is shown goes to stderr
    human: Signer | None = None
    outcomes: list[Record] = []
    for name in named or list(rows):
        told = asked_of(url, key, "constitution/proposals", {}) if outcomes else told
        row = next((one for one in records(told["proposals"]) if one["proposal_id"] == name), None)
        if row is None:
            continue
        proposal, ground, number = _read(record(row), told)
        fits = True
        try:
            _show(proposal, ground, record(row), number, str(told["by"]))
        except MemoryAnchorError as error:
            fits = False
            err.print(f"{visible(name)} cannot be applied to the text in force: {visible(str(error))}", markup=False)
            err.print(visible_lines(proposal.content), markup=False)
        choice = "r" if name in (reject or ()) else "c" if approve else ""
        choice = choice or typer.prompt(CHOICES, default="s", err=json_).strip().lower()[:1]
        if choice == "q":
            break
        if choice not in "cr" or (choice == "c" and not fits):
            continue
        why = "" if choice == "c" else reason.strip() or typer.prompt("Why 理由", err=json_).strip()
        human = human or ask_human()
        outcomes.append(_decide(url, key, human, proposal, ground, number, str(told["by"]), why))
        if not json_:
            done = outcomes[-1]
            out.print(visible(f"{name}  {done['status']}  {done['confirmations']}/{done['required']}"), markup=False)
    if json_:
        show_json({"outcomes": outcomes})


def _decide(
    url: str, key: str, human: Signer, proposal: Proposal, ground: Ground, number: int, by: str, why: str
) -> Record:
    """Send a decision, signed here, and return what became of it. why: of a rejection, "" for an approval."""
    from memory_anchor.identity.elsewhere import approval_of, rejection_of
    from memory_anchor.identity.signed_requests import signed

    at = datetime.now(UTC)
    signatures: tuple[str, ...]
    if why:
        seen, signatures = rejection_of(human, proposal, ground, by=by, at=at, reason=why)
    else:
        seen, signatures = approval_of(human, proposal, ground, number=number, by=by, at=at)
    given = {"id": proposal.id, "seen": seen, "installation": ground.installation, "at": at.isoformat()}
    given |= {"reason": why} if why else {}
    names = ("signature", "closing") if why else ("signature", "link", "seal")
    given |= dict(zip(names, signatures, strict=False))
    call = REJECT if why else CALL
    proof = signed(human, call, given, REVIEWER, asked_of(url, key, "review/challenge", {}))
    return asked_of(url, key, call.replace("_", "/"), {**given, "human": proof})


def _read(row: Record, told: Record) -> tuple[Proposal, Ground, int]:
    """Return a proposal as the server told it, the ground it stands on, and the number of the next confirmation."""
    from memory_anchor.identity.elsewhere import Ground
    from memory_anchor.model import Proposal, ProposalAction

    try:
        proposal = Proposal(
            id=str(row["proposal_id"]),
            action=ProposalAction(text(row["action"])),
            content=str(row["content"]),
            reason=str(row["reason"]),
            proposed_by=str(row["proposed_by"]),
            proposed_at=datetime.fromisoformat(text(row["proposed_at"])),
            entry_id=optional_text(row["entry_id"]),
            from_id=optional_text(row["from_id"]),
        )
        return proposal, Ground.of(record(told["ground"])), whole(row["confirmations"]) + 1
    except (KeyError, TypeError, ValueError):
        raise BadInput("the server's answer is no list of proposals; is it of another version?") from None


def _show(proposal: Proposal, ground: Ground, row: Record, number: int, by: str) -> None:
    """Show all that an approval is about. Raises BadInput, NotFound: it does not fit the text in force."""
    from memory_anchor.identity.changes import shown_diff

    difference = shown_diff(ground.text, proposal)
    err.print(visible(f"{proposal.id}  {proposal.action.value}, proposed by {proposal.proposed_by}"), markup=False)
    err.print(f"reason 理由: {visible(proposal.reason)}", markup=False)
    err.print(visible_lines(difference), markup=False)
    err.print(visible(f"Server {ground.installation}, as {by}"), markup=False)
    err.print(f"This is confirmation {number} of {row['required']}. 第 {number} 次确认。", markup=False)


def _list(told: Record, rows: Mapping[str, Record], *, as_json: bool) -> None:
    if as_json:
        show_json({name: told[name] for name in ("proposals", "notes") if name in told})
        return
    for name, row in rows.items():
        given = f"{row.get('confirmations')}/{row.get('required')}"
        out.print(visible(f"{name}  {given}  {row.get('action')}, proposed by {row.get('proposed_by')}"), markup=False)
        out.print(visible_lines(str(row.get("diff") or row.get("note") or "")), markup=False)
    if not rows:
        quiet("nothing waits for approval")

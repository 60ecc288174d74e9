"""Commands for a served memory: access keys (`keys create`, `list`, `revoke`) and `constitution review --server URL`.

The `keys` commands work on the key file of this data directory, which a running server reads with every request
(replicas share it); no engine is asked. Creating a key needs the human's passphrase, since the record is sign_request;
revoking one does not: it only takes rights away.

`constitution review` lets an approver decide on a served L0's proposals. The difference shown and all that the
passphrase signs are made here, from the server's text and proposal: a server (or a man in the middle) that shows one
thing and applies another gets a signature that fits neither. The key stays here; signatures leave, each good for this
proposal, text, server and moment.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from memory_anchor.base.json_values import Record, optional_text, record, records, text, whole
from memory_anchor.base.terminal import visible, visible_lines
from memory_anchor.errors import BadInput, MemoryAnchorError, NotFound
from memory_anchor.front.callers import REVIEWER
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.constitution import check_terminal
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import ask_server, data_dir, read_key
from memory_anchor.front.cli.output import (
    JsonOption,
    KeyFileOption,
    ServerOption,
    err,
    escaped,
    handle_errors,
    out,
    print_dim,
    show_json,
)
from memory_anchor.front.cli.passphrase import ask_human, audit_trail, shared_records
from memory_anchor.requests import AddAccessKey

if TYPE_CHECKING:
    from memory_anchor.identity.keys import Signer
    from memory_anchor.identity.remote_approval import ApprovalBasis
    from memory_anchor.model import Proposal
    from memory_anchor.team.keys import AccessKey, KeyFile

HELP = "Who may come in to `memory-anchor serve`: create, list and revoke access keys."
_SPAN = re.compile(r"(\d{1,5})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


def register(app: typer.Typer) -> None:
    keys = group(app, "keys", HELP)
    keys.command("create")(create)
    keys.command("list")(list_)
    keys.command("revoke")(revoke)


@handle_errors
def create(
    account: Annotated[str, typer.Option(help="Whose memory it opens; left out: this installation's own.")] = "",
    user: Annotated[str, typer.Option(help="Who holds it; left out: requests may name one (for services).")] = "",
    role: Annotated[str, completing.choice("reader", "writer", "approver", "admin")] = "writer",
    project: Annotated[
        str, typer.Option(help="Only this project, by its id; left out: every one.", autocompletion=completing.projects)
    ] = "",
    expires: Annotated[str, typer.Option(metavar="WHEN", help="90d, 12h, 4w, or an ISO 8601 time with a zone.")] = "",
    note: Annotated[str, typer.Option(help="What it is for; shown by `keys list`.")] = "",
    signs_with: Annotated[
        str, typer.Option(metavar="KEY", help="Of an approver: what `constitution approvers` prints on their machine.")
    ] = "",
    server: ServerOption = "",
    key_file: KeyFileOption = "",
    json_: JsonOption = False,
) -> None:
    """Make a key and show it, once; needs the passphrase.

    With --server an admin makes one for a served memory: here, so that only its hash goes there.
    """
    from memory_anchor.adapters.system import SystemClock, new_bytes
    from memory_anchor.app import settings_of
    from memory_anchor.inputs import project_id
    from memory_anchor.team.credential import Role
    from memory_anchor.team.keys import describe_key, new_key

    now = SystemClock().now()
    if role not in {known.value for known in Role}:
        raise BadInput(f"role is {role[:40]!r}; allowed are {', '.join(Role)}")
    if project:
        project_id(project)
    until = _until(expires, now)
    wanted = partial(
        new_key,
        role=Role(role),
        user=user,
        project=project,
        note=note,
        public=signs_with,
        expires_at=until,
        new_bytes=new_bytes,
        now=now,
    )
    if server:
        if account:
            raise BadInput("--account is given with --server; an admin's keys are of their own account: leave it out")
        key, made = _made_for_server(server.rstrip("/"), read_key(key_file), wanted)
    else:
        keys, of = keys_here(), account or settings_of(os.environ).scope.account
        key, made = wanted(ask_human(), account=of)
        keys.add(made, now)
        audit_trail(data_dir()).append("key.created", describe_key(made), by=f"human:{made.created_by}", at=now)
    if json_:
        show_json({"key": key, **describe_key(made)})
        return
    sys.stdout.write(f"{key}\n")
    print_dim("shown this once; give it to its holder over a safe channel (`Authorization: Bearer ...`)")
    print_dim(f"id {made.id} of {made.account}, {made.role.value}; it ends with `memory-anchor keys revoke {made.id}`")


@handle_errors
def list_(server: ServerOption = "", key_file: KeyFileOption = "", json_: JsonOption = False) -> None:
    """Show every key: whose it is, what it may, when it was last used; never what opens."""
    from memory_anchor.adapters.system import SystemClock
    from memory_anchor.team.keys import describe_key

    if server:
        rows = records(ask_server(server.rstrip("/"), read_key(key_file), "keys")["keys"])
    else:
        keys, now = keys_here(), SystemClock().now()
        used = keys.last_used()
        every = keys.all().values()
        rows = [{**describe_key(key), "last_used_at": used.get(key.id, ""), "ended": key.ended(now)} for key in every]
    if json_:
        show_json({"keys": rows})
        return
    for row in rows:
        colour, state = (
            ("dim", text(row["ended"]).rpartition(f"{row['id']} ")[2]) if row["ended"] else ("green", "open")
        )
        whose = "/".join(str(row[name]) for name in ("account", "user", "project") if row[name])
        out.print(f"[cyan]{row['id']}[/] {escaped(row['role'])} {escaped(whose)} [{colour}]{escaped(state)}[/]")
        note = f"; {row['note']}" if row["note"] else ""
        print_dim(
            f"  made {row['created_at']} by {row['created_by']}, last used {row['last_used_at'] or 'never'}{note}"
        )
    if not rows:
        print_dim("there is no key yet: `memory-anchor keys create`")


@handle_errors
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `keys list` shows it.")],
    server: ServerOption = "",
    key_file: KeyFileOption = "",
    json_: JsonOption = False,
) -> None:
    """End a key for good; a running server refuses it from the next request on."""
    from memory_anchor.adapters.system import SystemClock
    from memory_anchor.team.keys import describe_key

    if server:
        revoked = ask_server(server.rstrip("/"), read_key(key_file), "keys/revoke", {"id": key})
    else:
        now = SystemClock().now()
        revoked = describe_key(keys_here().revoke(key, now))
        audit_trail(data_dir()).append("key.revoked", {"id": revoked["id"]}, by="command", at=now)
    if json_:
        show_json(revoked)
        return
    print_dim(f"{revoked['id']} of {revoked['account']} opens nothing any more")


def _made_for_server(url: str, own: str, wanted: Callable[..., tuple[str, AccessKey]]) -> tuple[str, AccessKey]:
    """Return a key that is sign_request here and stored by a served memory. Raises what the server answers."""
    from memory_anchor.team.keys import name_of

    account = text(ask_server(url, own, "keys")["account"])
    key, made = wanted(ask_human(), account=account, made_with=name_of(own))
    fields = {name: getattr(made, name) for name in AddAccessKey.model_fields}
    ask_server(url, own, "keys/create", {**fields, "role": made.role.value})
    return key, made


def keys_here() -> KeyFile:
    from memory_anchor.team.keys import KeyFile

    os.umask(0o077)
    return KeyFile.of(data_dir(), audit_trail(data_dir()), shared_records())


def _until(expires: str, now: datetime) -> datetime | None:
    """Return when a key ends, None for never. Raises BadInput."""
    if not expires:
        return None
    if span := _SPAN.fullmatch(expires):
        return now + timedelta(hours=int(span[1]) * _HOURS[span[2]])
    try:
        at = datetime.fromisoformat(expires)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise BadInput(f"expires is {expires[:40]!r}; allowed are 12h, 90d, 4w, or a time such as 2027-01-31T00:00:00Z")
    return at


CALL, REJECT = "constitution_approve", "constitution_reject"
CHOICES = "(c)onfirm, (r)eject, (s)kip, (q)uit"


@handle_errors
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
        raise BadInput("--account and --project are not taken with --server; the access key says whose L0 it is")
    if reject and not reason.strip():
        raise BadInput("reason is missing; --reject needs --reason TEXT, which is kept with the proposal")
    named = [*(approve or ()), *(reject or ())]
    if len(set(named)) < len(named):
        raise BadInput("a proposal is named twice; allowed is one decision for each")
    url, key = server.rstrip("/"), read_key(key_file)
    answer = ask_server(url, key, "constitution/proposals", {})
    rows = {str(row.get("proposal_id")): row for row in records(answer.get("proposals", []))}
    if list_only or (json_ and not named):
        _list(answer, rows, as_json=json_)
        return
    if unknown := [id for id in named if id not in rows]:
        raise NotFound(f"no proposal {unknown[0][:40]!r} waits there; those that wait are {', '.join(rows) or 'none'}")
    if not rows:
        print_dim("nothing waits for approval")
        return
    check_terminal(as_json=True)  # what is shown goes to stderr
    human: Signer | None = None
    outcomes: list[Record] = []
    for name in named or list(rows):
        if outcomes:  # the text in force may have changed
            answer = ask_server(url, key, "constitution/proposals", {})
            rows = {str(row["proposal_id"]): row for row in records(answer["proposals"])}
        if name not in rows:
            continue
        proposal, ground, number = _read(rows[name], answer)
        by, fits = str(answer["by"]), True
        try:
            _show(proposal, ground, rows[name], number, by)
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
        outcomes.append(_decide(url, key, human, proposal, ground, number, by, why))
        if not json_:
            done = outcomes[-1]
            out.print(visible(f"{name}  {done['status']}  {done['confirmations']}/{done['required']}"), markup=False)
    if json_:
        show_json({"outcomes": outcomes})


def _decide(
    url: str, key: str, human: Signer, proposal: Proposal, ground: ApprovalBasis, number: int, by: str, why: str
) -> Record:
    """Send a decision that is sign_request here; return the outcome. why: of a rejection, "" for an approval."""
    from memory_anchor.identity.remote_approval import sign_approval, sign_rejection
    from memory_anchor.identity.signed_requests import sign_request

    at = datetime.now(UTC)
    signatures: tuple[str, ...]
    if why:
        seen, signatures = sign_rejection(human, proposal, ground, by=by, at=at, reason=why)
    else:
        seen, signatures = sign_approval(human, proposal, ground, number=number, by=by, at=at)
    given = {"id": proposal.id, "seen": seen, "installation": ground.installation, "at": at.isoformat()}
    given |= {"reason": why} if why else {}
    names = ("signature", "closing") if why else ("signature", "link", "seal")
    given |= dict(zip(names, signatures, strict=False))
    call = REJECT if why else CALL
    proof = sign_request(human, call, given, REVIEWER, ask_server(url, key, "review/challenge", {}))
    return ask_server(url, key, call.replace("_", "/"), {**given, "human": proof})


def _read(row: Record, answer: Record) -> tuple[Proposal, ApprovalBasis, int]:
    """Return a server's proposal, the text it is about, and the number of the next confirmation."""
    from memory_anchor.identity.remote_approval import ApprovalBasis
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
        return proposal, ApprovalBasis.of(record(answer["ground"])), whole(row["confirmations"]) + 1
    except (KeyError, TypeError, ValueError):
        raise BadInput("the server's answer is no list of proposals; is it of another version?") from None


def _show(proposal: Proposal, ground: ApprovalBasis, row: Record, number: int, by: str) -> None:
    """Show what an approval would sign. Raises BadInput, NotFound: it does not fit the text in force."""
    from memory_anchor.identity.changes import shown_diff

    difference = shown_diff(ground.text, proposal)
    err.print(visible(f"{proposal.id}  {proposal.action.value}, proposed by {proposal.proposed_by}"), markup=False)
    err.print(f"reason 理由: {visible(proposal.reason)}", markup=False)
    err.print(visible_lines(difference), markup=False)
    err.print(visible(f"Server {ground.installation}, as {by}"), markup=False)
    err.print(f"This is confirmation {number} of {row['required']}. 第 {number} 次确认。", markup=False)


def _list(answer: Record, rows: Mapping[str, Record], *, as_json: bool) -> None:
    if as_json:
        show_json({name: answer[name] for name in ("proposals", "notes") if name in answer})
        return
    for name, row in rows.items():
        confirmed = f"{row.get('confirmations')}/{row.get('required')}"
        out.print(
            visible(f"{name}  {confirmed}  {row.get('action')}, proposed by {row.get('proposed_by')}"), markup=False
        )
        out.print(visible_lines(str(row.get("diff") or row.get("note") or "")), markup=False)
    if not rows:
        print_dim("nothing waits for approval")

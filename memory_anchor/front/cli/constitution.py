"""`memory-anchor constitution ...`: where humans read, propose and approve L0.

Texts are approved here and nowhere else: never by a tool, never without a terminal, never on the strength of a name.
The exact difference is shown before the passphrase is asked for, and the passphrase is read from the terminal alone, so
neither a pipe nor an argument nor the environment can answer for a human. With `--json` the answer is one JSON object
on stdout; what a human must see goes to stderr, which must then be the terminal.
"""

from __future__ import annotations

import functools
import getpass
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from memory_anchor.base.json_values import Record, whole
from memory_anchor.base.lines import text_lines
from memory_anchor.base.terminal import visible, visible_json, visible_lines
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, Refused, report
from memory_anchor.domain.model import Proposal, ProposalAction, ProposalStatus
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.passphrase import wait_after_refusals, warn
from memory_anchor.front.cli.typing_ahead import show_typing

if TYPE_CHECKING:
    from memory_anchor.identity.identity_schema import IdentitySchema

P = ParamSpec("P")
Build = Callable[[], "IdentitySchema"]
"""Makes the schema from the settings; called once per command, so that `--help` costs nothing."""
Other = Callable[[str, str], "IdentitySchema"]
"""Makes the schema of another account and a project of it."""

_OPENED: list[IdentitySchema] = []
"""The schema whose passphrase this command asked for; earlier refused tries are shown at its end."""
AsJson = Annotated[bool, typer.Option("--json", help="Answer with one JSON object on stdout.")]
As = Annotated[str, typer.Option("--as", help="Your name in the record; by default the approver's.")]
ProposalId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A proposal, as `constitution list` shows it.", autocompletion=completing.proposals
    ),
]


def _reporting(command: Callable[P, None]) -> Callable[P, None]:
    """Return the command with our errors shown as one sentence, and the exit code of the error table."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            for schema in _OPENED:
                warn(visible(schema.human.refused_tries_note()))
        except MemoryAnchorError as error:
            kind = report(error)
            if kwargs.get("as_json"):
                _print_json({"error": kind.code, "message": str(error)})
            else:
                _print(f"error: {visible(str(error))}", error=True)
            raise typer.Exit(kind.exit_code) from error

    return run


def as_json_record(proposal: Proposal) -> Record:
    """Return a proposal as commands show it; L0 is imported by the first command that needs it."""
    from memory_anchor.identity import proposals

    return dict(proposals.as_json(proposal))


def register(app: typer.Typer) -> None:
    from memory_anchor.front.cli.link import check_writable
    from memory_anchor.front.cli.passphrase import identity

    app.add_typer(make_app(identity, check_writable, identity), name="constitution")


def make_app(
    build: Build, check_writable: Callable[[], None] = lambda: None, other: Other | None = None
) -> typer.Typer:
    """Return the sub-app `constitution` over the schema that `build` makes.

    check_writable: raises Refused where an agent may write nothing now; commands that take the passphrase skip it.
    other: makes the schema for `--account`.
    """
    chosen = {"account": "", "project": ""}
    app = typer.Typer(
        name="constitution",
        help="Read, propose and approve the constitution (L0).",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def whose(
        account: Annotated[str, typer.Option(help="Of another account that this server serves.")] = "",
        project: Annotated[str, typer.Option(help="With --account: the project's id; left out: the default one.")] = "",
    ) -> None:
        """Read, propose and approve the constitution (L0)."""
        chosen.update(account=account, project=project)

    def warned_build() -> IdentitySchema:
        if chosen["project"] and not chosen["account"]:
            raise BadInput("--project is given without --account; here the project is the folder's")
        schema = other(chosen["account"], chosen["project"]) if other and chosen["account"] else build()
        if warning := schema.key_warning():
            _print(f"warning: {visible(warning)}", error=True)
        return schema

    _add_reading(app, warned_build)
    _add_proposing(app, warned_build, check_writable)
    _add_approving(app, warned_build)
    _add_founding(app, warned_build, lambda: chosen["account"])
    return app


def _add_reading(app: typer.Typer, build: Build) -> None:
    @app.command()
    @_reporting
    def show(
        as_json: AsJson = False,
        yaml: Annotated[bool, typer.Option("--yaml", help="Print the text in force, fit for the file.")] = False,
    ) -> None:
        """Show the entries in force, and whatever differs from them."""
        schema = build()
        if yaml:
            sys.stdout.write(visible_lines(schema.text()) if sys.stdout.isatty() else schema.text())
            return
        served = schema.load()
        warnings = list(served.warnings)
        if as_json:
            names = ("id", "content", "priority", "source")
            entries = [{name: getattr(entry, name) for name in names} for entry in served.entries]
            _print_json({"entries": entries, "version": served.version, "tokens": served.tokens, "warnings": warnings})
            return
        for entry in served.entries:
            mark = "" if entry.source == "yaml" else f"  ({entry.source})"
            _print(f"{entry.priority:>3}  {visible(entry.id)}{mark}\n     {visible(entry.content)}")
        _print(f"{len(served.entries)} entries, {served.tokens} tokens, version {visible(served.version)}")
        for warning in warnings:
            _print(f"warning: {visible(warning)}", error=True)

    @app.command("list")
    @_reporting
    def list_(
        as_json: AsJson = False,
        everything: Annotated[bool, typer.Option("--all", help="Also the effective and the rejected.")] = False,
    ) -> None:
        """List the proposals."""
        schema = build()
        proposals = [row for row in schema.proposals() if everything or row.status is ProposalStatus.OPEN]
        notes = schema.unreadable_proposals()
        if as_json:
            rows = [{**as_json_record(proposal), "content": proposal.content} for proposal in proposals]
            _print_json({"proposals": rows, "notes": notes})
            return
        for proposal in proposals:
            _print(f"{proposal_line(proposal)}: {visible(proposal.reason)}")
        for note in notes:
            _print(visible(note), error=True)
        if not proposals:
            _print("no open proposals" if not everything else "no proposals")

    @app.command()
    @_reporting
    def approvers(as_json: AsJson = False) -> None:
        """List whose signatures count on this machine, with the keys to hand to colleagues."""
        approvers = build().approvers()
        if as_json:
            _print_json({"approvers": [{"name": approver.name, "key": approver.public} for approver in approvers]})
            return
        for approver in approvers:
            _print(f"{approver.public}  {visible(approver.name)}")


def _add_proposing(app: typer.Typer, build: Build, check_writable: Callable[[], None]) -> None:
    @app.command()
    @_reporting
    def propose(
        content: Annotated[str, typer.Argument(help="The entry's text; not needed to remove one.")] = "",
        reason: Annotated[str, typer.Option(help="Why (required).")] = "",
        action: Annotated[ProposalAction, typer.Option(help="add, replace or remove.")] = ProposalAction.ADD,
        entry_id: Annotated[str, typer.Option("--entry-id", help="What to replace or remove; or the new id.")] = "",
        from_id: Annotated[str, typer.Option("--from-id", help="The fact it comes from.")] = "",
        by: Annotated[str, typer.Option("--as", help="Who proposes.")] = "cli",
        human: Annotated[bool, typer.Option("--human", help="Asks for the passphrase; never too many.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """Propose a change. Nothing changes until a human has confirmed it three times."""
        if not human:
            check_writable()
        schema = build()
        passphrase = ask_passphrase(schema, as_json=as_json) if human else None
        proposal = schema.propose(
            content=content,
            reason=reason,
            action=action,
            entry_id=entry_id or None,
            from_id=from_id or None,
            by=by,
            passphrase=passphrase,
        )
        _show_proposed(schema, proposal, as_json=as_json)

    @app.command()
    @_reporting
    def adopt(by: As = "", as_json: AsJson = False) -> None:
        """Turn the file's difference from the approved text into a proposal; needs the passphrase."""
        schema = build()
        check_terminal(as_json=as_json)
        difference = schema.unadopted_diff()
        if difference:
            _print(difference, error=as_json)
        passphrase = ask_passphrase(schema, as_json=as_json)
        proposal = schema.adopt(by=approver_name(schema, by), passphrase=passphrase, seen=difference)
        if proposal is not None:
            _show_proposed(schema, proposal, as_json=as_json)
        elif as_json:
            _print_json({"proposal_id": None, "status": "nothing to adopt"})
        else:
            _print("the file says what is approved: nothing to adopt")


def _add_founding(app: typer.Typer, build: Build, account: Callable[[], str]) -> None:
    @app.command()
    @_reporting
    def found(file: Annotated[Path, typer.Argument(help="A constitution.yaml.")], as_json: AsJson = False) -> None:
        """Approve the first text of another account (--account), once; later ones are proposed and approved."""
        if not account():
            raise BadInput("--account is missing; this server's own first text is approved by `memory-anchor init`")
        schema = build()
        check_terminal(as_json=as_json)
        text = _read_text(file)
        _print(f"This text becomes the constitution of {visible(account())} 这段文字将成为宪法:", error=as_json)
        _print("\n".join(f"│ {line}" for line in text_lines(visible_lines(text))), error=as_json)
        schema.approve_first_text(text, passphrase=ask_passphrase(schema, as_json=as_json))
        served = schema.load()
        if as_json:
            _print_json({"account": account(), "entries": len(served.entries), "tokens": served.tokens})
        else:
            _print(f"{len(served.entries)} entries are in force for {visible(account())}")


def _read_text(file: Path) -> str:
    """Return a file's text. Raises BadInput: there is none, or it is too large or not UTF-8."""
    from memory_anchor.base.files import read_bounded
    from memory_anchor.identity.constitution_text import MAX_BYTES, decode

    try:
        raw = read_bounded(file, most_bytes=MAX_BYTES)
    except OSError as error:
        raise BadInput(f"{file} cannot be read ({error.strerror}); name a constitution.yaml") from None
    text, wrong = decode(raw) if raw is not None else ("", "it is missing")
    if wrong or not text.strip():
        raise BadInput(f"{file} cannot be used: {wrong or 'it is empty'}; name a constitution.yaml")
    return text


def _add_approving(app: typer.Typer, build: Build) -> None:
    def selected(prefix: str, as_json: bool) -> tuple[IdentitySchema, Proposal, str]:
        """Return the schema, the only proposal whose id begins so, and its fingerprint."""
        from memory_anchor.front.cli.shorthand import only_match

        schema = build()
        check_terminal(as_json=as_json)
        ids = (proposal.id for proposal in schema.proposals())
        proposal = schema.proposal(only_match(prefix, ids) if prefix else prefix)
        return schema, proposal, schema.fingerprint(proposal)

    @app.command()
    @_reporting
    def approve(proposal_id: ProposalId, by: As = "", as_json: AsJson = False) -> None:
        """Confirm a proposal once; the third confirmation makes it effective."""
        schema, proposal, seen = selected(proposal_id, as_json)
        _show_head(proposal, as_json=as_json)
        if proposal.status is ProposalStatus.OPEN:
            _print(schema.diff(proposal), error=as_json)
            required = whole(as_json_record(proposal)["required"])
            number = min(len(proposal.confirmations) + 1, required)
            _print(f"This is confirmation {number} of {required}. 第 {number} 次确认。", error=as_json)
        passphrase = ask_passphrase(schema, as_json=as_json)
        done = schema.confirm(proposal.id, passphrase=passphrase, approver=approver_name(schema, by), seen=seen)
        _show_outcome(done, as_json=as_json)

    @app.command()
    @_reporting
    def reject(
        proposal_id: ProposalId,
        reason: Annotated[str, typer.Option(help="Why (required).")] = "",
        by: As = "",
        as_json: AsJson = False,
    ) -> None:
        """Close a proposal."""
        schema, proposal, seen = selected(proposal_id, as_json)
        _show_head(proposal, as_json=as_json)
        try:
            content = schema.diff(proposal)
        except MemoryAnchorError:  # it fits the text in force no longer
            content = visible_lines(proposal.content)
        _print(content, error=as_json)
        passphrase = ask_passphrase(schema, as_json=as_json)
        name = approver_name(schema, by)
        closed = schema.reject(proposal.id, passphrase=passphrase, approver=name, reason=reason, seen=seen)
        _show_outcome(closed, as_json=as_json)

    @app.command()
    @_reporting
    def rules(
        min_interval_s: Annotated[int | None, typer.Option(help="Least seconds between two confirmations.")] = None,
        distinct: Annotated[
            bool | None, typer.Option("--distinct-approvers/--any-approvers", help="Three keys, or one thrice.")
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Show how strict approvals are, or change it: kept with the key, so that no setting lowers it."""
        schema = build()
        if min_interval_s is not None or distinct is not None:
            passphrase = ask_passphrase(schema, as_json=as_json)
            schema.human.set_rules(min_interval_s=min_interval_s, distinct_approvers=distinct, passphrase=passphrase)
        now = schema.human.rules()
        if as_json:
            _print_json({"min_interval_s": now.min_interval_s, "distinct_approvers": now.distinct_approvers})
        else:
            who = "three different approvers" if now.distinct_approvers else "any approver three times"
            _print(f"{who}, at least {now.min_interval_s} s between two confirmations")

    @app.command()
    @_reporting
    def trust(
        name: Annotated[str, typer.Argument(help="The colleague's name.")],
        key: Annotated[str, typer.Argument(help="What `constitution approvers` prints on their machine.")],
        as_json: AsJson = False,
    ) -> None:
        """Let a colleague's signatures count on this machine."""
        schema = build()
        passphrase = ask_passphrase(schema, as_json=as_json)
        known = schema.vouch(name=name, public=key, passphrase=passphrase)
        if as_json:
            _print_json({"name": known.name, "key": known.public})
        else:
            _print(f"{visible(known.name)} is known now")


def init_constitution(
    schema: IdentitySchema, *, approver: str = "", as_json: bool = False, opened: Callable[[str], object] = len
) -> Record:
    """Approve the project's file on the terminal and set the passphrase; return the state afterwards (for `init`).

    The text is shown before the passphrase is asked for. Without a text (no file, no entries, a placeholder) only the
    key is made or opened. On an initialised project the old passphrase is asked for, and an empty new one keeps it.

    approver: the human's name; asked for when "" and none is set. opened: gets the passphrase that opens the key now.
    Raises Refused: no terminal, or the passphrase. BadInput: the file, or what was typed.
    """
    check_terminal(as_json=as_json)
    if warning := schema.key_warning():
        raise Refused(warning)
    own = schema.approver()
    name = approver or (own.name if own else "") or _ask("Your name 你的名字: ", as_json=as_json)
    text = schema.first_text()
    if text:
        _print("This text becomes the constitution, told to every agent 这段文字将成为宪法:", error=as_json)
        _print("\n".join(f"│ {line}" for line in text_lines(visible_lines(text))), error=as_json)
    old = None
    if own is None:
        passphrase = _ask_twice("New passphrase, 12 characters or more 新口令: ")
    elif schema.initialised:
        old = _ask_hidden(schema, "Old passphrase 原口令: ")
        if not schema.verify_passphrase(old):
            raise Refused("the passphrase is not the approver's; nothing was changed")
        passphrase = _ask_twice("New passphrase, empty to keep it 新口令（留空不变）: ", may_be_empty=True) or old
    else:
        passphrase = _ask_hidden(schema, "Passphrase 口令: ")
    schema.init(passphrase=passphrase, approver=name, old_passphrase=old, without_text=not text, seen=text or None)
    opened(passphrase)
    served = schema.load()
    return {
        "initialised": schema.initialised,
        "approver": name,
        "entries": len(served.entries),
        "tokens": served.tokens,
        "fingerprint": schema.key_fingerprint(),
    }


# --- input -------------------------------------------------------------------------------------------------------


def check_terminal(*, as_json: bool) -> None:
    """Raise Refused where stdin, or the stream that shows the difference, is no terminal."""
    if not (sys.stdin.isatty() and (sys.stderr if as_json else sys.stdout).isatty()):
        raise Refused("approving needs a human on a terminal; run this command yourself in one")


def ask_passphrase(schema: IdentitySchema, *, as_json: bool = False) -> str:
    """Return the approver's passphrase, typed on the terminal. Raises Refused: no terminal, or no approver yet."""
    check_terminal(as_json=as_json)
    own = schema.approver()
    if own is None:
        raise Refused("no approver on this machine yet; run `memory-anchor init` on a terminal")
    return _ask_hidden(schema, f"Passphrase of {visible(own.name)} 口令: ")


def _ask_hidden(schema: IdentitySchema, prompt: str) -> str:
    wait_after_refusals(schema.human.wait_s())
    _OPENED[:] = [schema]
    return getpass.getpass(prompt)


def _ask_twice(prompt: str, *, may_be_empty: bool = False) -> str:
    new = getpass.getpass(prompt)
    if (new or not may_be_empty) and getpass.getpass("Once more 再输一次: ") != new:
        raise Refused("the two passphrases differ; nothing was changed")
    return new


def _ask(prompt: str, *, as_json: bool) -> str:
    show_typing()
    stream = sys.stderr if as_json else sys.stdout
    stream.write(prompt)
    stream.flush()
    return sys.stdin.readline().strip()


def approver_name(schema: IdentitySchema, given: str = "") -> str:
    """Return the name for a record: the given one, else the approver's."""
    own = schema.approver()
    return given or (own.name if own else "")


# --- output ------------------------------------------------------------------------------------------------------


def _show_proposed(schema: IdentitySchema, proposal: Proposal, *, as_json: bool) -> None:
    if as_json:
        _print_json(as_json_record(proposal))
    elif proposal.status is ProposalStatus.EFFECTIVE:
        _print(f"{proposal.id}: signed by a known approver, in force now")
    else:
        _print(schema.diff(proposal))
        _print(f"{proposal.id}: {as_json_record(proposal)['how_to_approve']}")


def _show_head(proposal: Proposal, *, as_json: bool) -> None:
    _print(proposal_line(proposal), error=as_json)
    _print(f"reason 理由: {visible(proposal.reason)}", error=as_json)


def _show_outcome(proposal: Proposal, *, as_json: bool) -> None:
    if as_json:
        _print_json(as_json_record(proposal))
    else:
        _print(proposal_line(proposal))


def proposal_line(proposal: Proposal) -> str:
    """Return a proposal in one line: id, state, number of confirmations, the change it asks for."""
    what = f"{proposal.action.value} {proposal.entry_id or ''}".strip()
    confirmed = f"{len(proposal.confirmations)}/{as_json_record(proposal)['required']}"
    return visible(f"{proposal.id}  {proposal.status.value}  {confirmed}  {what}, proposed by {proposal.proposed_by}")


def _print(text: str, *, error: bool = False) -> None:
    (sys.stderr if error else sys.stdout).write(text + "\n")


def _print_json(value: Mapping[str, object]) -> None:
    sys.stdout.write(visible_json(json.dumps(value, ensure_ascii=False)) + "\n")

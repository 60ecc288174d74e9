"""`memory-anchor constitution ...`: where humans read, propose and approve L0.

Approving is done here and nowhere else: never by a tool, never without a terminal, and never on the strength of a name.
The exact difference is shown on the terminal before the passphrase is asked for, and the passphrase is read from the
terminal alone, so neither a pipe nor an argument nor the environment can answer for a human. With `--json` the answer
is one JSON object on stdout, and what a human must see goes to stderr, which must then be the terminal.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory_anchor.errors import BadInput, MemoryAnchorError, Refused, report
from memory_anchor.front.cli import completing
from memory_anchor.front.cli.passphrase import tell, wait
from memory_anchor.json_values import Record, whole
from memory_anchor.model import Constitution, Proposal, ProposalAction, ProposalStatus
from memory_anchor.terminal import visible, visible_json, visible_lines

if TYPE_CHECKING:
    from memory_anchor.identity.identity_schema import IdentitySchema

Build = Callable[[], "IdentitySchema"]
"""Makes the schema from the settings; called once a command, so `--help` costs nothing."""
Other = Callable[[str, str], "IdentitySchema"]
"""Makes that of another account, and of a project of it."""

_OPENED: list[IdentitySchema] = []
"""The schema whose passphrase this command asked for: what was refused before is told at its end."""
AsJson = Annotated[bool, typer.Option("--json", help="Answer with one JSON object on stdout.")]
As = Annotated[str, typer.Option("--as", help="Your name in the record; by default the approver's.")]
ProposalId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A proposal, as `constitution list` shows it.", autocompletion=completing.proposals
    ),
]


def answer(proposal: Proposal) -> Record:
    """Return a proposal as it is shown; what L0 is made of is loaded by the first command that needs it."""
    from memory_anchor.identity import proposals

    return dict(proposals.answer(proposal))


def make_app(
    build: Build, check_writable: Callable[[], None] = lambda: None, other: Other | None = None
) -> typer.Typer:
    """Return the sub-app `constitution`, working on what `build` makes.

    check_writable: raises Refused where an agent may write nothing now; what takes the passphrase does not ask it.
    other: what `--account` makes.
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

    def warning_of_keys() -> IdentitySchema:
        if chosen["project"] and not chosen["account"]:
            raise BadInput("--project is given without --account; here the project is the folder's")
        schema = other(chosen["account"], chosen["project"]) if other and chosen["account"] else build()
        if about_key := schema.key_warning():
            _say(f"warning: {visible(about_key)}", error=True)
        return schema

    _add_reading(app, warning_of_keys)
    _add_proposing(app, warning_of_keys, check_writable)
    _add_approving(app, warning_of_keys)
    _add_founding(app, warning_of_keys, lambda: chosen["account"])
    return app


def _add_reading(app: typer.Typer, build: Build) -> None:
    @app.command()
    def show(
        as_json: AsJson = False,
        yaml: Annotated[bool, typer.Option("--yaml", help="Print the text in force, fit for the file.")] = False,
    ) -> None:
        """Show the entries in force, and whatever differs from them."""
        with _reporting(as_json):
            schema = build()
            if yaml:
                sys.stdout.write(visible_lines(schema.text()) if sys.stdout.isatty() else schema.text())
                return
            _show(schema.load(), as_json=as_json)

    @app.command("list")
    def list_(
        as_json: AsJson = False,
        everything: Annotated[bool, typer.Option("--all", help="Also the effective and the rejected.")] = False,
    ) -> None:
        """List the proposals."""
        with _reporting(as_json):
            schema = build()
            found = [one for one in schema.proposals() if everything or one.status is ProposalStatus.OPEN]
            wrong = schema.unreadable_proposals()
            if as_json:
                _print_json({"proposals": [{**answer(one), "content": one.content} for one in found], "notes": wrong})
                return
            for one in found:
                _say(f"{line_of(one)}: {visible(one.reason)}")
            for sentence in wrong:
                _say(visible(sentence), error=True)
            if not found:
                _say("no open proposals" if not everything else "no proposals")

    @app.command()
    def approvers(as_json: AsJson = False) -> None:
        """List whose signatures count on this machine, with the keys to hand to colleagues."""
        with _reporting(as_json):
            found = build().approvers()
            if as_json:
                _print_json({"approvers": [{"name": one.name, "key": one.public} for one in found]})
                return
            for one in found:
                _say(f"{one.public}  {visible(one.name)}")


def _add_proposing(app: typer.Typer, build: Build, check_writable: Callable[[], None]) -> None:
    @app.command()
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
        with _reporting(as_json):
            if not human:
                check_writable()
            schema = build()
            passphrase = _passphrase(schema, as_json=as_json) if human else None
            made = schema.propose(
                content=content,
                reason=reason,
                action=action,
                entry_id=entry_id or None,
                from_id=from_id or None,
                by=by,
                passphrase=passphrase,
            )
            if as_json:
                _print_json(answer(made))
                return
            _say(schema.diff(made))
            _say(f"{made.id}: {answer(made)['how_to_approve']}")

    @app.command()
    def adopt(by: As = "", as_json: AsJson = False) -> None:
        """Turn the file's difference from the approved text into a proposal; needs the passphrase."""
        with _reporting(as_json):
            schema = build()
            check_terminal(as_json=as_json)
            if difference := schema.difference():
                _say(difference, error=as_json)
            passphrase = _passphrase(schema, as_json=as_json)
            made = schema.adopt(by=approver_name(schema, by), passphrase=passphrase)
            if as_json:
                _print_json({"proposal_id": None, "status": "nothing to adopt"} if made is None else answer(made))
            elif made is None:
                _say("the file says what is approved: nothing to adopt")
            elif made.status is ProposalStatus.EFFECTIVE:
                _say(f"{made.id}: signed by a known approver, in force now")
            else:
                _say(schema.diff(made))
                _say(f"{made.id}: {answer(made)['how_to_approve']}")


def _add_founding(app: typer.Typer, build: Build, account: Callable[[], str]) -> None:
    @app.command()
    def found(
        file: Annotated[Path, typer.Argument(help="A constitution.yaml.")],
        as_json: AsJson = False,
    ) -> None:
        """Approve the first text of another account (--account), once; later ones are proposed and approved."""
        with _reporting(as_json):
            if not account():
                raise BadInput("--account is missing; this server's own first text is approved by `memory-anchor init`")
            schema = build()
            check_terminal(as_json=as_json)
            text = _text_of(file)
            _say(f"This text becomes the constitution of {visible(account())} 这段文字将成为宪法:", error=as_json)
            _say("\n".join(f"│ {line}" for line in visible_lines(text).splitlines()), error=as_json)
            schema.found(text, passphrase=_passphrase(schema, as_json=as_json))
            served = schema.load()
            if as_json:
                _print_json({"account": account(), "entries": len(served.entries), "tokens": served.tokens})
            else:
                _say(f"{len(served.entries)} entries are in force for {visible(account())}")


def _text_of(file: Path) -> str:
    """Return the text of a file that a human named. Raises BadInput: it is none, too large or not UTF-8."""
    from memory_anchor.files import read_bounded
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
    @app.command()
    def approve(proposal_id: ProposalId, by: As = "", as_json: AsJson = False) -> None:
        """Confirm a proposal once; the third confirmation makes it effective."""
        with _reporting(as_json):
            schema = build()
            check_terminal(as_json=as_json)
            proposal_id = _whole(schema, proposal_id)
            proposal = schema.proposal(proposal_id)
            seen = schema.fingerprint(proposal)
            _review(schema, proposal, as_json=as_json)
            passphrase = _passphrase(schema, as_json=as_json)
            done = schema.confirm(proposal_id, passphrase=passphrase, approver=approver_name(schema, by), seen=seen)
            _outcome(done, as_json=as_json)

    @app.command()
    def reject(
        proposal_id: ProposalId,
        reason: Annotated[str, typer.Option(help="Why (required).")] = "",
        by: As = "",
        as_json: AsJson = False,
    ) -> None:
        """Close a proposal."""
        with _reporting(as_json):
            schema = build()
            check_terminal(as_json=as_json)
            proposal_id = _whole(schema, proposal_id)
            proposal = schema.proposal(proposal_id)
            seen = schema.fingerprint(proposal)
            _show_wish(schema, proposal, as_json=as_json)
            passphrase = _passphrase(schema, as_json=as_json)
            name = approver_name(schema, by)
            closed = schema.reject(proposal_id, passphrase=passphrase, approver=name, reason=reason, seen=seen)
            _outcome(closed, as_json=as_json)

    @app.command()
    def rules(
        min_interval_s: Annotated[int | None, typer.Option(help="Least seconds between two confirmations.")] = None,
        distinct: Annotated[
            bool | None, typer.Option("--distinct-approvers/--any-approvers", help="Three keys, or one thrice.")
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Show how strict approvals are, or change it: kept with the key, so that no setting lowers it."""
        with _reporting(as_json):
            schema = build()
            if min_interval_s is not None or distinct is not None:
                passphrase = _passphrase(schema, as_json=as_json)
                schema.human.set_rules(
                    min_interval_s=min_interval_s, distinct_approvers=distinct, passphrase=passphrase
                )
            now = schema.human.rules()
            if as_json:
                _print_json({"min_interval_s": now.min_interval_s, "distinct_approvers": now.distinct_approvers})
            else:
                who = "three different approvers" if now.distinct_approvers else "any approver three times"
                _say(f"{who}, at least {now.min_interval_s} s between two confirmations")

    @app.command()
    def trust(
        name: Annotated[str, typer.Argument(help="The colleague's name.")],
        key: Annotated[str, typer.Argument(help="What `constitution approvers` prints on their machine.")],
        as_json: AsJson = False,
    ) -> None:
        """Let a colleague's signatures count on this machine."""
        with _reporting(as_json):
            schema = build()
            passphrase = _passphrase(schema, as_json=as_json)
            known = schema.vouch(name=name, public=key, passphrase=passphrase)
            if as_json:
                _print_json({"name": known.name, "key": known.public})
            else:
                _say(f"{visible(known.name)} is known now")


def init_constitution(
    schema: IdentitySchema, *, approver: str = "", as_json: bool = False, opened: Callable[[str], object] = len
) -> Record:
    """Approve the project's file on the terminal and set the passphrase; return what became of it.

    The text is shown before the passphrase is asked for. Without one (no file, no entries, a placeholder) only the key
    is made or opened, and the text waits for another `init`.

    approver: the human's name; asked for when "" and none is set. On an initialised project the old passphrase is asked
    for, and an empty new one keeps it. opened: gets the passphrase that opens the key now. `init` calls this.
    Raises Refused: no terminal, or the passphrase. BadInput: the file, or what was typed.
    """
    check_terminal(as_json=as_json)
    if about_key := schema.key_warning():
        raise Refused(about_key)
    own, again = schema.approver(), schema.initialised
    name = approver or (own.name if own else "") or _ask("Your name 你的名字: ", as_json=as_json)
    text = schema.first_text()
    if text:
        _say("This text becomes the constitution, told to every agent 这段文字将成为宪法:", error=as_json)
        _say("\n".join(f"│ {line}" for line in visible_lines(text).splitlines()), error=as_json)
    old = None
    if own is None:
        now = _new_passphrase()
    elif again:
        old = _asked(schema, "Old passphrase 原口令: ")
        if not schema.verify_passphrase(old):
            raise Refused("the passphrase is not the approver's; nothing was changed")
        now = getpass.getpass("New passphrase, empty to keep it 新口令（留空不变）: ")
        if now and getpass.getpass("Once more 再输一次: ") != now:
            raise Refused("the two passphrases differ; nothing was changed")
        now = now or old
    else:
        now = _asked(schema, "Passphrase 口令: ")
    schema.init(passphrase=now, approver=name, old_passphrase=old, without_text=not text)
    opened(now)
    served = schema.load()
    return {
        "initialised": schema.initialised,
        "approver": name,
        "entries": len(served.entries),
        "tokens": served.tokens,
        "fingerprint": schema.key_fingerprint(),
    }


# --- the terminal ------------------------------------------------------------------------------------------------


def check_terminal(*, as_json: bool) -> None:
    """Refuse unless a human can see what is shown and answer it.

    Raises Refused: stdin, or the stream the difference is shown on, is no terminal.
    """
    shown = sys.stderr if as_json else sys.stdout
    if not (sys.stdin.isatty() and shown.isatty()):
        raise Refused("approving needs a human on a terminal; run this command yourself in one")


def _passphrase(schema: IdentitySchema, *, as_json: bool) -> str:
    """Return the approver's passphrase, asked for on the terminal.

    Raises Refused: no terminal, or no approver yet.
    """
    check_terminal(as_json=as_json)
    own = schema.approver()
    if own is None:
        raise Refused("no approver on this machine yet; run `memory-anchor init` on a terminal")
    return _asked(schema, f"Passphrase of {visible(own.name)} 口令: ")


def asked_passphrase(schema: IdentitySchema) -> str:
    """Return the approver's passphrase, typed on the terminal. Raises Refused: no terminal, or no approver yet."""
    return _passphrase(schema, as_json=False)


def _asked(schema: IdentitySchema, prompt: str) -> str:
    wait(schema.human.wait_s())
    _OPENED[:] = [schema]
    return getpass.getpass(prompt)


def _new_passphrase() -> str:
    new = getpass.getpass("New passphrase, 12 characters or more 新口令: ")
    if getpass.getpass("Once more 再输一次: ") != new:
        raise Refused("the two passphrases differ; nothing was changed")
    return new


def _ask(prompt: str, *, as_json: bool) -> str:
    (sys.stderr if as_json else sys.stdout).write(prompt)
    (sys.stderr if as_json else sys.stdout).flush()
    return sys.stdin.readline().strip()


def _whole(schema: IdentitySchema, said: str) -> str:
    """Return the id of the one proposal that begins so. Raises BadInput: it begins several."""
    from memory_anchor.front.cli.spoken import the_one

    return the_one(said, {one.id for one in schema.proposals() if said and one.id.startswith(said)})


def approver_name(schema: IdentitySchema, given: str = "") -> str:
    """Return the name in a record: the one given, else the approver's."""
    own = schema.approver()
    return given or (own.name if own else "")


# --- what is shown -----------------------------------------------------------------------------------------------


def _show(served: Constitution, *, as_json: bool) -> None:
    if as_json:
        entries = [
            {"id": one.id, "content": one.content, "priority": one.priority, "source": one.source}
            for one in served.entries
        ]
        warnings = list(served.warnings)
        _print_json({"entries": entries, "version": served.version, "tokens": served.tokens, "warnings": warnings})
        return
    for one in served.entries:
        mark = "" if one.source == "yaml" else f"  ({one.source})"
        _say(f"{one.priority:>3}  {visible(one.id)}{mark}\n     {visible(one.content)}")
    _say(f"{len(served.entries)} entries, {served.tokens} tokens, version {visible(served.version)}")
    for warning in served.warnings:
        _say(f"warning: {visible(warning)}", error=True)


def _review(schema: IdentitySchema, proposal: Proposal, *, as_json: bool) -> None:
    """Show all that a confirmation is about, on the terminal."""
    _head(proposal, as_json=as_json)
    if proposal.status is ProposalStatus.OPEN:
        _say(schema.diff(proposal), error=as_json)
        required = whole(answer(proposal)["required"])
        number = min(len(proposal.confirmations) + 1, required)
        _say(f"This is confirmation {number} of {required}. 第 {number} 次确认。", error=as_json)


def _show_wish(schema: IdentitySchema, proposal: Proposal, *, as_json: bool) -> None:
    """Show what a rejection is about: what would change, or where that cannot be told any more what it says."""
    _head(proposal, as_json=as_json)
    try:
        shown = schema.diff(proposal)
    except MemoryAnchorError:
        shown = visible_lines(proposal.content)
    _say(shown, error=as_json)


def _head(proposal: Proposal, *, as_json: bool) -> None:
    _say(line_of(proposal), error=as_json)
    _say(f"reason 理由: {visible(proposal.reason)}", error=as_json)


def _outcome(proposal: Proposal, *, as_json: bool) -> None:
    if as_json:
        _print_json(answer(proposal))
    else:
        _say(line_of(proposal))


def line_of(proposal: Proposal) -> str:
    """Return a proposal in one line: id, state, how many confirmations it has, what it wishes."""
    what = f"{proposal.action.value} {proposal.entry_id or ''}".strip()
    given = f"{len(proposal.confirmations)}/{answer(proposal)['required']}"
    return visible(f"{proposal.id}  {proposal.status.value}  {given}  {what}, proposed by {proposal.proposed_by}")


def _say(text: str, *, error: bool = False) -> None:
    (sys.stderr if error else sys.stdout).write(text + "\n")


def _print_json(value: Mapping[str, object]) -> None:
    sys.stdout.write(visible_json(json.dumps(value, ensure_ascii=False)) + "\n")


@contextlib.contextmanager
def _reporting(as_json: bool) -> Iterator[None]:
    """Turn our errors into one sentence and the exit code of the error table."""
    try:
        yield
        for schema in _OPENED:
            tell(visible(schema.human.tries_told()))
    except MemoryAnchorError as error:
        known = report(error)
        if as_json:
            _print_json({"error": known.code, "message": str(error)})
        else:
            _say(f"error: {visible(str(error))}", error=True)
        raise typer.Exit(known.exit_code) from error

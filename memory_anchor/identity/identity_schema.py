"""L0, the identity of a project: always loaded whole, never searched, changed only by humans (strategy, section 2, L0).

The last approved text is served; it is sealed and kept outside the project. Before the first approval nothing is. The
project's `constitution.yaml` is the readable copy that people edit and commit. When the two differ (an agent with an
editor, a merge, a missing or half-written file), the approved text is still served, with a warning that names the lines
and the next command. Rejected: serving the file (any agent that can edit a file, or any cloned repository, could write
the rules) and keeping entries in the store (whoever can write there could change them).

A change is a proposal, three confirmations with the passphrase (三次审批), then one splice of the approved text and of
the file. Order at the third: confirmation, sealed text, file, trail, proposal. Once the sealed text exists it
is served; a kill leaves one valid text, and confirming again finishes the rest. Invariant: `load` never raises.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from memory_anchor.base import nofollow
from memory_anchor.base.files import file_error, file_lock
from memory_anchor.base.json_values import Record
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, Refused
from memory_anchor.domain.model import Constitution, ConstitutionEntry, Proposal, ProposalAction, ProposalStatus
from memory_anchor.domain.ports import AuditLog, Clock
from memory_anchor.domain.requests.checks import CONTENT_MAX, NAME_MAX, REASON_MAX, storable_text
from memory_anchor.domain.requests.checks import project_id as project_folder
from memory_anchor.domain.requests.checks import text as checked_text
from memory_anchor.identity import constitution_text as splice
from memory_anchor.identity.approval import proposal_hash, stamp
from memory_anchor.identity.approved import Link, SealedRevision, continuation, read_trail, sign_link, write_trail
from memory_anchor.identity.changes import apply_proposal, shown_diff, target
from memory_anchor.identity.constitution_text import FILE_NAME, Document, by_priority
from memory_anchor.identity.human_key import HumanKey
from memory_anchor.identity.joint_seals import voter
from memory_anchor.identity.judging import Judge, check_first_text, check_limits, cleaned_text, joined
from memory_anchor.identity.keys import (
    REQUIRED_CONFIRMATIONS,
    Approver,
    KeyRing,
    Rules,
    Signer,
    checked_name,
    checked_passphrase,
    signer_of,
)
from memory_anchor.identity.proposals import (
    MAX_OPEN,
    REJECTED,
    ProposalFile,
    ProposalFolder,
    RejectedProposals,
    Rejection,
    new_id,
)
from memory_anchor.identity.served import TextInForce
from memory_anchor.identity.statements import Rejected
from memory_anchor.language.tokens import estimate_tokens

SHOW = "run `memory-anchor constitution show` for what to do"


class IdentitySchema:
    """L0 of one project, read by every session and changed by humans; thread-safe, and safe across processes.

    home: a folder of this project's own outside it, `<data_dir>/identity/<project_id>`; keys lie in its parent.
    budget_tokens: what all entries together may cost. min_interval_s: least time between two confirmations.
    distinct_approvers: whether the three must come from three keys. account:
    whose L0 it is (`joint_seals`).
    """

    def __init__(
        self,
        *,
        project_dir: Path | None,
        project_id: str,
        home: Path,
        clock: Clock,
        audit: AuditLog,
        budget_tokens: int = 500,
        min_interval_s: int = 0,
        distinct_approvers: bool = False,
        account: str = "",
    ) -> None:
        project_folder(home.name)  # the key ring is the folder above: no id may lead anywhere else
        root = project_dir or home
        self.project_id = project_id
        self.path = root / FILE_NAME
        self._home = home
        self._clock = clock
        self._audit = audit
        self._budget_tokens = budget_tokens
        self._keys = KeyRing(home.parent, audit)
        stricter = Rules(min_interval_s, distinct_approvers)
        self.human = HumanKey(self._keys, audit, clock, stricter=stricter, project_id=project_id)
        self._book = ProposalFolder(root)
        self._in_force = TextInForce(
            path=self.path,
            project_dir=project_dir,
            home=home,
            keys=self._keys,
            trail=self._book.folder,
            records=audit.records,
            account=account,
        )
        earlier_voter = lambda key, at: voter(key, self._keys.sealing_approvers(), at, account=account)  # noqa: E731
        self._rejected = RejectedProposals(home, home.name, audit.records, earlier_voter)
        self._lock = threading.RLock()
        self._judge = Judge(self._keys, self.human, self._in_force, self._rejected, self._book.folder, self._lock)
        self._counted: tuple[tuple[ConstitutionEntry, ...], int] = ((), 0)

    # --- reading -------------------------------------------------------------------------------------------------

    def load(self) -> Constitution:
        """Return L0 as served: the approved text whole, by priority, with warnings of what is not approved."""
        with self._lock:
            served = self._in_force.served()
            entries = by_priority(served.document.entries)
            if self._counted[0] != entries:
                # The tokenizer takes 67 MB to load, which no first turn waits for; approvals count exactly.
                self._counted = (entries, estimate_tokens(joined(entries)))
            warnings = tuple(filter(None, (self._keys.warning(), *served.warnings)))
            return Constitution(entries, served.document.version, self._counted[1], warnings)

    def entries(self) -> tuple[ConstitutionEntry, ...]:
        """Return the entries in force by priority, without reading the project's file (so without warnings)."""
        with self._lock:
            return by_priority(self._in_force.approved().entries)

    @property
    def initialised(self) -> bool:
        """Whether this project, by its id or its folder, was ever approved on this machine."""
        return self._in_force.initialised

    def text(self) -> str:
        """Return the text in force as a file's content, comments and all.

        Raises Refused: none is in force, so nothing may replace the project's file.
        """
        with self._lock:
            served = self._in_force.served()
        if served.revision is None:
            raise Refused(served.warnings[0])
        return served.document.text

    def approver(self) -> Approver | None:
        """Return who approves on this machine, None before the first `init`."""
        return self._keys.own()

    def key_warning(self) -> str:
        """Return one sentence if the key in place is not the installation's, otherwise ""."""
        return self._keys.warning()

    def key_fingerprint(self) -> str:
        """Return the fingerprint of the installation's first key, "" before there is one."""
        return self._keys.fingerprint()

    def approvers(self) -> tuple[Approver, ...]:
        """Return everyone whose signature counts here, the own approver first."""
        return self._keys.approvers()

    def verify_passphrase(self, passphrase: str) -> bool:
        """Return whether this is the approver's passphrase; takes some 0.3 s on purpose."""
        with contextlib.suppress(Refused):
            self.human.unlock(passphrase)
            return True
        return False

    def faults(self) -> list[str]:
        """Return one sentence for each way in which the stored texts and rejections deviate from the approvals."""
        faults = [*self._in_force.archive().faults(self._keys.approvers()), *self._rejected.faults()]
        state = self._in_force.archive_state()
        if state.why_older and not faults:
            faults.append(state.why_older)
        if (unsigned := self._home / "supplements.json").exists():
            faults.append(f"{unsigned} is unsigned and of an older version; it is not served, delete it")
        return faults

    def proposals(self) -> list[Proposal]:
        """Return every readable proposal, oldest first, with the confirmations that count."""
        known, applied, files = self._keys.approvers(), self._judge.applied_ids(), self._book.read()[0]
        rejected = self._rejected.ids(known, {file.proposal.id for file in files}) if files else frozenset()
        return [self._judge.with_status(file, known, applied, rejected=rejected) for file in files]

    def unreadable_proposals(self) -> list[str]:
        """Return one sentence for each proposal file that cannot be read."""
        return self._book.read()[1]

    def proposal(self, proposal_id: str) -> Proposal:
        """Return one proposal. Raises NotFound: there is none of this id. BadInput: its file cannot be read."""
        return self._judge.with_status(self._book.find(proposal_id), self._keys.approvers(), self._judge.applied_ids())

    def diff(self, proposal: Proposal) -> str:
        """Return what the proposal would change in the text in force, as a unified diff with odd signs spelled out.

        Raises BadInput, NotFound: it cannot be applied to the text in force any more.
        """
        return shown_diff(self._in_force.text_to_change(), proposal)

    def unadopted_diff(self) -> str:
        """Return what `adopt` would take in, as a unified diff with odd signs spelled out; "" for nothing.

        Raises BadInput: the file cannot be read.
        """
        return self._difference(self._in_force.readable_file())

    def _difference(self, document: Document) -> str:
        current = self._in_force.text_to_change()
        if document.digest == splice.parse(current).digest:
            return ""
        at = self._clock.now()
        return shown_diff(current, Proposal("", ProposalAction.ADOPT, document.text, FILE_NAME, "", at))

    def fingerprint(self, proposal: Proposal) -> str:
        """Return the hash of the proposal and of what it would replace: what a confirmation signs."""
        return proposal_hash(proposal, self._judge.before(proposal))

    # --- proposing (anyone) --------------------------------------------------------------------------------------

    def propose(
        self,
        *,
        content: str,
        reason: str,
        action: ProposalAction,
        entry_id: str | None,
        from_id: str | None,
        by: str,
        passphrase: str | None = None,
    ) -> Proposal:
        """Return a new open proposal, or an open one with the same change.

        passphrase: a human's, whose proposals `MAX_OPEN` does not limit.
        content: 1 to 8,000 characters; not used by a removal. entry_id: what to replace or remove; for an addition the
        id wanted (made from the content otherwise). from_id: the fact this comes from. The file is for Git: every text
        is cleaned like a memory's.
        Raises BadInput, NotFound (naming the ids there are), Refused (too many open, or the folder is read-only).
        """
        if action is ProposalAction.ADOPT:
            raise BadInput("action is adopt; allowed are add, replace and remove")
        text = "" if action is ProposalAction.REMOVE else cleaned_text("content", content, most=CONTENT_MAX)
        if hidden := splice.first_hidden_character(text):
            raise BadInput(f"content holds {hidden}")
        wanted_id = storable_text("entry_id", entry_id, most=NAME_MAX) if action is ProposalAction.ADD else entry_id
        proposal = Proposal(
            id="",
            action=action,
            content=text,
            reason=cleaned_text("reason", reason, most=REASON_MAX),
            proposed_by=cleaned_text("by", by, most=NAME_MAX),
            proposed_at=self._clock.now(),
            entry_id=target(action, wanted_id, text),
            from_id=storable_text("from_id", from_id, most=NAME_MAX) or None,
        )
        with self._lock:
            current = splice.parse(self._in_force.text_to_change())
            if same_id := next((entry.id for entry in current.entries if entry.content == text), ""):
                raise BadInput(f"content is what entry {same_id} says already; nothing would change")
            apply_proposal(current.text, proposal)  # refuses now what could not be applied later
            human = passphrase is not None and bool(self.human.unlock(passphrase))
            return self._file(proposal, human=human)

    def adopt(self, *, by: str, passphrase: str | None = None, seen: str | None = None) -> Proposal | None:
        """Return a proposal to adopt the project's file, None if it has the content of the approved text.

        A text that a known approver signed as a continuation of the approved one is accepted at once, given the
        passphrase; the proposal is then effective and has no file. seen: the `unadopted_diff` that was shown.
        Raises BadInput: the file cannot be read. Refused: never initialised, or the passphrase.
        """
        with self._changing():
            revision = self._approved(forward=True)
            document = self._in_force.readable_file()
            if seen is not None and seen != self._difference(document):
                raise Refused(f"{FILE_NAME} changed while it was being shown; nothing was adopted: look again")
            signer = None if passphrase is None else self.human.unlock(passphrase)
            if document.digest == splice.parse(revision.text).digest:
                return None
            proposal = Proposal(
                id="",
                action=ProposalAction.ADOPT,
                content=document.text,
                reason=f"{FILE_NAME}: {splice.changed_lines(revision.text, document.text)}",
                proposed_by=checked_name(by),
                proposed_at=self._clock.now(),
            )
            trail, known = read_trail(self._book.folder), self._keys.approvers()
            link = continuation(trail, after=revision.link, digest=document.digest, known=known)
            if link is None or self._approved_elsewhere(link):
                self._approved()
                return self._file(proposal, human=signer is not None)
            if signer is None:
                raise Refused("the text is signed by a known approver; accepting it needs your passphrase")
            self._check_limits(document, BadInput)
            sealed = self._in_force.seal(
                signer, text=document.text, link=link, applied=(*revision.applied, link.proposal)
            )
            self._record_text("accepted", sealed, {"proposal": link.proposal, "signed_by": link.by}, by=by)
            return replace(proposal, id=link.proposal, status=ProposalStatus.EFFECTIVE)

    # --- approving (humans) --------------------------------------------------------------------------------------

    def first_text(self) -> str:
        """Return what `init` would approve, "" for nothing or a placeholder. Raises BadInput: the file is broken."""
        return self._in_force.first_text()

    def init(
        self,
        *,
        passphrase: str,
        approver: str,
        old_passphrase: str | None,
        without_text: bool = False,
        seen: str | None = None,
    ) -> None:
        """Approve the project's file as it is and set the passphrase; in an initialised project only the latter.

        without_text: only create or unlock the key; the text is approved later. seen: the text that was shown; if the
        file says another one now, it is refused.
        A missing file is created. One approver serves all projects of a data directory: a later project takes the
        existing passphrase, and a new one needs the old.
        Raises Refused: a passphrase. BadInput: the file, or what was typed.
        """
        checked_name(approver)
        if old_passphrase is not None and old_passphrase != passphrase:
            checked_passphrase(passphrase)  # before anything else; one that is set already opens, however short
        with self._changing():
            approver_here = self._keys.own()
            state = self._in_force.archive_state()
            if approver_here is not None and self.initialised and old_passphrase is None:
                raise Refused("this project is initialised already; its old passphrase is needed")
            document = None
            if state.good is None and not without_text:
                document = self._in_force.first_document()
                if seen is not None and document.text != seen:
                    raise Refused(f"{FILE_NAME} changed while it was being shown; nothing was approved: look again")
                check_first_text(document, budget_tokens=self._budget_tokens)
            if approver_here is None:
                signer = self._keys.create(name=approver, passphrase=passphrase)
                self._record("constitution.approver", {"key": signer.approver.public}, by=approver)
            else:
                signer = self.human.unlock(passphrase if old_passphrase is None else old_passphrase)
                if old_passphrase is not None and old_passphrase != passphrase:
                    self._keys.change_passphrase(signer, passphrase)
                    self._record("constitution.passphrase", {"key": approver_here.public}, by=approver_here.name)
            if document is not None:
                self._seal_first(signer, document, by=approver)

    def approve_first_text(self, text: str, *, passphrase: str) -> None:
        """Approve a first text for a project without a folder on this machine: another account's (`rules_folder`).

        Raises Refused: one was approved there, nobody approves here yet, or the passphrase. BadInput: the text.
        """
        document = splice.parse(text)
        check_first_text(document, budget_tokens=self._budget_tokens)
        with self._changing():
            if self.initialised:
                raise Refused("a first text was approved there already; it is changed by a proposal and approvals")
            if self._keys.own() is None:
                raise Refused("nobody approves on this machine yet; run `memory-anchor init` on a terminal")
            signer = self.human.unlock(passphrase)
            nofollow.write(self._home, FILE_NAME, text.encode())
            self._seal_first(signer, document, by=signer.approver.name)

    def confirm(self, proposal_id: str, *, passphrase: str, approver: str, seen: str | None = None) -> Proposal:
        """Return the proposal with one more confirmation; the third makes it effective.

        seen: the `fingerprint` of what the human was shown; if the proposal changed since, it is refused.
        Raises Refused: never initialised, the passphrase, the interval, the same approver again, the limits, or it is
        closed. NotFound, BadInput: there is none, or it cannot be applied.
        """
        by = checked_name(approver)
        with self._changing():
            revision = self._approved()
            file = self._book.find(proposal_id)
            proposal = self._judge.with_status(file, self._keys.approvers(), revision.applied)
            half_done = proposal.id in revision.applied and file.proposal.status is ProposalStatus.OPEN
            if proposal.status is not ProposalStatus.OPEN and not half_done:
                raise Refused(f"proposal {proposal_id} is {proposal.status.value} already")
            self._check_seen(proposal, seen)
            signer = self.human.unlock(passphrase)
            proposal = self._judge.with_status(file, self._keys.approvers(), revision.applied, rules=signer.rules)
            if half_done:
                return self._finish(proposal, file.before, revision, by=by)
            if proposal.action in (ProposalAction.ADD, ProposalAction.REPLACE):
                checked_text("content", proposal.content, most=CONTENT_MAX)
            text = apply_proposal(revision.text, proposal)
            if proposal.action is not ProposalAction.REMOVE:
                self._check_limits(splice.parse(text), Refused)
            before, at = self._judge.before(proposal), self._clock.now()
            earlier = len(proposal.confirmations)
            if earlier < REQUIRED_CONFIRMATIONS:
                proposal = self._judge.confirm(proposal, before, signer, by, at=at)
                self._book.write(ProposalFile(proposal, before))
                hashed = proposal_hash(proposal, before)
                fields: Record = {"proposal": proposal.id, "number": earlier + 1, "hash": hashed}
                self._record("constitution.confirmed", fields, by=by)
            if len(proposal.confirmations) < REQUIRED_CONFIRMATIONS:
                return proposal
            sealed = self._seal(signer, proposal, revision, text, by=by, at=at)
            return self._finish(proposal, before, sealed, old=revision, by=by)

    def reject(
        self, proposal_id: str, *, passphrase: str, approver: str, reason: str, seen: str | None = None
    ) -> Proposal:
        """Return the proposal, closed by a human. seen: as for `confirm`.

        Raises Refused: the passphrase, it is closed already, or it changed since. NotFound, BadInput.
        """
        by = checked_name(approver)
        cleaned_reason = cleaned_text("reason", reason, most=REASON_MAX)
        with self._changing():
            file = self._book.find(proposal_id)
            proposal = self._judge.with_status(file, self._keys.approvers(), self._judge.applied_ids())
            if proposal.status is not ProposalStatus.OPEN:
                raise Refused(f"proposal {proposal_id} is {proposal.status.value} already")
            self._check_seen(proposal, seen)
            signer, at = self.human.unlock(passphrase), self._clock.now()
            made = Rejected(proposal_hash(proposal, ""), by, stamp(at), cleaned_reason)
            rejection = Rejection(by, at, cleaned_reason, signer.confirm(made))
            closed = replace(proposal, status=ProposalStatus.REJECTED)
            entry = self._rejected.sign(signer, closed.id, at)
            self._record(REJECTED, {"proposal": closed.id, "archive": self._home.name, **entry}, by=by)
            self._rejected.add(entry)
            self._book.write(ProposalFile(closed, file.before, rejection))
            return closed

    def vouch(self, *, name: str, public: str, passphrase: str) -> Approver:
        """Let a colleague's signature count on this machine from now on.

        Raises Refused: the passphrase. BadInput: the name or the key.
        """
        with self._changing():
            signer = self.human.unlock(passphrase)
            approver = self._keys.vouch(signer, name=name, public=public)
            self._record("constitution.vouched", {"name": name, "key": public}, by=signer.approver.name)
            return approver

    def _file(self, proposal: Proposal, *, human: bool = False) -> Proposal:
        """Write a new proposal's file, unless one with the same change is open. human: the passphrase was given."""
        existing = self.proposals()
        still_open = [earlier for earlier in existing if earlier.status is ProposalStatus.OPEN]
        change = (proposal.action, proposal.content, proposal.entry_id)
        for earlier in still_open:
            if (earlier.action, earlier.content, earlier.entry_id) == change:
                return earlier
        if len(still_open) >= MAX_OPEN and not human:
            raise Refused(
                f"{len(still_open)} proposals are open; allowed are {MAX_OPEN}: approve or reject some first, or "
                "propose as a human (`memory-anchor constitution propose --human`)"
            )
        taken_ids = {earlier.id for earlier in existing} | set(self._judge.applied_ids())
        candidates = (new_id(proposal, again=n) for n in range(len(taken_ids) + 1))
        proposal = replace(proposal, id=next(new for new in candidates if new not in taken_ids))
        self._book.write(ProposalFile(proposal))
        fields: Record = {"proposal": proposal.id, "action": proposal.action.value}
        self._record("constitution.proposed", fields, by=proposal.proposed_by)
        return proposal

    # --- the steps of an approval --------------------------------------------------------------------------------

    def _seal(
        self,
        signer: Signer,
        proposal: Proposal,
        revision: SealedRevision,
        text: str,
        *,
        by: str,
        at: datetime,
    ) -> SealedRevision:
        """Seal the text with the proposal applied."""
        digest, previous = splice.parse(text).digest, revision.link.id
        link = sign_link(signer, digest=digest, previous=previous, proposal=proposal.id, by=by, at=stamp(at))
        return self._in_force.seal(signer, text=text, link=link, applied=(*revision.applied, proposal.id))

    def _finish(
        self, proposal: Proposal, before: str, sealed: SealedRevision, *, by: str, old: SealedRevision | None = None
    ) -> Proposal:
        """Update file, trail and proposal to the sealed text; idempotent, so it can be repeated after a kill."""
        self._in_force.archive().restore_missing(self._in_force.archive_state())
        self._in_force.update_file(proposal, sealed, previous=old, at=stamp(self._clock.now()))
        if sealed.link.proposal == proposal.id:
            write_trail(self._book.folder, head=old.link if old else None, new=sealed.link)
        effective = replace(proposal, status=ProposalStatus.EFFECTIVE)
        self._book.write(ProposalFile(effective, before))
        self._record_text("effective", sealed, {"proposal": effective.id}, by=by)
        return effective

    def _seal_first(self, signer: Signer, document: Document, *, by: str) -> None:
        at, archive = stamp(self._clock.now()), self._in_force.archive()
        sealed, continued = self._in_force.seal_first(signer, document, by=by, at=at, applied=self._judge.applied_ids())
        self._record_text("initialised", sealed, {"project": archive.home.name, "joined": continued}, by=by)

    # --- small parts ---------------------------------------------------------------------------------------------

    def _check_seen(self, proposal: Proposal, seen: str | None) -> None:
        if seen is not None and seen != self.fingerprint(proposal):
            raise Refused(f"proposal {proposal.id} changed while it was being shown; look at it again")

    def _approved(self, *, forward: bool = False) -> SealedRevision:
        """Return the validly sealed text that a change starts from.

        forward: accept one that may not be the newest, since signed links can lead from it to a newer one.
        """
        if not self.initialised:
            raise Refused(f"{FILE_NAME} was never approved on this machine; run `memory-anchor init` on a terminal")
        state = self._in_force.archive_state()
        if state.why_older and not forward:
            raise Refused(f"what is left of the approved texts may be an older one ({state.why_older}); {SHOW}")
        if state.revision is None or not state.sound:
            raise Refused(f"the approved text has no sound seal; {SHOW}")
        return state.revision

    def _approved_elsewhere(self, link: Link) -> bool:
        """Return whether this machine's human approved the link in another project; that does not count here."""
        own = signer_of(self._keys.sealing_approvers(), link.statement, link.signature)
        return own is not None and self._in_force.is_of_another_project(link)

    def _check_limits(self, document: Document, error: type[MemoryAnchorError]) -> None:
        check_limits(document, error, budget_tokens=self._budget_tokens)

    def _record_text(self, kind: str, sealed: SealedRevision, fields: Record, *, by: str) -> None:
        numbered: Record = {"approved": sealed.number, "archive": self._in_force.archive().home.name}
        self._record(f"constitution.{kind}", {**fields, **numbered}, by=by)

    def _record(self, kind: str, fields: Record, *, by: str) -> None:
        self._audit.append(kind, {"project": self.project_id, **fields}, by=by, at=self._clock.now())

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Lock this data directory's approvals for one change."""
        with self._lock, file_lock(self._home.parent / "approval.lock"):
            try:
                yield
            except OSError as error:
                raise file_error(error, self.path) from error

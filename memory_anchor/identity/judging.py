"""The real status of a proposal, from signatures for this project and this text, whatever its file claims.

Also: the limits of L0, and how a text is cleaned before it goes into a file for Git.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import RLock

from memory_anchor.domain.errors import BadInput, MemoryAnchorError, Refused
from memory_anchor.domain.model import ConstitutionEntry, Proposal, ProposalStatus
from memory_anchor.domain.requests.checks import storable_content
from memory_anchor.domain.requests.checks import text as checked_text
from memory_anchor.identity.approval import (
    ProjectRef,
    confirm,
    confirmed_elsewhere,
    has_signed,
    proposal_hash,
    stamp,
    valid_confirmations,
)
from memory_anchor.identity.approved import origin_of, read_trail
from memory_anchor.identity.changes import replaced_digest
from memory_anchor.identity.constitution_text import FILE_NAME, MAX_ENTRIES, PLACEHOLDER, Document
from memory_anchor.identity.human_key import HumanKey
from memory_anchor.identity.keys import Approver, KeyRing, Rules, Signer, signer_of
from memory_anchor.identity.proposals import ProposalFile, RejectedProposals
from memory_anchor.identity.served import TextInForce
from memory_anchor.identity.statements import Rejected
from memory_anchor.language.tokens import count_tokens


class Judge:
    """Decides the status of one project's proposals.

    trail: the folder of the approvals' trail. lock: the schema's.
    """

    def __init__(
        self,
        keys: KeyRing,
        human: HumanKey,
        in_force: TextInForce,
        rejected: RejectedProposals,
        trail: Path,
        lock: RLock,
    ) -> None:
        self._keys = keys
        self._human = human
        self._in_force = in_force
        self._rejected = rejected
        self._trail = trail
        self._lock = lock

    def with_status(
        self,
        file: ProposalFile,
        known: Sequence[Approver],
        applied: Sequence[str],
        *,
        rules: Rules | None = None,
        rejected: frozenset[str] | None = None,
    ) -> Proposal:
        """Return the proposal with its real status; the file's own is only a claim.

        rules: those of the key that was just unlocked; if None, those that the key file claims. rejected: the ids
        known to be closed here; if None, this one is looked up.
        """
        claimed = file.proposal
        hashed = proposal_hash(claimed, file.before)
        distinct = self._human.rules(rules).distinct_approvers
        own, project = self._keys.own(), self.project()
        valid = valid_confirmations(claimed, hashed=hashed, known=known, own=own, distinct=distinct, project=project)
        if claimed.id in applied:
            return replace(claimed, status=ProposalStatus.EFFECTIVE, confirmations=valid)
        if claimed.id in (self._rejected.ids(known, (claimed.id,)) if rejected is None else rejected):
            return replace(claimed, status=ProposalStatus.REJECTED, confirmations=valid)
        rejection = file.rejection
        if rejection is not None:
            made = Rejected(proposal_hash(claimed, ""), rejection.by, stamp(rejection.at), rejection.reason)
            if signer_of(known, made.record(), rejection.signature) is not None:
                return replace(claimed, status=ProposalStatus.REJECTED, confirmations=valid)
        if claimed.status is ProposalStatus.EFFECTIVE and confirmed_elsewhere(claimed, hashed=hashed, known=known):
            return replace(claimed, confirmations=valid)
        if file.before != self.before(claimed):
            valid = ()
        return replace(claimed, status=ProposalStatus.OPEN, confirmations=valid)

    def confirm(self, proposal: Proposal, before: str, signer: Signer, by: str, *, at: datetime) -> Proposal:
        """Return the proposal with one more confirmation. Raises Refused: the rules."""
        earlier = proposal.confirmations
        rules = self._human.rules(signer.rules)
        interval = rules.min_interval_s
        if earlier and interval and (at - earlier[-1].at).total_seconds() < interval:
            wait_s = interval - (at - earlier[-1].at).total_seconds()
            raise Refused(f"the last confirmation is too recent; retry in {wait_s:.0f} s (constitution.min_interval_s)")
        hashed, number = proposal_hash(proposal, before), len(earlier) + 1
        if rules.distinct_approvers and has_signed(signer.approver, proposal, hashed):
            raise Refused(f"{signer.approver.name} confirmed it already; another approver must")
        added = confirm(signer, proposal=proposal, hashed=hashed, number=number, by=by, at=at, project=self.project())
        return replace(proposal, confirmations=(*earlier, added))

    def before(self, proposal: Proposal) -> str:
        """Return the digest of what the proposal would replace in the text in force."""
        with self._lock:
            document = self._in_force.served().document
        return replaced_digest(document, proposal)

    def applied_ids(self) -> tuple[str, ...]:
        """Return the ids of the proposals in force."""
        revision = self._in_force.archive_state().good
        return revision.applied if revision else ()

    def project(self) -> ProjectRef:
        """Return this project: its id here, and the first link of the trail that leads to the text in force."""
        archive = self._in_force.archive()
        revision = archive.current(self._keys.sealing_approvers()).revision
        if revision is None:
            return ProjectRef(archive.home.name, "")
        trail, known = read_trail(self._trail), self._keys.approvers()
        return ProjectRef(archive.home.name, origin_of(trail, link=revision.link, known=known))


def check_limits(document: Document, error: type[MemoryAnchorError], *, budget_tokens: int) -> None:
    """Raise `error` unless a text is usable and within its limits."""
    if document.problems:
        raise error(f"{FILE_NAME} would not be usable: {document.problems[0]}")
    entries = document.entries
    if len(entries) > MAX_ENTRIES:
        raise error(f"there would be {len(entries)} entries; allowed are {MAX_ENTRIES}")
    tokens = count_tokens(joined(entries))
    if tokens > budget_tokens:
        raise error(f"the entries would cost {tokens} tokens; allowed are {budget_tokens} (budget.identity)")


def check_first_text(document: Document, *, budget_tokens: int) -> None:
    """Raise BadInput unless a text may be the first one: usable, within its limits, no placeholder."""
    check_limits(document, BadInput, budget_tokens=budget_tokens)
    if any(PLACEHOLDER in entry.content for entry in document.entries):
        raise BadInput(f"{FILE_NAME} says {PLACEHOLDER!r}: say it first, `init --goal TEXT`")


def cleaned_text(what: str, value: str, *, most: int) -> str:
    """Return a text without secrets and private parts. Raises BadInput: empty or too long."""
    return storable_content(what, checked_text(what, value, most=most))


def joined(entries: Sequence[ConstitutionEntry]) -> str:
    return "\n".join(entry.content for entry in entries)

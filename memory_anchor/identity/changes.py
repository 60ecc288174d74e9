"""How a proposal changes a text of L0, and how that is shown: pure functions over text.

Terminals obey escape characters and editors reorder bidirectional ones, so a diff that a human confirms escapes both:
what is shown is all there is.
"""

from __future__ import annotations

import difflib

from memory_anchor.base.terminal import visible, visible_lines
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import ConstitutionEntry, Proposal, ProposalAction
from memory_anchor.domain.requests.checks import NAME_MAX
from memory_anchor.domain.requests.checks import text as checked_text
from memory_anchor.identity import constitution_text as splice
from memory_anchor.identity.constitution_text import FILE_NAME, Document
from memory_anchor.identity.keys import digest_of


def shown_diff(text: str, proposal: Proposal) -> str:
    """Return what the proposal changes in `text`, as a unified diff with control characters escaped.

    Raises BadInput, NotFound: it cannot be applied to this text.
    """
    changed = apply_proposal(text, proposal)
    lines = difflib.unified_diff(
        _lines(text), _lines(changed), f"approved {FILE_NAME}", visible(proposal.id), lineterm=""
    )
    return visible_lines("\n".join(lines))


def _lines(text: str) -> list[str]:
    # Not splitlines: it removes other line-breaking characters, and what is shown must be all there is.
    return text.removesuffix("\n").split("\n") if text else []


def apply_proposal(text: str, proposal: Proposal) -> str:
    """Return `text` with the proposal applied."""
    match proposal.action:
        case ProposalAction.ADD:
            entries = splice.parse(text).entries
            name = proposal.entry_id or splice.entry_id_of(proposal.content)
            priority = min(max((entry.priority for entry in entries), default=-1) + 1, splice.MAX_PRIORITY)
            return splice.add(text, ConstitutionEntry(name, proposal.content, priority))
        case ProposalAction.REPLACE:
            return splice.replace_content(text, entry_id=proposal.entry_id or "", content=proposal.content)
        case ProposalAction.REMOVE:
            return splice.remove(text, entry_id=proposal.entry_id or "")
        case ProposalAction.ADOPT:
            return proposal.content


def replaced_digest(document: Document, proposal: Proposal) -> str:
    """Return the digest of what the proposal would replace; a confirmation is valid only while that is unchanged."""
    if proposal.action is ProposalAction.ADD:
        return ""
    if proposal.action is ProposalAction.ADOPT:
        return document.digest
    old = next((entry for entry in document.entries if entry.id == proposal.entry_id), None)
    return digest_of({"content": old.content}) if old else "gone"


def target(action: ProposalAction, entry_id: str | None, content: str) -> str:
    """Return the id of the entry that a proposal adds, replaces or removes. Raises BadInput: missing or malformed."""
    name = checked_text("entry_id", entry_id, most=NAME_MAX, required=False)
    if not name and action is not ProposalAction.ADD:
        raise BadInput(f"entry_id is missing; needed to {action.value} an entry")
    if name and action is ProposalAction.ADD and not splice.ENTRY_ID.fullmatch(name):
        raise BadInput("entry_id has other signs; allowed are up to 64 letters, digits, - _ and .")
    return name or splice.entry_id_of(content)

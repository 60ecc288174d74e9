"""Reconcile with a language model: asked only where something similar is stored, and believed only where it fits.

The model sees numbered neighbours and answers with a number, so that it cannot invent an id. Its answer is checked (the
number was shown, a merge says what both said, nobody's word is overruled); one that fails is replaced by the rules'
decision, with a note. Invariant: a wrong or late model never loses a write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memory_anchor.errors import Unavailable
from memory_anchor.hashing import content_hash
from memory_anchor.ingest.prompts import RECONCILE_SYSTEM, RECONCILE_VERSION, ReconcileAnswer, reconcile_prompt
from memory_anchor.ingest.reconcile import (
    DEFAULT_POLICY,
    Decision,
    Policy,
    Relation,
    Resolution,
    decide,
    outranked,
    repeat,
    similar_to,
)
from memory_anchor.language.safety import fence, instruction_like, redact
from memory_anchor.language.slots import read
from memory_anchor.model import Layer, Memory, Outcome, Trust
from memory_anchor.ports import LanguageModel

NEIGHBOURS_SHOWN = 8
MERGED_KEEPS = 0.7
"""Share of the terms of both memories that a merged text must hold."""


def decide_with_model(
    new: Memory,
    neighbours: Sequence[tuple[Memory, float]],
    model: LanguageModel,
    *,
    policy: Policy = DEFAULT_POLICY,
    deadline_s: float = 20.0,
) -> Decision:
    """Return what becomes of `new` beside its neighbours, decided by a model where there is something to decide.

    No model is asked when nothing similar is stored or the very same text is. `Decision.by` names who decided, `note`
    says why it was the rules when it was not the model.
    """
    rules = decide(new, neighbours, policy=policy)
    near = [pair for pair in sorted(neighbours, key=lambda pair: -pair[1]) if pair[1] >= policy.thresholds.related]
    same = rules.target is not None and content_hash(rules.target.content) == content_hash(new.content)
    if new.layer is Layer.EVENT_LOG or not near or same:
        return rules
    shown = near[:NEIGHBOURS_SHOWN]
    stored = "\n".join(
        fence(f"{number}. {memory.content}", source=f"memory {number}", trust=Trust.AGENT)
        for number, (memory, _) in enumerate(shown, start=1)
    )
    prompt = reconcile_prompt(fence(new.content, source="new memory", trust=Trust.AGENT), stored)
    try:
        answer, _ = model.fill(ReconcileAnswer, system=RECONCILE_SYSTEM, prompt=prompt, deadline_s=deadline_s)
    except Unavailable as failed:
        return replace(rules, note=f"decided by rules instead of {model.name}: {failed}")
    wrong = _fault(answer, new, shown)
    if wrong:
        return replace(rules, note=f"decided by rules, because the answer of {model.name} {wrong}")
    changed = rules.outcome is Outcome.SUPERSEDED
    return _carried_out(answer, new, shown, model.name, policy, changed=changed)


def _fault(answer: ReconcileAnswer, new: Memory, shown: Sequence[tuple[Memory, float]]) -> str:
    """Return what is wrong with an answer, "" when nothing is."""
    if answer.operation == "ADD":
        return ""
    if answer.target is None or not 1 <= answer.target <= len(shown):
        return f"names memory {answer.target}, which was not among the {len(shown)} shown"
    if answer.operation != "UPDATE":
        return ""
    merged = (answer.merged_content or "").strip()
    if not merged:
        return "merges without a text"
    if instruction_like(merged) and not instruction_like(new.content):
        return "merges into text that gives orders"
    old, fresh, both = read(shown[answer.target - 1][0].content), read(new.content), read(merged)
    wanted = old.content | fresh.content
    if (
        not fresh.numbers | old.numbers <= both.numbers
        or not fresh.names | old.names <= both.names
        or len(wanted & both.content) < MERGED_KEEPS * len(wanted)
    ):
        return "merges into a text that loses part of what was said"
    return ""


def _carried_out(
    answer: ReconcileAnswer,
    new: Memory,
    shown: Sequence[tuple[Memory, float]],
    name: str,
    policy: Policy,
    *,
    changed: bool,
) -> Decision:
    """Return the decision for a checked answer; what a model may not displace waits for a human.

    changed: the new memory says itself that something changed, which no policy overrules. Otherwise a policy set for
    its type decides a contradiction.
    """
    similar = similar_to(shown, floor=policy.thresholds.related)
    by, reason = f"{name}/{RECONCILE_VERSION}", redact(answer.reason).text
    if answer.operation == "ADD" or answer.target is None:
        return Decision(Outcome.ADDED, None, reason, None, similar, Relation.RELATED, by)
    old = shown[answer.target - 1][0]
    if answer.operation == "NOOP":
        return replace(repeat(new, old, similar), by=by)
    guarded = outranked(new, old)
    if guarded:
        return Decision(Outcome.NEEDS_REVIEW, old, guarded, None, similar, Relation.CONFLICT, by)
    if answer.operation == "UPDATE":
        merged = redact((answer.merged_content or "").strip()).text
        return Decision(Outcome.UPDATED, old, reason, merged, similar, Relation.DUPLICATE, by)
    chosen = None if changed else policy.by_type.get(new.type)
    if chosen is Resolution.KEEP_OLD:
        kept = f"it contradicts this memory, and the policy for {new.type} keeps the old one"
        return Decision(Outcome.SKIPPED, old, kept, None, similar, Relation.CONFLICT, by)
    outcome = Outcome.SUPERSEDED if chosen in (None, Resolution.KEEP_NEW) else Outcome.NEEDS_REVIEW
    return Decision(outcome, old, reason, None, similar, Relation.CONFLICT, by)

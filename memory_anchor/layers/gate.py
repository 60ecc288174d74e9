"""The confidence gate of L3: a claim counts only as far as its origin carries.

A model's own confidence is not evidence. The claim is capped by who makes it, and only another origin saying the same
raises what is stored. Where nobody claims anything, the words decide: a statement that doubts itself starts below the
threshold, half way to what is rejected. Thresholds follow the strategy document, section 2 (L3): >= 0.9 active, 0.7
to 0.9 pending, below rejected. The gate acts when writing; confidence that decays later never archives anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from memory_anchor.domain.activation import first_priority
from memory_anchor.domain.model import TRUST_OF_ORIGIN, Caller, Layer, Memory, Origin, Status, Trust, Usage, Visibility
from memory_anchor.domain.rights import Action, refusal
from memory_anchor.language.perspective import hedge

CAPS: Mapping[str, float] = {
    "human": 1.0,
    "agent": 0.95,
    "extracted_quoted": 0.9,
    "extracted": 0.85,
    "document": 0.69,
    "system": 1.0,
}
DEFAULT_CONFIDENCE = 0.9
"""The confidence of a plain statement that came without one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """status None means rejected. confidence: the effective one, 0 to 1."""

    status: Status | None
    confidence: float
    reason: str


@dataclass(frozen=True, slots=True)
class ConfidenceGate:
    active: float = 0.9
    pending: float = 0.7
    caps: Mapping[str, float] = field(default_factory=lambda: dict(CAPS))

    def assess(self, text: str) -> tuple[float, str]:
        """Return the claim of a text that came without one, and the word by which it doubts itself ("" for none)."""
        doubt = hedge(text)
        return (self.unsure, doubt) if doubt else (DEFAULT_CONFIDENCE, "")

    @property
    def unsure(self) -> float:
        """The claim of what waits for review without being rejected."""
        return round((self.active + self.pending) / 2, 3)

    def judge(
        self,
        claim: float,
        *,
        origin: Origin,
        caller: Caller,
        visibility: Visibility,
        quoted: bool = False,
        doubt: str = "",
    ) -> Verdict:
        """Return what becomes of a claim of `claim` (0 to 1). quoted: extracted with a verbatim quote. doubt: the word
        that `assess` found, for the reason."""
        cap = self.caps["extracted_quoted" if origin is Origin.EXTRACTED and quoted else origin.value]
        confidence = min(claim, cap)
        reason = f"confidence {confidence:g}"
        reason += f" (claimed {claim:g}, capped at {cap:g} for {origin.value})" if claim > cap else ""
        reason += f' (assessed: it says "{doubt}")' if doubt else ""
        if confidence < self.pending:
            return Verdict(None, confidence, f"{reason} is below {self.pending:g}, so nothing was stored")
        if confidence < self.active:
            waits = f"{reason} is below {self.active:g}: it waits for `memory-anchor review`"
            return Verdict(Status.PENDING, confidence, waits)
        if visibility is Visibility.ACCOUNT and (waits := refusal(Action.SAVE_FOR_ACCOUNT, caller)):
            return Verdict(Status.PENDING, confidence, waits)
        return Verdict(Status.ACTIVE, confidence, f"{reason} passes the gate")

    def as_agent_claim(self, memory: Memory, caller: Caller) -> Memory | None:
        """Return an imported version as if an agent had said it, None where the gate keeps it out.

        Origins that count for more become `agent`, confidence is capped, citations are trusted no more than an agent,
        and what an import cannot know is dropped: receipts, use, corroboration. What was disputed elsewhere waits here.
        """
        origin = memory.origin if memory.origin is Origin.DOCUMENT else Origin.AGENT
        verdict = self.judge(memory.confidence, origin=origin, caller=caller, visibility=memory.visibility)
        is_gated = memory.layer is Layer.VERIFIED_FACT and memory.status not in (Status.ARCHIVED, Status.SUPERSEDED)
        if is_gated and verdict.status is None:
            return None
        trust = TRUST_OF_ORIGIN[origin]
        waits = is_gated and (verdict.status is Status.PENDING or memory.status is Status.DISPUTED)
        return replace(
            memory,
            origin=origin,
            confidence=verdict.confidence,
            status=Status.PENDING if waits else memory.status,
            citations=tuple(
                citation if citation.trust is Trust.UNTRUSTED else replace(citation, trust=trust)
                for citation in memory.citations
            ),
            priority=min(memory.priority, first_priority(memory)),
            corroborated_at=None,
            usage=Usage(),
            receipts=(),
        )

    def corroborated(self, stored: float, stored_origin: Origin, claim: float, origin: Origin) -> float:
        """Return the stored confidence after another origin said the same: never above the better cap, never lower."""
        if origin is stored_origin:
            return stored
        cap = self.caps[origin.value]
        best = max(cap, self.caps[stored_origin.value])
        return max(stored, min(best, 1 - (1 - stored) * (1 - min(claim, cap))))

"""The text of a context: its sections, what goes into them, and how they are made to fit. Pure.

Stable prefix (the rule about recalled text, the constitution, how things are done here), then the dynamic tail (facts,
events, the conversation's active context, the time): a model's prompt cache needs the first part to stay the same. L0
is whole and plain; every other text is fenced with its source and trust. Texts are taken whole in order of rank;
only one that alone exceeds its section is cut, with a mark that says how to get the rest. Rejected: one budget for all
sections, because fifty recent events then push out the fact that answers.

Invariant: the text of a fitted body never counts more tokens than asked, unless the constitution alone does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from memory_anchor.base.json_values import Json
from memory_anchor.domain.model import Citation, Layer, PromptPart, Trust
from memory_anchor.language.fences import FENCE_RULE, fence, neutralise
from memory_anchor.language.tokens import count_tokens, cut_to_tokens

TEXT_SECTIONS: Mapping[str, Layer | None] = {
    "operations": Layer.OPERATIONAL_KNOWLEDGE,
    "lorebook_constants": None,
    "facts": Layer.VERIFIED_FACT,
    "events": Layer.EVENT_LOG,
    "lorebook": None,
    "knowledge": None,
    "active_context": Layer.ACTIVE_CONTEXT,
}
"""Sections of fenced texts in their order, and the layer of each; a lorebook's and knowledge's is none of memory's.
Knowledge is in the tail alone: what a stranger wrote is never in the prefix."""
SECTION_LAYER: Mapping[str, Layer] = {
    "constitution": Layer.IDENTITY_SCHEMA,
    **{name: layer for name, layer in TEXT_SECTIONS.items() if layer is not None},
}
PREFIX = ("operations", "lorebook_constants")
"""Sections that change seldom."""
LORE = ("lorebook", "lorebook_constants")
DROP_ORDER = ("knowledge", *LORE, "events", "operations", "facts", "active_context")
"""Where the last-ranked text is taken from when the whole is still too long."""
RETRIEVED = ("knowledge", *LORE, "events", "operations", "facts")
"""Sections filled by retrieval; L1 is looked up, not retrieved."""
SPARE_ORDER = ("facts", "events", "operations", *LORE, "active_context", "knowledge")
"""Who may use what the other sections left."""
CUT_LEAST_TOKENS = 120
"""Below this a cut text says nothing worth its fence."""
CUT_TRIES = 4

_HEADINGS = {
    "constitution": "# Constitution (L0)",
    "operations": "# How things are done here (L4)",
    "lorebook_constants": "# Lorebook (knowledge)",
    "facts": "# Verified facts (L3)",
    "events": "# Events (L2)",
    "lorebook": "# Lorebook for this message (knowledge)",
    "knowledge": "# Documents and history (knowledge)",
    "active_context": "# Active context of this conversation (L1)",
}


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    part: PromptPart
    tokens: int


@dataclass(frozen=True, slots=True)
class ContextCostReport:
    """What one assembled context cost, and every decision that shaped it."""

    context_window_tokens: int
    reserved_output_tokens: int
    estimated_tokens: Mapping[str, Json]
    sections: tuple[Section, ...] = ()
    decisions: tuple[Mapping[str, Json], ...] = ()
    citations: tuple[Citation, ...] = ()
    stage_ms: Mapping[str, float] = field(default_factory=dict)
    cache: Mapping[str, int] = field(default_factory=lambda: {"hits": 0, "misses": 0})
    variant: str = "default"


@dataclass(frozen=True, slots=True)
class Recalled:
    """One recalled text, ready for a context.

    more: how to get the rest, for when the text is cut. when: places an event in its section. tokens: of `fenced`.
    best: whether it is what answers the task best, of all sections.
    """

    id: str
    text: str
    source: str
    trust: Trust
    more: str
    citations: tuple[Citation, ...] = ()
    when: datetime | None = None
    fenced: str = ""
    tokens: int = 0
    best: bool = False

    @classmethod
    def of(
        cls,
        text: str,
        *,
        id: str,
        source: str,
        trust: Trust,
        more: str,
        citations: tuple[Citation, ...] = (),
        when: datetime | None = None,
    ) -> Recalled:
        fenced = fence(text, source=source, trust=trust)
        return cls(id, text, source, trust, more, citations, when, fenced, count_tokens(fenced) + 1)

    def cut(self, limit: int) -> Recalled | None:
        """Return this text shortened until its fence counts at most `limit` tokens, None when nothing is left."""
        mark = f"\n[cut; {self.more}]"
        room = limit - count_tokens(fence(mark, source=self.source, trust=self.trust)) - 1
        for _ in range(CUT_TRIES):
            shortened = cut_to_tokens(self.text, room)
            if not shortened:
                return None
            fenced = fence(shortened + mark, source=self.source, trust=self.trust)
            shorter = replace(self, text=shortened + mark, fenced=fenced, tokens=count_tokens(fenced) + 1, best=False)
            if shorter.tokens <= limit:
                return shorter
            room -= shorter.tokens - limit
        return None


@dataclass(frozen=True, slots=True)
class Body:
    """What a context is made of. identity: one line an entry. texts: by section, best first. time: one line.

    left_out: how many entries of the constitution are not in it.
    """

    identity: tuple[str, ...]
    texts: Mapping[str, tuple[Recalled, ...]]
    time: str = ""
    rule: str = FENCE_RULE
    left_out: int = 0

    def parts(self) -> list[tuple[str, Literal["prefix", "tail"], str]]:
        """Return (section, part, text) in their order, without empty ones."""
        parts: list[tuple[str, Literal["prefix", "tail"], str]] = []
        if self.rule:
            parts.append(("rule", "prefix", self.rule))
        entries = "".join(f"\n- {neutralise(line)}" for line in self.identity)
        if self.left_out:
            entries += f"\n({self.left_out} more: call get_constitution now)"
        if entries:
            parts.append(("constitution", "prefix", f"{_HEADINGS['constitution']}{entries}"))
        for name in TEXT_SECTIONS:
            items = self.texts.get(name, ())
            if name == "events":
                items = tuple(sorted(items, key=lambda item: item.when.timestamp() if item.when else 0.0, reverse=True))
            if items:
                body = "\n".join(item.fenced for item in items)
                parts.append((name, "prefix" if name in PREFIX else "tail", f"{_HEADINGS[name]}\n{body}"))
        if self.time:
            parts.append(("time", "tail", self.time))
        return parts

    def text(self) -> str:
        return "\n\n".join(text for _, _, text in self.parts())

    def sections(self) -> tuple[Section, ...]:
        """Return each section's tokens; they add up to the count of the whole text."""
        sections: list[Section] = []
        so_far, before = "", 0
        for name, part, text in self.parts():
            so_far = f"{so_far}\n\n{text}" if so_far else text
            after = count_tokens(so_far)
            sections.append(Section(name, part, after - before))
            before = after
        return tuple(sections)

    def citations(self) -> tuple[Citation, ...]:
        """Return what the text quotes and where it comes from, without repeats."""
        items = (item for name in TEXT_SECTIONS for item in self.texts.get(name, ()))
        return tuple(dict.fromkeys(cited for item in items for cited in item.citations))

    def count(self, names: Sequence[str] = tuple(TEXT_SECTIONS)) -> int:
        return sum(len(self.texts.get(name, ())) for name in names)

    def without_last(self, order: Sequence[str] = DROP_ORDER) -> Body | None:
        """Return the body less its least valuable text, None when there is none left in `order`."""
        for name in order:
            if items := self.texts.get(name, ()):
                return replace(self, texts={**self.texts, name: items[:-1]})
        return None


@dataclass(frozen=True, slots=True)
class Fitted:
    """over_by: tokens by which the constitution alone exceeds what was allowed, else 0."""

    body: Body
    over_by: int = 0


def with_rules_within(body: Body, most: int) -> Body:
    """Return the body with the first entries of the constitution that take `most` tokens, and how many are left out."""
    for count in range(len(body.identity), -1, -1):
        less = replace(body, identity=body.identity[:count], left_out=len(body.identity) - count)
        if count_tokens(replace(less, texts={}, time="", rule="").text()) <= most:
            break
    return less


def fit(body: Body, *, total: int, caps: Mapping[str, int], stretch: bool = False) -> Fitted:
    """Return the body with what fits into `total` tokens.

    caps: tokens each section may take; all shrink alike when there is less room, and with `stretch` grow alike when
    there is more. What a section leaves over goes to the others, up to their own caps unless stretched. The
    constitution is never cut: the time line and the rule go before it, and what is fenced with the rule.
    """
    frame = _frame(body, total)
    room = total - count_tokens(frame.text())
    if not frame.rule:
        return Fitted(frame, max(0, -room))
    asked = sum(caps.values())
    scale = room / asked if asked and (stretch or room < asked) else 1.0
    taken: dict[str, tuple[Recalled, ...]] = {}
    for name in TEXT_SECTIONS:
        heading = count_tokens(_HEADINGS[name]) + 2
        taken[name] = _take(body.texts.get(name, ()), int(caps.get(name, 0) * scale) - heading)
    full = replace(frame, texts=taken)
    if scale < 1:
        full = _with_best_answer(full, body, total)
    if scale != 1:
        full = _use_spare(full, body, room, caps if scale < 1 else dict.fromkeys(TEXT_SECTIONS, room))
    return Fitted(_drop_last(full, total))


def _with_best_answer(full: Body, body: Body, total: int) -> Body:
    """Return the body with the best answer in it, for which others leave where there is little room.

    Every share shrinks alike, and the answer's own may then be too small for it while another section shows its fifth.
    """
    found = next(((name, item) for name in RETRIEVED for item in body.texts.get(name, ()) if item.best), None)
    if found is None:
        return full
    name, best = found
    if any(item.id == best.id for item in full.texts.get(name, ())):
        return full
    made = replace(full, texts={**full.texts, name: (best,)})
    others = tuple(other for other in DROP_ORDER if other != name)
    while count_tokens(made.text()) > total:
        less = made.without_last(others)
        if less is None:
            return full
        made = less
    return made


def _frame(body: Body, total: int) -> Body:
    """Return what is there whatever is recalled, less the time and then the rule where even that is too long."""
    frame = replace(body, texts={})
    for smaller in (frame, replace(frame, time="")):
        if count_tokens(smaller.text()) <= total:
            return smaller
    return replace(frame, time="", rule="")


def _take(items: Sequence[Recalled], cap: int) -> tuple[Recalled, ...]:
    """Return the texts that fit, best first; the best of all is cut when it alone is too long."""
    taken: list[Recalled] = []
    left = cap
    for item in items:
        if item.tokens <= left:
            taken.append(item)
            left -= item.tokens
        elif not taken and left >= CUT_LEAST_TOKENS and (shorter := item.cut(left)) is not None:
            taken.append(shorter)
            left -= shorter.tokens
    return tuple(taken)


def _use_spare(full: Body, body: Body, room: int, caps: Mapping[str, int]) -> Body:
    """Return the body with texts added where another section left its share unused; none passes its cap."""
    spare = room - sum(item.tokens for items in full.texts.values() for item in items)
    spare -= sum(count_tokens(_HEADINGS[name]) + 2 for name, items in full.texts.items() if items)
    for name in SPARE_ORDER:
        shown = full.texts[name]
        used = sum(item.tokens for item in shown)
        heading = count_tokens(_HEADINGS[name]) + 2
        cap = min(caps.get(name, 0) - heading, used + spare - (0 if shown else heading))
        more = _take(body.texts.get(name, ()), cap)
        gained = sum(item.tokens for item in more) - used
        if gained > 0:
            full = replace(full, texts={**full.texts, name: more})
            spare -= gained + (0 if shown else heading)
    return full


def _drop_last(body: Body, total: int) -> Body:
    """Return the body less as many last texts as it takes; bounded by how many there are."""
    while count_tokens(body.text()) > total and (less := body.without_last()) is not None:
        body = less
    return body


def section_tokens(body: Body, name: str) -> int:
    """Return what a section takes whole, its heading included; 0 for an empty one."""
    items = body.texts.get(name, ())
    return sum(item.tokens for item in items) + count_tokens(_HEADINGS[name]) + 2 if items else 0


def shortened_sections(before: Body, after: Body) -> dict[str, tuple[int, int]]:
    """Return section -> (left out, kept) for every section that lost texts."""
    counts = {name: (before.count([name]), after.count([name])) for name in TEXT_SECTIONS}
    return {name: (all_ - kept, kept) for name, (all_, kept) in counts.items() if all_ > kept}

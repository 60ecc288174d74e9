"""What shows that something tells of a purged memory: it cites it, it follows it in a conversation, or it repeats it.

By citation and not by quotation: a digest of short notes quotes nothing that is long enough to be evidence. What a job
wrote from a purged memory goes with it, and what was written from that; what somebody wrote stays and is named, without
the parts that were copied into it (search context, prediction, titles of citations, reasons, answers that repeats get).
Files hold no citations of the text that they copied, so they are searched for ids and texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from memory_anchor.admin.waiting import texts_in
from memory_anchor.base.json_values import Json
from memory_anchor.domain.model import Citation, Memory, WriteMode
from memory_anchor.language.indexing import conversation_context
from memory_anchor.upkeep.forgetting import first_sentence
from memory_anchor.upkeep.history import words_of

JOB = "job:"
TELLING_BYTES = 16
"""A shorter text (five Chinese characters) is no evidence of a quotation in a longer one; as a whole line it is."""
CONTEXT_OPENING = 80
PURGED = "[purged]"

Position = tuple[str, str, str, int]
"""Account, project, conversation and number of an event."""


@dataclass(frozen=True, slots=True)
class PurgeTraces:
    """ids: of the memories. texts: every text they had, and its first sentence. contexts: the texts as the search
    context of what followed. positions: where they stood in conversations. text: what else to look for, "" for nothing.
    """

    ids: frozenset[str]
    texts: frozenset[str]
    contexts: frozenset[str]
    positions: frozenset[Position]
    text: str = ""

    @classmethod
    def of(cls, versions: Iterable[Memory], ids: Iterable[str] = (), text: str = "") -> PurgeTraces:
        versions = list(versions)
        contents = {version.content for version in versions}
        said = contents | {first_sentence(content) for content in contents}
        return cls(
            frozenset((*ids, *(version.id for version in versions))),
            frozenset(one.strip() for one in said if one.strip()),
            frozenset(context for content in contents if (context := conversation_context(content))),
            frozenset(position for version in versions if (position := _position(version))),
            text,
        )

    def __call__(self, text: str) -> bool:
        """Return whether a file's text, as it is and decoded, names one of the memories or repeats it."""
        if self.text:
            return self.text in text
        return any(f'"{name}"' in text or f'"{name}@' in text for name in self.ids) or self._repeats(text)

    def _repeats(self, text: str) -> bool:
        if any(said in text for said in self.texts if len(said.encode()) >= TELLING_BYTES):
            return True
        return not self.texts.isdisjoint(line.strip() for line in text.split("\n"))

    def told_by(self, memory: Memory) -> bool:
        """Return whether a version was written from one of the memories, or repeats it."""
        return any(self._names(citation) for citation in memory.citations) or (
            not self.text and self._repeats(memory.content)
        )

    def remains_in(self, memory: Memory) -> bool:
        """Return whether a version is one of the memories, or has something of them beside its own text."""
        return memory.id in self.ids or self.without(memory) != memory

    def without(self, memory: Memory) -> Memory:
        """Return a version without what was copied into it from the memories."""
        cites = self._cites(memory)
        told = [self._unquoted(str(kept.outcome.get("reason", "")), cites) for kept in memory.receipts]
        kept = zip(memory.receipts, told, strict=True)
        return replace(
            memory,
            context="" if self._is_context(memory) else memory.context,
            gap=None if memory.gap is not None and (cites or self._is_in(memory.gap)) else memory.gap,
            citations=tuple(replace(c, title=None) if self._names(c) else c for c in memory.citations),
            reason=self._unquoted(memory.reason, cites),
            receipts=tuple(replace(answer, outcome={**answer.outcome, "reason": why}) for answer, why in kept),
        )

    def _unquoted(self, reason: str, cites: bool) -> str:
        """Return a reason without the texts, and how they begin. cites: of a version that names one of the memories."""
        quoted = {part for said in self.texts for part in (said, said[:CONTEXT_OPENING]) if part in reason}
        for said in sorted(quoted, key=len, reverse=True):
            if (cites or len(said.encode()) >= TELLING_BYTES) and len(said) > 1:
                reason = reason.replace(said, PURGED)
        return reason

    def _is_context(self, memory: Memory) -> bool:
        context, position = memory.context.strip(), _position(memory)
        if not context:
            return False
        if self.text:
            return self.text in context
        if position and (*position[:3], position[3] - 1) in self.positions:
            return True
        openings = (text[:CONTEXT_OPENING] for text in self.contexts if len(text.encode()) >= TELLING_BYTES)
        return context in self.contexts or any(opening in context for opening in openings)

    def _is_in(self, value: Mapping[str, Json]) -> bool:
        return not self.text and self._repeats("\n".join(texts_in(dict(value))))

    def _names(self, citation: Citation) -> bool:
        return citation.kind in ("memory_entry", "event") and citation.ref.partition("@")[0] in self.ids

    def _cites(self, memory: Memory) -> bool:
        """Return whether a version names one of the memories anywhere."""
        before = (memory.previous_version_id or "").partition("@")[0]
        named = {before, *memory.disputes, memory.promoted_to, *words_of(memory.reason)}
        return not self.ids.isdisjoint(named) or any(self._names(citation) for citation in memory.citations)

    def retold_in(self, memory: Memory) -> bool:
        """Return whether a version, met without the others of its memory, is what a job wrote from the memories."""
        is_job = memory.author.startswith(JOB) and memory.write_mode is WriteMode.GHOSTWRITER
        return is_job and self.told_by(memory)


def is_retelling(versions: Iterable[Memory]) -> bool:
    """Return whether jobs wrote every text that these versions of one memory had."""
    wrote = [version.author.startswith(JOB) for version in versions if version.stated_at == version.recorded_at]
    return bool(wrote) and all(wrote)


def _position(memory: Memory) -> Position | None:
    scope, number = memory.scope, memory.conversation_seq
    return (scope.account, scope.project, scope.conversation, number) if scope.conversation and number else None

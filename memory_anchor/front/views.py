"""Domain value -> the JSON that tools, resources, HTTP and `--json` show. Pure.

Fields at their default are left out, instants are UTC ISO 8601 ending in Z, text is verbatim. An answer stays under
`ANSWER_BYTES_MAX`: lists lose their tail and a note says how to get the rest, because clients replace a longer one by a
two-kilobyte preview. Rejected: dumping the dataclasses, whose names and defaults must stay free to change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import accumulate
from types import MappingProxyType

from memory_anchor.base.json_values import Json, Record, items, record, records, text, texts
from memory_anchor.context.context import BuiltContext
from memory_anchor.context.sections import ContextCostReport
from memory_anchor.domain.activation import DEFAULTS, ActivationSettings, strength_of
from memory_anchor.domain.model import (
    TRUST_OF_ORIGIN,
    Citation,
    Constitution,
    Layer,
    Memory,
    OperationPassage,
    Origin,
    Proposal,
    RetrievedSnippet,
    Scope,
    SearchAnswer,
    Status,
    Tag,
    Trust,
    WriteOutcome,
)
from memory_anchor.identity import proposals
from memory_anchor.ingest.candidates import Candidate
from memory_anchor.ingest.conversation_learning import CandidateOutcome
from memory_anchor.ingest.profile import ProfileLine, told
from memory_anchor.language.fences import FENCE_TAG, harmless
from memory_anchor.language.perspective import worded_for

Shown = dict[str, Json]
"""A JSON object as front ends show it."""

ANSWER_BYTES_MAX = 99_000
"""Under the 100,000 bytes promised."""
NOTE_BYTES = 400
SCORE_DIGITS = 3
AGE_IN_DAYS = timedelta(days=60)
"""Up to this age a snippet's line shows the age, beyond it the day."""
BEFORE_CHARS = 80
CITATIONS_SHOWN = 3
"""Of one snippet; `get_memory` has them all."""
_VERSIONS: ContextVar[Mapping[str, str]] = ContextVar("versions", default=MappingProxyType({}))


@contextmanager
def cited_with(versions: Mapping[str, str]) -> Iterator[None]:
    """Add these fields to every citation and cost report shaped in this block; a citation's own values win."""
    token = _VERSIONS.set(versions)
    try:
        yield
    finally:
        _VERSIONS.reset(token)


def compact(answer: Json) -> str:
    """Return the answer as one line of JSON text; only signs that a terminal obeys are escaped."""
    return harmless(json.dumps(answer, ensure_ascii=False, separators=(",", ":")))


def time_text(at: datetime, *, seconds: bool = False) -> str:
    """Return an instant as UTC ISO 8601 with Z. seconds: cut to whole seconds, for text that is only read.

    >>> time_text(datetime(2025, 12, 15, 12, 30, tzinfo=UTC))
    '2025-12-15T12:30:00Z'
    """
    exact = at.astimezone(UTC).replace(tzinfo=None)
    return f"{exact.isoformat(timespec='seconds' if seconds else 'auto')}Z"


# --- writes ----------------------------------------------------------------------------------------------------


def outcome(value: WriteOutcome) -> Shown:
    """Return {outcome, id, layer, status, reason, target_id?, relation?, similar?, redactions?}; rejected: id null."""
    shaped: Shown = {
        "outcome": value.outcome.value,
        "id": value.id,
        "layer": value.layer.value,
        "status": value.status.value if value.status else None,
        "reason": value.reason,
    }
    if value.target_id:
        shaped["target_id"] = value.target_id
    if value.relation:
        shaped["relation"] = value.relation.value
    if value.similar:
        shaped["similar"] = [
            {"id": hit.id, "text": hit.text, "score": round(hit.score, SCORE_DIGITS)} for hit in value.similar
        ]
    if value.redactions:
        shaped["redactions"] = list(value.redactions)
    return shaped


def outcomes(values: Sequence[WriteOutcome]) -> Shown:
    shaped: Shown = {"outcomes": [outcome(value) for value in values]}
    return shortened(shaped, "outcomes", "everything was written; search_events shows it")


def remembered(writes: Sequence[CandidateOutcome], notes: Sequence[str]) -> Shown:
    """Return {outcomes: [WriteOutcome with its episode], notes?}."""
    shaped: Shown = {
        "outcomes": [
            outcome(write.outcome) | {"episode": {"number": write.episode, "start": write.start, "end": write.end}}
            for write in writes
        ]
    }
    if notes:
        shaped["notes"] = list(notes)
    return shortened(shaped, "outcomes", "everything was written; search_memory finds it")


def candidate(value: Candidate) -> Shown:
    """Return a memory that extraction would write."""
    named = {name: getattr(value, name) for name in ("key", "content", "about", "importance", "confidence")}
    return named | {"type": value.type.value, "message": value.seq}


def proposal(value: Proposal) -> Shown:
    """Return {proposal_id, status, confirmations, required, how_to_approve, ...}."""
    return {name: field for name, field in proposals.as_json(value).items() if field is not None}


# --- memories --------------------------------------------------------------------------------------------------


def memory(value: Memory, *, now: datetime, reader: Scope, activation: ActivationSettings = DEFAULTS) -> Shown:
    """Return a memory or event; `strength` is 0 to 100 at `now`, under the `activation` settings."""
    shaped: Shown = {"id": value.id, "key": value.key} if value.key else {"id": value.id}
    shaped |= {
        "content": value.content,
        "layer": value.layer.value,
        "type": value.type.value,
        "status": value.status.value,
        "strength": round(strength_of(value, now, activation)),
        "confidence": value.confidence,
        "importance": value.importance,
        "origin": value.origin.value,
        "scope": _scope(value.scope),
        "version": value.version,
        "valid_from": time_text(value.valid_from),
        "recorded_at": time_text(value.recorded_at),
    }
    if value.layer is Layer.EVENT_LOG:
        shaped["when"] = time_text(value.happened_at)
    return shaped | _uncommon(value, reader)


def event(value: Memory, *, reader: Scope) -> Shown:
    """Return an event of a list, without the fields that most events have alike."""
    shaped: Shown = {"id": value.id, "key": value.key} if value.key else {"id": value.id}
    shaped |= {
        "content": worded_for(value, reader),
        "layer": value.layer.value,
        "type": value.type.value,
        "when": time_text(value.happened_at),
    }
    if value.status is not Status.ACTIVE:
        shaped["status"] = value.status.value
    if TRUST_OF_ORIGIN[value.origin] is not Trust.AGENT:
        shaped["origin"] = value.origin.value
    return shaped | _uncommon(value, reader)


_SHOWN_ABOVE = frozenset(("id", "key", "content", "layer", "type", "status", "confidence", "importance", "origin")) | {
    *("scope", "version", "valid_from", "recorded_at", "when")
}
_KEPT_BACK = frozenset(
    ("context", "questions", "content_hash", "author", "reason", "written_in", "corroborated_at")
) | {*("is_current", "receipts", "revision")}
"""Of the store alone, or shown by `history`."""
_SHOWN_OTHERWISE = frozenset(("first_recorded_at", "usage", "half_life_days", "gap", "content_at", "citations"))
_UNLESS_DEFAULT = {
    each.name: each.default for each in fields(Memory) if each.name not in _SHOWN_ABOVE | _KEPT_BACK | _SHOWN_OTHERWISE
}
"""Fields that are shown by their name where they differ from their default: what is new in the model is one."""


def _uncommon(value: Memory, reader: Scope) -> Shown:
    """Return the fields that differ from their default."""
    shown: Shown = {
        name: _plain(field) for name, default in _UNLESS_DEFAULT.items() if (field := getattr(value, name)) != default
    }
    if value.version > 1 and value.first_recorded_at:
        shown["first_recorded_at"] = time_text(value.first_recorded_at)
    if value.usage.count:
        shown["access_count"] = value.usage.count
    if value.usage.last_at:
        shown["last_accessed_at"] = time_text(value.usage.last_at)
    if value.half_life_days:
        shown["decay"] = {"half_life_days": value.half_life_days}
    if value.gap and value.gap.get("predicted"):  # how an event deviated from the prediction
        shown["gap"] = {name: value.gap[name] for name in ("type", "importance", "predicted") if name in value.gap}
    if value.content_at and value.version == 1:
        shown["written_at"] = time_text(value.content_at)
    if value.citations:
        shown["citations"] = [citation(source, reader=reader) for source in value.citations]
    return shown


def _plain(value: Json | datetime | StrEnum | tuple[str | Tag, ...]) -> Json:
    match value:
        case StrEnum():
            return value.value
        case datetime():
            return time_text(value)
        case tuple():
            return [_tag(item) if isinstance(item, Tag) else item for item in value]
        case _:
            return value


def profile(lines: Sequence[ProfileLine]) -> Shown:
    """Return {text, lines}: the page, and each line with its page, section and the fact it cites."""
    return {"text": told(lines), "lines": [asdict(line) for line in lines]}


def with_history(
    current: Shown,
    versions: Sequence[Memory],
    *,
    now: datetime,
    reader: Scope,
    activation: ActivationSettings = DEFAULTS,
) -> Shown:
    """Return a memory with its versions, oldest first; the newest ones where not all fit."""
    newest_first = [memory(version, now=now, reader=reader, activation=activation) for version in reversed(versions)]
    shaped = shortened(current | {"versions": newest_first}, "versions", "the newest; `memory-anchor history` has all")
    if versions and versions[0].version > 1 and "notes" not in shaped:
        shaped |= {"notes": [f"the newest {len(versions)} versions are shown; `memory-anchor history` has all"]}
    return shaped | {"versions": items(shaped["versions"])[::-1]}


def events(values: Sequence[Memory], *, reader: Scope) -> Shown:
    shaped: Shown = {"events": [event(value, reader=reader) for value in values]}
    return shortened(shaped, "events", "ask again with a shorter time range")


# --- recall ----------------------------------------------------------------------------------------------------


def search_answer(value: SearchAnswer, *, reader: Scope) -> Shown:
    """Return {snippets, conflicts?, notes?}: strong ones first; `weak` marks those that may not answer the query."""
    shaped: Shown = {"snippets": [snippet(hit, reader=reader) for hit in value.snippets]}
    if value.conflicts:
        shaped["conflicts"] = [list(pair) for pair in value.conflicts]
    if value.notes:
        shaped["notes"] = list(value.notes)
    return shortened(shaped, "snippets", "ask again with a smaller limit or a narrower query")


def snippet(value: RetrievedSnippet, *, reader: Scope) -> Shown:
    """Return a snippet; `text` is the memory's whole content, after its speaker's name where it has one.

    The usual values are left out: weights of 1, the trust and origin `agent`, a vivid strength. An agent's memory that
    names its sources does not cite itself.
    """
    shaped: Shown = {
        "id": value.id,
        "text": value.text,
        "score": round(value.score, SCORE_DIGITS),
        "layer": value.layer.value,
        "type": value.type,
    }
    if value.when is not None:
        shaped["when"] = time_text(value.when, seconds=True)
    if value.tags:
        shaped["tags"] = [_tag(tag) if tag.weight != 1 else {"name": tag.name} for tag in value.tags]
    if value.status is not Status.ACTIVE:
        shaped["status"] = value.status.value
    if value.origin is not Origin.AGENT:
        shaped["origin"] = value.origin.value
    if value.strength != "vivid":
        shaped["strength"] = value.strength
    sources = [source for source in value.citations if source.ref != value.id or source.trust is not Trust.AGENT]
    if value.citations:
        shown = (sources or value.citations)[:CITATIONS_SHOWN]
        shaped["citations"] = [_cited(source, value, reader) for source in shown]
    shaped |= {name: field for name in ("before", "linked", "source") if (field := getattr(value, name))}
    if value.beside is not None:
        shaped["beside"] = dict(value.beside)
    if value.relevance is not None:
        shaped["relevance"] = value.relevance or 0
    if value.weak:
        shaped["weak"] = True
    if value.signals is not None:
        shaped["signals"] = dict(value.signals)
    return shaped


def lean(answer: Record) -> Shown:
    """Return a search's answer with fewer tokens: without citations in which a snippet only cites itself.

    A client that needs a citation for such a memory makes it from the id.
    """
    bare, snippets = (("kind", "ref"), ("kind", "ref", "trust")), list[Json]()
    for hit in records(answer["snippets"]):
        trust = TRUST_OF_ORIGIN[Origin(text(hit.get("origin"), Origin.AGENT.value))].value
        citations: list[Json] = [
            source
            for source in records(hit.get("citations"))
            if source["ref"] != hit["id"] or tuple(source) not in bare or source.get("trust", trust) != trust
        ]
        rest = {name: value for name, value in hit.items() if name != "citations"}
        snippets.append(rest | ({"citations": citations} if citations else {}))
    return {**answer, "snippets": snippets}


def lines(answer: Mapping[str, Json], *, now: datetime) -> str:
    """Return a search's answer as plain lines: id, age, origin and trust, then the whole text.

    Signs that a terminal obeys are spelled out. Only an agent that reads this text pays tokens; programs read the
    structured form, which has the rest and each text unchanged.
    """
    shown = []
    for hit in records(answer["snippets"]):
        when, before = text(hit.get("when"), ""), text(hit.get("before"), "")
        link = f"linked: {hit['linked']}" if hit.get("linked") else "weak" if hit.get("weak") else ""
        about = [text(hit["id"]), _age(when, now), *_author(hit), _position(hit), text(hit.get("status"), ""), link]
        stale = {text(source.get("freshness"), "fresh") for source in records(hit.get("citations"))} - {"fresh"}
        was = f" (since {when[:10]}; before: {_short(before)})" if before else ""
        shown.append(f"[{' '.join(filter(None, (*about, *sorted(stale))))}] {text(hit['text'])}{was}")
        if near := record(hit.get("beside")):
            first, last = items(near["lines"])
            shown.append(f"[{near['side']} it, {near['ref']}:{first}-{last}] {near['text']}")
    shown += [
        f"{first} and {second} contradict each other." for first, second in map(texts, items(answer.get("conflicts")))
    ]
    shown += [f"Note: {note}" for note in items(answer.get("notes"))]
    return harmless("\n".join(shown)) or "Nothing is remembered."


def _author(hit: Record) -> list[str]:
    """Return a snippet's origin, and its trust where that does not follow from it."""
    trusts = {text(source["trust"]) for source in records(hit.get("citations")) if "trust" in source}
    origin = Origin(text(hit.get("origin"), Origin.AGENT.value))
    return [origin.value, *sorted(trusts - {TRUST_OF_ORIGIN[origin].value})]


PASSAGE_CITATIONS = frozenset(("knowledge_chunk", "url"))
"""Kinds of citations into what others wrote."""


def _position(hit: Record) -> str:
    """Return file and lines of a passage of a document or commit; "" for a memory."""
    source = next(iter(records(hit.get("citations"))), {})
    if hit["layer"] != Layer.OPERATIONAL_KNOWLEDGE.value or source.get("kind") not in PASSAGE_CITATIONS:
        return ""
    locator = record(source.get("locator"))
    lines = f":{locator['line_start']}-{locator['line_end']}" if "line_start" in locator else ""
    return f"{_short(text(source['ref']))}{lines}"


def _age(when: str, now: datetime) -> str:
    """Return an instant's age in hours or days; its day where it is long ago or in the future.

    >>> _age("2025-12-15T09:00:00Z", datetime(2025, 12, 15, 12, tzinfo=UTC))
    '3h'
    """
    if not when:
        return ""
    age = now - datetime.fromisoformat(when)
    if not timedelta() <= age < AGE_IN_DAYS:
        return when[:10]
    return f"{age.days}d" if age.days else f"{age.seconds // 3600}h"


def _short(text: str) -> str:
    return text if len(text) <= BEFORE_CHARS else f"{text[:BEFORE_CHARS]}…"


def _cited(cited: Citation, of: RetrievedSnippet, reader: Scope) -> Shown:
    """Return a citation without the fields that its snippet shows already."""
    shaped = citation(replace(cited, observed_at=None) if cited.observed_at == of.when else cited, reader=reader)
    if cited.trust is Trust.AGENT:
        del shaped["trust"]
    return shaped


def citation(value: Citation, *, reader: Scope) -> Shown:
    """Return a citation; of its scope only what differs from the reader's."""
    shaped: Shown = {"kind": value.kind, "ref": value.ref}
    if value.title:
        shaped["title"] = value.title
    locator = {
        name: field
        for name in ("line_start", "line_end", "sha", "chunk_index", "page", "heading")
        if (field := getattr(value.locator, name)) not in (None, ())
    }
    if locator:
        shaped["locator"] = locator
    if value.scope is not None:
        other = {name: part for name, part in _scope(value.scope).items() if part != getattr(reader, name)}
        shaped |= {"scope": other} if other else {}
    if value.observed_at is not None:
        shaped["observed_at"] = time_text(value.observed_at, seconds=True)
    shaped["trust"] = value.trust.value
    own = {name: field for name in ("freshness", "variant", "index_version") if (field := getattr(value, name))}
    if versions := dict(_VERSIONS.get()):
        # A citation's own `variant` is how passages were ranked; next to a request's variant that is its algorithm.
        versions |= {"algo_version": ranking} if (ranking := own.pop("variant", "")) else {}
    return shaped | versions | own


def operations(values: Sequence[OperationPassage]) -> Shown:
    """Return {operations: [{name, path, title, text, score}]}."""
    passages: list[Shown] = [
        {name: getattr(value, name) for name in ("name", "path", "title", "text", "score")} for value in values
    ]
    return shortened({"operations": passages}, "operations", "read the file at `path` for the rest")


def constitution(value: Constitution) -> Shown:
    """Return {entries, version, tokens, warnings}: the whole of L0, up to the longest answer."""
    answer: Shown = {
        "entries": [asdict(entry) for entry in value.entries],
        "version": value.version,
        "tokens": value.tokens,
        "warnings": list(value.warnings),
    }
    shown = shortened(answer, "entries", "a human reads all with `memory-anchor constitution show`")
    return shown | {"warnings": [*value.warnings, *items(shown.pop("notes", None))]}


def active(values: Mapping[str, tuple[Json, datetime]], *, now: datetime) -> Shown:
    """Return {values: {key: value}, expires_in_s: {key: seconds}}."""
    shown = {key: value for key, (value, _) in values.items()}
    seconds_left = {key: max(0, round((expires_at - now).total_seconds())) for key, (_, expires_at) in values.items()}
    if len(compact({"values": shown}).encode()) <= ANSWER_BYTES_MAX - NOTE_BYTES - len(compact(seconds_left).encode()):
        return {"values": shown, "expires_in_s": seconds_left}
    note = f"{len(shown)} values exceed {ANSWER_BYTES_MAX} bytes; ask for one by its key"
    return {"values": {}, "expires_in_s": seconds_left, "notes": [note]}


# --- context ---------------------------------------------------------------------------------------------------


def built_context(value: BuiltContext, *, reader: Scope) -> Shown:
    """Return {text, report, citations, report_id?, notes?}; a text too long ends after a whole quotation."""
    cost = report(value.report, reader=reader)
    shaped: Shown = {
        "text": value.text,
        "report": {name: part for name, part in cost.items() if name != "citations"},  # listed next to it
        "citations": [citation(source, reader=reader) for source in value.citations],
    }
    if value.report_id:
        shaped["report_id"] = value.report_id
    notes = list(value.notes)
    shaped |= {"notes": notes} if notes else {}
    bytes_left = ANSWER_BYTES_MAX - NOTE_BYTES - len(compact(shaped | {"text": "", "citations": []}).encode())
    if len(compact(value.text).encode()) > bytes_left:
        shaped["text"] = _cut_after_quotation(value.text, bytes_left)
        shaped["notes"] = [*notes, "the text was cut; ask again with a smaller budget_tokens"]
    return shortened(shaped, "citations", "the text has the memories' ids")


def report(value: ContextCostReport, *, reader: Scope) -> Shown:
    shaped: Shown = {
        "context_window_tokens": value.context_window_tokens,
        "reserved_output_tokens": value.reserved_output_tokens,
        "estimated_tokens": dict(value.estimated_tokens),
        "sections": [asdict(section) for section in value.sections],
        "decisions": [dict(decision) for decision in value.decisions],
        "citations": [citation(source, reader=reader) for source in value.citations],
        "stage_ms": dict(value.stage_ms),
        "cache": dict(value.cache),
        "variant": value.variant,
    }
    return shaped | dict(_VERSIONS.get())


# --- shared ----------------------------------------------------------------------------------------------------


def shortened(answer: Shown, name: str, how: str) -> Shown:
    """Return the answer, where it is too long without the tail of its list `name` and with a note that says so.

    how: how to get the rest. A single entry that is too long by itself loses its citations.
    """
    if len(compact(answer).encode()) <= ANSWER_BYTES_MAX:
        return answer
    entries = items(answer[name])
    bytes_left = ANSWER_BYTES_MAX - NOTE_BYTES - len(compact(answer | {name: []}).encode())
    sizes = accumulate(len(compact(entry).encode()) + 1 for entry in entries)
    shown = entries[: sum(size <= bytes_left for size in sizes)]
    if not shown and isinstance(first := entries[0], dict):
        shown = [{key: value for key, value in first.items() if key != "citations"}]
    note = f"{len(shown)} of {len(entries)} {name} are shown, to stay under {ANSWER_BYTES_MAX} bytes; {how}"
    return answer | {name: shown, "notes": [*items(answer.get("notes")), note]}


def shortened_text(text: str, name: str) -> str:
    """Return the text, cut with a note where it is longer than the longest answer."""
    encoded = text.encode()
    if len(encoded) <= ANSWER_BYTES_MAX:
        return text
    head = encoded[: ANSWER_BYTES_MAX - NOTE_BYTES].decode("utf-8", "ignore")
    return f"{head}\n\n[cut at {ANSWER_BYTES_MAX} bytes; find_operations finds the passages of {name[:80]}]\n"


def _cut_after_quotation(text: str, most: int) -> str:
    head = text.encode()[: max(0, most // 2)].decode("utf-8", "ignore")  # escaping may double what JSON needs
    closing = f"</{FENCE_TAG}>"
    end = head.rfind(closing)
    return head[: end + len(closing)] if end >= 0 else head[: head.rfind("\n") + 1]


def _tag(tag: Tag) -> Shown:
    return {"name": tag.name, "weight": tag.weight}


def _scope(scope: Scope) -> dict[str, str]:
    parts = ("account", "project", "user", "agent", "conversation", "collection")
    return {name: value for name in parts if (value := getattr(scope, name))}

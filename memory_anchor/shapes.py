"""Domain value -> the JSON that tools, resources, HTTP and `--json` show. Pure.

Fields at their default are left out, instants are UTC ISO 8601 ending in Z, text is verbatim. An answer stays under
`ANSWER_BYTES_MAX`: lists lose their tail and a note says how to get the rest, since a client that cuts by itself shows
a two-kilobyte preview instead. Rejected: dumping the dataclasses, because their names and defaults are ours to change
and these are not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from memory_anchor.activation import DEFAULTS, ActivationSettings, strength_of
from memory_anchor.context.context import BuiltContext
from memory_anchor.identity import proposals
from memory_anchor.ingest.candidates import Candidate
from memory_anchor.ingest.profile import ProfileLine, told
from memory_anchor.ingest.remembering import Remembered
from memory_anchor.json_values import Json, Record, items, record, records, text, texts
from memory_anchor.knowledge.catalogue import SourceState
from memory_anchor.knowledge.points import PASSAGE_CITATION_KINDS
from memory_anchor.knowledge.search import OpenedCitation
from memory_anchor.knowledge.sources import Source
from memory_anchor.language.fences import FENCE_TAG
from memory_anchor.language.perspective import worded_for
from memory_anchor.lore import ScannedLore
from memory_anchor.model import (
    TRUST_OF_ORIGIN,
    Citation,
    Constitution,
    ContextCostReport,
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
    Visibility,
    WriteMode,
    WriteOutcome,
)

Shown = dict[str, Json]
"""A JSON object as front ends show it."""

ANSWER_BYTES_MAX = 99_000
"""Under the 100,000 bytes promised; some clients replace larger results by a preview."""
NOTE_BYTES = 400
SCORE_DIGITS = 3
AGE_IN_DAYS = timedelta(days=60)
"""Up to here a snippet's line tells its age, beyond it the day."""
BEFORE_CHARS = 80
CITATIONS_SHOWN = 3
"""Of one snippet: a digest cites every event it tells; `get_memory` has them all."""
_VERSIONS: ContextVar[Mapping[str, str]] = ContextVar("versions", default=MappingProxyType({}))


@contextmanager
def cited_with(versions: Mapping[str, str]) -> Iterator[None]:
    """Let every citation and cost report that is shaped in this block say these too; what one says itself stays."""
    token = _VERSIONS.set(versions)
    try:
        yield
    finally:
        _VERSIONS.reset(token)


def compact(answer: Mapping[str, Json]) -> str:
    """Return the answer as one line of JSON text, Chinese as it is."""
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def time_text(at: datetime, *, seconds: bool = False) -> str:
    """Return an instant as UTC ISO 8601 with Z; whole seconds where it is only shown, exact where it may be asked for.

    >>> time_text(datetime(2025, 12, 15, 12, 30, tzinfo=UTC))
    '2025-12-15T12:30:00Z'
    """
    exact = at.astimezone(UTC).replace(tzinfo=None)
    return f"{exact.isoformat(timespec='seconds' if seconds else 'auto')}Z"


# --- writes ----------------------------------------------------------------------------------------------------


def outcome(value: WriteOutcome) -> Shown:
    """Return {outcome, id, layer, status, reason, target_id?, similar?, redactions?}; id is null when rejected."""
    shaped: Shown = {
        "outcome": value.outcome.value,
        "id": value.id,
        "layer": value.layer.value,
        "status": value.status.value if value.status else None,
        "reason": value.reason,
    }
    if value.target_id:
        shaped["target_id"] = value.target_id
    if value.similar:
        shaped["similar"] = [
            {"id": one.id, "text": one.text, "score": round(one.score, SCORE_DIGITS)} for one in value.similar
        ]
    if value.redactions:
        shaped["redactions"] = list(value.redactions)
    return shaped


def outcomes(values: Sequence[WriteOutcome]) -> Shown:
    return shortened(
        {"outcomes": [outcome(one) for one in values]}, "outcomes", "everything was written; search_events shows it"
    )


def remembered(done: Sequence[Remembered], notes: Sequence[str]) -> Shown:
    """Return {outcomes: [WriteOutcome with its episode], notes?}."""
    shaped: Shown = {
        "outcomes": [
            outcome(one.outcome) | {"episode": {"number": one.episode, "start": one.start, "end": one.end}}
            for one in done
        ]
    }
    if notes:
        shaped["notes"] = list(notes)
    return shortened(shaped, "outcomes", "everything was written; search_memory finds it")


def candidate(value: Candidate) -> Shown:
    """Return what a conversation would be remembered by, before anything is written."""
    return {
        "key": value.key,
        "content": value.content,
        "type": value.type.value,
        "about": value.about,
        "importance": value.importance,
        "confidence": value.confidence,
        "message": value.seq,
    }


def proposal(value: Proposal) -> Shown:
    """Return {proposal_id, status, confirmations, required, how_to_approve, ...}."""
    return {name: inner for name, inner in proposals.answer(value).items() if inner is not None}


# --- memories --------------------------------------------------------------------------------------------------


def memory(value: Memory, *, now: datetime, reader: Scope, activation: ActivationSettings = DEFAULTS) -> Shown:
    """Return a Memory, or an Event when it is one; `strength` is 0 to 100 at `now`, as `activation` counts it."""
    shaped: Shown = {
        "id": value.id,
        "key": value.key,
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
    if not value.key:
        del shaped["key"]
    return shaped | _uncommon(value, reader)


def event(value: Memory, *, reader: Scope) -> Shown:
    """Return an Event of a list, with nothing that most events have alike."""
    shaped: Shown = {
        "id": value.id,
        "key": value.key,
        "content": worded_for(value, reader),
        "layer": value.layer.value,
        "type": value.type.value,
        "when": time_text(value.happened_at),
    }
    if not value.key:
        del shaped["key"]
    if value.status is not Status.ACTIVE:
        shaped["status"] = value.status.value
    if TRUST_OF_ORIGIN[value.origin] is not Trust.AGENT:
        shaped["origin"] = value.origin.value
    return shaped | _uncommon(value, reader)


def _uncommon(value: Memory, reader: Scope) -> Shown:
    """Return the fields that differ from their default."""
    found: Shown = {
        "tags": [_tag(one) for one in value.tags],
        "priority": value.priority if value.priority != 50 else None,
        "sentiment": value.sentiment,
        "write_mode": value.write_mode.value if value.write_mode is not WriteMode.TOOL_CALL else None,
        "extractor_model": value.extractor_model,
        "visibility": value.visibility.value if value.visibility is not Visibility.PROJECT else None,
        "pinned": value.pinned or None,
        "epistemic": value.epistemic.value if value.epistemic else None,
        "previous_version_id": value.previous_version_id,
        "first_recorded_at": _time(value.first_recorded_at) if value.version > 1 else None,
        "access_count": value.usage.count or None,
        "last_accessed_at": _time(value.usage.last_at),
        "valid_to": _time(value.valid_to),
        "recorded_to": _time(value.recorded_to),
        "conversation_seq": value.conversation_seq,
        "decay": {"half_life_days": value.half_life_days} if value.half_life_days else None,
        "gap": _gap(value.gap),
        "written_at": _time(value.content_at) if value.content_at and value.version == 1 else None,
        "where": value.where,
        "who": list(value.who),
        "ttl_days": value.ttl_days,
        "expires_at": _time(value.expires_at),
        "promoted_to": value.promoted_to,
        "disputes": list(value.disputes),
        "citations": [citation(one, reader=reader) for one in value.citations],
    }
    return {name: inner for name, inner in found.items() if inner is not None and inner != []}


def profile(lines: Sequence[ProfileLine]) -> Shown:
    """Return {text, lines}: the page, and each line with its page, section and the fact it cites."""
    return {"text": told(lines), "lines": [asdict(line) for line in lines]}


def _gap(value: Mapping[str, Json] | None) -> Shown | None:
    """Return the kind and size of what deviated from what was expected, and what that was."""
    if not value or not value.get("predicted"):
        return None
    return {name: value[name] for name in ("type", "importance", "predicted") if name in value}


def with_history(
    current: Shown,
    versions: Sequence[Memory],
    *,
    now: datetime,
    reader: Scope,
    activation: ActivationSettings = DEFAULTS,
) -> Shown:
    """Return a Memory with `versions`, oldest first; the newest ones when not all fit."""
    told = [memory(one, now=now, reader=reader, activation=activation) for one in reversed(versions)]
    shaped = shortened(current | {"versions": told}, "versions", "the newest; `memory-anchor history` has all")
    return shaped | {"versions": items(shaped["versions"])[::-1]}


def events(values: Sequence[Memory], *, reader: Scope) -> Shown:
    return shortened(
        {"events": [event(one, reader=reader) for one in values]}, "events", "ask again with a shorter time range"
    )


# --- recall ----------------------------------------------------------------------------------------------------


def search_answer(value: SearchAnswer, *, reader: Scope) -> Shown:
    """Return {snippets, conflicts?, notes?}: strong ones first; `weak` marks what may be beside the point."""
    shaped: Shown = {"snippets": [snippet(one, reader=reader) for one in value.snippets]}
    if value.conflicts:
        shaped["conflicts"] = [list(pair) for pair in value.conflicts]
    if value.notes:
        shaped["notes"] = list(value.notes)
    return shortened(shaped, "snippets", "ask again with a smaller limit or a narrower query")


def snippet(value: RetrievedSnippet, *, reader: Scope) -> Shown:
    """Return a RetrievedSnippet; `text` is the memory's content, whole, behind its speaker's name where it has one.

    What most have alike goes unsaid: weights of 1, the trust and origin `agent`, a vivid strength; an agent's memory
    that names its sources does not cite itself.
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
        shaped["tags"] = [_tag(one) if one.weight != 1 else {"name": one.name} for one in value.tags]
    if value.status is not Status.ACTIVE:
        shaped["status"] = value.status.value
    if value.origin is not Origin.AGENT:
        shaped["origin"] = value.origin.value
    if value.strength != "vivid":
        shaped["strength"] = value.strength
    sources = [one for one in value.citations if one.ref != value.id or one.trust is not Trust.AGENT]
    if value.citations:
        shown = (sources or value.citations)[:CITATIONS_SHOWN]
        shaped["citations"] = [_cited(one, value, reader) for one in shown]
    if value.before:
        shaped["before"] = value.before
    if value.linked:
        shaped["linked"] = value.linked
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
    """Return a search's answer for a reader that pays for each word: no snippet cites itself where that tells nothing.

    What stays is what others rely on by name. Whoever needs a citation of a memory that has none makes it of its id.
    """
    own, snippets = (("kind", "ref"), ("kind", "ref", "trust")), list[Json]()
    for one in records(answer["snippets"]):
        trust = TRUST_OF_ORIGIN[Origin(text(one.get("origin"), Origin.AGENT.value))].value
        cited: list[Json] = [
            told
            for told in records(one.get("citations"))
            if told["ref"] != one["id"] or tuple(told) not in own or told.get("trust", trust) != trust
        ]
        rest = {name: value for name, value in one.items() if name != "citations"}
        snippets.append(rest | ({"citations": cited} if cited else {}))
    return {**answer, "snippets": snippets}


def lines(answer: Mapping[str, Json], *, now: datetime) -> str:
    """Return a search's answer as plain lines: id, age, who wrote it and how far that is trusted, then the text whole.

    The structured form has the rest; an agent that reads the text pays for these few words alone.
    """
    told = []
    for one in records(answer["snippets"]):
        when, before = text(one.get("when"), ""), text(one.get("before"), "")
        about = [text(one["id"]), _age(when, now), *_author(one), _place_of(one)]
        joined = f"linked: {one['linked']}" if one.get("linked") else "weak" if one.get("weak") else ""
        about += [text(one.get("status"), ""), joined]
        stale = {text(cited.get("freshness"), "fresh") for cited in records(one.get("citations"))} - {"fresh"}
        was = f" (since {when[:10]}; before: {_short(before)})" if before else ""
        told.append(f"[{' '.join(filter(None, (*about, *sorted(stale))))}] {text(one['text'])}{was}")
        if near := record(one.get("beside")):
            first, last = items(near["lines"])
            told.append(f"[{near['side']} it, {near['ref']}:{first}-{last}] {near['text']}")
    told += [f"{one} and {other} contradict each other." for one, other in map(texts, items(answer.get("conflicts")))]
    return "\n".join([*told, *(f"Note: {note}" for note in items(answer.get("notes")))]) or "Nothing is remembered."


def _author(one: Record) -> list[str]:
    """Return who wrote a snippet where it was not an agent, and its trust where that does not follow."""
    trusts = {text(cited["trust"]) for cited in records(one.get("citations")) if "trust" in cited}
    origin = Origin(text(one.get("origin"), Origin.AGENT.value))
    return [origin.value, *sorted(trusts - {TRUST_OF_ORIGIN[origin].value})]


def _place_of(one: Record) -> str:
    """Return where a passage of a document or a commit stands; "" for a memory."""
    cited = next(iter(records(one.get("citations"))), {})
    if one["layer"] != Layer.OPERATIONAL_KNOWLEDGE.value or cited.get("kind") not in PASSAGE_CITATION_KINDS:
        return ""
    place = record(cited.get("locator"))
    lines = f":{place['line_start']}-{place['line_end']}" if "line_start" in place else ""
    return f"{_short(text(cited['ref']))}{lines}"


def _age(when: str, now: datetime) -> str:
    """Return how long ago an instant was in hours or days, the day itself where that is long or to come.

    >>> _age("2025-12-15T09:00:00Z", datetime(2025, 12, 15, 12, tzinfo=UTC))
    '3h'
    """
    if not when:
        return ""
    ago = now - datetime.fromisoformat(when)
    if not timedelta() <= ago < AGE_IN_DAYS:
        return when[:10]
    return f"{ago.days}d" if ago.days else f"{ago.seconds // 3600}h"


def _short(text: str) -> str:
    return text if len(text) <= BEFORE_CHARS else f"{text[:BEFORE_CHARS]}…"


def _cited(cited: Citation, of: RetrievedSnippet, reader: Scope) -> Shown:
    """Return a citation without what the snippet says itself."""
    shaped = citation(replace(cited, observed_at=None) if cited.observed_at == of.when else cited, reader=reader)
    if cited.trust is Trust.AGENT:
        del shaped["trust"]
    return shaped


def citation(value: Citation, *, reader: Scope) -> Shown:
    """Return a Citation. Its scope says only where it differs from the reader's."""
    shaped: Shown = {"kind": value.kind, "ref": value.ref}
    if value.title:
        shaped["title"] = value.title
    locator = {
        name: inner
        for name in ("line_start", "line_end", "sha", "chunk_index", "page", "heading")
        if (inner := getattr(value.locator, name)) not in (None, ())
    }
    if locator:
        shaped["locator"] = locator
    if value.scope is not None:
        elsewhere = {name: inner for name, inner in _scope(value.scope).items() if inner != getattr(reader, name)}
        shaped |= {"scope": elsewhere} if elsewhere else {}
    if value.observed_at is not None:
        shaped["observed_at"] = time_text(value.observed_at, seconds=True)
    shaped["trust"] = value.trust.value
    own = {name: inner for name in ("freshness", "variant", "index_version") if (inner := getattr(value, name))}
    if versions := dict(_VERSIONS.get()):
        # What names itself in `variant` is how passages are ranked: beside a request's variant, that is its algorithm.
        versions |= {"algo_version": ranked} if (ranked := own.pop("variant", "")) else {}
    return shaped | versions | own


def operations(values: Sequence[OperationPassage]) -> Shown:
    """Return {operations: [{name, path, title, text, score}]}."""
    found: list[Shown] = [
        {"name": one.name, "path": one.path, "title": one.title, "text": one.text, "score": one.score} for one in values
    ]
    return shortened({"operations": found}, "operations", "read the file at `path` for the rest")


def scanned_lore(value: ScannedLore, *, reader: Scope) -> Shown:
    """Return {snippets, report}: each snippet with where it stands."""
    placed = zip(value["snippets"], value["places"], strict=True)
    return {"snippets": [snippet(one, reader=reader) | place for one, place in placed], "report": value["report"]}


def knowledge_source(value: Source) -> Shown:
    return {"id": value.id, "kind": value.kind.value, "ref": value.ref, "trust": value.trust.value}


def knowledge_sources(values: Sequence[SourceState], *, unembedded: int, now: datetime) -> Shown:
    """Return {sources: [{id, kind, ref, trust, documents, passages, ...}], unembedded?}."""
    told: list[Shown] = []
    for one in values:
        more: Shown = {"waiting": one.waiting, "synced_at": one.synced_at, "left_out": dict(one.counted)}
        more |= {"skipped": list(one.skipped), "wrong": one.error}
        more["reading"] = one.reading.summary(now) if one.reading is not None else None
        counts = {"documents": one.documents, "passages": one.passages}
        told.append(knowledge_source(one.source) | counts | {name: inner for name, inner in more.items() if inner})
    shaped: Shown = {"sources": told}
    return shortened(shaped | ({"unembedded": unembedded} if unembedded else {}), "sources", "see `--json`")


def knowledge_opened(value: OpenedCitation, *, reader: Scope) -> Shown:
    """Return {id, standing, text, source, trust, scope, mime?, lines?, around?, diff?, beside?, citations}: untrusted
    text is somebody else's words."""
    shaped: Shown = {"id": value.id, "standing": value.freshness, "text": value.text}
    of = value.source
    shaped |= {"source": {"id": of.id, "kind": of.kind.value, "ref": of.ref}, "trust": of.trust.value}
    shaped["scope"] = of.visibility.value
    shaped |= {name: inner for name in ("mime", "around", "diff") if (inner := getattr(value, name))}
    if value.lines:
        shaped["lines"] = list(value.lines)
    if value.beside is not None:
        shaped["beside"] = dict(value.beside)
    return shaped | {"citations": [citation(one, reader=reader) for one in value.citations]}


def constitution(value: Constitution) -> Shown:
    """Return {entries, version, tokens, warnings}: L0 whole, as long as it is no longer than an answer may be."""
    answer: Shown = {
        "entries": [
            {"id": one.id, "content": one.content, "priority": one.priority, "source": one.source}
            for one in value.entries
        ],
        "version": value.version,
        "tokens": value.tokens,
        "warnings": list(value.warnings),
    }
    told = shortened(answer, "entries", "a human reads all with `memory-anchor constitution show`")
    return told | {"warnings": [*value.warnings, *items(told.pop("notes", None))]}


def active(values: Mapping[str, tuple[Json, datetime]], *, now: datetime) -> Shown:
    """Return {values: {key: value}, expires_in_s: {key: seconds}}."""
    kept = {key: value for key, (value, _) in values.items()}
    left = {key: max(0, round((expires_at - now).total_seconds())) for key, (_, expires_at) in values.items()}
    if len(compact({"values": kept}).encode()) <= ANSWER_BYTES_MAX - NOTE_BYTES - len(compact(left).encode()):
        return {"values": kept, "expires_in_s": left}
    return {
        "values": {},
        "expires_in_s": left,
        "notes": [f"{len(kept)} values exceed {ANSWER_BYTES_MAX} bytes; ask for one by its key"],
    }


# --- context ---------------------------------------------------------------------------------------------------


def built_context(value: BuiltContext, *, reader: Scope) -> Shown:
    """Return {text, report, citations, report_id?, notes?}; a text too long ends after a whole quotation."""
    told = report(value.report, reader=reader)
    shaped: Shown = {
        "text": value.text,
        "report": {name: part for name, part in told.items() if name != "citations"},  # they stand beside it
        "citations": [citation(one, reader=reader) for one in value.citations],
    }
    if value.report_id:
        shaped["report_id"] = value.report_id
    notes = list(value.notes)
    shaped |= {"notes": notes} if notes else {}
    room = ANSWER_BYTES_MAX - NOTE_BYTES - len(compact(shaped | {"text": "", "citations": []}).encode())
    if len(_encoded(value.text)) > room:
        shaped["text"] = _cut_after_quotation(value.text, room)
        shaped["notes"] = [*notes, "the text was cut; ask again with a smaller budget_tokens"]
    return shortened(shaped, "citations", "the memories' ids stand in the text")


def report(value: ContextCostReport, *, reader: Scope) -> Shown:
    """Return a ContextCostReport."""
    shaped: Shown = {
        "context_window_tokens": value.context_window_tokens,
        "reserved_output_tokens": value.reserved_output_tokens,
        "estimated_tokens": dict(value.estimated_tokens),
        "sections": [{"name": one.name, "part": one.part, "tokens": one.tokens} for one in value.sections],
        "decisions": [dict(one) for one in value.decisions],
        "citations": [citation(one, reader=reader) for one in value.citations],
        "stage_ms": dict(value.stage_ms),
        "cache": dict(value.cache),
        "variant": value.variant,
    }
    return shaped | dict(_VERSIONS.get())


# --- shared ----------------------------------------------------------------------------------------------------


def shortened(answer: Shown, name: str, how: str) -> Shown:
    """Return the answer with the tail of its list `name` left out where it is too long, and a note saying so.

    how: the way to get the rest. A single entry that is too long by itself loses its citations.
    """
    if len(compact(answer).encode()) <= ANSWER_BYTES_MAX:
        return answer
    whole = items(answer[name])
    room = ANSWER_BYTES_MAX - NOTE_BYTES - len(compact(answer | {name: []}).encode())
    kept: list[Json] = []
    for one in whole:
        room -= len(_encoded(one)) + 1
        if room < 0:
            break
        kept.append(one)
    if not kept and isinstance(first := whole[0], dict):
        kept = [{key: value for key, value in first.items() if key != "citations"}]
    note = f"{len(kept)} of {len(whole)} {name} are shown, to stay under {ANSWER_BYTES_MAX} bytes; {how}"
    return answer | {name: kept, "notes": [*items(answer.get("notes")), note]}


def shortened_text(text: str, name: str) -> str:
    """Return the text, cut with a note where it is longer than an answer may be."""
    encoded = text.encode()
    if len(encoded) <= ANSWER_BYTES_MAX:
        return text
    head = encoded[: ANSWER_BYTES_MAX - NOTE_BYTES].decode("utf-8", "ignore")
    return f"{head}\n\n[cut at {ANSWER_BYTES_MAX} bytes; find_operations finds the passages of {name[:80]}]\n"


def _encoded(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _cut_after_quotation(text: str, room: int) -> str:
    head = text.encode()[: max(0, room // 2)].decode("utf-8", "ignore")  # escaping may double what JSON needs
    closing = f"</{FENCE_TAG}>"
    end = head.rfind(closing)
    return head[: end + len(closing)] if end >= 0 else head[: head.rfind("\n") + 1]


def _time(at: datetime | None) -> str | None:
    return time_text(at) if at is not None else None


def _tag(tag: Tag) -> Shown:
    return {"name": tag.name, "weight": tag.weight}


def _scope(scope: Scope) -> dict[str, str]:
    parts = ("account", "project", "user", "agent", "conversation", "collection")
    return {name: value for name in parts if (value := getattr(scope, name))}

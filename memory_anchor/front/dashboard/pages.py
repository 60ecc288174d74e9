"""What each page shows: the calls it asks and what of their answers it takes. No rule of memory is decided here.

A page's function gets what the address says and returns the names its template uses. Calls are those of the command
line, made as an agent of this project makes them: a page reads what such an agent may read, and never more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from memory_anchor.activation import strength_word
from memory_anchor.errors import BadInput, MemoryAnchorError
from memory_anchor.front.cli.care import stamps
from memory_anchor.front.cli.review import word_diff
from memory_anchor.front.dashboard import deeds, said
from memory_anchor.front.dashboard.said import Words
from memory_anchor.json_values import Json, Record, items, number, record, records, text, whole
from memory_anchor.language.fences import FENCE_TAG
from memory_anchor.language.tokens import estimate_tokens
from memory_anchor.model import FOUND_STATES

Asked = Mapping[str, str]
Page = Mapping[str, object]
"""What a template is filled with: answers of calls, and what is made of them here."""
INBOX_SHOWN = 20
CHANGES_SHOWN = 12
SEARCH_LIMITS = (5, 10, 20, 50)
TIMELINE_LIMITS = (100, 300, 1_000)
SIFTED_HERE = ("agent", "strength", "day", "written", "changed")
"""Filters of the timeline that no call has: what was read is sifted by them here. written: `DAY` or `DAY..DAY` of the
first writing, in UTC as figures are counted; changed: after this instant."""
TIMELINE_FILTERS = ("layer", "type", "status", *SIFTED_HERE, "limit")
LAYERS = ("verified_fact", "event_log")
TYPES = (
    *("decision", "bugfix", "refactor", "preference", "fact", "instruction", "workflow", "project_state", "bookmark"),
    *("event", "discovery", "note", "emotion", "episode", "summary"),
)
STATUSES = ("live", "active", "pending", "disputed", "superseded", "archived")
LISTED: Mapping[str, tuple[str | None, ...]] = {
    "": (None, "superseded", "archived"),
    "live": tuple(sorted(FOUND_STATES)),
}
"""What of a filter's states is asked for; any other is one of memory's own. live: what a plain search finds."""
STRENGTHS = ("vivid", "fading", "faded")
NAMED_MAX = 20
"""Citations of memories whose text is shown in the place of an id."""
FORECAST_DAYS = (0, 3, 7, 14, 21, 30, 45, 60, 90, 120, 150, 180)
CONTEXT_TASK = "what was done last, what is open, what was decided"
REPORTS_READ = 30


def pulse(newest: Sequence[Record]) -> Page:
    """Return whether memory works, as one state and the sentences about it. newest: what was written last."""
    engine, key, pause, failure = deeds.wake(), deeds.key(), deeds.paused(), deeds.saving()
    last = max((str(one["recorded_at"]) for one in newest), default="")
    state = "unsaved" if failure else "bad" if key["warning"] else "paused" if pause else "good"
    told = [one for one in (failure, key["warning"]) if one]
    return {"state": state, "engine": engine, "key": key, "pause": pause, "last": last, "wrong": told}


def inbox(seen: str, kept: Asked | None = None) -> Page:
    """Return what waits and what changed. kept: the fields of a form that was not carried out, shown again.

    A choice is shown again only for the very version it was made for.
    """
    answer = deeds.ask("inbox", limit=INBOX_SHOWN + 1)
    waiting = [_waiting(one, kept or {}) for one in records(answer["items"])]
    newest, law = _newest(), deeds.constitution()
    changed = [one for one in newest if not seen or said.instant(text(one["recorded_at"])) > said.instant(seen)]
    proposals = [
        {**one, "lines": said.proposal_diff(text(one["diff"])), "author": _author(text(one["proposed_by"]))}
        for one in records(law["proposals"])
    ]
    return {
        "items": waiting[:INBOX_SHOWN],
        "more": len(waiting) > INBOX_SHOWN,
        "law": {**law, "proposals": proposals},
        "pulse": pulse(newest),
        "changed": changed[:CHANGES_SHOWN],
        "changed_more": len(changed) > CHANGES_SHOWN,
        "seen_at": seen,
        "gate": answer["passes_at"],
    }


def _author(by: str) -> tuple[str, str]:
    """Return what an author is, and the name: ("agent", "codex")."""
    kind, _, name = by.partition(":")
    return kind, name


def _waiting(item: Record, kept: Asked) -> Page:
    memory = record(item["memory"])
    name, seen = memory["id"], stamps([memory, *records(item["against"])])
    same = kept.get(f"seen.{name}", "") == " ".join(seen)
    return {
        **item,
        "seen": " ".join(seen),
        "choice": kept.get(f"choice.{name}", "") if same else "",
        "text": kept.get(f"text.{name}", memory["content"]) if same else memory["content"],
        "moved": bool(kept.get(f"choice.{name}")) and not same,
        "why": _why(item),
    }


def _why(item: Record) -> str:
    """Return the key of the sentence that says why a memory waits."""
    memory = record(item["memory"])
    if item["against"]:
        return "why.conflict_human" if item["needs_human"] else "why.conflict"
    if memory.get("visibility") == "account":
        return "why.account"
    if memory["origin"] == "document":
        return "why.document"
    return "why.extracted" if memory["origin"] == "extracted" else "why.doubt"


def _newest() -> list[Record]:
    """Return the memories written or ended last, newest first."""
    found: list[Record] = []
    for status in (None, "superseded", "archived"):
        found += records(deeds.ask("list", status=status, limit=CHANGES_SHOWN + 1)["memories"])
    return sorted(found, key=lambda one: str(one["recorded_at"]), reverse=True)


def search(asked: Asked, _: Words) -> Page:
    """Return the answer to a query as an agent gets it, with what each channel added."""
    query = asked.get("q", "").strip()
    form = {name: asked.get(name, "") for name in ("layer", "type", "as_of", "limit", "pending", "why")}
    shown: Page = {"query": query, "form": form, "layers": LAYERS, "types": TYPES, "limits": SEARCH_LIMITS}
    if not query:
        return {**shown, "answer": None}
    answer = deeds.ask(
        "search",
        query=query,
        layers=[form["layer"]] if form["layer"] else None,
        types=[form["type"]] if form["type"] else None,
        as_of=form["as_of"] or None,
        limit=int(form["limit"]) if form["limit"].isdecimal() else None,
        include_pending=bool(form["pending"]),
        detail=True,
    )
    found = records(answer["snippets"])
    tokens = [estimate_tokens(text(one["text"])) for one in found]
    snippets = [
        {**one, "parts": _parts(record(one.get("signals"))), "tokens": cost}
        for one, cost in zip(found, tokens, strict=True)
    ]
    why: Record = {}
    if form["why"]:
        try:
            why = deeds.ask("why_not", id=form["why"].strip(), query=query)
        except MemoryAnchorError as error:
            why = {"id": form["why"], "reason": str(error)}
    texts = {text(one["id"]): one["text"] for one in found}
    return {**shown, "answer": {**answer, "snippets": snippets}, "tokens": sum(tokens), "why": why, "texts": texts}


def _parts(signals: Record) -> list[tuple[str, float, Record]]:
    """Return what each part added to a score, the greatest first: (name, added, all that is known of it)."""
    found: list[tuple[str, float, Record]] = []
    for name, one in signals.items():
        if isinstance(one, dict):
            found.append((name, number(one.get("added", 0.0)), one))
        elif name not in ("coverage", "relevance") and one:
            found.append((name, number(one), {}))
    return sorted(found, key=lambda part: -abs(part[1]))


def timeline(asked: Asked, words: Words) -> Page:
    """Return what was written by day and conversation, with what took whose place."""
    form = {name: asked.get(name, "") for name in TIMELINE_FILTERS}
    limit = int(form["limit"]) if form["limit"] in map(str, TIMELINE_LIMITS) else TIMELINE_LIMITS[0]
    if any(form[name] for name in SIFTED_HERE):
        limit = max(limit, TIMELINE_LIMITS[-1])
    layer, kind = form["layer"] or None, form["type"] or None
    wanted = LISTED.get(form["status"], (form["status"],))
    read = [
        one
        for status in wanted
        for one in records(deeds.ask("list", status=status, limit=limit, layer=layer, type=kind)["memories"])
    ]
    read.sort(key=lambda one: str(one.get("when") or one["recorded_at"]), reverse=True)
    agents = sorted({str(record(one["scope"]).get("agent", "")) for one in read} - {""})
    gone = {one["id"]: one for one in read if one["status"] == "superseded"}
    shown: list[Record] = []
    for one in [one for one in read if _fits(one, form, words)]:
        earlier = str(one.get("previous_version_id", "")).partition("@")[0]
        shown.append({**one, "replaced": gone.get(earlier) if earlier != one["id"] else None})
    return {
        "days": said.by_day(shown[:limit], words),
        "count": len(shown),
        "form": form,
        "agents": agents,
        "layers": LAYERS,
        "types": TYPES,
        "statuses": STATUSES,
        "strengths": STRENGTHS,
        "limits": TIMELINE_LIMITS,
        "limit": limit,
        "cut": len(read) >= limit,
    }


def _fits(one: Record, form: Asked, words: Words) -> bool:
    first, _, last = form["written"].partition("..")
    return (
        form["strength"] in ("", strength_word(number(one["strength"])))
        and (not first or first <= str(one.get("first_recorded_at", one["recorded_at"]))[:10] <= (last or first))
        and (not form["changed"] or said.instant(text(one["recorded_at"])) > _asked_instant(form["changed"]))
        and form["agent"] in ("", record(one["scope"]).get("agent"))
        and form["day"] in ("", words.day(str(one.get("when") or one["recorded_at"])))
    )


def _asked_instant(text: str) -> datetime:
    try:
        return said.instant(text)
    except ValueError:
        raise BadInput(f"changed is {text[:40]!r}; allowed is an instant such as 2026-11-23T08:00:00+00:00") from None


def memory(name: str, words: Words) -> Page:
    """Return one memory with every version, its citations, its links and how it fades. Raises NotFound."""
    shown = record(deeds.ask("show", id=name)["memory"])
    read = records(deeds.ask("history", id=shown["id"])["steps"])
    steps: list[Page] = []
    for before, step in zip([None, *read], read, strict=False):
        content = text(step["content"])
        old = text(before["content"]) if before is not None else content
        parts = word_diff(old, content) if before is not None else [("same", content)]
        steps.append({**step, "parts": parts, "author": _author(text(step["by"])), "reworded": old != content})
    return {
        "memory": {**shown, "citations": _named(records(shown.get("citations")))},
        "steps": steps[::-1],
        "fades": _fades(text(shown["id"]), words),
        "seen": stamps([shown])[0],
    }


def _named(citations: Sequence[Record]) -> list[Record]:
    """Return citations, those of memories with the text of what they cite, where this reader may see it."""
    named, left = [], NAMED_MAX
    for one in citations:
        title = one.get("title")
        if one["kind"] in ("memory_entry", "event") and left:
            left -= 1
            with contextlib.suppress(MemoryAnchorError):
                title = record(deeds.ask("show", id=text(one["ref"]).partition("@")[0])["memory"])["content"]
        named.append({**one, "title": title} if title is not None else one)
    return named


def _fades(name: str, words: Words) -> list[tuple[int, int]]:
    """Return (days from now, strength then if nobody uses it), as the jobs will see it."""
    found = []
    for days in FORECAST_DAYS:
        then = (words.now + timedelta(days=days)).isoformat()
        found.append((days, whole(records(deeds.ask("history", id=name, at=then)["versions"])[-1]["strength"])))
    return found


def context(asked: Asked, _: Words) -> Page:
    """Return what an agent would be given for a task now, block by block, with what it cost and what was left out."""
    task, budget = asked.get("task", "").strip(), asked.get("budget", "")
    built = deeds.ask("context", task=task or CONTEXT_TASK, budget_tokens=int(budget) if budget.isdecimal() else None)
    blocks: list[list[str]] = [["", ""]]
    quoted = False
    for line in text(built["text"]).splitlines():
        quoted = (quoted or line.startswith(f"<{FENCE_TAG}")) and not line.endswith(f"</{FENCE_TAG}>")
        if line.startswith("# ") and not quoted:
            blocks.append([line[2:], ""])
        else:
            blocks[-1][1] += f"{line}\n"
    built = {**built, "citations": _named(records(built.get("citations")))}
    earlier = deeds.ask("context_reports")["reports"]
    return {
        "task": task,
        "budget": budget,
        "built": built,
        "blocks": [(title, text.strip()) for title, text in blocks if text.strip()],
        "report": built["report"],
        "earlier": items(earlier)[:REPORTS_READ],
        "law": deeds.constitution(),
    }


def report(name: str) -> Page:
    """Return what an earlier context cost and why."""
    kept = deeds.ask("context_report", id=name)
    told = record(kept["report"])
    return {**kept, "report": {**told, "citations": _named(records(told.get("citations")))}}


def knowledge(_: Asked, __: Words) -> Page:
    """Return the sources of knowledge and how far each is read, and the lorebooks with their last scan."""
    return {
        **deeds.ask("knowledge_sources"),
        "books": deeds.ask("lorebook_list")["books"],
        "scan": _last_scan(),
    }


def _last_scan() -> Record | None:
    try:
        return deeds.ask("lorebook_report")
    except MemoryAnchorError:
        return None


def health(_: Asked, __: Words) -> Page:
    """Return how the machinery is: engine, pause, key, jobs, backups, sizes."""
    return {
        "pulse": pulse(_newest()),
        "stats": deeds.ask("stats"),
        "jobs": deeds.ask("jobs_list"),
        "backups": deeds.backups(),
    }


def use(_: Asked, words: Words) -> Page:
    """Return what memory is used for: writes and recalls a day, what was heeded, what contexts cost."""
    stats = deeds.ask("stats")
    rows = days_of(stats, words)
    return {
        "stats": stats,
        "days": rows,
        "span": f"{rows[0][0]}..{rows[-1][0]}",
        "heeded": deeds.ask("stats", heeded=True)["heeded"],
        "contexts": [_cost(one) for one in records(deeds.ask("context_reports")["reports"])[:REPORTS_READ]],
    }


def days_of(stats: Record, words: Words) -> list[tuple[str, Json, Json]]:
    """Return the last days, each with how often memory was written and recalled."""
    today, writes = words.now.date(), items(stats["writes_per_day"])
    days = [(today - timedelta(days=back)).isoformat() for back in reversed(range(len(writes)))]
    return list(zip(days, writes, items(stats["recalls_per_day"]), strict=False))


def _cost(kept: Record) -> Record:
    report = record(deeds.ask("context_report", id=kept["id"])["report"])
    tokens, ms = record(report["estimated_tokens"]), sum(map(number, record(report["stage_ms"]).values()))
    return {**kept, "tokens": tokens["total"], "memory": tokens["memory_knowledge"], "ms": ms}

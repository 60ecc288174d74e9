"""The content of each page: its calls and the parts of their answers that it shows. No rule of memory is decided here.

A page's function gets the address's query and returns its template's variables. Calls are those of the command line,
made as an agent of this project: a page reads what such an agent may read, and never more.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import get_args

from memory_anchor.base.json_values import Json, Record, items, number, record, records, text, whole
from memory_anchor.base.lines import text_lines
from memory_anchor.domain.activation import strength_word
from memory_anchor.domain.errors import BadInput, MemoryAnchorError
from memory_anchor.domain.model import SEARCHABLE_STATES
from memory_anchor.extensions.dashboard import actions, pictures, wording
from memory_anchor.extensions.dashboard.requests import Moment
from memory_anchor.extensions.dashboard.wording import Words
from memory_anchor.front.cli.review import GROUPED_BY, group_of, version_stamps, word_diff
from memory_anchor.language.fences import FENCE_TAG
from memory_anchor.language.tokens import estimate_tokens

Query = Mapping[str, str]
Page = Mapping[str, object]
"""A template's variables."""
INBOX_SHOWN = 20
GROUPED_MAX = 1_000
"""Items, the oldest, that are put into groups at once."""
PAGE_DIGITS = 7
STRIP_DAYS, STRIP_DAYS_MIN = 60, 14
CHANGES_SHOWN = 12
SEARCH_LIMITS = (5, 10, 20, 50)
TIMELINE_LIMITS = (100, 300, 1_000)
OWN_FILTERS = ("agent", "person", "strength", "day", "written", "changed")
"""Filters of the timeline that no call has; they are applied here. written: `DAY` or `DAY..DAY` of the first version,
in UTC as in the statistics; changed: after this instant."""
TIMELINE_FILTERS = ("layer", "type", "status", "tag", *OWN_FILTERS, "limit")
LAYERS = ("verified_fact", "event_log")
TYPES = (
    *("decision", "bugfix", "refactor", "preference", "fact", "instruction", "workflow", "project_state", "bookmark"),
    *("event", "discovery", "note", "emotion", "episode", "summary"),
)
STATUSES = ("live", "active", "pending", "disputed", "superseded", "archived")
LISTED: Mapping[str, tuple[str | None, ...]] = {
    "": (None, "superseded", "archived"),
    "live": tuple(sorted(SEARCHABLE_STATES)),
}
"""The statuses that a filter's value reads; any other value is a status. live: those that a plain search finds."""
STRENGTHS = ("vivid", "fading", "faded")
FOR_ANOTHER = ("superseded by", "disputed by", "merged into")
CHAIN_MAX = 12
"""Memories that are looked up after one, and drawn of a chain, the newest."""
NAMED_MAX = 20
"""Citations of memories that are shown with their text instead of an id."""
FORECAST_DAYS = (0, 3, 7, 14, 21, 30, 45, 60, 90, 120, 150, 180)
CONTEXT_TASK = "what was done last, what is open, what was decided"
REPORTS_READ = 30
MOMENTS = get_args(Moment)
SESSIONS_SHOWN, SESSIONS_FOUND = 100, 10


def pulse(newest: Sequence[Record]) -> Page:
    """Return whether memory works, as one state and its messages. newest: the memories written last."""
    engine, key, pause, failure = actions.wake(), actions.key(), actions.paused(), actions.saving()
    last = max((str(memory["recorded_at"]) for memory in newest), default="")
    state = "unsaved" if failure else "bad" if key["warning"] else "paused" if pause else "good"
    wrong = list(filter(None, (failure, key["warning"])))
    return {"state": state, "engine": engine, "key": key, "pause": pause, "last": last, "wrong": wrong}


def inbox(query: Query, seen: str, words: Words, form: Query | None = None) -> Page:
    """Return what waits and what changed. form: fields of a form that was not carried out, shown again.

    What waits stands one by one, a page of `INBOX_SHOWN`, or, with `by`, in groups that are decided as a whole. A
    choice is shown again only for the version it was made for.
    """
    by, group, page = query.get("by", ""), query.get("group"), _page_number(query)
    by = by if by in GROUPED_BY else ""
    grouped = bool(by) and group is None
    if by:
        answer = actions.ask("inbox", limit=GROUPED_MAX)
        found = [item for item in records(answer["items"]) if group is None or group_of(item, by) == group]
        count = whole(answer["total"]) if group is None else len(found)
    else:
        answer = actions.ask("inbox", limit=INBOX_SHOWN, offset=(page - 1) * INBOX_SHOWN)
        found, count = records(answer["items"]), whole(answer["total"])
    single = _contradictions(found) if grouped else found
    first = (page - 1) * INBOX_SHOWN if by and not grouped else 0
    newest, law = _newest(), actions.constitution()
    changed = [one for one in newest if not seen or wording.instant(text(one["recorded_at"])) > wording.instant(seen)]
    proposals = [
        {**one, "lines": wording.proposal_diff(text(one["diff"])), "author": _author(text(one["proposed_by"]))}
        for one in records(law["proposals"])
    ]
    return {
        "items": [_waiting(item, form or {}) for item in single[first : first + INBOX_SHOWN]],
        "groups": _groups(found, by, words) if grouped else [],
        "by": by,
        "group": group,
        "grouped_by": GROUPED_BY,
        "pages": wording.pages_of(count, INBOX_SHOWN, page) if not grouped else [],
        "at_page": page,
        "waits": str(answer["total"]),
        "law": {**law, "proposals": proposals},
        "pulse": pulse(newest),
        "changed": changed[:CHANGES_SHOWN],
        "changed_more": len(changed) > CHANGES_SHOWN,
        "seen_at": seen,
        "gate": answer["passes_at"],
    }


def _page_number(query: Query) -> int:
    number = query.get("page", "")
    return max(1, int(number)) if number.isdecimal() and len(number) < PAGE_DIGITS else 1


def _contradictions(items: Sequence[Record]) -> list[Record]:
    return [item for item in items if record(item["memory"])["status"] != "pending"]


def _groups(items: Sequence[Record], by: str, words: Words) -> list[Page]:
    """Return the groups of what waits to be let in, the largest first; a contradiction is decided alone."""
    groups: dict[str, list[Record]] = {}
    for item in items:
        if record(item["memory"])["status"] == "pending":
            groups.setdefault(group_of(item, by), []).append(item)
    return [
        {
            "name": name,
            "title": words.conversation([record(item["memory"]) for item in group]) if by == "conversation" else name,
            "items": group,
            "members": ";".join(_seen(item) for item in group),
        }
        for name, group in sorted(groups.items(), key=lambda one: -len(one[1]))
    ]


def _seen(item: Record) -> str:
    """Return the stamps of what is shown of an item, its own memory's first."""
    own, others = version_stamps([record(item["memory"])]), version_stamps(records(item["against"]))
    return " ".join([*own, *others])


def _author(by: str) -> tuple[str, str]:
    """Return an author's kind and name: ("agent", "codex")."""
    kind, _, name = by.partition(":")
    return kind, name


def _waiting(item: Record, form: Query) -> Page:
    memory, seen = record(item["memory"]), _seen(item)
    name = memory["id"]
    same = form.get(f"seen.{name}", "") == seen
    return {
        **item,
        "sides": [
            {**other, "parts": word_diff(text(other["content"]), text(memory["content"]))}
            for other in records(item["against"])
        ],
        "seen": seen,
        "choice": form.get(f"choice.{name}", "") if same else "",
        "text": form.get(f"text.{name}", memory["content"]) if same else memory["content"],
        "moved": bool(form.get(f"choice.{name}")) and not same,
        "why": _why(item),
    }


def _why(item: Record) -> str:
    """Return the key of the reason why a memory waits."""
    memory = record(item["memory"])
    if item["against"] and memory["status"] != "pending":
        return "why.conflict_human" if item["needs_human"] else "why.conflict"
    if memory.get("visibility") == "account":
        return "why.account"
    if memory["origin"] == "document":
        return "why.document"
    return "why.extracted" if memory["origin"] == "extracted" else "why.doubt"


def _newest() -> list[Record]:
    """Return the memories written, superseded or archived last, newest first."""
    memories: list[Record] = []
    for status in (None, "superseded", "archived"):
        memories += records(actions.ask("list", status=status, limit=CHANGES_SHOWN + 1)["memories"])
    return sorted(memories, key=lambda memory: str(memory["recorded_at"]), reverse=True)


def written_after(at: str) -> list[Record]:
    """Return the memories written, superseded or archived after an instant, newest first."""
    return [memory for memory in _newest() if wording.instant(text(memory["recorded_at"])) > wording.instant(at)]


def search(query: Query, _: Words) -> Page:
    """Return a search's answer as an agent gets it, with each channel's share of the score."""
    question = query.get("q", "").strip()
    form = {name: query.get(name, "") for name in ("layer", "type", "as_of", "limit", "pending", "why")}
    shown: Page = {"query": question, "form": form, "layers": LAYERS, "types": TYPES, "limits": SEARCH_LIMITS}
    if not question:
        return {**shown, "answer": None}
    answer = actions.ask(
        "search",
        query=question,
        layers=[form["layer"]] if form["layer"] else None,
        types=[form["type"]] if form["type"] else None,
        as_of=form["as_of"] or None,
        limit=int(form["limit"]) if form["limit"].isdecimal() else None,
        include_pending=bool(form["pending"]),
        detail=True,
    )
    hits = records(answer["snippets"])
    tokens = [estimate_tokens(text(hit["text"])) for hit in hits]
    snippets = [
        {**hit, "parts": _parts(record(hit.get("signals"))), "tokens": cost}
        for hit, cost in zip(hits, tokens, strict=True)
    ]
    why: Record = {}
    if form["why"]:
        try:
            why = actions.ask("why_not", id=form["why"].strip(), query=question)
        except MemoryAnchorError as error:
            why = {"id": form["why"], "reason": str(error)}
    texts = {text(hit["id"]): hit["text"] for hit in hits}
    return {**shown, "answer": {**answer, "snippets": snippets}, "tokens": sum(tokens), "why": why, "texts": texts}


def _parts(signals: Record) -> list[tuple[str, float, Record]]:
    """Return the parts of a score, the greatest first: (name, added, its details)."""
    parts: list[tuple[str, float, Record]] = []
    for name, signal in signals.items():
        if isinstance(signal, dict):
            parts.append((name, number(signal.get("added", 0.0)), signal))
        elif name not in ("coverage", "relevance") and signal:
            parts.append((name, number(signal), {}))
    return sorted(parts, key=lambda part: -abs(part[1]))


def timeline(query: Query, words: Words) -> Page:
    """Return memories by day and conversation, each with the one it replaced."""
    form = {name: query.get(name, "") for name in TIMELINE_FILTERS}
    limit = int(form["limit"]) if form["limit"] in map(str, TIMELINE_LIMITS) else TIMELINE_LIMITS[0]
    if any(form[name] for name in OWN_FILTERS):
        limit = max(limit, TIMELINE_LIMITS[-1])
    layer, kind, tag = form["layer"] or None, form["type"] or None, form["tag"].strip() or None
    memories: list[Record] = []
    for status in LISTED.get(form["status"], (form["status"],)):
        memories += records(
            actions.ask("list", status=status, limit=limit, layer=layer, type=kind, tag=tag)["memories"]
        )
    memories = wording.newest_first(memories, words.now)
    agents = sorted({str(record(memory["scope"]).get("agent", "")) for memory in memories} - {""})
    superseded = {memory["id"]: memory for memory in memories if memory["status"] == "superseded"}
    shown: list[Record] = []
    for memory in memories:
        if _fits(memory, form, words):
            earlier = str(memory.get("previous_version_id", "")).partition("@")[0]
            shown.append({**memory, "replaced": superseded.get(earlier) if earlier != memory["id"] else None})
    return {
        "days": wording.by_day(shown[:limit], words),
        "strip": pictures.bars(_strip(shown[:limit], words)),
        "count": len(shown),
        "form": form,
        "agents": agents,
        "layers": LAYERS,
        "types": TYPES,
        "statuses": STATUSES,
        "strengths": STRENGTHS,
        "limits": TIMELINE_LIMITS,
        "limit": limit,
        "cut": len(memories) >= limit,
    }


def _strip(memories: Sequence[Record], words: Words) -> list[tuple[str, tuple[int, int]]]:
    """Return (day, (saved, changed)) of the newest `STRIP_DAYS`, at most, on and between which these were written."""
    saved = Counter(words.day(str(one.get("first_recorded_at") or one["recorded_at"])) for one in memories)
    changed = Counter(words.day(str(one["recorded_at"])) for one in memories if whole(one["version"]) > 1)
    if not saved:
        return []
    last, first = date.fromisoformat(max({*saved, *changed})), date.fromisoformat(min({*saved, *changed}))
    count = min(STRIP_DAYS, max(STRIP_DAYS_MIN, (last - first).days + 1))
    days = [(last - timedelta(days=back)).isoformat() for back in reversed(range(count))]
    return [(day, (saved[day], changed[day])) for day in days]


def _fits(memory: Record, form: Query, words: Words) -> bool:
    first, _, last = form["written"].partition("..")
    return (
        form["strength"] in ("", strength_word(number(memory["strength"])))
        and (not first or first <= str(memory.get("first_recorded_at", memory["recorded_at"]))[:10] <= (last or first))
        and (not form["changed"] or wording.instant(text(memory["recorded_at"])) > _changed_after(form["changed"]))
        and form["agent"] in ("", record(memory["scope"]).get("agent"))
        and form["person"].strip().casefold() in ("", *(str(who).casefold() for who in items(memory.get("who") or [])))
        and form["day"] in ("", words.day(str(memory.get("when") or memory["recorded_at"])))
    )


def _changed_after(text: str) -> datetime:
    try:
        return wording.instant(text)
    except ValueError:
        raise BadInput(f"changed is {text[:40]!r}; allowed is an instant such as 2026-11-23T08:00:00+00:00") from None


def memory(name: str, words: Words, before: str = "") -> Page:
    """Return one memory with its newest versions, citations, links and future strength. Raises NotFound.

    before: the number of a version; of the versions, the newest before it are shown.
    """
    shown = {key: value for key, value in actions.ask("show", id=name).items() if key != "memory"}
    steps: list[Page] = []
    old: str | None = None
    history = actions.ask("history", id=shown["id"], before=int(before) if before.isdigit() else None)
    for step in records(history["steps"]):
        content = text(step["content"])
        parts = word_diff(old, content) if old is not None else [("same", content)]
        reworded = old not in (None, content)
        because = _because(text(step["why"]))
        steps.append({**step, **because, "parts": parts, "author": _author(text(step["by"])), "reworded": reworded})
        old = content
    fades = _fades(text(shown["id"]), words)
    links = [{name: str(link[name]) for name in ("id", "kind", "text")} for link in records(shown.get("links"))]
    chain = _chain(shown, steps, words.now.isoformat())
    return {
        "memory": {**shown, "citations": _named(records(shown.get("citations")))},
        "steps": steps[::-1],
        "older": history.get("before"),
        "fades": fades,
        "life": _life(shown, steps, fades, words),
        "graph": pictures.graph(links),
        "chain": chain,
        "chain_picture": pictures.chain([text(one["id"]) for one in chain]),
        "seen": version_stamps([shown])[0],
    }


def _because(why: str) -> Record:
    """Return why a version was written: {why, other}; other: the memory that it was written for, "" for none."""
    begun = next((begun for begun in FOR_ANOTHER if why.startswith(f"{begun} ")), "")
    other = why.removeprefix(begun).strip().partition(" ")[0].rstrip(",:") if begun else ""
    return {"why": begun or why, "other": other}


def _chain(shown: Record, steps: Sequence[Mapping[str, object]], at: str) -> list[Record]:
    """Return what one memory replaced and what replaced it in turn, the oldest first; [] where it stands alone.

    steps: of its history. at: now, for which a neighbour is read: that counts as no use of it.
    """
    chain = [shown]
    with contextlib.suppress(MemoryAnchorError):  # erased, or another reader's: the chain begins or ends there
        while len(chain) < CHAIN_MAX and (after := _linked(chain[-1], "replaced_by")):
            chain.append(actions.ask("show", id=after, at=at))
    with contextlib.suppress(MemoryAnchorError):
        while len(chain) < CHAIN_MAX and (before := _replaced(chain[0], steps, at)):
            chain.insert(0, before)
            steps = records(actions.ask("history", id=before["id"])["steps"])
    return chain if len(chain) > 1 else []


def _replaced(memory: Record, steps: Sequence[Mapping[str, object]], at: str) -> Record | None:
    """Return what a memory took the place of: what it names, or what it contradicted until that was settled."""
    named = (str(step.get("came_from") or "").partition("@")[0] for step in steps)
    if before := next((name for name in named if name not in ("", memory["id"])), ""):
        return actions.ask("show", id=before, at=at)
    changes = (record(step["changes"]).get("disputes") for step in steps)  # type: ignore[arg-type]
    for name in [text(name) for change in changes if change for name in items(items(change)[0])][:CHAIN_MAX]:
        other = actions.ask("show", id=name, at=at)
        if _linked(other, "replaced_by") == memory["id"]:
            return other
    return None


def _linked(memory: Record, kind: str) -> str:
    return next((text(link["id"]) for link in records(memory.get("links")) if link["kind"] == kind), "")


def _life(shown: Record, steps: Sequence[Page], fades: Sequence[tuple[int, int]], words: Words) -> pictures.Life:
    versions = [
        (wording.instant(str(step["at"])), str(step["status"]), str(number)) for number, step in enumerate(steps, 1)
    ]
    last = str(shown.get("last_accessed_at") or "")
    uses = [(wording.instant(last), words("memory.last"))] if last else []
    return pictures.life(versions, uses, fades, words.now)


def _named(citations: Sequence[Record]) -> list[Record]:
    """Return citations; those of memories with the cited text, where this reader may see it."""
    named, left = [], NAMED_MAX
    for citation in citations:
        title = citation.get("title")
        if citation["kind"] in ("memory_entry", "event") and left:
            left -= 1
            with contextlib.suppress(MemoryAnchorError):
                title = actions.ask("show", id=text(citation["ref"]).partition("@")[0])["content"]
        named.append({**citation, "title": title} if title is not None else citation)
    return named


def _fades(name: str, words: Words) -> list[tuple[int, int]]:
    """Return (days from now, the strength then if nobody uses it), as the jobs will see it."""
    forecast = []
    for days in FORECAST_DAYS:
        then = (words.now + timedelta(days=days)).isoformat()
        forecast.append((days, whole(records(actions.ask("history", id=name, at=then)["versions"])[-1]["strength"])))
    return forecast


def context(query: Query, _: Words) -> Page:
    """Return the context that an agent would get for a task now, by section, with its cost and what was left out."""
    task, budget = query.get("task", "").strip(), query.get("budget", "")
    built = actions.ask("context", task=task or CONTEXT_TASK, budget_tokens=int(budget) if budget.isdecimal() else None)
    blocks: list[list[str]] = [["", ""]]
    quoted = False
    for line in text_lines(text(built["text"])):
        quoted = (quoted or line.startswith(f"<{FENCE_TAG}")) and not line.endswith(f"</{FENCE_TAG}>")
        if line.startswith("# ") and not quoted:
            blocks.append([line[2:], ""])
        else:
            blocks[-1][1] += f"{line}\n"
    built = {**built, "citations": _named(records(built.get("citations")))}
    moment = query.get("moment", "") if query.get("moment", "") in MOMENTS else MOMENTS[0]
    given = {
        "text": query.get("text", ""),
        "file": query.get("file", ""),
        "client": query.get("client") or "claude-code",
    }
    return {
        "moments": MOMENTS,
        "moment": moment,
        "given": given,
        "hook": actions.ask("hook_preview", human=None, moment=moment, **given),
        "log": actions.ask("hook_log")["sessions"],
        "task": task,
        "budget": budget,
        "built": built,
        "blocks": [(title, text.strip()) for title, text in blocks if text.strip()],
        "report": built["report"],
        "earlier": items(actions.ask("context_reports")["reports"])[:REPORTS_READ],
        "law": actions.constitution(),
    }


def report(name: str) -> Page:
    """Return what an earlier context cost and why."""
    stored = actions.ask("context_report", id=name)
    cost = record(stored["report"])
    return {**stored, "report": {**cost, "citations": _named(records(cost.get("citations")))}}


def knowledge(_: Query, __: Words) -> Page:
    """Return the sources of knowledge and how far each is read, and the lorebooks."""
    return {**actions.ask("knowledge_sources"), "books": actions.ask("lorebook_list")["books"]}


def sessions(query: Query, _: Words) -> Page:
    """Return the adopted sessions of agents, newest first, or the passages that answer a question, best first."""
    question = query.get("q", "").strip()
    shown: Page = {"question": question, "sessions": [], "passages": []}
    if question:
        return {**shown, "passages": actions.ask("sessions_search", query=question, limit=SESSIONS_FOUND)["passages"]}
    return {**shown, "sessions": actions.ask("sessions_list", limit=SESSIONS_SHOWN)["sessions"]}


def session(name: str) -> Page:
    """Return one session: what was said and done in it. Raises NotFound."""
    return {"one": actions.ask("sessions_show", session=name)}


def health(_: Query, __: Words) -> Page:
    """Return the state of engine, pause, key, jobs and backups, and sizes."""
    return {
        "pulse": pulse(_newest()),
        "stats": actions.ask("stats"),
        "jobs": actions.ask("jobs_list"),
        "backups": actions.backups(),
    }


def use(_: Query, words: Words) -> Page:
    """Return how memory is used: writes and recalls a day, memories that agents used, costs of contexts."""
    stats = actions.ask("stats")
    rows = days_of(stats, words)
    return {
        "stats": stats,
        "days": rows,
        "picture": pictures.bars([(day[5:], (whole(w), whole(c), whole(r))) for day, w, c, r in rows]),
        "span": f"{rows[0][0]}..{rows[-1][0]}",
        "heeded": actions.ask("stats", heeded=True)["heeded"],
        "contexts": actions.ask("context_costs")["contexts"],
    }


def days_of(stats: Record, words: Words) -> list[tuple[str, Json, Json, Json]]:
    """Return (day, writes, changes, recalls) of the last days."""
    today, writes = words.now.date(), items(stats["writes_per_day"])
    days = [(today - timedelta(days=back)).isoformat() for back in reversed(range(len(writes)))]
    changes, recalls = items(stats["changes_per_day"]), items(stats["recalls_per_day"])
    return list(zip(days, writes, changes, recalls, strict=False))

"""The use cases of the pages alone: what a hook would print, and what sessions were shown.

A preview is the hook's own code for a conversation of its own, by a caller who may not write: nothing is noted as
shown, due or visited, so the hook afterwards prints the very same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memory_anchor.base.json_values import Json, Record, records, text
from memory_anchor.domain.model import HISTORY, audiences
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.extensions.dashboard.requests import Moment, PreviewHook, ReadCosts, ReadShown
from memory_anchor.front.rows import Row, as_is, row
from memory_anchor.hooks.brief import Brief
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.language.tokens import estimate_tokens
from memory_anchor.layers.records import RECORD_COLLECTIONS
from memory_anchor.upkeep.statistics import counting
from memory_anchor.use_cases.memory import MemoryAnchor
from memory_anchor.use_cases.used_memories import SHOWN_SESSIONS_FILE, ShownSessions

CONVERSATION = "preview"
SESSIONS_SHOWN = 10
COSTS_SHOWN = 30


def payload_of(request: PreviewHook) -> tuple[str, Record]:
    """Return the event and the payload that a client sends at this moment."""
    tool: Record = {"file_path": request.file} if request.moment == "edit" else {"command": request.text}
    events: dict[Moment, tuple[str, Record]] = {
        "start": ("SessionStart", {"source": "startup"}),
        "after_compaction": ("SessionStart", {"source": "compact"}),
        "first_prompt": ("UserPromptSubmit", {"prompt": request.text}),
        "prompt": ("UserPromptSubmit", {"prompt": request.text}),
        "command": ("PreToolUse", {"tool_name": "Bash", "tool_input": tool}),
        "edit": ("PreToolUse", {"tool_name": "Edit", "tool_input": tool}),
        "failure": ("PostToolUseFailure", {"tool_name": "Bash", "tool_input": {"command": ""}, "error": request.text}),
    }
    return events[request.moment]


class _Look(Hooks):
    """Hooks that note nothing. found: the brief that was printed last."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Brief()

    def pass_first_prompt(self, anchor: MemoryAnchor) -> None:
        """Let the next prompt be one that follows another."""
        self._session(anchor).is_briefed = True

    def text_at(self, anchor: MemoryAnchor, event: str, payload: Record) -> str:
        """Return what the hook prints, and count it nowhere: nobody is shown it."""
        return self._answer(anchor, event, payload, 0)

    def _show(self, anchor: MemoryAnchor, found: Brief, payload: Mapping[str, Json], hook: str) -> str:
        del anchor, payload, hook
        self.found = found
        return found.text


def _preview(anchor: MemoryAnchor, request: PreviewHook) -> Record:
    scope = replace(anchor.actor.scope, agent=request.client, conversation=CONVERSATION)
    actor = replace(anchor.actor, scope=scope, client=request.client, read_only=True)
    looking, hooks = replace(anchor, actor=actor), _Look()
    with counting(False):
        if request.moment == "prompt":
            hooks.pass_first_prompt(looking)
        text = hooks.text_at(looking, *payload_of(request))
    lines: list[Json] = [
        {"id": line.id, "layer": line.layer.value, "text": line.words}
        for line in hooks.found.lines
        if line.text in text
    ]
    return {"text": text, "tokens": estimate_tokens(text), "lines": lines}


def _shown(anchor: MemoryAnchor, _: ReadShown) -> Record:
    """Read together, and not as a use: each memory has its text, None where it was erased or is another reader's."""
    log = ShownSessions(anchor.services.data_dir / SHOWN_SESSIONS_FILE).of(anchor.actor.scope)[:SESSIONS_SHOWN]
    ids = tuple({text(line["id"]) for session in log for line in records(session["shown"])})
    readers = tuple(sorted(audiences(anchor.actor.scope)))
    where = Where((OneOf("id", ids), OneOf("audience", readers)), (OneOf("state", (HISTORY,)),))
    texts: dict[str, Json] = {}
    for layer in RECORD_COLLECTIONS if ids else ():
        texts |= {one.id: one.content for one in anchor.services.store.find(layer, where, limit=len(ids))}
    sessions: list[Json] = []
    for session in log:
        lines: list[Json] = [{**line, "text": texts.get(text(line["id"]))} for line in records(session["shown"])]
        sessions.append({**session, "shown": lines})
    return {"sessions": sessions}


def _costs(anchor: MemoryAnchor, _: ReadCosts) -> Record:
    """Read together: thirty questions of a page took as long as all its counts."""
    return {"contexts": [*anchor.maintenance.costs(COSTS_SHOWN)]}


ROWS: Sequence[Row] = (
    row("hook_preview", PreviewHook, _preview, as_is),
    row("hook_log", ReadShown, _shown, as_is),
    row("context_costs", ReadCosts, _costs, as_is),
)

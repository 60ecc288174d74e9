"""The use cases of the pages alone: what a hook would print, and what sessions were shown.

A preview is the hook's own code for a conversation of its own, by a caller who may not write: nothing is noted as
shown, due or visited, so the hook afterwards prints the very same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memory_anchor.base.json_values import Json, Record
from memory_anchor.extensions.dashboard.requests import Moment, PreviewHook, ReadShown
from memory_anchor.front.rows import Row, as_is, row
from memory_anchor.hooks.brief import Brief
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.language.tokens import estimate_tokens
from memory_anchor.upkeep.statistics import counting
from memory_anchor.use_cases.memory import MemoryAnchor
from memory_anchor.use_cases.used_memories import SHOWN_SESSIONS_FILE, ShownSessions

CONVERSATION = "preview"


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
            hooks.answer(looking, "UserPromptSubmit", {"prompt": "The prompt before"})
        hooks.found = Brief()
        text = hooks.answer(looking, *payload_of(request))
    lines: list[Json] = [
        {"id": line.id, "layer": line.layer.value, "text": line.words}
        for line in hooks.found.lines
        if line.text in text
    ]
    return {"text": text, "tokens": estimate_tokens(text), "lines": lines}


def _shown(anchor: MemoryAnchor, _: ReadShown) -> Record:
    return {"sessions": list(ShownSessions(anchor.services.data_dir / SHOWN_SESSIONS_FILE).of(anchor.actor.scope))}


ROWS: Sequence[Row] = (
    row("hook_preview", PreviewHook, _preview, as_is),
    row("hook_log", ReadShown, _shown, as_is),
)

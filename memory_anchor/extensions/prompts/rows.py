"""The use case of a whole prompt, and how its answer is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memory_anchor.base.json_values import kind_of
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Scope
from memory_anchor.extensions.prompts.assembly import AssembledContext, assemble
from memory_anchor.extensions.prompts.requests import AssemblePrompt, PromptInFile
from memory_anchor.front import views
from memory_anchor.front.rows import Row, for_reader, row
from memory_anchor.use_cases.memory import MemoryAnchor


def shown_prompt(built: AssembledContext, *, reader: Scope) -> views.Shown:
    """Return {messages, tools, text, report, report_id, notes}."""
    return {
        "messages": built.messages,
        "tools": built.tools,
        "text": built.text,
        "report": views.report(built.report, reader=reader),
        "report_id": built.report_id,
        "notes": list(built.notes),
    }


def _assemble_file(anchor: MemoryAnchor, request: PromptInFile) -> AssembledContext:
    if not isinstance(request.prompt, Mapping):
        raise BadInput(f"a prompt is {kind_of(request.prompt)}; allowed is an object with messages and tools")
    return assemble(anchor, AssemblePrompt.read(request.prompt, "a prompt"))


ROWS: Sequence[Row] = (row("assemble", PromptInFile, _assemble_file, for_reader(shown_prompt)),)

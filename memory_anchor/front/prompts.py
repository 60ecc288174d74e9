"""Three prompts a user can pick: resume work, hand it over, review what was remembered.

They are prose, so whatever they quote is fenced. They say which tools to call rather than do the work: a prompt that
wrote would make picking one from a menu a side effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memory_anchor import inputs, shapes
from memory_anchor.errors import BadInput
from memory_anchor.language.safety import FENCE_RULE, fence
from memory_anchor.memory import MemoryAnchor
from memory_anchor.model import TRUST_OF_ORIGIN, Memory, Trust
from memory_anchor.requests import TASK_MAX

RESUME_TASK = "what was done last, what is open, what was decided"
RECENT_EVENTS = 10
FIRST_PERSON = ", with source 'first-person': in your own words, in the first person where it is your experience"
"""Asked of an agent that writes its memories itself (`agents.NAME.extraction.mode`)."""
REVIEWED_MAX = 20


@dataclass(frozen=True, slots=True)
class Prompt:
    """arguments: name -> what it is for; all are optional."""

    name: str
    description: str
    arguments: Mapping[str, str]


PROMPTS = (
    Prompt("resume", "Pick up where the last session stopped", {"task": "what you are going to do"}),
    Prompt("handoff", "Leave the work so that the next session can go on", {"audience": "who goes on"}),
    Prompt("review", "Go through memories that wait for a human, or contradict each other", {}),
)


def text_of(anchor: MemoryAnchor, name: str, given: Mapping[str, str]) -> str:
    """Return the prompt's text. Raises BadInput: no such prompt or argument."""
    known = next((prompt for prompt in PROMPTS if prompt.name == name), None)
    if known is None:
        raise BadInput(f"no prompt {name[:80]!r}; there are {', '.join(prompt.name for prompt in PROMPTS)}")
    if unknown := [one for one in given if one not in known.arguments]:
        allowed = ", ".join(known.arguments) or "no arguments"
        raise BadInput(f"prompt {name} got the unknown argument {unknown[0][:80]!r}; allowed are {allowed}")
    match name:
        case "resume":
            return _resume(anchor, given.get("task"))
        case "handoff":
            return _handoff(anchor, given.get("audience"))
        case _:
            return _review(anchor)


def _resume(anchor: MemoryAnchor, task: str | None) -> str:
    asked = inputs.text("task", task, most=TASK_MAX, required=False)
    built = anchor.build_context(asked or RESUME_TASK)
    doing = f" The task now: {asked}" if asked else ""
    return (
        f"Resume this project's work.{doing}\nRead what memory has, say in a few lines where the work stands and what "
        "you will do next, and check anything that matters against the code before relying on it.\n\n"
        f"{built.text}"
    )


def _handoff(anchor: MemoryAnchor, audience: str | None) -> str:
    reader = inputs.text("audience", audience, most=inputs.NAME_MAX, required=False) or "the next session"
    noted = shapes.compact({key: value for key, (value, _) in anchor.active().items()})
    events = anchor.search_events(limit=RECENT_EVENTS)
    return "\n".join(
        [
            f"Hand this work over to {reader}.",
            "1. save_memory for each decision, fix or rule of this conversation that is not stored yet "
            f"(search_memory first){FIRST_PERSON if anchor.own.extraction.mode == 'first-person' else ''}.",
            "2. log_event for work done and failures met.",
            "3. promote_to_fact for an event below that has been confirmed.",
            "4. end_session with a summary: what was done, what is open, what to do next.",
            "",
            FENCE_RULE,
            "Noted in this conversation:",
            fence(noted, source="active context", trust=Trust.AGENT),
            "Recent events:",
            *(_quoted(one) for one in events),
        ]
    )


def _review(anchor: MemoryAnchor) -> str:
    waiting = anchor.inbox(limit=REVIEWED_MAX)
    if not waiting:
        return "No memory of this project waits for review and none contradicts another. Tell the user so."
    lines = [
        "Go through these memories with the user. For each: say what speaks for and against it (check the code), and "
        "recommend keep, correct or forget. You cannot approve: the user runs `memory-anchor review` on a terminal.",
        "",
        FENCE_RULE,
    ]
    for item in waiting:
        lines.append(f"{item.memory.status.value}, confidence {item.memory.confidence:g}:")
        lines.append(_quoted(item.memory))
        lines.extend(f"against {_quoted(other)}" for other in item.against)
    return "\n".join(lines)


def _quoted(memory: Memory) -> str:
    source = f"{memory.id}; {memory.type.value}; {shapes.time_text(memory.happened_at, seconds=True)}"
    return fence(memory.content, source=source, trust=TRUST_OF_ORIGIN[memory.origin])

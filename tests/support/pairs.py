"""Replicas of one service in one process: cores with folders of their own on one store; any of them may die."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.adapters import qdrant_records, working_copy
from memory_anchor.adapters.qdrant_link import Access, QdrantLink, addresses
from memory_anchor.adapters.qdrant_records import QdrantRecords
from memory_anchor.adapters.qdrant_store import QdrantStore
from memory_anchor.adapters.working_copy import WorkingCopy
from memory_anchor.domain.model import COLLECTIONS, Actor, Caller, Scope
from memory_anchor.extensions.knowledge import shared_catalogue, sharing
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ManualClock
from memory_anchor.use_cases.memory import MemoryAnchor

LEASE_S = 0.2
CHANGES = frozenset({"write", "delete", "put", "erase", "set_vectors"})


class Killed(BaseException):
    """The process is gone."""


class Life:
    """left: changes of store and records until the process dies, in the middle of the next one; None for never."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.after = False
        """Whether the last change is done, and only its answer lost."""


class Mortal:
    """A store, or records, of a process that may die."""

    def __init__(self, real: Any, life: Life) -> None:
        self._real, self._life = real, life

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **named: Any) -> Any:
            life = self._life
            if life.left is not None and life.left <= 0:
                raise Killed(name)
            if life.left is not None and name in CHANGES:
                life.left -= 1
                if life.left == 0:
                    if life.after:
                        value(*arguments, **named)
                    raise Killed(name)
            return value(*arguments, **named)

        return call


class Replicas:
    """Makes cores of one service, on the server of `QDRANT_TEST_URL` or in local mode. clock: of all of them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.clock = folder, ManualClock()
        url = os.environ.get("QDRANT_TEST_URL")
        access = Access(addresses(url)) if url else Access(path=":memory:")
        link = QdrantLink(access)
        if url:
            for name in (*COLLECTIONS, qdrant_records.LEASES, qdrant_records.COLLECTION):
                link.ask(partial(_dropped, name))
        self.store, self.records = QdrantStore(access=access), QdrantRecords(link)
        self._made = 0

    def core(self, life: Life | None = None) -> Core:
        self._made += 1
        home = self._folder / f"replica-{self._made}"
        home.mkdir(parents=True)
        life = life or Life()
        store: Any = Mortal(self.store, life)
        records: Any = Mortal(self.records, life)
        return build_core(
            Settings(),
            data_dir=home,
            clock=self.clock,
            store=store,
            embedder=HashEmbedder(),
            shared=(records, WorkingCopy(home, records, self.records.claim)),
        )

    def two(self) -> tuple[Core, Core, MemoryAnchor, MemoryAnchor]:
        """Return two cores, and the memory of one member on each."""
        one, two = self.core(), self.core()
        return one, two, one.anchor(member()), two.anchor(member())

    def close(self) -> None:
        self.store.close()
        self.records.close()


def _dropped(name: str, client: Any) -> None:
    client.delete_collection(name)


def member(account: str = "acme", user: str = "eve", project: str = "site") -> Actor:
    """Return who asks a service: a key's account, user and project."""
    return Actor(Caller.AGENT, Scope(account=account, user=user, agent="api"), client="http", project=project)


@contextmanager
def replicas(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replicas]:
    """Yield a service whose looks are never old and whose turns end soon."""
    monkeypatch.setattr(shared_catalogue, "FRESH_S", 0.0)
    monkeypatch.setattr(working_copy, "FRESH_S", 0.0)
    monkeypatch.setattr(sharing, "LEASE_S", LEASE_S)
    monkeypatch.setattr(sharing, "RENEW_S", LEASE_S / 4)
    made = Replicas(folder)
    yield made
    made.close()

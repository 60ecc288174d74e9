"""Settings under test: the user's own, with what a `--variant` changes, and a copy of the memory to ask under them.

A variant is a settings file (YAML), or `name=value,name=value` with dotted names; values are read as YAML, so numbers,
booleans and lists mean what they look like. It is merged last, over files and environment, and checked as all settings.

An engine holds its store and goes by the settings it started with, so settings are compared on a backup that it makes
while it serves, restored into a scratch directory of this process. Nothing is written to the user's store; the data
directory's list of backups names the copy as long as it exists, so that a purge meanwhile, or after a kill, says where
it may still be. Rejected: a second searcher inside the engine, whose caches and measured times would be shared with
whoever works there.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from memory_anchor.app import build_core, loaded_settings, open_store
from memory_anchor.care import backup
from memory_anchor.core import Core
from memory_anchor.errors import BadInput
from memory_anchor.json_values import Json, Record, kind_of
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings

EMBED_BATCH = 64
WARM_ROUNDS_MAX = 1_000
Ask = Callable[[Core, Sequence[str]], Record]


@dataclass(frozen=True, slots=True)
class Copy:
    """A memory of its own: the data directory, with its lock held."""

    home: Path
    lock: DirectoryLock

    def answers(self, settings: Settings, questions: Sequence[str], ask: Ask) -> Record:
        """Return what `ask` says of the questions under these settings, L0 and L4 embedded before. Raises our errors.

        ask(core, questions): as the caller would be answered.
        """
        core = build_core(_here(settings), data_dir=self.home, lock=self.lock)
        try:
            ask(core, questions[:1])
            for _ in range(WARM_ROUNDS_MAX):
                if not core.nearness.embed_waiting(EMBED_BATCH):
                    break
            return ask(core, questions)
        finally:
            core.close()


@contextmanager
def copied(data_dir: Path, make_backup: Callable[[str], object]) -> Iterator[Copy]:
    """Yield a copy of the memory in `data_dir`. make_backup(path): writes a backup of it there. Raises our errors."""
    room = Path(tempfile.mkdtemp(prefix="memory-anchor-eval-")).resolve()
    file, home = room / "memory.tar.gz", room / "data"
    try:
        make_backup(str(file))
        with DirectoryLock.acquire(home, role="evaluation") as lock:
            backup.restore(
                home,
                file,
                force=False,
                lock=lock,
                open_store=lambda new: open_store(Settings(), new, lock),
                tick=lambda _done, _total: None,
            )
            file.unlink()
            yield Copy(home, lock)
    finally:
        shutil.rmtree(room)
        backup.forget_known(data_dir, file)


def _here(settings: Settings) -> Settings:
    """Return the settings over an embedded store, without cached answers: every question is searched for."""
    plain = settings.model_dump() | {"data_dir": "", "store": {}}
    plain["retrieval"] = {**plain["retrieval"], "cache_ttl_s": 0}
    return Settings.model_validate(plain)


DEFAULT = "as set"
NAME_CHARS_MAX = 60
VARIANT_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    settings: Settings


def as_set(env: Mapping[str, str], project_dir: str = "") -> Variant:
    """Return the settings as they hold here. Raises BadInput."""
    return Variant(DEFAULT, loaded_settings(env, project_dir).settings)


def variant(text: str, env: Mapping[str, str], project_dir: str = "") -> Variant:
    """Return the settings with one variant's changes; a name of `variants` in the settings stands for what is there.

    text: path of a YAML file, `name=value,...`, a configured variant's name, or `as set` for no change. Raises
    BadInput: none of these.
    """
    if text.strip() == DEFAULT:
        return as_set(env, project_dir)
    configured = as_set(env, project_dir).settings
    if text in configured.variants:
        return Variant(text, configured.model_copy(update={"retrieval": configured.variants[text].retrieval}))
    changes = _of_file(Path(text)) if "=" not in text else _of_pairs(text)
    return Variant(text[:NAME_CHARS_MAX], loaded_settings(env, project_dir, changes).settings)


def chosen_of(texts: Sequence[str] | None, env: Mapping[str, str], project_dir: str = "") -> list[Variant]:
    """Return the variants of these texts, the settings as they are for none. Raises BadInput."""
    return [variant(text, env, project_dir) for text in texts] if texts else [as_set(env, project_dir)]


def _of_file(path: Path) -> dict[str, Json]:
    try:
        if path.stat().st_size > VARIANT_BYTES_MAX:
            raise BadInput(f"variant {path} is {path.stat().st_size} bytes; allowed are {VARIANT_BYTES_MAX}")
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(
            f"variant {str(path)[:80]!r} cannot be read ({error.strerror}); allowed is a settings file or name=value"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise BadInput(f"variant {path} is not readable YAML; mend it") from None
    if not isinstance(value, dict):
        raise BadInput(f"variant {path} holds {kind_of(value)}; allowed is a mapping of settings")
    return value


def _of_pairs(pairs: str) -> dict[str, Json]:
    """Return {"retrieval": {"priors": False}} of "retrieval.priors=false"."""
    changes: dict[str, Json] = {}
    for pair in pairs.split(","):
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"variant part {pair[:80]!r} has no value; allowed is name=value,name=value")
        *parents, last = name.strip().split(".")
        inner = changes
        for parent in parents:
            below = inner.setdefault(parent, {})
            if isinstance(below, dict):
                inner = below
            else:
                raise BadInput(f"variant names {name.strip()!r} below a name it gives a value; allowed is one of them")
        try:
            inner[last] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise BadInput(
                f"variant gives {name.strip()!r} the value {value[:80]!r}; allowed is a plain value"
            ) from None
    return changes

"""Golden questions: what a user asks of their own memory, which memories must answer, and under which settings.

The questions are kept beside the store, one JSON line each, and are asked through the same `MemoryAnchor` as an agent's
searches. Memories merged or superseded since are not followed: the question counts as lost. Lines that cannot be read
are refused, not skipped: a question that silently vanished would look like better recall.

A variant is a settings file (YAML), or `name=value,name=value` with dotted names and YAML values. It is merged last,
over files and environment, and checked like all settings. An engine uses the settings it started with, so variants are
compared on a backup that it makes while it serves, restored into a scratch directory of this process. Nothing is
written to the user's store; the data directory's list of backups names the copy as long as it exists, so that a purge
meanwhile, or after a kill, says where it may still be. Rejected: a second searcher inside the engine, whose caches and
measured times would be shared with its clients.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from memory_anchor.admin.backup_list import remove_known
from memory_anchor.base.files import file_lock, read_bounded, write_atomic
from memory_anchor.base.json_values import Json, Record, kind_of, number, texts, whole
from memory_anchor.base.lines import text_lines
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.requests import checks
from memory_anchor.extensions.evaluation.metrics import SHOWN, Answered

if TYPE_CHECKING:
    from memory_anchor.process.wiring import Core
    from memory_anchor.runtime.lock import DirectoryLock
    from memory_anchor.settings import Settings
    from memory_anchor.use_cases.memory import MemoryAnchor

    Ask = Callable[[Core, Sequence[str]], Record]

FILE = "golden.jsonl"
ASKED_DEPTH = 10
"""Results that recall is measured on."""
QUESTIONS_MAX = 2_000
EXPECTED_MAX = 20
FILE_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class GoldenQuestion:
    """expects: ids of the memories that must answer; empty: nothing may."""

    query: str
    expects: tuple[str, ...]


def folder_of(data_dir: Path) -> Path:
    """Return where the golden questions are kept."""
    return data_dir / "evaluations"


def load(folder: Path) -> list[GoldenQuestion]:
    """Return the saved questions, oldest first. Raises BadInput: a line that is not one."""
    try:
        raw = read_bounded(folder / FILE, most_bytes=FILE_BYTES_MAX)
    except OSError as error:
        raise BadInput(f"{folder / FILE} cannot be read ({error.strerror}); mend it or move it away") from None
    lines = text_lines(raw.decode("utf-8", "replace")) if raw else []
    return [_read(folder / FILE, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def save(folder: Path, query: Json, expects: Json) -> GoldenQuestion:
    """Save one question; the same query again gets the new ids. Raises BadInput: too many, or not a question."""
    new = checked(query, expects)
    with file_lock(folder / f"{FILE}.lock"):
        kept = [golden for golden in load(folder) if golden.query != new.query]
        if len(kept) >= QUESTIONS_MAX:
            raise BadInput(f"there are {len(kept)} golden questions; allowed are {QUESTIONS_MAX}")
        _write(folder, [*kept, new])
    return new


def remove(folder: Path, query: str) -> bool:
    """Remove one question; return whether there was one."""
    with file_lock(folder / f"{FILE}.lock"):
        stored = load(folder)
        kept = [golden for golden in stored if golden.query != query.strip()]
        if len(kept) < len(stored):
            _write(folder, kept)
    return len(kept) < len(stored)


def checked(query: Json, expects: Json) -> GoldenQuestion:
    """Return the question. Raises BadInput."""
    return GoldenQuestion(
        checks.text("query", query, most=checks.QUERY_MAX),
        checks.strings("expects", expects, most=EXPECTED_MAX, each=checks.NAME_MAX),
    )


def ask(anchor: MemoryAnchor, questions: Json) -> dict[str, Json]:
    """Ask the caller's own store; return for each question ids best first, milliseconds, and tokens of the answer.

    questions: a list of texts. Times are of a first search for a text in a warm process: one search goes unmeasured,
    and the cached answer of each is dropped first. Raises BadInput.
    """
    from memory_anchor.front import views
    from memory_anchor.language.tokens import count_tokens

    queries = checks.strings("questions", questions, most=QUESTIONS_MAX, each=checks.QUERY_MAX)
    answers: list[Record] = []
    for query in queries[:1]:
        anchor.search(query, limit=1)
    for query in queries:
        anchor.services.searcher.forget(query)
        started = time.perf_counter()
        answer = anchor.search(query, limit=ASKED_DEPTH)
        ms = (time.perf_counter() - started) * 1000
        shown = anchor.search(query, limit=SHOWN)
        as_json = views.search_answer(shown, reader=anchor.actor.scope)
        tokens = count_tokens(views.lines(as_json, now=anchor.services.clock.now()))
        own = sum(count_tokens(snippet.text) for snippet in shown.snippets)
        ids = [snippet.id for snippet in answer.snippets]
        answers.append({"ids": ids, "ms": ms, "tokens": tokens, "own": own})
    return {"answers": answers}


def answered(questions: Sequence[GoldenQuestion], answers: Sequence[Mapping[str, Json]]) -> list[Answered]:
    """Return the questions with their answers by `ask`, in the same order."""
    return [
        Answered(
            f"golden-{index}",
            golden.query,
            frozenset(golden.expects),
            tuple(texts(answer["ids"])),
            number(answer["ms"]),
            whole(answer["tokens"]),
            max(0, whole(answer["tokens"]) - whole(answer["own"])),
        )
        for index, (golden, answer) in enumerate(zip(questions, answers, strict=True), 1)
    ]


def _write(folder: Path, questions: Sequence[GoldenQuestion]) -> None:
    lines = [
        json.dumps({"query": question.query, "expects": question.expects}, ensure_ascii=False) for question in questions
    ]
    write_atomic(folder / FILE, "".join(f"{line}\n" for line in lines).encode())


def _read(path: Path, number: int, line: str) -> GoldenQuestion:
    try:
        entry = json.loads(line)
        return checked(entry["query"], entry["expects"])
    except (ValueError, KeyError, TypeError, BadInput):
        raise BadInput(f"line {number} of {path} is not a golden question; mend it or take it out") from None


EMBED_BATCH = 64
WARM_ROUNDS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class MemoryCopy:
    """A data directory with its lock held."""

    home: Path
    lock: DirectoryLock

    def answers(self, settings: Settings, questions: Sequence[str], ask: Ask) -> Record:
        """Return ask(core, questions) under these settings, with L0 and L4 embedded before. Raises our errors."""
        from memory_anchor.process.app import build_core
        from memory_anchor.settings import Settings

        # Over an embedded store, without cached answers: every question is searched for.
        changed = settings.model_dump() | {"data_dir": "", "store": {}}
        changed["retrieval"] = {**changed["retrieval"], "cache_ttl_s": 0}
        core = build_core(Settings.model_validate(changed), data_dir=self.home, lock=self.lock)
        try:
            ask(core, questions[:1])
            for _ in range(WARM_ROUNDS_MAX):
                if not core.nearness.embed_waiting(EMBED_BATCH):
                    break
            return ask(core, questions)
        finally:
            core.close()


@contextmanager
def copied(data_dir: Path, make_backup: Callable[[str], object]) -> Iterator[MemoryCopy]:
    """Yield a copy of the memory in `data_dir`. make_backup(path): writes a backup of it there. Raises our errors."""
    from memory_anchor.admin import backup
    from memory_anchor.process.app import open_store
    from memory_anchor.runtime.lock import DirectoryLock
    from memory_anchor.settings import Settings

    scratch = Path(tempfile.mkdtemp(prefix="memory-anchor-eval-")).resolve()
    file, home = scratch / "memory.tar.gz", scratch / "data"
    try:
        make_backup(str(file))
        with DirectoryLock.acquire(home, role="evaluation") as lock:
            backup.restore(
                home,
                file,
                force=False,
                lock=lock,
                open_store=lambda new: open_store(Settings(), new, lock, alone=True),
                tick=lambda _done, _total: None,
            )
            file.unlink()
            yield MemoryCopy(home, lock)
    finally:
        shutil.rmtree(scratch)
        remove_known(data_dir, file)


DEFAULT = "as set"
NAME_CHARS_MAX = 60
VARIANT_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    settings: Settings


def as_set(env: Mapping[str, str], project_dir: str = "") -> Variant:
    """Return the current settings. Raises BadInput."""
    from memory_anchor.process.app import loaded_settings

    return Variant(DEFAULT, loaded_settings(env, project_dir).settings)


def variant(text: str, env: Mapping[str, str], project_dir: str = "") -> Variant:
    """Return the settings with one variant's changes.

    text: path of a YAML file, `name=value,...`, a name in the setting `variants`, or `as set` for no change. Raises
    BadInput: none of these.
    """
    from memory_anchor.process.app import loaded_settings

    if text.strip() == DEFAULT:
        return as_set(env, project_dir)
    configured = as_set(env, project_dir).settings
    if text in configured.variants:
        return Variant(text, configured.model_copy(update={"retrieval": configured.variants[text].retrieval}))
    changes = _of_file(Path(text)) if "=" not in text else _of_pairs(text)
    return Variant(text[:NAME_CHARS_MAX], loaded_settings(env, project_dir, changes).settings)


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
            group = inner.setdefault(parent, {})
            if not isinstance(group, dict):
                raise BadInput(f"variant names {name.strip()!r} below a name it gives a value; allowed is one of them")
            inner = group
        try:
            inner[last] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise BadInput(
                f"variant gives {name.strip()!r} the value {value[:80]!r}; allowed is a plain value"
            ) from None
    return changes

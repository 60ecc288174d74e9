"""What every context cost: one small file a report, the newest few hundred.

`memory-anchor context show ID` answers "why was this not in the prompt" days later, from the decisions and the
citations; the text of memories is never in it. Plain files and not the store, since the report of a context that was
built without the store matters most. The name starts with the instant, so the order needs no file to be opened; several
processes may write and prune at once, because names never repeat and a missing file is no failure.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memory_anchor.base.files import file_error, make_private, read_bounded, write_atomic
from memory_anchor.base.json_values import (
    Json,
    Record,
    number,
    one_of,
    optional_text,
    record,
    records,
    text,
    texts,
    whole,
)
from memory_anchor.context.sections import ContextCostReport, Section
from memory_anchor.domain.errors import BadInput, NotFound, StoreDamaged
from memory_anchor.domain.model import CITATION_KINDS, FRESHNESS, PROMPT_PARTS, Citation, Locator, Scope, Trust
from memory_anchor.language.safe_regex import late

REPORTS_KEPT = 500
REPORT_BYTES_MAX = 4 * 1024 * 1024
_ID = late(r"[A-Za-z0-9_-]{1,64}")
_NAME = late(r"\d{15}-[A-Za-z0-9_-]{1,64}\.json")
"""Milliseconds since 1970, then the id."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RecordedReport:
    id: str
    recorded_at: datetime
    report: ContextCostReport


class ContextReports:
    """The reports of one data directory. new_id: a fresh id of 1 to 64 letters, digits, `_` and `-`."""

    def __init__(
        self, folder: Path, *, now: Callable[[], datetime], new_id: Callable[[], str], kept: int = REPORTS_KEPT
    ) -> None:
        self._folder = folder
        self._now = now
        self._new_id = new_id
        self._kept = kept

    def record(self, report: ContextCostReport, owner: str = "") -> str:
        """Store a report and return its id; the oldest beyond what is kept go.

        owner: who may read it again, see `owner_of`.

        Raises Refused, DiskFull or Unavailable: the folder cannot be written.
        """
        id = _checked(self._new_id())
        at = self._now().astimezone(UTC)
        stored = {"id": id, "recorded_at": at.isoformat(), "owner": owner, "report": to_json(report)}
        text = json.dumps(stored, ensure_ascii=False)
        make_private(self._folder)
        milliseconds = (at - _EPOCH) // timedelta(milliseconds=1)
        write_atomic(self._folder / f"{max(0, milliseconds):015d}-{id}.json", text.encode())
        for path in self._paths()[self._kept :]:
            with contextlib.suppress(OSError):  # another process pruned it first
                path.unlink()
        return id

    def list(self, owner: str = "") -> tuple[tuple[str, datetime], ...]:
        """Return (id, recorded_at to the millisecond) of what is kept for this owner, newest first."""
        names = (path.name for path in self._paths() if _stored(path).get("owner", "") == owner)
        return tuple((name[16:-5], _EPOCH + timedelta(milliseconds=int(name[:15]))) for name in names)

    def costs(self, owner: str, most: int) -> tuple[dict[str, Json], ...]:
        """Return what the newest of this owner cost: tokens in all and of memory, and milliseconds."""
        costs: dict[str, dict[str, Json]] = {}
        for path in self._paths():
            if len(costs) < most and (stored := _stored(path)).get("owner") == owner:
                with contextlib.suppress(KeyError, TypeError, ValueError):  # `load` names what is damaged
                    costs[path.name] = _cost(stored)
        return tuple(costs.values())

    def load(self, id: str, owner: str = "") -> RecordedReport:
        """Return one report of this owner.

        Raises BadInput: not an id. NotFound: none such is kept for this owner. StoreDamaged: unreadable.
        """
        id = _checked(id)
        path = next((path for path in self._paths() if path.name[16:-5] == id), None)
        content = None
        if path is not None:
            try:
                content = read_bounded(path, most_bytes=REPORT_BYTES_MAX)
            except OSError as error:
                raise file_error(error, path) from error
        try:
            stored = json.loads(content or b"null")
        except (ValueError, RecursionError):
            raise StoreDamaged(f"context report {id!r} cannot be read; delete {path}") from None
        if content is None or (isinstance(stored, dict) and stored.get("owner", "") != owner):
            raise NotFound(f"no context report {id!r}; the last {self._kept} are kept: `memory-anchor context show`")
        try:
            return RecordedReport(
                stored["id"], datetime.fromisoformat(stored["recorded_at"]), from_json(stored["report"])
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StoreDamaged(f"context report {id!r} cannot be read; delete {path}") from None

    def _paths(self) -> tuple[Path, ...]:
        try:
            paths = [path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)]
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise file_error(error, self._folder) from error
        return tuple(sorted(paths, key=lambda path: path.name, reverse=True))


def owner_of(scope: Scope) -> str:
    """Return whose reports a caller reads: those of its account in its project."""
    return json.dumps([scope.account, scope.project])


def _stored(path: Path) -> Record:
    """Return what a report's file holds; when it cannot be read, something that is nobody's."""
    try:
        return record(json.loads(read_bounded(path, most_bytes=REPORT_BYTES_MAX) or b"null") or {"owner": None})
    except (OSError, ValueError, TypeError, RecursionError):
        return {"owner": None}


def _cost(stored: Record) -> dict[str, Json]:
    report = record(stored["report"])
    tokens, ms = record(report["estimated_tokens"]), sum(map(number, record(report["stage_ms"]).values()))
    shown: dict[str, Json] = {name: stored[name] for name in ("id", "recorded_at")}
    return {**shown, "tokens": tokens["total"], "memory": tokens["memory_knowledge"], "ms": ms}


def _checked(id: Json) -> str:
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise BadInput(f"report id is {str(id)[:40]!r}; allowed are 1 to 64 letters, digits, _ and -")
    return id


def to_json(report: ContextCostReport) -> dict[str, Json]:
    """Return the report as JSON values; citations without what is at its default."""
    return {
        "context_window_tokens": report.context_window_tokens,
        "reserved_output_tokens": report.reserved_output_tokens,
        "estimated_tokens": dict(report.estimated_tokens),
        "sections": [asdict(section) for section in report.sections],
        "decisions": [dict(decision) for decision in report.decisions],
        "citations": [_citation_json(cited) for cited in report.citations],
        "stage_ms": dict(report.stage_ms),
        "cache": dict(report.cache),
        "variant": report.variant,
    }


def from_json(stored: Mapping[str, Json]) -> ContextCostReport:
    """Return the report that `to_json` wrote. Raises KeyError, TypeError, ValueError: it is something else."""
    return ContextCostReport(
        context_window_tokens=whole(stored["context_window_tokens"]),
        reserved_output_tokens=whole(stored["reserved_output_tokens"]),
        estimated_tokens=record(stored["estimated_tokens"]),
        sections=tuple(
            Section(text(entry["name"]), one_of(entry["part"], PROMPT_PARTS), whole(entry["tokens"]))
            for entry in records(stored["sections"])
        ),
        decisions=tuple(records(stored["decisions"])),
        citations=tuple(_citation(entry) for entry in records(stored["citations"])),
        stage_ms={name: number(spent) for name, spent in record(stored["stage_ms"]).items()},
        cache={name: whole(many) for name, many in record(stored["cache"]).items()},
        variant=text(stored["variant"]),
    )


def _citation_json(cited: Citation) -> dict[str, Json]:
    shown: dict[str, Json] = {"kind": cited.kind, "ref": cited.ref, "trust": cited.trust.value}
    for name in ("title", "freshness", "variant", "index_version"):
        if (value := getattr(cited, name)) is not None:
            shown[name] = value
    if locator := {name: value for name, value in asdict(cited.locator).items() if value not in (None, ())}:
        shown["locator"] = locator
    if cited.scope is not None:
        shown["scope"] = asdict(cited.scope)
    if cited.observed_at is not None:
        shown["observed_at"] = cited.observed_at.isoformat()
    return shown


def located(stored: Record) -> Locator:
    """Return the place in a source that a JSON object names. Raises TypeError, ValueError: it names something else."""
    numbers = {name: value for name, value in stored.items() if name not in ("sha", "heading")}
    return Locator(
        **{name: None if value is None else whole(value) for name, value in numbers.items()},
        sha=optional_text(stored.get("sha")),
        heading=tuple(texts(stored.get("heading"))),
    )


def _scope(stored: Record) -> Scope:
    account, project, user, agent, conversation, collection = (
        text(stored[name]) for name in ("account", "project", "user", "agent", "conversation", "collection")
    )
    return Scope(account, project, user, agent, conversation, collection, tuple(texts(stored.get("across"))))


def _citation(stored: Mapping[str, Json]) -> Citation:
    freshness = stored.get("freshness")
    return Citation(
        kind=one_of(stored["kind"], CITATION_KINDS),
        ref=text(stored["ref"]),
        title=optional_text(stored.get("title")),
        locator=located(record(stored.get("locator"))),
        scope=_scope(record(stored["scope"])) if "scope" in stored else None,
        observed_at=datetime.fromisoformat(text(stored["observed_at"])) if "observed_at" in stored else None,
        trust=Trust(text(stored["trust"])),
        freshness=None if freshness is None else one_of(freshness, FRESHNESS),
        variant=optional_text(stored.get("variant")),
        index_version=optional_text(stored.get("index_version")),
    )

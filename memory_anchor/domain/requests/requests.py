"""One model for each use case: its arguments' names, bounds, defaults and help.

Everything that knows the arguments of a use case is made from its model: the schema of an MCP tool, the options of a
command and their help, an HTTP body, a line of an import, and the fingerprint that recognises a repeat (`fields` has
the machinery). Rejected: schemas written by hand next to the functions, which listed a search's arguments in eight
places.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Literal, Self, cast

from pydantic import Field

from memory_anchor.base.json_values import Json
from memory_anchor.domain.model import DEFAULT_IMPORTANCE, LAYER_OF_TYPE, Layer, MemoryType, ProposalAction
from memory_anchor.domain.requests.checks import (
    CONTENT_MAX,
    KEY_MAX,
    NAME_MAX,
    PATH_MAX,
    QUERY_MAX,
    REASON_MAX,
    TAG_MAX,
    TTL_DAYS_MAX,
)
from memory_anchor.domain.requests.fields import (
    AnyAction,
    AnyEpistemic,
    AnyJson,
    AnyLayer,
    AnyMode,
    AnyStatus,
    AnyType,
    AnyVisibility,
    BaseRequest,
    Content,
    Decay,
    Exact,
    Files,
    Flag,
    Identifier,
    Integer,
    Key,
    Label,
    Listed,
    Messages,
    Name,
    OptionalReason,
    OwnerIds,
    Path,
    People,
    Polarity,
    Query,
    Reason,
    RequestId,
    Share,
    Sources,
    Stamps,
    TagNames,
    Tags,
    Text,
    When,
    arg,
    from_json,
)

SEARCH_LIMIT_MAX = 50
EVENTS_LIMIT_MAX = 200
OPERATIONS_LIMIT_MAX = 20
LIST_LIMIT_MAX = 1_000
DUE_DAYS_MAX = 366
TASK_MAX = 8_000
BUDGET_MAX = 200_000
L1_TTL_S, L1_TTL_S_MAX = 3_600, 86_400
VERSION_MAX = 1_000_000
HISTORY_LIMIT, HISTORY_LIMIT_MAX = 200, 1_000
PURGED_MAX = 100
UNDONE_MAX = 4_000
"""What one review decides at most, with both sides of each."""

ENTRY_FIELDS = frozenset(("sentiment", "decay", "sources", "scope", "author", "written_at"))
"""Further fields of the strategy's memory entry and observation; tools accept them without listing them."""
IMPORTED_FIELDS = frozenset(("content", "type", "layer", "key", "tags", "importance", "confidence", "visibility")) | {
    *("when", "where", "who", "cites")
}
"""What a line of another tool's export may say of a memory."""
NOT_OFFERED_FOR_EVENTS = frozenset(("key", "importance", "visibility"))
"""Fields of an event that neither a tool nor a command offers."""


def _types_of(layer: Layer, default: MemoryType) -> str:
    kinds = [kind for kind, home in LAYER_OF_TYPE.items() if home is layer]
    return ", ".join(f"{kind.value} (default)" if kind is default else kind.value for kind in kinds)


class GetConstitution(BaseRequest):
    """Read L0 whole."""


class SearchMemory(BaseRequest):
    """Find memories by meaning, words and time."""

    query: Query = arg()
    layers: Annotated[tuple[AnyLayer, ...], Listed(5)] = arg(
        (), "Only this layer; repeatable.", tool="event_log, verified_fact"
    )
    types: Annotated[tuple[AnyType, ...], Listed(15)] = arg((), "Only this type; repeatable.", tool="")
    tags: TagNames = arg((), "Any of these tags.", tool="")
    since: When | None = arg(None, tool="ISO 8601")
    until: When | None = arg(None)
    as_of: When | None = arg(None, "What was believed then.", tool="")
    limit: Integer = arg(5, tool="{}", ge=1, le=SEARCH_LIMIT_MAX)
    include_pending: Flag = arg(False, "Also what waits for review.", tool="", option="pending")
    detail: Flag = arg(False, "Show each channel's rank, score and weight.", tool="", option="explain")


class WhyNot(BaseRequest):
    """Explain why a memory is not in the answer to a query."""

    id: Identifier = arg()
    query: Query = arg()


class WriteRequest(BaseRequest):
    """The fields that every saved memory or event has."""

    not_compared = frozenset({"importance", "layer", "source", "request_id"})
    other_names = MappingProxyType({"kind": "type"})
    """A memory entry as the strategy document defines it."""

    content: Content = arg()
    key: Key = arg("", "A short title.", tool="")
    tags: Tags = arg((), tool="")
    importance: Share = arg(DEFAULT_IMPORTANCE, tool="")
    visibility: AnyVisibility | None = arg(None, tool="conversation, agent, project (default), user, account")
    files: Files = arg((), "path or path:10-20; repeatable.", tool="path or path:10-20")
    source: str | None = arg(None, "human, agent, document, or how it was written.")
    request_id: RequestId = arg("", "The same id with the same words is one write.", tool="")
    sentiment: Polarity | None = arg(None, "-1 to 1.")
    decay: Decay | None = arg(None, "{half_life_days}: how fast it fades.")
    sources: Sources = arg((), "What it rests on: {kind, ref, locator}.")
    scope: OwnerIds = arg((), "Whose it is; the caller's own.")
    author: Label = arg("", "Of an observation: who wrote it down.")
    written_at: When | None = arg(None, "Of an observation: when it was written down.")

    def canonical(self, **resolved: Json) -> dict[str, Json]:
        """Return the canonical form; `ENTRY_FIELDS` count only where they are given."""
        whole = super().canonical(**resolved)
        if self.written_at is not None:
            whole["written_at"] = self.written_at.text
        return {
            name: value for name, value in whole.items() if name not in ENTRY_FIELDS or value not in (None, (), [], "")
        }

    @classmethod
    def like(cls, other: WriteRequest) -> Self:
        """Return this kind of request with the fields that it shares with another kind."""
        fields = {name: getattr(other, name) for name in cls.model_fields if name in type(other).model_fields}
        made = cast(Self, cls.model_construct(**fields))
        made._redactions = other._redactions
        return made


class SaveMemory(WriteRequest):
    """Save a memory; facts pass the gate and are reconciled with what is known."""

    unlisted = ENTRY_FIELDS | {"source"}

    type: AnyType = arg(MemoryType.FACT, tool=_types_of(Layer.VERIFIED_FACT, MemoryType.FACT))
    layer: AnyLayer | None = arg(None)
    confidence: Share | None = arg(
        None, "0 to 1; default: by its words.", tool="{}, default 0.9; below waits for review"
    )
    replaces: Label = arg("", "The id of what it corrects.", tool="")


class LogEvent(WriteRequest):
    """Log an event: what happened, when, where, who."""

    unlisted = ENTRY_FIELDS | NOT_OFFERED_FOR_EVENTS | {"source"}
    terse = frozenset({"tags", "files"})

    when: When | None = arg(None, tool="ISO 8601, default now")
    where: Label = arg("")
    who: People = arg((), tool="")
    ttl_days: Annotated[Integer, Field(ge=0, le=TTL_DAYS_MAX)] | None = arg(None, "0: for ever.", tool="0: for ever")
    type: AnyType = arg(MemoryType.EVENT, tool=_types_of(Layer.EVENT_LOG, MemoryType.EVENT))


class PromoteToFact(BaseRequest):
    """Turn an event into a fact that cites it."""

    unlisted = frozenset({"request_id"})

    event_id: Identifier = arg()
    content: Content | None = arg(None, tool="")
    confidence: Share | None = arg(None)
    request_id: RequestId = arg("")


class ProposeChange(BaseRequest):
    """Propose a change of L0; only humans can approve it."""

    content: Annotated[str, Text(CONTENT_MAX, 0)] = arg()
    reason: Reason = arg()
    action: AnyAction = arg(ProposalAction.ADD, tool="add (default), replace, remove")
    entry_id: Label = arg("")
    from_id: Label = arg("")


class SearchEvents(BaseRequest):
    """Find events, newest first, or best first with a query."""

    start: When | None = arg(None)
    end: When | None = arg(None)
    query: Annotated[str, Text(QUERY_MAX, 0)] = arg("")
    where: Label = arg("")
    who: People = arg((), tool="")
    limit: Integer = arg(20, tool="{}", ge=1, le=EVENTS_LIMIT_MAX)


class MemoryRequest(BaseRequest):
    """A request about one memory."""

    id: Identifier = arg()


class GetMemory(MemoryRequest):
    """Read one memory."""

    history: Flag = arg(False)


class ForgetMemory(MemoryRequest):
    """Archive a memory: out of every search, restorable."""

    reason: OptionalReason = arg("")


class GetActiveContext(BaseRequest):
    """Read this conversation's active context."""

    key: Annotated[str, Text(KEY_MAX)] | None = arg(None)


class SetActiveContext(BaseRequest):
    """Store one JSON value in this conversation's active context."""

    key: Annotated[str, Text(KEY_MAX)] = arg()
    value: AnyJson = arg(tool="any JSON")
    ttl_s: Integer = arg(L1_TTL_S, tool="{}", ge=1, le=L1_TTL_S_MAX)


class EndSession(BaseRequest):
    """Turn a conversation's active context, and a summary, into one event."""

    summary: Annotated[str, Text(CONTENT_MAX, 0)] = arg("")


class FindOperations(BaseRequest):
    """Find how a task is done in this project."""

    task: Query = arg()
    limit: Integer = arg(3, tool="{}", ge=1, le=OPERATIONS_LIMIT_MAX)


class BuildContext(BaseRequest):
    """Build the context an agent needs for a task."""

    task: Annotated[str, Text(TASK_MAX)] = arg()
    budget_tokens: Annotated[Integer, Field(ge=1, le=BUDGET_MAX)] | None = arg(
        None, "Tokens, for a task.", tool="{}", option="budget"
    )


class RememberConversation(BaseRequest):
    """Extract what is worth remembering from a conversation. waits: for a hook, what is found waits for review."""

    unlisted = frozenset({"waits"})

    messages: Messages = arg(tool="{role, content, tool_calls?} in order")
    mode: AnyMode | None = arg(None, "first-person, ghostwriter or factual.", tool="first-person, ghostwriter, factual")
    only: Literal["user_facts"] | None = arg(None, tool="user_facts: only what concerns the user")
    waits: Flag = arg(False)


class ExtractConversation(RememberConversation):
    """Extract what is worth remembering from a conversation, and store it only with `apply`."""

    apply: Flag = arg(False)


class ResolveConflict(BaseRequest):
    """Settle a contradiction. seen: for a human's decision, the stamps of every side that was shown."""

    unlisted = frozenset({"seen"})

    id: Identifier = arg(tool="of either")
    resolution: Literal["keep_new", "keep_old", "keep_both", "merge"] = arg(tool="keep_new, keep_old, keep_both, merge")
    content: Content | None = arg(None, "Of merge: the one text that holds.")
    seen: Stamps = arg(())


# --- of people at the keyboard -----------------------------------------------------------------------------------


class ListMemories(BaseRequest):
    """List memories, newest first."""

    layer: AnyLayer | None = arg(None)
    type: AnyType | None = arg(None)
    status: AnyStatus | None = arg(None, "active, pending, archived, superseded, disputed.")
    tag: Annotated[str, Text(TAG_MAX)] | None = arg(None)
    limit: Integer = arg(50, ge=1, le=LIST_LIMIT_MAX)


class ListDue(BaseRequest):
    """List open tasks and dates that are due: planned events, dates in memories, tags `todo` and `due:2026-12-05`."""

    days: Integer = arg(1, "How many days ahead.", ge=0, le=DUE_DAYS_MAX)
    done: Identifier | None = arg(None, "Mark this one as done; it is listed no more.")


class ShowMemory(BaseRequest):
    """Show one memory in full."""

    id: Identifier = arg(help="A memory, or one version of it: ID@2.")
    as_of: When | None = arg(None, "As it was believed then.")


class ReadProfile(BaseRequest):
    """Show what is known of the user and the project: one page, each line with the fact it cites."""


class ShowHistory(MemoryRequest):
    """Show every version of a memory: who, when, why, and what changed."""

    story: Flag = arg(False, "Begin with the memories it took the place of.")
    before: Annotated[Integer, Field(ge=2, le=VERSION_MAX)] | None = arg(None, "Only versions before this number.")
    limit: Integer = arg(HISTORY_LIMIT, "How many versions, the newest.", ge=1, le=HISTORY_LIMIT_MAX)


class EditMemory(MemoryRequest):
    """Write a new version of a memory with another text, or judge how far it holds."""

    content: Content = arg()
    expected_version: Annotated[Integer, Field(ge=1, le=VERSION_MAX)] | None = arg(None)


class JudgeMemory(BaseRequest):
    """Judge how far a memory holds; a refuted idea stays findable as a warning."""

    id: Identifier = arg()
    epistemic: AnyEpistemic = arg(help="hypothesis, verified or refuted, instead of a text.")
    shown_by: Annotated[str, Text(REASON_MAX, 0)] = arg("", "The command or link that showed it.")


class PinMemory(MemoryRequest):
    """Pin a memory: no job ever forgets it."""


class UnpinMemory(MemoryRequest):
    """Unpin a memory."""


class RestoreMemory(MemoryRequest):
    """Restore an archived memory."""


class ReviewInbox(BaseRequest):
    """List what waits for a decision."""

    limit: Integer = arg(50, ge=1, le=LIST_LIMIT_MAX)
    offset: Integer = arg(0, ge=0, le=LIST_LIMIT_MAX * LIST_LIMIT_MAX)


class ReviewSides(MemoryRequest):
    """Show what a decision is about: a memory, then what contradicts it."""


class AcceptPending(MemoryRequest):
    """Accept a pending memory, with another text if `content` is given."""

    seen: Stamps = arg(())
    content: Content | None = arg(None)


class RejectPending(MemoryRequest):
    """Archive a pending memory."""

    seen: Stamps = arg(())


# --- looking after -----------------------------------------------------------------------------------------------


class ReadStats(BaseRequest):
    """Count memories by layer, type, strength and age, writes and recalls per day, and size."""

    heeded: Flag = arg(False, "How many of the memories shown to agents they used, by layer and hook.")
    cost: Flag = arg(False, "Model calls, tokens shown, bytes of cached prefixes changed, disk and memory.")


class CheckSaving(BaseRequest):
    """Say why the last write failed; nothing when it did not."""


class ProbeStore(BaseRequest):
    """Check what only the process with the store can; with `vectors_from`, compare some vectors with their texts."""

    vectors_from: Annotated[list[str | None], from_json(list)] | None = arg(None)


class ListJobs(BaseRequest):
    """Show every job: when it last ran and what it did."""


class PauseAgents(BaseRequest):
    """Stop agents from writing until a human says `pause --off` with the passphrase; reading still works."""

    off: Flag = arg(False, "Let agents write again.")
    lasting: Annotated[str, Text(20, 0)] = arg("", "End by itself after that long: 30m, 2h, 1d.")
    no_memory: Flag = arg(False, "Tell agents nothing unasked either.")


class Undo(BaseRequest):
    """Undo changes: the last one, a conversation's, or an agent's since a time."""

    what: Name = arg("", "`last`, or nothing with --conversation or --agent.")
    conversation: Name = arg("")
    agent: Name = arg("")
    since: When | None = arg(None, "With --agent.")
    only: Annotated[tuple[Identifier, ...], Listed(UNDONE_MAX)] = arg((), "Of these changes, those of these memories.")
    apply: Flag = arg(False, "Do it; without this the plan is only shown.", option="yes")


class PreviewPurge(BaseRequest):
    """List the memories that a purge of these ids, or of this text, would erase."""

    ids: Annotated[tuple[Identifier, ...], Listed(PURGED_MAX)] = arg(())
    text: Annotated[str, Exact(CONTENT_MAX, 0)] = arg("")


class Purge(PreviewPurge):
    """Erase memories for good, by id or by a text. seen: identifies the preview that was shown."""

    seen: Annotated[str, Exact(NAME_MAX)] = arg()


class RunJob(BaseRequest):
    """Run one job now."""

    name: Identifier = arg()
    dry_run: Flag = arg(False, "Only list what it would do.")


class SwitchJobs(BaseRequest):
    """Let the engine run jobs by itself, or not; kept over restarts."""

    on: Flag = arg(False)


class ReadReport(BaseRequest):
    """Show what an earlier context cost and why."""

    id: Label = arg("", "A report's id; without one, the reports that are kept.")


class ListReports(BaseRequest):
    """List the reports of contexts that are kept."""


class ReindexStore(BaseRequest):
    """Continue rebuilding words, indexes and (with `vectors`) vectors for a short time, while searches run."""

    vectors: Flag = arg(False)


class CreateBackup(BaseRequest):
    """Write a backup to an absolute path, a file or a folder; writers wait while memories are read."""

    file: Path = arg()


# --- projects ---

Aliases = Annotated[dict[str, list[str]], from_json(dict)]
"""Project id -> its aliases."""


class ListProjects(BaseRequest):
    """List every project: its folders, how it is recognised, how many memories it has, and which other it may be.

    aliases: of projects elsewhere; the answer says which of them are known here under another id.
    """

    aliases: Aliases = arg({})


class LinkProject(BaseRequest):
    """Make the caller's folder, or `folder`, part of a project; with `moved` it is where that project is now."""

    project: Name = arg("")
    folder: Annotated[str, Exact(PATH_MAX, 0)] = arg("")
    moved: Flag = arg(False)


class MergeProjects(BaseRequest):
    """Move every memory of one project to another, or with `undo` those that a merge moved back."""

    source: Name = arg("")
    target: Name = arg("")
    undo: Flag = arg(False)

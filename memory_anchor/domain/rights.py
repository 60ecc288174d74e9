"""Who may do what: one table, and one function that every door asks. Pure.

A door (tool, command, hook, HTTP, import line, job) names the `Action`, the caller and the memories it would change,
and gets a reason why not, or "". Nothing else in the code decides by who is calling. `docs/security.md` has the same
table for people; a test compares the two. Where arguments meet (what is written x who reads it x whose the target is
and how it stands x who calls) two more tables say what comes of it, cell by cell; a test walks each through every door.

Rejected: a check at each use case. There were fourteen, five of them missing, and nobody could read them together. Not
covered: a process of the same user that opens the files themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json, records, text, whole
from memory_anchor.domain.errors import Refused
from memory_anchor.domain.model import Caller, Layer, Memory, MemoryType, Origin, Status, Visibility, audience

HUMAN_AUTHOR = "human:"
"""The prefix of the author of every version that a human wrote."""


class Principal(StrEnum):
    """A column of the table."""

    AGENT = "agent"
    TERMINAL = "human at a terminal"
    BROWSER = "human in the browser"
    JOB = "job"
    READER_KEY = "key of a reader"
    WRITER_KEY = "of a writer"
    APPROVER_KEY = "of an approver"
    ADMIN_KEY = "of an admin"


PRINCIPAL_OF_CALLER: Mapping[Caller, Principal] = {
    Caller.AGENT: Principal.AGENT,
    Caller.HUMAN: Principal.TERMINAL,
    Caller.SYSTEM: Principal.JOB,
}
"""A caller that is no agent has proved it: a human by the passphrase, a job by running inside the engine."""


class Right(StrEnum):
    """A cell of the table, in the words of the docs."""

    YES = "yes"
    READER = "what it may read"
    GATE = "as itself, through the gate"
    BESIDE_HUMANS = "nothing that a human wrote or pinned"
    OWN_PIN = "no pin that a human set"
    NOT_A_HUMANS_END = "nothing that a human archived"
    UNDECIDED = "nothing that waits for the user"
    LOWERED = "at its own trust, line by line"
    REVIEW = "waits for review"
    SIGNED = "signed with their own key"
    NO = "no"
    LATER = "later"


class Action(StrEnum):
    """A row of the table: one use case, whatever door it comes through."""

    # writing
    SAVE = "save"
    SAVE_FOR_ACCOUNT = "save for the whole account"
    LOG = "log"
    PROMOTE = "promote"
    NOTE = "note in the active context"
    END_SESSION = "end a session"
    LEARN = "learn from a conversation"
    PROPOSE = "propose for the constitution"
    # changing what is there
    DISPLACE = "replace, merge into or dispute away"
    EDIT = "edit"
    JUDGE = "judge"
    FORGET = "forget"
    RESTORE = "restore"
    PIN = "pin"
    UNPIN = "unpin"
    SETTLE = "settle a contradiction"
    UNDO = "undo"
    UNDO_HUMANS = "undo of what a human did"
    # deciding
    ACCEPT = "review: accept or edit"
    REJECT = "review: reject"
    MERGE = "review: merge"
    APPROVE_PROPOSAL = "approve a proposal"
    REJECT_PROPOSAL = "reject a proposal"
    ADOPT = "adopt an edited constitution"
    INIT = "init, trust a colleague"
    PURGE = "purge"
    # running
    PAUSE = "pause"
    RESUME = "pause --off"
    WRITE_PAUSED = "write while paused"
    JOBS = "jobs run, start, stop"
    REINDEX = "reindex"
    BACKUP = "backup create"
    BACKUP_RESTORE = "backup restore over a memory"
    MIGRATE = "migrate to another store"
    IMPORT = "import"
    IMPORT_IDENTITY = "import of the constitution's layer"
    IMPORT_PROJECTS = "import of project names and of an audit trail"
    KNOWLEDGE = "knowledge add, push, sync, remove"
    TRUST_KNOWLEDGE = "trust a source of knowledge, read one outside of the project or by a command, remove a human's"
    # reading
    EXPORT = "export"
    EXPORT_ALL = "export of everybody's memories"
    READ = "search, get, list, history, why-not, events"
    CONTEXT = "build a context, show its report"
    STATS = "stats"
    CONFIG = "config, doctor"
    PROJECTS = "list projects"
    LINK = "link or move a project's folder"
    MERGE_PROJECTS = "merge projects"
    MAKE_KEYS = "make access keys"
    REVOKE_KEYS = "list and revoke access keys"
    EXCHANGE = "sync now, status"
    JOIN_DEVICES = "sync setup, revoke of a device, a purge for other devices"


_Y, _R, _N, _L = Right.YES, Right.READER, Right.NO, Right.LATER
_READ = frozenset({Action.READ, Action.CONTEXT, Action.STATS})
_ADDED = frozenset(
    {
        *(Action.SAVE, Action.SAVE_FOR_ACCOUNT, Action.LOG, Action.PROMOTE, Action.NOTE),
        *(Action.END_SESSION, Action.LEARN, Action.PROPOSE, Action.DISPLACE),
    }
)
_WRITTEN = _ADDED | {Action.FORGET, Action.SETTLE, Action.KNOWLEDGE}
"""What a writer's key may do over HTTP, with the rights of an agent."""
_DECIDED = frozenset({Action.ACCEPT, Action.REJECT, Action.MERGE})
NO_PAGE = frozenset(
    {
        *_ADDED,
        *(Action.ADOPT, Action.INIT, Action.WRITE_PAUSED, Action.REINDEX, Action.BACKUP_RESTORE),
        *(Action.IMPORT, Action.IMPORT_IDENTITY, Action.IMPORT_PROJECTS, Action.EXPORT, Action.EXPORT_ALL),
        *(Action.PROJECTS, Action.LINK, Action.MERGE_PROJECTS, Action.MAKE_KEYS, Action.REVOKE_KEYS, Action.MIGRATE),
        *(Action.EXCHANGE, Action.JOIN_DEVICES),
    }
)
"""Actions without a dashboard page; for the others, the passphrase in a form gives the rights of a terminal."""


def _key_rights(action: Action, agent: Right) -> tuple[Right, Right, Right, Right]:
    """Return the rights of a reader's, writer's, approver's and admin's key; each has those of the one before."""
    if action in _READ:
        return agent, agent, agent, agent
    if action in _WRITTEN:
        return _N, agent, agent, agent
    if action in _DECIDED:
        return _N, _N, Right.SIGNED, Right.SIGNED
    return _N, _N, _N, _N


def _browser(action: Action, human: Right) -> Right:
    return _L if action in NO_PAGE else human


RIGHTS: Mapping[Action, Mapping[Principal, Right]] = {
    action: dict(zip(Principal, (agent, human, _browser(action, human), job, *_key_rights(action, agent)), strict=True))
    for action, agent, human, job in (
        (Action.SAVE, Right.GATE, _Y, Right.GATE),
        (Action.SAVE_FOR_ACCOUNT, Right.REVIEW, _Y, Right.REVIEW),
        (Action.LOG, _Y, _Y, _Y),
        (Action.PROMOTE, Right.NOT_A_HUMANS_END, _Y, _N),
        (Action.NOTE, _Y, _Y, _N),
        (Action.END_SESSION, _Y, _Y, _Y),
        (Action.LEARN, Right.GATE, Right.GATE, Right.GATE),
        (Action.PROPOSE, _Y, _Y, _N),
        (Action.DISPLACE, Right.BESIDE_HUMANS, _Y, Right.BESIDE_HUMANS),
        (Action.EDIT, Right.BESIDE_HUMANS, _Y, _N),
        (Action.JUDGE, Right.BESIDE_HUMANS, _Y, _N),
        (Action.FORGET, Right.BESIDE_HUMANS, _Y, Right.BESIDE_HUMANS),
        (Action.RESTORE, Right.NOT_A_HUMANS_END, _Y, _N),
        (Action.PIN, Right.BESIDE_HUMANS, _Y, _N),
        (Action.UNPIN, Right.OWN_PIN, _Y, _N),
        (Action.SETTLE, Right.UNDECIDED, _Y, Right.UNDECIDED),
        (Action.UNDO, Right.BESIDE_HUMANS, _Y, _N),
        (Action.UNDO_HUMANS, _N, _Y, _N),
        (Action.ACCEPT, _N, _Y, _N),
        (Action.REJECT, _N, _Y, _N),
        (Action.MERGE, Right.UNDECIDED, _Y, _N),
        (Action.APPROVE_PROPOSAL, _N, _Y, _N),
        (Action.REJECT_PROPOSAL, _N, _Y, _N),
        (Action.ADOPT, _N, _Y, _N),
        (Action.INIT, _N, _Y, _N),
        (Action.PURGE, _N, _Y, _N),
        (Action.PAUSE, _Y, _Y, _N),
        (Action.RESUME, _N, _Y, _N),
        (Action.WRITE_PAUSED, _N, _Y, _N),
        (Action.JOBS, _Y, _Y, _N),
        (Action.REINDEX, _Y, _Y, _N),
        (Action.BACKUP, _Y, _Y, _N),
        (Action.BACKUP_RESTORE, _N, _Y, _N),
        (Action.MIGRATE, _N, _Y, _N),
        (Action.IMPORT, Right.LOWERED, _Y, _N),
        (Action.IMPORT_IDENTITY, _N, _Y, _N),
        (Action.IMPORT_PROJECTS, _N, _Y, _N),
        (Action.KNOWLEDGE, _Y, _Y, _N),
        (Action.TRUST_KNOWLEDGE, _N, _Y, _N),
        (Action.EXPORT, _R, _Y, _N),
        (Action.EXPORT_ALL, _N, _Y, _N),
        (Action.READ, _R, _R, _N),
        (Action.CONTEXT, _R, _R, _N),
        (Action.STATS, _R, _R, _N),
        (Action.CONFIG, _Y, _Y, _N),
        (Action.PROJECTS, _Y, _Y, _N),
        (Action.LINK, _N, _Y, _N),
        (Action.MERGE_PROJECTS, _N, _Y, _N),
        (Action.MAKE_KEYS, _N, _Y, _N),
        (Action.REVOKE_KEYS, _Y, _Y, _N),
        (Action.EXCHANGE, _Y, _Y, _Y),
        (Action.JOIN_DEVICES, _N, _Y, _N),
    )
}

_REFUSALS: Mapping[Action, str] = {
    Action.ACCEPT: "review needs a human: run `memory-anchor review` on a terminal with the passphrase",
    Action.REJECT: "review needs a human: run `memory-anchor review` on a terminal with the passphrase",
    Action.PURGE: "purge erases for good and is for humans: run `memory-anchor purge` on a terminal",
    Action.RESUME: "only a human ends a pause: run `memory-anchor pause --off` on a terminal with the passphrase "
    "(`memory-anchor init` sets one)",
    Action.WRITE_PAUSED: "memory is paused; nothing was written (a human's own command with --human is, and "
    "`memory-anchor pause --off` goes on)",
    Action.SAVE_FOR_ACCOUNT: "visible to the whole account: it waits for `memory-anchor review`",
    Action.IMPORT_IDENTITY: "it belongs to the constitution, which only a human brings in; run the import on a "
    "terminal with --human",
    Action.EXPORT_ALL: "memories of other projects and agents are a human's to export: `memory-anchor export --human`",
}
"""The sentences of refusals; other actions get one made of their name."""
USERS_TYPES = frozenset({MemoryType.DECISION, MemoryType.INSTRUCTION, MemoryType.PREFERENCE})
"""Types whose contradictions only a human settles; of the others an agent may settle one."""


KEY_PRINCIPALS = frozenset({Principal.READER_KEY, Principal.WRITER_KEY, Principal.APPROVER_KEY, Principal.ADMIN_KEY})
_ROLES = {principal: principal.value.rpartition(" ")[2] + "'s" for principal in KEY_PRINCIPALS}


def refusal(
    action: Action,
    caller: Caller | Principal,
    touched: Sequence[Memory] = (),
    *,
    versions: Sequence[Memory] = (),
    asks_user: Collection[MemoryType] = (),
) -> str:
    """Return why `caller` may not do this, in one sentence; "" if it may.

    touched: the current versions of what the action would change. versions: of the one memory that is unpinned, in any
    order. asks_user: types whose contradictions the settings leave to the user (`conflicts.policy`).
    """
    principal = caller if isinstance(caller, Principal) else PRINCIPAL_OF_CALLER[caller]
    match RIGHTS[action][principal]:
        case Right.YES | Right.READER | Right.GATE | Right.LOWERED | Right.SIGNED:
            return ""
        case Right.NO if principal in KEY_PRINCIPALS:
            return f"{action.value}: this {_ROLES[principal]} key may not; ask whoever runs the server for another role"
        case Right.NO | Right.REVIEW:
            return _REFUSALS.get(action, f"{action.value} is for humans: run it on a terminal with the passphrase")
        case Right.LATER:
            return f"{action.value}: there is no door for a {principal.value} yet"
        case Right.BESIDE_HUMANS:
            return _humans(action, touched, owned=True)
        case Right.OWN_PIN:
            if pinned_by_human(versions) or any(is_human_owned(replace(memory, pinned=False)) for memory in touched):
                return f"{touched[0].id} was pinned by a human; only a human can unpin it"
            return _humans(action, touched, owned=False)
        case Right.NOT_A_HUMANS_END:
            return _humans(action, touched, owned=False)
        case Right.UNDECIDED:
            if not waits_for_user(touched, asks_user):
                return ""
            return f"the contradiction of {touched[0].id} waits for the user: `memory-anchor review` on a terminal"


def _humans(action: Action, touched: Sequence[Memory], *, owned: bool) -> str:
    """Return why this is a human's alone: one ended a memory, or (owned) one owns it; "" where none did."""
    for memory in touched:
        if was_ended_by_human(memory):
            return f"{memory.id} was {memory.status.value} by a human; only a human can {action.value} it"
        if owned and is_human_owned(memory):
            what = "pinned" if memory.pinned else "a human's, who wrote it or let it in"
            return f"{memory.id} is {what}; only a human can {action.value} it"
    return ""


def check(
    action: Action,
    caller: Caller | Principal,
    touched: Sequence[Memory] = (),
    *,
    versions: Sequence[Memory] = (),
    asks_user: Collection[MemoryType] = (),
) -> None:
    """Raise Refused with the reason from `refusal`, if there is one."""
    if why := refusal(action, caller, touched, versions=versions, asks_user=asks_user):
        raise Refused(why)


def may(action: Action, caller: Caller | Principal, touched: Sequence[Memory] = ()) -> bool:
    """Return whether `refusal` has no reason against it."""
    return not refusal(action, caller, touched)


def is_human(caller: Caller) -> bool:
    """Return whether the caller proved to be a human."""
    return caller is Caller.HUMAN


def import_refusal(caller: Caller, memory: Memory, current: Memory | None, *, reads: Collection[str]) -> str:
    """Return why `caller` may not import this version of an exported memory; "" if it may.

    current: the newest version with this id here. reads: the audiences the caller can read. An imported line may not do
    what its caller could not do otherwise: speak or pin as a human, reach beyond what the caller reads, decide what
    waits for a human, or replace what a human said.
    """
    if is_human(caller):
        return ""
    if memory.layer is Layer.IDENTITY_SCHEMA:
        return f"{memory.id} {refusal(Action.IMPORT_IDENTITY, caller)}"
    decides = current is not None and current.status in (Status.PENDING, Status.DISPUTED)
    claims = (
        (memory.origin is Origin.HUMAN or memory.author.startswith(HUMAN_AUTHOR), "speaks for a human"),
        (memory.pinned, "is pinned"),
        (memory.visibility is Visibility.ACCOUNT, "is for the whole account"),
        (current is not None and current.audience not in reads, "follows what is not visible to you"),
        (memory.audience not in reads, "is for another project, agent or conversation"),
        (decides, "decides what waits for a human"),
        (current is not None and is_human_owned(current), "follows what a human said"),
        (current is not None and current.author.startswith(HUMAN_AUTHOR), "follows what a human decided"),
        (current is not None and current.status is Status.SUPERSEDED, "follows what was superseded"),
    )
    claim = next((reason for holds, reason in claims if holds), "")
    return claim and (f"{memory.version_id} {claim}; a human brings it in: run the import on a terminal with --human")


def was_ended_by_human(memory: Memory) -> bool:
    """Return whether a human archived it or settled against it; whatever an agent wrote over that would hide it."""
    return memory.status in (Status.ARCHIVED, Status.SUPERSEDED) and memory.author.startswith(HUMAN_AUTHOR)


ACCEPTED = "accepted in review"
"""How the reason of every version ends by which a human let a memory in."""


def is_human_owned(memory: Memory) -> bool:
    """Return whether only a human may change a memory: one wrote it, pinned it, let it in, or kept it in a dispute.

    The last two are of human origin from then on; earlier versions of this program left the origin as it was.
    """
    accepted = memory.author.startswith(HUMAN_AUTHOR) and memory.reason.endswith(ACCEPTED)
    return memory.pinned or memory.origin is Origin.HUMAN or accepted


_READ_BY_FEWER: Mapping[Visibility, tuple[Visibility, ...]] = {
    Visibility.ACCOUNT: tuple(Visibility),
    Visibility.USER: (Visibility.AGENT,),
    Visibility.PROJECT: (Visibility.AGENT, Visibility.CONVERSATION),
    Visibility.AGENT: (),
    Visibility.CONVERSATION: (),
}
"""Visibility -> those whose readers all read it too, where account, project and user are the same."""


def is_read_by_all_of(memory: Memory, other: Memory) -> bool:
    """Return whether everybody who may read `other` may read `memory`.

    Asked wherever one memory displaces, disputes, ends, quotes or is shown beside another: what ends `other` must reach
    its readers, and what is shown beside it must be theirs to read. A dispute, which marks both, asks both ways.
    """
    if memory.audience == other.audience:
        return True
    if other.visibility not in _READ_BY_FEWER[memory.visibility]:
        return False
    return audience(other.scope, memory.visibility) == memory.audience


def have_same_readers(memory: Memory, other: Memory) -> bool:
    """Return whether the very same callers may read both."""
    return is_read_by_all_of(memory, other) and is_read_by_all_of(other, memory)


def waits_for_user(memories: Sequence[Memory], asks_user: Collection[MemoryType] = ()) -> bool:
    """Return whether only a human may settle a contradiction between these memories."""
    return any(memory.type in USERS_TYPES or memory.type in asks_user or is_human_owned(memory) for memory in memories)


def pinned_by_human(versions: Sequence[Memory]) -> bool:
    """Return whether a human set, or set again, the pin that the newest version has."""
    for version in sorted(versions, key=lambda memory: -memory.version):
        if not version.pinned:
            return False
        if version.author.startswith(HUMAN_AUTHOR):
            return True
    return False


def version_stamp(memory_id: str, version: int, content: str) -> str:
    """Return a name for one version of a memory as it was shown: id, version and a hash of its text.

    >>> version_stamp("m1", 2, "Use uv") == version_stamp("m1", 2, "Use  uv")
    False
    """
    return f"{memory_id}@{version}:{stable_hash(content)[:32]}"


def purge_digest(memories: Iterable[Mapping[str, Json]]) -> str:
    """Return a name for what a purge erases, made of the memories and versions that were shown to a human.

    memories: each with `id` and its `versions`, each with `version` and `content`.
    """
    stamps = [
        version_stamp(text(memory["id"]), whole(version["version"]), text(version["content"]))
        for memory in memories
        for version in records(memory["versions"])
    ]
    return stable_hash(*sorted(stamps))


def check_seen(seen: Collection[str], decided: Sequence[Memory], *, beside: Sequence[Memory] = ()) -> None:
    """Raise Refused unless a decision names exactly these versions by `version_stamp`, as they were shown.

    beside: what may have been shown with them; named, it must be as it is.
    """
    if not seen:
        raise Refused(
            f"the decision on {decided[0].id} does not name what was shown; `memory-anchor review` shows it and asks"
        )
    now = {version_stamp(memory.id, memory.version, memory.content) for memory in decided}
    with_others = {version_stamp(memory.id, memory.version, memory.content) for memory in beside}
    if not now <= set(seen) <= now | with_others:
        raise Refused(f"{decided[0].id}, or what it stands against, changed since it was shown; look at it again")


class Alteration(StrEnum):
    """A row of the second table: what a write does to a memory that is there."""

    REPLACE = "save with `replaces`, for the same readers"
    REPLACE_WIDER = "save with `replaces`, for more readers"
    REPLACE_NARROWER = "save with `replaces`, for fewer or other readers"
    EDIT = "edit"
    JUDGE = "judge"
    PIN = "pin"
    FORGET = "forget"
    PROMOTE = "promote an event"
    RESTORE = "restore"
    SETTLE = "settle: keep new, keep old, merge"
    ACCEPT = "accept"
    REJECT = "reject"
    UNDO = "undo of the change that made it so"
    FOLLOW = "import of a line that follows it, active"
    ERASE = "remove a source of knowledge"


class Target(StrEnum):
    """A column of the second table. A human's: one wrote it, let it in, or pinned it."""

    ACTIVE = "an agent's"
    HUMANS = "a human's"
    WAITS = "pending"
    DISPUTED = "disputed"
    HUMANS_DISPUTED = "a human's, disputed"
    ARCHIVED = "archived"
    HUMANS_ARCHIVED = "archived by a human"
    SUPERSEDED = "superseded"


class Effect(StrEnum):
    """A cell of the second table, for one caller."""

    DONE = "done"
    INHERITS = "done, takes over the dispute"
    DISPUTES = "both disputed"
    WAITS = "waits"
    REFUSED = "refused"
    NOTHING = "-"


_D, _F, _O = Effect.DONE, Effect.REFUSED, Effect.NOTHING
_ANY = (_D,) * 8
_BESIDE = (_D, _F, _D, _D, _F, _D, _F, _D)
CHANGES: Mapping[Alteration, Mapping[Target, tuple[Effect, Effect]]] = {
    change: dict(zip(Target, zip(agent, human, strict=True), strict=True))
    for change, agent, human in (
        (
            Alteration.REPLACE,
            (_D, Effect.DISPUTES, _D, Effect.INHERITS, Effect.DISPUTES, _O, _O, _O),
            (_D, _D, _D, Effect.INHERITS, Effect.INHERITS, _O, _O, _O),
        ),
        (Alteration.REPLACE_WIDER, (_D, _F, _D, _F, _F, _O, _O, _O), (_D, _D, _D, _F, _F, _O, _O, _O)),
        (Alteration.REPLACE_NARROWER, (_F, _F, _F, _F, _F, _O, _O, _O), (_F, _F, _F, _F, _F, _O, _O, _O)),
        (Alteration.EDIT, _BESIDE, _ANY),
        (Alteration.JUDGE, _BESIDE, _ANY),
        (Alteration.PIN, _BESIDE, _ANY),
        (Alteration.FORGET, (_D, _F, _D, _D, _F, _O, _O, _D), (_D, _D, _D, _D, _D, _O, _O, _D)),
        (Alteration.PROMOTE, (_D, _D, Effect.WAITS, _O, _O, _D, _F, _O), (_D, _D, _D, _O, _O, _D, _D, _O)),
        (Alteration.RESTORE, (_O, _O, _O, _O, _O, _D, _F, _O), (_O, _O, _O, _O, _O, _D, _D, _O)),
        (Alteration.SETTLE, (_O, _O, _O, _F, _F, _O, _O, _O), (_O, _O, _O, _D, _D, _O, _O, _O)),
        (Alteration.ACCEPT, (_F,) * 8, (_O, _O, _D, _O, _O, _O, _O, _O)),
        (Alteration.REJECT, (_F,) * 8, (_O, _O, _D, _O, _O, _O, _O, _O)),
        (Alteration.UNDO, (_D, _F, _D, _D, _F, _D, _F, _D), _ANY),
        (Alteration.FOLLOW, (_D, _F, _F, _F, _F, _D, _F, _F), _ANY),
        (Alteration.ERASE, (_D, _F, _O, _O, _O, _O, _O, _O), (_D, _D, _O, _O, _O, _O, _O, _O)),
    )
}
"""What a change does to a target: (for an agent, for a human). `NOTHING`: it asks for a memory of another status, and
leaves this one as it is. A job makes none of these changes; it has its own rows in `RIGHTS`."""


class Brought(StrEnum):
    """A row of the third table: a memory that is new here."""

    CONVERSATION = "save for the conversation"
    AGENT = "save for the agent"
    PROJECT = "save for the project"
    USER = "save for the user"
    ACCOUNT = "save for the account"
    LINE = "import of an active line"
    LINE_UNSURE = "import of an active line, confidence 0.8"
    LINE_DOUBTED = "import of an active line, confidence 0.2"
    LINE_DOCUMENT = "import of an active line from a document"
    LINE_PENDING = "import of a pending line"
    LINE_DISPUTED = "import of a disputed line, without its other side"
    LINE_ARCHIVED = "import of an archived line, then `restore`"
    LINE_SUPERSEDED = "import of a superseded line"
    LINE_HUMANS = "import of a human's line"
    LINE_PINNED = "import of a pinned line"
    LINE_ACCOUNT = "import of a line for the account"
    LINE_ELSEWHERE = "import of a line of another project or agent"


BROUGHT: Mapping[Brought, tuple[Effect, Effect]] = {
    **dict.fromkeys(Brought, (_D, _D)),
    Brought.ACCOUNT: (Effect.WAITS, _D),
    Brought.LINE_UNSURE: (Effect.WAITS, _D),
    Brought.LINE_PENDING: (Effect.WAITS, Effect.WAITS),
    Brought.LINE_DISPUTED: (Effect.WAITS, _D),
    Brought.LINE_ARCHIVED: (Effect.WAITS, _D),
    Brought.LINE_SUPERSEDED: (_O, _O),
    **dict.fromkeys((Brought.LINE_DOUBTED, Brought.LINE_DOCUMENT, Brought.LINE_HUMANS), (_F, _D)),
    **dict.fromkeys((Brought.LINE_PINNED, Brought.LINE_ACCOUNT, Brought.LINE_ELSEWHERE), (_F, _D)),
}
"""What becomes of it: (for an agent, for a human). `NOTHING`: it is history, and never in force."""

"""What a page's forms do, and what pages need besides calls: the human's key, files, the engine.

The passphrase goes from the page to this process, which the human started on a terminal, and no further: it opens the
key here, and the engine gets a signature over one request, as from every other command. One try at a time, so that
parallel ones are counted; after refused tries the page shows the wait instead of sleeping.

Whatever changes a memory is signed with the passphrase of that very form. An action returns the next address; its
result is a notice there. A form names the version that was shown, so a memory that changed meanwhile, in another tab
too, is not touched but shown again; it is of one project, and void once its session shows another.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, BinaryIO

from memory_anchor.admin import backup_list
from memory_anchor.base.files import make_private
from memory_anchor.base.json_values import Json, Record, items, parsed, record, records, text, whole
from memory_anchor.base.json_values import text as text_of
from memory_anchor.base.pausing import pause_of
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, Refused, Unavailable
from memory_anchor.domain.rights import purge_digest
from memory_anchor.extensions.dashboard.access import Session, Upload
from memory_anchor.extensions.dashboard.wording import Words
from memory_anchor.extensions.transfer import opening
from memory_anchor.extensions.transfer.commands import TOOL_NAMES
from memory_anchor.extensions.transfer.transfer_files import import_file
from memory_anchor.front import doctor
from memory_anchor.front.cli import link
from memory_anchor.front.cli.passphrase import identity, key_ring, unlock
from memory_anchor.front.cli.review import version_stamps
from memory_anchor.identity import proposals
from memory_anchor.language.safe_regex import late
from memory_anchor.runtime import engine, launch

if TYPE_CHECKING:
    from memory_anchor.identity.identity_schema import IdentitySchema
    from memory_anchor.identity.keys import Signer

WAKE_S = 60.0
WAKE_PAUSE_S = 0.05
NAV = ("inbox", "search", "timeline", "sessions", "context", "knowledge", "health", "use")
PATHS = {name: "/" if name == "inbox" else f"/{name}" for name in NAV}
PROPOSALS_SHOWN = 20
PROJECTS_SHOWN = 50
"""Of those with memories, the fullest; `memory-anchor projects list` has all."""
PROJECTS_AGE_S = 10.0
_PROJECTS: dict[tuple[str, str, str], tuple[float, list[Record]]] = {}
_ONE_TRY = threading.Lock()


class NotSigned(Refused):
    """The passphrase was missing, wrong, or too soon. key: of the message; n: seconds to wait."""

    def __init__(self, key: str, n: int = 0) -> None:
        super().__init__(key)
        self.key, self.n = key, n


def signer(session: Session, typed: str, *, tell: Callable[[str], None]) -> Signer:
    """Return the human whose passphrase this is; a wrong one counts against the session. Raises NotSigned.

    tell: gets the message about earlier refused tries.
    """
    if not typed:
        raise NotSigned("sign.missing")
    with _ONE_TRY:
        keys = key_ring(link.data_dir())
        if keys.own() is None and not keys.warning():
            raise NotSigned("sign.no_key")
        if (wait := keys.refused_tries().wait_s(datetime.now(UTC))) > 0:
            raise NotSigned("sign.wait", int(wait) + 1)
        try:
            return unlock(keys, lambda: typed, tell=tell)
        except Refused as error:
            session.refused += 1
            if keys.own() is None:
                raise
            raise NotSigned("sign.wrong") from error


# --- the engine ----------------------------------------------------------------------------------------------------


def ask(name: str, /, *, human: Signer | None = None, **given: Json) -> Record:
    """Return the engine's answer to one call, after starting one where none runs. Raises our errors."""
    return link.call(name, human=human, **given)


def wake() -> Record:
    """Return the engine's status, after starting one where none runs. Raises Unavailable."""
    data, began, until = link.data_dir(), time.time(), time.monotonic() + WAKE_S
    status = engine.status(data)
    if status is None:
        try:
            launch.start(str(data), os.environ)
        except OSError as error:
            why = f"no engine could be started ({error.strerror or error}); see `memory-anchor doctor`"
            raise Unavailable(why) from error
    while status is None:
        time.sleep(WAKE_PAUSE_S)
        if reason := launch.failure(str(data), after=began)[0]:
            raise Unavailable(f"no engine could be started: {reason}")
        try:
            status = engine.status(data)
        except Unavailable:  # still loading, on a busy machine
            if time.monotonic() > until:
                raise
        if status is None and time.monotonic() > until:
            raise Unavailable(f"no engine answered within {WAKE_S:g} s; see `memory-anchor doctor`")
    return dict(status)


def saving() -> str:
    """Return why the last write failed, "" when it did not."""
    return str(ask("saving")["failure"])


def known_projects() -> list[Record]:
    """Return `projects`, counted anew after `PROJECTS_AGE_S`: their counts cost as much as the rest of a page."""
    name, now = _place(), time.monotonic()
    at, shown = _PROJECTS.get(name, (0.0, []))
    if not shown or now - at > PROJECTS_AGE_S:
        while len(_PROJECTS) >= PROJECTS_SHOWN:
            _PROJECTS.pop(next(iter(_PROJECTS)), None)
        _PROJECTS[name] = now, (shown := projects())
    return shown


def projects() -> list[Record]:
    """Return the projects that can be shown, this one first: {id, name, folder, memories, here}; folder "" for none."""
    shown: list[Record] = []
    for row in records(ask("projects_list")["projects"]):
        paths = [Path(text_of(path)) for path in items(row["paths"])]
        folder = next((path for path in paths if path.is_dir()), None)
        if row["here"] or row["memories"]:
            name = next((path.name for path in (folder, *paths) if path), "") or row["id"]
            kept: Record = {key: row[key] for key in ("id", "memories", "here")}
            shown.append({**kept, "name": name, "folder": str(folder or "")})
    return sorted(shown, key=lambda row: (not row["here"], -whole(row["memories"])))[:PROJECTS_SHOWN]


# --- files ---------------------------------------------------------------------------------------------------------


def paused() -> Record | None:
    """Return the pause in force, None for none."""
    pause = pause_of(link.data_dir(), datetime.now(UTC))
    return None if pause is None else {"until": pause.until.isoformat() if pause.until else "", "silent": pause.silent}


def key() -> Record:
    """Return the human of this installation: {name, warning, fingerprint}."""
    keys = key_ring(link.data_dir())
    own = keys.own()
    fingerprint = keys.fingerprint() if own else ""
    return {"name": own.name if own else "", "warning": keys.warning(), "fingerprint": fingerprint}


def backups() -> list[backup_list.ListedBackup]:
    return backup_list.listed(link.data_dir())[::-1]


def checks() -> list[Record]:
    """Return the results of `doctor`; takes seconds."""
    return [asdict(check) for check in doctor.diagnose(os.environ, link.data_dir(), audit=True)]


# --- the constitution ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=PROJECTS_SHOWN)
def _constitution_of(_: tuple[str, str, str]) -> IdentitySchema:
    """Return the schema that a project's pages read: it knows the files it read, and reads them again once changed.

    A new one for each page read the audit trail whole each time: 150 ms at 100,000 memories.
    """
    return identity()


def _place() -> tuple[str, str, str]:
    """Return what names a project among those of this process: data directory, id, folder."""
    return str(link.data_dir()), str(link.preamble().project), str(link.preamble().project_dir)


def constitution() -> Record:
    """Return L0 and the proposals for it.

    A proposal comes with its diff and `seen`, the hash that a decision on it names.
    """
    schema = _constitution_of(_place())
    served = schema.load()
    waiting = [proposal for proposal in schema.proposals() if proposal.status.value == "open"]
    shown = []
    for proposal in waiting[:PROPOSALS_SHOWN]:
        try:
            more = {"diff": schema.diff(proposal), "seen": schema.fingerprint(proposal), "wrong": ""}
        except MemoryAnchorError as error:
            more = {"diff": "", "seen": "", "wrong": str(error)}
        shown.append({**proposals.as_json(proposal), "content": proposal.content, **more})
    return {
        "entries": [asdict(entry) for entry in served.entries],
        "warnings": list(served.warnings),
        "tokens": served.tokens,
        "version": served.version,
        "proposals": shown,
        "proposals_count": len(waiting),
        "initialised": schema.initialised,
    }


# --- forms -----------------------------------------------------------------------------------------------------------

Form = Mapping[str, str]
Action = Callable[[Form, Session, Words], str]
ITEMS_MAX = 1_000
EXPORT = "export"
IMPORTED = (EXPORT, *TOOL_NAMES)
"""What a file to import may be: our own export, or one file of another tool."""
IMPORT_BYTES_MAX = 16 << 20
IMPORT_LINES_MAX = 500
"""Of one file that comes in by the page, some 50 ms each; `memory-anchor import` takes any number, with progress."""
IMPORT_SHOWN = 20
FILE_NAME, FILE_NAME_CHARS = late(r"[^\w.-]+"), 60
_UPLOADS = threading.Lock()
"""Of all sessions: one post takes what was shown."""
SETTLES = ("keep_new", "keep_old", "keep_both", "merge")


def _signer(form: Form, session: Session) -> Signer:
    def tell(sentence: str) -> None:
        if sentence:
            _notify(session, "warning", sentence)

    return signer(session, form.get("passphrase", ""), tell=tell)


def _notify(session: Session, kind: str, text: str, **more: Json) -> None:
    session.notices.append({"kind": kind, "text": text, **more})


def decide(form: Form, session: Session, words: Words) -> str:
    """Carry out every choice of the inbox in turn; one that fails is reported and does not stop the others."""
    chosen = _chosen(form)
    if not chosen:
        raise BadInput(words("inbox.nothing_chosen"))
    human, done = _signer(form, session), dict.fromkeys(("accept", "reject", "settle"), 0)
    began, changed = words.now.isoformat(), dict.fromkeys(chosen, "")
    waiting = (record(item["memory"]) for item in records(ask("inbox", limit=ITEMS_MAX)["items"]))
    changed |= {text(memory["id"]): text(memory["content"]) for memory in waiting if memory["id"] in chosen}
    for name, (what, seen) in chosen.items():
        call = "settle" if what in SETTLES else what
        if call not in done:
            raise BadInput(f"choice is {what[:40]!r}; allowed are accept, reject, {', '.join(SETTLES)}")
        resolution = what if call == "settle" else None
        content = _edited(form, name, seen) if call == "accept" else None
        try:
            ask(call, human=human, id=name, seen=seen, resolution=resolution, content=content)
            done[call] += 1
        except MemoryAnchorError as error:
            _notify(session, "bad", str(error), id=name)
            del changed[name]
    if any(done.values()):
        sentences = [words(f"inbox.done_{what}", n=count) for what, count in done.items() if count]
        _done(session, words("list.join").join(sentences), began, changed)
    return form.get("back", "") if form.get("back", "").startswith("/?") else "/"


def _chosen(form: Form) -> dict[str, tuple[str, list[str]]]:
    """Return id -> (choice, stamps of what was shown), the items' own choices before those of their groups."""
    chosen: dict[str, tuple[str, list[str]]] = {}
    for field, what in form.items():
        kind, _, name = field.partition(".")
        if kind == "choice" and what:
            chosen[name] = what, form.get(f"seen.{name}", "").split()
        elif kind == "group" and what:
            for stamps in form.get(f"members.{name}", "").split(";"):
                if (memory := stamps.partition("@")[0]) and f"skip.{memory}" not in form:
                    chosen.setdefault(memory, (what, stamps.split()))
    return dict(list(chosen.items())[:ITEMS_MAX])


def _edited(form: Form, name: str, seen: list[str]) -> str | None:
    """Return the text that was typed instead of the one shown, None for the same."""
    text = form.get(f"text.{name}")
    own = next((stamp for stamp in seen if stamp.startswith(f"{name}@")), "")
    if text is None or not own:
        return None
    version = own.partition("@")[2].partition(":")[0]
    shown = version_stamps([{"id": name, "version": int(version) if version.isdecimal() else 0, "content": text}])
    return None if shown == [own] else text


def _done(session: Session, sentence: str, began: str, changed: Mapping[str, str]) -> None:
    """Report an action and remember it for undo. changed: id -> text; their last versions name the human as author."""
    by = str(record(items(ask("history", id=next(iter(changed)))["steps"])[-1])["by"]).partition(":")[2]
    each: list[Json] = [{"id": name, "text": text} for name, text in changed.items()]
    session.last[_project()] = {"text": sentence, "since": began, "by": by, "each": each}
    _notify(session, "good", sentence, undo=len(each))


def _project() -> str:
    """Return the name under which this project's last action is kept."""
    return str(link.preamble().project)


def undoable(session: Session, name: str) -> Record:
    """Return the last action in this project, None for none, and the one memory of it that has this id."""
    last = session.last.get(_project())
    each = records(last["each"]) if last else []
    return {"last": last, "one": next((memory for memory in each if memory["id"] == name), None)}


def undo(form: Form, session: Session, words: Words) -> str:
    """Undo the last action in this project, or what it did to one memory."""
    last, one = (undoable(session, form.get("id", ""))[part] for part in ("last", "one"))
    if not isinstance(last, dict) or (one is None and form.get("id")):
        raise BadInput(words("undo.nothing"))
    only: list[Json] = [memory["id"] for memory in ([record(one)] if one is not None else records(last["each"]))]
    human = _signer(form, session)
    done = ask("undo", human=human, agent=last["by"], since=last["since"], only=only, apply=True)
    undone = {row["id"] for row in (*records(done["steps"]), *records(done["left"]))} | set(only)
    left: list[Json] = [memory for memory in records(last["each"]) if memory["id"] not in undone]
    session.last[_project()] = {**last, "each": left}
    if not left:
        del session.last[_project()]
    _notify(session, "good", words("undo.done", n=len(items(done["steps"]))), undo=len(left))
    for row in records(done["left"]):
        _notify(session, "warning", f"{row['id']}: {row['reason']}", id=row["id"])
    return "/undo" if left else "/"


def choose_project(form: Form, session: Session, words: Words) -> str:
    """Show and change another project from now on; forms of the one before are not taken any more."""
    with link.in_project("", ""):
        row = next((row for row in projects() if row["id"] == form.get("project")), None)
    if row is None:
        raise BadInput(words("projects.none"))
    session.project = ("", "") if row["here"] else (text(row["id"]), text(row["folder"]))
    return form.get("back", "") if form.get("back", "") in PATHS.values() else "/"


def change(form: Form, session: Session, words: Words) -> str:
    """Edit, pin, unpin, forget, restore or judge one memory."""
    name, what = form.get("id", ""), form.get("change", "")
    given: dict[str, Json]
    match what:
        case "edit":
            given = {"content": form.get("content", ""), "expected_version": int(form.get("version") or 0)}
        case "forget":
            given = {"reason": form.get("reason", "")}
        case "judge":
            given = {"epistemic": form.get("epistemic", ""), "shown_by": form.get("shown_by", "")}
        case "pin" | "unpin" | "restore":
            given = {}
        case _:
            raise BadInput(f"change is {what[:40]!r}; allowed are edit, pin, unpin, forget, restore, judge")
    human = _signer(form, session)
    shown = records(ask("sides", id=name)["memories"])[:1]
    if form.get("seen") != version_stamps(shown)[0]:
        raise BadInput(words("memory.changed_since"))
    began = words.now.isoformat()
    done = ask(what, human=human, id=name, **given)
    if done["outcome"] == "skipped":
        _notify(session, "warning", text(done["reason"]))
    else:
        _done(session, words(f"memory.done_{what}"), began, {name: text(shown[0]["content"])})
    return f"/memory/{name}"


def add(form: Form, session: Session, words: Words) -> str:
    """Save a memory as the human's own."""
    human, began = _signer(form, session), words.now.isoformat()
    done = ask("add", human=human, content=form.get("content", ""), type=form.get("type", "") or "fact")
    if done["id"] is None or done["outcome"] == "skipped":
        _notify(session, "warning", text(done["reason"]), **({"id": done["id"]} if done["id"] else {}))
        return "/timeline"
    _done(session, words("add.done"), began, {text(done["id"]): form.get("content", "")})
    return f"/memory/{done['id']}"


def add_source(form: Form, session: Session, words: Words) -> str:
    """Let agents know a folder or a file of this machine, with the trust that the human gives it."""
    given = {name: form[name] for name in ("kind", "trust") if form.get(name)}
    ask("knowledge_add", human=_signer(form, session), ref=form.get("ref", ""), **given)
    _notify(session, "good", words("knowledge.is_added"))
    return "/knowledge"


def offer(form: Form, file: BinaryIO, name: str, session: Session, words: Words) -> Record:
    """Say what would come of a file, and keep it for `bring_in`; nothing is written. Raises BadInput: it cannot be."""
    tool, name, unreadable = form.get("tool", ""), PurePath(name.replace("\\", "/")).name, opening.Unreadable()
    if tool not in IMPORTED or not name:
        raise BadInput(words("import.no_file"))
    lines = _lines_of(file, name, tool, unreadable)
    opening.check_text(name, lines)
    first = list(islice((line for line in lines if line.strip()), IMPORT_LINES_MAX + 1))
    if len(first) > IMPORT_LINES_MAX:
        raise BadInput(words("import.too_many", n=IMPORT_LINES_MAX))
    done = import_file(ask, lines, link.data_dir(), project_dir=link.preamble().project_dir, tick=_untold, dry=True)
    lines.seek(0)
    digest = hashlib.file_digest(lines, "sha256").hexdigest()  # type: ignore[arg-type]
    if session.upload is not None:
        session.upload.lines.close()
    session.upload = Upload(name, _project(), digest, lines)
    wrong: list[Json] = [error["message"] for error in (*unreadable.shown, *done.errors)]
    for reason in done.reasons:
        told = reason["message"].removeprefix(f"line {reason['line']}:").strip()
        wrong.append(f"line {reason['line']}: {told or words('import.own_only')}")
    contents: list[Json] = [_content_of(line) for line in first[:IMPORT_SHOWN]]
    return {
        **{part: count for part, count in asdict(done).items() if isinstance(count, int)},
        "new": done.added + done.written + done.pending,
        "refused": done.failed + done.rejected + unreadable.many,
        "contents": [content for content in contents if content],
        "wrong": wrong[: opening.ERRORS_SHOWN],
        "notes": [*done.notes],
        "name": name,
        "seen": digest,
    }


def _lines_of(file: BinaryIO, name: str, tool: str, unreadable: opening.Unreadable) -> BinaryIO:
    """Return a file of a tool as lines of JSON, in a file without a name that ends with it."""
    if tool == EXPORT:
        lines = tempfile.TemporaryFile()  # noqa: SIM115 - kept until it is imported, or another one is shown
        with opening.writing(lines):
            shutil.copyfileobj(file, lines)
        return lines
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, FILE_NAME.sub("_", name)[-FILE_NAME_CHARS:].lstrip(".") or "file")
        with copy.open("wb") as stream, opening.writing(stream):
            shutil.copyfileobj(file, stream)
        try:
            return opening.lines_of_tool(tool, copy, unreadable, _untold)
        except BadInput as error:
            raise BadInput(str(error).replace(str(copy), name)) from None


def _untold(_: int) -> None:
    """Progress that no page shows."""


def _content_of(line: bytes) -> str:
    try:
        return str(record(parsed(line)).get("content", ""))
    except ValueError:
        return ""


def bring_in(form: Form, session: Session, words: Words) -> str:
    """Import the file that was shown: into the inbox, or as the human's own."""
    _shown_upload(form, session, words)
    if form.get("how") not in ("inbox", "own"):
        raise BadInput(words("import.no_choice"))
    signer = _signer(form, session)
    human, folder = (signer if form["how"] == "own" else None), link.preamble().project_dir
    with _UPLOADS:  # a second post waited for the passphrase too
        upload, session.upload = _shown_upload(form, session, words), None
    with upload.lines as lines:
        done = import_file(ask, lines, link.data_dir(), project_dir=folder, human=human, tick=_untold)
    new, refused = done.added + done.written, done.failed + done.rejected
    _notify(session, "good", words("import.done", new=new, pending=done.pending, known=done.skipped))
    if refused:
        first = next((error["message"] for error in (*done.errors, *done.reasons)), "")
        _notify(session, "warning", f"{words('import.refused', n=refused)} {first}")
    for note in done.notes:
        _notify(session, "warning", note)
    return "/" if done.pending else "/timeline"


def _shown_upload(form: Form, session: Session, words: Words) -> Upload:
    """Return the file that was shown. Raises BadInput: it came in, or another one was shown since."""
    upload = session.upload
    if upload is None or (upload.digest, upload.project) != (form.get("seen", ""), _project()):
        raise BadInput(words("import.gone"))
    return upload


def purge(form: Form, session: Session, words: Words) -> tuple[Record, str]:
    """Preview a purge, or carry it out; return the preview or the certificate, and which of them it is."""
    ids, text = form.get("ids", "").split(), form.get("text", "")
    if bool(ids) == bool(text.strip()):
        raise BadInput(words("purge.names_nothing"))
    human = _signer(form, session)
    given: Record = {"ids": ids, "text": "" if ids else text}
    if not form.get("seen"):
        memories = records(ask("purge_preview", human=human, **given)["memories"])
        if ids and not {text_of(memory["id"]) for memory in memories} <= set(ids):
            raise Refused("other memories than were named would be erased; nothing was")
        return {"memories": memories, "count": len(memories), "seen": purge_digest(memories), **given}, "preview"
    if form.get("sure") != "yes":
        raise BadInput(words("purge.not_sure"))
    return ask("purge", human=human, seen=form["seen"], **given), "erased"


def proposal(form: Form, session: Session, words: Words) -> str:
    """Confirm or close a proposal for the constitution, as it was shown."""
    verdict = form.get("verdict", "")
    if verdict not in ("approve", "reject"):
        raise BadInput(f"verdict is {verdict[:40]!r}; allowed are approve, reject")
    if not form.get("seen"):
        raise BadInput(words("proposal.not_shown"))
    _signer(form, session)
    schema = identity()
    approver = schema.approver()
    name, typed, id_, seen = approver.name if approver else "", form["passphrase"], form.get("id", ""), form["seen"]
    if verdict == "approve":
        decided = schema.confirm(id_, passphrase=typed, approver=name, seen=seen)
    else:
        reason = form.get("reason", "") or words("proposal.no_reason")
        decided = schema.reject(id_, passphrase=typed, approver=name, reason=reason, seen=seen)
    answer = proposals.as_json(decided)
    _notify(session, "good", words(f"proposal.{answer['status']}", n=answer["confirmations"], of=answer["required"]))
    return "/"


def pause(form: Form, session: Session, words: Words) -> str:
    """Stop agents from writing, or, signed by the human, let them write again."""
    if form.get("off"):
        ask("pause", human=_signer(form, session), off=True)
        _notify(session, "good", words("health.resumed"))
    else:
        ask("pause", lasting=form.get("lasting", ""))
        _notify(session, "good", words("health.paused"))
    return "/health"


def backup(_: Form, session: Session, words: Words) -> str:
    """Write a backup into the data directory's folder of backups."""
    folder = link.data_dir() / backup_list.FOLDER
    make_private(folder)
    done = ask("backup_create", file=str(folder))
    _notify(session, "good", words("health.backed_up", n=done["versions"], file=done["file"]))
    return "/health"


def job(form: Form, session: Session, words: Words) -> str:
    done = ask("jobs_run", name=form.get("name", ""))
    _notify(session, "good", words("health.job_done", name=done["job"], n=done["changed"]))
    return "/health"


def sync(form: Form, session: Session, words: Words) -> str:
    """Read changes of one source of knowledge, for a short time."""
    ask("knowledge_sync", source=form.get("source", ""))
    _notify(session, "good", words("knowledge.synced"))
    return "/knowledge"


def drop(form: Form, session: Session, words: Words) -> str:
    """Remove a source of knowledge and everything read from it."""
    ask("knowledge_remove", human=_signer(form, session), source=form.get("source", ""))
    _notify(session, "good", words("knowledge.removed"))
    return "/knowledge"

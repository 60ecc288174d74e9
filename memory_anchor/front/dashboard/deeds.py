"""What a page's forms do, and what pages need that no call gives: the human's key, files, the engine.

What pages need that no call gives: the human's key, the constitution's files, the engine, backups, the pause.

The passphrase goes from the page to this process, which the human started on a terminal, and no further: it opens the
key here and what reaches the engine is a signature over one request, as with every other command. One try at a time, so
that parallel ones are counted; the wait after refused ones is told instead of slept.

What a page's forms do. Whatever changes a memory is signed with the passphrase that came with that very form.

A deed returns where to go next; what became of it is a notice there. Each names the version that was shown, so what
changed meanwhile, in another tab too, is refused and shown anew.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memory_anchor.care import nightly
from memory_anchor.errors import BadInput, MemoryAnchorError, Refused, Unavailable
from memory_anchor.files import make_private
from memory_anchor.front import doctor
from memory_anchor.front.cli import link
from memory_anchor.front.cli.care import stamps
from memory_anchor.front.cli.passphrase import key_ring, opened
from memory_anchor.front.cli.setup import identity
from memory_anchor.front.dashboard.access import Session
from memory_anchor.front.dashboard.said import Words
from memory_anchor.identity import proposals
from memory_anchor.json_values import Json, Record, items, record, records, text
from memory_anchor.pausing import pause_of
from memory_anchor.runtime import engine, launch

if TYPE_CHECKING:
    from memory_anchor.identity.keys import Signer

WAKE_S = 60.0
WAKE_PAUSE_S = 0.05
PROPOSALS_SHOWN = 20
_ONE_TRY = threading.Lock()


class NotSigned(Refused):
    """The passphrase was missing, wrong, or too soon. key: of the sentence; n: seconds to wait."""

    def __init__(self, key: str, n: int = 0) -> None:
        super().__init__(key)
        self.key, self.n = key, n


def signer(session: Session, typed: str, *, tell: Callable[[str], None]) -> Signer:
    """Return the human whose passphrase this is; a refused one counts against the session. Raises NotSigned.

    tell: gets the sentence about earlier refused tries.
    """
    if not typed:
        raise NotSigned("sign.missing")
    with _ONE_TRY:
        keys = key_ring(link.data_dir())
        if keys.own() is None and not keys.warning():
            raise NotSigned("sign.no_key")
        if (wait := keys.tries().wait_s(datetime.now(UTC))) > 0:
            raise NotSigned("sign.wait", int(wait) + 1)
        try:
            return opened(keys, lambda: typed, tell=tell)
        except Refused as error:
            session.refused += 1
            if keys.own() is None:
                raise
            raise NotSigned("sign.wrong") from error


# --- the engine ----------------------------------------------------------------------------------------------------


def ask(name: str, /, *, human: Signer | None = None, **given: Json) -> Record:
    """Return an engine's answer to one call; where none serves, one is started first. Raises our errors."""
    return link.call(name, human=human, **given)


def wake() -> Record:
    """Return what the engine says of itself, after starting one where none serves. Raises Unavailable."""
    data, until = link.data_dir(), time.monotonic() + WAKE_S
    found = engine.status(data)
    if found is None:
        try:
            launch.start(str(data), os.environ)
        except OSError as error:
            told = f"no engine could be started ({error.strerror or error}); see `memory-anchor doctor`"
            raise Unavailable(told) from error
    while found is None:
        time.sleep(WAKE_PAUSE_S)
        launch.reap()
        try:
            found = engine.status(data)
        except Unavailable:  # it loads, on a busy machine
            if time.monotonic() > until:
                raise
        if found is None and time.monotonic() > until:
            raise Unavailable(f"no engine answered within {WAKE_S:g} s; see `memory-anchor doctor`")
    return dict(found)


def saving() -> str:
    """Return why the last write failed, "" when it did not."""
    return str(ask("saving")["failure"])


# --- files ---------------------------------------------------------------------------------------------------------


def paused() -> Record | None:
    """Return the pause that holds, None for none."""
    found = pause_of(link.data_dir(), datetime.now(UTC))
    return None if found is None else {"until": found.until.isoformat() if found.until else "", "silent": found.silent}


def key() -> Record:
    """Return who the human is here: {name, warning}."""
    keys = key_ring(link.data_dir())
    own = keys.own()
    fingerprint = keys.fingerprint() if own else ""
    return {"name": own.name if own else "", "warning": keys.warning(), "fingerprint": fingerprint}


def backups() -> list[nightly.ListedBackup]:
    """Return the known backups, newest first."""
    return nightly.listed(link.data_dir())[::-1]


def new_backup() -> Record:
    """Write a backup into the data directory's own folder and return what is in it."""
    folder = link.data_dir() / nightly.FOLDER
    make_private(folder)
    return ask("backup_create", file=str(folder))


def checks() -> list[Record]:
    """Return what `doctor` finds; takes seconds."""
    return [asdict(one) for one in doctor.diagnose(os.environ, link.data_dir(), audit=True)]


# --- the constitution ------------------------------------------------------------------------------------------------


def constitution() -> Record:
    """Return L0 and what is proposed for it: {entries, warnings, proposals, difference, initialised}.

    A proposal comes with the difference it makes and `seen`, the hash that a decision on it names.
    """
    schema = identity()
    served = schema.load()
    waiting = [one for one in schema.proposals() if one.status.value == "open"]
    shown = []
    for one in waiting[:PROPOSALS_SHOWN]:
        try:
            more = {"diff": schema.diff(one), "seen": schema.fingerprint(one), "wrong": ""}
        except MemoryAnchorError as error:
            more = {"diff": "", "seen": "", "wrong": str(error)}
        shown.append({**proposals.answer(one), "content": one.content, **more})
    return {
        "entries": [asdict(one) for one in served.entries],
        "warnings": list(served.warnings),
        "tokens": served.tokens,
        "version": served.version,
        "proposals": shown,
        "proposals_count": len(waiting),
        "initialised": schema.initialised,
    }


def decide_proposal(proposal_id: str, verdict: str, *, session: Session, typed: str, seen: str, reason: str) -> Record:
    """Confirm or close a proposal as it was shown. Raises NotSigned, and what confirming raises."""
    signer(session, typed, tell=session_tells(session))
    schema = identity()
    own = schema.approver()
    name = own.name if own else ""
    if verdict == "approve":
        done = schema.confirm(proposal_id, passphrase=typed, approver=name, seen=seen)
    else:
        done = schema.reject(proposal_id, passphrase=typed, approver=name, reason=reason, seen=seen)
    return proposals.answer(done)


def session_tells(session: Session) -> Callable[[str], None]:
    """Return what shows a sentence about refused tries on the session's next page."""

    def tell(sentence: str) -> None:
        if sentence:
            session.notices.append({"kind": "warning", "said": sentence})

    return tell


Form = Mapping[str, str]
Deed = Callable[[Form, Session, Words], str]
ITEMS_MAX = 50
SETTLES = ("keep_new", "keep_old", "merge")


def _signer(form: Form, session: Session) -> Signer:
    return signer(session, form.get("passphrase", ""), tell=session_tells(session))


def _say(session: Session, kind: str, said: str, **more: Json) -> None:
    session.notices.append({"kind": kind, "said": said, **more})


def decide(form: Form, session: Session, words: Words) -> str:
    """Carry out every choice of the inbox, one after the other; what fails is told and leaves the rest alone."""
    picked = {name.removeprefix("choice."): what for name, what in form.items() if name.startswith("choice.")}
    chosen = [(name, what) for name, what in picked.items() if what]
    if not chosen:
        raise BadInput(words("inbox.nothing_chosen"))
    human, done = _signer(form, session), dict.fromkeys(("accept", "reject", "settle"), 0)
    began = words.now.isoformat()
    for name, what in chosen[:ITEMS_MAX]:
        call = "settle" if what in SETTLES else what
        if call not in done:
            raise BadInput(f"choice is {what[:40]!r}; allowed are accept, reject, {', '.join(SETTLES)}")
        seen = form.get(f"seen.{name}", "").split()
        resolution = what if call == "settle" else None
        content = _edited(form, name, seen) if call == "accept" else None
        try:
            ask(call, human=human, id=name, seen=seen, resolution=resolution, content=content)
            done[call] += 1
        except MemoryAnchorError as error:
            _say(session, "bad", str(error), id=name)
    if any(done.values()):
        told = [words(f"inbox.done_{what}", n=many) for what, many in done.items() if many]
        session.last = {"said": words("list.join").join(told), "since": began, "by": _who(chosen[0][0])}
        _say(session, "good", text(session.last["said"]), undo=True)
    return "/"


def _edited(form: Form, name: str, seen: list[str]) -> str | None:
    """Return the text that was typed in place of the one shown, None for the same."""
    text = form.get(f"text.{name}")
    if text is None or not seen:
        return None
    version = seen[0].partition("@")[2].partition(":")[0]
    shown = stamps([{"id": name, "version": int(version) if version.isdecimal() else 0, "content": text}])
    return None if shown == seen else text


def _who(name: str) -> str:
    """Return the name under which the human's own versions stand in a memory's history."""
    return str(record(items(ask("history", id=name)["steps"])[-1])["by"]).partition(":")[2]


def undo(form: Form, session: Session, words: Words) -> str:
    """Take back what this session's human did last."""
    if session.last is None:
        raise BadInput(words("undo.nothing"))
    human = _signer(form, session)
    done = ask("undo", human=human, agent=session.last["by"], since=session.last["since"], apply=True)
    session.last = None
    _say(session, "good", words("undo.done", n=len(items(done["steps"]))))
    for left in records(done["left"]):
        _say(session, "warning", f"{left['id']}: {left['reason']}", id=left["id"])
    return "/"


def change(form: Form, session: Session, words: Words) -> str:
    """Edit, pin, unpin, forget, restore or judge one memory."""
    name, what = form.get("id", ""), form.get("deed", "")
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
            raise BadInput(f"deed is {what[:40]!r}; allowed are edit, pin, unpin, forget, restore, judge")
    human = _signer(form, session)
    if form.get("seen") != stamps(records(ask("sides", id=name)["memories"])[:1])[0]:
        raise BadInput(words("memory.changed_since"))
    began = words.now.isoformat()
    done = ask(what, human=human, id=name, **given)
    if done["outcome"] == "skipped":
        _say(session, "warning", text(done["reason"]))
    else:
        session.last = {"said": words(f"memory.done_{what}"), "since": began, "by": _who(name)}
        _say(session, "good", text(session.last["said"]), undo=True)
    return f"/memory/{name}"


def purge(form: Form, session: Session, words: Words) -> tuple[Record, str]:
    """Show what a purge would erase, or erase just that; return the preview or the certificate, and which it is."""
    ids, text = form.get("ids", "").split(), form.get("text", "")
    if bool(ids) == bool(text.strip()):
        raise BadInput(words("purge.names_nothing"))
    human = _signer(form, session)
    given: Record = {"ids": ids, "text": "" if ids else text}
    if not form.get("seen"):
        return {**ask("purge_preview", human=human, **given), **given}, "preview"
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
    done = decide_proposal(
        form.get("id", ""),
        verdict,
        session=session,
        typed=form.get("passphrase", ""),
        seen=form["seen"],
        reason=form.get("reason", "") or words("proposal.no_reason"),
    )
    _say(session, "good", words(f"proposal.{done['status']}", n=done["confirmations"], of=done["required"]))
    return "/"


def pause(form: Form, session: Session, words: Words) -> str:
    """Stop agents from writing, or let them go on, which only a human does."""
    if form.get("off"):
        ask("pause", human=_signer(form, session), off=True)
        _say(session, "good", words("health.resumed"))
    else:
        ask("pause", lasting=form.get("lasting", ""))
        _say(session, "good", words("health.paused"))
    return "/health"


def backup(_: Form, session: Session, words: Words) -> str:
    """Write a backup into the folder of backups."""
    done = new_backup()
    _say(session, "good", words("health.backed_up", n=done["versions"], file=done["file"]))
    return "/health"


def job(form: Form, session: Session, words: Words) -> str:
    """Run one job now."""
    done = ask("jobs_run", name=form.get("name", ""))
    _say(session, "good", words("health.job_done", name=done["job"], n=done["changed"]))
    return "/health"


def sync(form: Form, session: Session, words: Words) -> str:
    """Read what changed in one source of knowledge, for a moment."""
    ask("knowledge_sync", source=form.get("source", ""))
    _say(session, "good", words("knowledge.synced"))
    return "/knowledge"


def drop(form: Form, session: Session, words: Words) -> str:
    """Remove a source of knowledge and all that came of it."""
    ask("knowledge_remove", human=_signer(form, session), source=form.get("source", ""))
    _say(session, "good", words("knowledge.removed"))
    return "/knowledge"

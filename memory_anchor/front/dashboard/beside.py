"""What pages need that no call gives: the human's key, the constitution's files, the engine, backups, the pause.

The passphrase goes from the page to this process, which the human started on a terminal, and no further: it opens the
key here and what reaches the engine is a signature over one request, as with every other command. One try at a time, so
that parallel ones are counted; the wait after refused ones is told instead of slept.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memory_anchor.care import nightly
from memory_anchor.errors import MemoryAnchorError, Refused, Unavailable
from memory_anchor.files import make_private
from memory_anchor.front import doctor
from memory_anchor.front.cli import link
from memory_anchor.front.cli.passphrase import key_ring, opened
from memory_anchor.front.cli.setup import identity
from memory_anchor.front.dashboard.access import Session
from memory_anchor.identity import proposals
from memory_anchor.json_values import Json, Record
from memory_anchor.pausing import pause_of
from memory_anchor.runtime import engine, launch

if TYPE_CHECKING:
    from memory_anchor.identity.approval import Signer

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


def decide(proposal_id: str, verdict: str, *, session: Session, typed: str, seen: str, reason: str) -> Record:
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

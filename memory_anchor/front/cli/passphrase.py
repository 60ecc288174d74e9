"""The passphrase, asked for on the terminal only, never taken from a pipe, an argument or the environment.

Also the files of the human's rules (L0), which commands open without an engine.

It opens the human's key in this process and goes no further: only a signature leaves (`link`).
"""

from __future__ import annotations

import getpass
import os
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.base.files import make_private
from memory_anchor.domain.errors import BadInput, Refused
from memory_anchor.front.cli.link import data_dir, preamble
from memory_anchor.front.cli.spinner import Spinner
from memory_anchor.front.cli.typing_ahead import show_typing

if TYPE_CHECKING:
    from memory_anchor.identity.identity_schema import IdentitySchema
    from memory_anchor.identity.keys import KeyRing, Signer
    from memory_anchor.store.audit_rows import LocalTrail

_TERMINAL = "/dev/tty"
PROMPT = "Passphrase: "


def key_ring(home: Path) -> KeyRing:
    """Return the keys of a data directory: the human's own and those of approvers it knows."""
    from memory_anchor.identity.keys import KeyRing

    return KeyRing(home / "identity", audit_trail(home))


@lru_cache(maxsize=8)
def audit_trail(home: Path) -> LocalTrail:
    """Return the audit trail of a data directory, one per process, since it remembers how far it was read.

    A dashboard asks for the first key with every page; reading the whole file each time took 45 ms of CPU time at
    100,000 memories.
    """
    from memory_anchor.adapters.system import SystemClock
    from memory_anchor.process.app import settings_of
    from memory_anchor.store.audit_rows import LocalTrail
    from memory_anchor.store.record_rows import SqlRecords
    from memory_anchor.store.shared_files import SharedFiles

    trail = LocalTrail(home, url=settings_of(os.environ).database.url.get_secret_value())
    if trail.is_shared and (database := trail.database) is not None:
        make_private(home)
        SharedFiles(home, SqlRecords(database, SystemClock().now)).begin()
    return trail


def human_signer(wanted: bool = True) -> Signer | None:
    """Return the human as signer, once the passphrase is typed; None for an agent's call.

    Raises Refused: no terminal, no key, another key than the installation's, or another passphrase.
    """
    return ask_human() if wanted else None


def ask_human() -> Signer:
    """Return the human at this terminal. Raises Refused: see `human_signer`."""
    return unlock(key_ring(data_dir()), lambda: ask_hidden(PROMPT))


def ask_human_on_tty() -> Signer:
    """Return the human at the terminal while standard input is a pipe. Raises Refused: see `human_signer`."""
    return unlock(key_ring(data_dir()), _ask_on_tty)


def unlock(keys: KeyRing, ask: Callable[[], str], *, tell: Callable[[str], None] | None = None) -> Signer:
    """Return the signer whose key the asked passphrase opens. tell: gets the note on refused tries; None: stderr."""
    from memory_anchor.adapters.system import SystemClock

    if keys.own() is None and (warning := keys.warning()):
        raise Refused(warning)
    tries, clock = keys.refused_tries(), SystemClock()
    wait_after_refusals(tries.wait_s(clock.now()))
    typed = ask()
    try:
        with Spinner("opening your key"):
            signer = keys.unlock(typed)
    except Refused:
        if keys.own() is not None:
            tries.note(clock.now())
        raise
    show_typing()
    (tell or warn)(tries.take())
    return signer


def wait_after_refusals(seconds: float) -> None:
    """Sleep after several refused passphrases, and say so."""
    if seconds > 0:
        sys.stderr.write(f"waiting {seconds:.0f} s, since passphrases were refused\n")
        sys.stderr.flush()
        time.sleep(seconds)


def warn(sentence: str) -> None:
    """Print a warning on stderr; "" prints nothing."""
    if sentence:
        sys.stderr.write(f"warning: {sentence}\n")


def check_keyboard() -> None:
    """Raise Refused where standard input is no terminal."""
    if not sys.stdin.isatty():
        raise Refused("this needs a human at a terminal; run it in your own shell, not through an agent")


def ask_hidden(prompt: str) -> str:
    """Return what is typed without echo. Raises Refused: standard input is no terminal."""
    check_keyboard()
    return getpass.getpass(prompt)


def _ask_on_tty() -> str:
    try:
        with Path(_TERMINAL).open("rb"):  # getpass would fall back to the pipe
            pass
    except OSError:
        raise Refused("this needs a human at a terminal, and there is only the pipe") from None
    return getpass.getpass(PROMPT)


def identity(account: str = "", project: str = "") -> IdentitySchema:
    """Return L0 of the project this command is run in. It has its own files, so no engine is asked.

    account: another account that this memory serves; project: its id there. Raises BadInput.
    """
    os.umask(0o077)
    from memory_anchor.adapters.projects import DEFAULT, Projects
    from memory_anchor.adapters.system import Ids, SystemClock
    from memory_anchor.domain.credential import scope_name
    from memory_anchor.domain.model import Scope
    from memory_anchor.domain.requests.checks import project_id as checked_project_id
    from memory_anchor.identity.opening import identity_of, rules_folder
    from memory_anchor.process.app import settings_of
    from memory_anchor.settings import with_project_file

    clock = SystemClock()
    home = data_dir()
    make_private(home)
    settings = settings_of(os.environ)
    project_id, root = Projects(home / "projects.json", Ids(clock).new).of(preamble().project_dir)
    project_id = checked_project_id(project or preamble().project or settings.scope.project or project_id)
    own = settings.scope.account
    if account:
        if scope_name("account", account) == own:
            raise BadInput(f"{account} is this server's own account; leave --account out")
        root, project_id = "", checked_project_id(project or settings.scope.project or DEFAULT)
        project_id = rules_folder(Scope(account, project_id), "", local_account=own)
    return identity_of(
        with_project_file(settings, root),
        project_id,
        root,
        data_dir=home,
        clock=clock,
        audit=audit_trail(home),
        account=account or own,
    )

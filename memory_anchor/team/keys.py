"""Access keys of a served memory: who comes in, for which account, as whom and with which role.

A key is `ma_<id>_<secret>`: 256 random bits that are shown once; kept are a hash and what the key is bound to. Each
record is signed by the installation's human, or by an admin whose own record that human signed together with the
admin's signing key; so a line that somebody writes into the file opens nothing, and an admin's access key alone makes
no key. An admin makes a key where the passphrase is typed and sends the signed record: the secret never travels. The
file is looked at again whenever it changed, so a revoked key fails with the next request. When a key was last used is
kept beside it, because that is written by the server and signed by nobody.

Rejected: a slow password hash. It protects guessable secrets; 256 random bits are none, and every request pays for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from memory_anchor.adapters.file_records import FileRecords
from memory_anchor.errors import (
    BadInput,
    MemoryAnchorError,
    NoCredential,
    NotFound,
    Refused,
    StoreDamaged,
    retry_on_conflict,
)
from memory_anchor.files import file_lock, read_bounded, write_atomic
from memory_anchor.identity.elsewhere import KEY_RECORD, credential_of
from memory_anchor.identity.keys import Approver, KeyRing, Signer, is_public, signed_by, signer_of
from memory_anchor.json_values import Json
from memory_anchor.ports import AuditLog, Clock, SharedRecords, Sharing
from memory_anchor.team.credential import Credential, Role

FOLDER = "team"
KEYS_FILE = "keys.json"
USED = f"{FOLDER}/keys_used.json"
LOCK_FILE = "keys.lock"
PREFIX = "ma"
ID_CHARS, SECRET_CHARS = 8, 52
"""Of 32 signs each: 40 bits that name a key, 260 that open it, of which 256 are random."""
ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
KEY_CHARS = len(PREFIX) + ID_CHARS + SECRET_CHARS + 2
KEYS_MAX = 10_000
FILE_BYTES_MAX = 16 << 20
NAME_MAX = 120
USED_EVERY = timedelta(seconds=30)
"""How often the instants of last use go to disk."""
KEPT = timedelta(days=365)
"""How long a key that has ended is still listed."""
SIGNED_FOR = timedelta(minutes=10)
"""How long a key that was signed elsewhere is taken: two clocks and a slow network."""
GIVEN_BY_ADMINS = (Role.READER, Role.WRITER, Role.APPROVER)
"""Roles that an admin gives; an admin is made by the installation's human alone."""
_WHOLE = re.compile(rf"{PREFIX}_([{ALPHABET}]{{{ID_CHARS}}})_([{ALPHABET}]{{{SECRET_CHARS}}})")
_NAME = re.compile(rf"[^|\x00-\x1f\x7f]{{1,{NAME_MAX}}}")


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key as it is kept. digest: SHA-256 of the whole key. public: of an approver, the signing key that approves.
    made_with: id of the admin's key whose signing key signed it, "" for the installation's human."""

    id: str
    digest: str
    account: str
    user: str
    role: Role
    project: str
    note: str
    public: str
    created_at: str
    created_by: str
    expires_at: str = ""
    signature: str = ""
    revoked_at: str = ""
    made_with: str = ""

    def statement(self) -> dict[str, Json]:
        """Return what its maker signs of it: all but the end that anybody here may put to it."""
        left_out = ("signature", "revoked_at") if self.made_with else ("signature", "revoked_at", "made_with")
        said = {name: value for name, value in asdict(self).items() if name not in left_out}
        return {"what": KEY_RECORD, **said}

    def credential(self) -> Credential:
        return Credential(self.account, self.user, self.project, self.role, self.id, self.public, by_name=True)

    def is_old(self, now: datetime) -> bool:
        """Return whether it ended so long ago that nobody asks for it."""
        end = min((at for at in (self.revoked_at, self.expires_at) if at), default="")
        return bool(end) and now - datetime.fromisoformat(end) > KEPT

    def ended(self, now: datetime) -> str:
        """Return why it opens nothing any more, "" while it does."""
        if self.revoked_at:
            return f"the key {self.id} was revoked at {self.revoked_at}"
        if self.expires_at and now >= datetime.fromisoformat(self.expires_at):
            return f"the key {self.id} expired at {self.expires_at}"
        return ""


class KeyFile:
    """The keys of one data directory. Thread-safe, and safe across processes.

    sealing: whose signature makes a record count (`KeyRing.sealing`). shared: with other replicas, None alone.
    """

    def __init__(
        self,
        data_dir: Path,
        sealing: Callable[[], Sequence[Approver]],
        shared: tuple[SharedRecords, Sharing] | None = None,
    ) -> None:
        self._records: SharedRecords = shared[0] if shared else FileRecords(data_dir)
        self._sharing = shared[1] if shared else None
        self._folder = data_dir / FOLDER
        self._sealing = sealing
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self._held: Mapping[str, AccessKey] = {}
        self._used: dict[str, str] = {}
        self._written_at: datetime | None = None

    @classmethod
    def of(cls, data_dir: Path, audit: AuditLog | None, shared: tuple[SharedRecords, Sharing] | None = None) -> KeyFile:
        """Return the keys of a data directory, signed by its human."""
        return cls(data_dir, KeyRing(data_dir / "identity", None if shared else audit).sealing, shared)

    @property
    def may_wait(self) -> bool:
        """Return whether the next look may ask a server."""
        return self._sharing is not None and not self._sharing.is_fresh

    # --- coming in ---------------------------------------------------------------------------------------------

    def opened(self, key: str, now: datetime) -> Credential:
        """Return whom a key lets in. Raises NoCredential: one sentence that tells nothing of other keys."""
        held = self.all().get(name_of(key))
        if held is None or not hmac.compare_digest(held.digest, digest_of(key)):
            raise NoCredential(
                "the key is none of this server's; its administrator lists them: `memory-anchor keys list`"
            )
        if ended := held.ended(now):
            raise NoCredential(f"{ended}; ask for a new one: `memory-anchor keys create`")
        self._note_use(held.id, now)
        return held.credential()

    def any_open(self, now: datetime) -> bool:
        """Return whether any key opens anything now."""
        return any(not one.ended(now) for one in self.all().values())

    def all(self) -> Mapping[str, AccessKey]:
        """Return the keys that the human made, by id; read anew when the file changed.

        Raises StoreDamaged; Unavailable: what others changed cannot be known, so nobody is let in.
        """
        if self._sharing is not None:
            self._sharing.fresh()
        stamp = _stamp(self._path)
        with self._lock:
            if stamp != self._stamp:
                self._held, self._stamp = self._read(), stamp
            return self._held

    def record(self, id_: str) -> str:
        """Return the signed record of a key, with its maker's, as an approval keeps it. Raises NotFound."""
        every = self.all()
        if (held := every.get(id_)) is None:
            raise NotFound(f"no key {id_[:20]!r} any more; ask for a new one: `memory-anchor keys create`")
        maker = every.get(held.made_with)
        by = (maker.statement(), maker.signature) if maker is not None else None
        return credential_of(held.statement(), held.signature, by)

    def opens(self, clock: Clock) -> Callable[[str], bool]:
        """Return what tells whether the key of an id opens now."""

        def is_open(id_: str) -> bool:
            held = self.all().get(id_)
            return held is not None and not held.ended(clock.now())

        return is_open

    # --- looking after -----------------------------------------------------------------------------------------

    def add(self, made: AccessKey, now: datetime) -> AccessKey:
        """Keep a key that this installation's human made (`new_key`). Raises BadInput: `KEYS_MAX` keys."""
        with self._changing():
            self._add(made, now)
        return made

    def accept(self, made: AccessKey, admin: Credential, now: datetime) -> AccessKey:
        """Keep a key that an admin made and signed elsewhere, and return it; the same again is the one that is there.

        Raises Refused: not signed by this admin's signing key, for another account, of a role they may not give, too
        old, or another key has its id. BadInput: `KEYS_MAX` keys.
        """
        with self._changing():
            held = self._read()
            if (own := held.get(made.id)) is not None:
                if own.digest != made.digest:
                    raise Refused(f"there is another key {made.id}; make it anew")
                return own
            apart = abs(now - datetime.fromisoformat(made.created_at))
            if made.made_with != admin.key or apart > SIGNED_FOR or not _vouched(made, held.get(admin.key)):
                raise Refused(
                    f"the new key is not signed by the key of {admin.key or 'this admin'} a moment ago, for its "
                    f"own account and with a role among {', '.join(GIVEN_BY_ADMINS)}; nothing was kept. An admin who "
                    "signs is made by `memory-anchor keys create --role admin --signs-with KEY` on the server"
                )
            self._add(made, now)
        return made

    def _add(self, made: AccessKey, now: datetime) -> None:
        every = self._read()
        makers = {one.made_with for one in every.values()}
        held = {name: one for name, one in every.items() if not one.is_old(now) or name in makers}
        if len(held) >= KEYS_MAX:
            raise BadInput(f"there are {len(held)} keys; allowed are {KEYS_MAX}")
        self._write({**held, made.id: made})

    def revoke(self, id_: str, now: datetime) -> AccessKey:
        """End a key for good; one that has ended stays as it is. Raises NotFound."""
        with self._changing():
            held = dict(self._read())
            if id_ not in held:
                raise NotFound(f"no key {id_[:20]!r}; `memory-anchor keys list` shows them")
            if not held[id_].revoked_at:
                held[id_] = replace(held[id_], revoked_at=now.isoformat(timespec="seconds"))
                self._write(held)
        return held[id_]

    def last_used(self) -> Mapping[str, str]:
        """Return id -> when a server last let a request in with it, to half a minute."""
        return {**self._read_used()[0], **self._used}

    def keep_use(self) -> None:
        """Write when keys were last used."""
        with self._lock:
            self._write_used()

    # --- files -------------------------------------------------------------------------------------------------

    @property
    def _path(self) -> Path:
        return self._folder / KEYS_FILE

    def _read(self) -> Mapping[str, AccessKey]:
        try:
            raw = read_bounded(self._path, most_bytes=FILE_BYTES_MAX)
            said = json.loads(raw)["keys"] if raw is not None else []
            records = [AccessKey(**{**one, "role": Role(one["role"])}) for one in said]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreDamaged(
                f"{self._path} cannot be read ({type(error).__name__}), so no key opens anything; put it back from a "
                "backup, or move it away and make keys anew"
            ) from None
        sealing = self._sealing() if records else ()
        own = {
            one.id: one
            for one in records
            if not one.made_with and signer_of(sealing, one.statement(), one.signature) is not None
        }
        return own | {one.id: one for one in records if one.made_with and _vouched(one, own.get(one.made_with))}

    def _write(self, held: Mapping[str, AccessKey]) -> None:
        told = {"format": 1, "keys": [asdict(one) for one in held.values()]}
        write_atomic(self._path, (json.dumps(told, ensure_ascii=False, indent=1) + "\n").encode())

    def _note_use(self, id_: str, now: datetime) -> None:
        with self._lock:
            self._used[id_] = now.isoformat(timespec="seconds")
            if self._written_at is None or now - self._written_at >= USED_EVERY:
                self._written_at = now
                with contextlib.suppress(MemoryAnchorError):  # a full disk locks nobody out
                    self._write_used()

    def _write_used(self) -> None:
        if not self._used:
            return

        def write() -> None:
            there, revision = self._read_used()
            told = {id_: max(there.get(id_, ""), self._used.get(id_, "")) for id_ in (*there, *self._used)}
            self._records.write(USED, json.dumps(told).encode(), before=revision, durable=False)

        retry_on_conflict(write)

    def _read_used(self) -> tuple[dict[str, str], str]:
        held = self._records.read(USED)
        if held is None:
            return {}, ""
        try:
            told = json.loads(held.content or b"{}")
        except (ValueError, RecursionError):
            told = {}
        return {str(id_): str(at) for id_, at in told.items()} if isinstance(told, dict) else {}, held.revision

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the keys for one change: of this machine, and of every replica where there are several."""
        alone: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        with alone if self._sharing is None else self._sharing.changing(), file_lock(self._folder / LOCK_FILE):
            yield


def new_key(
    signer: Signer,
    *,
    new_bytes: Callable[[int], bytes],
    now: datetime,
    account: str,
    user: str = "",
    role: Role = Role.WRITER,
    project: str = "",
    note: str = "",
    public: str = "",
    expires_at: datetime | None = None,
    made_with: str = "",
) -> tuple[str, AccessKey]:
    """Return a new key, which is the only time that it is told, with its signed record. Raises BadInput."""
    checked_name("account", account)
    for what, name in (("user", user), ("project", project), ("note", note)):
        _ = name and checked_name(what, name)
    if public and not is_public(public):
        raise BadInput(
            f"signs-with is {len(public)} characters that are no Ed25519 public key; allowed is what "
            "`memory-anchor constitution approvers` prints on the approver's machine"
        )
    if expires_at is not None and expires_at <= now:
        raise BadInput(f"the key would expire at {expires_at.isoformat()}, which is over; allowed is a later time")
    id_, secret = _text(new_bytes(8), ID_CHARS), _text(new_bytes(32), SECRET_CHARS)
    key = f"{PREFIX}_{id_}_{secret}"
    ends = expires_at.isoformat(timespec="seconds") if expires_at is not None else ""
    made = AccessKey(
        id_, digest_of(key), account, user, role, project, note, public, now.isoformat(timespec="seconds"),
        signer.approver.name, ends, made_with=made_with,
    )  # fmt: skip
    made = replace(made, signature=signer.sign(made.statement()))
    return key, made


def _vouched(made: AccessKey, admin: AccessKey | None) -> bool:
    """Return whether an admin's own signing key, good when this key was made, made it for their own account."""
    if admin is None or admin.role is not Role.ADMIN or not admin.public or admin.account != made.account:
        return False
    if made.role not in GIVEN_BY_ADMINS or not signed_by(admin.public, made.statement(), made.signature):
        return False
    ends = min((at for at in (admin.revoked_at, admin.expires_at) if at), default="")
    at = datetime.fromisoformat(made.created_at)
    return datetime.fromisoformat(admin.created_at) <= at and not (ends and at >= datetime.fromisoformat(ends))


def name_of(key: str) -> str:
    """Return the id in a key. Raises NoCredential: it is none."""
    whole = _WHOLE.fullmatch(key)
    if whole is None:
        raise NoCredential(misshapen(key))
    return whole[1]


def told_of(key: AccessKey) -> dict[str, Json]:
    """Return what may be shown of a key."""
    names = ("id", "account", "user", "project", "note", "created_at", "created_by", "expires_at", "revoked_at")
    told = {name: getattr(key, name) for name in names}
    return {**told, "role": key.role.value, "approves": bool(key.public)}


def is_digest(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def misshapen(key: str) -> str:
    """Return what is wrong with the form of a key, without a sign of it.

    >>> misshapen("ma_abc")
    'the key has 6 characters, a whole one has 64 (ma_<id>_<secret>): it was cut; copy it again'
    """
    head, told = f"the key has {len(key)} characters", f"a whole one has {KEY_CHARS} (ma_<id>_<secret>)"
    if len(key) < KEY_CHARS:
        return f"{head}, {told}: it was cut; copy it again"
    if len(key) > KEY_CHARS:
        return f"{head}, {told}: something was added, or it was pasted twice; copy it again"
    return f"the key is none of ours: {told}, in small letters and the digits 2 to 7; copy it again"


def checked_name(what: str, name: str) -> str:
    """Return a name that may stand in a scope. Raises BadInput."""
    if not (_NAME.fullmatch(name) and name == name.strip() and name.isprintable()):
        raise BadInput(f"{what} is {name[:40]!r}; allowed are 1 to {NAME_MAX} printable characters without '|'")
    return name


def _text(bits: bytes, chars: int) -> str:
    number = int.from_bytes(bits, "big")
    return "".join(ALPHABET[number >> (5 * place) & 31] for place in range(chars))


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

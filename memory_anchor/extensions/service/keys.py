"""Access keys of a served memory: account, user, project and role of the caller.

A key is `ma_<id>_<secret>`: 256 random bits that are shown once; stored are a hash and what the key is bound to. Each
record is signed by the installation's human, so a line written into the file by anybody else opens nothing. (Earlier
versions let an admin elsewhere make keys with a signing key that the human had signed; those open further.) The file is
read again whenever it changed, so a revoked key fails with the next request. The time of last use is a file of its own,
because the server writes it unsigned.

Rejected: a slow password hash. It protects guessable secrets, which 256 random bits are not, and slows every request.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from pathlib import Path

from memory_anchor.base.files import file_lock, read_bounded, refresh, shared_at, write_atomic
from memory_anchor.base.json_values import Json
from memory_anchor.domain.credential import Credential, Role, key_digest, scope_name
from memory_anchor.domain.errors import (
    BadInput,
    MemoryAnchorError,
    NoCredential,
    NotFound,
    StoreDamaged,
)
from memory_anchor.domain.ports import AuditLog
from memory_anchor.identity.keys import Approver, KeyRing, Signer, is_public, signed_by, signer_of
from memory_anchor.identity.statements import Admitted
from memory_anchor.language.safe_regex import late

FOLDER = "team"
KEYS_FILE = "keys.json"
USED_FILE = "keys_used.json"
LOCK_FILE = "keys.lock"
PREFIX = "ma"
ID_CHARS, SECRET_CHARS = 8, 52
"""Base 32: 40 bits of id, 260 of secret, of which 256 are random."""
ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
KEY_CHARS = len(PREFIX) + ID_CHARS + SECRET_CHARS + 2
KEYS_MAX = 10_000
FILE_BYTES_MAX = 16 << 20
USED_EVERY = timedelta(seconds=30)
"""How often the times of last use are written to disk."""
ENDED_KEPT = timedelta(days=365)
"""How long a key that has ended is still listed."""
GIVEN_BY_ADMINS = (Role.READER, Role.WRITER, Role.APPROVER)
"""Roles that an admin could give."""
_KEY = late(rf"{PREFIX}_([{ALPHABET}]{{{ID_CHARS}}})_([{ALPHABET}]{{{SECRET_CHARS}}})")


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key's record. digest: SHA-256 of the whole key. public: an approver's public signing key. made_with: id of the
    admin's key whose signing key signed it in an earlier version, "" for the installation's human."""

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

    def admitted(self) -> Admitted:
        """Return what its maker signs: everything but its revocation, which needs no signature."""
        return Admitted(**{field.name: getattr(self, field.name) for field in fields(Admitted)})

    def statement(self) -> dict[str, Json]:
        """Return what its maker signed."""
        return {**self.admitted().record(), **({"made_with": self.made_with} if self.made_with else {})}

    def credential(self) -> Credential:
        names = (self.account, self.user, self.project, self.role, self.id, self.public)
        return Credential(*names, by_name=True, digest=self.digest)

    def is_old(self, now: datetime) -> bool:
        """Return whether it ended more than `ENDED_KEPT` ago."""
        end = min((at for at in (self.revoked_at, self.expires_at) if at), default="")
        return bool(end) and now - datetime.fromisoformat(end) > ENDED_KEPT

    def ended(self, now: datetime) -> str:
        """Return why the key is no longer valid, "" while it is."""
        if self.revoked_at:
            return f"the key {self.id} was revoked at {self.revoked_at}"
        if self.expires_at and now >= datetime.fromisoformat(self.expires_at):
            return f"the key {self.id} expired at {self.expires_at}"
        return ""


class KeyFile:
    """The keys of one data directory. Thread-safe, and safe across processes.

    sealing: whose signature makes a record valid (`KeyRing.sealing_approvers`).
    """

    def __init__(self, data_dir: Path, sealing: Callable[[], Sequence[Approver]]) -> None:
        self._folder = data_dir / FOLDER
        self._sealing = sealing
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self._keys: Mapping[str, AccessKey] = {}
        self._used: dict[str, str] = {}
        self._written_at: datetime | None = None

    @classmethod
    def of(cls, data_dir: Path, audit: AuditLog | None) -> KeyFile:
        """Return the keys of a data directory, signed by its human."""
        return cls(data_dir, KeyRing(data_dir / "identity", audit).sealing_approvers)

    # --- authentication -----------------------------------------------------------------------------------------

    def authenticate(self, key: str, now: datetime) -> Credential:
        """Return a key's credential. Raises NoCredential: one sentence that reveals nothing about other keys."""
        record = self.all().get(name_of(key))
        if record is None or not hmac.compare_digest(record.digest, key_digest(key)):
            raise NoCredential(
                "the key is none of this server's; its administrator lists them: `memory-anchor keys list`"
            )
        if ended := record.ended(now):
            raise NoCredential(f"{ended}; ask for a new one: `memory-anchor keys create`")
        self._note_use(record.id, now)
        return record.credential()

    @property
    def may_wait(self) -> bool:
        """Whether looking at them asks a database."""
        return shared_at(self._path) is not None

    def any_open(self, now: datetime) -> bool:
        return any(not key.ended(now) for key in self.all().values())

    def all(self) -> Mapping[str, AccessKey]:
        """Return id -> key, read again when the file changed. Raises StoreDamaged."""
        refresh(self._path)
        stamp = _stamp(self._path)
        with self._lock:
            if stamp != self._stamp:
                self._keys, self._stamp = self._read(), stamp
            return self._keys

    # --- changes -----------------------------------------------------------------------------------------------

    def add(self, access_key: AccessKey, now: datetime) -> AccessKey:
        """Store a key that this installation's human made (`new_key`). Raises BadInput: `KEYS_MAX` keys."""
        with self._changing():
            keys = self._read()
            makers = {key.made_with for key in keys.values()}
            current = {id_: key for id_, key in keys.items() if not key.is_old(now) or id_ in makers}
            if len(current) >= KEYS_MAX:
                raise BadInput(f"there are {len(current)} keys; allowed are {KEYS_MAX}")
            self._write({**current, access_key.id: access_key})
        return access_key

    def revoke(self, id_: str, now: datetime) -> AccessKey:
        """Revoke a key; a revoked one stays as it is. Raises NotFound."""
        with self._changing():
            keys = dict(self._read())
            if id_ not in keys:
                raise NotFound(f"no key {id_[:20]!r}; `memory-anchor keys list` shows them")
            if not keys[id_].revoked_at:
                keys[id_] = replace(keys[id_], revoked_at=now.isoformat(timespec="seconds"))
                self._write(keys)
        return keys[id_]

    def last_used(self) -> Mapping[str, str]:
        """Return id -> time of last use, accurate to half a minute."""
        return {**self._read_used(), **self._used}

    def save_use(self) -> None:
        """Write the times of last use to disk."""
        with self._lock:
            self._write_used()

    # --- files -------------------------------------------------------------------------------------------------

    @property
    def _path(self) -> Path:
        return self._folder / KEYS_FILE

    def _read(self) -> Mapping[str, AccessKey]:
        try:
            raw = read_bounded(self._path, most_bytes=FILE_BYTES_MAX)
            rows = json.loads(raw)["keys"] if raw is not None else []
            records = [AccessKey(**{**row, "role": Role(row["role"])}) for row in rows]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreDamaged(
                f"{self._path} cannot be read ({type(error).__name__}), so no key opens anything; put it back from a "
                "backup, or move it away and make keys anew"
            ) from None
        sealing = self._sealing() if records else ()
        keys = {
            key.id: key
            for key in records
            if not key.made_with and signer_of(sealing, key.statement(), key.signature) is not None
        }
        return keys | {key.id: key for key in records if key.made_with and _vouched(key, keys.get(key.made_with))}

    def _write(self, keys: Mapping[str, AccessKey]) -> None:
        content = {"format": 1, "keys": [asdict(key) for key in keys.values()]}
        write_atomic(self._path, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())

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

        with self._changing():
            stored = self._read_used()
            latest = {id_: max(stored.get(id_, ""), self._used.get(id_, "")) for id_ in (*stored, *self._used)}
            write_atomic(self._folder / USED_FILE, json.dumps(latest).encode(), durable=False)

    def _read_used(self) -> dict[str, str]:
        try:
            used = json.loads(read_bounded(self._folder / USED_FILE, most_bytes=FILE_BYTES_MAX) or b"{}")
        except (OSError, ValueError, RecursionError):
            used = {}
        return {str(id_): str(at) for id_, at in used.items()} if isinstance(used, dict) else {}

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Lock the keys for one change, against other processes."""
        with file_lock(self._folder / LOCK_FILE):
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
) -> tuple[str, AccessKey]:
    """Return a new key, which is shown only this once, with its signed record. Raises BadInput."""
    scope_name("account", account)
    for what, name in (("user", user), ("project", project), ("note", note)):
        _ = name and scope_name(what, name)
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
    access_key = AccessKey(
        id_, key_digest(key), account, user, role, project, note, public, now.isoformat(timespec="seconds"),
        signer.approver.name, ends,
    )  # fmt: skip
    access_key = replace(access_key, signature=signer.vouch(access_key.admitted()))
    return key, access_key


def _vouched(key: AccessKey, admin: AccessKey | None) -> bool:
    """Return whether an admin's signing key, valid when this key was made, signed it for the admin's own account."""
    if admin is None or admin.role is not Role.ADMIN or not admin.public or admin.account != key.account:
        return False
    if key.role not in GIVEN_BY_ADMINS or not signed_by(admin.public, key.statement(), key.signature):
        return False
    ends = min((at for at in (admin.revoked_at, admin.expires_at) if at), default="")
    at = datetime.fromisoformat(key.created_at)
    return datetime.fromisoformat(admin.created_at) <= at and not (ends and at >= datetime.fromisoformat(ends))


def name_of(key: str) -> str:
    """Return the id in a key. Raises NoCredential: it has not the form of one."""
    if (parts := _KEY.fullmatch(key)) is None:
        raise NoCredential(misshapen(key))
    return parts[1]


def describe_key(key: AccessKey) -> dict[str, Json]:
    """Return the fields of a key that may be shown."""
    names = ("id", "account", "user", "project", "note", "created_at", "created_by", "expires_at", "revoked_at")
    return {name: getattr(key, name) for name in names} | {"role": key.role.value, "approves": bool(key.public)}


def misshapen(key: str) -> str:
    """Return what is wrong with the form of a key, without quoting it.

    >>> misshapen("ma_abc")
    'the key has 6 characters, a whole one has 64 (ma_<id>_<secret>): it was cut; copy it again'
    """
    head, form = f"the key has {len(key)} characters", f"a whole one has {KEY_CHARS} (ma_<id>_<secret>)"
    if len(key) < KEY_CHARS:
        return f"{head}, {form}: it was cut; copy it again"
    if len(key) > KEY_CHARS:
        return f"{head}, {form}: something was added, or it was pasted twice; copy it again"
    return f"the key is none of ours: {form}, in small letters and the digits 2 to 7; copy it again"


def _text(bits: bytes, chars: int) -> str:
    number = int.from_bytes(bits, "big")
    return "".join(ALPHABET[number >> (5 * index) & 31] for index in range(chars))


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

"""The human's key: who may approve, which key is the installation's first, and refused passphrases.

**The installation's key** is the first one that a human made; there is one per data directory, for all its projects.
Its public half is recorded at once in a file of the data directory and in the audit chain (`constitution.approver`), so
replacing `approver.json` changes nothing: nothing that another key signed counts, and every start says so until the
first key is back or has vouched for it. If the two records disagree, no key counts. An installation older than these
records trusts the key it has at its first human action. Rejected: a record signed by the key itself, since whoever
brings another key would sign one too. Not covered: a process of the same user that rewrites the record and the chain.

**Refused passphrases** are counted on disk, each one lengthens the wait, and the human who gets in is shown the count.
The wait is bounded, so nobody is locked out. It slows whoever types, not whoever copies the key file: against that the
key derivation and the passphrase's strength protect. A count that cannot be written is no reason to refuse.

**Approvers** are Ed25519 keys behind a passphrase. The private key is stored next to the data, never in the project,
sealed with ChaCha20-Poly1305 under a key that scrypt derives from the passphrase: an agent that can run every command
and write every file of the project still lacks the passphrase. The salt is the public key, which is new for every
approver, so this module needs no randomness and a swapped public key does not unseal. Colleagues' public keys count
once a human has vouched for them with the passphrase: each is countersigned. Not covered: a process of the same user
that replaces the keys.

**Signatures**: `Signer` has one method for each kind of statement (`statements`) and signs nothing else.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from memory_anchor.base.files import make_private, read_bounded, remove_durably, write_atomic
from memory_anchor.base.json_values import Json, parsed, whole
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, Refused
from memory_anchor.domain.requests.checks import text as checked_text
from memory_anchor.identity.statements import (
    Admitted,
    Approved,
    Bound,
    Closed,
    Confirmed,
    Decided,
    Purged,
    Rejected,
    Sealed,
    Statement,
    Vouched,
    server_of,
)

if TYPE_CHECKING:
    from memory_anchor.domain.ports import AuditLog

NOTE_FILE = "first_key.json"
MAX_NOTE_BYTES = 4_000
KEY_CREATED = "constitution.approver"
"""The kind of the audit record of a key made here; its field `key` is the public half."""
GROUPS, GROUP_CHARS = 8, 4


def fingerprint_of(public: str) -> str:
    """Return 32 hex digits of a public key's hash in groups of four, to be compared by eye."""
    digits = hashlib.sha256(public.encode("utf-8", "surrogatepass")).hexdigest()
    return " ".join(digits[GROUP_CHARS * n : GROUP_CHARS * (n + 1)] for n in range(GROUPS))


class FirstKey:
    """The records of one data directory's first key. audit: None to use only the file."""

    def __init__(self, data_dir: Path, audit: AuditLog | None) -> None:
        self._note = data_dir / NOTE_FILE
        self._audit = audit

    def recorded_keys(self) -> tuple[str, ...]:
        """Return the recorded public keys: none before the first, two if the records disagree."""
        audited = self._audit.first(KEY_CREATED) if self._audit is not None else None
        recorded = [self._in_file(), str(audited.get("key", "")) if audited is not None else ""]
        return tuple(dict.fromkeys(key for key in recorded if key))

    def remember(self, public: str) -> None:
        """Record the key in the file, durable on return; the audit chain has the record of its creation."""
        if self._in_file() != public:
            write_atomic(self._note, (json.dumps({"public": public, "is": fingerprint_of(public)}) + "\n").encode())

    def _in_file(self) -> str:
        try:
            note = json.loads(read_bounded(self._note, most_bytes=MAX_NOTE_BYTES) or b"{}")
            return str(note.get("public", ""))
        except (OSError, ValueError, AttributeError, RecursionError):
            return "?"  # an unreadable record must not let another key in


TRIES_FILE = "refused_tries.json"
MAX_BYTES = 4_000
FREE_TRIES = 3
"""Refused tries before there is a wait: humans mistype."""
WAIT_MAX_S = 30.0
COUNT_MAX = 1_000_000


class RefusedTries:
    """Counts refused passphrases since the last success. folder: `<data_dir>/identity`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / TRIES_FILE

    def wait_s(self, now: datetime) -> float:
        """Return the seconds to wait before the next try, 0 to `WAIT_MAX_S`."""
        count, _, last = self._read()
        if count < FREE_TRIES or last is None:
            return 0.0
        pause = min(WAIT_MAX_S, 2.0 ** min(count - FREE_TRIES, 10))
        return min(max(0.0, pause - (now - last).total_seconds()), pause)

    def note(self, now: datetime) -> None:
        """Count one more."""
        count, since, _ = self._read()
        record = {"count": min(count + 1, COUNT_MAX), "since": (since or now).isoformat(), "last": now.isoformat()}
        with contextlib.suppress(MemoryAnchorError):
            write_atomic(self._path, (json.dumps(record) + "\n").encode())

    def take(self) -> str:
        """Return one sentence about the refused tries, "" for none, and reset the count."""
        count, since, last = self._read()
        with contextlib.suppress(OSError, MemoryAnchorError):
            if count:
                remove_durably(self._path)
        if not count or since is None or last is None:
            return ""
        if count == 1:
            return f"1 refused try at your passphrase, {last:%Y-%m-%d %H:%M:%S} UTC"
        return (
            f"{count} refused tries at your passphrase since {since:%Y-%m-%d %H:%M:%S} UTC, the last at "
            f"{last:%Y-%m-%d %H:%M:%S} UTC"
        )

    def _read(self) -> tuple[int, datetime | None, datetime | None]:
        try:
            record = json.loads(read_bounded(self._path, most_bytes=MAX_BYTES) or b"{}")
            since, last = (datetime.fromisoformat(record[name]) for name in ("since", "last"))
            count = int(record["count"])
            if since.tzinfo is None or last.tzinfo is None or not 0 <= count <= COUNT_MAX:
                raise ValueError("no count")
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return 0, None, None
        return count, since, last


KEY_FILE = "approver.json"
KNOWN_FILE = "known_approvers.json"
SCRYPT_COST = 2**16
"""With r=8 and p=3: 64 MiB and 0.6 s a guess on the machine this was measured on. No setting reaches it."""
SCRYPT_BLOCK = 8
SCRYPT_PARALLEL = 3
_COSTS_READ = {2**n for n in range(4, 18)}
"""Up to 128 MiB, so refusing a planted key file costs neither a gigabyte nor a minute."""
MIN_STRENGTH_BITS = 48
"""What 12 small letters and blanks, or 8 of every class, have; a guess costs 0.6 s."""
REPEATS_COUNTED = 2
"""A character counts at most this many times on average: twelve equal ones are one or two."""
CLASSES = ((str.islower, 26), (str.isupper, 26), (str.isdigit, 10), (str.isalpha, 2_000))
OTHER_SIGNS = 33
MAX_PASSPHRASE = 1_000
MAX_INTERVAL_S = 30 * 86_400
MAX_NAME = 200
MAX_KEY_FILE_BYTES = 64_000
MAX_KNOWN = 100
REQUIRED_CONFIRMATIONS = 3
"""The strategy's three approvals (三次审批)."""
MAX_CONFIRMATIONS_READ = 20
INSTALLATION = "installation"
"""The field of a signed statement that says where it counts."""
_NONCE = bytes(12)
"""Fixed: each sealing key (passphrase and public key) seals one plaintext only."""


@dataclass(frozen=True, slots=True)
class Approver:
    """A human who may approve. public: base64 of the raw Ed25519 public key.

    installations: those whose name in a statement makes it count here; () for the one whose first key this is."""

    name: str
    public: str
    installations: tuple[str, ...] = field(default=(), compare=False)

    def signed(self, statement: Mapping[str, Json], signature: str) -> bool:
        """Return whether this key signed the statement for here, or, in an earlier version, for no installation."""
        if INSTALLATION in statement:
            return False
        places = self.installations or (fingerprint_of(self.public),)
        forms = (*({**statement, INSTALLATION: place} for place in places), statement)
        return any(signed_by(self.public, form, signature) for form in forms)


@dataclass(frozen=True, slots=True)
class Rules:
    """How strict approvals are at least; settings can only make them stricter.

    They are part of the key file and of the key's derivation: a file with edited rules does not open.
    number: counts the changes; the audit trail has the last, so an older copy of the file is detected.
    """

    min_interval_s: int = 0
    distinct_approvers: bool = False
    number: int = 0

    @classmethod
    def of(cls, value: Json) -> Rules | None:
        """Return the rules that a key file claims, the weakest for an older file without any, None if unreadable."""
        if value is None:
            return cls()
        if not isinstance(value, Mapping):
            return None
        interval, distinct, number = (value.get(name) for name in ("min_interval_s", "distinct_approvers", "number"))
        if type(interval) is not int or type(number) is not int or type(distinct) is not bool:
            return None
        return cls(interval, distinct, number)


@dataclass(frozen=True, slots=True)
class SealedKey:
    """A key file with checked types. sealed: the private half. rules: as the file claims them."""

    name: str
    public: str
    sealed: str
    cost: int
    rules: Json


@dataclass(frozen=True, slots=True)
class Signer:
    """An approver's unlocked key. rules: those that the key file was sealed with.

    installation: fingerprint of its first key. Each method returns a base64 signature of one kind of statement."""

    approver: Approver
    _key: Ed25519PrivateKey
    installation: str
    rules: Rules = Rules()

    def confirm(self, statement: Confirmed | Rejected | Closed) -> str:
        """Sign a decision on a proposal for L0."""
        return self._signed(statement, (Confirmed, Rejected, Closed), self.installation)

    def seal(self, statement: Approved | Sealed | Bound) -> str:
        """Sign that a text of L0 is in force."""
        return self._signed(statement, (Approved, Sealed, Bound), self.installation)

    def decide(self, statement: Decided) -> str:
        """Sign one request to the engine of this installation, or to one server."""
        where = server_of(statement.server) if statement.server else self.installation
        return self._signed(statement, (Decided,), where)

    def purge(self, statement: Purged) -> str:
        """Sign that the other devices of a sync folder purge memories too."""
        return self._signed(statement, (Purged,), fingerprint_of(self.approver.public))

    def vouch(self, statement: Vouched | Admitted) -> str:
        """Sign that a colleague's signatures count here, or that an access key opens this installation."""
        return self._signed(statement, (Vouched, Admitted), self.installation)

    def _signed(self, statement: Statement, kinds: tuple[type[Statement], ...], installation: str) -> str:
        if type(statement) not in kinds:
            raise TypeError(f"a {type(statement).__name__} is no statement of this kind")
        return base64.b64encode(self._key.sign(canonical({**statement.record(), INSTALLATION: installation}))).decode()


def canonical(statement: Mapping[str, Json]) -> bytes:
    """Return a statement's canonical bytes."""
    return json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def digest_of(statement: Mapping[str, Json]) -> str:
    return hashlib.sha256(canonical(statement)).hexdigest()


def signed_by(public: str, statement: Mapping[str, Json], signature: str) -> bool:
    """Return whether `signature` is this key's over this statement; False for any malformed input."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public, validate=True))
        key.verify(base64.b64decode(signature, validate=True), canonical(statement))
    except (InvalidSignature, ValueError, binascii.Error):
        return False
    return True


def is_public(public: str) -> bool:
    """Return whether a text is the public half of a signing key."""
    try:
        Ed25519PublicKey.from_public_bytes(base64.b64decode(public, validate=True))
    except (ValueError, binascii.Error):
        return False
    return True


def signer_of(known: Sequence[Approver], statement: Mapping[str, Json], signature: str) -> Approver | None:
    """Return the known approver who signed this statement."""
    return next((approver for approver in known if approver.signed(statement, signature)), None)


class KeyRing:
    """The approver of one data directory and the colleagues they vouched for; keeps no unsealed key in memory.

    folder: `<data_dir>/identity`. audit: the trail that also records the first key; None to use only its file.
    """

    def __init__(self, folder: Path, audit: AuditLog | None = None) -> None:
        self._folder, self._path = folder, folder / KEY_FILE
        self._first = FirstKey(folder.parent, audit)

    def own(self) -> Approver | None:
        """Return the approver whose valid key is here: the first one made, or one that the first vouched for.

        None before `create`, for a key file that cannot be read, and for a stranger's (see `warning`).
        """
        approver = self._key_in_place()
        if approver is None or approver.public not in self._valid_keys(approver):
            return None
        return replace(approver, installations=(fingerprint_of(self._first_public(approver)),))

    def approvers(self) -> tuple[Approver, ...]:
        """Return everyone whose signature counts here, the own approver first."""
        sealing = self.sealing_approvers()
        others = self._vouched_by(self._first_public(sealing[0])) if sealing else ()
        # A key that once lay here named this installation, a colleague's names its own.
        return *sealing, *(
            replace(approver, installations=(*sealing[0].installations, fingerprint_of(approver.public)))
            for approver in others
            if approver.public != sealing[0].public
        )

    def sealing_approvers(self) -> tuple[Approver, ...]:
        """Return whose seals this installation accepts: the key that is here, and the first one made here."""
        own = self.own()
        if own is None:
            return ()
        root = self._first_public(own)
        return (own,) if own.public == root else (own, Approver("the first approver", root, own.installations))

    def warning(self) -> str:
        """Return one sentence if the key in place is not the installation's, otherwise ""."""
        in_place, recorded = self._key_in_place(), self._first.recorded_keys()
        if len(recorded) > 1:
            prints = " and ".join(fingerprint_of(key) for key in recorded)
            return (
                f"the notes of this installation's first key disagree ({prints}): nothing any key signed is served; "
                "restore the data folder from a backup"
            )
        if in_place is None:
            return (
                f"the key of this installation ({fingerprint_of(recorded[0])}) is gone: nothing can be approved; "
                f"put {self._path} back from a backup"
                if recorded
                else ""
            )
        if in_place.public in self._valid_keys(in_place):
            return ""
        return (
            f"the key on this machine ({fingerprint_of(in_place.public)}) is not the first one made here "
            f"({fingerprint_of(recorded[0])}): nothing it signed is served; put the first {KEY_FILE} back from a "
            "backup, and if the other key is yours let the first vouch for it with `memory-anchor constitution trust`"
        )

    def fingerprint(self) -> str:
        """Return the fingerprint of the installation's first key, "" before there is one."""
        recorded, in_place = self._first.recorded_keys(), self._key_in_place()
        public = recorded[0] if recorded else in_place.public if in_place else ""
        return fingerprint_of(public) if public else ""

    def _key_in_place(self) -> Approver | None:
        sealed = self._sealed()
        return Approver(sealed.name, sealed.public) if sealed else None

    def _first_public(self, in_place: Approver) -> str:
        """Return the first key's public half as recorded, "" if the records disagree; without one, the key in place."""
        recorded = self._first.recorded_keys()
        return "" if len(recorded) > 1 else recorded[0] if recorded else in_place.public

    def _valid_keys(self, in_place: Approver) -> frozenset[str]:
        first = self._first_public(in_place)
        return frozenset((first, *(approver.public for approver in self._vouched_by(first)))) if first else frozenset()

    def _vouched_by(self, first: str) -> tuple[Approver, ...]:
        return tuple(
            Approver(entry["name"], entry["public"])
            for entry in self._vouched()
            if Approver("", first).signed(Vouched(entry["name"], entry["public"]).record(), entry["signature"])
        )

    def create(self, *, name: str, passphrase: str) -> Signer:
        """Make the approver of this data directory.

        Raises Refused: a key file is there, or a first key was made here already. BadInput: name or passphrase.
        """
        if recorded := self._first.recorded_keys():
            raise Refused(
                f"this installation has a key ({fingerprint_of(recorded[0])}) and {self._path} is not it; nothing was "
                "changed: put that file back from a backup"
            )
        if next(self._folder.glob("*/approved/*.json"), None) is not None:
            raise Refused(
                f"{self._folder} holds approved texts and not the key that sealed them; nothing was changed: put "
                f"{KEY_FILE} back from a backup"
            )
        if self._path.exists():
            raise Refused(f"{self._path} exists and cannot be read; restore it from a backup")
        key = Ed25519PrivateKey.generate()
        public = base64.b64encode(key.public_key().public_bytes_raw()).decode()
        signer = Signer(Approver(checked_name(name), public), key, fingerprint_of(public))
        self._seal(signer, checked_passphrase(passphrase))
        self._first.remember(public)
        return signer

    def unlock(self, passphrase: str) -> Signer:
        """Return the signer.

        Raises Refused: no approver here yet, a key that is not the installation's, or another passphrase.
        """
        sealed = self._sealed()
        if sealed is None:
            raise Refused(self.warning() or "no approver on this machine yet; run `memory-anchor init` on a terminal")
        if self.own() is None:
            raise Refused(self.warning())
        rules = Rules.of(sealed.rules) or Rules()
        key = _derived(passphrase, sealed.public, cost=sealed.cost, rules=rules)
        try:
            raw = ChaCha20Poly1305(key).decrypt(_NONCE, base64.b64decode(sealed.sealed), sealed.name.encode())
            private = Ed25519PrivateKey.from_private_bytes(raw)
        except (InvalidTag, ValueError, binascii.Error):
            raise Refused("the passphrase is not the approver's; nothing was changed") from None
        if base64.b64encode(private.public_key().public_bytes_raw()).decode() != sealed.public:
            raise Refused(f"{self._path} does not belong together; restore it from a backup")
        first = self._first_public(Approver(sealed.name, sealed.public))
        installation = fingerprint_of(first)
        signer = Signer(Approver(sealed.name, sealed.public, (installation,)), private, installation, rules)
        self._first.remember(first)
        self._reseal_if_outdated(signer, passphrase, sealed)
        return signer

    def refused_tries(self) -> RefusedTries:
        """Return the counter of refused passphrases."""
        return RefusedTries(self._folder)

    def rules(self) -> Rules:
        """Return the rules that the key file claims; those of `unlock` are verified."""
        sealed = self._sealed()
        return (Rules.of(sealed.rules) if sealed else None) or Rules()

    def set_rules(self, passphrase: str, *, min_interval_s: int, distinct_approvers: bool) -> Rules:
        """Seal the key with other rules. Raises Refused: see `unlock`. BadInput: no such interval."""
        if not 0 <= min_interval_s <= MAX_INTERVAL_S:
            raise BadInput(f"min-interval-s is {min_interval_s}; allowed are 0 to {MAX_INTERVAL_S} seconds")
        signer = self.unlock(passphrase)
        rules = Rules(min_interval_s, distinct_approvers, signer.rules.number + 1)
        self._seal(replace(signer, rules=rules), passphrase)
        return rules

    def change_passphrase(self, signer: Signer, new: str) -> None:
        """Seal the same key under another passphrase; everything it signed stays valid."""
        self._seal(signer, checked_passphrase(new))

    def vouch(self, signer: Signer, *, name: str, public: str) -> Approver:
        """Let a colleague's signatures count from now on.

        Raises BadInput: that is no public key, or `MAX_KNOWN` colleagues are known already. Refused: the signer is
        not the first key, which alone vouches.
        """
        if signer.approver.public != self._first_public(signer.approver):
            raise Refused(f"only the first key of this installation ({self.fingerprint()}) vouches for others")
        if not is_public(public):
            raise BadInput(
                f"key is {len(public)} characters that are no Ed25519 public key; allowed is what "
                "`memory-anchor constitution approvers` prints on the colleague's machine"
            )
        others = [entry for entry in self._vouched() if entry["public"] != public]
        if len(others) >= MAX_KNOWN:
            raise BadInput(f"{len(others)} approvers are known; allowed are {MAX_KNOWN}")
        name = checked_name(name)
        others.append({"name": name, "public": public, "signature": signer.vouch(Vouched(name, public))})
        self._write(KNOWN_FILE, {"approvers": others})
        return Approver(name, public)

    def _reseal_if_outdated(self, signer: Signer, passphrase: str, sealed: SealedKey) -> None:
        """Seal a key of an older layout or cost again in the current form and place."""
        if sealed.cost < SCRYPT_COST or not self._path.exists():
            self._seal(signer, passphrase)

    def _key_file(self) -> Path:
        """Return the path of the key file: the installation's, or the oldest one in a subfolder (an earlier layout).

        A `scope.project` with a slash once gave that project its own key ring; such keys no longer count, and their
        texts need an `init` with the installation's key.
        """
        older_files = [] if self._path.exists() else sorted(self._folder.glob(f"*/{KEY_FILE}"))[:MAX_KNOWN]
        recorded = self._first.recorded_keys() if older_files else ()
        if len(recorded) == 1:
            older_files = [path for path in older_files if self._read(path).get("public") == recorded[0]]
        return min(older_files, key=_made_at, default=self._path)

    def _seal(self, signer: Signer, passphrase: str) -> None:
        key = _derived(passphrase, signer.approver.public, cost=SCRYPT_COST, rules=signer.rules)
        sealed = ChaCha20Poly1305(key).encrypt(_NONCE, signer._key.private_bytes_raw(), signer.approver.name.encode())
        self._write(
            KEY_FILE,
            {
                "name": signer.approver.name,
                "public": signer.approver.public,
                "cost": SCRYPT_COST,
                "rules": asdict(signer.rules),
                "sealed": base64.b64encode(sealed).decode(),
            },
        )

    def _sealed(self) -> SealedKey | None:
        record = self._read(self._key_file())
        name, public, sealed, cost = (record.get(part) for part in ("name", "public", "sealed", "cost"))
        if not (isinstance(name, str) and isinstance(public, str) and isinstance(sealed, str) and cost in _COSTS_READ):
            return None
        return SealedKey(name, public, sealed, whole(cost), record.get("rules"))

    def _vouched(self) -> list[dict[str, str]]:
        entries = self._read(self._folder / KNOWN_FILE).get("approvers")
        if not isinstance(entries, list):
            return []
        return [
            entry
            for entry in entries[:MAX_KNOWN]
            if isinstance(entry, dict)
            and all(isinstance(entry.get(key), str) for key in ("name", "public", "signature"))
        ]

    def _read(self, path: Path) -> dict[str, Json]:
        try:
            record = parsed(read_bounded(path, most_bytes=MAX_KEY_FILE_BYTES) or b"{}")
        except (OSError, ValueError, RecursionError):
            return {}
        return record if isinstance(record, dict) else {}

    def _write(self, name: str, content: Mapping[str, Json]) -> None:
        make_private(self._folder)
        write_atomic(self._folder / name, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def _made_at(path: Path) -> tuple[float, str]:
    try:
        return path.lstat().st_mtime, path.parent.name
    except OSError:
        return float("inf"), path.parent.name


def _derived(passphrase: str, public: str, *, cost: int, rules: Rules) -> bytes:
    # Rules are part of the salt, not of the sealed text, so the fixed nonce still seals one plaintext per key.
    salt = (public + ("" if rules == Rules() else digest_of(asdict(rules)))).encode("utf-8", "surrogatepass")
    kdf = Scrypt(salt=salt, length=32, n=cost, r=SCRYPT_BLOCK, p=SCRYPT_PARALLEL)
    return kdf.derive(passphrase[:MAX_PASSPHRASE].encode("utf-8", "surrogatepass"))


def checked_passphrase(passphrase: str) -> str:
    """Return a passphrase that may be set.

    Raises BadInput: its length or strength; the message never holds any of it.
    """
    if len(passphrase) > MAX_PASSPHRASE:
        raise BadInput(f"the passphrase has {len(passphrase)} characters; allowed are at most {MAX_PASSPHRASE}")
    bits = strength_bits(passphrase)
    if bits < MIN_STRENGTH_BITS:
        raise BadInput(
            f"the passphrase is too easily guessed ({len(passphrase)} characters, some {bits:.0f} bits); allowed are "
            f"{MIN_STRENGTH_BITS} bits or more: 12 different letters, or four words"
        )
    return passphrase


def strength_bits(passphrase: str) -> float:
    """Return an upper bound: length times the bits per character of the classes used; repeats count little.

    >>> round(strength_bits("1111")), round(strength_bits("correct horse")), round(strength_bits("111111111111"))
    (7, 76, 7)
    """
    length = min(len(passphrase), REPEATS_COUNTED * len(set(passphrase)))
    classes = {next((size for matches, size in CLASSES if matches(char)), OTHER_SIGNS) for char in passphrase}
    both_cases = any(map(str.islower, passphrase)) and any(map(str.isupper, passphrase))
    return length * math.log2(sum(classes) + 26 * both_cases) if length else 0.0


def checked_name(name: str) -> str:
    return checked_text("approver", name, most=MAX_NAME)

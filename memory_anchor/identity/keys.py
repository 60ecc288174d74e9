"""The human's key: who may approve, which key is the installation's first, and passphrases that were refused.

Which human key is the installation's: the first one a human made, remembered where a swapped key file is not.

One key an installation (a data directory), whatever projects it serves. Its public half is noted at once in a file of
the data directory and in the audit chain (`constitution.approver`), so that moving `approver.json` away and making
another one changes nothing: the other key is a stranger, nothing it signed counts, and every start says so until the
first key is back or has vouched for it. Where the two notes disagree no key counts. An installation older than the
notes is taken as it stands at its first human act. Rejected: a note signed by the key itself, which whoever brings
another key would sign too. Out of reach: a process of the same user that rewrites the note and the whole chain.

Passphrases that were refused: counted on disk, slower with each, and told to the human who gets in.

The wait follows the last refusal and is bounded, so nobody is locked out; it slows whoever types, not whoever copies
the key file away: against those the key's derivation and the passphrase's strength stand. A count that cannot be
written is no reason to refuse.

Who may approve: Ed25519 keys behind a passphrase, and what their signatures say.

An approver's private key lies beside the data, never in the project, sealed with ChaCha20-Poly1305 under a key that
scrypt derives from the passphrase; an agent that can run every command and write every file of the project still lacks
the passphrase. The salt is the public key, which is fresh for every approver, so this module needs no randomness of
its own and a swapped public key no longer unseals. Colleagues' public keys are known only once a human has vouched for
them with the passphrase: each is countersigned. Out of reach: a process of the same user that replaces the keys.

Every signature is over canonical JSON that begins with its purpose, so none can be used as another.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from memory_anchor.errors import BadInput, MemoryAnchorError, Refused
from memory_anchor.files import make_private, read_bounded, write_atomic
from memory_anchor.inputs import text as checked_text
from memory_anchor.json_values import Json, parsed, whole

if TYPE_CHECKING:
    from memory_anchor.ports import AuditLog

NOTE_FILE = "first_key.json"
MAX_NOTE_BYTES = 4_000
MADE = "constitution.approver"
"""The kind of the audit record that tells of a key made here, with `key`: its public half."""
GROUPS, GROUP_CHARS = 8, 4


def fingerprint_of(public: str) -> str:
    """Return 32 hex digits of a public key's hash in groups of four, fit to be noted down and compared by eye."""
    digits = hashlib.sha256(public.encode("utf-8", "surrogatepass")).hexdigest()
    return " ".join(digits[GROUP_CHARS * n : GROUP_CHARS * (n + 1)] for n in range(GROUPS))


class FirstKey:
    """The notes of one data directory. audit: None where only the file is asked."""

    def __init__(self, data_dir: Path, audit: AuditLog | None) -> None:
        self._note = data_dir / NOTE_FILE
        self._audit = audit

    def noted(self) -> tuple[str, ...]:
        """Return the public keys that the notes name: none before the first, two when they disagree."""
        chained = self._audit.first(MADE) if self._audit is not None else None
        named = [self._in_file(), str(chained.get("key", "")) if chained is not None else ""]
        return tuple(dict.fromkeys(one for one in named if one))

    def remember(self, public: str) -> None:
        """Write the file's note, durable on return; the chain's is the record that tells of the key."""
        if self._in_file() != public:
            write_atomic(self._note, (json.dumps({"public": public, "is": fingerprint_of(public)}) + "\n").encode())

    def _in_file(self) -> str:
        try:
            note = json.loads(read_bounded(self._note, most_bytes=MAX_NOTE_BYTES) or b"{}")
            return str(note.get("public", ""))
        except (OSError, ValueError, AttributeError, RecursionError):
            return "?"  # a note that cannot be read is no leave to take another key


TRIES_FILE = "refused_tries.json"
MAX_BYTES = 4_000
FREE_TRIES = 3
"""Refused ones that a mistyping human may make before there is a wait."""
WAIT_MAX_S = 30.0
COUNT_MAX = 1_000_000


class Tries:
    """The refused tries of one key ring since its last success. folder: `<data_dir>/identity`."""

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
        told = {"count": min(count + 1, COUNT_MAX), "since": (since or now).isoformat(), "last": now.isoformat()}
        with contextlib.suppress(MemoryAnchorError):
            write_atomic(self._path, (json.dumps(told) + "\n").encode())

    def take(self) -> str:
        """Return one sentence about the tries that were refused, "" for none, and count from nothing again."""
        count, since, last = self._read()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
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
            said = json.loads(read_bounded(self._path, most_bytes=MAX_BYTES) or b"{}")
            since, last = (datetime.fromisoformat(said[name]) for name in ("since", "last"))
            count = int(said["count"])
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
"""Up to 128 MiB: a key file that somebody planted takes no gigabyte and no minute to be refused."""
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
_NONCE = bytes(12)
"""Fixed: each sealing key (passphrase and public key) seals one plaintext only."""


@dataclass(frozen=True, slots=True)
class Approver:
    """A human who may approve. public: base64 of the raw Ed25519 public key. elsewhere: by an access key of this
    server, from another machine; such a one counts once a proposal."""

    name: str
    public: str
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """How strict approvals are, whatever the settings say: settings only add to it.

    They lie in the sealed key file and in what its key is derived from: a file with other rules does not open.
    number: counts the changes; the audit trail knows the last, so that an older copy of the file shows.
    """

    min_interval_s: int = 0
    distinct_approvers: bool = False
    number: int = 0

    @classmethod
    def of(cls, value: Json) -> Rules | None:
        """Return the rules that a key file claims, none of an older file's as the mildest, None when unreadable."""
        if value is None:
            return cls()
        if not isinstance(value, Mapping):
            return None
        interval, distinct, number = (value.get(one) for one in ("min_interval_s", "distinct_approvers", "number"))
        if type(interval) is not int or type(number) is not int or type(distinct) is not bool:
            return None
        return cls(interval, distinct, number)


@dataclass(frozen=True, slots=True)
class SealedKey:
    """A key file whose parts are of their kinds; sealed: the private half, rules: as the file claims them."""

    name: str
    public: str
    sealed: str
    cost: int
    rules: Json


class Signs(Protocol):
    """What puts an approver's signature under a statement: an opened key, or what was signed on another machine."""

    @property
    def approver(self) -> Approver: ...

    @property
    def rules(self) -> Rules: ...

    def sign(self, said: Mapping[str, Json]) -> str: ...


@dataclass(frozen=True, slots=True)
class Signer:
    """An approver whose passphrase was given just now. rules: those that their key file was sealed with."""

    approver: Approver
    _key: Ed25519PrivateKey
    rules: Rules = Rules()

    def sign(self, said: Mapping[str, Json]) -> str:
        """Return the base64 signature of a statement."""
        return base64.b64encode(self._key.sign(canonical(said))).decode()


def canonical(said: Mapping[str, Json]) -> bytes:
    """Return the one byte form of a statement."""
    return json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def digest_of(said: Mapping[str, Json]) -> str:
    return hashlib.sha256(canonical(said)).hexdigest()


def signed_by(public: str, said: Mapping[str, Json], signature: str) -> bool:
    """Return whether `signature` is this key's over this statement; any malformed input is a no."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public, validate=True))
        key.verify(base64.b64decode(signature, validate=True), canonical(said))
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


def signer_of(known: Sequence[Approver], said: Mapping[str, Json], signature: str) -> Approver | None:
    """Return the known approver who signed this statement."""
    return next((one for one in known if signed_by(one.public, said, signature)), None)


class KeyRing:
    """The approver of one data directory and the colleagues they vouched for; nothing is kept in memory unsealed.

    folder: `<data_dir>/identity`. audit: the trail that also remembers the first key; None asks its file alone.
    """

    def __init__(self, folder: Path, audit: AuditLog | None = None) -> None:
        self._folder, self._path = folder, folder / KEY_FILE
        self._first = FirstKey(folder.parent, audit)

    def own(self) -> Approver | None:
        """Return the approver whose key is here and counts: the first one made, or one that the first vouched for.

        None before `create`, for a key file that cannot be read, and for a stranger's (see `warning`).
        """
        held = self._held()
        return held if held is not None and held.public in self._counting(held) else None

    def approvers(self) -> tuple[Approver, ...]:
        """Return everyone whose signature counts here, the own approver first."""
        sealing = self.sealing_approvers()
        others = self._vouched_by(self._root(sealing[0])) if sealing else ()
        return *sealing, *(one for one in others if one.public != sealing[0].public)

    def sealing_approvers(self) -> tuple[Approver, ...]:
        """Return whose seal makes a text this installation's own: the key that is here, and the first one made here."""
        own = self.own()
        if own is None:
            return ()
        root = self._root(own)
        return (own,) if own.public == root else (own, Approver("the first approver", root))

    def warning(self) -> str:
        """Return one sentence when the key that lies here is not the installation's, "" when all is well."""
        held, noted = self._held(), self._first.noted()
        if len(noted) > 1:
            prints = " and ".join(fingerprint_of(one) for one in noted)
            return (
                f"the notes of this installation's first key disagree ({prints}): nothing any key signed is served; "
                "restore the data folder from a backup"
            )
        if held is None:
            return (
                f"the key of this installation ({fingerprint_of(noted[0])}) is gone: nothing can be approved; "
                f"put {self._path} back from a backup"
                if noted
                else ""
            )
        if held.public in self._counting(held):
            return ""
        return (
            f"the key on this machine ({fingerprint_of(held.public)}) is not the first one made here "
            f"({fingerprint_of(noted[0])}): nothing it signed is served; put the first {KEY_FILE} back from a backup, "
            "and if the other key is yours let the first vouch for it with `memory-anchor constitution trust`"
        )

    def fingerprint(self) -> str:
        """Return the fingerprint of the installation's first key, "" before there is one."""
        noted, held = self._first.noted(), self._held()
        public = noted[0] if noted else held.public if held else ""
        return fingerprint_of(public) if public else ""

    def _held(self) -> Approver | None:
        sealed = self._sealed()
        return Approver(sealed.name, sealed.public) if sealed else None

    def _root(self, held: Approver) -> str:
        """Return the first key's public half: what is noted; of an older installation the key that is here."""
        noted = self._first.noted()
        return "" if len(noted) > 1 else noted[0] if noted else held.public

    def _counting(self, held: Approver) -> frozenset[str]:
        root = self._root(held)
        return frozenset((root, *(one.public for one in self._vouched_by(root)))) if root else frozenset()

    def _vouched_by(self, root: str) -> tuple[Approver, ...]:
        return tuple(
            Approver(one["name"], one["public"])
            for one in self._vouched()
            if signed_by(root, _vouching(one["name"], one["public"]), one["signature"])
        )

    def create(self, *, name: str, passphrase: str) -> Signer:
        """Make the approver of this data directory.

        Raises Refused: a key file is there, or a first key was made here already. BadInput: name or passphrase.
        """
        if noted := self._first.noted():
            raise Refused(
                f"this installation has a key ({fingerprint_of(noted[0])}) and {self._path} is not it; nothing was "
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
        signer = Signer(Approver(checked_name(name), public), key)
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
        signer = Signer(Approver(sealed.name, sealed.public), private, rules)
        self._first.remember(self._root(signer.approver))
        self._bring_home(signer, passphrase, sealed)
        return signer

    def tries(self) -> Tries:
        """Return the refused tries at this ring's passphrase."""
        return Tries(self._folder)

    def rules(self) -> Rules:
        """Return the rules that the key file claims; what `unlock` gives is sure."""
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
        """Seal the same key under another passphrase, so that all it signed stays valid."""
        self._seal(signer, checked_passphrase(new))

    def vouch(self, signer: Signer, *, name: str, public: str) -> Approver:
        """Let a colleague's signatures count from now on.

        Raises BadInput: that is no public key, or `MAX_KNOWN` colleagues are known already. Refused: the signer is
        not the first key, which alone vouches.
        """
        if signer.approver.public != self._root(signer.approver):
            raise Refused(f"only the first key of this installation ({self.fingerprint()}) vouches for others")
        if not is_public(public):
            raise BadInput(
                f"key is {len(public)} characters that are no Ed25519 public key; allowed is what "
                "`memory-anchor constitution approvers` prints on the colleague's machine"
            )
        others = [one for one in self._vouched() if one["public"] != public]
        if len(others) >= MAX_KNOWN:
            raise BadInput(f"{len(others)} approvers are known; allowed are {MAX_KNOWN}")
        name = checked_name(name)
        others.append({"name": name, "public": public, "signature": signer.sign(_vouching(name, public))})
        self._write(KNOWN_FILE, {"approvers": others})
        return Approver(name, public)

    def _bring_home(self, signer: Signer, passphrase: str, sealed: SealedKey) -> None:
        """Seal a key of an older layout or cost as one is sealed now, in the one place a key has."""
        if sealed.cost < SCRYPT_COST or not self._path.exists():
            self._seal(signer, passphrase)

    def _found(self) -> Path:
        """Return the key file: the installation's, or the oldest that an earlier layout kept in a folder below.

        A `scope.project` with a slash once gave that project a key ring of its own; those projects' other keys count
        no more: their texts wait for an `init` with the one key.
        """
        below = [] if self._path.exists() else sorted(self._folder.glob(f"*/{KEY_FILE}"))[:MAX_KNOWN]
        noted = self._first.noted() if below else ()
        if len(noted) == 1:
            below = [one for one in below if self._read(one).get("public") == noted[0]]
        return min(below, key=_made_at, default=self._path)

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
        found = self._read(self._found())
        name, public, sealed, cost = (found.get(one) for one in ("name", "public", "sealed", "cost"))
        if not (isinstance(name, str) and isinstance(public, str) and isinstance(sealed, str) and cost in _COSTS_READ):
            return None
        return SealedKey(name, public, sealed, whole(cost), found.get("rules"))

    def _vouched(self) -> list[dict[str, str]]:
        listed = self._read(self._folder / KNOWN_FILE).get("approvers")
        if not isinstance(listed, list):
            return []
        return [
            one
            for one in listed[:MAX_KNOWN]
            if isinstance(one, dict) and all(isinstance(one.get(key), str) for key in ("name", "public", "signature"))
        ]

    def _read(self, path: Path) -> dict[str, Json]:
        try:
            found = parsed(read_bounded(path, most_bytes=MAX_KEY_FILE_BYTES) or b"{}")
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, name: str, content: Mapping[str, Json]) -> None:
        make_private(self._folder)
        write_atomic(self._folder / name, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def _made_at(path: Path) -> tuple[float, str]:
    try:
        return path.lstat().st_mtime, path.parent.name
    except OSError:
        return float("inf"), path.parent.name


def _derived(passphrase: str, public: str, *, cost: int, rules: Rules) -> bytes:
    # Rules are part of the salt and not of the sealed text: the fixed nonce stays good for one plaintext a key.
    salt = (public + ("" if rules == Rules() else digest_of(asdict(rules)))).encode("utf-8", "surrogatepass")
    kdf = Scrypt(salt=salt, length=32, n=cost, r=SCRYPT_BLOCK, p=SCRYPT_PARALLEL)
    return kdf.derive(passphrase[:MAX_PASSPHRASE].encode("utf-8", "surrogatepass"))


def _vouching(name: str, public: str) -> dict[str, Json]:
    return {"what": "memory-anchor approver 1", "name": name, "public": public}


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
    """Return length times the bits of a character of the classes used; what repeats counts little. An upper bound.

    >>> round(strength_bits("1111")), round(strength_bits("correct horse")), round(strength_bits("111111111111"))
    (7, 76, 7)
    """
    length = min(len(passphrase), REPEATS_COUNTED * len(set(passphrase)))
    classes = {next((size for is_in, size in CLASSES if is_in(char)), OTHER_SIGNS) for char in passphrase}
    both_cases = any(map(str.islower, passphrase)) and any(map(str.isupper, passphrase))
    return length * math.log2(sum(classes) + 26 * both_cases) if length else 0.0


def checked_name(name: str) -> str:
    return checked_text("approver", name, most=MAX_NAME)

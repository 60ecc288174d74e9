"""What makes a sync folder unreadable and unforgeable to whoever has the folder alone.

Well-known constructions only, from `cryptography`:

- The sync passphrase goes through scrypt (n=2**16, r=8, p=3; 0.6 s a guess) with the folder's salt. HKDF-SHA256 makes
  two things of it: an Ed25519 key (the folder's authority, which vouches for devices and revokes them) and a key that
  wraps folder keys. Neither is kept on a device; its public half is pinned at set-up.
- A folder key is 256 random bits. It is wrapped with ChaCha20-Poly1305 for the passphrase and, as age does it, for each
  device's X25519 key: ephemeral share, HKDF-SHA256 over the shared secret with both public keys as salt.
- A file is a line of JSON (its head), ChaCha20-Poly1305 over its padded content with the head as associated data, and
  an Ed25519 signature of its author over both. Its key is HKDF-SHA256 of a folder key with the head as salt; a head
  holds 128 random bits, so each key seals one text and the nonce may be fixed.
- Content is compressed and padded to a power of two of at least 4 KiB: what a size tells is no more than that power.

Rejected: a passphrase alone (a lost device could not be locked out without a new one) and devices' keys alone (a new
device would read nothing until an old one is switched on).
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from memory_anchor.errors import BadInput, Refused
from memory_anchor.identity import keys
from memory_anchor.json_values import Json

KEY_BYTES = 32
SIGNATURE_BYTES = 64
HEAD_BYTES_MAX = 4_096
CONTENT_BYTES_MAX = 64 << 20
"""Of one file, unpacked: a member cannot fill another's memory."""
PAD_LEAST = 4_096
_LENGTH_BYTES = 4
_NONCE = bytes(12)
"""Fixed: every key here seals one text only."""


class Unfit(Exception):
    """A file is not what it has to be; `why` is a clause. torn: it may still be on its way."""

    def __init__(self, why: str, *, torn: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.torn = torn


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def raw(value: Json) -> bytes:
    """Return the bytes of a base64 text. Raises Unfit."""
    try:
        return base64.b64decode(str(value), validate=True)
    except ValueError:
        raise Unfit("a key in it is not readable") from None


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def derived(secret: bytes, *, salt: bytes, purpose: str) -> bytes:
    """Return 256 bits of HKDF-SHA256."""
    info = f"memory-anchor/sync/{purpose}/1".encode()
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(secret)


# --- the passphrase ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Authority:
    """What the sync passphrase opens: who vouches for devices, and the key that wraps folder keys."""

    _signer: Ed25519PrivateKey
    wrapping: bytes

    @property
    def public(self) -> str:
        return text(self._signer.public_key().public_bytes_raw())

    def sign(self, said: Mapping[str, Json]) -> str:
        return text(self._signer.sign(keys.canonical(said)))


def authority_of(passphrase: str, *, salt: bytes, cost: int) -> Authority:
    """Return what a passphrase opens in a folder; whether it is the right one shows by its public key."""
    kdf = Scrypt(salt=salt, length=KEY_BYTES, n=cost, r=keys.SCRYPT_BLOCK, p=keys.SCRYPT_PARALLEL)
    secret = kdf.derive(passphrase.encode("utf-8", "surrogatepass"))
    signer = Ed25519PrivateKey.from_private_bytes(derived(secret, salt=salt, purpose="authority"))
    return Authority(signer, derived(secret, salt=salt, purpose="wrapping"))


# --- folder keys ---------------------------------------------------------------------------------------------------


def new_key() -> bytes:
    return ChaCha20Poly1305.generate_key()


def wrapped_by(wrapping: bytes, key: bytes, *, name: str) -> str:
    """Return a folder key for whoever knows the passphrase."""
    once = derived(wrapping, salt=name.encode(), purpose="passphrase")
    return text(ChaCha20Poly1305(once).encrypt(_NONCE, key, name.encode()))


def unwrapped_by(wrapping: bytes, sealed: Json, *, name: str) -> bytes:
    """Raises Unfit: another passphrase wrapped it."""
    once = derived(wrapping, salt=name.encode(), purpose="passphrase")
    return _opened(once, raw(sealed), name.encode())


def wrapped_for(public: str, key: bytes, *, name: str) -> dict[str, Json]:
    """Return a folder key for one device (X25519)."""
    try:
        recipient = X25519PublicKey.from_public_bytes(raw(public))
    except ValueError:
        raise Unfit("a device's key is not readable") from None
    ephemeral = X25519PrivateKey.generate()
    share = ephemeral.public_key().public_bytes_raw()
    once = derived(ephemeral.exchange(recipient), salt=share + raw(public), purpose="recipient")
    return {"share": text(share), "sealed": text(ChaCha20Poly1305(once).encrypt(_NONCE, key, name.encode()))}


def unwrapped_for(private: bytes, stanza: Json, *, name: str) -> bytes:
    """Raises Unfit: it was wrapped for another device, or changed."""
    if not isinstance(stanza, Mapping):
        raise Unfit("a wrapped key in it is not readable")
    own = X25519PrivateKey.from_private_bytes(private)
    share = raw(stanza.get("share"))
    try:
        secret = own.exchange(X25519PublicKey.from_public_bytes(share))
    except ValueError:
        raise Unfit("a wrapped key in it is not readable") from None
    once = derived(secret, salt=share + own.public_key().public_bytes_raw(), purpose="recipient")
    return _opened(once, raw(stanza.get("sealed")), name.encode())


# --- files -----------------------------------------------------------------------------------------------------------


def sealed_file(head: Mapping[str, Json], content: bytes, *, key: bytes, signer: Ed25519PrivateKey) -> bytes:
    """Return a file: its head in the clear, its content sealed and padded, signed by its author.

    head: holds `salt`, 128 random bits as text that no other file has.
    """
    packed = zlib.compress(content, 6)
    padded = len(packed).to_bytes(_LENGTH_BYTES, "big") + packed
    size = PAD_LEAST
    while size < len(padded):
        size *= 2
    padded += bytes(size - len(padded))
    line = keys.canonical({**head, "size": size + 16}) + b"\n"
    once = derived(key, salt=hashlib.sha256(line).digest(), purpose="file")
    body = line + ChaCha20Poly1305(once).encrypt(_NONCE, padded, line)
    return body + signer.sign(hashlib.sha256(body).digest())


def head_of(file: bytes) -> dict[str, Json]:
    """Return the head of a whole file. Raises Unfit: it is none of ours, or torn."""
    end = file.find(b"\n", 0, HEAD_BYTES_MAX)
    if end < 0:
        raise Unfit("it is cut off or no file of a sync folder", torn=len(file) < HEAD_BYTES_MAX)
    try:
        head = json.loads(file[:end])
        size = int(head["size"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unfit("it is no file of a sync folder") from None
    if not isinstance(head, dict) or keys.canonical(head) != file[:end]:
        raise Unfit("its head was changed")
    have = len(file) - end - 1 - SIGNATURE_BYTES
    if have != size:
        raise Unfit("it is cut off" if have < size else "something was added to it", torn=have < size)
    return head


def opened_file(file: bytes, *, key: bytes, public: str) -> bytes:
    """Return the content of a file that `public` signed. Raises Unfit."""
    end = file.find(b"\n", 0, HEAD_BYTES_MAX) + 1
    body, signature = file[:-SIGNATURE_BYTES], file[-SIGNATURE_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(raw(public)).verify(signature, hashlib.sha256(body).digest())
    except (InvalidSignature, ValueError):
        raise Unfit("its author's signature does not fit") from None
    once = derived(key, salt=hashlib.sha256(file[:end]).digest(), purpose="file")
    padded = _opened(once, body[end:], file[:end])
    length = int.from_bytes(padded[:_LENGTH_BYTES], "big")
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(padded[_LENGTH_BYTES : _LENGTH_BYTES + length], CONTENT_BYTES_MAX)
    except zlib.error:
        raise Unfit("its content is not readable") from None
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise Unfit(f"its content is over {CONTENT_BYTES_MAX} bytes, or cut off")
    return content


def _opened(key: bytes, sealed: bytes, about: bytes) -> bytes:
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, about)
    except (InvalidTag, ValueError):
        raise Unfit("it was sealed with another key or changed") from None


# --- keys of one device ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceKeys:
    """What one device opens and signs with."""

    opening: bytes
    signing: bytes

    @classmethod
    def made(cls) -> DeviceKeys:
        return cls(X25519PrivateKey.generate().private_bytes_raw(), Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def signer(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.signing)

    @property
    def publics(self) -> tuple[str, str]:
        """Return (X25519, Ed25519), as its card holds them."""
        recipient = X25519PrivateKey.from_private_bytes(self.opening).public_key()
        return text(recipient.public_bytes_raw()), text(self.signer.public_key().public_bytes_raw())


def checked_name(name: str, *, most: int = 40) -> str:
    """Return a device's name. Raises BadInput."""
    if not (1 <= len(name) <= most and all(char.isalnum() or char in "-_." for char in name)):
        raise BadInput(f"the device's name is {name[:most]!r}; allowed are 1 to {most} letters, digits, - _ .")
    return name


def check_signed(public: str, said: Mapping[str, Json], signature: Json) -> None:
    """Raise Refused unless this key signed this statement."""
    if not keys.signed_by(public, said, str(signature)):
        raise Refused("it is not signed by who may")

"""The cryptography of a sync folder: somebody who has only the folder can neither read it nor forge a file in it.

Well-known constructions only, from `cryptography`:

- The sync passphrase goes through scrypt (n=2**16, r=8, p=3; 0.6 s a guess) with the folder's salt. HKDF-SHA256 makes
  two keys of it: an Ed25519 key (the folder's authority, which vouches for devices and revokes them) and a key that
  wraps folder keys. Neither is stored on a device; the authority's public half is pinned at set-up.
- A folder key is 256 random bits. It is wrapped with ChaCha20-Poly1305 for the passphrase and, as age does it, for each
  device's X25519 key: ephemeral share, HKDF-SHA256 over the shared secret with both public keys as salt.
- A file is a line of JSON (its head), ChaCha20-Poly1305 over its padded content with the head as associated data, and
  an Ed25519 signature of its author over both. Its key is HKDF-SHA256 of a folder key with the head as salt; a head
  holds 128 random bits, so each key seals one text and the nonce may be fixed.
- Content is compressed and padded to a power of two of at least 4 KiB: a size tells no more than that power.

Rejected: a passphrase alone (a lost device could not be locked out without a new one) and devices' keys alone (a new
device could read nothing until an old one is switched on).
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

from memory_anchor.base.json_values import Json
from memory_anchor.identity import keys

KEY_BYTES = 32
SIGNATURE_BYTES = 64
HEAD_BYTES_MAX = 4_096
CONTENT_BYTES_MAX = 64 << 20
"""Of one file, unpacked, so that a member cannot fill another's memory."""
PAD_LEAST = 4_096
_LENGTH_BYTES = 4
_NONCE = bytes(12)
"""Fixed: every key here encrypts one text only."""


class InvalidFile(Exception):
    """A file is not valid; `why` is a clause. is_partial: the rest of it may still arrive."""

    def __init__(self, why: str, *, is_partial: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.is_partial = is_partial


def to_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def from_base64(value: Json) -> bytes:
    """Return the bytes of base64. Raises InvalidFile."""
    try:
        return base64.b64decode(str(value), validate=True)
    except ValueError:
        raise InvalidFile("a key in it is not readable") from None


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def derive_key(secret: bytes, *, salt: bytes, purpose: str) -> bytes:
    """Return 256 bits of HKDF-SHA256."""
    info = f"memory-anchor/sync/{purpose}/1".encode()
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(secret)


# --- the passphrase ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Authority:
    """The keys derived from the sync passphrase: one that vouches for devices, one that wraps folder keys."""

    _signer: Ed25519PrivateKey
    wrapping: bytes

    @property
    def public(self) -> str:
        return to_base64(self._signer.public_key().public_bytes_raw())

    def sign(self, statement: Mapping[str, Json]) -> str:
        return to_base64(self._signer.sign(keys.canonical(statement)))


def derive_authority(passphrase: str, *, salt: bytes, cost: int) -> Authority:
    """Return the keys of a passphrase; its public key shows whether it is the right one."""
    kdf = Scrypt(salt=salt, length=KEY_BYTES, n=cost, r=keys.SCRYPT_BLOCK, p=keys.SCRYPT_PARALLEL)
    secret = kdf.derive(passphrase.encode("utf-8", "surrogatepass"))
    signer = Ed25519PrivateKey.from_private_bytes(derive_key(secret, salt=salt, purpose="authority"))
    return Authority(signer, derive_key(secret, salt=salt, purpose="wrapping"))


# --- folder keys ---------------------------------------------------------------------------------------------------


def new_key() -> bytes:
    return ChaCha20Poly1305.generate_key()


def wrap_for_passphrase(wrapping: bytes, key: bytes, *, name: str) -> str:
    """Return a folder key wrapped for the passphrase."""
    wrapping_key = derive_key(wrapping, salt=name.encode(), purpose="passphrase")
    return to_base64(ChaCha20Poly1305(wrapping_key).encrypt(_NONCE, key, name.encode()))


def unwrap_by_passphrase(wrapping: bytes, sealed: Json, *, name: str) -> bytes:
    """Return a folder key. Raises InvalidFile: another passphrase wrapped it."""
    wrapping_key = derive_key(wrapping, salt=name.encode(), purpose="passphrase")
    return _decrypt(wrapping_key, from_base64(sealed), name.encode())


def wrap_for_device(public: str, key: bytes, *, name: str) -> dict[str, Json]:
    """Return a folder key wrapped for one device (X25519)."""
    try:
        recipient = X25519PublicKey.from_public_bytes(from_base64(public))
    except ValueError:
        raise InvalidFile("a device's key is not readable") from None
    ephemeral = X25519PrivateKey.generate()
    share = ephemeral.public_key().public_bytes_raw()
    wrapping_key = derive_key(ephemeral.exchange(recipient), salt=share + from_base64(public), purpose="recipient")
    sealed = ChaCha20Poly1305(wrapping_key).encrypt(_NONCE, key, name.encode())
    return {"share": to_base64(share), "sealed": to_base64(sealed)}


def unwrap_for_device(private: bytes, stanza: Json, *, name: str) -> bytes:
    """Return a folder key. Raises InvalidFile: it was wrapped for another device, or changed."""
    if not isinstance(stanza, Mapping):
        raise InvalidFile("a wrapped key in it is not readable")
    private_key = X25519PrivateKey.from_private_bytes(private)
    share = from_base64(stanza.get("share"))
    try:
        secret = private_key.exchange(X25519PublicKey.from_public_bytes(share))
    except ValueError:
        raise InvalidFile("a wrapped key in it is not readable") from None
    wrapping_key = derive_key(secret, salt=share + private_key.public_key().public_bytes_raw(), purpose="recipient")
    return _decrypt(wrapping_key, from_base64(stanza.get("sealed")), name.encode())


# --- files -----------------------------------------------------------------------------------------------------------


def seal_file(head: Mapping[str, Json], content: bytes, *, key: bytes, signer: Ed25519PrivateKey) -> bytes:
    """Return a file: its head in plain text, its content encrypted and padded, signed by its author.

    head: has a `salt`, 128 random bits as text, unique to this file.
    """
    packed = zlib.compress(content, 6)
    content = len(packed).to_bytes(_LENGTH_BYTES, "big") + packed
    size = max(PAD_LEAST, 1 << (len(content) - 1).bit_length())
    padded = content.ljust(size, b"\0")
    line = keys.canonical({**head, "size": size + 16}) + b"\n"
    file_key = derive_key(key, salt=hashlib.sha256(line).digest(), purpose="file")
    body = line + ChaCha20Poly1305(file_key).encrypt(_NONCE, padded, line)
    return body + signer.sign(hashlib.sha256(body).digest())


def read_head(file: bytes) -> dict[str, Json]:
    """Return the head of a complete file. Raises InvalidFile: it is not one of ours, or partial."""
    end = file.find(b"\n", 0, HEAD_BYTES_MAX)
    if end < 0:
        raise InvalidFile("it is cut off or no file of a sync folder", is_partial=len(file) < HEAD_BYTES_MAX)
    try:
        head = json.loads(file[:end])
        size = int(head["size"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidFile("it is no file of a sync folder") from None
    if not isinstance(head, dict) or keys.canonical(head) != file[:end]:
        raise InvalidFile("its head was changed")
    missing = size - (len(file) - end - 1 - SIGNATURE_BYTES)
    if missing:
        why = "it is cut off" if missing > 0 else "something was added to it"
        raise InvalidFile(why, is_partial=missing > 0)
    return head


def open_file(file: bytes, *, key: bytes, public: str) -> bytes:
    """Return the content of a file that `public` signed. Raises InvalidFile."""
    end = file.find(b"\n", 0, HEAD_BYTES_MAX) + 1
    body, signature = file[:-SIGNATURE_BYTES], file[-SIGNATURE_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(from_base64(public)).verify(signature, hashlib.sha256(body).digest())
    except (InvalidSignature, ValueError):
        raise InvalidFile("its author's signature does not fit") from None
    file_key = derive_key(key, salt=hashlib.sha256(file[:end]).digest(), purpose="file")
    padded = _decrypt(file_key, body[end:], file[:end])
    length = int.from_bytes(padded[:_LENGTH_BYTES], "big")
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(padded[_LENGTH_BYTES : _LENGTH_BYTES + length], CONTENT_BYTES_MAX)
    except zlib.error:
        raise InvalidFile("its content is not readable") from None
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise InvalidFile(f"its content is over {CONTENT_BYTES_MAX} bytes, or cut off")
    return content


def _decrypt(key: bytes, sealed: bytes, associated_data: bytes) -> bytes:
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, associated_data)
    except (InvalidTag, ValueError):
        raise InvalidFile("it was sealed with another key or changed") from None


# --- keys of one device ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceKeys:
    """The private keys of one device: one decrypts, one signs."""

    opening: bytes
    signing: bytes

    @classmethod
    def generate(cls) -> DeviceKeys:
        return cls(X25519PrivateKey.generate().private_bytes_raw(), Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def signer(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.signing)

    @property
    def public_keys(self) -> tuple[str, str]:
        """Return the public keys for its card: X25519, Ed25519."""
        recipient = X25519PrivateKey.from_private_bytes(self.opening).public_key()
        return to_base64(recipient.public_bytes_raw()), to_base64(self.signer.public_key().public_bytes_raw())

"""Electronic signatures: Ed25519 keys, one per person, locked by a passphrase that is requested for every signature.

The library is `cryptography`; private keys are encrypted PKCS #8, public keys are SubjectPublicKeyInfo, both as PEM, so
that openssl can read and check them, too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pipeline.ledger.chain import canonical
from training.foundation.errors import BadRecipeError, DiskFullError, UnreadableError
from training.foundation.publish import explain_unwritable, replace_file
from training.foundation.reading import read_regular
from training.foundation.words.counts import counted

PUBLIC_SUFFIX = ".pub"
MAX_KEY_BYTES = 2**16
MIN_PASSPHRASE = 12
"""Characters."""


@dataclass(frozen=True)
class Signature:
    """Signature as it is kept beside the signed content."""

    key_id: str
    signature: str
    """Hexadecimal."""
    public_key: str
    """The raw public key, hexadecimal: anyone who has the signature can check it. Only those who were given the key by
    its owner know whose it is."""

    def holds(self, statement: Any) -> bool:
        """Whether it is this key's signature on this statement."""
        try:
            key = public_key_of(Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.public_key)))
        except ValueError:
            return False
        return key.holds(statement, self)


@dataclass(frozen=True)
class PublicKey:
    """Public key that proves a person's signatures."""

    key_id: str
    """The first 16 hexadecimal digits of the raw key's SHA-256."""
    key: Ed25519PublicKey

    def holds(self, statement: Any, signature: Signature) -> bool:
        """Whether this key has signed this statement."""
        if signature.key_id != self.key_id:
            return False
        try:
            self.key.verify(bytes.fromhex(signature.signature), canonical(statement).encode())
        except (InvalidSignature, ValueError):
            return False
        return True


class SigningKey:
    """A person's private key, unlocked by the passphrase for the duration of one signature."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @property
    def public(self) -> PublicKey:
        return public_key_of(self._key.public_key())

    def sign(self, statement: Any) -> Signature:
        """Sign a statement's canonical JSON."""
        signed = self._key.sign(canonical(statement).encode())
        return Signature(self.public.key_id, signed.hex(), self.public.key.public_bytes_raw().hex())


def new_key(path: Path, passphrase: str) -> PublicKey:
    """Create a private key at `path`, and its public half beside it.

    Raises:
        BadRecipeError: a short passphrase. DiskFullError: a file already exists, or it cannot be written.
    """
    if len(passphrase) < MIN_PASSPHRASE:
        length = counted(len(passphrase), "character")
        raise BadRecipeError(f"the passphrase has {length}; use at least {MIN_PASSPHRASE}.")
    public_path = path.with_name(path.name + PUBLIC_SUFFIX)
    for target in (path, public_path):
        if target.exists():
            raise DiskFullError(f"{target}: already exists, and may be somebody's key. Choose another name.")
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(passphrase.encode()),
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with explain_unwritable(path):
        replace_file(path, private, mode=0o600)
        replace_file(public_path, public, mode=0o644)
    return public_key_of(key.public_key())


def open_key(path: Path, passphrase: str) -> SigningKey:
    """Open a private key. Raises UnreadableError: missing, not an Ed25519 key, or the wrong passphrase."""
    try:
        key = serialization.load_pem_private_key(_read(path), passphrase.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UnreadableError(f"{path}: cannot be opened: not a private key, or the wrong passphrase.") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UnreadableError(f"{path}: is another kind of key; create one with `gemslide study key`.")
    return SigningKey(key)


def read_public_key(path: Path) -> PublicKey:
    """Read a public key. Raises UnreadableError: missing, or not an Ed25519 public key."""
    try:
        key = serialization.load_pem_public_key(_read(path))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnreadableError(f"{path}: is not a public key (PEM).") from error
    if not isinstance(key, Ed25519PublicKey):
        raise UnreadableError(f"{path}: is another kind of public key; Ed25519 is needed.")
    return public_key_of(key)


def public_key_of(key: Ed25519PublicKey) -> PublicKey:
    return PublicKey(hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16], key)


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, max_bytes=MAX_KEY_BYTES)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror or error}.") from error

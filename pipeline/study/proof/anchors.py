"""Anchors: a log's head at some time, signed, and kept outside the database.

Anyone who can rewrite the database can rewrite the whole log with all its hashes, but not an anchor, which others have
signed and keep elsewhere. The newest anchor proves everything up to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from pipeline.errors import DamagedStoreError
from pipeline.files import write_text_atomic
from pipeline.ledger.chain import Change, append, utc_now
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.rows import ANCHOR_EXPORTED
from pipeline.study.proof.permissions import check_may_sign
from pipeline.study.proof.signing import PublicKey, Signature, SigningKey
from pipeline.study.proof.verify import Verified as Verified
from pipeline.study.proof.verify import verified_head, verify_ledger
from training.foundation.errors import UnreadableError
from training.foundation.reading import read_json_file
from training.foundation.settings import Section

MAX_ANCHOR_BYTES = 2**20
ANCHORS_DIR = "anchors"


class _Signed(Section):
    key_id: str = Field(pattern=r"^[0-9a-f]{16}$")
    signature: str = Field(pattern=r"^[0-9a-f]{128}$")
    public_key: str = Field(pattern=r"^[0-9a-f]{64}$")


class _AnchorFile(Section):
    study_id: str
    seq: int = Field(ge=1)
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    utc: str
    signatures: tuple[_Signed, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Anchor:
    """Head of a log at a certain time, and the signatures on it."""

    study_id: str
    seq: int
    hash: str
    utc: str
    signatures: tuple[Signature, ...]

    @property
    def statement(self) -> dict[str, Any]:
        """Content that is signed."""
        return {"study_id": self.study_id, "seq": self.seq, "hash": self.hash, "utc": self.utc}


def make_anchor(ledger: Ledger, study_id: str, key: SigningKey, folder: Path, *, actor: str) -> Path:
    """Verify the log, sign its head, write the anchor, and log that it was made.

    Raises:
        DamagedStoreError: the log does not verify. BadManifestError: no such study. DiskFullError: cannot be written.
    """
    check_may_sign(ledger, study_id, key, "anchor")
    seq, head = verified_head(ledger.database, study_id)
    unsigned = Anchor(study_id, seq, head, utc_now(), ())
    anchor = replace(unsigned, signatures=(key.sign(unsigned.statement),))
    path = folder / f"{study_id}-{anchor.seq:09d}.json"
    _write(path, anchor)
    details = {"seq": anchor.seq, "hash": anchor.hash, "key_id": key.public.key_id}
    with ledger.database.write() as connection:
        append(connection, study_id, [Change(actor, ANCHOR_EXPORTED, "anchor", details=details)])
    return path


def countersign(ledger: Ledger, path: Path, key: SigningKey) -> None:
    """Add a second person's signature to an anchor, if the log still agrees with it.

    Raises:
        UnreadableError: not an anchor. DamagedStoreError: the log does not verify against it.
    """
    anchor = read_anchor(path)
    check_may_sign(ledger, anchor.study_id, key, "anchor")
    verified = verify_ledger(ledger.database, anchor.study_id, {anchor.seq: anchor.hash})
    if verified.findings:
        raise DamagedStoreError(f"{path}: the log does not verify against it: {verified.findings[0]}. Not signed.")
    others = tuple(signature for signature in anchor.signatures if signature.key_id != key.public.key_id)
    _write(path, replace(anchor, signatures=(*others, key.sign(anchor.statement))))


def read_anchor(path: Path) -> Anchor:
    """Read an anchor. Raises UnreadableError: missing, or not an anchor."""
    try:
        read = _AnchorFile.model_validate(read_json_file(path, max_bytes=MAX_ANCHOR_BYTES))
    except (OSError, ValueError, ValidationError) as error:
        raise UnreadableError(f"{path}: is not an anchor of a study's log ({type(error).__name__}).") from error
    signatures = tuple(Signature(signed.key_id, signed.signature, signed.public_key) for signed in read.signatures)
    return Anchor(read.study_id, read.seq, read.hash, read.utc, signatures)


def trusted_hashes(study_id: str, paths: Sequence[Path], keys: Sequence[PublicKey]) -> tuple[dict[int, str], list[str]]:
    """The hashes that anchors vouch for, and problems with anchors.

    Args:
        keys: of the people who are trusted; an anchor counts if one of them has signed it, and no signature of
            theirs on it is false.
    """
    hashes: dict[int, str] = {}
    findings = []
    for path in paths:
        anchor = read_anchor(path)
        if anchor.study_id != study_id:
            findings.append(f"{path.name}: is an anchor of study {anchor.study_id}")
        elif finding := _distrust(anchor, keys):
            findings.append(f"{path.name}: {finding}")
        else:
            hashes[anchor.seq] = anchor.hash
    return hashes, findings


def _distrust(anchor: Anchor, keys: Sequence[PublicKey]) -> str | None:
    by_id: Mapping[str, PublicKey] = {key.key_id: key for key in keys}
    known = [signature for signature in anchor.signatures if signature.key_id in by_id]
    if not known:
        return "is not signed by any of the given keys"
    false = [signature.key_id for signature in known if not by_id[signature.key_id].holds(anchor.statement, signature)]
    return f"the signature of {', '.join(false)} does not match this content: it was changed" if false else None


def _write(path: Path, anchor: Anchor) -> None:
    content = {**anchor.statement, "signatures": [asdict(signature) for signature in anchor.signatures]}
    write_text_atomic(path, json.dumps(content, indent=1) + "\n")

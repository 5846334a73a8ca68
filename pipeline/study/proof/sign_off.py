"""Sign-off: a person's signature on a report, bound to its bytes, its meaning and the state of the log.

It is in a file beside the report and, in full, in the log: each reveals a change to the other (`signatures.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from pipeline.errors import BadManifestError, ChangedSourceError
from pipeline.files import sha256_of, write_text_atomic
from pipeline.ledger.chain import Change, append, utc_now
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.rows import SIGNED
from pipeline.study.proof.made import first_made
from pipeline.study.proof.permissions import check_may_sign
from pipeline.study.proof.signing import Signature, SigningKey
from pipeline.study.proof.verify import verified_head
from training.foundation.errors import UnreadableError
from training.foundation.reading import read_json_file
from training.foundation.settings import Section
from training.foundation.words.class_names import check_printable

Meaning = Literal["authored", "reviewed", "approved"]
SIGNATURES_SUFFIX = ".signatures.json"
MAX_BYTES = 2**20


class _Entry(Section):
    study_id: str
    report_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    meaning: Meaning
    name: str
    utc: str
    seq: int = Field(ge=0, lt=2**63)
    hash: str
    key_id: str = Field(pattern=r"^[0-9a-f]{16}$")
    signature: str = Field(pattern=r"^[0-9a-f]{128}$")
    public_key: str = Field(pattern=r"^[0-9a-f]{64}$")


@dataclass(frozen=True)
class SignedReport:
    """One signature on a report."""

    statement: dict[str, Any]
    """Signed content: the report's SHA-256, the study, the meaning, the name, the time, the log's head."""
    signature: Signature

    @property
    def as_stored(self) -> dict[str, Any]:
        """As stored in a file and in the log."""
        return {**self.statement, **asdict(self.signature)}


class Signing(NamedTuple):
    """A person's name, and the meaning of their signature."""

    name: str
    meaning: Meaning


def sign_report(
    ledger: Ledger,
    study_id: str,
    report: Path,
    key: SigningKey,
    signing: Signing,
    *,
    actor: str,
    root: Path | None = None,
) -> SignedReport:
    """Verify the log, sign the report, and log that; the signature is in a file beside the report.

    Args:
        root: the project's folder: the log records the report's location in it, so that a missing report is noticed.

    Raises:
        UnreadableError: no such report. DamagedStoreError: the log does not verify. BadManifestError: no such
            study, no entry of its log records the report, or the protocol does not let this key sign.
            ChangedSourceError: others have signed different bytes.
    """
    meaning, name = signing.meaning, check_printable(signing.name)
    if not report.is_file():
        raise UnreadableError(f"{report}: no such report. `gemslide study report` writes it.")
    check_may_sign(ledger, study_id, key, meaning, name)
    seq, head = verified_head(ledger.database, study_id)
    statement: dict[str, Any] = {
        "study_id": study_id,
        "report_sha256": sha256_of(report),
        "meaning": meaning,
        "name": name,
        "utc": utc_now(),
        "seq": seq,
        "hash": head,
    }
    signed = SignedReport(statement, key.sign(statement))
    details = {**signed.as_stored, "report": place_of(report, root)}
    with ledger.database.write() as connection:
        append(connection, study_id, [Change(actor, SIGNED, "report", meaning, details=details)])
        # In the transaction: two who sign at once wait for one another, and an unwritable file leaves no entry.
        earlier = read_signatures(report)
        _check_same_bytes(report, earlier, str(statement["report_sha256"]))
        if statement["report_sha256"] not in first_made(connection, study_id):
            raise BadManifestError(_NOT_MADE.format(report, study_id, statement["report_sha256"]))
        content = [earlier_signed.as_stored for earlier_signed in (*earlier, signed)]
        write_text_atomic(signatures_file(report), json.dumps(content, indent=1) + "\n")
    return signed


_NOT_MADE = (
    "{}: the log of study {} records no report with this file (SHA-256 {:.12}…). Sign a report as `gemslide study "
    "report` wrote it. Nothing was signed."
)


def _check_same_bytes(report: Path, earlier: list[SignedReport], sha256: str) -> None:
    for signed in earlier:
        if signed.statement["report_sha256"] != sha256:
            raise ChangedSourceError(
                f"{report}: is not the report that {signed.statement['name']} signed. Restore that one, or sign the "
                "new one in a separate folder. Nothing was signed."
            )


def place_of(path: Path, root: Path | None) -> str:
    """Path of a file of the project, as the log may state it; for other files, only the name."""
    resolved = path.resolve()
    if root is not None and resolved.is_relative_to(root.resolve()):
        return resolved.relative_to(root.resolve()).as_posix()
    return f"{OUTSIDE}{path.name}"


OUTSIDE = "elsewhere: "
"""Prefix of the location of a file outside the project."""


def signatures_file(report: Path) -> Path:
    """The file of signatures beside a report."""
    return report.with_name(report.name + SIGNATURES_SUFFIX)


def read_signatures(report: Path) -> list[SignedReport]:
    """Signatures beside a report. Raises UnreadableError: the file is damaged."""
    path = signatures_file(report)
    if not path.exists():
        return []
    try:
        content = read_json_file(path, max_bytes=MAX_BYTES)
        if not isinstance(content, list):
            raise TypeError
        return [signed_from(stored) for stored in content]
    except (OSError, ValueError, TypeError) as error:
        raise UnreadableError(f"{path}: holds no signatures ({type(error).__name__}).") from error


def signed_from(stored: Mapping[str, Any]) -> SignedReport:
    """A signature from its `as_stored` form. Raises ValueError: something else."""
    try:
        entry = _Entry.model_validate(stored)
    except ValidationError as error:
        raise ValueError("no signature") from error
    statement = entry.model_dump(exclude={"key_id", "signature", "public_key"})
    return SignedReport(statement, Signature(entry.key_id, entry.signature, entry.public_key))

"""Sign-off: a person's signature on a report, bound to its bytes, its meaning and the state of the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from pipeline.errors import UnreadableError
from pipeline.files import sha256_of, write_text_atomic
from pipeline.study.chain import Change, append, utc_now
from pipeline.study.ledger import Ledger
from pipeline.study.permissions import check_may_sign
from pipeline.study.signing import PublicKey, Signature, SigningKey
from pipeline.study.verify import verified_head
from training.foundation.class_names import check_printable
from training.foundation.reading import read_json_file
from training.foundation.settings import Section

Meaning = Literal["authored", "reviewed", "approved"]
SIGNATURES_SUFFIX = ".signatures.json"
MAX_BYTES = 2**20


class _Entry(Section):
    study_id: str
    report_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    meaning: Meaning
    name: str
    utc: str
    seq: int
    hash: str
    key_id: str = Field(pattern=r"^[0-9a-f]{16}$")
    signature: str = Field(pattern=r"^[0-9a-f]{128}$")


@dataclass(frozen=True)
class SignedReport:
    """One signature on a report."""

    statement: dict[str, Any]
    """What was signed: the report's SHA-256, the study, the meaning, the name, the time, the log's head."""
    signature: Signature


def sign_report(
    ledger: Ledger, study_id: str, report: Path, key: SigningKey, *, meaning: Meaning, name: str, actor: str
) -> SignedReport:
    """Verify the log, sign the report, and log that; the signature stands in a file beside the report.

    Raises:
        UnreadableError: no such report. DamagedStoreError: the log does not verify. BadManifestError: no such
            study, or the protocol does not let this key sign.
    """
    check_printable(name)
    if not report.is_file():
        raise UnreadableError(f"{report}: no such report. `gemslide study report` writes it.")
    check_may_sign(ledger, study_id, key, meaning, name)
    seq, head = verified_head(ledger.database, study_id)
    statement = {
        "study_id": study_id,
        "report_sha256": sha256_of(report),
        "meaning": meaning,
        "name": name,
        "utc": utc_now(),
        "seq": seq,
        "hash": head,
    }
    signed = SignedReport(statement, key.sign(statement))
    all_signed = [*read_signatures(report), signed]
    details = {**statement, "key_id": signed.signature.key_id}
    with ledger.database.write() as connection:
        append(connection, study_id, [Change(actor, "report signed", "report", meaning, details=details)])
    content = [{**each.statement, **asdict(each.signature)} for each in all_signed]
    write_text_atomic(report.with_name(report.name + SIGNATURES_SUFFIX), json.dumps(content, indent=1) + "\n")
    return signed


def read_signatures(report: Path) -> list[SignedReport]:
    """Signatures beside a report. Raises UnreadableError: the file is damaged."""
    path = report.with_name(report.name + SIGNATURES_SUFFIX)
    if not path.exists():
        return []
    try:
        content = read_json_file(path, max_bytes=MAX_BYTES)
        entries = [_Entry.model_validate(each) for each in content]
    except (OSError, ValueError, TypeError, ValidationError) as error:
        raise UnreadableError(f"{path}: holds no signatures ({type(error).__name__}).") from error
    return [
        SignedReport(each.model_dump(exclude={"key_id", "signature"}), Signature(each.key_id, each.signature))
        for each in entries
    ]


def find_false_signatures(report: Path, keys: Sequence[PublicKey]) -> list[str]:
    """What is wrong with a report's signatures, by the keys of people who are trusted."""
    by_id = {key.key_id: key for key in keys}
    now = sha256_of(report)
    findings = []
    for signed in read_signatures(report):
        name, key = signed.statement["name"], by_id.get(signed.signature.key_id)
        if key is None:
            findings.append(f"{report.name}: the signature of {name} is by a key that was not given")
        elif not key.holds(signed.statement, signed.signature):
            findings.append(f"{report.name}: the signature of {name} is false")
        elif signed.statement["report_sha256"] != now:
            findings.append(f"{report.name}: was changed after {name} had signed it")
    return findings

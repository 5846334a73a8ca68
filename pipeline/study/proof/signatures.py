"""Check that the signatures on a study's reports agree with the log and the reports, and are by people who may sign.

A signature names the log's last entry and its hash. So each one at hand, in the log or beside a report, wherever the
report is, reveals a log that was rewritten since, as an anchor does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from pipeline.files import sha256_of
from pipeline.ledger.chain import canonical
from pipeline.ledger.database import Database
from pipeline.ledger.ledger import found
from pipeline.ledger.rows import AMENDED, SIGNED
from pipeline.ledger.tables import audit
from pipeline.study.proof.made import first_made
from pipeline.study.proof.permissions import may_sign
from pipeline.study.proof.sign_off import (
    OUTSIDE,
    SIGNATURES_SUFFIX,
    SignedReport,
    read_signatures,
    signatures_file,
    signed_from,
)
from pipeline.study.proof.signing import PublicKey
from training.foundation.errors import UnreadableError
from training.foundation.reading import parse_json

_Signers = list[dict[str, Any]]


def find_false_signatures(
    database: Database,
    study_id: str,
    root: Path,
    folder: Path,
    keys: Sequence[PublicKey] = (),
    elsewhere: Sequence[Path] = (),
) -> list[str]:
    """Find problems with a study's signatures, the reports that they are on, and the log that they name.

    Args:
        root, folder: of the project, and of the study in it.
        keys: of the people who are trusted; if any are given, signatures by others are findings.
        elsewhere: signed reports, or files of signatures, outside the study's folder.

    Raises:
        BadManifestError: no such study. UnreadableError: one of `elsewhere` is missing.
    """
    with database.read() as connection:
        log = _Log.read(connection, study_id)
        files = _files(root, folder, log, elsewhere)
        signed = [(path, signature) for path in files for signature in _readable(path)]
        hashes = _hashes(connection, study_id, {signature.statement["seq"] for _, signature in (*signed, *log.signed)})
        made = first_made(connection, study_id)
    check = _Check(study_id, log, hashes, made, {key.key_id: key for key in keys})
    findings = [f"{_shown(path, root)}: {what}" for path in files if (what := _fault_of_file(path))]
    seen: Counter[str] = Counter()
    for path, signature in signed:
        where = _shown(path, root)
        findings += [f"{where}: {what}" for what in check.check_file(path, signature)]
        findings += [f"{where}: {what}" for what in check.check_signature(signature)]
        if _is_on(path, signature):
            seen[canonical(signature.as_stored)] += 1
    for where, signature in log.signed:
        findings += [f"the log: {what}" for what in check.check_signature(signature)]
        if not seen[canonical(signature.as_stored)]:
            findings.append(_gone(where, signature))
    return list(dict.fromkeys(findings))


def _gone(where: str, signed: SignedReport) -> str:
    name, meaning, utc = (signed.statement[key] for key in ("name", "meaning", "utc"))
    again = " Name it with --report." if where.startswith(OUTSIDE) else ""
    return (
        f"{where}: {name} signed it ({meaning}, {utc[:19]}), but this report and its file of signatures are "
        f"missing.{again}"
    )


@dataclass(frozen=True)
class _Log:
    """Signatures in the log, and the people who may sign under the protocol."""

    signed: list[tuple[str, SignedReport]]
    """Each with the report's location."""
    signers: _Signers
    """Those of the present protocol."""
    earlier: list[tuple[int, _Signers]]
    """Amendments of the signers, latest first: number of the entry, and the signers before it."""

    @classmethod
    def read(cls, connection: Connection, study_id: str) -> _Log:
        now = _signers(_details(found(connection, study_id).protocol))
        chosen = select(audit.c.seq, audit.c.action, audit.c.details).where(
            audit.c.study_id == study_id, audit.c.action.in_((SIGNED, AMENDED))
        )
        log = cls([], now, [])
        for seq, action, text in connection.execute(chosen.order_by(audit.c.seq.desc())):
            details = _details(text)
            if action == AMENDED:
                if isinstance(earlier := details.get("earlier"), dict) and "signers" in earlier:
                    log.earlier.append((seq, _signers(earlier)))
                continue
            try:
                log.signed.append((str(details.pop("report", OUTSIDE)), signed_from(details)))
            except ValueError:
                continue  # a changed entry, which its hash shows
        return log

    def signers_at(self, seq: int) -> _Signers:
        """Signers that the protocol allowed when the log ended with entry `seq`."""
        signers = self.signers
        for amended, before in self.earlier:
            if amended > seq:
                signers = before
        return signers


@dataclass(frozen=True)
class _Check:
    study_id: str
    log: _Log
    hashes: Mapping[int, str]
    made: Mapping[str, int]
    """The number of the first entry that records a file of a report, by its SHA-256."""
    keys: Mapping[str, PublicKey]

    def check_file(self, path: Path, signed: SignedReport) -> Iterator[str]:
        """Report problems with a signature beside a report."""
        name = signed.statement["name"]
        if not path.is_file():
            yield f"the report that {name} signed is missing"
        elif sha256_of(path) != signed.statement["report_sha256"]:
            yield f"was changed after {name} had signed it"
        if signed not in [logged for _, logged in self.log.signed]:
            yield f"this signature of {name} is not in the log"

    def check_signature(self, signed: SignedReport) -> Iterator[str]:
        """Report problems with a signature, wherever it is."""
        statement, name = signed.statement, signed.statement["name"]
        key = self.keys.get(signed.signature.key_id)
        if not signed.signature.holds(statement) or (key is not None and not key.holds(statement, signed.signature)):
            yield f"the signature of {name} is false"
        if not self.made.get(statement["report_sha256"], statement["seq"] + 1) <= statement["seq"]:
            yield (
                f"the log recorded no report with the file that {name} signed (SHA-256 "
                f"{statement['report_sha256']:.12}…) when it was signed"
            )
        if self.keys and key is None:
            yield f"the signature of {name} is by a key that was not given"
        if statement["study_id"] != self.study_id:
            yield f"the signature of {name} is on a report of study {statement['study_id']}"
        elif self.hashes.get(statement["seq"]) != statement["hash"]:
            yield f"entry {statement['seq']} of the log is not the one that {name} signed: the log was rewritten or cut"
        elif not may_sign(self.log.signers_at(statement["seq"]), signed.signature.key_id, statement["meaning"], name):
            yield f"the protocol did not let {name} sign ({statement['meaning']}) with key {signed.signature.key_id}"


def _files(root: Path, folder: Path, log: _Log, elsewhere: Sequence[Path]) -> list[Path]:
    """Reports with signatures: those in the study's folder, those that the log names, and those given."""
    beside = [_report_of(path) for path in sorted(folder.glob(f"**/[!.]*{SIGNATURES_SUFFIX}"))]
    logged = [root / where for where, _ in log.signed if not where.startswith(OUTSIDE)]
    for path in elsewhere:
        if not path.exists():
            raise UnreadableError(f"{path}: no such report.")
    given = [_report_of(path) for path in elsewhere]
    return list({path.resolve(): path for path in (*beside, *logged, *given)}.values())


def _report_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(SIGNATURES_SUFFIX))


def _readable(path: Path) -> list[SignedReport]:
    try:
        return read_signatures(path)
    except UnreadableError:
        return []


def _fault_of_file(report: Path) -> str | None:
    """What is wrong with the file of signatures beside a report; None if nothing is, or there is none."""
    try:
        is_empty = not read_signatures(report) and signatures_file(report).exists()
    except UnreadableError:
        return "holds no signatures that can be read"
    return "its file of signatures is empty: delete it, or restore it from a backup" if is_empty else None


def _is_on(path: Path, signed: SignedReport) -> bool:
    return path.is_file() and sha256_of(path) == signed.statement["report_sha256"]


def _shown(path: Path, root: Path) -> str:
    resolved = path.resolve()
    return resolved.relative_to(root.resolve()).as_posix() if resolved.is_relative_to(root.resolve()) else path.name


def _hashes(connection: Connection, study_id: str, numbers: set[int]) -> dict[int, str]:
    chosen = select(audit.c.seq, audit.c.hash).where(audit.c.study_id == study_id, audit.c.seq.in_(numbers))
    return {row.seq: row.hash for row in connection.execute(chosen)}


def _signers(protocol: Mapping[str, Any]) -> _Signers:
    """A protocol's signers; none in a changed protocol, which its hash shows."""
    names = ("key_id", "name", "may")
    listed = protocol.get("signers")
    is_list = isinstance(listed, list) and all(isinstance(each, dict) and set(names) <= set(each) for each in listed)
    return listed or [] if is_list else []


def _details(text: str | None) -> dict[str, Any]:
    try:
        details = parse_json(text or "{}")
    except ValueError:
        return {}
    return details if isinstance(details, dict) else {}

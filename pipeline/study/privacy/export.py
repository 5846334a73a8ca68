"""An export of a study for others: tables and results under pseudonyms, released only if the scan finds no name."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.errors import BadManifestError, ChangedSourceError, LeakageError
from pipeline.files import new_folder, sha256_of
from pipeline.ledger.chain import Change, append, digest
from pipeline.ledger.rows import STUDY_EXPORTED, STUDY_SUBJECT
from pipeline.study.privacy.keyed import PseudonymKey
from pipeline.study.privacy.keyed import open_pseudonym_key as open_pseudonym_key
from pipeline.study.privacy.names import is_searchable
from pipeline.study.privacy.scan import find_identifiers
from pipeline.study.proof.verify import check_log
from pipeline.study.report.facts import Facts, gather, text_of
from pipeline.study.work.study import Study
from pipeline.units import RESEARCH_USE
from training.foundation.words.counts import counted

MAX_SHOWN = 5
_PSEUDONYMOUS = {"slide_id": "slide", "patient": "patient", "site": "site", "reader": "reader"}
"""Kind of pseudonym of each column that names somebody."""
_TABLES: Mapping[str, tuple[str, ...]] = {
    "slides": ("slide_id", "patient", "site", "scanner", "label", "state", "code"),
    "tasks": ("slide_id", "stage", "state", "attempts", "seconds", "code", "measures"),
    "readings": ("reader", "session", "position", "slide_id", "arm", "state", "seconds"),
}
"""Columns that are exported. Messages, reasons and paths are not: people write names into them."""
_MEASURES = ("classes", "scores", "answers", "verdict", "cells", "tiles", "dims")
"""Measures of a stage that are exported."""


@dataclass(frozen=True)
class Exported:
    """Export that passed the scan."""

    folder: Path
    files: int
    unsearchable: int
    """Names that are too short to be searched for, such as a site "A"; they are pseudonymised in all tables."""


def export_study(study: Study, out: Path, key: PseudonymKey, *, results: Sequence[str], actor: str) -> Exported:
    """Write an export, scan it, and log it. If the scan finds anything, nothing is left.

    Args:
        results: names of files in each slide's results to export, such as "predictions.csv".

    Raises:
        BadManifestError: `out` already exists, or a slide has no such result. DamagedStoreError: the log does not
            verify. ChangedSourceError: a result is not the one that the ledger has. LeakageError: the scan found a
            name, or something that it cannot judge. DiskFullError: cannot be written.
    """
    if out.exists():
        raise BadManifestError(f"{out}: already exists; an export is never overwritten. Choose another --out.")
    check_log(study.ledger.database, study.study_id, "Nothing is exported")
    facts = gather(study)
    names = _names(facts)
    with new_folder(out) as unfinished:
        _write_tables(unfinished, facts, key)
        _copy_results(unfinished, facts, key, results)
        findings = find_identifiers(unfinished, names)
        if findings:
            raise LeakageError(
                f"{out}: not written: {counted(len(findings), 'finding')}: {'; '.join(findings[:MAX_SHOWN])}. Leave "
                "such files out of --result, or recreate them without names."
            )
    hashes = {path.relative_to(out).as_posix(): sha256_of(path) for path in sorted(out.rglob("*")) if path.is_file()}
    details = {"files": len(hashes), "sha256": digest(hashes), "key_id": key.key_id}
    with study.ledger.database.write() as connection:
        append(connection, study.study_id, [Change(actor, STUDY_EXPORTED, STUDY_SUBJECT, details=details)])
    return Exported(out, len(hashes), sum(not is_searchable(name) for name in names))


def _names(facts: Facts) -> set[str]:
    """Everything that names a slide, a patient, a site, a reader or a file."""
    entries = facts.cohort.entries
    columns = [facts.slides[name] for name in ("slide_id", "patient", "site")] + [facts.readings["reader"]]
    names = {text for column in columns for cell in column if (text := text_of(cell))}
    for entry in entries:
        names |= {entry.path, Path(entry.path).name, Path(entry.path).stem}
        names |= {Path(entry.annotations).name} if entry.annotations else set()
    return names - {""}


def _write_tables(folder: Path, facts: Facts, key: PseudonymKey) -> None:
    frames = {"slides": facts.slides, "tasks": facts.tasks, "readings": facts.readings}
    for name, columns in _TABLES.items():
        _write_csv(folder / f"{name}.csv", columns, _rows(frames[name], columns, key))
    _write_answers(folder, facts, key)
    row = facts.row
    metadata = {
        "version": row.version,
        "protocol_sha256": row.protocol_sha256,
        "models": [model.model_dump() for model in facts.protocol.models],
        "encoders": [encoder.model_dump() for encoder in facts.protocol.encoders],
        "analysis": facts.protocol.analysis.model_dump(mode="json"),
        "log": {"entries": facts.head[0], "head": facts.head[1]},
        "pseudonym_key_id": key.key_id,
        "research_use": RESEARCH_USE,
    }
    (folder / "study.json").write_text(json.dumps(metadata, indent=1) + "\n", encoding="utf-8")


def _rows(frame: pd.DataFrame, columns: Sequence[str], key: PseudonymKey) -> Iterable[tuple[object, ...]]:
    cells = [[_cell(column, value, key) for value in frame[column]] for column in columns]
    return zip(*cells, strict=True)


def _cell(column: str, value: Any, key: PseudonymKey) -> object:
    if isinstance(value, dict):
        return json.dumps({name: measure for name, measure in value.items() if name in _MEASURES})
    if isinstance(value, float) and value != value:  # NaN: pandas' None
        return None
    kind = _PSEUDONYMOUS.get(column)
    return key.pseudonym(kind, value) if kind and isinstance(value, str) else value


def _write_answers(folder: Path, facts: Facts, key: PseudonymKey) -> None:
    reading = facts.protocol.reading
    kept = {question.name for question in reading.questions if question.kind != "text"} if reading else set()
    answers = facts.answers[facts.answers["question"].isin(kept)]
    columns = ("reader", "session", "position", "question", "value")
    _write_csv(folder / "answers.csv", columns, _rows(answers, columns, key))


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[tuple[object, ...]]) -> None:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    path.write_text(text.getvalue(), encoding="utf-8")


def _copy_results(folder: Path, facts: Facts, key: PseudonymKey, results: Sequence[str]) -> None:
    project, tasks = facts.study.project, facts.tasks
    hashes = {
        (slide_id, stage): (measures or {}).get("files", {})
        for slide_id, stage, measures in zip(tasks["slide_id"], tasks["stage"], tasks["measures"], strict=True)
    }
    for slide_id in facts.slides.index[facts.slides["state"] == "done"] if results else ():
        for model in facts.protocol.models:
            target = folder / model.id / key.pseudonym("slide", slide_id)
            for name in results:
                source = project.result_dir(slide_id, model.id) / name
                if Path(name).name != name or source.is_symlink() or not source.is_file():
                    raise BadManifestError(f"{source}: there is no such result, so it cannot be exported.")
                _check_own(source, hashes.get((slide_id, model.task), {}).get(name))
                target.mkdir(parents=True, exist_ok=True)
                _copy_result(source, target / name, slide_id, target.name)


def _check_own(source: Path, sha256: str | None) -> None:
    """Raise ChangedSourceError for a file that the study did not write, or that was changed since."""
    if sha256 is None:
        raise ChangedSourceError(
            f"{source}: the ledger has no hash of it: the study did not write it, or it contains the time it was made. "
            "Leave it out of --result."
        )
    if sha256_of(source) != sha256:
        raise ChangedSourceError(
            f"{source}: is not what the study wrote; it was changed or replaced. Restore it from a backup."
        )


def _copy_result(source: Path, target: Path, slide_id: str, pseudonym: str) -> None:
    """Copy a result; a table gets the pseudonym where it names its own slide. The scan finds every other name."""
    if source.suffix != ".csv":
        shutil.copyfile(source, target)
        return
    with source.open(encoding="utf-8", newline="") as read, target.open("w", encoding="utf-8", newline="") as written:
        rows, writer = csv.reader(read), csv.writer(written, lineterminator="\n")
        try:
            header = next(rows, [])
            writer.writerow(header)
            named = [index for index, column in enumerate(header) if column == "slide_id"]
            for row in rows:
                is_own = [index for index in named if row[index : index + 1] == [slide_id]]
                writer.writerow([pseudonym if index in is_own else cell for index, cell in enumerate(row)])
        except (UnicodeDecodeError, csv.Error) as error:
            raise LeakageError(f"{source}: cannot be read as a table ({error}), so it cannot be exported.") from error

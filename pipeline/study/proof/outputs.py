"""Check of a study's outputs on disk against the ledger's hashes: stores, quality control, features, predictions,
results, and the protocol, the models, the encoders and the manifest that they were made from.

All files of a store must exist with their lengths, and all but the pixels are read; of the pixels, the smallest files,
up to `PIXEL_BYTES` per slide (stages/ingest.py), or all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from sqlalchemy import Row, select

from pipeline.cohort.manifest import Cohort
from pipeline.errors import DamagedStoreError
from pipeline.ledger.chain import canonical
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.tables import task
from pipeline.project import Project
from pipeline.study.proof.reports import find_changed_reports as find_changed_reports
from pipeline.study.proof.signatures import find_false_signatures as find_false_signatures
from pipeline.study.protocol import (
    PROTOCOL_FILE,
    Protocol,
    find_models,
    frozen_protocol,
    load_protocol,
    load_study_cohort,
    study_dir,
)
from pipeline.study.stages.encoders import find_encoders
from pipeline.study.stages.registry import kind_of, output_of, output_sha256, results_of_stage
from training.foundation.errors import BadRecipeError, GemslideError

_THREADS = 4


def find_changed_outputs(project: Project, ledger: Ledger, study_id: str, *, all_pixels: bool = False) -> list[str]:
    """Find outputs on disk that differ from the ledger, or are missing.

    Raises:
        BadManifestError: no such study.
    """
    row = ledger.study(study_id)
    chosen = select(task).where(task.c.study_id == study_id, task.c.state == "done", task.c.output_sha256.is_not(None))
    with ledger.database.read() as connection:
        rows = connection.execute(chosen.order_by(task.c.ordinal, task.c.position)).all()
    # A row of other kinds of values, which SQLite allows, is a finding of `verify_ledger`.
    tasks = [row for row in rows if isinstance(row.slide_id, str) and isinstance(row.stage, str)]
    by_slide: dict[str, list[Row[Any]]] = {}
    for task_row in tasks:
        by_slide.setdefault(task_row.slide_id, []).append(task_row)
    findings = []
    try:
        protocol = frozen_protocol(row.frozen(), study_id)
    except DamagedStoreError as error:
        findings.append(str(error))
    except BadRecipeError:
        pass  # frozen by another version, whose sections this one does not know: work on it is refused
    else:
        findings += _inputs(project, study_id, protocol, row.manifest_sha256)
    with ThreadPoolExecutor(_THREADS) as pool:
        checked = pool.map(partial(_check_slide, project, all_pixels=all_pixels), by_slide, by_slide.values())
        findings += [finding for of_slide in checked for finding in of_slide]
    return findings


def _inputs(project: Project, study_id: str, protocol: Protocol, manifest_sha256: str) -> Iterator[str]:
    """Check the protocol's file, the models' and encoders' weights and the manifest, which has patients and
    references."""
    folder = study_dir(project, study_id)

    def cohort() -> Cohort:
        return load_study_cohort(protocol, folder, expected_sha256=manifest_sha256)[0]

    for read in (cohort, partial(find_models, protocol, project), partial(find_encoders, protocol.encoders, project)):
        try:
            read()
        except GemslideError as error:
            yield str(error)
    try:
        is_same = load_protocol(folder / PROTOCOL_FILE).frozen() == protocol.frozen()
    except GemslideError as error:
        yield str(error)
        return
    if not is_same:
        yield (
            f"{PROTOCOL_FILE}: is not the protocol that was frozen. Restore it, or record the change with `gemslide "
            "study amend`"
        )


def _check_slide(project: Project, slide_id: str, tasks: Sequence[Row[Any]], *, all_pixels: bool) -> list[str]:
    findings = []
    for row in tasks:
        where = f"slide {slide_id}, {row.stage}"
        try:
            findings += [f"{where}: {what}" for what in _check_task(project, row, all_pixels=all_pixels)]
        except (GemslideError, OSError) as error:
            findings.append(f"{where}: its output is gone or damaged: {error}")
    return findings


def _check_task(project: Project, row: Row[Any], *, all_pixels: bool) -> Iterator[str]:
    if output_sha256(project, row.slide_id, row.stage) != row.output_sha256:
        yield "its output does not match the ledger: it was replaced or changed"
        return
    if row.measures is not None and canonical(results_of_stage(project, row.slide_id, row.stage)) != row.measures:
        yield "its files do not match the ledger: one was changed, deleted or added"
    output = output_of(project, row.slide_id, row.stage)
    yield from kind_of(row.stage).changed_files(output, all_pixels=all_pixels)

"""Erasing a slide from a study, as a patient may request: its files, its rows, and all that the log says about it.

What remains is that there was a slide, and who erased it, when and why. The log keeps its entries' numbers, times and
hashes, so that all of it still verifies, and every anchor still holds.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Connection, Row, column, delete, insert, or_, select, table, text, update

from pipeline.errors import BadManifestError
from pipeline.ledger.chain import ERASABLE, Change, append, utc_now
from pipeline.ledger.ledger import found
from pipeline.ledger.project_log import append_to_project
from pipeline.ledger.reasons import check_reason
from pipeline.ledger.rows import (
    ENTRIES_ERASED,
    ERASED,
    PROJECT_LOG,
    READING_ERASED,
    SLIDE_ERASED,
    STUDY_SUBJECT,
    change_task,
    reading_subject,
    row_sha256,
    slide_subject,
    task_subject,
)
from pipeline.ledger.tables import answer, audit, reading, slide, task
from pipeline.project import Project
from pipeline.review import erase_registrations
from pipeline.slide_level.record import RECORD
from pipeline.store.links.links_file import keep_only
from pipeline.study.protocol import load_study_cohort
from pipeline.study.stages.registry import KINDS
from pipeline.study.work.amendments import freeze
from pipeline.study.work.study import Study, names_of_sources
from pipeline.tiles.table import read_table

_OF_REVIEWS = ("hotspot_review", "coverage", "review")
_OF_ANNOTATIONS = ("annotation_revision", "annotation", "annotated_slide")
"""Tables of `pipeline.review`; tables that refer to others come first."""
MAX_LOOKED_AT_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Erased:
    """Result of an erasure, and what is beyond its reach."""

    entries: int
    """Log entries whose content was erased."""
    still_named_in: tuple[Path, ...]
    """Files of the project that name a slide: tile sets, run records, evaluations."""


def erase(study: Study, slide_ids: Sequence[str], *, actor: str, why: str) -> Erased:
    """Erase slides that are no longer in the manifest. Repeated after an interruption, it continues.

    Args:
        why: for the log, which keeps it: it must name nobody.

    Raises:
        BadManifestError: no reason; a slide that is not in the study, is still in the manifest or in the project's
            bucket, or is being worked on. UnreadableError: the bucket cannot be read.
    """
    check_reason(why, "an erasure")
    cohort, manifest_sha256 = load_study_cohort(study.protocol, study.folder)
    _check_gone(slide_ids, (entry.slide_id for entry in cohort.entries), study.protocol.study.cohort)
    _check_not_in_bucket(study.project, slide_ids)
    with study.ledger.database.read() as connection:
        for slide_id in slide_ids:
            _slide_row(connection, study.study_id, slide_id)
        _check_no_patient_is_predicted(connection, study)
    why = names_of_sources(cohort, study.project).cleaned(why)
    for slide_id in slide_ids:
        _delete_files(study.project, slide_id)
    entries = 0
    with study.ledger.database.write() as connection:
        if study.ledger.database.is_sqlite:  # otherwise deleted data stays readable in the file's free pages
            connection.execute(text("PRAGMA secure_delete = ON"))
        for slide_id in slide_ids:
            entries += _erase_slide(connection, study.study_id, slide_id, actor, why)
        if manifest_sha256 != study.manifest_sha256:
            after = replace(study, manifest_sha256=manifest_sha256)
            freeze(connection, after, cohort, actor=actor, why=why, first=len(study.protocol.stages))
        append(connection, study.study_id, list(_without_their_records(connection, study, actor, why)))
    study.ledger.database.compact()
    return Erased(entries, tuple(_still_named(study.project, slide_ids)))


def _check_gone(slide_ids: Sequence[str], in_manifest: Iterable[str], manifest: str) -> None:
    still = sorted(set(slide_ids) & set(in_manifest))
    if still:
        raise BadManifestError(
            f"{', '.join(still)}: still in the manifest {manifest}. Remove the lines of the slides to be erased first; "
            "leave everything else in it unchanged."
        )


def _check_not_in_bucket(project: Project, slide_ids: Sequence[str]) -> None:
    for slide_id in slide_ids:
        place = project.place_in_bucket(slide_id)
        if place and place.is_dir():
            raise BadManifestError(
                f"slide {slide_id}: is in the project's bucket, which gemslide only reads. Delete {place} there first, "
                "with all earlier versions of its objects."
            )


def _slide_row(connection: Connection, study_id: str, slide_id: str) -> Row[tuple[object, ...]]:
    is_slide = (slide.c.study_id == study_id, slide.c.slide_id == slide_id)
    row = connection.execute(select(slide).where(*is_slide).with_for_update()).one_or_none()
    if row is None:
        found(connection, study_id)
        raise BadManifestError(f"slide {slide_id:.100}: is not in study {study_id}.")
    if row.code == ERASED:
        raise BadManifestError(f"slide {slide_id}: was already erased.")
    held = select(task.c.owner).where(
        task.c.study_id == study_id, task.c.slide_id == slide_id, task.c.state == "leased"
    )
    if owner := connection.scalar(held):
        raise BadManifestError(
            f"slide {slide_id}: worker {owner} has it now. Pause the study (`gemslide study pause`), and erase it "
            "when `gemslide study status` shows that nobody holds a task."
        )
    return row


def _check_no_patient_is_predicted(connection: Connection, study: Study) -> None:
    """A worker that predicts the slide's patient would write about the slide after its erasure."""
    stages = [model.task for model in study.protocol.of_patients]
    held = select(task.c.owner).where(
        task.c.study_id == study.study_id, task.c.stage.in_(stages), task.c.state == "leased"
    )
    if owner := connection.scalar(held):
        raise BadManifestError(
            f"study {study.study_id}: worker {owner} is predicting a patient now. Pause the study (`gemslide study "
            "pause`), and erase when `gemslide study status` shows that nobody holds a task."
        )


def _without_their_records(connection: Connection, study: Study, actor: str, why: str) -> Iterator[Change]:
    """Let go of predictions of excluded slides that rested on an erased one of the same patient, and went with it."""
    stages = {model.task: model.id for model in study.protocol.of_patients}
    chosen = (
        select(task)
        .join(slide, (slide.c.study_id == task.c.study_id) & (slide.c.slide_id == task.c.slide_id))
        .where(task.c.study_id == study.study_id, task.c.stage.in_(stages), task.c.state == "done")
        .where(slide.c.state == "excluded")
    )
    for row in connection.execute(chosen).all():
        if (study.project.result_dir(row.slide_id, stages[row.stage]) / RECORD).exists():
            continue
        values = {"state": "ended", "output_sha256": None, "measures": None}
        yield change_task(connection, row, values, actor=actor, action="task amended", why=why)


def _delete_files(project: Project, slide_id: str) -> None:
    """Delete the outputs of all stages. A missing one is not an error: an erasure may be repeated."""
    for folder in [folder for kind in KINDS for folder in kind.outputs(project, slide_id)]:
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
    keep_only(project.store_path(slide_id), None)  # the path of the slide's file, if the store was linked


def _erase_slide(connection: Connection, study_id: str, slide_id: str, actor: str, why: str) -> int:
    """Replace a slide's row by a nameless one, and empty its entries. Returns their number."""
    row = _slide_row(connection, study_id, slide_id)
    of_slide = (task.c.study_id == study_id, task.c.slide_id == slide_id)
    stages = connection.scalars(select(task.c.stage).where(*of_slide)).all()
    seen = (reading.c.study_id == study_id, reading.c.slide_id == slide_id)
    readings = connection.execute(select(reading).where(*seen)).all()
    subjects = [slide_subject(slide_id), *(task_subject(slide_id, stage) for stage in stages)]
    subjects += [reading_subject(read_row.reader, read_row.session, read_row.position) for read_row in readings]
    intervals = _empty_entries(connection, study_id, subjects)
    nameless = dict(row._mapping) | {
        "slide_id": f"{ERASED}-{row.ordinal}",
        "source_sha256": None,
        "site": None,
        "scanner": None,
        "state": "excluded",
        "code": ERASED,
        "message": "erased on request",
        "ended_utc": utc_now(),
    }
    connection.execute(insert(slide).values(nameless))
    changes = [Change(actor, SLIDE_ERASED, slide_subject(nameless["slide_id"]), why, after=row_sha256(slide, nameless))]
    changes += [_erase_reading(connection, read_row, nameless["slide_id"], actor) for read_row in readings]
    _erase_reviews(connection, study_id, slide_id, actor, why)
    connection.execute(delete(task).where(*of_slide))
    connection.execute(delete(slide).where(slide.c.study_id == study_id, slide.c.slide_id == slide_id))
    named = Change(actor, ENTRIES_ERASED, STUDY_SUBJECT, why, details={"entries": intervals})
    append(connection, study_id, [*changes, named])
    return sum(last - first + 1 for first, last in intervals)


def _erase_reviews(connection: Connection, study_id: str, slide_id: str, actor: str, why: str) -> None:
    """Erase coverage, annotations, reviews and registrations of the slide, in the study and outside all studies, with
    the project's entries."""
    for name in _OF_REVIEWS:
        rows = table(name, column("study_id"), column("slide_id"))
        is_slide = (rows.c.slide_id == slide_id, rows.c.study_id.in_((study_id, PROJECT_LOG)))
        connection.execute(delete(rows).where(*is_slide))
    for name in _OF_ANNOTATIONS:
        rows = table(name, column("slide_id"))
        connection.execute(delete(rows).where(rows.c.slide_id == slide_id))
    of_pairs = erase_registrations(connection, slide_id)
    if intervals := _empty_entries(connection, PROJECT_LOG, [slide_subject(slide_id)], of_pairs):
        named = Change(actor, ENTRIES_ERASED, STUDY_SUBJECT, why, details={"entries": intervals})
        append_to_project(connection, [named])


def _erase_reading(connection: Connection, row: Row[tuple[object, ...]], nameless: str, actor: str) -> Change:
    key = ("study_id", "reader", "session", "position")
    connection.execute(delete(answer).where(*(answer.c[name] == row._mapping[name] for name in key)))
    values = {"slide_id": nameless, "state": "erased", "started_utc": None, "signed_utc": None, "seconds": None}
    connection.execute(update(reading).where(*(reading.c[name] == row._mapping[name] for name in key)).values(values))
    subject = reading_subject(row.reader, row.session, row.position)
    return Change(actor, READING_ERASED, subject, after=row_sha256(reading, dict(row._mapping) | values))


def _empty_entries(
    connection: Connection, study_id: str, subjects: Sequence[str], further: Collection[int] = ()
) -> list[list[int]]:
    """Empty all entries about some rows, and those with further numbers. Returns their numbers, as intervals."""
    is_about = (audit.c.study_id == study_id, or_(*(audit.c.subject == subject for subject in subjects)))
    numbers = set(connection.scalars(select(audit.c.seq).where(*is_about)))
    connection.execute(update(audit).where(*is_about).values(dict.fromkeys(ERASABLE)))
    for number in set(further) - numbers:
        is_entry = (audit.c.study_id == study_id, audit.c.seq == number)
        connection.execute(update(audit).where(*is_entry).values(dict.fromkeys(ERASABLE)))
    intervals: list[list[int]] = []
    for number in sorted(numbers.union(further)):
        if intervals and intervals[-1][1] == number - 1:
            intervals[-1][1] = number
        else:
            intervals.append([number, number])
    return intervals


def _still_named(project: Project, slide_ids: Sequence[str]) -> Iterator[Path]:
    names = set(slide_ids)
    folders = [project.tiles_dir, project.runs_dir, *project.results_dir.glob("*")]
    beside = [path for folder in folders for path in folder.glob("*")]
    deeper = [*project.results_dir.glob("*/evaluation_*/**/*"), *project.root.glob("studies/**/*")]
    yield from (path for path in sorted({*beside, *deeper}) if path.is_file() and _names_one(path, names))


def _names_one(path: Path, names: set[str]) -> bool:
    """Whether a file or its name names one of the slides. A file that is too large to read might."""
    if path.stem in names or path.stat().st_size > MAX_LOOKED_AT_BYTES:
        return True
    if path.suffix == ".parquet":
        return bool(names.intersection(read_table(path).frame["slide_id"]))
    content = path.read_bytes()
    return any(name.encode() in content for name in names)

"""`gemslide annotations import` and `gemslide annotations export`: between files and the project's database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from pipeline.annotations import frame_of_store, qupath_origin_xy0, read_annotations, write_annotations
from pipeline.errors import BadAnnotationError
from pipeline.ledger import Ledger, actor_here, find_ledger, open_ledger
from pipeline.naming.sources import SourceNames
from pipeline.project import Project, open_project
from pipeline.review import (
    COUNT_COLUMNS,
    LISTING_COLUMNS,
    ListingQuery,
    SlideMasks,
    count_rows,
    exported,
    import_file,
    listing_rows,
    only_own,
    tally_slide,
)
from pipeline.spreadsheets import csv_line
from pipeline.store.reading.reader import StoreReader
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.publish import write_new_text
from training.foundation.words.counts import counted


def run_import(
    path: Path, slide_id: str, project_dir: Path, counts_from: str, *, allow_other_mpp: bool, as_json: bool
) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(path, project=project))
    with report_errors(as_json=as_json, name="annotations", reporter=reporter):
        reader = _reader(project, slide_id)
        file = read_annotations(path)
        frame = frame_of_store(reader.attributes).as_set(counts_from, allow_other_mpp=allow_other_mpp)
        ledger = open_ledger(project)
        try:
            is_own = only_own(project, ledger, slide_id)
            size_wh = reader.size_wh_px0
            done = import_file(ledger, slide_id, file, actor_here(), size_wh_px0=size_wh, frame=frame, only_own=is_own)
        finally:
            ledger.database.close()
        facts = {
            "slide_id": slide_id,
            "saved": done.saved,
            "unchanged": done.unchanged,
            "beside": done.beside,
            "dropped": list(done.dropped),
        }
        if as_json:
            reporter.print_json(facts)
            return
    typer.echo(f"{slide_id}: {done.saved} saved, {counted(done.unchanged, 'was', 'were')} already there")
    if done.beside:
        typer.echo(f"  {done.beside} of them kept alongside annotations changed in the project in the meantime")
    for why in done.dropped:
        typer.echo(f"  dropped: {why}")


def run_export(out: Path, slide_id: str, project_dir: Path, counts_from: str, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(out, project=project))
    with report_errors(as_json=as_json, name="annotations", reporter=reporter):
        reader = _reader(project, slide_id)
        if out.exists():
            raise BadAnnotationError(f"{out}: already exists and may hold work. Delete it or choose another name.")
        ledger = find_ledger(project)
        if ledger is None:
            raise BadAnnotationError(f"{project.root}: nobody has drawn any annotations in this project yet.")
        try:
            file = exported(ledger, slide_id, origin_xy0=_origin_xy0(reader, counts_from), mpp0=reader.mpp0)
        finally:
            ledger.database.close()
        write_annotations(out, file, "qupath")
        if as_json:
            reporter.print_json({"slide_id": slide_id, "written": len(file.objects)})
            return
    typer.echo(f"{out}: {counted(len(file.objects), 'annotation')} of {slide_id}")


def run_tables(out: Path, slide_id: str, project_dir: Path, table: str, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(out, project=project))
    with report_errors(as_json=as_json, name="annotations", reporter=reporter):
        reader = _reader(project, slide_id)
        if out.exists():
            raise BadAnnotationError(f"{out}: already exists and may hold work. Delete it or choose another name.")
        ledger = find_ledger(project)
        if ledger is None:
            raise BadAnnotationError(f"{project.root}: nobody has drawn any annotations in this project yet.")
        try:
            rows, columns = _table(ledger, reader, table)
        finally:
            ledger.database.close()
        lines = [csv_line(columns), *(csv_line([row.get(column, "") for column in columns]) for row in rows)]
        write_new_text(out, "".join(lines))
        if as_json:
            reporter.print_json({"slide_id": slide_id, "written": len(rows)})
            return
    typer.echo(f"{out}: {counted(len(rows), 'row')} of {slide_id}")


def _table(ledger: Ledger, reader: StoreReader, table: str) -> tuple[list[dict[str, str]], Sequence[str]]:
    if table == "counts":
        tallies = tally_slide(ledger, reader.slide_id, SlideMasks(reader).areas)
        return list(count_rows(reader.slide_id, tallies)), COUNT_COLUMNS
    return list(listing_rows(ledger, reader.slide_id, reader.mpp0, ListingQuery())), LISTING_COLUMNS


def _reader(project: Project, slide_id: str) -> StoreReader:
    """Open the slide's store in the project. Raises GemslideError: it is missing or damaged."""
    return StoreReader(project.stored_at(slide_id))


def _origin_xy0(reader: StoreReader, counts_from: str) -> tuple[int, int]:
    return qupath_origin_xy0(reader.attributes.bounds_px0) if counts_from == "scanned" else (0, 0)

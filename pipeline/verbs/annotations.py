"""`gemslide annotations convert` and `gemslide annotations check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from pipeline.annotations.files import read_annotations, write_annotations
from pipeline.annotations.frames import frame_of_file, frame_of_store, on_slide
from pipeline.annotations.shapes.objects import AnnotationFile, WritableFormat
from pipeline.annotations.shapes.region import check_regions
from pipeline.annotations.shapes.repair import RepairReport, labelled_regions
from pipeline.errors import BadAnnotationError
from pipeline.ingest.check import CheckedSlide
from pipeline.naming.slides import find_slide
from pipeline.naming.sources import SourceNames
from pipeline.places.object_path import ObjectPath, StorePath
from pipeline.project import Project, open_project
from pipeline.settings.config import load_settings
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader, is_store
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.words.counts import counted


def run_convert(
    source: Path, target: Path, to: WritableFormat, slide: str | None, project_dir: Path, *, as_json: bool
) -> None:
    project = Project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(source, target, project=project))
    reporter.sources.add_typed([slide] if slide else [], project)
    with report_errors(as_json=as_json, name="annotations", reporter=reporter):
        if target.exists():
            raise BadAnnotationError(f"{target}: already exists and may hold work. Delete it or choose another name.")
        file = read_annotations(source)
        placed = _in_pixels(file, slide, project)
        lost = write_annotations(target, placed, to)
        num_written = _num_written(target, lost, to)
    facts = {
        "from": file.format,
        "to": to,
        "objects": len(file.objects),
        "written": num_written,
        "dropped": list(file.dropped),
        "lost": [*lost, *file.notes],
    }
    if as_json:
        reporter.print_json(facts)
        return
    typer.echo(f"{target}: {counted(num_written, 'object')} ({to}) from {len(file.objects)} ({file.format})")
    for line in [*(f"dropped: {why}" for why in file.dropped), *lost, *file.notes]:
        typer.echo(f"  {line}")


def _in_pixels(file: AnnotationFile, slide: str | None, project: Project) -> AnnotationFile:
    """Convert a file in nanometres to its slide's pixels; files in pixels, or without a slide, are unchanged."""
    if file.unit == "px0" or slide is None:
        return file
    return on_slide(file, _place(find_slide(slide, project)).frame)


def _num_written(target: Path, lost: list[str], to: WritableFormat) -> int:
    """Count the objects of a new file by reading it back; remove it if it has none."""
    try:
        return len(read_annotations(target).objects)
    except BadAnnotationError as error:
        target.unlink()
        raise BadAnnotationError(
            f"nothing in the file can be written as {to}: {'; '.join(lost) or error}. No file was written."
        ) from error


def run_check(path: Path, slide: str | None, project_dir: Path, *, allow_other_mpp: bool, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(path, project=project))
    reporter.sources.add_typed([slide] if slide else [], project)
    with report_errors(as_json=as_json, name="annotations", reporter=reporter):
        file = read_annotations(path)
        place = None if slide is None else _place(find_slide(slide, project))
        if file.unit == "nm" and place is None:
            raise BadAnnotationError(
                f"{path}: counts nanometres from the centre of the glass slide (NDPA). Name its slide with --slide."
            )
        tile = load_settings(project.settings_path).tile
        if place is not None:
            any_mpp = allow_other_mpp or tile.allow_other_mpp
            file = on_slide(file, place.frame.as_set(tile.qupath_counts_from, allow_other_mpp=any_mpp))
        regions, repairs = labelled_regions(file)
        facts = _facts(file, repairs)
        if as_json:
            reporter.print_json(facts)
        else:
            _print(facts, repairs)
        if place is not None:
            check_regions(regions, place.size_wh_px0)
            if not as_json:
                typer.echo(f"{'slide':<18} all regions are inside it")


def _place(path: StorePath) -> CheckedSlide:
    if isinstance(path, ObjectPath) or is_store(path):
        reader = StoreReader(path)
        return CheckedSlide(reader.size_wh_px0, frame_of_store(reader.attributes))
    with open_slide(path) as slide:
        finest = slide.info.levels[0]
        return CheckedSlide((finest.width_px, finest.height_px), frame_of_file(slide.info))


def _facts(file: AnnotationFile, repairs: RepairReport) -> dict[str, Any]:
    return {
        "format": file.format,
        "mpp": file.mpp,
        "objects": len(file.objects),
        "vertices": sum(drawn.num_vertices for drawn in file.objects),
        "classes": {name or "": count for name, count in file.count_by_class().items()},
        "labels": repairs.as_dict(),
        "dropped": list(repairs.dropped),
        "notes": list(file.notes),
    }


def _print(facts: dict[str, Any], repairs: RepairReport) -> None:
    classes = [f"{name or '(no class)'}: {count}" for name, count in facts["classes"].items()]
    lines = {
        "format": [f"{facts['format']}, {facts['mpp']:g} µm/px" if facts["mpp"] else facts["format"]],
        "objects": [f"{facts['objects']}, {counted(facts['vertices'], 'vertex', 'vertices')}"],
        "classes": classes or ["none"],
        "labels": [repairs.summary()],
        "dropped": facts["dropped"],
        "left out": facts["notes"],
    }
    for name, values in lines.items():
        for index, value in enumerate(values):
            typer.echo(f"{name if not index else '':<18} {value}")

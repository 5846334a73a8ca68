"""`gemslide annotations convert` and `gemslide annotations check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import typer

from pipeline.annotations.files import read_annotations, write_annotations
from pipeline.annotations.objects import AnnotationFile
from pipeline.annotations.region import check_regions
from pipeline.annotations.repair import RepairReport, labelled_regions
from pipeline.cli_output import Reporter, report_errors
from pipeline.errors import BadAnnotationError
from pipeline.project import open_project
from pipeline.slide_names import find_slide
from pipeline.slides.registry import open_slide
from pipeline.source_names import SourceNames
from pipeline.store.reader import StoreReader, is_store


def run_convert(source: Path, target: Path, to: Literal["qupath", "asap", "imagescope"], *, as_json: bool) -> None:
    reporter = Reporter(as_json=as_json, sources=SourceNames(source, target))
    with report_errors(as_json=as_json, name="annotations", reporter=reporter):
        if target.exists():
            raise BadAnnotationError(f"{target}: exists already; it may hold work. Delete it or choose another name.")
        file = read_annotations(source)
        lost = write_annotations(target, file, to)
        num_written = len(read_annotations(target).objects)
    facts = {
        "from": file.format,
        "to": to,
        "objects": len(file.objects),
        "written": num_written,
        "dropped": list(file.dropped),
        "lost": lost,
    }
    if as_json:
        reporter.print_json(facts)
        return
    typer.echo(f"{target}: {num_written} objects ({to}) from {len(file.objects)} ({file.format})")
    for line in [*(f"dropped: {why}" for why in file.dropped), *lost]:
        typer.echo(f"  {line}")


def run_check(path: Path, slide: str | None, project_dir: Path, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(path, project=project))
    reporter.sources.add_typed([slide] if slide else [], project)
    with report_errors(as_json=as_json, name="annotations", reporter=reporter):
        file = read_annotations(path)
        regions, repairs = labelled_regions(file)
        facts = _facts(file, repairs)
        if as_json:
            reporter.print_json(facts)
        else:
            _print(facts, repairs)
        if slide is not None:
            check_regions(regions, _size_wh_px0(find_slide(slide, project)))
            if not as_json:
                typer.echo(f"{'slide':<18} all regions lie inside it")


def _size_wh_px0(path: Path) -> tuple[int, int]:
    if is_store(path):
        return StoreReader(path).size_wh_px0
    with open_slide(path) as slide:
        finest = slide.info.levels[0]
        return finest.width_px, finest.height_px


def _facts(file: AnnotationFile, repairs: RepairReport) -> dict[str, Any]:
    return {
        "format": file.format,
        "mpp": file.mpp,
        "objects": len(file.objects),
        "vertices": sum(drawn.num_vertices for drawn in file.objects),
        "classes": {name or "": count for name, count in file.count_by_class().items()},
        "labels": repairs.as_dict(),
        "dropped": list(repairs.dropped),
    }


def _print(facts: dict[str, Any], repairs: RepairReport) -> None:
    classes = [f"{name or '(no class)'}: {count}" for name, count in facts["classes"].items()]
    lines = {
        "format": [f"{facts['format']}, {facts['mpp']:g} µm/px" if facts["mpp"] else facts["format"]],
        "objects": [f"{facts['objects']}, {facts['vertices']} vertices"],
        "classes": classes or ["none"],
        "labels": [repairs.summary()],
        "dropped": facts["dropped"],
    }
    for name, values in lines.items():
        for index, value in enumerate(values):
            typer.echo(f"{name if not index else '':<18} {value}")

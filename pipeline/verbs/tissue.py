"""`gemslide tissue`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from pipeline.annotations import Region, repaired_area
from pipeline.errors import BadAnnotationError
from pipeline.ingest.tissue.new import NewTissue, find_again, from_file, from_regions
from pipeline.ledger import find_ledger
from pipeline.naming.slides import find_slide_id
from pipeline.naming.sources import SourceNames
from pipeline.project import Project, open_project
from pipeline.review import annotations_of
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.settings.config import TileConfig, TissueConfig, load_settings
from pipeline.store.reading.reader import StoreReader
from pipeline.study import refuse_to_replace
from pipeline.tiles.outdated import outdated_sets
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.errors import BadRecipeError
from training.foundation.settings import parse_section


@dataclass(frozen=True)
class TissueSource:
    """Chosen source of a mask: a file, drawn areas, or the slide's pixels."""

    file: Path | None = None
    drawn: tuple[str, ...] = ()
    """Classes of areas drawn in the project."""
    classes: tuple[str, ...] = ()
    """Classes of areas in the file."""


def run_tissue(
    slides: Sequence[str], project_dir: Path, source: TissueSource, *, settings: Sequence[str], as_json: bool
) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(*([source.file] if source.file else []), project=project))
    reporter.sources.add_typed(list(slides), project)
    with report_errors(as_json=as_json, name="tissue", reporter=reporter):
        _check(slides, source)
        stated = load_settings(project.settings_path)
        config = _config(stated.ingest.tissue, settings)
        slide_ids = list(dict.fromkeys(find_slide_id(name, project) for name in slides))
        make = _maker(source, project, config, stated.tile)
        record = RunRecord("tissue", {"tissue": config.model_dump(mode="json"), "made": _made(source)})
        with recorded(record, project.runs_dir), record.phase("tissue"):
            for slide_id in slide_ids:
                outcome = reporter.attempt(slide_id, partial(_attempt, slide_id, project, make, reporter))
                record.slides.append(outcome)
    reporter.finish()


def _check(slides: Sequence[str], source: TissueSource) -> None:
    if source.file is not None and len(slides) > 1:
        raise BadAnnotationError(
            f"--from {source.file.name}: one file is the mask of one slide, but {len(slides)} are named."
        )
    if source.file is not None and source.drawn:
        raise BadAnnotationError("give --from or --drawn, not both.")
    if source.classes and source.file is None:
        raise BadAnnotationError(
            "--class selects areas of the file given by --from. For drawn areas use --drawn CLASS."
        )


def _config(config: TissueConfig, settings: Sequence[str]) -> TissueConfig:
    """The settings of `gemslide.toml` with those of the command line.

    Raises:
        BadRecipeError: an unknown setting, or a value that it cannot have.
    """
    given: dict[str, object] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        try:
            given[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise BadRecipeError(f"--set {setting!r:.80}: give NAME=NUMBER, as in --set min_delta_e=6.")
    return parse_section(TissueConfig, {**config.model_dump(), **given}, where="--set")


def _made(source: TissueSource) -> str:
    return "imported" if source.file else "drawn" if source.drawn else "found"


def _maker(
    source: TissueSource, project: Project, config: TissueConfig, frame: TileConfig
) -> Callable[[StoreReader], NewTissue]:
    """Function that makes a slide's mask. A file's outlines are placed as `gemslide tile` places them (`[tile]`)."""
    if source.file is not None:
        path = source.file
        return lambda reader: from_file(
            reader,
            path,
            config,
            classes=source.classes,
            counts_from=frame.qupath_counts_from,
            allow_other_mpp=frame.allow_other_mpp,
        )
    if source.drawn:
        return lambda reader: from_regions(
            reader, _drawn(project, reader.slide_id, source.drawn), config, classes=source.drawn
        )
    return lambda reader: find_again(reader, config)


def _drawn(project: Project, slide_id: str, classes: Sequence[str]) -> list[Region]:
    """Current areas of these classes on a slide, made valid, in level-0 pixels."""
    ledger = find_ledger(project)
    if ledger is None:
        return []
    try:
        drawn = [shape for shape in annotations_of(ledger, slide_id) if shape.class_name in classes]
    finally:
        ledger.database.close()
    areas = [(area, f"annotation {area.annotation_id}") for area in drawn if "Polygon" in area.shape.geom_type]
    repaired = [Region(area.class_name or "", repaired_area(area.shape, where), where) for area, where in areas]
    return [region for region in repaired if region.geometry.area > 0]


def _attempt(
    slide_id: str, project: Project, make: Callable[[StoreReader], NewTissue], reporter: Reporter
) -> SlideOutcome:
    start = time.perf_counter()
    refuse_to_replace(project, slide_id, "ingest")
    store = project.store_path(slide_id)
    new = make(StoreReader(store))
    for why in new.dropped:
        typer.echo(reporter.sources.removed_from(f"warning: slide {slide_id}: left out: {why}"), err=True)
    outdated = {"predictions of": new.outdated, "tile set": tuple(outdated_sets(project, slide_id))}
    return SlideOutcome(
        slide_id,
        "done" if new.is_new else "skipped",
        message=_message(new, outdated),
        output=str(store),
        seconds=round(time.perf_counter() - start, 3),
    )


def _message(new: NewTissue, outdated: Mapping[str, tuple[str, ...]]) -> str:
    was = f", was {new.fraction_before:.1%}" if new.is_new else ""
    summary = f"{'done' if new.is_new else 'kept'}: tissue {new.fraction:.1%}{was}; {new.text}"
    named = "; ".join(f"{what} {', '.join(names)}" for what, names in outdated.items() if names)
    return f"{summary}; now outdated: {named} (recreate with infer, tile and qc)" if named else summary

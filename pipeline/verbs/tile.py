"""`gemslide tile`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import typer

from pipeline.annotations.shapes.repair import describe_repairs
from pipeline.cohort.manifest import load_cohort
from pipeline.naming.slides import find_slide_ids, manifest_in
from pipeline.naming.sources import SourceNames
from pipeline.project import open_project
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.settings.config import load_settings
from pipeline.tiles.table import TileTable
from pipeline.tiles.tile import make_tile_table
from pipeline.tiles.unlabelled import unlabelled_warnings
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.errors import GemslideError
from training.foundation.progress import bar
from training.foundation.settings import replace
from training.foundation.words.class_order import lesion_classes, order_warning
from training.foundation.words.counts import counted

CLASS_ORDER = "the order in the [tile] section of gemslide.toml"


def run_tile(
    slides: list[str],
    project_dir: Path,
    *,
    tile_set: str,
    changes: Mapping[str, float | None],
    as_json: bool,
) -> None:
    """Args: changes: settings of `[tile]` as given on the command line; None where they were not."""
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, name=tile_set, reporter=reporter):
        config = replace(load_settings(project.settings_path).tile, **changes)
        manifest = manifest_in(slides)
        cohort = load_cohort(manifest) if manifest else None
        reporter.say_notes(cohort.notes if cohort else ())
        slide_ids = None if cohort else find_slide_ids(slides, project)

        def leave_out(slide_id: str, error: GemslideError) -> None:
            outcome = SlideOutcome.from_error(slide_id, error, 0.0)
            record.slides.append(reporter.attempt(slide_id, lambda: outcome))

        record = RunRecord("tile", {"tile": config.model_dump(mode="json"), "tile_set": tile_set})
        with recorded(record, project.runs_dir), record.phase("tile"), bar("tiles") as advance:
            table = make_tile_table(
                project, tile_set, config, cohort=cohort, slide_ids=slide_ids, leave_out=leave_out, advance=advance
            )
            record.inputs += [{"id": k, "sha256": v} for k, v in table.metadata["sources"].items()]
            record.outputs.append(str(project.tile_table_path(tile_set).relative_to(project.root)))
            warnings = _warnings(table)
            if warnings:
                record.extra["warnings"] = warnings
    for slide_id in table.metadata["sources"]:
        reporter.add(_outcome(slide_id, table))
    if not as_json:
        for line in _table_lines(table):
            typer.echo(f"  {line}")
    for warning in warnings:
        typer.echo(f"warning: tile set {tile_set!r}: {warning}", err=True)
    has_failures = reporter.print_failures()
    if table.metadata["left_out"]:
        left_out = len(table.metadata["left_out"])
        all_slides = counted(left_out + len(table.metadata["sources"]), "slide")
        of_all = f"{counted(left_out, f'of {all_slides} is', f'of {all_slides} are')} not in it"
        typer.echo(f"tile set {tile_set!r} was written, but {of_all}: it does not cover the whole cohort.", err=True)
    if has_failures:
        raise typer.Exit(1)


def _warnings(table: TileTable) -> list[str]:
    odd_order = order_warning(table.classes, setting=CLASS_ORDER)
    return [*([odd_order] if odd_order else []), *unlabelled_warnings(table.metadata)]


def _table_lines(table: TileTable) -> Iterator[str]:
    """Lines of text about a table: classes, tiles by split and label, slides never checked."""
    if len(table.classes) > 1:
        rest = ", ".join(lesion_classes(table.classes))
        yield f"class order: {', '.join(table.classes)} (hotspots: {rest}, unless [infer] hotspot_classes is set)"
    for (split, label), tiles in sorted(_counts(table).items()):
        yield f"split {split}, label {label}: {counted(tiles, 'tile')}"
    unchecked = [slide_id for slide_id, entry in table.metadata["quality"].items() if not entry["checked"]]
    if unchecked:
        of_all = f"{len(unchecked)} of {counted(len(table.metadata['sources']), 'slide')}"
        yield f"qc: {of_all} never checked, so their qc_ columns are empty (`gemslide qc` fills them)"


def _outcome(slide_id: str, table: TileTable) -> SlideOutcome:
    count = int((table.frame["slide_id"] == slide_id).sum())
    quality = table.metadata["quality"][slide_id]
    left_out, damaged = quality["left_out"], quality.get("damaged_tiles", 0)
    if count:
        annotations = table.metadata["annotations"].get(slide_id)
        repairs = f"; annotations: {describe_repairs(annotations)}" if annotations else ""
        dropped = f"; {left_out} left out by max_qc" if left_out else ""
        dropped += f"; {damaged} of the grid left out for touching damage in the slide's file" if damaged else ""
        return SlideOutcome(slide_id, "done", message=f"{counted(count, 'tile')}{dropped}{repairs}")
    if left_out:
        message = (
            f"slide {slide_id}: all tiles with enough tissue ({left_out:,}) have a quality score above [tile] max_qc = "
            f"{table.metadata['settings']['max_qc']}. Look at results/quality/{slide_id}/quality.png."
        )
        return SlideOutcome(slide_id, "qc_failed", code="qc_failed", message=message)
    which = "no tile without damage" if damaged else "no tile"
    message = f"slide {slide_id}: {which} has enough tissue. Look at its tissue mask in the viewer."
    return SlideOutcome(slide_id, "no_tissue", code="no_tissue", message=message)


def _counts(table: TileTable) -> Counter[tuple[str, str]]:
    """Tiles per (split, label)."""
    columns = (table.frame[name].astype(object).where(table.frame[name].notna(), "none") for name in ("split", "label"))
    return Counter(zip(*columns, strict=True))

"""`gemslide …`: a thin function per verb. Settings live in gemslide.toml; other packages add verbs by entry points."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from pipeline.units import RESEARCH_USE
from pipeline.verbs.annotations_cli import annotations_cli
from pipeline.verbs.ingest_cli import ingest
from pipeline.verbs.log_cli import log_cli
from pipeline.verbs.model_cli import model_cli
from pipeline.verbs.options import (
    HERE,
    ExportedPlaneOption,
    FormatOption,
    JsonOption,
    PlaneOption,
    ProjectOption,
    ReportedSlideOption,
    ReportOption,
    SeriesOption,
)
from pipeline.verbs.plan.cli import plan_cli
from pipeline.verbs.slide_level.encoder_cli import encoder_cli
from pipeline.verbs.slide_level.features_cli import features_cli
from pipeline.verbs.study.cli import study_cli
from pipeline.verbs.tissue_cli import tissue

cli = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=RESEARCH_USE)
cohort_cli = typer.Typer(no_args_is_help=True, help="Cohort manifests: slides that belong together.")
cli.add_typer(cohort_cli, name="cohort")
cli.add_typer(annotations_cli, name="annotations")
cli.add_typer(encoder_cli, name="encoder")
cli.add_typer(features_cli, name="features")
cli.add_typer(model_cli, name="model")
cli.add_typer(plan_cli, name="plan")
cli.add_typer(study_cli, name="study")
cli.add_typer(log_cli, name="log")

SLIDES = "SLIDE|COHORT.csv"
SlidesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar=SLIDES, help="Slide ids or stores, or one manifest.", show_default="all slides"),
]


@cli.command()
def doctor(
    project: ProjectOption = HERE,
    report: ReportOption = None,
    slide: ReportedSlideOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the installation: versions, what works, what is missing and how to get it."""
    from pipeline.verbs.doctor import run_doctor

    run_doctor(project, as_json=as_json, report=report, slide=slide)


@cli.command()
def info(
    slide: Annotated[str, typer.Argument(help="Id of a slide of the project, or a slide file, folder or store.")],
    project: ProjectOption = HERE,
    series: SeriesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the metadata of a slide or a store."""
    from pipeline.verbs.info import run_info

    run_info(slide, project, series=series, as_json=as_json)


@cohort_cli.command("init")
def cohort_init(
    folder: Annotated[Path, typer.Argument(help="Folder with slides.")],
    out: Annotated[
        Path | None, typer.Option(help="Manifest to write.", show_default="cohort.csv in the project")
    ] = None,
    project: ProjectOption = HERE,
) -> None:
    """Write a manifest of every slide below a folder; fill in patients and splits afterwards."""
    from pipeline.verbs.cohort import run_init

    run_init(folder, out or project / "cohort.csv")


@cohort_cli.command("check")
def cohort_check(
    manifest: Annotated[Path, typer.Argument(help="Cohort manifest (CSV).")],
    models: Annotated[
        list[str] | None, typer.Option("--model", help="Refuse patients that this model was trained on; repeatable.")
    ] = None,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Find what would stop each slide: missing or changed files, no mpp, a duplicate, a patient in two splits."""
    from pipeline.verbs.cohort import run_check

    run_check(manifest, project, models or [], as_json=as_json)


@cohort_cli.command("pseudonymize")
def cohort_pseudonymize(
    manifest: Annotated[Path, typer.Argument(help="Cohort manifest with real names (CSV).")],
    map_path: Annotated[
        Path, typer.Option("--map", help="Names and pseudonyms; created or extended, never in a project.")
    ],
    out: Annotated[Path, typer.Option(help="Manifest to write, for ingest and tile; outside the project as well.")],
    project: Annotated[
        Path | None, typer.Option(help="Folder that must contain neither of them.", file_okay=False)
    ] = None,
    keep_site: Annotated[bool, typer.Option("--keep-site", help="Leave the column `site` as it is.")] = False,
    keep_block: Annotated[
        bool, typer.Option("--keep-block", help="Leave the column `block` as it is, if it holds no accession numbers.")
    ] = False,
) -> None:
    """Give slides, patients, blocks and sites random names; a map kept elsewhere has the originals."""
    from pipeline.verbs.cohort import run_pseudonymize

    run_pseudonymize(manifest, map_path, out, project, keep_site=keep_site, keep_block=keep_block)


@cli.command()
def folds(
    manifest: Annotated[Path, typer.Argument(metavar="COHORT.csv", help="Cohort manifest.")],
    project: ProjectOption = HERE,
    table: Annotated[Path | None, typer.Option(help="Clinical table (CSV) with `patient_id` or `slide_id`.")] = None,
    number: Annotated[int, typer.Option(min=3, help="Number of folds.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same folds.")] = 0,
    by: Annotated[str | None, typer.Option(metavar="COLUMN", help="Classes to balance.")] = None,
    event: Annotated[str | None, typer.Option(metavar="COLUMN", help="Events (1 or 0) to balance.")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write.", show_default="folds.json in the project")] = None,
    as_json: JsonOption = False,
) -> None:
    """Divide the patients of a cohort into folds for cross-validation, balanced by class or event, and by site."""
    from pipeline.verbs.slide_level.folds import FoldsRequest, run_folds

    asked = FoldsRequest(number, seed, table, by, event)
    run_folds(manifest, project, asked, out or project / "folds.json", as_json=as_json)


cli.command("ingest")(ingest)


@cli.command()
def verify(
    slides: SlidesArgument = None,
    project: ProjectOption = HERE,
    source: Annotated[Path | None, typer.Option(help="The slide (or the manifest) to compare with.")] = None,
    series: SeriesOption = None,
    sample_chunks: Annotated[
        str, typer.Option(metavar="N|all", help="Chunks per level decoded and compared; `all` decodes every one.")
    ] = "64",
    as_json: JsonOption = False,
) -> None:
    """Check that stores are as they were written: structure, checksums, decoding, and pixels against the source."""
    from pipeline.verbs.verify import run_verify

    run_verify(slides or [], project, source=source, series=series, chunks=sample_chunks, as_json=as_json)


cli.command("tissue")(tissue)


@cli.command("qc")
def qc(
    slides: SlidesArgument = None,
    project: ProjectOption = HERE,
    plane: PlaneOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score focus, pen marks, folds and bubbles over each slide's tissue, and fit its stain."""
    from pipeline.verbs.qc import run_qc

    run_qc(slides or [], project, plane_um=plane, as_json=as_json)


@cli.command()
def tile(
    slides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar=SLIDES,
            help="Slide ids or stores; or one manifest, with patients, annotations and splits.",
            show_default="all slides",
        ),
    ] = None,
    project: ProjectOption = HERE,
    tile_set: Annotated[str, typer.Option(help="Name of the tile set.")] = "tiles",
    tile_px: Annotated[int | None, typer.Option(help="Side of a tile.", show_default="gemslide.toml, 1024")] = None,
    tile_mpp: Annotated[
        float | None, typer.Option(help="Microns per tile pixel.", show_default="gemslide.toml, 0.5")
    ] = None,
    plane: PlaneOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cut stores into a table of tiles with labels and splits."""
    from pipeline.verbs.tile import run_tile

    changes = {"tile_px": tile_px, "mpp": tile_mpp, "plane_um": plane}
    run_tile(slides or [], project, tile_set=tile_set, changes=changes, as_json=as_json)


@cli.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="Recipe (TOML), or the name of a shipped one.")],
    project: ProjectOption = HERE,
    nproc: Annotated[
        int | None,
        typer.Option(min=1, help="Ranks to start on this machine.", show_default="as many as the recipe needs"),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of each rank; part of the result's bits.", show_default="the recipe's"),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start from scratch; ignore checkpoints of this run.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train a recipe on its tile set; several ranks share one model. A run that died resumes at its last checkpoint."""
    from pipeline.verbs.train import run_train

    run_train(recipe, project, nproc=nproc, threads=threads, fresh=fresh, as_json=as_json)


@cli.command()
def infer(
    model: Annotated[str, typer.Argument(help="Model id, or a package folder.")],
    slides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SLIDE…|COHORT.csv",
            help="Slide ids, stores or slide files, or one manifest; files are ingested first.",
            show_default="all slides",
        ),
    ] = None,
    project: ProjectOption = HERE,
    devices: Annotated[
        str, typer.Option(help="cpu, cuda, or several: cuda:0,cuda:1; cuda:0+cuda:1 spreads the model over both.")
    ] = "auto",
    plane: PlaneOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a model over slides or patients: predictions or attention in the store, GeoJSON, and more beside it."""
    from pipeline.verbs.slide_level.infer_slides import run_any_infer

    run_any_infer(model, slides or [], project, devices=devices, plane_um=plane, as_json=as_json)


@cli.command()
def embed(
    encoder: Annotated[str, typer.Argument(help="Encoder of the project.")],
    slides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SLIDE…|COHORT.csv",
            help="Slide ids, stores or slide files, or one manifest; files are ingested first.",
            show_default="all slides",
        ),
    ] = None,
    project: ProjectOption = HERE,
    devices: Annotated[str, typer.Option(help="cpu, cuda, or several: cuda:0,cuda:1.")] = "auto",
    plane: PlaneOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put an encoder's features of each slide's tissue into its store, for slide-level models."""
    from pipeline.verbs.slide_level.embed import run_embed

    run_embed(encoder, slides or [], project, devices=devices, plane_um=plane, as_json=as_json)


@cli.command("check-invariance")
def check_invariance(
    name: Annotated[str, typer.Argument(help="Model id or package folder, or the name of an encoder of the project.")],
    slide: Annotated[str, typer.Argument(help="Slide id, or store.")],
    project: ProjectOption = HERE,
    devices: Annotated[
        str, typer.Option(help="As for infer; two processes of a single device are compared with one.")
    ] = "auto",
    tiles: Annotated[
        int, typer.Option(min=1, help="Tiles to process each way, or, for slide-level models, to embed again.")
    ] = 64,
    as_json: JsonOption = False,
) -> None:
    """Show that results do not depend on batch size, threads, blocks, the number of devices or the order of tiles."""
    from pipeline.verbs.check_invariance import run_check_invariance

    run_check_invariance(name, slide, project, devices=devices, max_tiles=tiles, as_json=as_json)


@cli.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="Model id; slide-level models of several folds: MODEL,MODEL.")],
    manifest: Annotated[
        Path | None,
        typer.Argument(
            metavar="COHORT.csv",
            help="Manifest of the tile set: labels of slides, outlines of lesions (FROC). Slide-level models need one.",
            show_default="none: labelled tiles only",
        ),
    ] = None,
    project: ProjectOption = HERE,
    tile_set: Annotated[str, typer.Option(help="Tile set with the labels.")] = "tiles",
    split: Annotated[str | None, typer.Option(help="train, val or test.", show_default="gemslide.toml, test")] = None,
    against: Annotated[str | None, typer.Option(help="Id of a second model to compare with.")] = None,
    baselines: Annotated[bool, typer.Option(help="Compare with an untrained network and simpler models.")] = True,
    table: Annotated[Path | None, typer.Option(help="Slide-level: clinical table (CSV) with the targets.")] = None,
    covariates: Annotated[
        str | None, typer.Option(metavar="COLUMN,COLUMN", help="Slide-level: clinical columns to compare with.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare predictions with labels of tiles, slides, lesions, patients; writes HTML, JSON and CSV with intervals."""
    from pipeline.verbs.evaluate import Labelled
    from pipeline.verbs.slide_level.evaluate_slides import run_any_evaluate

    labelled = Labelled(tile_set, split, manifest, table, covariates)
    run_any_evaluate(model, project, labelled, against=against, baselines=baselines, as_json=as_json)


@cli.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="Model id, package folder, run id, or run-record file.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What to compare it with.")],
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show how two models or runs differ, and whether that explains different weights."""
    from pipeline.verbs.compare import run_compare

    run_compare(a, b, project, as_json=as_json)


@cli.command()
def register(
    slides: Annotated[
        list[str] | None,
        typer.Argument(metavar="A B", help="Two slides: A is placed on B.", show_default="with --list, all slides"),
    ] = None,
    project: ProjectOption = HERE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do not save the result.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="Show saved registrations.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the saved registration of A and B.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find where the tissue of one slide is on another, and save it; refused unless it can be trusted."""
    from pipeline.verbs.register import RegisterRequest, run_register

    asked = RegisterRequest(tuple(slides or []), dry_run=dry_run, listing=listing, remove=remove)
    run_register(asked, project, as_json=as_json)


@cli.command()
def export(
    slide: Annotated[str, typer.Argument(metavar="SLIDE_ID|STORE", help="Slide of the project, or a store.")],
    out: Annotated[Path, typer.Argument(help="Copy to write; must not exist yet.")],
    to: FormatOption = None,
    quality: Annotated[
        int | None, typer.Option(min=1, max=100, help="TIFF: JPEG of this quality instead of lossless deflate.")
    ] = None,
    associated: Annotated[bool, typer.Option("--associated", help="Include the kept label and macro.")] = False,
    model: Annotated[str | None, typer.Option(help="DICOM: the model whose predictions are written.")] = None,
    source: Annotated[Path | None, typer.Option(help="DICOM: the slide (file or folder) that they belong to.")] = None,
    plane: ExportedPlaneOption = None,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Write a copy of a slide, or predictions as DICOM, for other programs."""
    from pipeline.verbs.export import Asked, run_export

    run_export(slide, project, Asked(out, to, quality, associated, model, source, plane), as_json=as_json)


@cli.command()
def demo(project: ProjectOption = Path("demo"), as_json: JsonOption = False) -> None:
    """The whole workflow on four slides made from a real photograph: ingest, tile, train, infer, evaluate, embed."""
    from pipeline.verbs.demo import run

    run(project, as_json=as_json)


def _add_verbs_of_other_packages() -> None:
    for entry in sorted(entry_points(group="gemslide.commands"), key=lambda e: e.name):
        verb = entry.load()
        if isinstance(verb, typer.Typer):
            cli.add_typer(verb, name=entry.name)
        else:
            cli.command(entry.name)(verb)


def main() -> None:
    """Entry point of the console script."""
    _add_verbs_of_other_packages()
    cli()

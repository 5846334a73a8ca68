"""`gemslide infer` with a slide-level model: ingest and embed what is missing, then predict each patient or slide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.cohort.manifest import load_cohort
from pipeline.errors import BadManifestError
from pipeline.files import sha256_of
from pipeline.naming.models import find_package
from pipeline.naming.slides import SlideToDo, find_slides_to_do, included_in, manifest_in
from pipeline.naming.sources import SourceNames
from pipeline.project import Project, open_project
from pipeline.run_record import RunRecord, SlideOutcome
from pipeline.settings.config import EmbedConfig, Settings, load_settings
from pipeline.slide_level.package_level import is_slide_model
from pipeline.verbs.cli_output import Reporter, report_errors, say_counts
from pipeline.verbs.infer import at_plane, run_infer
from pipeline.verbs.slide_level.embed import embed_stage
from pipeline.verbs.stages import run_recorded
from training.foundation.model_files import weights_file
from training.foundation.words.counts import counted


def run_any_infer(
    model: str, slides: list[str], project_dir: Path, *, devices: str, plane_um: float | None, as_json: bool
) -> None:
    """Run a model of tiles or a slide-level one, as its package says."""
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, reporter=reporter):
        package, noun = find_package(model, project), ""
        if is_slide_model(package):
            settings = at_plane(load_settings(project.settings_path), plane_um)
            noun = _infer_slides(package, slides, project, settings, reporter, devices)
    if not noun:
        run_infer(model, slides, project_dir, devices=devices, plane_um=plane_um, as_json=as_json)
        return
    say_counts(reporter, noun)
    reporter.finish()


def _infer_slides(
    package: Path, slides: list[str], project: Project, settings: Settings, reporter: Reporter, devices: str
) -> str:
    """Predict patients or slides; an error in one does not stop the others. Returns which: "patient" or "slide".

    Raises:
        GemslideError: the model, the manifest or the devices are at fault.
    """
    todo = find_slides_to_do(slides, project)
    from pipeline.slide_level.stage import PredictUnit, load_model, only_device

    names = (only_device(devices),)
    model = load_model(package, names[0])
    unit = model.config.level if manifest_in(slides) else "slide"
    record = RunRecord("infer", {"model": package.name, "devices": list(names)}, extra={"unit": unit})
    record.inputs.append({"id": package.name, "sha256": sha256_of(weights_file(package))})
    units = _units(slides, todo, model.config.level)
    missing = _without_features(todo, project, model.config.encoder.encoder_id, settings.embed.plane_um)
    if missing:
        encoder = model.config.encoder
        _embed(missing, encoder.encoder_id, _config(settings, encoder), project, settings, reporter, names)
    embedded = {outcome.slide_id: outcome for outcome in reporter.outcomes if not outcome.is_good}
    reporter.outcomes = []
    stages = []
    for name, slide_ids in units.items():
        usable, at_fault = usable_slides(slide_ids, embedded)
        if at_fault is None:
            stages.append(PredictUnit(name, usable, package, project, names[0]))
            continue
        why = at_fault.message
        if unit == "patient":
            why = f"patient {name}: not predicted, because of slide {at_fault.slide_id}: {why}"
        reporter.outcomes.append(replace(at_fault, slide_id=name, message=why))
    blank = sorted(name for name, outcome in embedded.items() if outcome.status == "no_tissue")
    if unit == "patient" and blank:
        reporter.say_notes([f"{counted(len(blank), 'slide')} without tissue left out: {', '.join(blank)}."])
    run_recorded(stages, reporter, record, project)
    return unit


def usable_slides(
    slide_ids: Sequence[str], embedded: Mapping[str, SlideOutcome]
) -> tuple[tuple[str, ...], SlideOutcome | None]:
    """Slides that a unit is predicted from, and what keeps it from being predicted, if anything.

    A slide without tissue has no tiles, as in training: the others are enough. Any other fault may have a remedy.
    """
    faults = [embedded[slide_id] for slide_id in slide_ids if slide_id in embedded]
    usable = tuple(slide_id for slide_id in slide_ids if slide_id not in embedded)
    serious = [fault for fault in faults if fault.status != "no_tissue"]
    return usable, next(iter(serious or (faults if not usable else [])), None)


def _units(typed: Sequence[str], todo: Sequence[SlideToDo], level: str) -> dict[str, list[str]]:
    """Slides by patient or slide. Slides without a manifest are predicted each by itself."""
    manifest = manifest_in(typed)
    if level == "slide" or manifest is None:
        return {slide.slide_id: [slide.slide_id] for slide in todo}
    units: defaultdict[str, list[str]] = defaultdict(list)
    for entry in included_in(load_cohort(manifest)):
        if entry.patient_id is None:
            raise BadManifestError(
                f"{manifest}: slide {entry.slide_id} has no patient_id, but the model predicts patients. Fill in the "
                "column `patient_id`."
            )
        units[entry.patient_id].append(entry.slide_id)
    return dict(units)


def _without_features(
    todo: Sequence[SlideToDo], project: Project, encoder_id: str, plane_um: float | None
) -> list[SlideToDo]:
    """Slides without features of the requested focal plane."""
    from pipeline.embedding.key import is_of_plane
    from pipeline.store.layers.features import list_features

    def has_them(store: Path) -> bool:
        return encoder_id in list_features(store) and is_of_plane(store, encoder_id, plane_um)

    return [slide for slide in todo if not has_them(project.store_path(slide.slide_id))]


def _config(settings: Settings, encoder: object) -> EmbedConfig:
    """`[embed]` with the choice of tiles that the model was trained on."""
    chosen = {key: value for key in ("min_tissue", "overlap") if (value := getattr(encoder, key)) is not None}
    return settings.embed.model_copy(update=chosen)


def _embed(
    missing: Sequence[SlideToDo],
    encoder_id: str,
    config: EmbedConfig,
    project: Project,
    settings: Settings,
    reporter: Reporter,
    devices: tuple[str, ...],
) -> None:
    from pipeline.embedding.rows import find_encoder
    from pipeline.embedding.stage import close_encoder, open_encoder
    from pipeline.slide_level.stage import check_opened

    row_path = find_encoder(encoder_id[:-9], project)
    opened = open_encoder(row_path, devices, config).network
    check_opened(opened, row_path, encoder_id)
    record = RunRecord("embed", {"embed": config.model_dump(mode="json"), "encoder": encoder_id})
    record.inputs.append({"id": encoder_id, "sha256": opened.weights_sha256})
    stages = [embed_stage(slide, row_path, project, settings, devices, config=config) for slide in missing]
    try:
        run_recorded(stages, reporter, record, project, overlapping=devices != ("cpu",))
    finally:
        close_encoder()

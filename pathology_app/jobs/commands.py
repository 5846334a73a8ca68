"""Command lines of the runs that the app starts, from the choices in a form. No text becomes part of one unchecked:
every option is one word `--name=value`, and all positional arguments follow `--`, so no value can become an option;
names are those of things that exist.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pathology_app.jobs.offers import (
    BadRunError,
    SlideFolders,
    SlideSource,
    model_ids,
    recipe_path,
    recipes,
    study_ids,
)
from pathology_app.jobs.record import MAX_ARGUMENTS, Verb
from pipeline.models.launch import ranks_here
from pipeline.naming.slides import MANIFEST_SUFFIXES, included_in
from pipeline.naming.sources import HIDDEN
from pipeline.project import STORE_SUFFIX, Project
from pipeline.slides.suffixes import slide_id_from
from pipeline.study.protocol import PROTOCOL_FILE, load_protocol, study_dir
from training.foundation.words.counts import counted
from training.foundation.words.names import is_name

MAX_WORKERS = 64
MAX_NAMED = 500
"""Slides listed one by one; a manifest can list more."""
MIN_MPP, MAX_MPP = 0.05, 50.0
_DEVICE = r"(cpu|cuda|cuda:\d{1,2})"
_DEVICES = re.compile(rf"auto|{_DEVICE}([,+]{_DEVICE})*")
_COMMON = ("--project=.", "--json")
"""Runs are started in the project's folder, so no command line names it."""


@dataclass(frozen=True)
class Command:
    """A command to run.

    Attributes:
        argv: after `gemslide`.
        shown_argv: the same for a record: without names of slide files, which can identify patients.
        about: the model, recipe or study.
        slides: number of slides to process; None where unknown.
        hidden: slide files and manifests whose names are to stay out of the log.
        kept: ids of the slides in the run's order, which may be parts of those names.
    """

    verb: Verb
    argv: tuple[str, ...]
    shown_argv: tuple[str, ...]
    about: str
    slides: int | None = None
    hidden: tuple[Path, ...] = ()
    kept: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.argv) > MAX_ARGUMENTS or any("\0" in word or "\n" in word for word in self.argv):
            raise BadRunError(
                f"{self.verb}: the command line is too long ({len(self.argv)} words) or has a line break."
            )

    @property
    def text(self) -> str:
        """The command as typed in the project's folder."""
        return shlex.join(["gemslide", *self.argv])


def ingest_command(
    folders: SlideFolders, chosen: Sequence[str], *, workers: int = 1, mpp: float | None = None
) -> Command:
    """Ingest slides, or those of one manifest.

    Args:
        chosen: as `SlideFolders.offered` names them.
        mpp: microns per level-0 pixel for all of them; None: as in each file.

    Raises:
        BadRunError: none or too many, not offered, or numbers out of range. BadManifestError: an invalid manifest.
    """
    paths = [folders.checked(name) for name in chosen]
    manifests = [path for path in paths if path.suffix.lower() in MANIFEST_SUFFIXES]
    if not paths or (manifests and len(paths) > 1) or len(paths) > MAX_NAMED:
        raise BadRunError(f"choose one manifest, or 1 to {MAX_NAMED} slides ({len(paths)} are chosen).")
    _check_workers(workers)
    options = [*_COMMON, f"--workers={workers}", *_mpp_option(mpp)]
    if manifests:
        cohort = folders.checked_manifest(manifests[0])
        ids = [entry.slide_id for entry in included_in(cohort)]
    else:
        ids = [slide_id_from(path) for path in paths]
    typed = [folders.typed(path) for path in paths]
    what = "1 manifest" if manifests else counted(len(paths), "slide")
    return Command(
        verb="ingest",
        argv=("ingest", *options, "--", *typed),
        shown_argv=("ingest", *options, "--", HIDDEN),
        about=what,
        slides=len(ids),
        hidden=tuple(paths),
        kept=tuple(ids),
    )


def ingest_again_command(source: SlideSource, slide_id: str, mpp: float) -> Command:
    """Ingest one slide again, with the microns per pixel that its file does not state.

    Args:
        source: as `SlideFolders.sources_of` finds it.

    Raises:
        BadRunError: the number is out of range, or the slide's id is not a valid one.
    """
    if not is_name(slide_id):
        raise BadRunError(f"slide {slide_id!r:.200}: not a valid slide id.")
    options = [*_COMMON, "--workers=1", f"--slide-id={slide_id}", *_mpp_option(mpp)]
    series = [] if source.series is None else [f"--series={source.series}"]
    hidden_series = [f"--series={HIDDEN}"] if series else []
    return Command(
        verb="ingest",
        argv=("ingest", *options, *series, "--", source.typed),
        shown_argv=("ingest", *options, *hidden_series, "--", HIDDEN),
        about=slide_id,
        slides=1,
        hidden=(source.path,),
        kept=(slide_id,),
    )


def train_command(project: Project, recipe: str, *, nproc: int | None = None, threads: int | None = None) -> Command:
    """Train with one of the project's recipes, or a shipped one.

    Args:
        nproc: ranks; None: as many as the recipe asks for.

    Raises:
        BadRunError: no such recipe, or numbers out of range. BadRecipeError: it asks for too many ranks.
    """
    offered = recipes(project)
    if recipe not in offered:
        raise BadRunError(f"recipe {recipe!r:.200}: not among the project's recipes or the shipped ones.")
    ranks = asked_ranks(project, recipe) if nproc is None else nproc
    _check_workers(ranks, what="ranks")
    options = [*_COMMON, f"--nproc={ranks}"]
    if threads is not None:
        _check_workers(threads, what="threads")
        options.append(f"--threads={threads}")
    argv = ("train", *options, "--", offered[recipe])
    return Command("train", argv, argv, about=Path(recipe).name)


def asked_ranks(project: Project, recipe: str) -> int:
    """Ranks that a recipe asks for.

    Raises:
        BadRecipeError: it cannot be read, or asks for more than may be started unasked.
    """
    return ranks_here(recipe_path(project, recipe))


def infer_command(project: Project, model: str, slides: Sequence[str], *, devices: str = "auto") -> Command:
    """Run a model on slides of the project.

    Args:
        slides: ids; none: all.

    Raises:
        BadRunError: no such model or slide, too many named slides, or invalid devices.
    """
    if model not in model_ids(project):
        raise BadRunError(f"model {model!r:.200}: not in this project.")
    _check_devices(devices)
    known = set(project.slide_ids())
    missing = [slide_id for slide_id in slides if slide_id not in known]
    if missing or len(slides) > MAX_NAMED or not known:
        raise BadRunError(
            f"choose all slides, or 1 to {MAX_NAMED} of the project's {len(known)} "
            f"({counted(len(slides), 'is', 'are')} chosen, "
            f"{counted(len(missing), 'of them is', 'of them are')} not in the project)."
        )
    named = [_unmistakable(slide_id) for slide_id in dict.fromkeys(slides)]
    argv = ("infer", *_COMMON, f"--devices={devices}", "--", model, *named)
    ids = tuple(dict.fromkeys(slides)) or tuple(sorted(known))
    return Command("infer", argv, argv, about=model, slides=len(ids), kept=ids)


def study_command(
    project: Project, study_id: str, *, begin_only: bool = False, workers: int | None = None, devices: str = "cpu"
) -> Command:
    """Freeze a study's protocol; or freeze it if that is not done yet, and work until every slide has ended.

    Workers are started on this computer: people who send jobs to a cluster do so under their own names.

    Raises:
        BadRunError: no such study, or invalid numbers or devices. BadRecipeError: its protocol cannot be read.
    """
    if study_id not in study_ids(project):
        raise BadRunError(f"study {study_id!r:.200}: this project has no protocol of that name in studies/.")
    folder = study_dir(project, study_id)
    cohort = load_protocol(folder / PROTOCOL_FILE).study.cohort
    hidden = (Path(os.path.normpath(folder / cohort)),)  # as the study itself resolves it
    if begin_only:
        argv: tuple[str, ...] = ("study", "begin", _COMMON[0], "--", study_id)
        return Command("study begin", argv, argv, about=study_id, hidden=hidden)
    _check_devices(devices)
    options = [*_COMMON, "--on=local", f"--devices={devices}"]
    if workers is not None:
        _check_workers(workers)
        options.append(f"--workers={workers}")
    argv = ("study", "run", *options, "--", study_id)
    return Command("study run", argv, argv, about=study_id, hidden=hidden)


def _unmistakable(slide_id: str) -> str:
    """A slide's id; its store if the id looks like a manifest's name."""
    is_like_manifest = slide_id.lower().endswith(MANIFEST_SUFFIXES)
    return f"slides/{slide_id}{STORE_SUFFIX}" if is_like_manifest else slide_id


def _mpp_option(mpp: float | None) -> list[str]:
    if mpp is None:
        return []
    if not MIN_MPP <= mpp <= MAX_MPP:
        raise BadRunError(f"{mpp} microns per pixel: give {MIN_MPP} to {MAX_MPP}, or leave it out.")
    return [f"--mpp={mpp:g}"]


def _check_workers(number: int, what: str = "workers") -> None:
    if not 1 <= number <= MAX_WORKERS:
        raise BadRunError(f"{number} {what}: give 1 to {MAX_WORKERS}.")


def _check_devices(devices: str) -> None:
    if not _DEVICES.fullmatch(devices) or not devices.isascii():
        raise BadRunError(f"devices {devices!r:.100}: give auto, cpu, cuda, or several such as cuda:0,cuda:1.")

"""Check that everything a run would read is in an allowed folder, made for every run at the moment it is started."""

from __future__ import annotations

from pathlib import Path

from pathology_app.jobs.commands import Command
from pathology_app.jobs.offers import allowed_folders
from pipeline.cohort.manifest import load_cohort
from pipeline.errors import OutsideFoldersError
from pipeline.naming.slides import MANIFEST_SUFFIXES
from pipeline.project import Project
from pipeline.settings.source_folders import check_source
from training.foundation.words.counts import counted


def check_sources(project: Project, command: Command) -> tuple[str, ...]:
    """Check a run's sources. Returns the folders in which it may read, for its environment.

    Raises:
        OutsideFoldersError: slides, manifests or annotation files of the run are elsewhere.
        GemslideError: a manifest cannot be read, or as `allowed_folders`.
    """
    allowed = allowed_folders(project)
    for path in command.hidden:
        check_source(path, allowed)
        is_manifest = command.verb.startswith("study") or path.suffix.lower() in MANIFEST_SUFFIXES
        if not is_manifest:
            continue
        cohort = load_cohort(path)
        named = (
            named
            for entry in cohort.entries
            for named in (cohort.slide_path(entry), cohort.annotations_path(entry))
            if named is not None and not entry.exclude
        )
        outside = sum(not _is_within(source, allowed) for source in named)
        if outside:
            files = "of its slides and annotation files"
            raise OutsideFoldersError(
                f"{path.name}: {counted(outside, f'{files} is', f'{files} are')} outside the folders that may be "
                "ingested from in the web app. Start this on the command line, or ask the app's operator to name "
                "their folder in GEMSLIDE_SLIDES or in the site file (docs/how_to/runs.md)."
            )
    return allowed


def _is_within(path: Path, allowed: tuple[str, ...]) -> bool:
    try:
        check_source(path, allowed)
    except OutsideFoldersError:
        return False
    return True

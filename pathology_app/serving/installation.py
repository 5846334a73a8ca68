"""Check that the installation's settings for a project can be used, when the app starts rather than when needed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from pathology_app.jobs.offers import allowed_folders
from pathology_app.people.account_file import check_account_path
from pipeline.ledger import ledger_url
from pipeline.project import Project
from pipeline.settings.site import WITHIN_VARIABLE, slide_folders, trusted_proxies


def check_installation(project: Project) -> None:
    """Refuse to serve a project that leads out of itself, or settings of the installation that cannot be used.

    Raises:
        BadRecipeError: settings of the installation, or a project that names its ledger.
        OutsideFoldersError: a link leads out of the project.
    """
    slide_folders()
    trusted_proxies()
    ledger_url(project)
    check_account_path(project.root)
    for path in _links(project):
        project.inside(path)


def confine(project: Project) -> None:
    """Restrict this process and its runs to slides in the project and the installation's folders.

    Raises:
        GemslideError: as `check_installation`.
    """
    check_installation(project)
    os.environ[WITHIN_VARIABLE] = json.dumps(allowed_folders(project))


def _links(project: Project) -> Iterator[Path]:
    """Links in the project's folders, to what the app reads or writes there."""
    root = project.root
    folders = [root, root / "studies", project.slides_dir, project.models_dir, project.tiles_dir, project.runs_dir]
    for folder in [*folders, project.jobs_dir, project.results_dir, project.cache_dir, project.checkpoints_dir]:
        if folder.is_symlink() or not folder.is_dir():
            continue
        with os.scandir(folder) as entries:
            yield from (Path(entry.path) for entry in entries if entry.is_symlink() and not _is_for_slides(entry, root))


def _is_for_slides(entry: os.DirEntry[str], root: Path) -> bool:
    """Whether it is a folder of slides besides the project's own: its target is checked when it is read."""
    return os.path.dirname(entry.path) == str(root) and entry.name not in _OWN


_OWN = (
    "slides", "tiles", "models", "checkpoints", "results", "runs", "cache", "studies", "recipes", "gemslide.toml",
    "gemslide.db", "accounts.toml",
)  # fmt: skip

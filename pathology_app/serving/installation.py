"""Check that the installation's settings for a project can be used, when the app starts rather than when needed."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pathology_app.jobs.offers import allowed_folders
from pathology_app.people.account_file import check_account_path
from pipeline.ledger import ledger_url
from pipeline.project import Project
from pipeline.settings.site import WITHIN_VARIABLE, link_folders, slide_folders, trusted_proxies
from pipeline.settings.source_folders import entries_below


def check_installation(project: Project) -> None:
    """Refuse to serve a project that leads out of itself, or settings of the installation that cannot be used.

    Raises:
        BadRecipeError: settings of the installation, or a project that names its ledger.
        UnreadableError: the project's bucket cannot be read.
        OutsideFoldersError: a link leads out of the project.
    """
    slide_folders()
    trusted_proxies()
    ledger_url(project)
    project.slide_ids()  # also those in its bucket, if the installation names one
    check_account_path(project.root)
    _check_links(project)


def confine(project: Project) -> None:
    """Restrict this process and its runs to slides in the project and the installation's folders.

    Raises:
        GemslideError: as `check_installation`.
    """
    check_installation(project)
    os.environ[WITHIN_VARIABLE] = json.dumps(allowed_folders(project))


def _check_links(project: Project) -> None:
    """Check every link at and below what the app reads or writes in a project; other folders hold slides, whose links
    are checked when they are read.

    Raises:
        OutsideFoldersError: a link leads out of the project, also one that another link leads to.
    """
    own = [project.root / name for name in _OWN]
    for path in own:
        project.inside(path)
    # What the operator has allowed as a whole is not searched: it may be of any size.
    for entry in entries_below(own, skip=link_folders(project.root)):
        if entry.is_symlink():
            project.inside(Path(entry.path))


_OWN = (
    "slides", "tiles", "models", "checkpoints", "results", "runs", "cache", "studies", "recipes", "gemslide.toml",
    "gemslide.db", "accounts.toml",
)  # fmt: skip

"""Permission to change annotations of others."""

from __future__ import annotations

from sqlalchemy import exists, select

from pipeline.ledger import Ledger
from pipeline.ledger.tables import slide
from pipeline.project import Project
from pipeline.settings.config import load_settings


def only_own(project: Project, ledger: Ledger | None, slide_id: str) -> bool:
    """Whether people may change only their own annotations of a slide: as the project is set, else if a study has it.

    Raises:
        BadRecipeError: the settings. GemslideError: the ledger is unavailable.
    """
    setting = load_settings(project.settings_path).annotations.change_others
    if setting != "auto":
        return setting == "never"
    if ledger is None:
        return False
    with ledger.database.read() as connection:
        in_study = connection.execute(select(exists().where(slide.c.slide_id == slide_id))).scalar_one()
    return bool(in_study)

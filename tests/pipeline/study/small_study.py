"""A small real study: slides, a model, a protocol; for tests with real workers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from pipeline.ledger.database import Database
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.opening import open_ledger
from pipeline.ledger.tables import audit
from pipeline.project import Project
from pipeline.study.work.study import Study, open_study
from tests.small_trained_project import TISSUE_TOML, make_slide

NAMES = ("a", "b", "c", "d")


def make_project(small_project: Any, folder: Path, *, slides: tuple[str, ...] = NAMES, settings: str = "") -> Project:
    """Make models, and a cohort of slides, a file that is no slide, and a slide to exclude."""
    shutil.copytree(small_project.project.models_dir, folder / "p" / "models")
    (folder / "p" / "gemslide.toml").write_text(TISSUE_TOML + settings)
    for seed, name in enumerate(slides):
        make_slide(folder / f"{name}.tiff", seed)
    (folder / "bad.tiff").write_bytes(b"II*\0 and nothing more")
    rows = [f"{name}.tiff,{name},patient-{name}," for name in (*slides, "bad")]
    manifest = "\n".join(["path,slide_id,patient_id,exclude", *rows, "a.tiff,twice,patient-a,scanned twice"])
    (folder / "cohort.csv").write_text(manifest + "\n")
    return Project(folder / "p")


def with_protocol(project: Project, small_project: Any, gemslide: Any, *, lease_s: int = 5) -> Project:
    """Write the protocol of a study "s" that is about to begin."""
    cohort = project.root.parent / "cohort.csv"
    arguments = ("--cohort", cohort, "--model", small_project.model_id, "--question", "How good is it?")
    made = gemslide("study", "init", "s", *arguments, "--project", project.root)
    assert made.code == 0, made.err
    protocol = project.root / "studies" / "s" / "study.toml"
    protocol.write_text(protocol.read_text() + f"\n[patience]\nlease_s = {lease_s}\nbackoff_s = 0\n")
    return project


def ledger_of(project: Project) -> Ledger:
    return Ledger(Database(f"sqlite:///{project.root}/gemslide.db"))


@contextmanager
def copied_study(project: Project, folder: Path) -> Iterator[Study]:
    """The study "s" in a copy of a project, which a test may change, and of the slides beside it."""
    shutil.copytree(project.root.parent, folder / "copy", symlinks=True)
    copied = Project(folder / "copy" / project.root.name)
    with ledger_of(copied) as ledger:
        yield open_study(copied, "s", ledger)


def status(gemslide: Any, project: Project) -> dict[str, Any]:
    return json.loads(gemslide("study", "status", "s", "--project", project.root, "--json").out)  # type: ignore[no-any-return]


def entries(project: Project, action: str) -> list[str]:
    """Subjects of all entries of one action in the study's log."""
    with open_ledger(project) as ledger, ledger.database.read() as connection:
        return [str(subject) for subject in connection.scalars(select(audit.c.subject).where(audit.c.action == action))]


def tasks_done_twice(project: Project) -> list[str]:
    done = select(audit.c.subject).where(audit.c.action == "task done").group_by(audit.c.subject)
    with open_ledger(project) as ledger, ledger.database.read() as connection:
        return [str(subject) for subject in connection.scalars(done.having(func.count() > 1))]

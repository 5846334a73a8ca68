"""The ledger of a finished study with any number of slides, none of which exists."""

from __future__ import annotations

import random
from pathlib import Path

from sqlalchemy import bindparam, update

from pipeline.cohort.manifest import load_cohort
from pipeline.files import sha256_of
from pipeline.ledger import Ledger
from pipeline.ledger.chain import canonical
from pipeline.ledger.tables import slide, task
from pipeline.project import Project
from pipeline.study import Study
from pipeline.study.protocol import Protocol, study_dir
from pipeline.study.work.study import slides_of

STUDY, MODEL = "s", "model-00000000"
SITES, SCANNERS = 12, 5
HEADER = "path,slide_id,patient_id,site,scanner,label"
_ENDPOINT = {"model": MODEL, "class_name": "tumour"}
PROTOCOL = Protocol.model_validate(
    {
        "study": {"title": "A large study", "question": "How long does its report take?", "cohort": "cohort.csv"},
        "models": [{"id": MODEL, "sha256": "0" * 64, "config_sha256": "0" * 64}],
        "endpoints": [
            {"name": "area by slide", "measure": "auc", "level": "slide", **_ENDPOINT},
            {"name": "area by patient", "measure": "auc", "level": "patient", **_ENDPOINT},
            {"name": "sensitivity", "measure": "sensitivity", "level": "slide", **_ENDPOINT},
            {"name": "specificity", "measure": "specificity", "level": "slide", **_ENDPOINT},
        ],
    }
)
"""Protocol with all defaults: 2,000 resamples of patients per interval, over all cases and by site and scanner."""


def begin(ledger: Ledger, folder: Path, slides: int) -> Study:
    """Write a manifest and begin the study: two slides of each patient, a fifth of the patients with tumour."""
    project = Project(folder)
    at = study_dir(project, STUDY)
    at.mkdir(parents=True)
    rows = [
        f"/slides/{n}.svs,S-{n:06},P-{n // 2:06},site {n % SITES},scanner {n % SCANNERS},{_label(n)}"
        for n in range(slides)
    ]
    manifest = at / PROTOCOL.study.cohort
    manifest.write_text("\n".join([HEADER, *rows]) + "\n")
    sha256 = sha256_of(manifest)
    entered = slides_of(load_cohort(manifest))
    ledger.begin(STUDY, PROTOCOL.frozen(), sha256, entered, PROTOCOL.stages, actor="benchmark")
    return Study(project, STUDY, ledger, PROTOCOL, sha256)


def end_all(ledger: Ledger, slides: int, *, unreadable_in: int = 50) -> None:
    """End every slide, a share of them as unreadable. Written by SQL past the log, which does not verify."""
    drawn = random.Random(1)
    ended = {"state": "unreadable", "code": "corrupt_tile", "message": "tile (3, 4) of level 0 cannot be decoded."}
    with ledger.database.write() as connection:
        connection.execute(update(slide).values(state="done", source_sha256="a" * 64, ended_utc="2026-01-01T00:00:00Z"))
        connection.execute(update(slide).where(slide.c.ordinal % unreadable_in == 0).values(ended))
        connection.execute(update(task).values(state="done", attempts=1, seconds=10.0, output_sha256="b" * 64))
        connection.execute(update(task).where(task.c.stage == "ingest").values(measures=canonical({"scanner": None})))
        quality = canonical({"verdict": "ok", "reasons": [], "scores": {}})
        connection.execute(update(task).where(task.c.stage == "qc").values(measures=quality))
        is_one = (task.c.study_id == STUDY, task.c.slide_id == bindparam("one"), task.c.position == 2)
        read = (n for n in range(slides) if n % unreadable_in)
        scores = [{"one": f"S-{n:06}", "said": canonical(_scores(n, drawn))} for n in read]
        connection.execute(update(task).where(*is_one).values(measures=bindparam("said")), scores)


def _label(number: int) -> str:
    return "tumour" if number // 2 % 5 == 0 else "none"


def _scores(number: int, drawn: random.Random) -> dict[str, object]:
    """Scores as stored by `pipeline/study/stages/`."""
    tumour = round(min(1.0, max(0.0, drawn.gauss(0.6 if _label(number) == "tumour" else 0.4, 0.2))), 6)
    values = [round(1 - tumour, 6), tumour]
    return {"classes": ["none", "tumour"], "scores": {"max": values, "mean": values, "top_decile": values}, "cells": 99}

"""A project whose ledger has a study with slides in every state; no slide was really processed."""

from __future__ import annotations

from pathlib import Path

from pipeline.ledger.ledger import Ledger, NewSlide
from pipeline.ledger.opening import open_ledger
from pipeline.project import Project
from pipeline.study.work.leases import Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import Owner

STUDY = "sites"
STAGES = ("ingest", "qc", "infer demo-0a1b2c3d")
PROTOCOL = {"study": {"title": "Three sites", "question": "Does the model find tumour?"}}
DAMAGED = "slide {}: tile (3, 4) of level 0 cannot be decoded. Looked in /mnt/scans/{}.svs."
HOST = "node-1"


def make_study(root: Path, *, slides: int = 7) -> None:
    """S-001 is done, S-002 and S-003 are unreadable, S-004 failed with another code, a worker has S-005; S-006 is
    excluded and the others wait."""
    names = [f"S-{number:03d}" for number in range(1, slides + 1)]
    with open_ledger(Project(root)) as ledger:
        new = [NewSlide(name, "Lund", excluded="scanned twice" if name == "S-006" else None) for name in names]
        ledger.begin(STUDY, PROTOCOL, "0" * 64, new, STAGES, actor="ada")
        mine = worker(ledger)
        for _ in STAGES:
            mine.finish(take(mine), Ended("done", seconds=60, output_sha256="ab" * 32, source_sha256="cd" * 32))
        for name in ("S-002", "S-003"):
            mine.finish(take(mine), Ended("unreadable", "corrupt_tile", DAMAGED.format(name, name), 3))
        mine.finish(take(mine), Ended("failed", "internal_error", "slide S-004: gemslide itself failed.", 2))
        take(mine)


def worker(ledger: Ledger) -> Leases:
    owner = Owner(HOST, "8f1c7c1e-5a2b-4c34-9d55-0d6a8a2c3b00-4026531836", 4123, "77")
    return Leases(ledger, owner, Limits(), actor=f"worker {HOST} 4123")


def take(leases: Leases, study_id: str = STUDY):
    lease = leases.take(study_id)
    assert lease is not None
    return lease

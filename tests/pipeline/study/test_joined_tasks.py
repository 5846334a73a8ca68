"""Tasks that need all slides of a patient wait for these, and are done one at a time; on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import update

from pipeline.ledger.ledger import Ledger, NewSlide
from pipeline.ledger.tables import study
from pipeline.study.proof.verify import verify_log
from pipeline.study.work.leases import Ended, Lease, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import Owner
from pipeline.study.work.patients import Patients

PREDICT = "predict m-00000000"
STAGES = ("ingest", PREDICT)
OF_PATIENT = {"p-1": ("S-1", "S-2", "S-3"), "p-2": ("S-4",)}
PATIENTS = Patients(
    frozenset({PREDICT}),
    frozenset({PREDICT}),
    {slide_id: patient for patient, slides in OF_PATIENT.items() for slide_id in slides},
    OF_PATIENT,
)
FAR = Owner("elsewhere", "boot-1", 7, "1")


@pytest.fixture
def begun(ledger: Ledger) -> Ledger:
    slides = [NewSlide(slide_id) for own in OF_PATIENT.values() for slide_id in own]
    ledger.begin("s", {}, "0" * 64, slides, STAGES, actor="ada")
    return ledger


def worker(ledger: Ledger, version: int | None = None) -> Leases:
    return Leases(ledger, FAR, Limits(), actor="worker", patients=replace(PATIENTS, version=version))


def ingest(mine: Leases, *ended: str) -> None:
    """Do all first tasks; those of some slides fail."""
    leases: list[Lease] = []
    while (lease := mine.take("s")) is not None:
        leases.append(lease)
    for lease in leases:
        mine.finish(lease, Ended("unreadable" if lease.slide_id in ended else "done"))


def states(ledger: Ledger) -> dict[str, str]:
    return {row.slide_id: row.state for row in ledger.tasks("s", "S-1", "S-2", "S-3", "S-4") if row.stage == PREDICT}


def test_it_waits_until_the_last_slide_has_come_as_far(begun):
    mine = worker(begun)
    leases = [lease for _ in range(4) if (lease := mine.take("s"))]
    for lease in leases[:2]:
        mine.finish(lease, Ended("done"))
    assert mine.free("s") == 0
    assert mine.take("s") is None
    mine.finish(leases[2], Ended("done"))
    assert mine.free("s") == 1
    assert states(begun) == {"S-1": "ready", "S-2": "blocked", "S-3": "blocked", "S-4": "blocked"}


def test_one_of_a_patient_at_a_time_and_all_in_the_end(begun):
    mine = worker(begun)
    ingest(mine)
    done = []
    while mine.free("s"):
        leases = [lease for _ in range(4) if (lease := mine.take("s"))]
        assert mine.free("s") == 0, "while one is held"
        done.append([lease.slide_id for lease in leases])
        for lease in leases:
            mine.finish(lease, Ended("done"))
    assert done == [["S-1", "S-4"], ["S-2"], ["S-3"]]
    assert begun.counts("s").is_over
    assert not verify_log(begun.database, "s").findings


def test_a_slide_that_ended_is_not_waited_for(begun):
    mine = worker(begun)
    ingest(mine, "S-1")
    assert mine.free("s") == 2
    assert states(begun) == {"S-1": "ended", "S-2": "ready", "S-3": "blocked", "S-4": "ready"}


def test_workers_that_look_at_the_same_moment_make_one_ready(begun):
    ingest(worker(begun))
    with ThreadPoolExecutor(4) as pool:
        freed = list(pool.map(lambda mine: mine.free("s"), [worker(begun) for _ in range(4)]))
    assert sum(freed) == 2
    assert sorted(states(begun).values()) == ["blocked", "blocked", "ready", "ready"]
    assert not verify_log(begun.database, "s").findings


def test_a_worker_of_another_version_of_the_protocol_is_given_no_task_and_frees_none(begun):
    ingest(worker(begun, version=1))
    with begun.database.write() as connection:
        connection.execute(update(study).values(version=2))
    assert worker(begun, version=1).free("s") == 0, "it knows other slides of the patient"
    assert worker(begun, version=2).free("s") == 2
    assert worker(begun, version=1).take("s") is None
    assert worker(begun, version=2).take("s") is not None

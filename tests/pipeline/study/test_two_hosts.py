"""Two hosts work on one study, and one loses its network for a while: Linux namespaces with virtual cables."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import select

from pipeline.ledger.ledger import Ledger
from pipeline.ledger.opening import open_ledger
from pipeline.ledger.tables import audit
from pipeline.study.proof.verify import verify_log
from pipeline.study.starting.local_pool import worker_command
from pipeline.study.work.owner import Owner
from pipeline.study.work.study import begin_study
from tests.namespaces import Host, needs_namespaces
from tests.pipeline.study.small_study import entries, make_project, status, tasks_done_twice, with_protocol
from tests.postgres import Postgres

LEASE_S = 3


@contextmanager
def hosts(*names: str) -> Iterator[list[Host]]:
    made = []
    try:
        for name in names:
            made.append(Host(name))
        yield made
    finally:
        for host in made:
            host.end()


def wait_for(what: Callable[[], object], *processes: subprocess.Popen[str], seconds: float = 120) -> object:
    give_up = time.monotonic() + seconds
    while not (result := what()):
        for process in processes:
            assert process.poll() is None, process.communicate()
        assert time.monotonic() < give_up
        time.sleep(0.02)
    return result


def held_by(ledger: Ledger, host: str) -> list[str]:
    """Tasks held by a host's workers."""
    rows = [row for name in ("a", "b", "bad") for row in ledger.tasks("s", name) if row.state == "leased"]
    return [f"task {row.slide_id}/{row.stage}" for row in rows if (Owner.parse(row.owner) or OTHER).host == host]


OTHER = Owner("", "", 0, "")


def actors(ledger: Ledger, action: str, subject: str) -> list[str]:
    """Hosts whose workers did this to a task."""
    chosen = select(audit.c.actor).where(audit.c.action == action, audit.c.subject == subject)
    with ledger.database.read() as connection:
        return [actor.split()[1] for actor in connection.scalars(chosen)]


@needs_namespaces
@pytest.mark.prove
@pytest.mark.timeout(600)
def test_a_host_that_loses_its_network_loses_its_task_and_its_late_result_is_refused(
    small_project, gemslide, tmp_path_factory, tmp_path, monkeypatch, request
):
    project = with_protocol(
        make_project(small_project, tmp_path, slides=("a", "b")), small_project, gemslide, lease_s=LEASE_S
    )
    with hosts("database", "host-a", "host-b") as (database, host_a, host_b):
        database.join(host_a, "cable-a", ("10.77.1.1", "10.77.1.2"))
        database.join(host_b, "cable-b", ("10.77.2.1", "10.77.2.2"))
        server = Postgres(tmp_path_factory.mktemp("pg-far"), net="10.77.0.0/16", inside=database.inside)
        request.addfinalizer(server.end)
        by_socket = f"postgresql://postgres@:{server.port}/postgres?host={server.folder}"
        monkeypatch.setenv("GEMSLIDE_LEDGER", by_socket)
        command = worker_command("s", str(project.root), "cpu")
        with open_ledger(project) as ledger:
            begin_study(project, "s", ledger, actor="ada")
            first = host_a.start(command, GEMSLIDE_LEDGER=server.url("postgres", host="10.77.1.1"))
            wait_for(lambda: held_by(ledger, "host-a"), first)
            database.set_link("cable-a", "down")
            second = host_b.start(command, GEMSLIDE_LEDGER=server.url("postgres", host="10.77.2.1"))
            wait_for(lambda: ledger.counts("s").is_over, first)
            database.set_link("cable-a", "up")
            errors = [worker.communicate(timeout=180)[1] for worker in (second, first)]
            assert (first.returncode, second.returncode) == (0, 0), errors
            check(project, ledger, gemslide)


def check(project, ledger: Ledger, gemslide) -> None:
    (lost,) = entries(project, "lease lapsed")
    states = {state: number for state, number in status(gemslide, project)["slides"].items() if number}
    assert states == {"done": 2, "unreadable": 1, "excluded": 1}
    assert tasks_done_twice(project) == []
    assert actors(ledger, "task taken", lost) == ["host-a", "host-b"]
    assert actors(ledger, "lease lapsed", lost) == ["host-b"]
    assert actors(ledger, "task done", lost) == ["host-b"]
    assert entries(project, "late result refused") == [lost]
    assert actors(ledger, "late result refused", lost) == ["host-a"]
    assert verify_log(ledger.database, "s").findings == ()

"""A run record states how the run ended in every case; pipeline and training write the same record."""

import json
import signal
import subprocess
import sys

import pytest

from pipeline.errors import CorruptTileError
from pipeline.run_record import RunRecord as SlidesRecord
from pipeline.run_record import SlideOutcome
from tests.contracts.test_folder_rules import SOURCES
from training.engine import StepResult
from training.foundation import run_record
from training.foundation.run_record import RUN_ID_VARIABLE, RunRecord, is_run_id, recorded, versions_of
from training.run.log import run_log

COMMON = {"run_id", "verb", "settings", "inputs", "outputs", "versions", "host", "seconds", "outcome"}


def only_record(folder):
    (path,) = (folder / "runs").glob("*.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "done"),
        (CorruptTileError("a tile"), "corrupt_tile"),
        (KeyboardInterrupt(), "interrupted"),
        (RuntimeError("a mistake of ours"), "failed"),
    ],
)
@pytest.mark.parametrize("kind", [RunRecord, SlidesRecord])
def test_the_outcome_is_how_the_run_ended(tmp_path, kind, error, outcome):
    def run():
        with recorded(kind("verb", {"a": 1}), tmp_path / "runs") as record, record.phase("work"):
            record.outputs.append("x")
            if error:
                raise error

    if error:
        with pytest.raises(type(error)):
            run()
    else:
        run()

    written = only_record(tmp_path)
    assert written["outcome"] == outcome
    assert written["outputs"] == ["x"]
    assert written["seconds"]["work"] >= 0
    assert written.keys() >= COMMON


def test_a_slide_that_was_not_done_makes_a_run_failed_and_its_message_is_not_kept(tmp_path):
    with recorded(SlidesRecord("ingest", {}), tmp_path / "runs") as record:
        record.slides.append(SlideOutcome("a", "refused", code="unreadable", message="Jane Doe.svs"))

    written = only_record(tmp_path)
    assert written["outcome"] == "failed"
    assert written["slides"] == [
        {"slide_id": "a", "status": "refused", "code": "unreadable", "output": None, "seconds": 0.0}
    ]
    assert written.keys() == COMMON | {"slides"}


def test_a_training_run_that_fails_has_its_code_and_its_epochs(tmp_path):
    def train():
        with run_log(tmp_path, settings={"a": 1}, inputs=[{"id": "t", "sha256": "0"}], num_steps=2) as log:
            log.step(0, StepResult(1.0, (1.0,), 0.5), lr=0.1, amount=4, unit="tile", seconds=0.5, memory=2**30)
            line = {"epoch": 1, "step": 0, "train_loss": 1.0, "loss": 2.0}
            log.epoch(line, {"loss": 2.0}, seconds=0.25, images={})
            raise CorruptTileError("a tile")

    with pytest.raises(CorruptTileError):
        train()

    record = only_record(tmp_path)
    assert record["outcome"] == "corrupt_tile"
    assert record["epochs"] == [{"epoch": 1, "step": 0, "train_loss": 1.0, "loss": 2.0}]
    assert record["seconds"].keys() == {"train", "validate", "total"}
    assert (record["seconds"]["train"], record["seconds"]["validate"]) == (0.5, 0.25)
    assert record.keys() == COMMON | {"epochs"}


@pytest.mark.parametrize("text", ["Not for diagnosis.", "TimeRemainingColumn()", ".prctl(", "difflib.", "fallocate("])
def test_what_both_rooms_need_is_written_once(text):
    assert len([path for path in SOURCES if text in path.read_text(encoding="utf-8")]) == 1


def test_versions_are_read_once_in_a_process(monkeypatch):
    requested = []
    monkeypatch.setattr(run_record, "version", lambda name: requested.append(name) or "1.2")
    for _ in range(2):
        versions = versions_of(["a-package"])
        assert versions.pop("a-package") == "1.2"  # the returned record belongs to the caller
    assert requested == ["a-package"]


def test_a_run_has_the_name_that_its_starter_gave_it_once(monkeypatch):
    given = "20260102T030405Z-abcdef"
    monkeypatch.setenv(RUN_ID_VARIABLE, given)

    assert RunRecord("train", {}).run_id == given
    assert RunRecord("train", {}).run_id != given


@pytest.mark.parametrize("name", ["../x", "", "20260102T030405Z-ABCDEF", "20260102T030405Z-abcdef\n"])
def test_a_name_that_no_run_can_have_is_not_taken(monkeypatch, name):
    monkeypatch.setenv(RUN_ID_VARIABLE, name)

    assert is_run_id(RunRecord("train", {}).run_id)


ASKED_TO_STOP = """
import os, signal, sys, threading, time
from pathlib import Path
from training.foundation.errors import UnreadableError
from training.foundation.run_record import RunRecord, recorded

signal.signal(signal.SIGTERM, signal.default_int_handler)
is_ending, is_over = threading.Event(), threading.Event()

def ask():
    is_ending.wait()
    while not is_over.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(float(sys.argv[2]))

asking = threading.Thread(target=ask)
asking.start()
try:
    with recorded(RunRecord("train", {}), Path(sys.argv[1])):
        is_ending.set()
        raise UnreadableError("a disk")
except BaseException:
    pass
finally:
    is_over.set()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    asking.join()
"""
"""A run that ends with an error, and is asked to stop again and again meanwhile."""


@pytest.mark.parametrize("pause_s", [0, 1e-4, 3e-4, 1e-3])
def test_a_failing_run_that_is_asked_to_stop_meanwhile_leaves_its_record(tmp_path, pause_s):
    for _ in range(4):
        subprocess.run(
            [sys.executable, "-c", ASKED_TO_STOP, str(tmp_path / "runs"), str(pause_s)],
            check=False,
            capture_output=True,
        )

    records = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*.json")]
    assert len(records) == 4
    assert {record["outcome"] for record in records} <= {"unreadable", "interrupted"}
    assert len(list((tmp_path / "runs").iterdir())) == 4  # no temporary is left


def test_a_request_to_stop_while_a_good_record_is_written_stops_the_program_afterwards(tmp_path, monkeypatch):
    before = RunRecord.as_dict

    def asked(self, outcome):
        signal.raise_signal(signal.SIGINT)
        return before(self, outcome)

    monkeypatch.setattr(RunRecord, "as_dict", asked)
    with pytest.raises(KeyboardInterrupt), recorded(RunRecord("verb", {}), tmp_path / "runs"):
        pass

    assert only_record(tmp_path)["outcome"] == "done"

"""Training curves, read from a growing TensorBoard file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pathology_app.jobs import curves as module
from pathology_app.jobs.curves import CurvesFile, epochs, read_curves, thinned
from pipeline.project import Project
from training.engine import StepResult
from training.run.event_file import EventFile
from training.run.log import run_log

RUN = "20260101T000000Z-abcdef"


@pytest.fixture
def events(tmp_path: Path) -> Iterator[EventFile]:
    file = EventFile(tmp_path / "runs" / "tensorboard" / RUN)
    yield file
    file.close()


def path_of(root: Path) -> Path:
    (path,) = (root / "runs" / "tensorboard" / RUN).iterdir()
    return path


def test_a_training_says_how_far_it_is_while_it_goes_on(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with run_log(tmp_path, settings={}, inputs=[], num_steps=10) as log:
        for step in range(4):
            loss = 1 / (step + 1)
            log.step(step, StepResult(loss, (loss,), 1.0), lr=0.1, amount=4, unit="tile", seconds=0.1, memory=2**30)
        curves = read_curves(project, log.run_id)
        assert curves is not None
        assert (curves.num_steps, curves.steps_done) == (10, 4)
        assert curves.left_s is not None
        assert [step for step, _ in curves.points["train/loss"]] == [0, 1, 2, 3]
        metrics = {"loss": 0.25, "accuracy": 0.75}
        log.epoch({"epoch": 1, "step": 4, "train_loss": 0.5, **metrics}, metrics, seconds=0.1, images={})
        curves = read_curves(project, log.run_id)
        assert curves is not None
        assert epochs(curves) == [{"step": 5, "train/epoch_loss": 0.5, "val/loss": 0.25, "val/accuracy": 0.75}]


def test_a_record_that_is_half_written_is_read_when_it_is_whole(events: EventFile, tmp_path: Path) -> None:
    events.scalar("train/loss", 0.5, 0)
    whole = path_of(tmp_path).read_bytes()
    events.scalar("train/loss", 0.25, 1)
    more = path_of(tmp_path).read_bytes()
    copy = tmp_path / "copy"
    copy.write_bytes(more[: len(whole) + 20])
    reader = CurvesFile(copy)
    assert reader.read().points["train/loss"] == [(0, 0.5)]
    copy.write_bytes(more)
    assert reader.read().points["train/loss"] == [(0, 0.5), (1, 0.25)]


def test_images_are_skipped_and_infinite_values_are_no_points(events: EventFile, tmp_path: Path) -> None:
    events.image("val/tiles", np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8), 0)
    events.scalar("train/loss", float("inf"), 0)
    events.scalar("train/loss", 0.5, 1)
    assert CurvesFile(path_of(tmp_path)).read().points == {"train/loss": [(1, 0.5)]}


@pytest.mark.parametrize(
    "damage", [b"", b"\xff" * 8, struct.pack("<QI", 2**63, 0), struct.pack("<QI", 5, 0) + b"\xff" * 9]
)
def test_a_damaged_file_is_curves_without_more_points(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "file").write_bytes(damage)
    curves = CurvesFile(tmp_path / "file").read()
    assert curves.points == {}
    assert curves.is_whole


def test_a_long_file_takes_several_looks(events: EventFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_BYTES", 1000)
    monkeypatch.setattr(module, "MAX_POINTS", 100)
    for step in range(500):
        events.scalar("train/loss", 1.0, step)
    reader = CurvesFile(path_of(tmp_path))
    assert not reader.read().is_whole
    while not (curves := reader.read()).is_whole:
        pass
    points = curves.points["train/loss"]
    assert len(points) <= 100
    assert (points[0][0], points[-1][0]) == (0, 499)


def test_no_run_has_no_curves(tmp_path: Path) -> None:
    assert read_curves(Project(tmp_path), RUN) is None
    assert read_curves(Project(tmp_path), "../..") is None


def test_thinning_keeps_the_mean() -> None:
    points = [(step, float(step % 2)) for step in range(1000)]
    few = thinned(points, 10)
    assert len(few) == 10
    assert {value for _, value in few} == {0.5}
    assert thinned(points[:5], 10) == points[:5]

"""Checkpoints are complete or absent, and damage is found before a run resumes from it."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from tests.small_disk import small_disk
from training.foundation.errors import DiskFullError, UnreadableError
from training.run.checkpoint import MANIFEST, Checkpoints, forget, latest, read_checkpoint
from training.run.state import RunState

DECIDES, ARITHMETIC = {"model": {"depth": 11}}, {"threads": 1}


class Threads:
    """Ranks that are threads: `share` synchronises all of them."""

    def __init__(self, num_ranks):
        self._values, self._barrier = [None] * num_ranks, Barrier(num_ranks, timeout=60)

    def rank(self, rank):
        threads = self

        class One:
            def share(self, value, *, during):
                threads._values[rank] = value
                threads._barrier.wait()
                everybody = list(threads._values)
                threads._barrier.wait()
                return everybody

        return One()


def tensors_of(rank, steps_done):
    return {f"weight/{rank}.w": torch.full((3, 2), float(steps_done)), f"optimizer/{rank}.w/m": torch.ones(3)}


def write(folder, steps_done, *, went_on_after=1000, num_ranks=2, keep=2, tensors=tensors_of):
    """Write a checkpoint from some ranks of a run resumed after a step; return their errors."""
    threads = Threads(num_ranks)

    def one(rank):
        checkpoints = Checkpoints(folder, rank=rank, ranks=threads.rank(rank), keep=keep)
        checkpoints.went_on_after = went_on_after
        try:
            state = RunState(steps_done=steps_done)
            checkpoints.write(tensors(rank, steps_done), state, decides=DECIDES, arithmetic=ARITHMETIC)
        except DiskFullError as error:
            return error
        return None

    with ThreadPoolExecutor(num_ranks) as pool:
        return list(pool.map(one, range(num_ranks)))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_all_ranks_wrote_comes_back_under_one_roof(tmp_path):
    assert write(tmp_path, 7) == [None, None]

    checkpoint, complaints = latest(tmp_path, DECIDES)

    assert complaints == []
    assert checkpoint.manifest.state.steps_done == 7
    assert checkpoint.manifest.arithmetic == ARITHMETIC
    expected = tensors_of(0, 7) | tensors_of(1, 7)
    tensors = checkpoint.tensors()
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], value) for name, value in expected.items())
    assert names(checkpoint.folder) == [MANIFEST, "part-00000.safetensors", "part-00001.safetensors"]


def test_the_last_ones_are_kept_and_the_newest_is_found(tmp_path):
    for step in (5, 10, 100, 20):
        write(tmp_path, step, keep=2)

    assert names(tmp_path) == ["step-00000020", "step-00000100"]
    assert latest(tmp_path, DECIDES)[0].manifest.state.steps_done == 100


def test_a_rank_without_weights_of_its_own_writes_nothing(tmp_path):
    write(tmp_path, 1, tensors=lambda rank, step: tensors_of(rank, step) if rank == 0 else {})

    checkpoint, _ = latest(tmp_path, DECIDES)
    assert [part.file for part in checkpoint.manifest.parts] == ["part-00000.safetensors"]


def damaged_part(folder):
    path = folder / "part-00001.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def longer_part(folder):
    with (folder / "part-00001.safetensors").open("ab") as file:
        file.write(b"more")


def other_run(folder):
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["decides"]["model"]["depth"] = 20
    (folder / MANIFEST).write_text(json.dumps(manifest))


def outside(folder):
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["parts"][0]["file"] = "../part-00000.safetensors"
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (damaged_part, "part-00001.safetensors: damaged; its SHA-256 is not the one in manifest.json"),
        (longer_part, "part-00001.safetensors: longer than"),
        (lambda folder: (folder / "part-00000.safetensors").unlink(), "part-00000.safetensors: No such file"),
        (lambda folder: (folder / MANIFEST).write_text('{"version": 1'), "cannot be read"),
        (lambda folder: (folder / MANIFEST).write_text("[]"), "is missing"),
        (lambda folder: (folder / MANIFEST).unlink(), "cannot be read"),
        (lambda folder: os.mkfifo(folder / "x") or (folder / "x").replace(folder / MANIFEST), "not a regular file"),
        (other_run, "belongs to another run"),
        (outside, "parts"),
    ],
    ids=["flipped", "longer", "part gone", "cut", "no table", "no manifest", "pipe", "other run", "outside"],
)
def test_a_damaged_one_is_named_and_the_one_before_it_taken(tmp_path, damage, says):
    write(tmp_path, 10)
    write(tmp_path, 20)
    damage(tmp_path / "step-00000020")

    checkpoint, complaints = latest(tmp_path, DECIDES)

    assert checkpoint.manifest.state.steps_done == 10
    assert len(complaints) == 1
    assert "step-00000020" in complaints[0]
    assert says in complaints[0]
    assert "Resuming from an earlier one" in complaints[0]


def test_a_run_that_had_to_go_back_keeps_what_it_writes_then_and_nothing_that_is_damaged(tmp_path):
    """Damaged checkpoints have higher numbers: they must not count as the newest, nor replace intact ones."""
    for step in (10, 20, 30):
        write(tmp_path, step, keep=3)
    for step in (20, 30):
        damaged_part(tmp_path / f"step-{step:08}")
    assert latest(tmp_path, DECIDES)[0].manifest.state.steps_done == 10

    write(tmp_path, 25, went_on_after=10, keep=3)

    assert names(tmp_path) == ["step-00000010", "step-00000025"]


@pytest.mark.parametrize("keep", [1, 2])
def test_a_run_whose_checkpoints_are_all_damaged_begins_anew_and_can_go_on_from_there(tmp_path, keep):
    for step in (100, 200):
        write(tmp_path, step)
        damaged_part(tmp_path / f"step-{step:08}")

    write(tmp_path, 50, went_on_after=0, keep=keep)

    assert names(tmp_path) == ["step-00000050"]
    assert latest(tmp_path, DECIDES)[0].manifest.state.steps_done == 50


def test_where_there_is_none_there_is_nothing_to_say(tmp_path):
    assert latest(tmp_path / "no folder", DECIDES) == (None, [])
    with pytest.raises(UnreadableError, match="cannot be read"):
        read_checkpoint(tmp_path)


def test_a_full_disk_keeps_the_checkpoint_before_and_is_an_error_on_every_rank(tmp_path):
    def many(rank, steps_done):
        return {f"weight/{rank}.w": torch.rand(8_000 if steps_done == 1 else 60_000)}

    with small_disk(tmp_path / "disk", "size=400k") as disk:
        assert write(disk, 1, tensors=many) == [None, None]

        errors = write(disk, 2, tensors=many)

        assert [type(error) for error in errors] == [DiskFullError] * 2
        assert "no space left while writing" in str(errors[0])
        assert names(disk) == ["step-00000001"]
        assert latest(disk, DECIDES)[0].manifest.state.steps_done == 1


def test_a_run_that_ended_well_leaves_none(tmp_path):
    write(tmp_path / "run", 3)

    forget(tmp_path / "run")
    forget(tmp_path / "run")

    assert names(tmp_path) == []

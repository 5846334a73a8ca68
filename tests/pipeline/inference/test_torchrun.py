"""Inference by several processes started by torchrun, which share slides, or the blocks of one slide."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.batches.sharing import share_of_this_process
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor, run_on_of
from pipeline.settings.config import InferConfig
from pipeline.store.layers.overlays import read_predictions
from tests.small_trained_project import TISSUE_TOML, make_slide
from training.foundation.errors import BadRecipeError

BIN = Path(sys.executable).parent


def torchrun(*command: object) -> subprocess.CompletedProcess[str]:
    """Run `gemslide` in two processes of one machine, over its network address."""
    processes = ["--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    return subprocess.run(
        [*map(str, [BIN / "torchrun", *processes, "--no-python", BIN / "gemslide", *command])],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def lines_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_with_fewer_slides_than_processes_they_share_one_and_give_the_bits_of_one_process(small_project, own):
    (own.root / "gemslide.toml").write_text("[infer]\ndeterministic = true\n")

    done = torchrun(
        "infer", small_project.model_id, small_project.test_slide, "--project", own.root, "--devices", "cpu", "--json"
    )

    assert done.returncode == 0, done.stderr
    (line,) = lines_of(done)
    assert line["status"] == "done"
    (record,) = [json.loads(path.read_text()) for path in own.runs_dir.glob("*.json")]
    assert record["settings"]["devices"] == ["cpu", "rank:1"]
    path = own.store_path(small_project.test_slide)
    shared = read_predictions(path, small_project.model_id).probabilities_cyx.tobytes()
    shutil.rmtree(path / "predictions")
    config = InferConfig(batch_size=16, deterministic=True)
    alone = Predictor.load(own.model_path(small_project.model_id), run_on_of("cpu", config))
    infer_slide(small_project.test_slide, alone, own, config)
    assert read_predictions(path, small_project.model_id).probabilities_cyx.tobytes() == shared


def test_a_bad_slide_of_one_process_does_not_end_the_others_and_the_counts_add_up(small_project, own, tmp_path):
    (own.root / "gemslide.toml").write_text(TISSUE_TOML)
    slides = [tmp_path / f"{name}.tiff" for name in "abcd"]
    for seed, slide in enumerate(slides):
        make_slide(slide, seed)
    slides[1].write_bytes(slides[1].read_bytes()[:9000])  # the first slide of the second process

    done = torchrun("infer", small_project.model_id, *slides, "--project", own.root, "--devices", "cpu", "--json")

    assert done.returncode == 1
    states = {str(line["slide_id"]): line["status"] for line in lines_of(done)}
    assert states == {"a": "done", "b": "unreadable", "c": "done", "d": "done"}
    assert "4 slides: 3 done, 1 unreadable" in done.stderr
    assert "1 of 4 not done" in done.stderr


def test_a_process_of_torchrun_takes_one_device(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadRecipeError, match="--nproc-per-node 2"):
        share_of_this_process("cpu,cpu", 5)

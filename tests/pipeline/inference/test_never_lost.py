"""Finished results, and no others, are kept through kills, rivals, other settings and missing answers."""

from __future__ import annotations

import errno
import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pipeline.batches import devices
from pipeline.batches.devices import ManyDevices, OneDevice
from pipeline.batches.journal import BatchResult, forget_journal, open_journal
from pipeline.batches.network import usual_batch_size
from pipeline.batches.slide_run import run_on_text
from pipeline.batches.where import RunOn
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor, run_on_of
from pipeline.project import Project
from pipeline.settings.config import InferConfig
from pipeline.store.layers.labels import read_tissue, write_tissue
from pipeline.store.layers.overlays import read_predictions
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import ImplausibleOutputError, LockedError

CONFIG = InferConfig(batch_size=16)


@pytest.fixture
def predictor(small_project) -> Predictor:
    return Predictor.load(small_project.project.model_path(small_project.model_id))


def test_what_a_run_left_that_was_killed_after_publishing_goes_with_the_next(small_project, own, predictor):
    final = own.result_dir(small_project.test_slide, small_project.model_id)
    infer_slide(small_project.test_slide, predictor, own, CONFIG)
    with suppress(KeyboardInterrupt), open_journal(final, {"a": 1}):
        raise KeyboardInterrupt
    (left,) = final.parent.glob(".*.batches.partial")

    assert infer_slide(small_project.test_slide, predictor, own, CONFIG).skipped

    assert not left.exists()


def test_a_journal_that_somebody_works_with_is_not_forgotten(tmp_path):
    final = tmp_path / "results" / "S-1"
    with open_journal(final, {"a": 1}):
        forget_journal(final)
        assert list(final.parent.glob(".*.batches.partial"))


def _infer(root: Path, model_id: str, slide_id: str, barrier, ended) -> None:
    project = Project(root)
    predictor = Predictor.load(project.model_path(model_id))
    barrier.wait()
    try:
        report = infer_slide(slide_id, predictor, project, InferConfig(batch_size=1))
        ended.put("skipped" if report.skipped else "done")
    except LockedError:
        ended.put("locked")


def test_of_two_processes_at_once_on_one_slide_one_works_and_the_other_says_so_or_finds_it_done(small_project, own):
    context = multiprocessing.get_context("spawn")
    barrier, ended = context.Barrier(2), context.Queue()
    work = (own.root, small_project.model_id, small_project.test_slide, barrier, ended)
    processes = [context.Process(target=_infer, args=work) for _ in range(2)]
    for process in processes:
        process.start()
    states = sorted(ended.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()

    assert states[0] == "done"
    assert states[1] in ("locked", "skipped")
    stored = read_predictions(own.store_path(small_project.test_slide), small_project.model_id)
    assert np.isfinite(stored.probabilities_cyx).any()


def test_another_tissue_mask_or_deterministic_bits_are_predicted_anew(small_project, own, predictor):
    store = own.store_path(small_project.test_slide)
    exactly = CONFIG.model_copy(update={"deterministic": True})
    exact = Predictor.load(own.model_path(small_project.model_id), run_on_of("cpu", exactly))
    infer_slide(small_project.test_slide, predictor, own, CONFIG)
    assert infer_slide(small_project.test_slide, predictor, own, CONFIG).skipped

    assert not infer_slide(small_project.test_slide, exact, own, exactly).skipped
    assert infer_slide(small_project.test_slide, exact, own, exactly).skipped
    whole = infer_slide(small_project.test_slide, predictor, own, CONFIG).num_tiles
    mask_yx, mask_mpp = read_tissue(store)
    mask_yx[: len(mask_yx) // 2] = 0
    reader = StoreReader(store)
    write_tissue(store, mask_yx.astype(bool), mask_mpp, reader.mpp0, len(reader.levels))
    half = infer_slide(small_project.test_slide, predictor, own, CONFIG)

    assert not half.skipped
    assert half.num_tiles < whole


def test_predictions_made_before_keys_named_a_mask_stay_finished(small_project, own, predictor):
    store = own.store_path(small_project.test_slide)
    infer_slide(small_project.test_slide, predictor, own, CONFIG)
    path = store / "predictions" / small_project.model_id / "zarr.json"
    mask = '"mask": "'
    text = path.read_text()
    assert mask in text
    start = text.index(mask)
    path.write_text(text[: text.rindex(",", 0, start)] + text[text.index('"', start + len(mask)) + 1 :])

    assert infer_slide(small_project.test_slide, predictor, own, CONFIG).skipped


class _Losing(OneDevice):
    """Predictor that loses a batch, or one of its tiles."""

    how = "batch"

    def results(self, blocks) -> Iterator[BatchResult]:
        for number, result in enumerate(super().results(blocks)):
            if number != 1:
                yield result
            elif self.how == "tile":
                yield replace(result, values_nk=result.values_nk[:-1])


@pytest.mark.parametrize("how", ["batch", "tile"])
def test_a_slide_of_which_an_answer_is_missing_is_not_published(small_project, own, predictor, how):
    losing = _Losing(predictor)
    losing.how = how

    with pytest.raises(ImplausibleOutputError, match=r"were to be predicted in \d+ batch"):
        infer_slide(small_project.test_slide, predictor, own, CONFIG, devices=losing)

    assert not (own.store_path(small_project.test_slide) / "predictions" / small_project.model_id).exists()


def test_where_other_processes_predict_the_plan_is_made_for_their_devices(small_project):
    package = small_project.project.model_path(small_project.model_id)
    here = Predictor.load(package)
    load = partial(Predictor.load, package)
    gpus = ManyDevices(load, tuple(run_on_of(f"cuda:{k}", InferConfig()) for k in range(2))).network
    mixed = ManyDevices(load, tuple(run_on_of(name, InferConfig()) for name in ("cpu", "cuda:0"))).network

    here_size, gpu_size, mixed_size = (usual_batch_size(x.devices, x.tile_px) for x in (here, gpus, mixed))
    assert gpu_size == 16 * here_size
    assert mixed_size == here_size
    assert [run_on_text(outcome)["device"] for outcome in (here, gpus, mixed)] == ["cpu", "cuda", "cpu,cuda"]


def test_a_disk_error_in_a_device_s_process_is_passed_on_as_what_it_is(small_project, monkeypatch):
    class Failing(devices.BlockRunner):
        def results(self, take):
            take(True)
            raise OSError(errno.EIO, "Input/output error", "0/1/c/0/0/0")
            yield

    monkeypatch.setattr(devices, "BlockRunner", Failing)
    ours, theirs = multiprocessing.Pipe()
    load = partial(Predictor.load, small_project.project.model_path(small_project.model_id))
    serving = threading.Thread(target=devices.serve, args=(theirs, load, RunOn()), kwargs={"threads": 1})
    serving.start()

    ours.send("a block")
    _, message, _ = ours.recv()
    ours.close()
    serving.join(60)

    assert isinstance(message, OSError)
    assert (message.errno, message.filename) == (errno.EIO, "0/1/c/0/0/0")
    assert not serving.is_alive()

"""Inference reads its tiles from the store, and results depend only on slide, model and settings."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.batches.blocks import SlidePlan, TileSource, plan_slide
from pipeline.batches.devices import ManyDevices, named_devices
from pipeline.batches.journal import BatchResult, open_journal
from pipeline.batches.reading import TileFeed
from pipeline.batches.slide_tiles import tissue_tiles
from pipeline.batches.where import Numerics, RunOn
from pipeline.errors import ProcessFailedError
from pipeline.inference.infer import infer_slide, slide_grid
from pipeline.inference.overlap import cell_weights, merge_tiles
from pipeline.inference.predictor import Predictor, run_on_of
from pipeline.settings.config import InferConfig
from pipeline.store.layers.overlays import read_predictions
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.inference.chaos import inference_of
from tests.pipeline.slide_chaos import run
from training.foundation.errors import BadRecipeError, LockedError

CONFIG = InferConfig(batch_size=16)


@pytest.fixture(scope="module")
def package(small_project) -> Path:
    return small_project.project.models_dir / small_project.model_id


@pytest.fixture(scope="module")
def predictor(package):
    return Predictor.load(package)


@pytest.fixture(scope="module")
def reader(small_project):
    return StoreReader(small_project.project.store_path(small_project.test_slide))


def make_plan(reader, predictor, *, batch_size=7, tile_px=None, level=None, **more) -> SlidePlan:
    grid = slide_grid(reader, predictor)
    _, chosen = tissue_tiles(reader, grid, 0.1, section="infer")
    level = reader.level_for_downsample(grid.mpp / reader.mpp0) if level is None else level
    source = TileSource(reader.path, level, grid.side_px0, tile_px or grid.tile_px, None)
    return plan_slide(source, grid, chosen, glass=chosen[:0], batch_size=batch_size, **more)


@pytest.mark.parametrize(("tile_px", "level"), [(32, 1), (64, 0), (48, 0), (80, 1)])
def test_tiles_come_in_full_batches_and_are_those_of_the_store_pixel_for_pixel(reader, predictor, tile_px, level):
    plan = make_plan(reader, predictor, tile_px=tile_px, level=level)
    seen: dict[int, np.ndarray] = {}
    with TileFeed() as feed:
        for block in plan.blocks():
            feed.add(block)
        while not feed.is_empty:
            batch = feed.next()
            seen[batch.number] = batch.tiles_nhwc.copy()

    assert sorted(seen) == list(range(plan.num_batches))
    assert [len(seen[number]) for number in range(plan.num_batches - 1)] == [7] * (plan.num_batches - 1)
    tiles = np.concatenate([seen[number] for number in sorted(seen)])
    for tile, (x_px0, y_px0) in zip(tiles, plan.corners_xy0, strict=True):
        wanted = reader.read_square(level, int(x_px0), int(y_px0), plan.source.side_px0, tile_px)
        np.testing.assert_array_equal(tile, wanted)


def test_a_tile_that_passes_the_slide_s_edge_is_white_there(reader):
    width_px0, height_px0 = reader.size_wh_px0
    corners = np.array([[width_px0 - 40, height_px0 - 30], [64, 64]])
    plan = SlidePlan(TileSource(reader.path, 0, 64, 64, None), corners, np.arange(2), np.array([1, 0]), 2)
    with TileFeed() as feed:
        feed.add(next(plan.blocks()))
        tiles = feed.next().tiles_nhwc

    np.testing.assert_array_equal(tiles[0], reader.read_square(0, width_px0 - 40, height_px0 - 30, 64, 64))
    assert (tiles[0][30:, :] == 255).all()
    assert not (tiles[1] == 255).all()


def test_every_batch_is_in_exactly_one_block_and_finished_ones_in_none(reader, predictor):
    plan = make_plan(reader, predictor, batch_size=4)
    small = SlidePlan(**{**vars(plan), "max_block_tiles": 12})
    finished = {0, 5, 6, 7, plan.num_batches - 1}

    blocks = list(small.blocks(finished))

    numbers = [number for block in blocks for number in block.batches]
    assert numbers == [number for number in range(plan.num_batches) if number not in finished]
    assert max(len(block.batches) for block in blocks) == 3
    for block in blocks:
        for index, number in enumerate(block.batches):
            np.testing.assert_array_equal(
                block.corners_xy0[block.tiles_of(index)], plan.corners_xy0[plan.tiles_of(number)]
            )


def test_five_kills_at_random_moments_change_no_byte_and_repeat_at_most_a_batch_each(small_project, tmp_path):
    tally = run(inference_of(small_project), tmp_path, times=5, seed=2)

    assert tally.killed == 5
    assert tally.killed_with_batches >= 2, tally
    assert tally.repeated <= 5


def test_a_journal_with_a_torn_or_damaged_end_gives_what_is_whole(tmp_path):
    results = [BatchResult(k, np.full((3, 2), k, np.float32), np.full((k, 3), 0.5)) for k in range(4)]
    final = tmp_path / "results" / "m-1" / "S-1"
    with suppress(KeyboardInterrupt), open_journal(final, {"a": 1}) as journal:
        for result in results:
            journal.add(result)
        raise KeyboardInterrupt
    (file,) = tmp_path.rglob("batches")
    whole = file.read_bytes()
    last = len(results[3].to_bytes())

    for damaged, left in ((whole[:-5], 3), (whole[:-last] + b"\xff" * last, 3), (whole[: -last - 1], 2), (b"", 0)):
        file.write_bytes(damaged)
        with suppress(KeyboardInterrupt), open_journal(final, {"a": 1}) as journal:
            assert sorted(journal.finished) == list(range(left))
            for k, result in journal.finished.items():
                np.testing.assert_array_equal(result.values_nk, results[k].values_nk)
                np.testing.assert_array_equal(result.looks_n3, results[k].looks_n3)
            raise KeyboardInterrupt
    file.write_bytes(whole)
    with open_journal(final, {"a": 2}) as journal:
        assert journal.finished == {}
    assert list(tmp_path.iterdir()) == []


def test_of_two_processes_on_one_slide_one_works_and_the_other_says_so(small_project, own, predictor):
    final = own.result_dir(small_project.test_slide, small_project.model_id)
    with open_journal(final, {}), pytest.raises(LockedError, match="another process"):
        infer_slide(small_project.test_slide, predictor, own, CONFIG)

    assert not infer_slide(small_project.test_slide, predictor, own, CONFIG).skipped


def test_two_processes_give_the_bits_of_one(small_project, own, package):
    config = InferConfig(batch_size=8, overlap=0.5)
    # One thread per process: with more, convolutions add in another order.
    alone = ManyDevices(partial(Predictor.load, package), (run_on_of("cpu", config),))
    alone._workers[0]._threads = 1
    stored = []
    for devices in (alone, ManyDevices(partial(Predictor.load, package), (run_on_of("cpu", config),) * 2)):
        with devices:
            report = infer_slide(small_project.test_slide, devices.network, own, config, devices=devices)
            assert report.seconds["compute"] > 0
            assert report.seconds["decode"] > 0
        path = own.store_path(small_project.test_slide) / "predictions" / small_project.model_id
        stored.append({str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()})
        shutil.rmtree(path)
    assert stored[0] == stored[1]


def test_a_device_whose_process_is_killed_fails_the_slide_and_the_next_run_goes_on(small_project, own, package):
    config = InferConfig(batch_size=1)
    with ManyDevices(partial(Predictor.load, package), (run_on_of("cpu", config),)) as devices:
        plan = make_plan(StoreReader(own.store_path(small_project.test_slide)), devices.network, batch_size=1)
        results = devices.results(plan.blocks())
        next(results)
        for child in multiprocessing.active_children():
            child.kill()
        with pytest.raises(ProcessFailedError, match=r"device cpu crashed or was stopped \(exit code -9\)"):
            list(results)
        assert len(list(devices.results(plan.blocks({0})))) == plan.num_batches - 1


class _Hungry(torch.nn.Module):
    """Network with memory for only a few tiles at a time."""

    def __init__(self, network: torch.nn.Module, most: int) -> None:
        super().__init__()
        self.network, self.most, self.sizes = network, most, list[int]()

    def forward(self, images_nchw: torch.Tensor) -> torch.Tensor:
        self.sizes.append(len(images_nchw))
        if len(images_nchw) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return self.network(images_nchw)


def test_out_of_memory_halves_the_batch_once_and_gives_the_same_results(small_project, own, package):
    usual = Predictor.load(package)
    infer_slide(small_project.test_slide, usual, own, CONFIG)
    path = own.store_path(small_project.test_slide)
    wanted = read_predictions(path, small_project.model_id).probabilities_cyx
    shutil.rmtree(path / "predictions")
    hungry = Predictor.load(package)
    runner = hungry._classifier.forward_only
    runner.network = network = _Hungry(runner.network, 5)

    infer_slide(small_project.test_slide, hungry, own, CONFIG)

    assert network.sizes[:4] == [16, 8, 4, 4]
    assert set(network.sizes[4:]) <= {4, 2, 3, 1}, "later batches begin with what fitted"
    np.testing.assert_allclose(read_predictions(path, small_project.model_id).probabilities_cyx, wanted, atol=1e-3)


def test_a_tile_that_does_not_fit_alone_is_refused_with_what_to_do(package):
    predictor = Predictor.load(package)
    runner = predictor._classifier.forward_only
    runner.network = _Hungry(runner.network, 0)

    with pytest.raises(BadRecipeError, match=r"one tile .* does not fit .* several devices"):
        predictor.predict(np.zeros((4, 32, 32, 3), np.uint8))


def test_another_error_of_the_network_is_not_taken_for_a_lack_of_memory(package):
    predictor = Predictor.load(package)
    with pytest.raises(RuntimeError, match="must match the size"):
        predictor.predict(np.zeros((4, 32, 32, 5), np.uint8))


@pytest.mark.parametrize("numerics", [Numerics(), Numerics(deterministic=True), Numerics("bf16")])
def test_a_model_over_two_devices_gives_what_it_gives_on_one(package, numerics):
    tiles = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)

    whole = Predictor.load(package, RunOn("cpu", numerics)).predict(tiles)
    spread = Predictor.load(package, RunOn("cpu+cpu", numerics)).predict(tiles)

    np.testing.assert_allclose(spread, whole, atol=2e-2 if numerics.precision == "bf16" else 1e-5)
    if numerics.deterministic:
        np.testing.assert_array_equal(spread, whole)


def test_in_a_deterministic_run_a_tile_s_bits_depend_on_nothing_but_the_tile(package):
    tiles = np.random.default_rng(1).integers(0, 256, (11, 32, 32, 3), np.uint8)
    predictor = Predictor.load(package, RunOn("cpu", Numerics(deterministic=True)))

    together = predictor.predict(tiles)

    for k in range(len(tiles)):
        np.testing.assert_array_equal(predictor.predict(tiles[k : k + 1])[0], together[k])
    np.testing.assert_array_equal(predictor.predict(tiles[::-1].copy())[::-1], together)


def test_half_precision_is_close_and_another_key(small_project, own, package):
    in_half = CONFIG.model_copy(update={"precision": "bf16"})
    half = Predictor.load(package, run_on_of("cpu", in_half))
    full = Predictor.load(package)
    tiles = np.random.default_rng(2).integers(0, 256, (6, 32, 32, 3), np.uint8)
    assert np.abs(half.predict(tiles) - full.predict(tiles)).max() < 2e-2

    infer_slide(small_project.test_slide, full, own, CONFIG)
    assert infer_slide(small_project.test_slide, full, own, CONFIG).skipped
    assert not infer_slide(small_project.test_slide, half, own, in_half).skipped


@pytest.mark.parametrize(("views", "turns"), [("flips", 4), ("all", 8)])
def test_views_make_a_tile_and_its_turns_the_same(package, views, turns):
    tile = np.random.default_rng(3).integers(0, 256, (32, 32, 3), np.uint8)
    predictor = Predictor.load(package, RunOn("cpu", views=views))
    looks = [tile, tile[::-1], tile[:, ::-1], tile[::-1, ::-1]]
    looks += [np.rot90(look) for look in looks] if turns == 8 else []

    predicted = predictor.predict(np.stack(looks))

    assert len(predicted) == turns
    np.testing.assert_allclose(predicted, np.broadcast_to(predicted[:1], predicted.shape), atol=1e-5)
    plain = Predictor.load(package).predict(np.stack(looks))
    np.testing.assert_allclose(predicted[0], plain.mean(0), atol=1e-5)


@pytest.mark.parametrize("change", [{"views": "all"}, {"precision": "bf16"}, {"deterministic": True}])
def test_settings_that_a_loaded_model_does_not_follow_are_refused(small_project, own, predictor, change):
    with pytest.raises(ValueError, match=r"the settings ask for .* the model was loaded to run with"):
        infer_slide(small_project.test_slide, predictor, own, CONFIG.model_copy(update=change))


def test_the_command_shows_that_results_do_not_depend_on_how_the_work_is_cut(small_project, own, gemslide):
    done = gemslide(
        "check-invariance",
        small_project.model_id,
        small_project.test_slide,
        "--project",
        own.root,
        "--tiles",
        20,
        "--json",
    )

    assert done.code == 0, done.err
    line = json.loads(done.out)
    assert line["status"] == "done"
    assert {way["what"].split(" ")[0] for way in line["variations"]} == {"batches", "one", "2"}
    assert all(way["largest_difference"] <= 1e-5 for way in line["variations"])


@pytest.mark.parametrize("named", ["cuda:7", "gpu", "cpu,,cpu", "cuda:0+cuda:1", ""])
def test_a_device_that_is_not_there_is_refused_with_those_there_are(named):
    if torch.cuda.device_count() > 1 and named == "cuda:0+cuda:1":
        pytest.skip("this machine has them")
    with pytest.raises(BadRecipeError, match=r"There are: .*cpu"):
        named_devices(named)


def test_cells_of_overlapping_tiles_are_the_weighted_mean_of_the_tiles_that_cover_them(reader, predictor):
    grid = slide_grid(reader, predictor, overlap=0.5)
    assert grid.side_px0 == 2 * grid.stride_px0
    values = np.random.default_rng(4).random((2, grid.rows, grid.columns)).astype(np.float32)
    values[:, 2, 3] = np.nan

    merged = merge_tiles(values, grid)

    assert merged.shape == (2, grid.rows + 1, grid.columns + 1)
    # The halves of a tile are alike, so four tiles count the same; one of them was not predicted.
    assert cell_weights(2, 1) == pytest.approx([0.5, 0.5])
    np.testing.assert_allclose(merged[0, 5, 7], values[0, 4:6, 6:8].mean(), rtol=1e-6)
    known = [values[1, 1, 2], values[1, 1, 3], values[1, 2, 2]]
    np.testing.assert_allclose(merged[1, 2, 3], np.mean(known), rtol=1e-6)
    np.testing.assert_allclose(merged[0, 0, 0], values[0, 0, 0], rtol=1e-6)


def test_the_weights_of_a_tile_s_cells_add_up_and_are_largest_in_its_middle():
    weights = cell_weights(224, 56)

    assert weights.sum() == pytest.approx(1)
    assert weights == pytest.approx(weights[::-1])
    # The integral of 1 - cos(2πt) over its first quarter: 1/4 - 1/(2π).
    assert weights[0] == pytest.approx(0.25 - 1 / (2 * np.pi))
    assert len(cell_weights(224, 100)) == 3


def test_overlap_makes_a_finer_map_of_the_same_tissue(small_project, own, predictor):
    infer_slide(small_project.test_slide, predictor, own, CONFIG)
    plain = read_predictions(own.store_path(small_project.test_slide), small_project.model_id)
    assert not infer_slide(small_project.test_slide, predictor, own, InferConfig(overlap=0.5)).skipped
    fine = read_predictions(own.store_path(small_project.test_slide), small_project.model_id)

    assert fine.stride_px0 == fine.side_px0 == plain.stride_px0 / 2
    known = np.isfinite(fine.probabilities_cyx[0])
    sums = fine.probabilities_cyx.astype(np.float32).sum(0)[known]
    np.testing.assert_allclose(sums, 1, atol=2e-3)
    ys, xs = np.nonzero(np.isfinite(plain.probabilities_cyx[0]))
    inside = [fine.at((x + 0.5) * plain.stride_px0, (y + 0.5) * plain.stride_px0) for y, x in zip(ys, xs, strict=True)]
    assert all(value is not None for value in inside)

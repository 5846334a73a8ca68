from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from training.data.augment import augment, change_colours, normalised, to_input
from training.data.tile_batch import TileBatch
from training.data.tile_dataset import BatchPlan, channel_statistics, check_enough, find_source, read_tiles
from training.foundation.errors import BadRecipeError, EmptyTableError
from training.recipe.config import AugmentConfig


class Source:
    """30 train tiles, 20 of class 0 and 10 of class 1; 3 val tiles; 2 unlabelled. Records the tiles that are read."""

    Error = ValueError
    classes = ("a", "b")
    tile_px, mpp, fingerprint = 6, 1.0, "f"
    labels = np.array([0] * 20 + [1] * 10 + [0, 1, 1] + [-1, -1])
    splits = np.array(["train"] * 30 + ["val"] * 3 + ["train"] * 2)

    def __init__(self):
        self.has_read = []

    def __len__(self):
        return len(self.labels)

    def read(self, index):
        self.has_read.append(index)
        return np.random.default_rng(index).integers(0, 256, (6, 6, 3), dtype=np.uint8)


@pytest.mark.parametrize(("batch_size", "sizes"), [(5, [5] * 6), (7, [7, 7, 7, 7, 2]), (29, [29, 1]), (30, [30])])
def test_an_epoch_shows_every_labelled_train_tile_once(batch_size, sizes):
    plan = BatchPlan(Source(), batch_size=batch_size, seed=3, balance=False)

    for epoch in range(2):
        steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
        batches = [plan.batch(step).tolist() for step in steps]

        assert [len(batch) for batch in batches] == sizes
        assert sorted(tile for batch in batches for tile in batch) == list(range(30))


def test_batches_depend_on_seed_and_step_alone():
    plans = [BatchPlan(Source(), batch_size=4, seed=seed, balance=False) for seed in (1, 1, 2)]

    assert np.array_equal(plans[0].batch(9), plans[1].batch(9))
    assert not np.array_equal(plans[0].batch(9), plans[2].batch(9))
    assert not np.array_equal(plans[0].batch(0), plans[0].batch(plans[0].steps_per_epoch))


def test_balanced_batches_show_both_classes_equally_often():
    source = Source()
    plan = BatchPlan(source, batch_size=10, seed=0, balance=True)

    drawn = np.concatenate([source.labels[plan.batch(step)] for step in range(300)])

    assert drawn.mean() == pytest.approx(0.5, abs=0.03)


def test_too_few_tiles_are_refused_with_the_counts():
    with pytest.raises(EmptyTableError, match=r"30 labelled train tiles and 3 labelled val .*batch of 31"):
        check_enough(Source(), 31, 2, "t")


def test_another_number_of_classes_is_refused():
    with pytest.raises(BadRecipeError, match=r"num_classes = 3, but tile set 't' has 2 classes: a, b"):
        check_enough(Source(), 4, 3, "t")


def test_an_unregistered_source_is_refused_with_those_that_are():
    with pytest.raises(BadRecipeError, match="registered datasets are tiles"):
        find_source("folder")


def test_a_tile_is_augmented_the_same_wherever_it_is_read():
    indices = np.array([3, 8, 21])
    with ThreadPoolExecutor(2) as pool:
        tiles = read_tiles(Source(), indices, pool)
    config = AugmentConfig(brightness=0.1, contrast=0.2)

    together = augment(tiles, indices, epoch=5, seed=0, config=config)
    alone = augment(tiles[1:2], indices[1:2], epoch=5, seed=0, config=config)

    assert np.array_equal(together[1], alone[0])
    assert not np.array_equal(together, augment(tiles, indices, epoch=6, seed=0, config=config))


@pytest.fixture
def uneven():
    """Batch of 11 tiles in micro-batches of 4: the last one has 3."""
    source = Source()
    with ThreadPoolExecutor(2) as pool:
        yield TileBatch(
            source,
            np.array([3, 8, 21, 0, 5, 29, 11, 12, 1, 25, 7]),
            microbatch_size=4,
            pool=pool,
            augmentation=AugmentConfig(brightness=0.1, stain=0.2),
            seed=2,
            epoch=6,
            first_sample=22,
        )


def test_a_rank_reads_only_the_microbatches_it_asks_for(uneven):
    assert uneven.shapes == [(4, 3, 6, 6), (4, 3, 6, 6), (3, 3, 6, 6)]
    assert uneven.targets(1).tolist() == [0, 1, 0, 0]
    assert uneven.source.has_read == []

    uneven.inputs(2)

    assert sorted(uneven.source.has_read) == [1, 7, 25]


def test_microbatches_are_the_whole_batch_cut_up(uneven):
    whole = replace(uneven, microbatch_size=11)

    parts = [uneven.inputs(k) for k in range(3)]

    assert [tuple(part.movedim(3, 1).shape) for part in parts] == uneven.shapes
    assert {part.dtype for part in parts} == {torch.uint8}
    assert torch.equal(torch.cat(parts), whole.inputs(0))
    assert torch.equal(torch.cat([uneven.targets(k) for k in range(3)]), whole.targets(0))


def test_batches_of_another_size_see_the_same_tiles_changed_in_the_same_ways():
    """A tile's augmentation depends on its position in the epoch's order, not on its batch."""
    source = Source()

    def epoch_of(batch_size):
        plan = BatchPlan(source, batch_size=batch_size, seed=1, balance=False)
        with ThreadPoolExecutor(2) as pool:
            batches = []
            for step in range(plan.steps_per_epoch):
                epoch, first = plan.place(step)
                batches.append(
                    TileBatch(
                        source, plan.batch(step), batch_size, pool, augmentation=AugmentConfig(hue=0.1),
                        seed=1, epoch=epoch, first_sample=first,
                    )
                )  # fmt: skip
            return torch.cat([batch.inputs(0) for batch in batches])

    assert torch.equal(epoch_of(4), epoch_of(7))


def test_a_tile_that_is_drawn_twice_in_an_epoch_is_changed_in_two_ways():
    source = Source()
    with ThreadPoolExecutor(2) as pool:
        twice = TileBatch(source, np.array([3, 3]), 2, pool, augmentation=AugmentConfig(brightness=0.3), seed=0)

        first, second = twice.inputs(0)

    assert not torch.equal(first, second)


def test_a_batch_without_augmentation_gives_tiles_as_they_are():
    source = Source()
    with ThreadPoolExecutor(2) as pool:
        plain = TileBatch(source, np.array([3, 8]), 2, pool)

        assert np.array_equal(plain.inputs(0).numpy(), np.stack([source.read(3), source.read(8)]))


def test_turned_colours_come_back_when_they_are_turned_back_and_grey_stays_grey():
    tile = Source().read(4)
    grey = np.full((6, 6, 3), 131, np.uint8)

    assert np.array_equal(change_colours(grey, 1.4, 0.3), grey)
    assert np.abs(change_colours(change_colours(tile, 1.0, 0.25), 1.0, -0.25).astype(int) - tile).max() <= 2
    assert np.array_equal(change_colours(tile, 1.0, 1.0), change_colours(tile, 1.0, 0.0))
    assert not np.array_equal(change_colours(tile, 1.0, 0.25), tile)
    pale = change_colours(tile, 0.0, 0.0)
    assert (pale.max(-1) == pale.min(-1)).all()


def test_flips_only_move_pixels():
    tiles = Source().read(0)[None]

    turned = augment(tiles, np.array([0]), epoch=1, seed=2, config=AugmentConfig())

    assert sorted(map(tuple, turned.reshape(-1, 3))) == sorted(map(tuple, tiles.reshape(-1, 3)))


def test_inputs_are_normalised_and_channels_last():
    source = Source()
    mean, std = channel_statistics(source, np.arange(30))
    tiles = np.stack([source.read(i) for i in range(30)])

    images = to_input(tiles, mean, std)

    assert images.shape == (30, 3, 6, 6)
    assert images.stride()[1] == 1
    assert torch.equal(normalised(torch.from_numpy(tiles), mean, std), images)
    assert images.mean(dim=(0, 2, 3)).abs().max() < 1e-3
    assert (images.std(dim=(0, 2, 3)) - 1).abs().max() < 1e-2


def test_stain_changes_keep_glass_white_and_darken_or_lighten_each_channel():
    tile = np.full((1, 4, 4, 3), (120, 160, 200), np.uint8)
    tile[0, 0, 0] = 255

    changed = augment(tile, np.array([7]), epoch=0, seed=0, config=AugmentConfig(flips=False, stain=0.3))

    assert (changed[0, 0, 0] == 255).all()
    assert len({int(d) for d in (changed[0, 2, 2].astype(int) - tile[0, 2, 2])}) > 1

"""Restart intervals cut at any MCU and joined again have the same coefficients; damaged ones are found."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from PIL import Image

from pipeline.codecs.images import decode_jpeg
from pipeline.codecs.jpeg_segments import JpegError
from pipeline.codecs.restart.cut import Run, joined_runs
from pipeline.codecs.restart.intervals import joined, read_interval_header
from pipeline.codecs.restart.scan import find_cuts
from tests.pipeline.make import sample_image

NUM_MCUS = 12


def taken_apart(pixels, *, subsampling, quality=85, **options):
    """Header, and coded data of the intervals without markers."""
    stream = io.BytesIO()
    options = {"quality": quality, "subsampling": subsampling, "restart_marker_blocks": NUM_MCUS, **options}
    Image.fromarray(pixels).save(stream, "JPEG", **options)
    content = stream.getvalue()
    at = content.index(b"\xff\xda")
    end = at + 2 + int.from_bytes(content[at + 2 : at + 4], "big")
    return read_interval_header(content[:end]), re.split(rb"\xff[\xd0-\xd7]", content[end:].removesuffix(b"\xff\xd9"))


def unstuffed(intervals):
    return [interval.replace(b"\xff\0", b"\xff") for interval in intervals]


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize(("quality", "optimize"), [(30, False), (85, False), (100, False), (85, True)])
def test_every_mcu_alone_decodes_to_its_part_of_the_image(subsampling, quality, optimize):
    header, intervals = taken_apart(
        sample_image(384, 32, seed=quality), subsampling=subsampling, quality=quality, optimize=optimize
    )
    width_px, height_px = header.mcu_wh_px
    data, cuts = unstuffed(intervals), [tuple(range(NUM_MCUS))] * len(intervals)

    table = find_cuts(data, header.blocks, NUM_MCUS, cuts)

    assert table.damaged == {}
    for number, interval in enumerate(intervals):
        whole = decode_jpeg(joined(header.head(NUM_MCUS * width_px, height_px), [interval]))
        for mcu in range(NUM_MCUS):
            try:
                alone = joined_runs(header, [Run(data[number], table, number, mcu)], 0)
            except JpegError:
                assert optimize  # its tables have only the codes that the whole needed
                continue
            pixels = decode_jpeg(joined(header.head(width_px, height_px, 1), [alone]))
            part = whole[:, mcu * width_px : (mcu + 1) * width_px]
            reach_x = header.reach_xy_px[0]
            inner = slice(reach_x, width_px - reach_x)
            np.testing.assert_array_equal(pixels[:, inner], part[:, inner])


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_runs_of_several_intervals_and_white_make_one(subsampling):
    header, intervals = taken_apart(sample_image(384, 32), subsampling=subsampling)
    width_px, height_px = header.mcu_wh_px
    data, cut = unstuffed(intervals), 5
    table = find_cuts(data, header.blocks, NUM_MCUS, [(0, cut)] * len(intervals))

    runs = [Run(data[0], table, 0, 1), Run(data[1], table, 1, 0), Run(data[0], table, 0, 0)]
    num_mcus = NUM_MCUS - cut + cut + cut
    together = joined_runs(header, runs, 2)

    pixels = decode_jpeg(joined(header.head((num_mcus + 2) * width_px, height_px, num_mcus + 2), [together]))
    first, second = (decode_jpeg(joined(header.head(NUM_MCUS * width_px, height_px), [each])) for each in intervals[:2])
    expected = [first[:, cut * width_px :], second[:, : cut * width_px], first[:, : cut * width_px]]
    at = 0
    for part in expected:
        shown = pixels[:, at : at + part.shape[1]]
        np.testing.assert_array_equal(shown[:, 2:-2], part[:, 2:-2])
        at += part.shape[1]
    assert (pixels[:, at + 1 :] == 255).all()


def test_a_whole_interval_is_put_together_byte_for_byte():
    header, intervals = taken_apart(sample_image(384, 32), subsampling=1)
    data = unstuffed(intervals)
    table = find_cuts(data, header.blocks, NUM_MCUS, [(0, 3, 7)] * len(data))

    again = [joined_runs(header, [Run(own, table, i, cut) for cut in range(3)], 0) for i, own in enumerate(data)]

    assert again == intervals


def test_a_damaged_interval_is_found_and_the_others_are_as_without_it():
    header, intervals = taken_apart(sample_image(384, 64), subsampling=1)
    data = unstuffed(intervals)
    cuts = [(0, 4)] * len(data)
    sound = find_cuts(data, header.blocks, NUM_MCUS, cuts)
    damaged = [*data]
    damaged[1] = data[1][: len(data[1]) // 2]
    damaged[3] = b"\xff" * 20
    damaged[4] = data[4] + bytes(8)

    table = find_cuts(damaged, header.blocks, NUM_MCUS, cuts)

    assert sorted(table.damaged) == [1, 3, 4]
    others = [i for i in range(len(data)) if i not in table.damaged]
    for name in ("codes", "ends", "means", "means_before", "last_bits", "last_means"):
        np.testing.assert_array_equal(getattr(table, name)[others], getattr(sound, name)[others])


@pytest.mark.parametrize("seed", range(30))
def test_random_bits_end_the_walk_without_an_error(seed):
    header, intervals = taken_apart(sample_image(384, 32), subsampling=seed % 3)
    random = np.random.default_rng(seed)
    noise = [random.bytes(int(random.integers(0, 400))) for _ in intervals]

    table = find_cuts(noise, header.blocks, NUM_MCUS, [(0, 5)] * len(noise))

    assert len(table.damaged) >= len(noise) - 1  # a few bits can be codes by chance

"""Tiles that claim, or unpack to, far more than a tile holds: one clear error, and no memory allocated."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib

import imagecodecs
import numpy as np
import pytest
import tifffile

from tests.pipeline.make import APERIO, halved, ingest, overwrite_tag, sample_image
from tests.pipeline.slides.fuzz import Memory
from training.foundation.errors import GemslideError

pytestmark = pytest.mark.xdist_group("bombs")  # every bomb is ingested once

HUGE_PX = 65_500
BOMB_BYTES = 512 * 2**20
LIMIT_BYTES = 150 * 2**20
JPEG_2000 = 34712
IMAGE_WIDTH, IMAGE_LENGTH, ROWS_PER_STRIP = 256, 257, 278
SQUARE, OBLONG = (64, 64), (48, 64)
"""Tile sizes: square tiles pass through, others are decoded."""


def jpeg(tile):
    return bytes(imagecodecs.jpeg8_encode(tile, level=85, subsampling="420"))


def huge_jpeg(tile):
    stream = bytearray(jpeg(tile))
    struct.pack_into(">2H", stream, stream.index(b"\xff\xc0") + 5, HUGE_PX, HUGE_PX)
    return bytes(stream)


def jpeg_2000(tile):
    return bytes(imagecodecs.jpeg2k_encode(tile, codecformat="j2k", mct=False, reversible=True, level=0))


def huge_jpeg_2000(tile):
    """JPEG 2000 stream that claims this width, height and tile size."""
    stream = bytearray(jpeg_2000(tile))
    struct.pack_into(">2I", stream, 8, HUGE_PX, HUGE_PX)
    struct.pack_into(">2I", stream, 24, HUGE_PX, HUGE_PX)
    return bytes(stream)


def deflate_bomb(tile):
    packer = zlib.compressobj(1)
    block = bytes(2**20)
    return b"".join([*(packer.compress(block) for _ in range(BOMB_BYTES >> 20)), packer.flush()])


def zstd_bomb(tile):
    return bytes(imagecodecs.zstd_encode(np.zeros(BOMB_BYTES, np.uint8), level=1))


BOMBS = {
    "jpeg, copied": ("jpeg", SQUARE, jpeg, huge_jpeg),
    "jpeg, decoded": ("jpeg", OBLONG, jpeg, huge_jpeg),
    "jpeg 2000, copied": (JPEG_2000, SQUARE, jpeg_2000, huge_jpeg_2000),
    "jpeg 2000, decoded": (JPEG_2000, OBLONG, jpeg_2000, huge_jpeg_2000),
    "deflate": ("deflate", SQUARE, lambda tile: zlib.compress(tile.tobytes()), deflate_bomb),
    "zstd": ("zstd", SQUARE, lambda tile: bytes(imagecodecs.zstd_encode(tile)), zstd_bomb),
}


def write_bomb(path, name, level):
    """Write a pyramid of two levels, one of which has a decompression bomb as a tile."""
    compression, tile_hw, encode, bomb = BOMBS[name]
    with tifffile.TiffWriter(path) as tiff:
        for number, pixels in enumerate(halved(sample_image(192, 144), 1)):
            rows, columns = -(-pixels.shape[0] // tile_hw[0]), -(-pixels.shape[1] // tile_hw[1])
            size_hw = rows * tile_hw[0], columns * tile_hw[1]
            whole = np.zeros((*size_hw, 3), np.uint8)
            whole[: pixels.shape[0], : pixels.shape[1]] = pixels
            places = [(y, x) for y in range(0, size_hw[0], tile_hw[0]) for x in range(0, size_hw[1], tile_hw[1])]
            tiles = [np.ascontiguousarray(whole[y : y + tile_hw[0], x : x + tile_hw[1]]) for y, x in places]
            streams = [encode(tile) for tile in tiles]
            if number == level:
                streams[1] = bomb(tiles[1])
            tiff.write(
                iter(streams), shape=pixels.shape, dtype=np.uint8, tile=tile_hw, photometric="rgb",
                compression=compression, subfiletype=1 if number else 0, metadata=None,
            )  # fmt: skip
    return path


def write_label_bomb(path, *, in_stream):
    """Write a small Aperio slide whose label claims too much: its page, or the JPEG in it."""
    with tifffile.TiffWriter(path) as tiff:
        common = {"photometric": "rgb", "compression": "jpeg", "metadata": None, "dtype": np.uint8}
        tile, text = sample_image(64, 64), APERIO.format(width=64, height=64)
        tiff.write(iter([jpeg(tile)]), shape=(64, 64, 3), tile=(64, 64), description=text, **common)
        small = np.ascontiguousarray(tile[::2, ::2])
        tiff.write(iter([jpeg(small)]), shape=(32, 32, 3), rowsperstrip=32, description=text, **common)  # thumbnail
        label = huge_jpeg(tile) if in_stream else jpeg(tile)
        text = "Aperio Image Library v11.2.1\r\nlabel 64x64"
        tiff.write(iter([label]), shape=(64, 64, 3), rowsperstrip=64, subfiletype=1, description=text, **common)
    if not in_stream:
        for tag in (IMAGE_WIDTH, IMAGE_LENGTH, ROWS_PER_STRIP):
            overwrite_tag(path, tag, HUGE_PX, page=2)
    return path


def light(paths, root):
    """Ingest the files; return the outcomes and the memory used. Runs in a separate process."""
    ingest(paths[0], root / "warm", mpp=0.5)
    for path in paths:
        memory = Memory()
        try:
            ingest(path, root / path.stem, mpp=0.5, keep_associated=("label",))
            outcome = ["done", ""]
        except GemslideError as error:
            outcome = [error.code, str(error)]
        left = sorted(p.name for p in (root / path.stem).rglob("*.partial"))
        print(json.dumps([*outcome, memory.taken(), left]), flush=True)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bombs")
    names = [(name, level) for name in BOMBS for level in (0, 1)]
    paths = [write_bomb(folder / "harmless.tiff", "deflate", None)]
    paths += [write_bomb(folder / f"{i}.tiff", name, level) for i, (name, level) in enumerate(names)]
    for in_stream in (False, True):
        names.append(("label", in_stream))
        paths.append(write_label_bomb(folder / f"label{in_stream}.svs", in_stream=in_stream))
    code = (
        "import sys; from pathlib import Path; from tests.pipeline.ingest.test_bombs import light; "
        "light([Path(p) for p in sys.argv[2:]], Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(folder), *map(str, paths)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0][0] == "done"
    return dict(zip(names, lines[1:], strict=True))


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("name", list(BOMBS))
def test_a_tile_that_is_a_bomb_is_refused_with_the_tile_named_and_takes_no_memory(outcomes, name, level):
    code, message, taken_bytes, left = outcomes[name, level]

    assert (code, "row 0, column 1" in message, left) == ("corrupt_tile", True, []), message
    assert taken_bytes < LIMIT_BYTES


@pytest.mark.parametrize("in_stream", [False, True])
def test_a_label_that_is_a_bomb_is_refused_when_it_is_asked_for(outcomes, in_stream):
    code, message, taken_bytes, left = outcomes["label", in_stream]

    assert (code, "its label image cannot be decoded" in message, left) == ("corrupt_tile", True, []), message
    assert taken_bytes < LIMIT_BYTES

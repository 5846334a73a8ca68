"""Compare a store, read with zarr alone, with the decoded source. Started as a process by the tests.

    python plain_zarr.py STORE SOURCE openslide|tifffile NUM_LEVELS EVERY

EVERY = 1 compares all of each level, 4 the first and every fourth band of rows. Imports nothing from gemslide: zarr has
to find the codec by its entry point. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import zlib

import numpy as np
import openslide
import tifffile
import zarr

BAND_PX = 2048
OUR_CODEC = ("pipeline.store", "pipeline.codecs")
"""Modules of gemslide that zarr imports: the codec, by its entry point, and its dependencies."""


def bands(height_px: int, every: int) -> list[slice]:
    """Row ranges of the first and every `every`-th band of an image, counted from the last."""
    all_tops = list(range(0, height_px, BAND_PX))
    tops = sorted({all_tops[0], *all_tops[::-every]})
    return [slice(top, min(top + BAND_PX, height_px)) for top in tops]


def expected_bands(source: str, reader: str, level: int, width: int, height: int, every: int):
    if reader == "tifffile":
        with tifffile.TiffFile(source) as tiff:
            pages = [page for page in tiff.pages if page.shape == (height, width, 3)]
            pixels = pages[0].asarray()
        yield from (pixels[rows] for rows in bands(height, every))
        return
    with openslide.OpenSlide(source) as slide:
        downsample = round(slide.level_downsamples[level])
        for rows in bands(height, every):
            size_wh = (width, rows.stop - rows.start)
            yield np.asarray(slide.read_region((0, rows.start * downsample), level, size_wh))[..., :3]


def compare(store: str, source: str, reader: str, level: int, every: int) -> dict[str, object]:
    array = zarr.open(store, mode="r")[f"0/{level}"]
    _, height, width = array.shape
    crc, worst = 0, 0
    wanted = expected_bands(source, reader, level, width, height, every)
    for rows, expected in zip(bands(height, every), wanted, strict=True):
        band = np.ascontiguousarray(np.moveaxis(array[:, rows], 0, -1))
        crc = zlib.crc32(band, crc)
        if not np.array_equal(band, expected):
            worst = max(worst, int(np.abs(band.astype(int) - expected).max()))
    return {"worst": worst, "crc": crc, "codec": str(array.metadata.codecs[0].codecs[-1])}


if __name__ == "__main__":
    store, source, reader, num_levels, every = sys.argv[1:]
    levels = [compare(store, source, reader, level, int(every)) for level in range(int(num_levels))]
    ours = [name for name in sys.modules if name.startswith("pipeline.") and not name.startswith(OUR_CODEC)]
    print(json.dumps({"levels": levels, "ours": ours}))

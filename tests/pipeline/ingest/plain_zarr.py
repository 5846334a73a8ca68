"""Reads a store with zarr alone and compares it with the source's own decode. Started as a process by the tests.

    python plain_zarr.py STORE SOURCE openslide|tifffile NUM_LEVELS

Imports nothing of gemslide: zarr has to find the codec by its entry point. Prints one JSON object.
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


def expected_bands(source: str, reader: str, level: int, width: int, height: int):
    if reader == "tifffile":
        with tifffile.TiffFile(source) as tiff:
            pages = [page for page in tiff.pages if page.shape == (height, width, 3)]
            pixels = pages[0].asarray()
        yield from (pixels[y : y + BAND_PX] for y in range(0, height, BAND_PX))
        return
    with openslide.OpenSlide(source) as slide:
        downsample = round(slide.level_downsamples[level])
        for y in range(0, height, BAND_PX):
            rows = min(BAND_PX, height - y)
            yield np.asarray(slide.read_region((0, y * downsample), level, (width, rows)))[..., :3]


def compare(store: str, source: str, reader: str, level: int) -> dict[str, object]:
    array = zarr.open(store, mode="r")[f"0/{level}"]
    _, height, width = array.shape
    crc, worst = 0, 0
    for y, expected in zip(
        range(0, height, BAND_PX), expected_bands(source, reader, level, width, height), strict=True
    ):
        band = np.ascontiguousarray(np.moveaxis(array[:, y : y + BAND_PX], 0, -1))
        crc = zlib.crc32(band, crc)
        if not np.array_equal(band, expected):
            worst = max(worst, int(np.abs(band.astype(int) - expected).max()))
    return {"worst": worst, "crc": crc, "codec": str(array.metadata.codecs[0].codecs[-1])}


if __name__ == "__main__":
    store, source, reader, num_levels = sys.argv[1:]
    levels = [compare(store, source, reader, level) for level in range(int(num_levels))]
    codecs = ("pipeline.store", "pipeline.codecs")
    ours = [name for name in sys.modules if name.startswith("pipeline.") and not name.startswith(codecs)]
    print(json.dumps({"levels": levels, "ours": ours}))

"""Small slide files for the tests of ingest: real TIFFs, not square, every tile different."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray

from pipeline.ingest.ingest import IngestReport, IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig, TissueConfig

MPP0 = 0.5
PHOTOMETRIC = 262
APERIO = "Aperio Image Library v11.2.1\r\n{width}x{height} (256x256) J2K/YUV16 Q=70|AppMag = 20|MPP = 0.4990"
PLAIN_TISSUE = TissueConfig(close_um=0, max_speck_um2=0, min_object_um2=0, max_hole_um2=0)

Pixels = NDArray[np.uint8]


def sample_image(width_px: int, height_px: int, seed: int = 0) -> Pixels:
    """Image with colours that vary over the whole width and height, under noise: no two tiles are alike."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:height_px, :width_px]
    base = np.stack([x * 255 / width_px, y * 255 / height_px, (x // 7 + y // 5 + 40 * seed) % 256], -1)
    return np.clip(base + random.integers(-20, 20, base.shape), 0, 255).astype(np.uint8)


def halved(pixels: Pixels, times: int) -> list[Pixels]:
    """The image and `times` smaller ones, each with every second pixel of the previous one."""
    levels = [pixels]
    for _ in range(times):
        levels.append(np.ascontiguousarray(levels[-1][::2, ::2]))
    return levels


def write_pyramid(
    path: Path, levels: list[Pixels], *, tile_px: int | None = 256, compression: str | None = "jpeg", **options: object
) -> Path:
    """Write a pyramid as TIFF: JPEG tiles as in `write_jpeg_pyramid`, or lossless; `tile_px=None` for strips."""
    if compression == "jpeg" and tile_px:
        return write_jpeg_pyramid(path, levels, tile_px=tile_px, **options)
    mpp = options.pop("mpp", MPP0)
    with tifffile.TiffWriter(path) as tiff:
        for level, pixels in enumerate(levels):
            tiff.write(
                pixels, tile=(tile_px, tile_px) if tile_px else None, photometric="rgb", compression=compression,
                subfiletype=1 if level else 0, metadata=None, **_scale(mpp, level), **options,
            )  # fmt: skip
    return path


def write_jpeg_pyramid(
    path: Path,
    levels: list[Pixels],
    *,
    tile_px: int = 256,
    photometric: str = "ycbcr",
    stream: str | None = None,
    subsampling: str = "420",
    shared_tables: bool = True,
    mpp: float | tuple[float, float] | None = MPP0,
    **options: object,
) -> Path:
    """Write a TIFF of JPEG tiles as scanners do.

    Args:
        photometric: value of the TIFF's tag, "rgb" or "ycbcr".
        stream: real content of the tiles (default: the same). "rgb" tiles have no marker that declares it, as Aperio's;
            "ycbcr" tiles have a JFIF marker.
        shared_tables: whether Huffman and quantisation tables are in JPEGTables rather than in the tiles.
    """
    encode = _encode_bare_rgb if (stream or photometric) == "rgb" else _encode_jfif
    with tifffile.TiffWriter(path) as tiff:
        for level, pixels in enumerate(levels):
            tiles = [encode(tile, subsampling) for tile in _full_tiles(pixels, tile_px)]
            tables = []
            if shared_tables:
                shared, tiles = _split_tables(tiles)
                tables = [(347, 7, len(shared), shared, True)]
            tiff.write(
                iter(tiles), shape=pixels.shape, dtype=np.uint8, tile=(tile_px, tile_px), photometric="rgb",
                compression="jpeg", subfiletype=1 if level else 0, metadata=None, extratags=tables,
                **_scale(mpp, level), **options,
            )  # fmt: skip
    for page in range(len(levels)):
        overwrite_tag(path, PHOTOMETRIC, {"rgb": 2, "ycbcr": 6}[photometric], page=page)
    return path


def _scale(mpp: float | tuple[float, float] | None, level: int) -> dict[str, object]:
    if mpp is None:
        return {}
    mpp_xy = mpp if isinstance(mpp, tuple) else (mpp, mpp)
    return {"resolution": tuple(1e4 / (side * 2**level) for side in mpp_xy), "resolutionunit": "CENTIMETER"}


def _full_tiles(pixels: Pixels, tile_px: int) -> Iterator[Pixels]:
    """Tiles row by row; those at the right and bottom are padded with grey, as by scanners."""
    height, width = pixels.shape[:2]
    for y in range(0, height, tile_px):
        for x in range(0, width, tile_px):
            tile = np.full((tile_px, tile_px, 3), 128, np.uint8)
            part = pixels[y : y + tile_px, x : x + tile_px]
            tile[: part.shape[0], : part.shape[1]] = part
            yield tile


def _encode_jfif(tile: Pixels, subsampling: str) -> bytes:
    return bytes(imagecodecs.jpeg8_encode(tile, level=85, subsampling=subsampling))


def _encode_bare_rgb(tile: Pixels, subsampling: str) -> bytes:
    """Encode R, G, B without any colour marker: 16 bytes of APP14 after the first two are cut out."""
    encoded = bytes(imagecodecs.jpeg8_encode(tile, level=85, colorspace="RGB", outcolorspace="RGB"))
    assert encoded[2:4] == b"\xff\xee"
    return encoded[:2] + encoded[18:]


def _split_tables(tiles: list[bytes]) -> tuple[bytes, list[bytes]]:
    """JPEGTables (the same in all tiles), and the tiles without them."""
    split = [_tables_and_rest(tile) for tile in tiles]
    (tables,) = {tables for tables, _ in split}
    return b"\xff\xd8" + tables + b"\xff\xd9", [rest for _, rest in split]


def _tables_and_rest(tile: bytes) -> tuple[bytes, bytes]:
    tables, rest, at = b"", tile[:2], 2
    while tile[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(tile[at + 2 : at + 4], "big")
        if tile[at + 1] in (0xDB, 0xC4):
            tables += tile[at:end]
        else:
            rest += tile[at:end]
        at = end
    return tables, rest + tile[at:]


def write_aperio_j2k(path: Path, pixels: Pixels, *, compression: int) -> Path:
    """Write an Aperio slide of JPEG 2000 tiles (33003 or 33005) that do not declare their three components."""
    height, width = pixels.shape[:2]
    tiles = (
        imagecodecs.jpeg2k_encode(tile, codecformat="j2k", colorspace=0, mct=False, reversible=True, level=0)
        for tile in _full_tiles(pixels, 256)
    )
    with tifffile.TiffWriter(path) as tiff:
        tiff.write(
            tiles, shape=pixels.shape, dtype=np.uint8, tile=(256, 256), photometric="rgb", compression=compression,
            metadata=None, description=APERIO.format(width=width, height=height),
        )  # fmt: skip
    return path


def overwrite_tag(path: Path, code: int, value: int, *, page: int = 0, index: int = 0) -> None:
    """Change one number of a tag in place, so that the header lies."""
    with tifffile.TiffFile(path) as tiff:
        tag = tiff.pages[page].tags[code]
        bytes_each = {3: 2, 4: 4, 16: 8}[int(tag.dtype)]
        at = tag.valueoffset + index * bytes_each
        byteorder = "little" if tiff.byteorder == "<" else "big"
    _overwrite(path, at, value.to_bytes(bytes_each, byteorder))


def overwrite_tile(path: Path, tile: int, junk: bytes, *, page: int = 0, at: int = 0) -> None:
    """Overwrite bytes of one tile from byte `at` on (counted from its end if negative)."""
    with tifffile.TiffFile(path) as tiff:
        offset, count = tiff.pages[page].dataoffsets[tile], tiff.pages[page].databytecounts[tile]
    _overwrite(path, offset + at % count, junk)


def tile_bytes(path: Path, tile: int, *, page: int = 0) -> int:
    with tifffile.TiffFile(path) as tiff:
        return int(tiff.pages[page].databytecounts[tile])


def _overwrite(path: Path, at: int, junk: bytes) -> None:
    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(junk)


def ingest(
    path: Path, root: Path, *, slide_id: str = "S-1", mpp: float | None = None, **settings: object
) -> IngestReport:
    """Ingest one slide with small shards, so that small slides have several."""
    config = IngestConfig(**{"shard_px": 512, "tissue": PLAIN_TISSUE, **settings})
    return ingest_slide(IngestRequest(path, slide_id, mpp_option=mpp), Project(root), config)

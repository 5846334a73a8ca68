"""Small slides in the scanners' own formats, with the parts that OpenSlide reads; and their pixels.

The meaning of the fields is public: openslide.org/formats, and the behaviour of OpenSlide 4.0.1 itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
WHITE = 255
_Tiles = dict[tuple[int, int], Pixels]
"""Images of one level by (column, row)."""


class Made(NamedTuple):
    """A slide file and its image at each level."""

    path: Path
    levels: list[Pixels]


def jpeg(pixels: Pixels) -> bytes:
    """Complete JPEG stream without chroma subsampling, so that a tile's pixels do not depend on its neighbours."""
    return bytes(imagecodecs.jpeg8_encode(pixels, level=90, subsampling="444" if pixels.ndim == 3 else None))


def decoded(stream: bytes) -> Pixels:
    return np.asarray(imagecodecs.jpeg8_decode(stream))


# --- 3DHISTECH MRXS ------------------------------------------------------------------------------------------

MRXS_UUID = "0123456789ABCDEF0123456789ABCDEF"


def write_mrxs(path: Path, tiles: _Tiles, *, columns: int, rows: int, num_levels: int = 1) -> Made:
    """Write an .mrxs with its folder; `tiles` by (column, row), all of one size; the rest is unscanned.

    Lower levels join two by two images into one of the same size, every second pixel of each.
    """
    tile_h, tile_w = next(iter(tiles.values())).shape[:2]
    folder = path.with_suffix("")
    folder.mkdir()
    path.write_bytes(jpeg(np.full((16, 16, 3), 120, np.uint8)))
    data, image, levels, pages = bytearray(b"MRXS data"), {}, [], []
    images: _Tiles = tiles
    for level in range(num_levels):
        step = 2**level
        images = images if level == 0 else _joined(images, step, tile_h, tile_w)
        page = []
        for (column, row), pixels in sorted(images.items(), key=lambda item: (item[0][1], item[0][0])):
            stream = jpeg(pixels)
            page.append((row * columns + column, len(data), len(stream), 0))
            data += stream
            image[level, column, row] = decoded(stream)
        pages.append(page)
        if columns * rows > 1000:
            continue  # too large an image to allocate
        whole = np.full((rows * tile_h // step, columns * tile_w // step, 3), WHITE, np.uint8)
        for column, row in images:
            y, x = row * tile_h // step, column * tile_w // step
            part = image[level, column, row][: whole.shape[0] - y, : whole.shape[1] - x]
            whole[y : y + part.shape[0], x : x + part.shape[1]] = part
        levels.append(whole)
    associated = [jpeg(np.full((20, 30, 3), 40 * i + 60, np.uint8)) for i in range(3)]
    records = []
    for stream in associated:
        records.append((len(data), len(stream), 0))
        data += stream
    (folder / "Data0000.dat").write_bytes(data)
    (folder / "Index.dat").write_bytes(_mrxs_index(pages, records))
    (folder / "Slidedat.ini").write_text(_slidedat(columns, rows, tile_w, tile_h, num_levels), encoding="utf-8-sig")
    return Made(path, levels)


def _joined(images: _Tiles, step: int, tile_h: int, tile_w: int) -> _Tiles:
    """Images of the next level, at multiples of `step` and joined from up to four; white where none was scanned."""
    joined: _Tiles = {}
    half = step // 2
    for (column, row), pixels in images.items():
        key = (column // step * step, row // step * step)
        whole = joined.setdefault(key, np.full((tile_h, tile_w, 3), WHITE, np.uint8))
        y, x = (row - key[1]) // half * (tile_h // 2), (column - key[0]) // half * (tile_w // 2)
        whole[y : y + tile_h // 2, x : x + tile_w // 2] = pixels[::2, ::2]
    return joined


def _mrxs_index(pages: list[list[tuple[int, int, int, int]]], records: list[tuple[int, int, int]]) -> bytes:
    head = b"01.02" + MRXS_UUID.encode()
    body = bytearray()
    base = len(head) + 8

    def put(*numbers: int) -> int:
        at = base + len(body)
        body.extend(struct.pack(f"<{len(numbers)}i", *numbers))
        return at

    starts = []
    for page in pages:
        at = put(len(page), 0, *[number for entry in page for number in entry])
        starts.append(put(0, at))
    hier = put(*starts)
    starts = []
    for offset, size, file in records:
        at = put(1, 0, 0, 0, offset, size, file)
        starts.append(put(0, at))
    nonhier = put(*starts)
    return head + struct.pack("<2i", hier, nonhier) + bytes(body)


def _slidedat(columns: int, rows: int, tile_w: int, tile_h: int, num_levels: int) -> str:
    lines = [
        "[GENERAL]", "SLIDE_VERSION = 01.02", f"SLIDE_ID = {MRXS_UUID}", "SLIDE_NAME = Jane Doe 1950",
        f"IMAGENUMBER_X = {columns}", f"IMAGENUMBER_Y = {rows}", "OBJECTIVE_MAGNIFICATION = 20",
        "OBJECTIVE_NAME = Plan-Apochromat", "CameraImageDivisionsPerSide = 1",
        "[HIERARCHICAL]", "HIER_COUNT = 1", "NONHIER_COUNT = 1", "INDEXFILE = Index.dat",
        "HIER_0_NAME = Slide zoom level", f"HIER_0_COUNT = {num_levels}",
    ]  # fmt: skip
    lines += [f"HIER_0_VAL_{i}_SECTION = LAYER_0_LEVEL_{i}_SECTION" for i in range(num_levels)]
    lines += ["NONHIER_0_NAME = Scan data layer", "NONHIER_0_COUNT = 3"]
    kinds = [("SlideThumbnail", "THUMBNAIL"), ("SlideBarcode", "BARCODE"), ("SlidePreview", "PREVIEW")]
    for i, (name, _) in enumerate(kinds):
        lines += [f"NONHIER_0_VAL_{i} = ScanDataLayer_{name}", f"NONHIER_0_VAL_{i}_SECTION = NONHIER_{i}_SECTION"]
    for i, (_, key) in enumerate(kinds):
        lines += [f"[NONHIER_{i}_SECTION]", f"{key}_IMAGE_TYPE = JPEG"]
    lines += ["[DATAFILE]", "FILE_COUNT = 1", "FILE_0 = Data0000.dat"]
    for i in range(num_levels):
        mpp = 0.25 * 2**i
        lines += [
            f"[LAYER_0_LEVEL_{i}_SECTION]", f"IMAGE_CONCAT_FACTOR = {min(i, 1)}", "OVERLAP_X = 0", "OVERLAP_Y = 0",
            f"MICROMETER_PER_PIXEL_X = {mpp}", f"MICROMETER_PER_PIXEL_Y = {mpp}", "IMAGE_FORMAT = JPEG",
            "IMAGE_FILL_COLOR_BGR = 16777215", f"DIGITIZER_WIDTH = {tile_w}", f"DIGITIZER_HEIGHT = {tile_h}",
        ]  # fmt: skip
    return "\r\n".join(lines) + "\r\n"


# --- tiled TIFFs with the maker's XML ------------------------------------------------------------------------


def tile_streams(pixels: Pixels, tile_px: int, missing: Iterable[tuple[int, int]] = ()) -> tuple[list[bytes], Pixels]:
    """JPEG tiles row by row, and their decoded image; `missing` (column, row) are empty and white."""
    height, width = pixels.shape[:2]
    streams, image = [], np.full((height, width, 3), WHITE, np.uint8)
    for y in range(0, height, tile_px):
        for x in range(0, width, tile_px):
            if (x // tile_px, y // tile_px) in set(missing):
                streams.append(b"")
                continue
            part = pixels[y : y + tile_px, x : x + tile_px]
            tile = np.pad(part, ((0, tile_px - part.shape[0]), (0, tile_px - part.shape[1]), (0, 0)), mode="edge")
            streams.append(jpeg(tile))
            image[y : y + tile_px, x : x + tile_px] = decoded(streams[-1])[: part.shape[0], : part.shape[1]]
    return streams, image


def set_ycbcr(path: Path) -> None:
    """Correct the tag: tifffile writes photometric RGB for encoded tiles, which are YCbCr."""
    with tifffile.TiffFile(path, mode="r+") as tiff:
        for page in tiff.pages:
            for part in [page.aspage(), *(page.aspage().pages or [])]:
                if part.aspage().compression == tifffile.COMPRESSION.JPEG:
                    part.aspage().tags[262].overwrite(6)


SCN_NAMESPACE = "http://www.leica-microsystems.com/scn/2010/10/01"


class ScnArea(NamedTuple):
    """One scanned region: its position on the slide in nanometres, and its pyramid."""

    x_nm: int
    y_nm: int
    levels: list[Pixels]


def write_scn(path: Path, areas: list[ScnArea], *, slide_nm: tuple[int, int], nm_per_px: int = 500) -> Made:
    """Write a Leica .scn: BigTIFF, a macro image of the whole slide, and its regions."""
    macro = np.full((64, 64, 3), 200, np.uint8)
    pages = [macro] + [level for area in areas for level in area.levels]
    xml = [
        f'<?xml version="1.0"?><scn xmlns="{SCN_NAMESPACE}"><collection name="Jane Doe" '
        f'sizeX="{slide_nm[0]}" sizeY="{slide_nm[1]}"><barcode>SmFuZSBEb2U=</barcode>',
        _scn_image(0, 0, *slide_nm, [(0, macro)]),
    ]
    ifd = 1
    for area in areas:
        height, width = area.levels[0].shape[:2]
        numbered = list(enumerate(area.levels, ifd))
        xml.append(_scn_image(area.x_nm, area.y_nm, width * nm_per_px, height * nm_per_px, numbered))
        ifd += len(area.levels)
    xml.append("</collection></scn>")
    decoded_pages = []
    with tifffile.TiffWriter(path, bigtiff=True) as tiff:
        for i, pixels in enumerate(pages):
            streams, image = tile_streams(pixels, 64)
            if i == 0:
                # libtiff, which OpenSlide uses for the macro image, assumes 4:2:0.
                streams = [bytes(imagecodecs.jpeg8_encode(pixels, level=90, subsampling="420"))]
            decoded_pages.append(image)
            tiff.write(
                iter(streams), shape=pixels.shape, dtype=np.uint8, tile=(64, 64), photometric="rgb",
                compression="jpeg", metadata=None, description="".join(xml) if i == 0 else None,
                resolution=(1e7 / nm_per_px, 1e7 / nm_per_px), resolutionunit="CENTIMETER",
            )  # fmt: skip
    set_ycbcr(path)
    return Made(path, decoded_pages[1:])


def _scn_image(x_nm: int, y_nm: int, width_nm: int, height_nm: int, levels: list[tuple[int, Pixels]]) -> str:
    dimensions = "".join(
        f'<dimension r="{i}" ifd="{ifd}" sizeX="{pixels.shape[1]}" sizeY="{pixels.shape[0]}"/>'
        for i, (ifd, pixels) in enumerate(levels)
    )
    return (
        f'<image><creationDate>2020-01-01</creationDate><device model="Leica SCN400;Leica SCN" version="1.4"/>'
        f"<pixels>{dimensions}</pixels>"
        f'<view sizeX="{width_nm}" sizeY="{height_nm}" offsetX="{x_nm}" offsetY="{y_nm}"/>'
        "<scanSettings><objectiveSettings><objective>20</objective></objectiveSettings><illuminationSettings>"
        "<numericalAperture>0.4</numericalAperture><illuminationSource>brightfield</illuminationSource>"
        "</illuminationSettings></scanSettings></image>"
    )


def write_bif(
    path: Path, tiles: dict[tuple[int, int], Pixels], *, columns: int, rows: int, num_levels: int = 2
) -> Made:
    """Write a Ventana .bif of one area without overlap: `tiles` by (column, row), all square and present."""
    tile_px = next(iter(tiles.values())).shape[0]
    iscan = (
        b'<iScan Magnification="20" ScanRes="0.465" Z-layers="1" ScannerModel="iScan HT" UnitNumber="SN-123" '
        b'LabelBoundary="0"></iScan>'
    )
    joints = []
    # Tiles are numbered from the bottom, every second row from the right.
    number = {
        (column if (rows - 1 - row) % 2 == 0 else columns - 1 - column, row): (rows - 1 - row) * columns + column + 1
        for row in range(rows)
        for column in range(columns)
    }
    for (column, row), first in number.items():
        for other, direction in (((column + 1, row), "RIGHT"), ((column, row - 1), "UP")):
            if other in number:
                joints.append(
                    f'<TileJointInfo FlagJoined="1" Confidence="99" Direction="{direction}" Tile1="{first}" '
                    f'Tile2="{number[other]}" OverlapX="0" OverlapY="0"/>'
                )
    encode = (
        f'<EncodeInfo Ver="2"><SlideInfo/><SlideStitchInfo><ImageInfo AOIScanned="1" AOIIndex="0" NumRows="{rows}" '
        f'NumCols="{columns}" Width="{tile_px}" Height="{tile_px}" Pos-X="0" Pos-Y="0">{"".join(joints)}</ImageInfo>'
        '</SlideStitchInfo><AoiOrigin><AOI0 OriginX="0" OriginY="0"/></AoiOrigin></EncodeInfo>'
    ).encode()
    whole = np.block([[[tiles[column, row]] for column in range(columns)] for row in range(rows)])
    pages: list[tuple[Pixels, str, bytes, int | None]] = [
        (np.full((48, 32, 3), 90, np.uint8), "Label_Image", iscan, None)
    ]
    for level in range(num_levels):
        step = 2**level
        pages.append((whole[::step, ::step], f"level={level} mag={20 / step:g} quality=90", encode, tile_px))
    images = []
    with tifffile.TiffWriter(path, bigtiff=True) as tiff:
        for pixels, description, xml, side in pages:
            pixels = np.ascontiguousarray(pixels)
            options: dict[str, object] = {}
            data: object = pixels
            if side:
                streams, image = tile_streams(pixels, side)
                images.append(image)
                data, options = iter(streams), {"compression": "jpeg", "tile": (side, side)}
            tiff.write(
                data, shape=pixels.shape, dtype=np.uint8, photometric="rgb", metadata=None, description=description,
                extratags=[(700, 1, len(xml), xml, True)], **options,
            )  # fmt: skip
    set_ycbcr(path)
    return Made(path, images)

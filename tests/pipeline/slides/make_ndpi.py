"""Hamamatsu NDPI files: one JPEG with restart markers per level, and the 8-byte offsets that only NDPI has.

The meaning of the tags is public: openslide.org/formats/hamamatsu, and tifffile.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

from tests.pipeline.slides.make_vendor_slides import Made, Pixels, decoded, jpeg

NDPI_FLAG, NDPI_LENS, NDPI_X_NM, NDPI_FOCAL_PLANE, NDPI_MCU_STARTS = 65420, 65421, 65422, 65424, 65426
NDPI_PROPERTIES = 65449
_MAKE, _MODEL = b"Hamamatsu\0", b"C9600-12\0"
_PROPERTIES = b"Product=NanoZoomer 2.0-HT\r\nSlide Identifier=Jane Doe\r\n\0"
_Tag = tuple[int, int, int, int | bytes]


@dataclass(frozen=True)
class NdpiImage:
    """One page: a JPEG, and the magnification, which is -1 for the macro image."""

    stream: bytes
    width_px: int
    height_px: int
    lens: float
    components: int = 3
    height_nm: int = 0
    """Of its focal plane."""


def write_ndpi(
    path: Path,
    levels: list[Pixels],
    *,
    macro: Pixels | None = None,
    subsampling: int = 0,
    interval_mcus: int = 8,
    **options: Any,
) -> Made:
    """Write an .ndpi of levels given as pixels, finest first.

    Args:
        subsampling: of chroma, in Pillow's terms: 0, 1, 2 for 4:4:4, 4:2:2, 4:2:0.
        interval_mcus: MCUs in a restart interval.
        options: of `write_ndpi_images`.
    """
    streams = [_restart_jpeg(pixels, subsampling, interval_mcus) for pixels in levels]
    images = [
        _image(pixels, stream, 20.0 / 2**i) for i, (pixels, stream) in enumerate(zip(levels, streams, strict=True))
    ]
    if macro is not None:
        images.append(_image(macro, jpeg(macro), -1.0))
    write_ndpi_images(path, images, **options)
    return Made(path, [decoded(stream) for stream in streams])


def write_ndpi_stack(path: Path, planes: dict[int, list[Pixels]], **options: Any) -> dict[int, list[Pixels]]:
    """Write an .ndpi of levels by focal plane, by its height in nanometres. Returns their pixels as libjpeg shows them.

    Args:
        options: as of `stack_images`.
    """
    images = stack_images(planes, **options)
    write_ndpi_images(path, images)
    return {nm: [decoded(image.stream) for image in images if image.height_nm == nm] for nm in planes}


def stack_images(planes: dict[int, list[Pixels]], *, subsampling: int = 0, interval_mcus: int = 8) -> list[NdpiImage]:
    """Pages of levels by focal plane; see `write_ndpi`."""
    return [
        replace(_image(pixels, _restart_jpeg(pixels, subsampling, interval_mcus), 20.0 / 2**i), height_nm=height_nm)
        for height_nm, levels in planes.items()
        for i, pixels in enumerate(levels)
    ]


def _image(pixels: Pixels, stream: bytes, lens: float) -> NdpiImage:
    return NdpiImage(stream, pixels.shape[1], pixels.shape[0], lens, 3 if pixels.ndim == 3 else 1)


def write_ndpi_images(
    path: Path,
    images: Sequence[NdpiImage],
    *,
    mpp: float = 0.5,
    centre_nm: tuple[int, int] | None = None,
    more_tags: Sequence[_Tag] = (),
    without_tags: Collection[int] = (),
    begins_at: int = 12,
) -> None:
    """Write an .ndpi of JPEG streams.

    Args:
        begins_at: byte of the first image; what is before it is a hole in the file.
    """
    content = _Far(begins_at)
    link, first_page = 0, 0
    for image in images:
        tags = [*_tags(content, image, mpp, centre_nm), *more_tags]
        tags = sorted(tag for tag in tags if tag[0] not in without_tags)
        page = content.add(_page(tags))
        if link:
            content.put(link, struct.pack("<Q", page))
        first_page, link = first_page or page, page + 2 + 12 * len(tags)
    content.write(path, b"II*\0" + struct.pack("<Q", first_page))


def _tags(content: _Far, image: NdpiImage, mpp: float, centre_nm: tuple[int, int] | None) -> list[_Tag]:
    """An image's tags; what they point to is added to the file."""
    start, starts = content.add(image.stream), _restart_offsets(image.stream)
    starts_at = content.add(struct.pack(f"<{len(starts)}I", *starts))
    resolution_at = content.add(struct.pack("<II", round(1e7 / mpp * (1 if image.lens == 20 else 0.5)), 1000))
    make_at, model_at, properties_at = map(content.add, (_MAKE, _MODEL, _PROPERTIES))
    tags: list[_Tag] = [
        (256, 4, 1, image.width_px), (257, 4, 1, image.height_px), (258, 3, 1, 8), (259, 3, 1, 7),
        (262, 3, 1, 6 if image.components == 3 else 1), (271, 2, len(_MAKE), make_at), (272, 2, len(_MODEL), model_at),
        (273, 4, 1, start), (277, 3, 1, image.components), (278, 4, 1, image.height_px),
        (279, 4, 1, len(image.stream)), (282, 5, 1, resolution_at), (283, 5, 1, resolution_at), (296, 3, 1, 3),
        (NDPI_FLAG, 4, 1, 1), (NDPI_LENS, 11, 1, struct.pack("<f", image.lens)),
        *((NDPI_X_NM + axis, 9, 1, struct.pack("<i", nm)) for axis, nm in enumerate(centre_nm or ())),
        (NDPI_FOCAL_PLANE, 9, 1, struct.pack("<i", image.height_nm)),
        (NDPI_PROPERTIES, 2, len(_PROPERTIES), properties_at),
    ]  # fmt: skip
    return [*tags, (NDPI_MCU_STARTS, 4, len(starts), starts_at)] if len(starts) > 1 else tags


class _Far:
    """The part of a file from a byte on."""

    def __init__(self, begins_at: int) -> None:
        self._begins_at, self._content = begins_at, bytearray()

    def add(self, data: bytes) -> int:
        """Append bytes at the next multiple of four. Returns their position in the file."""
        self._content += bytes(-len(self._content) % 4)
        at = self._begins_at + len(self._content)
        self._content += data
        return at

    def put(self, at: int, data: bytes) -> None:
        self._content[at - self._begins_at : at - self._begins_at + len(data)] = data

    def write(self, path: Path, head: bytes) -> None:
        with path.open("wb") as file:
            file.write(head)
            file.seek(self._begins_at)
            file.write(self._content)


def _page(tags: list[tuple[int, int, int, int | bytes]]) -> bytes:
    """Tags, eight bytes for the next page, and the upper halves of the tags' values."""
    fields, upper = b"", b""
    for code, kind, count, value in tags:
        whole = struct.pack("<Q", value) if isinstance(value, int) else value + bytes(4)
        fields += struct.pack("<HHI", code, kind, count) + whole[:4]
        upper += whole[4:]
    return struct.pack("<H", len(tags)) + fields + bytes(8) + upper


def _restart_jpeg(pixels: Pixels, subsampling: int, interval_mcus: int) -> bytes:
    """A JPEG with restart markers: OpenSlide reads the pieces between them as tiles."""
    stream = io.BytesIO()
    options = {"quality": 90, "subsampling": subsampling, "restart_marker_blocks": interval_mcus}
    Image.fromarray(pixels).save(stream, "JPEG", **options)
    return stream.getvalue()


def _restart_offsets(stream: bytes) -> list[int]:
    """Offsets of the data of the restart intervals, from the start of the stream."""
    at = 2
    while stream[at + 1] != 0xDA:
        at += 2 + int.from_bytes(stream[at + 2 : at + 4], "big")
    at += 2 + int.from_bytes(stream[at + 2 : at + 4], "big")
    return [at, *(match.end() for match in re.compile(rb"\xff[\xd0-\xd7]").finditer(stream, at))]

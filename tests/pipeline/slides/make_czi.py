"""A small Zeiss CZI with the parts that OpenSlide reads: ZISRAW segments as published, one plane, no pyramid."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BGR24 = 3


def write_czi(
    path: Path,
    pixels: NDArray[np.uint8],
    *,
    mpp: float = 0.5,
    label: NDArray[np.uint8] | None = None,
    pixel_type: int = BGR24,
    size_z: int = 1,
) -> Path:
    """Write one uncompressed subblock, and `label` as the attachment of that name, itself a CZI."""
    path.write_bytes(_czi(pixels, mpp, label, pixel_type, size_z))
    return path


def _czi(pixels: NDArray[np.uint8], mpp: float, label: NDArray[np.uint8] | None, pixel_type: int, size_z: int) -> bytes:
    height, width = pixels.shape[:2]
    subblock_at = 32 + 512
    data = np.ascontiguousarray(pixels[..., ::-1]).tobytes()
    entry = _entry(width, height, subblock_at, pixel_type)
    head = struct.pack("<iiq", 0, 0, len(data)) + entry
    subblock = _segment(b"ZISRAWSUBBLOCK", head.ljust(256, b"\0") + data)
    directory_at = subblock_at + len(subblock)
    directory = _segment(b"ZISRAWDIRECTORY", struct.pack("<i", 1).ljust(128, b"\0") + entry)
    metadata_at = directory_at + len(directory)
    xml = _xml(width, height, mpp, size_z)
    metadata = _segment(b"ZISRAWMETADATA", struct.pack("<ii", len(xml), 0).ljust(256, b"\0") + xml)
    content = subblock + directory + metadata
    described = b""
    if label is not None:
        embedded = _czi(label, mpp, None, BGR24, 1)
        attachment_at = metadata_at + len(metadata)
        described = struct.pack("<2s10sqi16s8s80s", b"A1", b"", attachment_at, 0, bytes(16), b"CZI", b"Label")
        head = struct.pack("<i12s", len(embedded), b"") + described
        content += _segment(b"ZISRAWATTACH", head.ljust(256, b"\0") + embedded)
    attachments_at = 32 + 512 + len(content)
    content += _segment(b"ZISRAWATTDIR", struct.pack("<i", bool(described)).ljust(256, b"\0") + described)
    guid = bytes(range(16))
    positions = struct.pack("<iqqiq", 0, directory_at, metadata_at, 0, attachments_at)
    header = struct.pack("<iiii", 1, 0, 0, 0) + guid + guid + positions
    return _segment(b"ZISRAWFILE", header.ljust(512, b"\0")) + content


def _segment(name: bytes, content: bytes) -> bytes:
    padded = content.ljust(-(-len(content) // 32) * 32, b"\0")
    return struct.pack("<16sqq", name, len(padded), len(content)) + padded


def _entry(width: int, height: int, at: int, pixel_type: int) -> bytes:
    dimensions = [("X", 0, width), ("Y", 0, height), ("C", 0, 1), ("S", 0, 1), ("M", 0, 1)]
    head = struct.pack("<2siqiib5si", b"DV", pixel_type, at, 0, 0, 0, b"", len(dimensions))
    return head + b"".join(
        struct.pack("<4siifi", name.encode(), start, size, 0.0, size) for name, start, size in dimensions
    )


def _xml(width: int, height: int, mpp: float, size_z: int) -> bytes:
    def scaling(axis: str) -> str:
        return f'<Distance Id="{axis}"><Value>{mpp * 1e-6}</Value></Distance>'

    return (
        '<?xml version="1.0" encoding="utf-8"?><ImageDocument><Metadata><Information><Image>'
        f"<SizeX>{width}</SizeX><SizeY>{height}</SizeY><SizeS>1</SizeS><SizeC>1</SizeC><SizeM>1</SizeM>"
        f"{f'<SizeZ>{size_z}</SizeZ>' if size_z > 1 else ''}"
        '<PixelType>Bgr24</PixelType><Dimensions><Channels><Channel Id="Channel:0"><PixelType>Bgr24</PixelType>'
        '</Channel></Channels><S><Scenes><Scene Index="0" Name="S1"><CenterPosition>0,0</CenterPosition></Scene>'
        "</Scenes></S></Dimensions></Image></Information>"
        f"<Scaling><Items>{scaling('X')}{scaling('Y')}</Items></Scaling></Metadata></ImageDocument>"
    ).encode()

"""Small DICOM whole-slide instances for the tests: not square, every tile different, written with pydicom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import imagecodecs
import numpy as np
from numpy.typing import NDArray
from PIL import ImageCms
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate, encapsulate_extended
from pydicom.uid import UID, generate_uid

Pixels = NDArray[np.uint8]

WHOLE_SLIDE = "1.2.840.10008.5.1.4.1.1.77.1.6"
ANNOTATIONS = "1.2.840.10008.5.1.4.1.1.91.1"
NATIVE, IMPLICIT, ENCAPSULATED_NATIVE = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2", "1.2.840.10008.1.2.1.98"
JPEG, JPEG_EXTENDED, JPEG_LOSSLESS, JPEG_LS = (f"1.2.840.10008.1.2.4.{n}" for n in (50, 51, 70, 80))
JPEG_2000_LOSSLESS, JPEG_2000, HTJ2K = (f"1.2.840.10008.1.2.4.{n}" for n in (90, 91, 201))
RLE = "1.2.840.10008.1.2.5"
PATIENT = "Penicillin^Penelope"
MPP0 = 0.5
ICC = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def jpeg_ycc(tile: Pixels) -> bytes:
    """JPEG, 4:2:0 with a JFIF marker."""
    return bytes(imagecodecs.jpeg8_encode(tile, level=85, subsampling="420"))


def jpeg_rgb(tile: Pixels) -> bytes:
    """JPEG, R, G, B with an APP14 marker that declares it."""
    return bytes(imagecodecs.jpeg8_encode(tile, level=85, colorspace="RGB", outcolorspace="RGB"))


def jpeg_bare(tile: Pixels) -> bytes:
    """JPEG, R, G, B without a marker."""
    encoded = jpeg_rgb(tile)
    assert encoded[2:4] == b"\xff\xee"
    return encoded[:2] + encoded[18:]


def jpeg_ycc_bare(tile: Pixels) -> bytes:
    """JPEG, 4:2:0 without its JFIF marker (18 bytes)."""
    encoded = jpeg_ycc(tile)
    assert encoded[2:4] == b"\xff\xe0"
    return encoded[:2] + encoded[20:]


def jpeg_2000(tile: Pixels) -> bytes:
    return bytes(imagecodecs.jpeg2k_encode(tile, codecformat="j2k", mct=True, reversible=True, level=0))


def jpeg_2000_lossy(tile: Pixels) -> bytes:
    return bytes(imagecodecs.jpeg2k_encode(tile, codecformat="j2k", mct=True, reversible=False, level=40))


def jpeg_2000_without_transform(tile: Pixels) -> bytes:
    return bytes(imagecodecs.jpeg2k_encode(tile, codecformat="j2k", mct=False, reversible=True, level=0))


def htj2k(tile: Pixels) -> bytes:
    return bytes(imagecodecs.htj2k_encode(tile, reversible=True))


def jpeg_ls(tile: Pixels) -> bytes:
    return bytes(imagecodecs.jpegls_encode(tile, out=tile.nbytes * 2 + 1024))


def jpeg_lossless(tile: Pixels) -> bytes:
    return bytes(imagecodecs.jpeg8_encode(tile, lossless=True, colorspace="RGB", outcolorspace="RGB"))


def rle(tile: Pixels) -> bytes:
    """DICOM's run lengths (PS3.5, annex G), here without any run: one segment per colour, rows apart."""
    segments = []
    for plane in np.moveaxis(tile, -1, 0):
        coded = b"".join(bytes([len(part) - 1]) + part for row in plane for part in _pieces(row.tobytes(), 128))
        segments.append(coded + b"\0" * (len(coded) % 2))
    offsets = [64 + sum(len(s) for s in segments[:i]) for i in range(3)]
    head = np.array([3, *offsets, *[0] * 12], "<u4").tobytes()
    return head + b"".join(segments)


def native(tile: Pixels) -> bytes:
    return tile.tobytes()


def tiles_of(pixels: Pixels, tile_wh: tuple[int, int]) -> list[Pixels]:
    """Tiles row by row; those at the right and bottom are padded with grey."""
    tile_w, tile_h = tile_wh
    tiles = []
    for y in range(0, pixels.shape[0], tile_h):
        for x in range(0, pixels.shape[1], tile_w):
            tile = np.full((tile_h, tile_w, 3), 128, np.uint8)
            part = pixels[y : y + tile_h, x : x + tile_w]
            tile[: part.shape[0], : part.shape[1]] = part
            tiles.append(tile)
    return tiles


def write_dicom(
    path: Path,
    pixels: Pixels,
    *,
    tile_wh: tuple[int, int] = (64, 64),
    syntax: str = JPEG,
    encode: Callable[[Pixels], bytes] = jpeg_ycc,
    photometric: str = "YBR_FULL_422",
    kind: str | None = "VOLUME",
    sparse: Sequence[int] | None = None,
    empty: Sequence[int] = (),
    offsets: str = "basic",
    downsample: int = 1,
    series: str = "1.2.3.4",
    change: Callable[[Dataset], None] = lambda ds: None,
) -> Path:
    """Write one instance.

    Args:
        sparse: TILED_SPARSE with these tiles, in this order; None for TILED_FULL.
        empty: tiles whose frame has no bytes.
        offsets: "basic", "extended" or "none".
        change: any further change to the dataset; called right before writing.
    """
    tiles = tiles_of(pixels, tile_wh)
    columns = -(-pixels.shape[1] // tile_wh[0])
    order = list(range(len(tiles))) if sparse is None else list(sparse)
    frames = [b"" if tile in empty else encode(tiles[tile]) for tile in order]
    ds = _attributes(pixels, tile_wh, syntax, photometric, kind, downsample, series)
    ds.NumberOfFrames = len(frames)
    ds.DimensionOrganizationType = "TILED_FULL" if sparse is None else "TILED_SPARSE"
    if sparse is not None:
        places = [(tile % columns * tile_wh[0] + 1, tile // columns * tile_wh[1] + 1) for tile in order]
        ds.PerFrameFunctionalGroupsSequence = [_place(x, y) for x, y in places]
    put_pixels(ds, frames, offsets)
    change(ds)
    ds.save_as(path, enforce_file_format=True)
    return path


def write_dicom_stack(
    path: Path, planes: dict[float, Pixels], *, tile_wh: tuple[int, int] = (64, 64), is_full: bool = True,
    downsample: int = 1, series: str = "1.2.3.4", change: Callable[[Dataset], None] = lambda ds: None,
) -> dict[float, Pixels]:  # fmt: skip
    """Write one instance with a focal plane at each height, in micrometres. Returns their pixels as libjpeg shows them.

    Args:
        is_full: TILED_FULL, its planes lowest first; else TILED_SPARSE, with a height for each frame.
    """
    order = sorted(planes) if is_full else list(planes)
    tiles = {height: tiles_of(planes[height], tile_wh) for height in order}
    frames = {height: [jpeg_ycc(tile) for tile in tiles[height]] for height in order}
    pixels = planes[order[0]]
    ds = _attributes(pixels, tile_wh, JPEG, "YBR_FULL_422", "VOLUME", downsample, series)
    ds.NumberOfFrames, ds.TotalPixelMatrixFocalPlanes = sum(map(len, frames.values())), len(planes)
    ds.DimensionOrganizationType = "TILED_FULL" if is_full else "TILED_SPARSE"
    columns = -(-pixels.shape[1] // tile_wh[0])
    if is_full:
        origin, measures = Dataset(), ds.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0]
        origin.XOffsetInSlideCoordinateSystem = origin.YOffsetInSlideCoordinateSystem = 0
        origin.ZOffsetInSlideCoordinateSystem = order[0]
        ds.TotalPixelMatrixOriginSequence = [origin]
        measures.SpacingBetweenSlices = (order[-1] - order[0]) / max(1, len(order) - 1) / 1000
    else:
        ds.PerFrameFunctionalGroupsSequence = [
            _place(at % columns * tile_wh[0] + 1, at // columns * tile_wh[1] + 1, height)
            for height in order
            for at in range(len(frames[height]))
        ]
    put_pixels(ds, [frame for height in order for frame in frames[height]], "basic")
    change(ds)
    ds.save_as(path, enforce_file_format=True)
    return {height: _joined(frames[height], columns, pixels.shape) for height in order}


def _joined(frames: list[bytes], columns: int, shape: tuple[int, ...]) -> Pixels:
    tiles = [imagecodecs.jpeg8_decode(frame) for frame in frames]
    rows = [np.concatenate(tiles[at : at + columns], axis=1) for at in range(0, len(tiles), columns)]
    return np.concatenate(rows)[: shape[0], : shape[1]]


def put_pixels(ds: Dataset, frames: list[bytes], offsets: str) -> None:
    """Set Pixel Data from the frames, encapsulated if the transfer syntax requires it."""
    if ds.file_meta.TransferSyntaxUID.is_encapsulated:
        if offsets == "extended":
            ds.PixelData, ds.ExtendedOffsetTable, ds.ExtendedOffsetTableLengths = encapsulate_extended(frames)
        else:
            ds.PixelData = encapsulate(frames, has_bot=offsets == "basic") if all(frames) else _items(frames)
        ds["PixelData"].VR = "OB"
        ds["PixelData"].is_undefined_length = True
    else:
        raw = b"".join(frames)
        ds.PixelData = raw + b"\0" * (len(raw) % 2)
        ds["PixelData"].VR = "OB"


def _items(frames: list[bytes]) -> bytes:
    """Items without an offset table; unlike pydicom's, a frame may be empty."""
    padded = [frame + b"\0" * (len(frame) % 2) for frame in frames]
    return b"\xfe\xff\x00\xe0\0\0\0\0" + b"".join(
        b"\xfe\xff\x00\xe0" + len(frame).to_bytes(4, "little") + frame for frame in padded
    )


def _attributes(
    pixels: Pixels,
    tile_wh: tuple[int, int],
    syntax: str,
    photometric: str,
    kind: str | None,
    downsample: int,
    series: str,
) -> Dataset:
    ds = Dataset()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = UID(syntax)
    ds.SOPClassUID = ds.file_meta.MediaStorageSOPClassUID = WHOLE_SLIDE
    ds.SOPInstanceUID = ds.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    if kind:
        ds.ImageType = ["DERIVED" if downsample > 1 else "ORIGINAL", "PRIMARY", kind, "NONE"]
    ds.Modality, ds.PatientName, ds.PatientID, ds.AccessionNumber = "SM", PATIENT, "P-4711", "A-0815"
    ds.Manufacturer, ds.ManufacturerModelName, ds.DeviceSerialNumber = "Leica Biosystems", "GT450", "SN-99"
    ds.StudyInstanceUID, ds.SeriesInstanceUID, ds.FrameOfReferenceUID = "1.2.3", series, "1.2.5"
    ds.SamplesPerPixel, ds.PhotometricInterpretation, ds.PlanarConfiguration = 3, photometric, 0
    ds.Columns, ds.Rows = tile_wh
    ds.BitsAllocated = ds.BitsStored = 8
    ds.HighBit, ds.PixelRepresentation = 7, 0
    ds.TotalPixelMatrixRows, ds.TotalPixelMatrixColumns = pixels.shape[:2]
    ds.TotalPixelMatrixFocalPlanes = ds.NumberOfOpticalPaths = 1
    ds.ImageOrientationSlide = [0, -1, 0, -1, 0, 0]
    path = Dataset()
    path.OpticalPathIdentifier, path.ObjectiveLensPower, path.ICCProfile = "1", 20, ICC
    ds.OpticalPathSequence = [path]
    measures, groups = Dataset(), Dataset()
    measures.PixelSpacing = [MPP0 * downsample / 1000] * 2
    groups.PixelMeasuresSequence = [measures]
    ds.SharedFunctionalGroupsSequence = [groups]
    return ds


def placed_on_the_glass(ds: Dataset) -> None:
    """Set the position of the first pixel, in mm; for `change` of `write_dicom`."""
    origin = Dataset()
    origin.XOffsetInSlideCoordinateSystem, origin.YOffsetInSlideCoordinateSystem = 20.0, 40.5
    ds.TotalPixelMatrixOriginSequence = [origin]


def placed_attributes(width_px: int, height_px: int) -> Dataset:
    """Attributes of a slide of any size, without its pixels."""
    ds = _attributes(np.empty((1, 1, 3), np.uint8), (256, 256), JPEG, "YBR_FULL_422", "VOLUME", 1, "1.2.3.4")
    ds.TotalPixelMatrixColumns, ds.TotalPixelMatrixRows = width_px, height_px
    ds.NumberOfFrames, ds.DimensionOrganizationType = -(-width_px // 256) * -(-height_px // 256), "TILED_FULL"
    placed_on_the_glass(ds)
    return ds


def _place(x: int, y: int, height_um: float | None = None) -> Dataset:
    place, groups = Dataset(), Dataset()
    place.ColumnPositionInTotalImagePixelMatrix, place.RowPositionInTotalImagePixelMatrix = x, y
    if height_um is not None:
        place.ZOffsetInSlideCoordinateSystem = height_um
    groups.PlanePositionSlideSequence = [place]
    return groups


def _pieces(row: bytes, length: int) -> list[bytes]:
    return [row[at : at + length] for at in range(0, len(row), length)]

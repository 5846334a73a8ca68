"""Small Philips and OME-TIFFs as their programs write them, and their pixels."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from tests.pipeline.slides.make_vendor_slides import Made, Pixels, jpeg, set_ycbcr, tile_streams

OME = "http://www.openmicroscopy.org/Schemas/OME/2016-06"


def write_philips(
    path: Path,
    levels: list[Pixels],
    *,
    tile_px: int = 64,
    missing: tuple[tuple[int, int], ...] = (),
    mm_yx: tuple[float, float] = (0.00025, 0.00025),
    scans: int = 1,
    in_xml: bool = True,
) -> Made:
    """Write a Philips TIFF: lower levels are padded to whole tiles, tiles of level 0 may be `missing`.

    Args:
        in_xml: whether label and macro image are JPEGs in the XML or pages of the file.
    """
    label, macro = np.full((20, 30, 3), 70, np.uint8), np.full((24, 60, 3), 150, np.uint8)
    images = []
    with tifffile.TiffWriter(path, bigtiff=True) as tiff:
        for level, pixels in enumerate(levels):
            left_out = missing if level == 0 else ()
            padded = pixels if level == 0 else _padded(pixels, tile_px)
            streams, image = tile_streams(padded, tile_px, left_out)
            images.append(image[: pixels.shape[0], : pixels.shape[1]])
            options: dict[str, Any] = {} if level else {"description": _philips_xml(len(levels), mm_yx, scans, in_xml)}
            tiff.write(
                iter(streams), shape=padded.shape, dtype=np.uint8, tile=(tile_px, tile_px), photometric="rgb",
                compression="jpeg", metadata=None, subfiletype=1 if level else 0, software="Philips DP v1.0", **options,
            )  # fmt: skip
        for name, pixels in {} if in_xml else {"Label": label, "Macro": macro}.items():
            tiff.write(pixels, photometric="rgb", description=name, metadata=None, software="Philips DP v1.0")
    set_ycbcr(path)
    return Made(path, images)


def _padded(pixels: Pixels, tile_px: int) -> Pixels:
    height, width = pixels.shape[:2]
    return np.pad(pixels, ((0, -height % tile_px), (0, -width % tile_px), (0, 0)), constant_values=255)


def _philips_xml(num_levels: int, mm_yx: tuple[float, float], scans: int, in_xml: bool) -> str:
    def attribute(name: str, text: str) -> str:
        return f'<Attribute Name="{name}" Group="0x301D" Element="0x1000" PMSVR="IString">{text}</Attribute>'

    def spacing(level: int) -> str:
        return attribute("DICOM_PIXEL_SPACING", " ".join(f"&quot;{mm * 2**level:.9f}&quot;" for mm in mm_yx))

    levels = "".join(
        f'<DataObject ObjectType="PixelDataRepresentation">{spacing(i)}</DataObject>' for i in range(num_levels)
    )
    images = [
        f'<DataObject ObjectType="DPScannedImage">{attribute("PIM_DP_IMAGE_TYPE", "WSI")}{spacing(0)}'
        f'<Attribute Name="PIIM_PIXEL_DATA_REPRESENTATION_SEQUENCE"><Array>{levels}</Array></Attribute></DataObject>'
    ] * scans
    for kind, value, size in (("LABELIMAGE", 70, (20, 30, 3)), ("MACROIMAGE", 150, (24, 60, 3))) if in_xml else ():
        data = base64.encodebytes(jpeg(np.full(size, value, np.uint8))).decode()
        images.append(
            f'<DataObject ObjectType="DPScannedImage">{attribute("PIM_DP_IMAGE_TYPE", kind)}'
            f"{attribute('PIM_DP_IMAGE_DATA', data)}</DataObject>"
        )
    return (
        '<?xml version="1.0" encoding="UTF-8" ?>\n<DataObject ObjectType="DPUfsImport">'
        f"{attribute('DICOM_MANUFACTURERS_MODEL_NAME', 'UFS Scanner')}"
        f"{attribute('PIM_DP_UFS_BARCODE', 'SmFuZSBEb2U=')}{attribute('DICOM_DEVICE_SERIAL_NUMBER', 'FMT0107')}"
        f'<Attribute Name="PIM_DP_SCANNED_IMAGES"><Array>{"".join(images)}</Array></Attribute></DataObject>'
    )


def write_ome_tiff(
    path: Path,
    levels: list[Pixels],
    *,
    byteorder: str = "<",
    bigtiff: bool = False,
    size: tuple[float, float, str] | None = (0.25, 0.25, "µm"),
    beside: dict[str, NDArray[Any]] | None = None,
    extra_xml: str = "",
    root_xml: str = "",
) -> Made:
    """Write an OME-TIFF with JPEG tiles and lower levels as SubIFDs; `beside` are further images by name."""
    beside = beside or {}
    images = {"slide": levels[0], **beside}
    scale = ""
    if size is not None:
        x, y, unit = size
        scale = f'PhysicalSizeX="{x}" PhysicalSizeXUnit="{unit}" PhysicalSizeY="{y}" PhysicalSizeYUnit="{unit}"'
    xml = "".join(
        f'<Image ID="Image:{i}" Name="{name}"><Pixels ID="Pixels:{i}" DimensionOrder="XYCZT" Type="uint8" '
        f'SizeX="{pixels.shape[1]}" SizeY="{pixels.shape[0]}" SizeC="3" SizeZ="1" SizeT="1" Interleaved="true" '
        f'{scale if i == 0 else ""}><Channel ID="Channel:{i}:0" SamplesPerPixel="3"/>'
        f'<TiffData IFD="{i}" PlaneCount="1"/></Pixels></Image>'
        for i, (name, pixels) in enumerate(images.items())
    )
    head = f'<?xml version="1.0" encoding="UTF-8"?><OME xmlns="{OME}" {root_xml}>'
    description = f"{head}{extra_xml}{xml}</OME>".encode()
    images_in_file = []
    with tifffile.TiffWriter(path, byteorder=byteorder, bigtiff=bigtiff) as tiff:
        for level, pixels in enumerate(levels):
            streams, image = tile_streams(pixels, 64)
            images_in_file.append(image)
            options: dict[str, Any] = {"subfiletype": 1} if level else {"subifds": len(levels) - 1}
            if level == 0:
                options["description"] = description
            tiff.write(
                iter(streams), shape=pixels.shape, dtype=np.uint8, tile=(64, 64), photometric="rgb",
                compression="jpeg", metadata=None, **options,
            )  # fmt: skip
        for pixels in beside.values():
            tiff.write(pixels, photometric="rgb", metadata=None)
    set_ycbcr(path)
    return Made(path, images_in_file)

"""The OME-XML of an OME-TIFF: one image per series, levels below it in SubIFDs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from xml.sax.saxutils import quoteattr


@dataclass(frozen=True)
class OmeImage:
    """One series of an OME-TIFF; its full-resolution plane is the IFD of the same number."""

    name: str
    width_px: int
    height_px: int
    mpp: float | None
    """Microns per pixel; None for a photograph of no known scale."""


def ome_tiff_xml(images: Sequence[OmeImage], objective_power: float | None) -> str:
    """OME-XML (schema 2016-06) in plain ASCII; sizes are in micrometres, the schema's default unit."""
    instrument = reference = ""
    if objective_power:
        instrument = (
            '<Instrument ID="Instrument:0">'
            f'<Objective ID="Objective:0" NominalMagnification="{objective_power:g}"/></Instrument>'
        )
        reference = '<InstrumentRef ID="Instrument:0"/><ObjectiveSettings ID="Objective:0"/>'
    body = "".join(_image(i, image, reference if i == 0 else "") for i, image in enumerate(images))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" Creator="gemslide {version("gemslide")}">'
        f"{instrument}{body}</OME>"
    )


def _image(number: int, image: OmeImage, reference: str) -> str:
    size = f' PhysicalSizeX="{image.mpp:.9g}" PhysicalSizeY="{image.mpp:.9g}"' if image.mpp else ""
    return (
        f'<Image ID="Image:{number}" Name={quoteattr(image.name)}>{reference}'
        f'<Pixels ID="Pixels:{number}" DimensionOrder="XYCZT" Type="uint8" SizeX="{image.width_px}" '
        f'SizeY="{image.height_px}" SizeC="3" SizeZ="1" SizeT="1" Interleaved="true" SignificantBits="8"{size}>'
        f'<Channel ID="Channel:{number}:0" SamplesPerPixel="3"/>'
        f'<TiffData IFD="{number}" PlaneCount="1"/></Pixels></Image>'
    )

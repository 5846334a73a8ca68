"""OME-XML of an OME-TIFF (one image per series, with its levels in SubIFDs), and of a heatmap's planes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from xml.sax.saxutils import escape, quoteattr


@dataclass(frozen=True)
class OmeImage:
    """One series of an OME-TIFF; its full-resolution plane is the IFD of the same number."""

    name: str
    width_px: int
    height_px: int
    mpp: float | None
    """Microns per pixel; None for a photograph of no known scale."""
    plane_um: float | None = None
    """Height of the focal plane, if it is one of several."""


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
    return _document(instrument + body)


def heatmap_xml(
    name: str, description: str, class_names: Sequence[str], width_cells: int, height_cells: int, cell_um: float
) -> str:
    """OME-XML of one float32 plane per class; plane k is the IFD k. Positions are the centre of the first cell."""
    channels = "".join(
        f'<Channel ID="Channel:0:{k}" Name={_attribute(class_name)} SamplesPerPixel="1"/>'
        for k, class_name in enumerate(class_names)
    )
    files = "".join(f'<TiffData FirstC="{k}" IFD="{k}" PlaneCount="1"/>' for k in range(len(class_names)))
    middle = f"{cell_um / 2:.9g}"
    planes = "".join(
        f'<Plane TheC="{k}" TheZ="0" TheT="0" PositionX="{middle}" PositionXUnit="&#181;m" PositionY="{middle}" '
        'PositionYUnit="&#181;m"/>'
        for k in range(len(class_names))
    )
    size = f'PhysicalSizeX="{cell_um:.9g}" PhysicalSizeY="{cell_um:.9g}"'
    return _document(
        f'<Image ID="Image:0" Name={_attribute(name)}><Description>{_ascii(escape(description))}</Description>'
        f'<Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="float" SizeX="{width_cells}" SizeY="{height_cells}" '
        f'SizeC="{len(class_names)}" SizeZ="1" SizeT="1" BigEndian="false" {size}>'
        f"{channels}{files}{planes}</Pixels></Image>"
    )


def _document(body: str) -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" Creator="gemslide {version("gemslide")}">'
        f"{body}</OME>"
    )


def _ascii(text: str) -> str:
    """Text in ASCII, as a TIFF's description must be, with other characters as references."""
    return text.encode("ascii", "xmlcharrefreplace").decode()


def _attribute(text: str) -> str:
    return _ascii(quoteattr(text))


def _image(number: int, image: OmeImage, reference: str) -> str:
    size = f' PhysicalSizeX="{image.mpp:.9g}" PhysicalSizeY="{image.mpp:.9g}"' if image.mpp else ""
    height = ""
    if image.plane_um is not None:
        position = f'PositionZ="{image.plane_um:.9g}" PositionZUnit="&#181;m"'
        height = f'<Plane TheC="0" TheZ="0" TheT="0" {position}/>'
    return (
        f'<Image ID="Image:{number}" Name={quoteattr(image.name)}>{reference}'
        f'<Pixels ID="Pixels:{number}" DimensionOrder="XYCZT" Type="uint8" SizeX="{image.width_px}" '
        f'SizeY="{image.height_px}" SizeC="3" SizeZ="1" SizeT="1" Interleaved="true" SignificantBits="8"{size}>'
        f'<Channel ID="Channel:{number}:0" SamplesPerPixel="3"/>'
        f'<TiffData IFD="{number}" PlaneCount="1"/>{height}</Pixels></Image>'
    )

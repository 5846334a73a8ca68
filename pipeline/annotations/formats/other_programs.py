"""Files of unsupported programs, recognised by their first bytes or keys, so that a message can name the program."""

from __future__ import annotations

from typing import Any

_BEGINNINGS = (
    (b"\x1f\x8b", "is compressed (gzip): unpack it first"),
    (
        b"PK\x03\x04",
        "is a ZIP archive: unpack it first; from OMERO, QuPath projects or spreadsheets, export the annotations",
    ),
    (b"SQLite format 3\0", "is a database (SlideRunner, TIAToolbox): export its annotations as GeoJSON"),
    (b"\xac\xed", "is a QuPath data file (.qpdata): open it in QuPath and export the objects as GeoJSON"),
    (b"\x89PNG", "is an image, not outlines"),
    (b"\xff\xd8\xff", "is an image, not outlines"),
    (b"II*\0", "is a TIFF image, not outlines"),
    (b"MM\0*", "is a TIFF image, not outlines"),
    (b"%PDF", "is a PDF document"),
    (b"PAR1", "is a Parquet table"),
)
_JSON = (
    ("COCO", {"images", "annotations"}),
    ("COCO", {"annotations", "categories"}),
    ("COCO results", {"image_id", "category_id"}),
    ("LabelMe", {"shapes", "imagePath"}),
    ("VIA (VGG Image Annotator)", {"_via_img_metadata"}),
    ("VIA (VGG Image Annotator)", {"filename", "regions"}),
    ("Label Studio", {"data", "annotations"}),
    ("Label Studio", {"data", "completions"}),
    ("Supervisely", {"objects", "size"}),
    ("SuperAnnotate", {"instances", "metadata"}),
    ("V7 Darwin", {"item", "annotations"}),
    ("Annotorious (W3C web annotations)", {"body", "target"}),
    ("TopoJSON", {"arcs", "objects"}),
    ("Cytomine", {"collection", "size"}),
    ("HoVer-Net", {"nuc"}),
    ("Sedeen or PathcoreFlow", {"graphics"}),
)
_XML = {
    "annotation": "Pascal VOC, of LabelImg and others",
    "session": "Sedeen",
    "slide_annotation": "Ventana VIRTUOSO",
    "OME": "OME (ROIs of OMERO or Bio-Formats)",
    "ROIs": "Icy",
    "ImageData": "Leica Laser Microdissection",
    "ZoomifyAnnotations": "Zoomify",
    "svg": "SVG",
    "kml": "KML",
}


def binary_of(data: bytes) -> str | None:
    """Description, by its first bytes, of a file that is neither JSON nor XML; None if they are unknown."""
    return next((description for start, description in _BEGINNINGS if data.startswith(start)), None)


def program_of_json(content: Any) -> str | None:
    """Program that writes JSON with these keys; None if it is unknown."""
    first = next(iter(content), None) if isinstance(content, list) else content
    if isinstance(first, dict) and not (
        set(first) >= {"type"} and first.get("type") in ("Feature", "FeatureCollection")
    ):
        known = next((program for program, keys in _JSON if keys <= set(first)), None)
        inner = next(iter(first.values()), None)
        if known is None and isinstance(inner, dict) and {"filename", "regions"} <= set(inner):
            return "VIA (VGG Image Annotator)"
        return "TopoJSON" if known is None and first.get("type") == "Topology" else known
    return None


def program_of_xml(tag: str) -> str | None:
    """Program whose XML begins with this element; None if it is unknown."""
    return _XML.get(tag.rsplit("}", 1)[-1])

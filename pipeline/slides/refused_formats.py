"""Formats of slides and images that none of our readers reads: refused by name, with a workaround.

Some of them hold a preview that is a plain TIFF, which must not pass for the slide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pipeline.slides.common.reading import first_bytes
from training.foundation.errors import UnreadableError

_HEAD_BYTES = 4096
_CONVERT = "Convert it to OME-TIFF or OME-Zarr with Bio-Formats (`bfconvert`, `bioformats2raw`)"
_EXPORT = "Export it from the vendor's viewer as a tiled TIFF, SVS or DICOM"
_NOT_A_SLIDE = (
    "It is one image that can only be read whole. Convert it to a tiled TIFF, for example `vips tiffsave --tile "
    "--pyramid`, and give its scale with `--mpp`"
)


@dataclass(frozen=True)
class _Format:
    """A format by the suffixes and the first bytes of its files."""

    name: str
    way_round: str
    suffixes: tuple[str, ...]
    magic: bytes = rb"(?!)"
    """Regular expression over the first bytes; by default it matches nothing."""
    is_like_ours: bool = False
    """Whether one of our readers may take the file for its own, so that the suffix alone counts."""


_FORMATS = (
    _Format("Olympus or Evident VSI, whose TIFF is only a preview", _CONVERT, (".vsi",), is_like_ours=True),
    _Format("Olympus or Evident ETS, a part of a VSI slide", _CONVERT, (".ets",), rb"SIS\0"),
    _Format(
        "Philips iSyntax", "Export it as Philips TIFF or DICOM from the Philips system, or convert it with isyntax2raw",
        (".isyntax", ".i2syntax"), rb"\s*(<\?xml[^>]*>)?\s*<DataObject ObjectType=\"DPUfsImport\"",
    ),
    _Format("Leica LIF", _CONVERT, (".lif", ".lof", ".xlef", ".xlif"), rb"\x70\0\0\0.{4}\x2a"),
    _Format("Zeiss ZVI", _CONVERT, (".zvi",)),
    _Format("Motic MDS", _EXPORT, (".mds", ".mdsx")),
    _Format("KFBio KFB", _EXPORT, (".kfb", ".kfbf", ".kfbl"), rb"KFB"),
    _Format("Sqray SDPC", _EXPORT, (".sdpc", ".dyqx", ".dyj"), rb"SQ\0?\0?(SDPC|DPC)"),
    _Format("UNIC TMAP", _EXPORT, (".tmap",), rb"TMAP"),
    _Format("InteMedic TRON", _EXPORT, (".tron",)),
    _Format("Nikon ND2", _CONVERT, (".nd2",), rb"\xda\xce\xbe\x0a"),
    _Format("Olympus OIR or OIB", _CONVERT, (".oir", ".oib", ".oif"), rb"OLYMPUSRAWFORMAT"),
    _Format("Imaris", _CONVERT, (".ims",), rb"\x89HDF\r\n\x1a\n"),
    _Format("Microsoft compound document, as ZVI, MDS and OIB are", _CONVERT, (), rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
    _Format(
        "Aperio AFI, a list of fluorescence channels", "Only 8-bit brightfield RGB slides are read", (".afi",),
        rb"\s*(<\?xml[^>]*>)?\s*<ImageList",
    ),
    _Format("Deep Zoom", "Name the slide that it was made from", (".dzi", ".szi"), rb"\s*(<\?xml[^>]*>)?\s*<Image "),
    _Format(
        "JPEG 2000", _NOT_A_SLIDE, (".jp2", ".j2k", ".jpx", ".jpf", ".j2c", ".jph"),
        rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51",
    ),
    _Format("JPEG", _NOT_A_SLIDE, (".jpg", ".jpeg", ".jpe", ".jfif"), rb"\xff\xd8\xff"),
    _Format("PNG", _NOT_A_SLIDE, (".png",), rb"\x89PNG\r\n\x1a\n"),
    _Format("BMP", _NOT_A_SLIDE, (".bmp",), rb"BM.{4}\0\0\0\0"),
    _Format("GIF", _NOT_A_SLIDE, (".gif",), rb"GIF8[79]a"),
    _Format("WebP", _NOT_A_SLIDE, (".webp",), rb"RIFF.{4}WEBP"),
    _Format("JPEG XR", _NOT_A_SLIDE, (".jxr", ".wdp", ".hdp"), rb"II\xbc[\x00\x01]"),
    _Format("JPEG XL", _NOT_A_SLIDE, (".jxl",), rb"\0\0\0\x0cJXL \r\n\x87\n|\xff\x0a"),
    _Format("HEIF or AVIF", _NOT_A_SLIDE, (".heic", ".heif", ".avif"), rb".{4}ftyp(heic|heix|mif1|avif)"),
    _Format(
        "an archive", "Unpack it, and name the slide in it", (".zip", ".7z", ".rar", ".tar", ".tgz", ".gz", ".bz2",
        ".xz", ".zst"), rb"PK\x03\x04|7z\xbc\xaf|Rar!|\x1f\x8b|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd",
    ),
)  # fmt: skip


def refuse_by_name(path: Path, vendor: str | None, *, has_reader: bool) -> None:
    """Refuse a file of an unsupported format.

    Args:
        vendor: OpenSlide's name for the file's family; None if OpenSlide does not recognise it.
        has_reader: whether one of our readers would accept it.

    Raises:
        UnreadableError: names the format, and says what to do.
    """
    if not path.is_file():
        return
    suffix = path.suffix.lower()
    if _is_olympus_preview(path):
        suffix = ".vsi"
    variant = _unknown_variant(path, suffix, vendor)
    if variant:
        raise UnreadableError(f"{path.name}: is {variant}. {_EXPORT}, or convert it with `bfconvert`.")
    head = b"" if has_reader else first_bytes(path, _HEAD_BYTES)
    for refused in _FORMATS:
        if (refused.is_like_ours or not has_reader) and (
            suffix in refused.suffixes or re.match(refused.magic, head, re.DOTALL | re.IGNORECASE)
        ):
            raise UnreadableError(f"{path.name}: is {refused.name}, an unsupported format. {refused.way_round}.")


def is_refused_by_name(name: str) -> bool:
    """Whether a file's name is that of an unsupported format."""
    suffix = Path(name).suffix.lower()
    return any(suffix in refused.suffixes for refused in _FORMATS)


def _is_olympus_preview(path: Path) -> bool:
    """Whether there is a folder of Olympus tiles beside the file, whatever its suffix."""
    beside = path.with_name(f"_{path.stem}_")
    return beside.is_dir() and any(beside.glob("*/*.ets"))


def _unknown_variant(path: Path, suffix: str, vendor: str | None) -> str:
    """Variant of a format that OpenSlide otherwise reads; "" for others. As a plain TIFF its image would be wrong."""
    from pipeline.slides.openslide.library import library_version

    unknown = f"that OpenSlide {library_version()} does not know"
    if suffix == ".bif" and vendor != "ventana":
        return f"a Ventana BIF of a variant {unknown}"
    if vendor is None and first_bytes(path, 10) == b"ZISRAWFILE":
        return f"a Zeiss CZI of a variant {unknown}"
    return ""

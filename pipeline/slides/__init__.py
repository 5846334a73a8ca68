"""Readers of scanned slides behind one `Slide` interface. A site adds its own by entry point (docs/readers.md)."""

from typing import TYPE_CHECKING

from training.foundation.lazy import public_names

if TYPE_CHECKING:
    from pipeline.slides.plugins import Reader as Reader
    from pipeline.slides.pyramid import LevelSize as LevelSize
    from pipeline.slides.pyramid import level_size as level_size
    from pipeline.slides.registry import open_slide as open_slide
    from pipeline.slides.slide import EncodedLevel as EncodedLevel
    from pipeline.slides.slide import NotCopied as NotCopied
    from pipeline.slides.slide import Slide as Slide
    from pipeline.slides.slide import SlideInfo as SlideInfo
    from pipeline.slides.slide import paste as paste

__all__, __getattr__ = public_names(
    __name__,
    {
        "damage": "DamagedFileError library_errors",
        "dicom.plane": "plane_of SlidePlane",
        "dicom.reader": "DicomSlide",
        "openslide.library": "library_version",
        "openslide.reader": "VendorSlide",
        "openslide.reference_decoder": "ReferenceDecoder",
        "plugins": "load_plugins Reader",
        "pyramid": "level_size LevelSize",
        "registry": "open_slide readers",
        "slide": "EncodedLevel NotCopied one_stream paste Slide SlideInfo",
    },
)

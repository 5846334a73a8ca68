"""Readers of scanned slides behind one `Slide` interface. A site adds its own by entry point (docs/readers.md)."""

from typing import TYPE_CHECKING

from training.foundation.lazy import lazy_names

if TYPE_CHECKING:
    from pipeline.slides.plugins import Reader
    from pipeline.slides.pyramid import LevelSize, level_size
    from pipeline.slides.registry import open_slide
    from pipeline.slides.slide import EncodedLevel, NotCopied, Slide, SlideInfo, paste
__all__ = ["EncodedLevel", "LevelSize", "NotCopied", "Reader", "Slide", "SlideInfo", "level_size", "open_slide"]
__all__ += ["paste"]
_HOMES = {"Reader": "plugins", "LevelSize": "pyramid", "level_size": "pyramid", "open_slide": "registry"}
__getattr__ = lazy_names(__name__, {name: f"pipeline.slides.{_HOMES.get(name, 'slide')}" for name in __all__})

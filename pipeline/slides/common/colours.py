"""The colours of a level's JPEG tiles: as each states them, else as the file does; a warning where they disagree."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.codecs.jpeg_header import RGB, YCBCR, JpegHeader
from pipeline.slides.common.slide_warnings import SlideWarnings


@dataclass(frozen=True)
class FileColours:
    """Colour space of a level's JPEG streams as the file around them states it."""

    says_rgb: bool
    said_by: str
    """The tag or attribute that says so."""
    level_wh_px: tuple[int, int]
    warnings: SlideWarnings

    def contradiction(self, header: JpegHeader) -> str | None:
        """Contradiction between a stream of the level and the file, as a clause; None if there is none."""
        stated = header.stated_colours
        if stated is None or stated.is_rgb == self.says_rgb:
            return None
        return f"its JPEG tiles hold {stated}, but the file's {self.said_by} says {RGB if self.says_rgb else YCBCR}"

    def holds_rgb(self, header: JpegHeader) -> bool:
        """Whether a stream of the level holds R, G, B: the rule for every route. Warns if the file says otherwise."""
        contradiction = self.contradiction(header)
        if contradiction:
            self.warnings.add(
                f"{contradiction}; the tiles were trusted, and programs that follow the file show other colours",
                self.level_wh_px,
            )
        return header.holds_rgb(file_says_rgb=self.says_rgb)

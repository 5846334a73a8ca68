"""The header of a JPEG stream, and the one rule for what three components are.

The stream takes precedence over the file around it, since it was written together with the pixels: JFIF means Y, Cb,
Cr; Adobe's marker says which by its transform; components named R, G, B are just that; and nobody samples R, G, B
unequally. Only if a stream states none of this does the file's tag or attribute count. A tile's markers take precedence
over those of JPEGTables.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.codecs.stream_header import StreamHeader

RGB, YCBCR = "R, G, B", "Y, Cb, Cr"
_NAMED_RGB = b"RGB"


@dataclass(frozen=True)
class StatedColours:
    """Three components as a stream states them."""

    is_rgb: bool
    """R, G, B; else Y, Cb, Cr."""
    by: str
    """The part of the stream that says so."""

    def __str__(self) -> str:
        return f"{RGB if self.is_rgb else YCBCR} ({self.by})"


@dataclass(frozen=True)
class JpegHeader(StreamHeader):
    """Header of a JPEG stream, from everything before its first scan."""

    sampling: tuple[tuple[int, int], ...]
    """Horizontal and vertical factors of each component."""
    has_jfif: bool
    adobe_transform: int | None
    component_names: bytes
    has_marker_in_tables: bool = False
    """Whether the JFIF or Adobe marker is in the shared tables, not in the stream itself."""

    @property
    def is_subsampled(self) -> bool:
        """Whether its components differ in sampling."""
        return len(set(self.sampling)) > 1

    @property
    def stated_colours(self) -> StatedColours | None:
        """Colours that the stream states for three components; None if only the file around it can say."""
        where = " in JPEGTables" if self.has_marker_in_tables else ""
        if self.has_jfif:
            return StatedColours(False, f"JFIF marker{where}")
        if self.adobe_transform is not None:
            return StatedColours(self.adobe_transform == 0, f"Adobe marker{where}, transform {self.adobe_transform}")
        if self.component_names == _NAMED_RGB:
            return StatedColours(True, "components named R, G, B")
        return StatedColours(False, "components of unequal sampling") if self.is_subsampled else None

    def holds_rgb(self, *, file_says_rgb: bool = False) -> bool:
        """Whether three components are R, G, B.

        Args:
            file_says_rgb: by the tag or attribute of the file around the stream. Without a file, a decoder takes
                unmarked components for Y, Cb, Cr.
        """
        stated = self.stated_colours
        return file_says_rgb if stated is None else stated.is_rgb

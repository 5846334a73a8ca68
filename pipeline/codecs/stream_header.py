"""Header of an encoded stream of any codec: the size and kind of its pixels."""

from __future__ import annotations

from dataclasses import dataclass


class StreamError(ValueError):
    """The bytes are not a stream this project can pass through."""


@dataclass(frozen=True)
class StreamHeader:
    """Size and kind of a stream's pixels."""

    width_px: int
    height_px: int
    components: int
    bits: int

    def check_is_tile(self, width_px: int, height_px: int) -> None:
        """Check that it is an RGB tile of the size that the file says.

        Raises:
            StreamError: another size, other than three components, or other than eight bits.
        """
        stated = (self.width_px, self.height_px, self.components, self.bits)
        if stated != (width_px, height_px, 3, 8):
            raise StreamError("its stream says {}×{} px with {} components of {} bits".format(*stated))

    def check_claim(self, max_bytes: int) -> None:
        """Refuse a stream that claims too much: a decoder allocates what it states, whatever the file says.

        Raises:
            StreamError: more than `max_bytes` of pixels.
        """
        if self.width_px * self.height_px * self.components > max_bytes:
            raise StreamError(f"says {self.width_px}×{self.height_px} px with {self.components} components")

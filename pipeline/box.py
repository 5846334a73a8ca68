"""A rectangle of pixels, as every reader uses it."""

from __future__ import annotations

from typing import NamedTuple

from training.foundation.errors import UnreadableError


class Box(NamedTuple):
    """A rectangle in the pixels of one frame: a level's own, or level 0's where a name ends in `_px0`.

    It may begin left of or above the frame, and end outside it.
    """

    x_px: int
    y_px: int
    width_px: int
    height_px: int

    @property
    def right_px(self) -> int:
        """The column after the last one."""
        return self.x_px + self.width_px

    @property
    def bottom_px(self) -> int:
        """The row after the last one."""
        return self.y_px + self.height_px

    @property
    def size_wh_px(self) -> tuple[int, int]:
        return self.width_px, self.height_px

    @property
    def is_empty(self) -> bool:
        return self.width_px <= 0 or self.height_px <= 0

    def overlap(self, other: Box) -> Box:
        """The part that both share; empty if there is none."""
        x_px, y_px = max(self.x_px, other.x_px), max(self.y_px, other.y_px)
        right_px, bottom_px = min(self.right_px, other.right_px), min(self.bottom_px, other.bottom_px)
        return Box(x_px, y_px, max(0, right_px - x_px), max(0, bottom_px - y_px))

    def within(self, width_px: int, height_px: int) -> Box:
        """The part of it inside a frame of that size; empty if there is none."""
        return self.overlap(Box(0, 0, width_px, height_px))

    def cells(self, side_px: int | tuple[int, int]) -> tuple[range, range]:
        """Rows and columns of a grid of cells that it touches; none if it is empty.

        Args:
            side_px: side of a cell, or its width and height.
        """
        if self.is_empty:
            return range(0), range(0)
        width_px, height_px = (side_px, side_px) if isinstance(side_px, int) else side_px
        rows = range(self.y_px // height_px, -(-self.bottom_px // height_px))
        return rows, range(self.x_px // width_px, -(-self.right_px // width_px))


def check_region(level: int, num_levels: int, box: Box, name: str) -> None:
    """Check that a region can be read. It may be outside the slide, where it is white.

    Raises:
        UnreadableError: no such level, or a size below zero.
    """
    if not 0 <= level < num_levels:
        levels = f"levels 0 to {num_levels - 1}" if num_levels > 1 else "level 0 alone"
        raise UnreadableError(f"{name}: has no level {level}; it has {levels}.")
    if box.width_px < 0 or box.height_px < 0:
        raise UnreadableError(f"{name}: a region of {box.width_px}×{box.height_px} px cannot be read.")

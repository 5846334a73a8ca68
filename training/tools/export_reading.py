"""Check that WSInfer, which reads patches in its own way, gives nearly the same probabilities as gemslide.

The file may hold the same network and WSInfer still give different results: it reads each patch from level 0 and
resizes it with Pillow's bilinear filter, where gemslide takes a stored level or averages pixels. So an export for
WSInfer is judged as a whole: gemslide's probabilities on gemslide's tiles against the file's on WSInfer's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from training.foundation.errors import ImplausibleOutputError
from training.foundation.words.counts import counted
from training.models.build import Outputs, probabilities

MAX_MEAN_DIFFERENCE = 0.05
"""Largest mean difference of a probability, over all classes and tiles."""


@dataclass(frozen=True)
class ReadingDifference:
    """Difference between the two programs' probabilities on the same regions."""

    tiles: int
    mean_difference: float
    largest_difference: float
    other_class: int
    """Number of tiles whose likeliest class differs."""
    allowed: bool
    """Whether the user allowed more than `MAX_MEAN_DIFFERENCE`."""

    def as_dict(self) -> dict[str, Any]:
        """The difference as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"on {counted(self.tiles, 'real tile')} as WSInfer reads them (level 0, Pillow's bilinear filter) its "
            f"probabilities differ from gemslide's by {self.mean_difference:.2g} on average and "
            f"{self.largest_difference:.2g} at most; the class differs for {self.other_class:,} of "
            f"{counted(self.tiles, 'tile')}"
        )


def reading_difference(
    ours: tuple[nn.Module, Tensor, Outputs], theirs: tuple[nn.Module, Tensor, Outputs], *, allowed: bool
) -> ReadingDifference:
    """Compare two networks on the same regions as each program reads them.

    Args:
        ours, theirs: network, its images float32 (tiles, 3, side, side), and its kind of output.
        allowed: accept differences above `MAX_MEAN_DIFFERENCE`.

    Raises:
        ImplausibleOutputError: probabilities differ by more, or are not numbers.
    """
    shares_nk, their_shares_nk = (_shares(*side) for side in (ours, theirs))
    apart_nk = (shares_nk - their_shares_nk).abs()
    difference = ReadingDifference(
        tiles=len(apart_nk),
        mean_difference=float(apart_nk.mean()),
        largest_difference=float(apart_nk.max()),
        other_class=int((shares_nk.argmax(1) != their_shares_nk.argmax(1)).sum()),
        allowed=allowed,
    )
    if not torch.isfinite(apart_nk).all() or (difference.mean_difference > MAX_MEAN_DIFFERENCE and not allowed):
        raise ImplausibleOutputError(
            f"the exported network equals the model's, but {difference}. At most {MAX_MEAN_DIFFERENCE:g} on average is "
            "allowed. Nothing was written. Train on tiles of the scan's own µm/px, where neither program resizes; or "
            'with [tile] read = "finest", which is closer to how WSInfer reads; or export with '
            "--allow-reading-difference, which records the difference on the card."
        )
    return difference


def _shares(network: nn.Module, images_nchw: Tensor, outputs: Outputs) -> Tensor:
    """Probabilities, one tile at a time: a batch of large tiles may not fit into memory."""
    with torch.inference_mode():
        return torch.cat([probabilities(network(images_nchw[i : i + 1]), outputs) for i in range(len(images_nchw))])

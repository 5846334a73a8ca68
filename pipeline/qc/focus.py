"""Focus score: the share of the edges' strength that survives a further blur.

A sharp image loses most of its Tenengrad energy (squared Sobel gradient) when it is blurred once more, an image out
of focus hardly any: re-blurring as in Crete et al., SPIE 6492 (2007), measured by Tenengrad. The ratio depends neither
on how strongly the tissue is stained nor on how much of it there is.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.types import Pixels

REBLUR_SIGMA_PX = 1.5
NO_EDGES = 0.1
"""Mean Tenengrad energy (grey levels squared per pixel) below which a cell has nothing to judge focus by."""


def edge_energies(
    pixels: Pixels, tissue_yx: NDArray[np.bool_], cell_px: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Tenengrad energy of the tissue in each cell, as it is and after a further blur.

    Args:
        pixels: uint8 (rows · cell_px, columns · cell_px, 3).
        tissue_yx: of the same height and width; glass does not count.

    Returns:
        two float32 (rows, columns), summed over the tissue of a cell, in grey levels squared.
    """
    green = pixels[..., 1].astype(np.float32)  # both stains absorb green
    blurred = np.asarray(
        cv2.GaussianBlur(green, (0, 0), REBLUR_SIGMA_PX, borderType=cv2.BORDER_REFLECT_101), np.float32
    )
    weight = tissue_yx.astype(np.float32)
    sharp, soft = (_sum_cells(_tenengrad(image) * weight, cell_px) for image in (green, blurred))
    return sharp, soft


def blur_score(
    sharp: NDArray[np.float32], soft: NDArray[np.float32], num_px: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Share of the edges' strength that survives: about 0.2 in focus, towards 1 out of it; NaN without edges.

    Args:
        sharp, soft: as `edge_energies` returns them.
        num_px: tissue pixels of each cell.
    """
    judged = sharp > NO_EDGES * np.maximum(num_px, 1)
    return np.where(judged, np.clip(soft / np.maximum(sharp, 1e-6), 0, 1), np.nan).astype(np.float32)


def _tenengrad(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    dx, dy = (cv2.Sobel(grey, cv2.CV_32F, i, 1 - i, scale=1 / 8, borderType=cv2.BORDER_REFLECT_101) for i in (1, 0))
    return np.asarray(dx * dx + dy * dy, np.float32)


def _sum_cells(values: NDArray[np.float32], cell_px: int) -> NDArray[np.float32]:
    rows, columns = values.shape[0] // cell_px, values.shape[1] // cell_px
    cells = values.reshape(rows, cell_px, columns, cell_px)
    return np.asarray(cells.sum((1, 3), dtype=np.float32), np.float32)

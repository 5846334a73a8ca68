"""Fitting of a slide's stain on its tissue. Tests check that both methods equal torchstain's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.types import Pixels
from pipeline.stain import MIN_DENSITY, MacenkoFit, Method, ReinhardFit, as_lists, density_of, lab_of
from training.foundation.words.counts import counted

MIN_PIXELS = 2_000
"""Fewer stained pixels than this are too few to judge a slide by."""
ALPHA_PERCENT = 1
"""Macenko: stains are the 1st and 99th percentile of the angles in the plane of most variance."""
MIN_ANGLE_DEG = 3.0
"""Two stains closer to each other than this count as one."""
MOST_PERCENT = 99
"""Macenko: the percentile of a stain's concentration that counts as all of it."""
MIN_CONCENTRATION = 0.05
MIN_STD = 0.5
"""Reinhard: a channel that varies less (CIELAB) is a single colour, not tissue."""


def fit_stain(sample: Pixels, methods: Sequence[Method]) -> dict[str, Any]:
    """The root attribute `stain`: for each method its fit, or null and the reason.

    Args:
        sample: tissue pixels of the whole slide, uint8 (pixels, 3), artefacts left out.
    """
    fits: dict[str, Any] = {}
    for method in methods:
        result = fit_macenko(sample) if method == "macenko" else fit_reinhard(sample)
        fit, reason = (None, result) if isinstance(result, str) else (as_lists(result), None)
        fits[method] = {"fit": fit, "reason": reason, "pixels": len(sample)}
    return fits


def fit_macenko(sample: Pixels) -> MacenkoFit | str:
    """Stain directions and concentrations (Macenko et al., ISBI 2009), or why there are none.

    Args:
        sample: uint8 (pixels, 3).
    """
    density = density_of(sample).astype(np.float64)
    stained = density[(density >= MIN_DENSITY).all(-1)]
    if len(stained) < MIN_PIXELS:
        return (
            f"only {len(stained):,} of {counted(len(sample), 'tissue pixel')} absorb all colours; "
            f"{MIN_PIXELS} are needed."
        )
    matrix = _stain_directions(stained)
    angle_deg = np.degrees(np.arccos(np.clip(matrix[:, 0] @ matrix[:, 1], -1, 1)))
    if not MIN_ANGLE_DEG <= angle_deg <= 180 - MIN_ANGLE_DEG:
        return f"the two stains point the same way ({angle_deg:.1f}° apart): the tissue has one stain."
    most = np.percentile(density @ np.linalg.pinv(matrix).T, MOST_PERCENT, axis=0)
    if most.min() <= MIN_CONCENTRATION:
        return f"one of the stains is hardly present (concentrations {most[0]:.2f} and {most[1]:.2f})."
    (red, green, blue), (first, second) = np.round(matrix, 6).tolist(), np.round(most, 6).tolist()
    return MacenkoFit((tuple(red), tuple(green), tuple(blue)), (first, second))


def _stain_directions(density: NDArray[np.float64]) -> NDArray[np.float64]:
    """The two extreme directions within the plane of most variance, (3, 2): the one that absorbs more red first."""
    _, vectors = np.linalg.eigh(np.cov(density.T))
    plane = vectors[:, 1:]
    along = density @ plane
    angles = np.percentile(np.arctan2(along[:, 1], along[:, 0]), (ALPHA_PERCENT, 100 - ALPHA_PERCENT))
    directions = plane @ np.stack([np.cos(angles), np.sin(angles)])
    return np.asarray(directions[:, np.argsort(-directions[0], kind="stable")])


def fit_reinhard(sample: Pixels) -> ReinhardFit | str:
    """Mean and deviation of the tissue in CIELAB (Reinhard et al., 2001), or why there are none.

    Args:
        sample: uint8 (pixels, 3).
    """
    if len(sample) < MIN_PIXELS:
        return f"only {counted(len(sample), 'tissue pixel')}; {MIN_PIXELS} are needed."
    lab = lab_of(sample[:, None])[:, 0].astype(np.float64)
    mean, std = lab.mean(0), lab.std(0)
    if std.min() < MIN_STD:
        return f"the tissue has one colour (CIELAB deviations {', '.join(f'{v:.2f}' for v in std)})."
    (l_mean, a_mean, b_mean), (l_std, a_std, b_std) = np.round(mean, 4).tolist(), np.round(std, 4).tolist()
    return ReinhardFit((l_mean, a_mean, b_mean), (l_std, a_std, b_std))

"""Oddities in a slide's predictions: shown as warnings, or reason enough not to publish them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.inference.results.hotspots import wanted_classes
from pipeline.inference.results.stain_check import stored_distance, warning_of
from pipeline.settings.config import InferConfig
from pipeline.store.layers.overlays import Predictions
from training.foundation.errors import ImplausibleOutputError
from training.foundation.words.counts import counted

SAME_EVERYWHERE_MIN_TILES = 16
"""A model with exactly the same output for this many different tiles is broken."""
MAX_GLASS = 8
FAR_FOCUS = 3.5
"""Spreads of the training tiles' focus; a Gaussian blur of one pixel is 4 to 6 (training/data/focus_statistics.py)."""
GLASS_SHARE = 50
"""One tile of glass for this many of tissue: the check takes at most 2 % of the time."""


@dataclass(frozen=True)
class Oddity:
    """One implausible finding."""

    name: str
    """As `[infer] refuse` calls it."""
    words: str
    """A clause that follows "slide S-1: "."""


def glass_tiles(tissue: NDArray[np.float32], num_chosen: int) -> NDArray[np.int64]:
    """Indices of a few tiles without any tissue, spread over the slide.

    Args:
        tissue: share of each tile of the grid that is tissue.
        num_chosen: tiles that will be predicted.
    """
    bare = np.flatnonzero(tissue == 0)
    wanted = min(MAX_GLASS, num_chosen // GLASS_SHARE, len(bare))
    return bare[np.linspace(0, len(bare) - 1, wanted).round().astype(np.int64)] if wanted else bare[:0]


def find_oddities(
    values_nk: NDArray[np.float32],
    glass_nk: NDArray[np.float32],
    colour_distance: float | None,
    focus_distance: float | None,
    *,
    class_names: Sequence[str],
    config: InferConfig,
) -> list[Oddity]:
    """Everything odd about the probabilities of tissue and of glass, and about the slide's colours and focus."""
    oddities = []
    if len(values_nk) >= SAME_EVERYWHERE_MIN_TILES and (values_nk == values_nk[:1]).all():
        answer = ", ".join(f"{value:.3f}" for value in values_nk[0])
        oddities.append(
            Oddity(
                "constant",
                f"all {len(values_nk)} tiles get exactly the same output ({answer}): the model's weights are "
                "damaged, or training failed",
            )
        )
    for name in wanted_classes(class_names, config) if len(glass_nk) else ():
        on_glass = glass_nk[:, class_names.index(name)]
        if np.median(on_glass) >= config.threshold:
            oddities.append(
                Oddity(
                    "glass",
                    f"the model calls bare glass {name!r} (median probability {np.median(on_glass):.2f} in "
                    f"{counted(len(on_glass), 'tile')} without tissue): the same call on tissue means little",
                )
            )
    far = warning_of(colour_distance)
    if far:
        oddities.append(Oddity("stain", far))
    if focus_distance is not None and focus_distance >= FAR_FOCUS:
        oddities.append(
            Oddity(
                "focus",
                f"its sharpness is far from that of the model's training tiles (distance {focus_distance:.1f}; "
                f"{FAR_FOCUS:g} or more is far): out of focus, or a different scanner. Look at the tissue before "
                "relying on these predictions",
            )
        )
    return oddities


def refuse_implausible(
    slide_id: str, model_id: str, oddities: Sequence[Oddity], refuse: Sequence[str], *, stands: bool = False
) -> None:
    """Stop on an oddity that the settings refuse.

    Args:
        stands: the predictions were published before, under other settings.

    Raises:
        ImplausibleOutputError: there is one.
    """
    for oddity in oddities:
        if oddity.name in refuse:
            raise ImplausibleOutputError(
                f"slide {slide_id}, model {model_id}: {oddity.words}. "
                + ("The earlier run's result, which carried a warning, was kept" if stands else "Nothing was published")
                + f'; to publish it with a warning, leave "{oddity.name}" out of [infer] refuse.'
            )


def stored_oddities(predictions: Predictions) -> tuple[Oddity, ...]:
    """Oddities noted when the predictions were made; older predictions have only their colour distance."""
    stored = predictions.attributes.get("oddities")
    if isinstance(stored, dict):
        return tuple(Oddity(name, words) for name, words in stored.items() if isinstance(words, str))
    far = warning_of(stored_distance(predictions))
    return (Oddity("stain", far),) if far else ()

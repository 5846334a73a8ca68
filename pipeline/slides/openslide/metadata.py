"""What OpenSlide's properties say of scale, scanner and scanned area. Free text of the file is never passed on."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import partial

from pipeline.box import Box
from pipeline.slides.mpp import MppXy, search_mpp
from pipeline.slides.scanner_models import known_model

_PRODUCT_KEYS = (
    "leica.device-model",
    "hamamatsu.Product",
    "ventana.ScannerModel",
    "philips.DICOM_MANUFACTURERS_MODEL_NAME",
)


def mpp_of(properties: Mapping[str, str]) -> tuple[MppXy | None, str]:
    """Microns per level-0 pixel (x, y), and where it was looked for."""
    return search_mpp([("OpenSlide's openslide.mpp-x, openslide.mpp-y", partial(_property_mpp, properties))])


def _property_mpp(properties: Mapping[str, str]) -> MppXy | None:
    x, y = positive(properties.get("openslide.mpp-x")), positive(properties.get("openslide.mpp-y"))
    return None if x is None or y is None else (x, y)


def positive(text: str | None) -> float | None:
    """A number above zero, None for anything else."""
    try:
        number = float(text) if text is not None else 0.0
    except ValueError:
        return None
    return number if 0 < number < math.inf else None


def scanner_model_of(properties: Mapping[str, str]) -> str | None:
    """The scanner's model, if it is a known one."""
    found = (known_model(properties.get(key, "").split(";")[0]) for key in _PRODUCT_KEYS)
    return next((model for model in found if model is not None), None)


def bounds_px0(properties: Mapping[str, str], size_wh0: tuple[int, int]) -> Box | None:
    """What was scanned; None where OpenSlide does not say or it is everything."""
    texts = [properties.get(f"openslide.bounds-{name}", "") for name in ("x", "y", "width", "height")]
    if not all(re.fullmatch("-?[0-9]+", text) for text in texts):
        return None
    x, y, width, height = (int(text) for text in texts)
    scanned = Box(x, y, width, height).within(*size_wh0)
    return None if scanned.is_empty or scanned == (0, 0, *size_wh0) else scanned


def tile_side_px(properties: Mapping[str, str], level: int) -> int | None:
    """Side of a level's tiles; None where OpenSlide does not say, or they are not square."""
    sides = {properties.get(f"openslide.level[{level}].tile-{name}", "") for name in ("width", "height")}
    text = sides.pop()
    return int(text) if not sides and text.isdigit() and int(text) > 1 else None

"""Scale, scanner and scanned area from OpenSlide's properties. Free text in the file is never passed on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from pipeline.box import Box
from pipeline.slides.common.mpp import FoundMpp, MppXy, parse_number, search_mpp
from pipeline.slides.common.scanner_models import known_model

_PRODUCT_KEYS = (
    "leica.device-model",
    "hamamatsu.Product",
    "ventana.ScannerModel",
    "philips.DICOM_MANUFACTURERS_MODEL_NAME",
)


def mpp_of(properties: Mapping[str, str]) -> FoundMpp:
    """Microns per level-0 pixel (x, y), and the places searched."""
    return search_mpp(
        [
            ("OpenSlide's openslide.mpp-x, openslide.mpp-y", partial(_property_mpp, properties)),
            # OpenSlide reads numbers with a decimal point only.
            *([("Aperio's MPP", partial(_aperio_mpp, properties))] if "aperio.MPP" in properties else []),
        ]
    )


def _property_mpp(properties: Mapping[str, str]) -> MppXy | None:
    x, y = parse_number(properties.get("openslide.mpp-x")), parse_number(properties.get("openslide.mpp-y"))
    return None if x is None or y is None else (x, y)


def _aperio_mpp(properties: Mapping[str, str]) -> MppXy | None:
    mpp = parse_number(properties["aperio.MPP"])
    return None if mpp is None else (mpp, mpp)


def scanner_model_of(properties: Mapping[str, str]) -> str | None:
    """The scanner's model, if it is a known one."""
    models = (known_model(properties.get(key, "").split(";")[0]) for key in _PRODUCT_KEYS)
    return next((model for model in models if model is not None), None)


def nm_centre_xy(properties: Mapping[str, str]) -> tuple[float, float] | None:
    """Offset of a Hamamatsu slide's middle from the centre of the glass, in nm; None if it is not stated."""
    texts = [properties.get(f"hamamatsu.{axis}OffsetFromSlideCentre", "") for axis in "XY"]
    if not all(re.fullmatch("-?[0-9]{1,10}", text) for text in texts):
        return None
    x, y = map(float, texts)
    return x, y


def bounds_px0(properties: Mapping[str, str], size_wh0: tuple[int, int]) -> Box | None:
    """Scanned area; None if OpenSlide does not state it or it is the whole frame."""
    texts = [properties.get(f"openslide.bounds-{name}", "") for name in ("x", "y", "width", "height")]
    if not all(re.fullmatch("-?[0-9]+", text) for text in texts):
        return None
    x, y, width, height = (int(text) for text in texts)
    scanned = Box(x, y, width, height).within(*size_wh0)
    return None if scanned.is_empty or scanned == (0, 0, *size_wh0) else scanned


def tile_side_px(properties: Mapping[str, str], level: int) -> int | None:
    """Side of a level's tiles; None if OpenSlide does not say, or they are not square."""
    sides = {properties.get(f"openslide.level[{level}].tile-{name}", "") for name in ("width", "height")}
    text = sides.pop()
    return int(text) if not sides and text.isdigit() and int(text) > 1 else None

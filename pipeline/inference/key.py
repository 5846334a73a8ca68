"""Key of everything that a slide's probabilities depend on: not thresholds or batch sizes, which do not change them."""

from __future__ import annotations

from typing import Any

from pipeline.errors import WrongSlideError
from pipeline.inference.predictor import Predictor
from pipeline.inference.tile_read import read_for
from pipeline.settings.config import InferConfig
from pipeline.store.layers.labels import mask_fingerprint
from pipeline.store.layers.overlays import Predictions, list_predictions, read_predictions
from pipeline.store.layers.qc_scores import read_stain_fit
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import UnreadableError
from training.foundation.tile_read import UNSTATED

NUMERICS = {"dtype": "float32"}
_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


def prediction_key(reader: StoreReader, predictor: Predictor, config: InferConfig) -> dict[str, Any]:
    """The key of a slide's predictions: source, model, tiles and the mask that chose them, stain, numerics.

    Raises:
        UnreadableError: the model needs a normalised stain, but the slide's was never fitted; or there is no mask.
        BadRecipeError: tiles would be read from another level than the model's training tiles were.
    """
    key: dict[str, Any] = {
        "source_sha256": reader.source_sha256,
        "model": predictor.identity,
        "tiles": {"tile_px": predictor.tile_px, "mpp": predictor.mpp, "min_tissue": config.min_tissue},
        "numerics": {"dtype": _DTYPES[predictor.run_on.numerics.precision]},
    }
    key["tiles"] |= {"mask": mask_fingerprint(reader.path), "read": read_for(predictor, config)}
    # Stated only if used, so that predictions made before these settings existed still count as finished.
    if predictor.run_on.numerics.deterministic:
        key["numerics"]["deterministic"] = True
    if config.overlap:
        key["tiles"]["overlap"] = config.overlap
    if reader.plane_um is not None:
        key["tiles"]["plane_um"] = reader.plane_um
    if predictor.run_on.views != "none":
        key["views"] = predictor.run_on.views
    if predictor.stain:
        fit = read_stain_fit(reader, predictor.stain["method"])
        key["stain"] = {**predictor.stain, "fit": fit}  # after a new fit, tiles look different
    return key


def read_stored_key(reader: StoreReader, model_id: str) -> dict[str, Any] | None:
    """The key of a slide's stored predictions; None where there are none, or damaged ones."""
    predictions = finished_predictions(reader, model_id)
    return None if predictions is None else stored_key(predictions, reader)


def finished_predictions(reader: StoreReader, model_id: str) -> Predictions | None:
    """A model's predictions in the store; None where there are none, or they are damaged."""
    if model_id not in list_predictions(reader.path):
        return None
    try:
        return read_predictions(reader.path, model_id)
    except (UnreadableError, WrongSlideError):
        return None


def stored_key(predictions: Predictions, reader: StoreReader) -> dict[str, Any]:
    """The key that stored predictions state; older ones list tiles and settings separately, and no mask."""
    made_from = predictions.attributes.get("made_from")
    key = dict(made_from) if isinstance(made_from, dict) else {}
    if "tiles" not in key and isinstance(key.get("settings"), dict):
        settings = key.pop("settings")
        tiles = {name: key.pop(name, None) for name in ("tile_px", "mpp")}
        key |= {"tiles": {**tiles, "min_tissue": settings.get("min_tissue")}, "numerics": NUMERICS}
    if isinstance(key.get("tiles"), dict):
        key["tiles"] = {"read": UNSTATED, **key["tiles"]}
        if "mask" not in key["tiles"]:
            key["tiles"]["mask"] = mask_fingerprint(reader.path)
    return key

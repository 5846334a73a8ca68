"""Key of everything that a slide's features depend on: not batch sizes, which do not change them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.embedding.encoder import TileEncoder
from pipeline.errors import WrongSlideError
from pipeline.settings.config import EmbedConfig
from pipeline.store.layers.features import list_features, open_features
from pipeline.store.layers.labels import mask_fingerprint
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import UnreadableError


def embedding_key(reader: StoreReader, encoder: TileEncoder, config: EmbedConfig) -> dict[str, Any]:
    """The key of a slide's features: source, encoder, tiles and the mask that chose them, numerics.

    Raises:
        UnreadableError: there is no mask.
    """
    numerics = encoder.run_on.numerics
    key: dict[str, Any] = {
        "source_sha256": reader.source_sha256,
        "encoder": {"encoder_id": encoder.encoder_id, "weights_sha256": encoder.weights_sha256},
        "tiles": {
            "tile_px": encoder.tile_px,
            "mpp": encoder.mpp,
            "min_tissue": config.min_tissue,
            "overlap": config.overlap,
            "mask": mask_fingerprint(reader.path),
            "read": encoder.read,
        },
        "numerics": {"precision": numerics.precision, "deterministic": numerics.deterministic},
    }
    if reader.plane_um is not None:
        key["tiles"]["plane_um"] = reader.plane_um
    return key


def is_of_plane(store: Path, encoder_id: str, plane_um: float | None) -> bool:
    """Whether a slide's features are of a focal plane; those of a slide with a single one are, whatever they state.

    Args:
        plane_um: its height; None: the default one.

    Raises:
        BadRecipeError: the slide has no such plane. UnreadableError: the store.
    """
    reader = StoreReader(store, plane_um)
    stated = (stored_key(reader, encoder_id) or {}).get("tiles")
    return reader.plane_um is None or (isinstance(stated, dict) and stated.get("plane_um") == reader.plane_um)


def stored_key(reader: StoreReader, encoder_id: str) -> dict[str, Any] | None:
    """The key that a slide's features state; None where there are none, or damaged ones, which are replaced."""
    if encoder_id not in list_features(reader.path):
        return None
    try:
        made_from = open_features(reader.path, encoder_id).attributes.get("made_from")
    except (UnreadableError, WrongSlideError):
        return None
    return made_from if isinstance(made_from, dict) else None

"""Features of the slides of patients: which encoder's, where they are, and all tiles of a patient as one bag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import WrongSlideError
from pipeline.project import Project
from pipeline.store.layers.features import StoredFeatures, list_features, open_features
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import UnreadableError

APART_UM = 20_000.0
"""Distance between two slides of a patient, which lie side by side in the bag's frame: tiles of different slides are
no neighbours."""
SAME_SIDE = 0.01
"""Relative difference of the side of a tile, in µm, up to which slides count as tiled alike."""


@dataclass(frozen=True)
class SlideFeatures:
    """Features of one slide, in µm."""

    slide_id: str
    mpp0: float
    width_um: float
    stored: StoredFeatures

    @property
    def side_um(self) -> float:
        return self.stored.side_px0 * self.mpp0

    def tiling(self) -> dict[str, Any]:
        """How its tiles were chosen, as the features state it; {} for features of another program."""
        made_from = self.stored.attributes.get("made_from")
        tiles = made_from.get("tiles") if isinstance(made_from, dict) else None
        return {key: tiles.get(key) for key in ("min_tissue", "overlap")} if isinstance(tiles, dict) else {}

    def centres_um(self) -> NDArray[np.float32]:
        """Centres of the tiles on the slide, float32 (tiles, 2), from its top left."""
        centres = (self.stored.xy0_n2 + self.stored.side_px0 / 2) * self.mpp0
        return centres.astype(np.float32)


def find_encoder_id(store_features: Sequence[str], encoder: str, slide_id: str) -> str | None:
    """Id of the encoder that a recipe names, among those with features of a slide; None if it has none.

    Args:
        encoder: an id, or a name.

    Raises:
        UnreadableError: features of several encoders of that name.
    """
    if encoder in store_features:
        return encoder
    named = [known for known in store_features if known[:-9] == encoder and known[-9:-8] == "-"]
    if len(named) > 1:
        raise UnreadableError(
            f"slide {slide_id}: has features of several encoders called {encoder!r}: {', '.join(named)}. Name one of "
            "them by its id ([data] encoder)."
        )
    return named[0] if named else None


def open_slide_features(project: Project, slide_id: str, encoder: str) -> SlideFeatures | None:
    """Open a slide's features; None if it is not in the project, or has none of this encoder.

    Raises:
        UnreadableError: damaged. WrongSlideError: of another slide or encoder.
    """
    store = project.stored_at(slide_id)
    if not store.is_dir():
        return None
    encoder_id = find_encoder_id(list_features(store), encoder, slide_id)
    if encoder_id is None:
        return None
    reader = StoreReader(store)
    return SlideFeatures(slide_id, reader.mpp0, reader.size_wh_px0[0] * reader.mpp0, open_features(store, encoder_id))


def check_alike(slides: Sequence[SlideFeatures]) -> None:
    """Refuse slides whose features cannot be mixed.

    Raises:
        WrongSlideError: they are of other encoders, or of tiles of another size or choice.
    """
    first = slides[0]
    for other in slides[1:]:
        differ = {
            "the encoder": (first.stored.encoder_id, other.stored.encoder_id),
            "the number of features": (first.stored.dims, other.stored.dims),
            **{key: (value, other.tiling().get(key)) for key, value in first.tiling().items()},
        }
        if abs(first.side_um - other.side_um) > SAME_SIDE * first.side_um:
            differ["the side of a tile in µm"] = (round(first.side_um, 2), round(other.side_um, 2))
        for what, (ours, theirs) in differ.items():
            if ours != theirs:
                raise WrongSlideError(
                    f"slides {first.slide_id} and {other.slide_id}: {what} differs ({ours} and {theirs}), so their "
                    "features cannot be mixed. Embed both with the same encoder and [embed] settings; give imported "
                    "features of other encoders or tiles another name."
                )


def read_bag(slides: Sequence[SlideFeatures], rows: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
    """Tiles of some slides as one bag, float32 (tiles, dims + 2): features, then the tile's centre in µm.

    Slides lie side by side in the order given, `APART_UM` from each other.

    Args:
        rows: tiles to read, counted through all slides, in rising order; None for all.

    Raises:
        UnreadableError: damaged, or values that are not finite.
    """
    total = sum(slide.stored.num_tiles for slide in slides)
    count = total if rows is None else len(rows)
    bag = np.empty((count, slides[0].stored.dims + 2), np.float32)
    start, at, left_um = 0, 0, 0.0
    for slide in slides:
        num_tiles = slide.stored.num_tiles
        if rows is None:
            chosen: slice | NDArray[np.int64] = slice(None)
            taken = num_tiles
        else:
            first, end = np.searchsorted(rows, (start, start + num_tiles))
            chosen, taken = rows[first:end] - start, int(end - first)
        part = bag[at : at + taken]
        part[:, :-2] = slide.stored.read_rows(chosen)
        part[:, -2:] = slide.centres_um()[chosen]
        part[:, -2] += left_um
        start, at, left_um = start + num_tiles, at + taken, left_um + slide.width_um + APART_UM
    if not np.isfinite(bag).all():
        raise UnreadableError(
            f"slide {', '.join(slide.slide_id for slide in slides)}: features of {slides[0].stored.encoder_id} that "
            "are not numbers. Remove them and run `gemslide embed` again."
        )
    return bag


def encoder_of(slides: Sequence[SlideFeatures]) -> Mapping[str, Any]:
    """The encoder of some slides' features, for a model's package."""
    stored = slides[0].stored
    return {
        "encoder_id": stored.encoder_id,
        "weights_sha256": str(stored.attributes.get("weights_sha256") or ""),
        "row": stored.attributes.get("encoder") or {},
        "side_um": slides[0].side_um,
        **slides[0].tiling(),
    }

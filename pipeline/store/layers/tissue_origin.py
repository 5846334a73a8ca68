"""Origin of a store's tissue mask, and results that were made with another one.

Ingest finds tissue and lists the mask's files with their checksums. A mask that replaces it (`gemslide tissue`) states
its origin and its cells' SHA-256 in its own attribute: the list cannot name it, since the two could not be replaced at
once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.files import SHORT_WRITE_S, new_folder
from pipeline.places.object_path import StorePath
from pipeline.store.format.layout import PREDICTIONS, TISSUE
from pipeline.store.format.metadata import first_finding, read_json, tissue_attributes, write_json
from pipeline.store.layers.labels import (
    fingerprint_of,
    mask_fingerprint,
    mask_pyramid,
    read_label,
    read_tissue,
    tissue_spacings,
    write_mask,
)
from pipeline.store.layers.overlays import list_predictions
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import UnreadableError

OUTDATED = "the tissue mask has since been replaced"
"""Reason why predictions are outdated; a clause."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Word = Annotated[str, Field(max_length=200)]


class MaskOrigin(BaseModel):
    """Origin of a mask that replaced ingest's. Names no file and no person."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    made: Literal["found", "drawn", "imported"]
    """Found in the slide's pixels with other settings, drawn in the project, or taken from a file."""
    sha256: Sha256
    """Of the mask (`mask_fingerprint`)."""
    tissue_fraction: float = Field(ge=0, le=1)
    settings: dict[str, float] | None = None
    """As `[ingest.tissue]`, for a mask that was found."""
    file_format: Word | None = None
    file_sha256: Sha256 | None = None
    classes: tuple[Word, ...] = ()
    """Classes whose areas are tissue; empty: all areas."""
    areas: int = Field(0, ge=0)
    utc: Word = ""

    def __str__(self) -> str:
        """A clause for people."""
        of = f" ({', '.join(self.classes)})" if self.classes else ""
        if self.made == "imported":
            return f"imported from {self.file_format}{of}"
        return f"drawn{of}" if self.made == "drawn" else "found again in the slide's pixels"


def mask_origin(store: StorePath) -> MaskOrigin | None:
    """Origin of the mask that replaced ingest's; None: the mask is ingest's own.

    Raises:
        UnreadableError: the mask's own metadata is damaged.
    """
    try:
        ours = read_json(store / TISSUE / "zarr.json")["attributes"].get("gemslide")
        return None if ours is None else MaskOrigin.model_validate(ours)
    except ValidationError as error:
        raise UnreadableError(f"{store / TISSUE}: {first_finding(error)}. {_AGAIN}") from error
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError(
            f"{store / TISSUE}: cannot be read ({type(error).__name__}: {error}). {_AGAIN}"
        ) from error


_AGAIN = "Make the mask again with `gemslide tissue`, or delete this folder and run `gemslide ingest` on the slide."


def settings_of_mask(reader: StoreReader) -> dict[str, Any] | None:
    """The settings that a mask was found with; None if it was not found, or they are unknown."""
    origin = mask_origin(reader.path)
    if origin is not None:
        return None if origin.settings is None else dict(origin.settings)
    settings = reader.attributes.ingest.get("settings")
    tissue = settings.get("tissue") if isinstance(settings, dict) else None
    return dict(tissue) if isinstance(tissue, dict) else None


def replace_tissue(reader: StoreReader, mask_yx: NDArray[np.bool_], mpp: float, **origin: Any) -> bool:
    """Put another tissue mask into a store; it appears whole or not at all. The root then states its tissue fraction.

    Returns:
        False if the store already has this mask, which is then left as it is.

    Args:
        mask_yx: cell (0, 0) starts at the slide's corner. mpp: microns per cell.
        origin: fields of `MaskOrigin`, except those derived from the mask.

    Raises:
        DiskFullError: no space, or not writable. LockedError: another process has been writing the same for too long.
    """
    cells = mask_yx.astype(np.uint8)
    sha256 = fingerprint_of(cells, mpp)
    if sha256 == _fingerprint_now(reader.path):
        return False
    new_origin = MaskOrigin(
        sha256=sha256,
        tissue_fraction=round(float(mask_yx.mean()), 6),
        utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **origin,
    )
    attributes = tissue_attributes(tissue_spacings(mpp, len(reader.levels)), reader.mpp0)
    with new_folder(reader.folder / TISSUE, wait_s=SHORT_WRITE_S) as folder:
        write_mask(folder, cells, {**attributes, "gemslide": new_origin.model_dump(mode="json")})
    root = read_json(reader.folder / "zarr.json")
    root["attributes"]["gemslide"]["ingest"]["tissue_fraction"] = new_origin.tissue_fraction
    write_json(reader.folder / "zarr.json", root)
    return True


def _fingerprint_now(store: StorePath) -> str | None:
    """The mask's fingerprint; None if it is damaged or missing, so that any other mask replaces it."""
    try:
        mask_origin(store)
        return mask_fingerprint(store)
    except UnreadableError:
        return None


def find_mask_damage(reader: StoreReader) -> Iterator[str]:
    """Report damage to a mask that replaced ingest's; ingest's own is left out: the list of checksums covers it."""
    try:
        origin = mask_origin(reader.path)
        if origin is None:
            return
        mask_yx, mpp = read_tissue(reader.path)
        attributes = read_json(reader.path / TISSUE / "zarr.json")["attributes"]
        expected = tissue_attributes(tissue_spacings(mpp, len(reader.levels)), reader.mpp0)
        datasets = [read_label(reader.path, "tissue", str(index)) for index in range(len(reader.levels))]
    except (UnreadableError, OSError, KeyError, ValueError) as error:
        yield str(error).rstrip(".")
        return
    if fingerprint_of(mask_yx, mpp) != origin.sha256:
        yield f"{TISSUE}/0: is not the mask that was written (its SHA-256 differs)"
    if attributes.get("ome") != expected["ome"]:
        yield f"{TISSUE}: its metadata is not that of a tissue mask of this slide"
    pyramid = mask_pyramid(mask_yx, len(datasets))
    for index, (dataset, coarser) in enumerate(zip(datasets, pyramid, strict=True)):
        if not np.array_equal(dataset, coarser):
            yield f"{TISSUE}/{index}: is not the coarser mask of dataset 0"


def outdated_models(store: StorePath) -> list[str]:
    """Models whose predictions in a store were made with another tissue mask than it has now.

    Raises:
        UnreadableError: there is no mask, or a damaged one.
    """
    models = list_predictions(store)
    now = mask_fingerprint(store) if models else ""
    return [model_id for model_id in models if was_made_with(_made_from(store, model_id)) not in (None, now)]


def outdated_text(models: Sequence[str]) -> str:
    """Warning about the outdated predictions of models; a clause. "" for no models."""
    return f"predictions of {', '.join(models)} are outdated: {OUTDATED}" if models else ""


def was_made_with(made_from: object) -> str | None:
    """The fingerprint of the mask that predictions say they were made with; None: they do not say."""
    tiles = made_from.get("tiles") if isinstance(made_from, Mapping) else None
    mask = tiles.get("mask") if isinstance(tiles, Mapping) else None
    return mask if isinstance(mask, str) else None


def _made_from(store: StorePath, model_id: str) -> object:
    try:
        return read_json(store / PREDICTIONS / model_id / "zarr.json")["attributes"]["gemslide"].get("made_from")
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return None  # damaged: their reader reports it

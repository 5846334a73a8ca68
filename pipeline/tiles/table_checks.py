"""Whether a tile table is one that `gemslide tile` wrote, and holds together: it may come from others, or be edited."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.errors import BadManifestError, LeakageError
from pipeline.store.metadata import MAX_LEVELS, first_finding
from pipeline.units import MAX_MPP, MIN_MPP
from training.foundation.names import NAME_PATTERN

SPLITS = ("train", "val", "test")
MAX_SIDE_PX = 2**24
MAKE_AGAIN = "Make it again with `gemslide tile`."

SlideId = Annotated[str, Field(pattern=NAME_PATTERN)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ClassName = Annotated[str, Field(min_length=1, max_length=200)]


class TableMetadata(BaseModel):
    """What stands in the Parquet metadata."""

    model_config = ConfigDict(extra="allow")

    class_order: list[ClassName]
    stride_px0: dict[SlideId, Annotated[int, Field(gt=0, le=MAX_SIDE_PX)]]
    settings: dict[str, Any]
    manifest_sha256: Sha256 | None
    sources: dict[SlideId, Sha256]
    quality: dict[SlideId, dict[str, Any]] = {}
    annotations: dict[SlideId, dict[str, Any]] = {}
    scanners: dict[SlideId, Annotated[str, Field(max_length=1000)] | None] = {}
    left_out: dict[SlideId, str] = {}
    """Slides that could not be tiled, with the code of the reason."""
    content_sha256: Sha256 | None = None
    """Of rows and metadata; tables before version 0.2 have none."""


def content_sha256(frame: pd.DataFrame, metadata: dict[str, Any]) -> str:
    """SHA-256 over rows and metadata, whatever wrote the Parquet file."""
    digest = hashlib.sha256()
    for name in frame.columns:
        column = frame[name]
        if column.dtype.kind in "iuf":
            digest.update(name.encode() + np.ascontiguousarray(column.to_numpy()).tobytes())
        else:
            texts = [None if pd.isna(text) else str(text) for text in column]
            digest.update(json.dumps([name, texts]).encode())
    said = {key: value for key, value in metadata.items() if key != "content_sha256"}
    digest.update(json.dumps(said, sort_keys=True).encode())
    return digest.hexdigest()


def check_table(where: str, frame: pd.DataFrame, metadata: dict[str, Any]) -> None:
    """Refuse a table whose rows cannot be, or are not what was written.

    Args:
        where: the table's path, for messages.

    Raises:
        BadManifestError: values out of range, unknown labels, splits or slides, or changed since it was written.
        LeakageError: a slide, or a patient, in two splits.
    """
    try:
        said = TableMetadata.model_validate(metadata)
    except ValidationError as error:
        raise BadManifestError(f"{where}: its metadata are damaged ({first_finding(error)}). {MAKE_AGAIN}") from error
    for finding in (*_values(frame, said), *_places(frame, said)):
        raise BadManifestError(f"{where}: {finding}. {MAKE_AGAIN}")
    _check_splits(where, frame, said)
    if said.content_sha256 not in (None, content_sha256(frame, metadata)):
        raise BadManifestError(
            f"{where}: was changed after `gemslide tile` wrote it (its SHA-256 is another). Labels and splits come "
            f"from the manifest and its annotations: change them there. {MAKE_AGAIN}"
        )


def _values(frame: pd.DataFrame, said: TableMetadata) -> list[str]:
    """What single columns must hold."""
    wrong = {
        "x_px0": ~frame["x_px0"].between(0, MAX_SIDE_PX),
        "y_px0": ~frame["y_px0"].between(0, MAX_SIDE_PX),
        "side_px0": ~frame["side_px0"].between(1, MAX_SIDE_PX),
        "tile_px": ~frame["tile_px"].between(8, 2**14) | (frame["tile_px"] != frame["tile_px"].iloc[0]),
        "mpp": ~frame["mpp"].between(MIN_MPP, MAX_MPP) | (frame["mpp"] != frame["mpp"].iloc[0]),
        "level": ~frame["level"].between(0, MAX_LEVELS - 1),
        "tissue": ~frame["tissue"].between(0, 1),
        "label": frame["label"].notna() & ~frame["label"].isin(said.class_order),
        "label_fraction": ~frame["label_fraction"].between(0, 1 + 1e-5),
        "split": frame["split"].notna() & ~frame["split"].isin(SPLITS),
        "slide_id": ~frame["slide_id"].isin(said.sources.keys() & said.stride_px0.keys()),
    }
    for name in (column for column in frame.columns if column.startswith("qc_")):
        wrong[name] = frame[name].notna() & ~frame[name].between(0, 1 + 1e-5)
    found = [
        f"{int(rows.sum())} of {len(rows)} rows have a {name} that cannot be, such as {frame[name][rows].iloc[0]!r:.80}"
        for name, rows in wrong.items()
        if rows.any()
    ]
    if len(set(said.class_order)) != len(said.class_order):
        found.append(f"the same class twice in its order {said.class_order}")
    return found


def _places(frame: pd.DataFrame, said: TableMetadata) -> list[str]:
    """Tiles lie on their slide's grid, each once, all of one size."""
    stride = frame["slide_id"].map(said.stride_px0)
    off = (frame["x_px0"] % stride != 0) | (frame["y_px0"] % stride != 0)
    twice = frame.duplicated(["slide_id", "x_px0", "y_px0"])
    sizes = frame.groupby("slide_id")["side_px0"].nunique() > 1
    found = []
    if off.any():
        found.append(f"{int(off.sum())} of {len(frame)} tiles do not lie on their slide's grid")
    if twice.any():
        found.append(f"{int(twice.sum())} tiles stand there twice")
    if sizes.any():
        found.append(f"slide {sizes.idxmax()} has tiles of several sizes")
    for key in ("tile_px", "mpp"):
        of_tiles, of_settings = frame[key].iloc[0].item(), said.settings.get(key)
        if key in said.settings and (not isinstance(of_settings, int | float) or of_settings != of_tiles):
            found.append(f"its tiles have a {key} of {of_tiles}, its settings say {of_settings!r:.40}")
    return found


def _check_splits(where: str, frame: pd.DataFrame, said: TableMetadata) -> None:
    """No slide, no patient and no source file on two sides."""
    source = frame["slide_id"].map(said.sources)
    for what, key in (("slide", frame["slide_id"]), ("patient", frame["patient_id"]), ("source file", source)):
        per_key = frame["split"].fillna("none").groupby(key.to_numpy()).unique()
        several = per_key[per_key.map(len) > 1]
        if len(several):
            raise LeakageError(
                f"{where}: {what} {several.index[0]!r:.80} stands in the splits {', '.join(sorted(several.iloc[0]))}. "
                f"Put all slides of a patient into one split of the cohort manifest. {MAKE_AGAIN}"
            )

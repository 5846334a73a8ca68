"""Whether a tile table is one that `gemslide tile` wrote, and holds together: it may come from others, or be edited."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.errors import BadManifestError, LeakageError
from pipeline.store.format.metadata import first_finding
from pipeline.tiles.schema import BY_NAME, MAX_SIDE_PX
from training.foundation.tile_read import TILE_READS, UNSTATED
from training.foundation.words.counts import counted
from training.foundation.words.names import NAME_PATTERN, comparable

MAKE_AGAIN = "Make it again with `gemslide tile`."

SlideId = Annotated[str, Field(pattern=NAME_PATTERN)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ClassName = Annotated[str, Field(min_length=1, max_length=200)]


class TableMetadata(BaseModel):
    """Metadata of the Parquet file."""

    model_config = ConfigDict(extra="allow")

    class_order: list[ClassName]
    stride_px0: dict[SlideId, Annotated[int, Field(gt=0, le=MAX_SIDE_PX)]]
    settings: dict[str, Any]
    manifest_sha256: Sha256 | None
    sources: dict[SlideId, Sha256]
    masks: dict[SlideId, Sha256] = {}
    """Of the tissue masks that tiles were chosen by; tables before there was another than ingest's have none."""
    quality: dict[SlideId, dict[str, Any]] = {}
    annotations: dict[SlideId, dict[str, Any]] = {}
    scanners: dict[SlideId, Annotated[str, Field(max_length=1000)] | None] = {}
    left_out: dict[SlideId, str] = {}
    """Slides that could not be tiled, with the code of the reason."""
    content_sha256: Sha256
    """Of rows and metadata."""


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
    if said.content_sha256 != content_sha256(frame, metadata):
        raise BadManifestError(
            f"{where}: was changed after `gemslide tile` wrote it (its SHA-256 is another). Labels and splits come "
            f"from the manifest and its annotations: change them there. {MAKE_AGAIN}"
        )


def _values(frame: pd.DataFrame, said: TableMetadata) -> list[str]:
    """Find values that single columns must not hold, by the schema and by the names in the metadata."""
    wrong = {name: BY_NAME[name].wrong(frame[name]) for name in frame.columns}
    wrong["label"] |= frame["label"].notna() & ~frame["label"].isin(said.class_order)
    wrong["slide_id"] |= ~frame["slide_id"].isin(said.sources.keys() & said.stride_px0.keys())
    found = [
        f"a {name} that cannot be in {int(rows.sum()):,} of {counted(len(rows), 'row')}, such as "
        f"{frame[name][rows].iloc[0]!r:.80}"
        for name, rows in wrong.items()
        if rows.any()
    ]
    if len(set(map(comparable, said.class_order))) != len(said.class_order):
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
        of_all = f"of {counted(len(frame), 'tile')}"
        found.append(f"{counted(int(off.sum()), f'{of_all} does', f'{of_all} do')} not lie on the slide's grid")
    if twice.any():
        found.append(f"{counted(int(twice.sum()), 'tile stands', 'tiles stand')} there twice")
    if sizes.any():
        found.append(f"slide {sizes.idxmax()} has tiles of several sizes")
    read = said.settings.get("read", UNSTATED)
    if read not in TILE_READS:
        found.append(f"its settings say read = {read!r:.40}")
    elif read == "finest" and (frame["level"] != 0).any():
        found.append('its settings say read = "finest", and it has tiles of other levels')
    for key in ("tile_px", "mpp"):
        of_tiles, of_settings = frame[key].iloc[0].item(), said.settings.get(key)
        if key in said.settings and (not isinstance(of_settings, int | float) or of_settings != of_tiles):
            found.append(f"its tiles have a {key} of {of_tiles}, its settings say {of_settings!r:.40}")
    return found


def in_comparable_form(frame: pd.DataFrame, metadata: dict[str, Any]) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Rows and metadata in which patients and classes are written as they are compared."""
    forms = {column: compared(frame[column]) for column in ("patient_id", "label")}
    changed = {column: form for column, form in forms.items() if not form.equals(frame[column])}
    classes = [comparable(name) for name in metadata["class_order"]]
    if not changed and classes == metadata["class_order"]:
        return frame, metadata
    return frame.assign(**changed), {**metadata, "class_order": classes}


def compared(names: pd.Series[Any]) -> pd.Series[Any]:
    """A column of names in the form in which they are compared."""
    form = {name: comparable(name) for name in names.unique() if isinstance(name, str)}
    return names if all(name == as_compared for name, as_compared in form.items()) else names.map(form)


def _check_splits(where: str, frame: pd.DataFrame, said: TableMetadata) -> None:
    """No slide, no patient and no source file on two sides."""
    source = frame["slide_id"].map(said.sources)
    for what, key in (
        ("slide", frame["slide_id"]),
        ("patient", compared(frame["patient_id"])),
        ("source file", source),
    ):
        per_key = frame["split"].fillna("none").groupby(key.to_numpy()).unique()
        several = per_key[per_key.map(len) > 1]
        if len(several):
            raise LeakageError(
                f"{where}: {what} {several.index[0]!r:.80} stands in the splits {', '.join(sorted(several.iloc[0]))}. "
                f"Put all slides of a patient into one split of the cohort manifest. {MAKE_AGAIN}"
            )

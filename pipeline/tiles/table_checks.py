"""Checks that `gemslide tile` wrote a tile table and that it is consistent: it may be someone else's, or edited."""

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
    """Of the tissue masks that tiles were chosen with; tables from before masks could be replaced have none."""
    quality: dict[SlideId, dict[str, Any]] = {}
    annotations: dict[SlideId, dict[str, Any]] = {}
    scanners: dict[SlideId, Annotated[str, Field(max_length=1000)] | None] = {}
    left_out: dict[SlideId, str] = {}
    """Slides that could not be tiled, with the code of the reason."""
    outlined: dict[SlideId, dict[ClassName, dict[str, Any]]] = {}
    """Counts of each outlined class; older tables have none."""
    planes_um: dict[SlideId, Annotated[float, Field(strict=True, allow_inf_nan=False)]] = {}
    """Heights of the focal planes that the tiles of stacks are read from."""
    content_sha256: Sha256
    """Of rows and metadata."""


def content_sha256(frame: pd.DataFrame, metadata: dict[str, Any]) -> str:
    """SHA-256 over rows and metadata, independent of the program that wrote the Parquet file."""
    digest = hashlib.sha256()
    for name in frame.columns:
        column = frame[name]
        if column.dtype.kind in "iuf":
            digest.update(name.encode() + np.ascontiguousarray(column.to_numpy()).tobytes())
        else:
            texts = [None if pd.isna(text) else str(text) for text in column]
            digest.update(json.dumps([name, texts]).encode())
    hashed = {key: value for key, value in metadata.items() if key != "content_sha256"}
    digest.update(json.dumps(hashed, sort_keys=True).encode())
    return digest.hexdigest()


def check_table(where: str, frame: pd.DataFrame, metadata: dict[str, Any]) -> None:
    """Refuse a table whose rows are invalid, or not those that were written.

    Args:
        where: the table's path, for messages.

    Raises:
        BadManifestError: values out of range, unknown labels, splits or slides, or a change since it was written.
        LeakageError: a slide, or a patient, in two splits.
    """
    try:
        parsed = TableMetadata.model_validate(metadata)
    except ValidationError as error:
        raise BadManifestError(f"{where}: its metadata is damaged ({first_finding(error)}). {MAKE_AGAIN}") from error
    for finding in (*_find_bad_values(frame, parsed), *_find_misplaced_tiles(frame, parsed)):
        raise BadManifestError(f"{where}: {finding}. {MAKE_AGAIN}")
    _check_splits(where, frame, parsed)
    if parsed.content_sha256 != content_sha256(frame, metadata):
        raise BadManifestError(
            f"{where}: was changed after `gemslide tile` wrote it (its SHA-256 differs). Labels and splits come "
            f"from the manifest and its annotations: change them there. {MAKE_AGAIN}"
        )


def _find_bad_values(frame: pd.DataFrame, parsed: TableMetadata) -> list[str]:
    """Find values that single columns must not hold, by the schema and the names in the metadata."""
    wrong = {name: BY_NAME[name].wrong(frame[name]) for name in frame.columns}
    wrong["label"] |= frame["label"].notna() & ~frame["label"].isin(parsed.class_order)
    wrong["slide_id"] |= ~frame["slide_id"].isin(parsed.sources.keys() & parsed.stride_px0.keys())
    findings = [
        f"an invalid {name} in {int(rows.sum()):,} of {counted(len(rows), 'row')}, such as "
        f"{frame[name][rows].iloc[0]!r:.80}"
        for name, rows in wrong.items()
        if rows.any()
    ]
    if len(set(map(comparable, parsed.class_order))) != len(parsed.class_order):
        findings.append(f"the same class twice in its class order {parsed.class_order}")
    return findings


def _find_misplaced_tiles(frame: pd.DataFrame, parsed: TableMetadata) -> list[str]:
    """Find tiles off their slide's grid, twice in it or of several sizes, and tiles that contradict the settings."""
    stride = frame["slide_id"].map(parsed.stride_px0)
    off = (frame["x_px0"] % stride != 0) | (frame["y_px0"] % stride != 0)
    twice = frame.duplicated(["slide_id", "x_px0", "y_px0"])
    sizes = frame.groupby("slide_id")["side_px0"].nunique() > 1
    findings = []
    if off.any():
        of_all = f"of {counted(len(frame), 'tile')}"
        findings.append(f"{counted(int(off.sum()), f'{of_all} is', f'{of_all} are')} not on the slide's grid")
    if twice.any():
        findings.append(f"{counted(int(twice.sum()), 'tile appears', 'tiles appear')} twice")
    if sizes.any():
        findings.append(f"slide {sizes.idxmax()} has tiles of several sizes")
    read = parsed.settings.get("read", UNSTATED)
    if read not in TILE_READS:
        findings.append(f"its settings say read = {read!r:.40}")
    elif read == "finest" and (frame["level"] != 0).any():
        findings.append('its settings say read = "finest", and it has tiles of other levels')
    for key in ("tile_px", "mpp"):
        of_tiles, of_settings = frame[key].iloc[0].item(), parsed.settings.get(key)
        if key in parsed.settings and (not isinstance(of_settings, int | float) or of_settings != of_tiles):
            findings.append(f"its tiles have a {key} of {of_tiles}, its settings say {of_settings!r:.40}")
    return findings


def in_comparable_form(frame: pd.DataFrame, metadata: dict[str, Any]) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Rows and metadata with patients and classes in the form in which they are compared."""
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


def _check_splits(where: str, frame: pd.DataFrame, parsed: TableMetadata) -> None:
    """Refuse a slide, a patient or a source file in two splits."""
    source = frame["slide_id"].map(parsed.sources)
    for what, key in (
        ("slide", frame["slide_id"]),
        ("patient", compared(frame["patient_id"])),
        ("source file", source),
    ):
        per_key = frame["split"].fillna("none").groupby(key.to_numpy()).unique()
        several = per_key[per_key.map(len) > 1]
        if len(several):
            raise LeakageError(
                f"{where}: {what} {several.index[0]!r:.80} is in the splits {', '.join(sorted(several.iloc[0]))}. "
                f"Put all slides of a patient into one split of the cohort manifest. {MAKE_AGAIN}"
            )

"""Hostile or damaged tile tables, predictions and hotspots: all are refused with a message, none is trusted.

`python -m tests.attacks.hostile_tables --times 300`: every listed change, and random bit flips of the files.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.inference.results.hotspots import read_hotspots
from pipeline.project import Project
from pipeline.settings.config import TileConfig
from pipeline.store.layers.overlays import Predictions, read_predictions, write_predictions
from pipeline.tiles.dataset import TileDataset
from pipeline.tiles.table import METADATA_KEY, read_table
from pipeline.tiles.tile import make_tile_table
from tests.attacks.attack import Result, main
from tests.pipeline.make import ingest, sample_image, write_jpeg_pyramid
from training.foundation.errors import GemslideError

Change = Callable[[pd.DataFrame, dict[str, Any]], Any]


def _set(column: str, value: object, row: int = 0) -> Change:
    def change(frame: pd.DataFrame, metadata: dict[str, Any]) -> pd.DataFrame:
        values = frame[column].astype(object)
        values.iloc[row] = value
        return frame.assign(**{column: values})

    return change


def _said(**changes: Any) -> Change:
    return lambda frame, metadata: metadata.update(changes)


TABLE_CHANGES: dict[str, Change] = {
    "a tile moved to val": _set("split", "val"),
    "an unknown split": _set("split", "holdout"),
    "an unknown label": _set("label", "cancer"),
    "a negative x": _set("x_px0", -64),
    "a negative y": _set("y_px0", -1),
    "x beside the grid": _set("x_px0", 3),
    "x behind the slide": lambda frame, _: frame.assign(x_px0=frame["x_px0"] + 64 * 1000),
    "no side": _set("side_px0", 0),
    "mixed sides": _set("side_px0", 32),
    "mixed tile_px": _set("tile_px", 128),
    "another tile_px": lambda frame, _: frame.assign(tile_px=np.int32(128)),
    "mixed mpp": _set("mpp", 0.25),
    "mpp not finite": lambda frame, _: frame.assign(mpp=np.nan),
    "a level that is not there": lambda frame, _: frame.assign(level=np.int8(9)),
    "a negative level": _set("level", -1),
    "tissue of 5": _set("tissue", 5.0),
    "tissue not a number": _set("tissue", float("nan")),
    "a label's share of -1": _set("label_fraction", -1.0),
    "a quality score of 7": _set("qc_blur", 7.0),
    "an unknown slide": _set("slide_id", "S-9"),
    "a slide that is a path": lambda frame, _: frame.assign(slide_id="../S-1"),
    "a tile twice": lambda frame, _: pd.concat([frame, frame.iloc[:1]]),
    "a tile left out": lambda frame, _: frame.iloc[1:],
    "another label": _set("label", "b"),
    "a patient in two splits": lambda frame, _: frame.assign(patient_id="p"),
    "no class order": lambda _, metadata: metadata.pop("class_order"),
    "a class order of numbers": _said(class_order=[1, 2]),
    "a class twice": _said(class_order=["a", "a", "b"]),
    "another class order": _said(class_order=["b", "a"]),
    "a stride of 0": _said(stride_px0={"S-1": 0, "S-2": 64}),
    "no strides": _said(stride_px0={}),
    "settings changed": lambda _, metadata: metadata["settings"].update(min_tissue=0.01),
    "settings of another kind": _said(settings=[]),
    "settings of lists": _said(settings={"tile_px": [8, 9]}),
    "settings without end": _said(settings={"mpp": 10**400}),
    "sources of another kind": _said(sources=["S-1"]),
    "another source": lambda _, metadata: metadata["sources"].update({"S-1": "0" * 64}),
    "a source that is no hash": lambda _, metadata: metadata["sources"].update({"S-1": "x"}),
    "metadata that are a list": lambda _, metadata: [1],
}

PREDICTION_VALUES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "5.0": lambda values: np.where(np.isnan(values), values, 5.0),
    "-3": lambda values: np.where(np.isnan(values), values, -3.0),
    "infinite": lambda values: np.where(np.isnan(values), values, np.inf),
    "all zero": lambda values: np.zeros_like(values),
    "a sum of 2": lambda values: np.ones_like(values),
    "one cell of 5.0": lambda values: _one_cell(values, 5.0),
    "one cell half known": lambda values: _one_cell(values, np.nan),
}

PREDICTION_ATTRIBUTES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no classes": lambda ours: ours.update(class_names=[]),
    "three classes": lambda ours: ours.update(class_names=["a", "b", "c"]),
    "the same class twice": lambda ours: ours.update(class_names=["a", "a"]),
    "classes that are numbers": lambda ours: ours.update(class_names=[1, 2]),
    "a class of 10,000 letters": lambda ours: ours.update(class_names=["a", "b" * 10_000]),
    "a stride of 0": lambda ours: ours.update(stride_px0=0),
    "a stride that is a text": lambda ours: ours.update(stride_px0="x"),
    "no side": lambda ours: ours.pop("side_px0"),
    "an endless side": lambda ours: ours.update(side_px0=1e300),
    "another model": lambda ours: ours.update(model_id="m-2"),
    "another slide": lambda ours: ours.update(made_from={"source_sha256": "0" * 64}),
    "made from nothing readable": lambda ours: ours.update(made_from=[]),
}

SPOTS: dict[str, bytes] = {
    "an object": b"{}",
    "texts": b'["a"]',
    "keys missing": b'[{"x_px0": 1}]',
    "not a number": b'[{"x_px0": NaN, "y_px0": 1, "area_um2": 1, "score": 1, "class": "a"}]',
    "a score of 5": b'[{"x_px0": 1, "y_px0": 1, "area_um2": 1, "score": 5, "class": "a"}]',
    "a huge place": b'[{"x_px0": 1e300, "y_px0": 1, "area_um2": 1, "score": 1, "class": "a"}]',
    "a class that is a list": b'[{"x_px0": 1, "y_px0": 1, "area_um2": 1, "score": 1, "class": []}]',
    "digits": b"[" + b"9" * 5000 + b"]",
    "not UTF-8": b'["\xff"]',
}
HOTSPOTS: dict[str, bytes] = {
    **{what: b'{"threshold": 0.5, "hotspots": ' + spots + b"}" for what, spots in SPOTS.items()},
    "no JSON": b"[",
    "a list": b"[]",
    "no threshold": b'{"hotspots": []}',
    "a threshold of 0": b'{"threshold": 0, "hotspots": []}',
    "a threshold that is no number": b'{"threshold": NaN, "hotspots": []}',
    "something more": b'{"threshold": 0.5, "hotspots": [], "more": 1}',
    "deep": b"[" * 200_000,
}


def _one_cell(values: np.ndarray, value: float) -> np.ndarray:
    changed = values.copy()
    changed[0, -1, -1] = value
    return changed


def make_project(folder: Path) -> Project:
    """Two slides of two patients, a labelled table, predictions of model m-1."""
    project = Project(folder)
    for seed in (1, 2):
        source = write_jpeg_pyramid(folder / f"{seed}.tiff", [sample_image(700, 500, seed)], tile_px=128)
        ingest(source, folder, slide_id=f"S-{seed}", smallest_level_px=700)
    make_tile_table(project, "t", TileConfig(tile_px=64, mpp=0.5, min_tissue=0, classes=("a", "b")), cohort=None)
    path = project.tile_table_path("t")
    table = read_table(path)
    is_first = (table.frame["slide_id"] == "S-1").to_numpy()
    frame = table.frame.assign(
        label="a",
        patient_id=np.where(is_first, "p-1", "p-2"),
        split=np.where(is_first, "train", "val"),
    )
    write(path, frame, {**table.metadata, "manifest_sha256": "0" * 64}, honestly=True)
    for slide_id in ("S-1", "S-2"):
        _predict(project.store_path(slide_id))
    return project


def _predict(store: Path) -> None:
    second = np.linspace(0, 1, 35, dtype=np.float32).reshape(5, 7)
    values = np.stack([1 - second, second]).astype(np.float16)
    values[:, 0] = np.nan
    write_predictions(store, Predictions("m-1", ("a", "b"), values, 100, 100, {}), mpp0=0.5)


def write(path: Path, frame: pd.DataFrame, metadata: Any, *, honestly: bool) -> None:
    """Write a table as another program would; "honestly" means with its matching hash."""
    from pipeline.tiles.schema import ARROW_SCHEMA
    from pipeline.tiles.table_checks import content_sha256

    arrow = pa.Table.from_pandas(frame, schema=ARROW_SCHEMA, preserve_index=False)
    if honestly:
        metadata["content_sha256"] = content_sha256(arrow.to_pandas(), metadata)
    arrow = arrow.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode()})
    stream = BytesIO()
    pq.write_table(arrow, stream)
    path.write_bytes(stream.getvalue())


def attack(times: int, seed: int) -> Result:
    """Apply every listed damage, and `times` random ones."""
    result, chance = Result("hostile tables and arrays"), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        project = make_project(Path(folder))
        _open_all(project)
        _attack_table(result, project, chance, times // 2)
        _attack_predictions(result, project)
        _attack_hotspots(result, project)
    return result


def _open_all(project: Project) -> None:
    """Read everything that a table refers to: every tile, as training would."""
    dataset = TileDataset(project.root, "t")
    for slide_id in set(dataset.slides):
        dataset.read(int(np.flatnonzero(dataset.slides == slide_id)[0]))


def _attack_table(result: Result, project: Project, chance: random.Random, times: int) -> None:
    path = project.tile_table_path("t")
    honest, table = path.read_bytes(), read_table(path)
    for what, change in TABLE_CHANGES.items():
        metadata = json.loads(json.dumps(table.metadata))
        changed = change(table.frame.copy(), metadata)
        frame = changed if isinstance(changed, pd.DataFrame) else table.frame
        write(path, frame, changed if isinstance(changed, list) else metadata, honestly=False)
        result.expect_refusal(f"table: {what}", lambda: _open_all(project), GemslideError)
    other_columns = pa.table({"a": [1]})
    pq.write_table(other_columns, path)
    result.expect_refusal("table: other columns", lambda: read_table(path), GemslideError)
    path.unlink()
    os.mkfifo(path)
    result.expect_refusal("table: a named pipe", lambda: read_table(path), GemslideError)
    path.unlink()
    for what, data in _damaged(honest, chance, times):
        path.write_bytes(data)
        _refused_or_the_same(result, f"table: {what}", path, table.frame)
    path.write_bytes(honest)


def _damaged(honest: bytes, chance: random.Random, times: int) -> Iterator[tuple[str, bytes]]:
    for number in range(times):
        at = chance.randrange(len(honest))
        if number % 3 == 0:
            yield f"cut at {at}", honest[:at]
        else:
            flipped = bytearray(honest)
            flipped[at] ^= 1 << chance.randrange(8)
            yield f"a flipped bit at {at}", bytes(flipped)


def _refused_or_the_same(result: Result, what: str, path: Path, honest: pd.DataFrame) -> None:
    """Check for a refusal, or for unchanged content: a bit that nothing depends on may flip."""
    result.attempts += 1
    try:
        frame = read_table(path).frame
    except GemslideError:
        return
    except Exception as error:
        result.findings.append(f"{what}: {type(error).__name__}: {error!s:.200}")
        return
    result.check(frame.equals(honest), f"{what}: other rows were accepted")


def _attack_predictions(result: Result, project: Project) -> None:
    store = project.store_path("S-1")
    honest = read_predictions(store, "m-1")
    for what, change in PREDICTION_VALUES.items():
        values = change(honest.probabilities_cyx.astype(np.float32)).astype(np.float16)
        write_predictions(store, Predictions("m-1", ("a", "b"), values, 100, 100, {}), mpp0=0.5)
        result.expect_refusal(f"predictions: {what}", lambda: read_predictions(store, "m-1"), GemslideError)
    _predict(store)
    path = store / "predictions/m-1/zarr.json"
    root = json.loads(path.read_text())
    for what, edit in PREDICTION_ATTRIBUTES.items():
        changed = json.loads(json.dumps(root))
        edit(changed["attributes"]["gemslide"])
        path.write_text(json.dumps(changed))
        result.expect_refusal(f"predictions: {what}", lambda: read_predictions(store, "m-1"), GemslideError)
    path.write_text(json.dumps(root))
    copied = store / "predictions/m-9"
    shutil.copytree(store / "predictions/m-1", copied)
    result.expect_refusal("predictions: under another id", lambda: read_predictions(store, "m-9"), GemslideError)
    shutil.rmtree(copied)


def _attack_hotspots(result: Result, project: Project) -> None:
    path = project.result_dir("S-1", "m-1") / "hotspots.json"
    path.parent.mkdir(parents=True)
    for what, data in HOTSPOTS.items():
        path.write_bytes(data)
        result.expect_refusal(f"hotspots: {what}", lambda: read_hotspots(project.root, "S-1", "m-1"), GemslideError)
    path.unlink()
    os.mkfifo(path)
    result.expect_refusal("hotspots: a pipe", lambda: read_hotspots(project.root, "S-1", "m-1"), GemslideError)


if __name__ == "__main__":
    main(attack, times=300)

"""The inference workflow: a model over a slide's tissue, into the store and into files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import InferConfig
from pipeline.errors import BadRecipeError, ImplausibleOutputError, NoTissueError
from pipeline.files import SHORT_WRITE_S, new_folder
from pipeline.grid import TileGrid, tile_grid, tissue_fraction
from pipeline.inference.key import finished_predictions, prediction_key, stored_key
from pipeline.inference.predictor import Predictor
from pipeline.inference.results import keep_what_others_wrote, write_results
from pipeline.inference.stain_check import COLOUR_DISTANCE, StainCheck, stored_distance
from pipeline.jobs.key import is_finished
from pipeline.progress import Advance, no_bar
from pipeline.project import Project
from pipeline.run_record import versions
from pipeline.stain import Normaliser
from pipeline.store.labels import read_tissue
from pipeline.store.overlays import Predictions, new_predictions
from pipeline.store.qc_scores import slide_normaliser
from pipeline.store.reader import StoreReader

SAME_EVERYWHERE_MIN_TILES = 16
"""A model that gives this many different tiles exactly the same answer is broken."""


@dataclass(frozen=True)
class InferReport:
    """What inference of one slide gave."""

    slide_id: str
    model_id: str
    num_tiles: int
    num_hotspots: int
    result_dir: Path
    skipped: bool
    seconds: dict[str, float]
    colour_distance: float | None
    """From the model's training tiles (`stain_check`); None: not known."""


def infer_slide(
    slide_id: str,
    predictor: Predictor,
    project: Project,
    config: InferConfig,
    *,
    advance: Advance = no_bar,
) -> InferReport:
    """Predict a slide's tissue; finished predictions of the same key are kept, and only the files beside are written.

    Raises:
        UnreadableError: no such store. NoTissueError: nothing to look at.
        ImplausibleOutputError: nonsense from the model.
        BadRecipeError: the slide was scanned coarser than the model wants.
        UnreadableError: the model wants normalised stains, and the slide's was never fitted.
    """
    start = time.perf_counter()
    _check_classes(config, predictor)
    reader = StoreReader(project.store_path(slide_id))
    result_dir = project.result_dir(slide_id, predictor.model_id)
    key = prediction_key(reader, predictor, config)
    stored = _finished(reader, predictor.model_id, key)
    predictions = stored or _predict(reader, predictor, config, key, advance)
    predicted_s = time.perf_counter() - start
    # All of a slide's results appear when all of them are written, the store's first.
    with ExitStack() as published:
        folder = published.enter_context(new_folder(result_dir, wait_s=SHORT_WRITE_S))
        if not stored:
            published.enter_context(new_predictions(reader.path, predictions, mpp0=reader.mpp0))
        num_hotspots = write_results(reader, predictions, folder, config)
        keep_what_others_wrote(result_dir, folder, predictor.class_names)
    num_tiles = int(np.isfinite(predictions.probabilities_cyx[0]).sum())
    seconds = {"predict": round(predicted_s, 3), "write": round(time.perf_counter() - start - predicted_s, 3)}
    skipped = stored is not None
    distance = stored_distance(predictions)
    return InferReport(slide_id, predictor.model_id, num_tiles, num_hotspots, result_dir, skipped, seconds, distance)


def _check_classes(config: InferConfig, predictor: Predictor) -> None:
    unknown = [name for name in config.hotspot_classes if name not in predictor.class_names]
    if unknown:
        raise BadRecipeError(
            f"[infer] hotspot_classes: {unknown} are none of the model's classes {list(predictor.class_names)}."
        )


def tissue_tiles(reader: StoreReader, grid: TileGrid, min_tissue: float) -> NDArray[np.int64]:
    """Indices into the grid of tiles with enough tissue.

    Raises:
        NoTissueError: there are none.
    """
    mask_yx, mask_mpp = read_tissue(reader.path)
    tissue = tissue_fraction(grid.corners_xy0, grid.side_px0, mask_yx, mask_mpp / reader.mpp0)
    chosen = np.flatnonzero(tissue >= min_tissue)
    if not len(chosen):
        raise NoTissueError(
            f"slide {reader.slide_id}: none of {len(tissue)} tiles of {grid.side_px0} level-0 pixels is at least "
            f"{min_tissue:.0%} tissue. Look at the tissue mask in the viewer; lower [infer] min_tissue if it is right."
        )
    return chosen


def slide_grid(reader: StoreReader, predictor: Predictor) -> TileGrid:
    """The grid on which a model looks at a slide."""
    return tile_grid(
        reader.size_wh_px0,
        reader.mpp0,
        tile_px=predictor.tile_px,
        mpp=predictor.mpp,
        fixed_by=f"model {predictor.model_id}",
    )


def read_batches(
    reader: StoreReader,
    grid: TileGrid,
    chosen: NDArray[np.int64],
    batch_size: int,
    normalise: Normaliser | None = None,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
    """Batches of (grid indices, tiles uint8 NHWC); the next batch is read while the caller works on this one."""
    level = reader.level_for_downsample(grid.mpp / reader.mpp0)
    corners_xy0 = grid.corners_xy0
    batches = np.array_split(chosen, range(batch_size, len(chosen), batch_size))
    with ThreadPoolExecutor(2) as pool:

        def read(x_px0: int, y_px0: int) -> NDArray[np.uint8]:
            tile = reader.read_square(level, x_px0, y_px0, grid.side_px0, grid.tile_px)
            return normalise(tile) if normalise else tile

        def submit(batch: NDArray[np.int64]) -> list[Future[NDArray[np.uint8]]]:
            return [pool.submit(read, int(x), int(y)) for x, y in corners_xy0[batch]]

        coming = submit(batches[0])
        for number, batch in enumerate(batches):
            tiles, coming = coming, submit(batches[number + 1]) if number + 1 < len(batches) else []
            yield batch, np.stack([tile.result() for tile in tiles])


def _predict(
    reader: StoreReader,
    predictor: Predictor,
    config: InferConfig,
    key: dict[str, Any],
    advance: Advance,
) -> Predictions:
    grid = slide_grid(reader, predictor)
    normalise = slide_normaliser(reader, predictor.stain) if predictor.stain else None
    chosen = tissue_tiles(reader, grid, config.min_tissue)
    advance.expect(len(chosen))
    values = np.full((len(predictor.class_names), grid.rows * grid.columns), np.nan, np.float32)
    colours = StainCheck(predictor)
    for batch, tiles_nhwc in read_batches(reader, grid, chosen, config.batch_size, normalise):
        values[:, batch] = predictor.predict(tiles_nhwc).T
        colours.add(tiles_nhwc)
        advance(len(batch))
    _check_varied(values[:, chosen], predictor.model_id, reader.slide_id)
    return Predictions(
        model_id=predictor.model_id,
        class_names=predictor.class_names,
        probabilities_cyx=values.reshape(-1, grid.rows, grid.columns).astype(np.float16),
        stride_px0=float(grid.stride_px0),
        side_px0=float(grid.side_px0),
        attributes={"made_from": key, "versions": versions(), COLOUR_DISTANCE: colours.distance()},
    )


def _check_varied(values_kn: NDArray[np.float32], model_id: str, slide_id: str) -> None:
    if values_kn.shape[1] >= SAME_EVERYWHERE_MIN_TILES and (values_kn == values_kn[:, :1]).all():
        raise ImplausibleOutputError(
            f"model {model_id} gives all {values_kn.shape[1]} tiles of slide {slide_id} exactly the same answer "
            f"({', '.join(f'{v:.3f}' for v in values_kn[:, 0])}). Its weights are damaged, or training failed."
        )


def _finished(reader: StoreReader, model_id: str, key: dict[str, Any]) -> Predictions | None:
    """Predictions that need not be made again. Damaged ones are, and are replaced."""
    predictions = finished_predictions(reader, model_id)
    made_from = predictions.attributes.get("made_from", {}) if predictions else {}
    return predictions if is_finished(stored_key(made_from), key) else None

"""The inference workflow: predict a slide's tissue, and write the results to the store and to files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.batches.blocks import SlidePlan
from pipeline.batches.devices import Devices, OneDevice
from pipeline.batches.journal import Journal, forget_journal, open_journal
from pipeline.batches.network import usual_batch_size
from pipeline.batches.slide_run import complete_results, compute_missing, journal_key
from pipeline.batches.slide_tiles import plan_slide_tiles, tissue_tiles
from pipeline.files import SHORT_WRITE_S, new_folder
from pipeline.grid import TileGrid, tile_grid
from pipeline.inference.key import finished_predictions, prediction_key, stored_key
from pipeline.inference.overlap import merge_tiles
from pipeline.inference.predictor import Predictor, run_on_of
from pipeline.inference.results.files import preserve_foreign_files, write_results
from pipeline.inference.results.plausibility import find_oddities, glass_tiles, refuse_implausible, stored_oddities
from pipeline.inference.results.slide_report import BESIDE_DAMAGE, About
from pipeline.inference.results.stain_check import COLOUR_DISTANCE, stored_distance
from pipeline.inference.tile_read import other_read, read_for
from pipeline.jobs.key import is_finished
from pipeline.project import Project
from pipeline.run_record import versions
from pipeline.settings.config import InferConfig
from pipeline.store.layers.labels import mask_fingerprint, tissue_share
from pipeline.store.layers.overlays import Predictions, new_predictions
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import BadRecipeError, LockedError
from training.foundation.progress import Advance, no_bar

DAMAGED_TILES = "damaged_tiles"
"""Key in predictions' attributes."""


@dataclass(frozen=True)
class InferReport:
    """Outcome of inference on one slide."""

    slide_id: str
    model_id: str
    num_tiles: int
    """Cells of the map with a prediction."""
    num_hotspots: int
    result_dir: Path
    skipped: bool
    seconds: dict[str, float]
    """predict and write, in wall-clock time; within predict: read, decode (all threads), transfer, compute, waiting."""
    colour_distance: float | None
    """Distance from the model's training tiles (`stain_check`); None: not known."""
    warnings: tuple[str, ...]
    """Clauses to read before relying on the predictions."""
    damaged_tiles: int = 0
    """Tiles of the grid left out because they touch damage in the slide's file."""


def infer_slide(
    slide_id: str,
    predictor: Predictor,
    project: Project,
    config: InferConfig,
    *,
    devices: Devices[Predictor] | None = None,
    about: About | None = None,
    advance: Advance = no_bar,
) -> InferReport:
    """Predict a slide's tissue; finished predictions with the same key are kept, and only the result files are written.

    If it ends before they are published, its finished batches are kept, and the next run with the same settings resumes
    from there, with the same bytes as the result.

    Args:
        devices: where the model runs; None: where the predictor is.
        about: the model's folder and the slide file, if available, for the result files.

    Raises:
        UnreadableError: no such store. NoTissueError: nothing to predict.
        ImplausibleOutputError: implausible output. LockedError: another process is doing the same.
        BadRecipeError: the slide was scanned coarser than the model needs, or its tiles would be read from another
            level than the model's training tiles were.
        UnreadableError: the model needs a normalised stain, but the slide's was never fitted.
        ValueError: the predictor runs differently from what the settings ask for.
    """
    _check_classes(config, predictor)
    _check_run_settings(config, predictor)
    reader = StoreReader(project.store_path(slide_id), config.plane_um)
    work = _SlideWork(reader, predictor, devices or OneDevice(predictor), project, config, about or About())
    key = prediction_key(reader, predictor, config)
    stored = _finished(reader, predictor.model_id, key)
    if stored:
        forget_journal(work.result_dir)  # left by a run that was killed after publishing
        return work.publish(stored, is_new=False)
    plan, grid = work.plan()
    with open_journal(work.result_dir, journal_key(key, plan, predictor)) as journal:
        stored = _finished(reader, predictor.model_id, key)  # by another process, just now
        if stored:
            return work.publish(stored, is_new=False)
        predictions = work.predict(plan, grid, key, journal, advance)
        _check_same_mask(reader, key)
        return work.publish(predictions, is_new=True)


class _SlideWork:
    """Inference of one model on one slide."""

    def __init__(
        self,
        reader: StoreReader,
        predictor: Predictor,
        devices: Devices[Predictor],
        project: Project,
        config: InferConfig,
        about: About,
    ) -> None:
        self._reader, self._predictor, self._devices, self._config = reader, predictor, devices, config
        self._about = about
        self.result_dir = project.result_dir(reader.slide_id, predictor.model_id)
        self._seconds: dict[str, float] = {}
        self._damaged_tiles = 0

    def plan(self) -> tuple[SlidePlan, TileGrid]:
        """Plan the tiles and their batches.

        Raises:
            NoTissueError: there are no tiles. BadRecipeError: the slide is too coarse.
        """
        reader, predictor, config = self._reader, self._predictor, self._config
        grid = slide_grid(reader, predictor, overlap=config.overlap)
        tissue, chosen = tissue_tiles(reader, grid, config.min_tissue, section="infer")
        self._damaged_tiles = int(np.isnan(tissue).sum())
        glass = glass_tiles(tissue, len(chosen))
        return plan_tiles(reader, predictor, grid, chosen, config, glass=glass), grid

    def predict(
        self, plan: SlidePlan, grid: TileGrid, key: dict[str, Any], journal: Journal, advance: Advance
    ) -> Predictions:
        """The slide's map, from the journal's batches and those still to be predicted."""
        self._seconds = compute_missing(plan, self._devices, journal, advance)
        return self._assembled(plan, grid, key, journal)

    def _assembled(self, plan: SlidePlan, grid: TileGrid, key: dict[str, Any], journal: Journal) -> Predictions:
        class_names, config = self._predictor.class_names, self._config
        whose = f"slide {self._reader.slide_id}, model {self._predictor.model_id}"
        results = complete_results(plan, journal, len(class_names), whose=whose, done="predicted", value="value")
        values_nk = np.concatenate([result.values_nk for result in results])
        looks_n3 = np.concatenate([result.looks_n3 for result in results])
        distance = self._predictor.hue_distance(looks_n3[:, :2])
        oddities = find_oddities(
            values_nk[: plan.num_tissue],
            values_nk[plan.num_tissue :],
            distance,
            self._predictor.focus_distance(looks_n3[:, 2]),
            class_names=class_names,
            config=config,
        ) + other_read(self._predictor, config)
        refuse_implausible(self._reader.slide_id, self._predictor.model_id, oddities, config.refuse)
        tiles_kn = np.full((len(class_names), grid.rows * grid.columns), np.nan, np.float32)
        tiles_kn[:, plan.order[: plan.num_tissue]] = values_nk[: plan.num_tissue].T
        values_cyx = tiles_kn.reshape(-1, grid.rows, grid.columns)
        if config.overlap:
            values_cyx = self._on_tissue(merge_tiles(values_cyx, grid), grid)
        return Predictions(
            model_id=self._predictor.model_id,
            class_names=class_names,
            probabilities_cyx=values_cyx.astype(np.float16),
            stride_px0=float(grid.stride_px0),
            side_px0=float(grid.stride_px0 if config.overlap else grid.side_px0),
            attributes={
                "made_from": key,
                "versions": versions(),
                COLOUR_DISTANCE: distance,
                DAMAGED_TILES: self._damaged_tiles,
                "oddities": {oddity.name: oddity.words for oddity in oddities},
            },
        )

    def _on_tissue(self, values_cyx: NDArray[np.float32], grid: TileGrid) -> NDArray[np.float32]:
        """Drop the cells of glass that only a tile's rim reached."""
        rows, columns = values_cyx.shape[1:]
        corners_xy0 = replace(grid, rows=rows, columns=columns).corners_xy0
        tissue = tissue_share(self._reader.path, self._reader.mpp0, corners_xy0, grid.stride_px0)
        return np.where(tissue.reshape(rows, columns) > 0, values_cyx, np.nan).astype(np.float32)

    def publish(self, predictions: Predictions, *, is_new: bool) -> InferReport:
        """Publish all of a slide's results once all of them are written, the store's first."""
        start, reader, odd = time.perf_counter(), self._reader, stored_oddities(predictions)
        if not is_new:
            refuse_implausible(reader.slide_id, predictions.model_id, odd, self._config.refuse, stands=True)
        num_tiles = int(np.isfinite(predictions.probabilities_cyx[0]).sum())
        damaged_tiles, distance = _damaged_tiles(predictions), stored_distance(predictions)
        oddities = [oddity.words for oddity in odd]
        facts = {
            "tiles": num_tiles, BESIDE_DAMAGE: damaged_tiles, "colour_distance": distance, "flags": oddities,
        }  # fmt: skip
        with ExitStack() as published:
            folder = published.enter_context(new_folder(self.result_dir, wait_s=SHORT_WRITE_S))
            if is_new:
                published.enter_context(new_predictions(reader.folder, predictions, mpp0=reader.mpp0))
            seconds = {phase: spent for phase, spent in self._seconds.items() if phase != "predict"}
            about = replace(self._about, seconds=seconds, facts=facts)
            written = write_results(reader, predictions, folder, self._config, about)
            preserve_foreign_files(self.result_dir, folder, self._predictor.class_names)
        seconds = {**self._seconds, "write": time.perf_counter() - start}
        return InferReport(
            reader.slide_id,
            self._predictor.model_id,
            num_tiles,
            written.num_hotspots,
            self.result_dir,
            skipped=not is_new,
            seconds={phase: round(value, 3) for phase, value in seconds.items()},
            colour_distance=distance,
            warnings=(*oddities, *([written.warning] if written.warning else [])),
            damaged_tiles=damaged_tiles,
        )


def _check_same_mask(reader: StoreReader, key: Mapping[str, Any]) -> None:
    """Check that tiles were chosen by the mask that the key names: it may have been replaced in between."""
    if mask_fingerprint(reader.path) != key["tiles"]["mask"]:
        raise LockedError(
            f"slide {reader.slide_id}: its tissue mask was replaced during prediction. Nothing was published: run it "
            "again."
        )


def _damaged_tiles(predictions: Predictions) -> int:
    stored = predictions.attributes.get(DAMAGED_TILES, 0)
    return stored if isinstance(stored, int) else 0


def _check_classes(config: InferConfig, predictor: Predictor) -> None:
    unknown = [name for name in config.hotspot_classes if name not in predictor.class_names]
    if unknown:
        raise BadRecipeError(
            f"[infer] hotspot_classes: {unknown} are not among the model's classes {list(predictor.class_names)}."
        )


def _check_run_settings(config: InferConfig, predictor: Predictor) -> None:
    """Check precision, views and the like: they are fixed when a model is loaded, so settings cannot change them."""
    requested, actual = run_on_of("cpu", config), predictor.run_on
    if (requested.numerics, requested.views) != (actual.numerics, actual.views):
        raise ValueError(
            f"the settings ask for {requested.numerics}, views {requested.views!r}; the model was loaded to run with "
            f"{actual.numerics}, views {actual.views!r}. Load it with `run_on_of`."
        )


def plan_tiles(
    reader: StoreReader,
    predictor: Predictor,
    grid: TileGrid,
    chosen: NDArray[np.int64],
    config: InferConfig,
    *,
    glass: NDArray[np.int64],
) -> SlidePlan:
    """Plan the order in which a model predicts tiles of a slide.

    Args:
        chosen, glass: as `plan_slide` takes them.

    Raises:
        BadRecipeError: the tiles would be read differently from the model's training tiles, or are too large.
    """
    return plan_slide_tiles(
        reader,
        grid,
        chosen,
        read=read_for(predictor, config),
        stain=predictor.stain,
        glass=glass,
        batch_size=config.batch_size or usual_batch_size(predictor.devices, predictor.tile_px),
    )


def slide_grid(reader: StoreReader, predictor: Predictor, *, overlap: float = 0.0) -> TileGrid:
    """The grid of tiles that a model predicts on a slide.

    Args:
        overlap: share of a tile's side that neighbours have in common.

    Raises:
        CoarseSlideError: the slide was scanned coarser than the model needs.
    """
    return tile_grid(
        reader.size_wh_px0,
        reader.mpp0,
        tile_px=predictor.tile_px,
        mpp=predictor.mpp,
        overlap_px=round(predictor.tile_px * overlap),
        fixed_by=f"model {predictor.model_id}",
    )


def _finished(reader: StoreReader, model_id: str, key: dict[str, Any]) -> Predictions | None:
    """Stored predictions that need not be repeated; None for damaged ones, which are replaced."""
    predictions = finished_predictions(reader, model_id)
    return predictions if predictions and is_finished(stored_key(predictions, reader), key) else None

"""Features of a slide: each tile of its tissue through an encoder, kept in the slide's store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.batches.blocks import SlidePlan
from pipeline.batches.devices import Devices, OneDevice
from pipeline.batches.journal import Journal, forget_journal, open_journal
from pipeline.batches.network import usual_batch_size
from pipeline.batches.slide_run import complete_results, compute_missing, journal_key
from pipeline.batches.slide_tiles import plan_slide_tiles, tissue_tiles
from pipeline.embedding.encoder import TileEncoder
from pipeline.embedding.key import embedding_key, stored_key
from pipeline.grid import TileGrid, tile_grid
from pipeline.jobs.key import is_finished
from pipeline.project import Project
from pipeline.run_record import versions
from pipeline.settings.config import EmbedConfig
from pipeline.store.layers.features import Features, new_features, open_features, to_float16
from pipeline.store.layers.labels import mask_fingerprint
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import ImplausibleOutputError, LockedError
from training.foundation.progress import Advance, no_bar
from training.foundation.words.counts import counted

DAMAGED_TILES = "damaged_tiles"
"""Key in features' attributes."""
SAME_EVERYWHERE = 1e-6
"""Largest spread of every feature over many tiles of an encoder that does not look at them."""
FEW_TILES = 8
"""Tiles from which the same features everywhere are implausible."""


@dataclass(frozen=True)
class EmbedReport:
    """Outcome of an encoder's work on one slide."""

    slide_id: str
    encoder_id: str
    num_tiles: int
    dims: int
    skipped: bool
    seconds: dict[str, float]
    """predict and write, in wall-clock time; within predict: read, decode (all threads), transfer, compute, waiting."""
    damaged_tiles: int
    """Tiles of the grid left out because they touch damage in the slide's file."""


def embed_slide(
    slide_id: str,
    encoder: TileEncoder,
    project: Project,
    config: EmbedConfig,
    *,
    devices: Devices[TileEncoder] | None = None,
    advance: Advance = no_bar,
) -> EmbedReport:
    """Put an encoder's features of a slide's tissue into its store; finished ones with the same key are kept.

    If it ends before they are published, its finished batches are kept, and the next run with the same settings resumes
    from there, with the same bytes as the result.

    Args:
        devices: where the encoder runs; None: where it is.

    Raises:
        UnreadableError: no such store. NoTissueError: nothing to embed. LockedError: another process is doing the same.
        ImplausibleOutputError: features that are not finite, that half precision cannot hold, or the same everywhere.
        BadRecipeError: the slide was scanned coarser than the encoder needs.
    """
    reader = StoreReader(project.store_path(slide_id), config.plane_um)
    work = _SlideWork(reader, encoder, devices or OneDevice(encoder), config)
    final = project.result_dir(slide_id, encoder.encoder_id)
    key = embedding_key(reader, encoder, config)
    if _is_finished(reader, encoder.encoder_id, key):
        forget_journal(final)  # left by a run that was killed after publishing
        return work.kept()
    plan, grid = work.plan()
    with open_journal(final, journal_key(key, plan, encoder)) as journal:
        if _is_finished(reader, encoder.encoder_id, key):  # by another process, just now
            return work.kept()
        work.compute(plan, journal, advance)
        features = work.assembled(plan, grid, key, journal)
        if mask_fingerprint(reader.path) != key["tiles"]["mask"]:
            raise LockedError(
                f"slide {slide_id}: its tissue mask was replaced during embedding. Nothing was published: run it again."
            )
        return work.publish(features)


class _SlideWork:
    """One encoder's work on one slide."""

    def __init__(
        self, reader: StoreReader, encoder: TileEncoder, devices: Devices[TileEncoder], config: EmbedConfig
    ) -> None:
        self._reader, self._encoder, self._devices, self._config = reader, encoder, devices, config
        self._seconds: dict[str, float] = {}
        self._damaged_tiles = 0

    def plan(self) -> tuple[SlidePlan, TileGrid]:
        """Plan the tiles and their batches.

        Raises:
            NoTissueError: there are no tiles. CoarseSlideError: the slide is too coarse.
        """
        reader, config = self._reader, self._config
        grid = encoder_grid(reader, self._encoder, config)
        tissue, chosen = tissue_tiles(reader, grid, config.min_tissue, section="embed")
        self._damaged_tiles = int(np.isnan(tissue).sum())
        return plan_embedding(reader, self._encoder, grid, chosen, config), grid

    def compute(self, plan: SlidePlan, journal: Journal, advance: Advance) -> None:
        """Compute the batches that the journal lacks."""
        self._seconds = compute_missing(plan, self._devices, journal, advance)

    def assembled(self, plan: SlidePlan, grid: TileGrid, key: Mapping[str, Any], journal: Journal) -> Features:
        """The slide's features, in the order of the grid: row by row."""
        where = f"slide {self._reader.slide_id}, encoder {self._encoder.encoder_id}"
        results = complete_results(plan, journal, self._encoder.dims, whose=where, done="embedded", value="feature")
        values_nd = np.concatenate([result.values_nk for result in results])
        by_grid = np.argsort(plan.order)
        values_nd, order = values_nd[by_grid], plan.order[by_grid]
        self._check_plausible(values_nd)
        return Features(
            encoder_id=self._encoder.encoder_id,
            values_nd=to_float16(values_nd, where),
            xy0_n2=grid.corners_xy0[order].astype(np.int32),
            side_px0=float(grid.side_px0),
            stride_px0=float(grid.stride_px0),
            attributes={
                "encoder": self._encoder.row,
                "weights_sha256": self._encoder.weights_sha256,
                "made_from": dict(key),
                "versions": versions(),
                DAMAGED_TILES: self._damaged_tiles,
            },
        )

    def _check_plausible(self, values_nd: NDArray[np.float32]) -> None:
        if len(values_nd) >= FEW_TILES and np.ptp(values_nd, axis=0).max() <= SAME_EVERYWHERE:
            raise ImplausibleOutputError(
                f"slide {self._reader.slide_id}, encoder {self._encoder.encoder_id}: all "
                f"{counted(len(values_nd), 'tile')} have the same features, so the encoder does not look at them. "
                f"Check mean, std and weights in encoders/{self._encoder.name}.toml with `gemslide encoder check`."
            )

    def publish(self, features: Features) -> EmbedReport:
        """Put the features into the store, whole."""
        start = time.perf_counter()
        with new_features(self._reader.folder, features):
            pass
        seconds = {**self._seconds, "write": time.perf_counter() - start}
        return self._report(len(features.values_nd), self._damaged_tiles, seconds)

    def kept(self) -> EmbedReport:
        """The report of features that are finished."""
        stored = open_features(self._reader.path, self._encoder.encoder_id)
        return self._report(stored.num_tiles, int(stored.attributes.get(DAMAGED_TILES, 0)), None)

    def _report(self, num_tiles: int, damaged_tiles: int, seconds: dict[str, float] | None) -> EmbedReport:
        return EmbedReport(
            self._reader.slide_id,
            self._encoder.encoder_id,
            num_tiles,
            self._encoder.dims,
            skipped=seconds is None,
            seconds={phase: round(value, 3) for phase, value in (seconds or {}).items()},
            damaged_tiles=damaged_tiles,
        )


def encoder_grid(reader: StoreReader, encoder: TileEncoder, config: EmbedConfig) -> TileGrid:
    """The grid of tiles that an encoder is given on a slide.

    Raises:
        CoarseSlideError: the slide was scanned coarser than the encoder needs.
    """
    return tile_grid(
        reader.size_wh_px0,
        reader.mpp0,
        tile_px=encoder.tile_px,
        mpp=encoder.mpp,
        overlap_px=round(encoder.tile_px * config.overlap),
        fixed_by=f"encoder {encoder.encoder_id}",
    )


def plan_embedding(
    reader: StoreReader, encoder: TileEncoder, grid: TileGrid, chosen: NDArray[np.int64], config: EmbedConfig
) -> SlidePlan:
    """Plan the order in which an encoder is given tiles of a slide.

    Args:
        chosen: indices into the grid.
    """
    return plan_slide_tiles(
        reader,
        grid,
        chosen,
        read=encoder.read,
        stain=None,
        glass=chosen[:0],
        batch_size=config.batch_size or usual_batch_size(encoder.devices, encoder.tile_px),
    )


def _is_finished(reader: StoreReader, encoder_id: str, key: Mapping[str, Any]) -> bool:
    made_from = stored_key(reader, encoder_id)
    return made_from is not None and is_finished(made_from, key)

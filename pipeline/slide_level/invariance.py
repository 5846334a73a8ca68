"""Check that a slide-level model's answer for a unit does not depend on how the work is split.

The answer from the stored features is compared with that for the same tiles in another order, on another number of
threads, and, for some of the tiles, with that from features that the encoder computes again in batches of other sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.batches.devices import OneDevice
from pipeline.batches.invariance import InvarianceReport, Variation, other_batch_sizes, values_of_plan
from pipeline.batches.network import usual_batch_size
from pipeline.batches.where import with_threads
from pipeline.embedding.embed import encoder_grid, plan_embedding
from pipeline.embedding.encoder import TileEncoder
from pipeline.embedding.rows import find_encoder
from pipeline.embedding.stage import encoder_run_on
from pipeline.errors import WrongSlideError
from pipeline.grid import TileGrid
from pipeline.project import Project
from pipeline.settings.config import EmbedConfig
from pipeline.slide_level.model import SlideModel
from pipeline.slide_level.predict import check_encoder
from pipeline.slide_level.record import read_record
from pipeline.slide_level.stage import check_opened, load_model, open_unit
from pipeline.slide_level.stored_bags import SlideFeatures, check_alike, read_bag
from pipeline.store.layers.features import to_float16
from pipeline.store.reading.reader import StoreReader
from training.foundation.progress import Advance, no_bar
from training.foundation.words.counts import counted
from training.foundation.words.names import is_name

TOLERANCE = {"fp32": 1e-3, "bf16": 2e-2}
"""Largest difference of a value, by the encoder's precision: of a probability, or of a number or risk, as a share of it
where it is larger than 1. Features are stored in half precision, which rounds by up to 0.0005 of their size."""
THREADS = (1, 2)

Answer = Mapping[str, NDArray[np.float64]]
"""Values by target."""


@dataclass(frozen=True)
class _Unit:
    """A unit's features, and those of its tiles that are embedded again."""

    slides: Sequence[SlideFeatures]
    rows: NDArray[np.int64]
    """Numbers of the tiles that are embedded again, counted through all slides."""

    def rows_of_slides(self) -> Iterator[tuple[SlideFeatures, NDArray[np.int64]]]:
        """Each slide with those of its own tiles."""
        start = 0
        for slide in self.slides:
            end = start + slide.stored.num_tiles
            own = self.rows[(self.rows >= start) & (self.rows < end)] - start
            if len(own):
                yield slide, own
            start = end


def check_slide_invariance(
    package: Path,
    slide_id: str,
    project: Project,
    config: EmbedConfig,
    device: str,
    *,
    max_tiles: int,
    advance: Advance = no_bar,
) -> InvarianceReport:
    """Compare a model's answers for a unit: the one that a slide was predicted in, or else the slide by itself.

    Args:
        config: `[embed]`, for the encoder's numerics.
        max_tiles: tiles of the unit to embed again, spread over its slides.

    Raises:
        UnreadableError: no features, or the project lacks their encoder. WrongSlideError: features that do not fit.
        BadRecipeError: the encoder's row or weights have changed.
    """
    model = load_model(package, device)
    slides = open_unit(_slides_of_unit(slide_id, model, project), model, project)
    check_alike(slides)
    check_encoder(slides[0], model)
    total = sum(slide.stored.num_tiles for slide in slides)
    unit = _Unit(slides, np.arange(0, total, -(-total // max_tiles)))
    imported = _is_imported(slides[0])
    encoder = None if imported else _open_encoder(model, project, config, device)
    usual = encoder.usual if encoder else 0
    sizes = [usual, *other_batch_sizes(usual)] if encoder else []
    advance.expect(2 + len(THREADS) + len(sizes) * len(unit.rows))
    variations = list(_of_order_and_threads(unit, model, advance))
    if encoder:
        variations += _of_batches(unit, model, encoder, sizes, project, advance)
    precision = encoder.network.run_on.numerics.precision if encoder else "fp32"
    again = counted(len(unit.rows), "tile was", "tiles were")
    note = "the features were imported, so no encoder was run" if imported else f"{again} embedded again"
    return InvarianceReport(total, TOLERANCE[precision], tuple(variations), counts="value", note=note)


def _slides_of_unit(slide_id: str, model: SlideModel, project: Project) -> list[str]:
    """Slides that the model predicted together with this one; it alone, where there is no such prediction."""
    record = read_record(project.result_dir(slide_id, model.model_id))
    stated = record["slides"] if record else None
    if isinstance(stated, list) and slide_id in stated and all(isinstance(s, str) and is_name(s) for s in stated):
        return stated
    return [slide_id]


def _is_imported(slide: SlideFeatures) -> bool:
    row = slide.stored.attributes.get("encoder")
    return isinstance(row, dict) and row.get("imported") is not None


def _of_order_and_threads(unit: _Unit, model: SlideModel, advance: Advance) -> Iterator[Variation]:
    bag = read_bag(unit.slides)
    usual = model.predict(bag).values
    shuffled = np.random.default_rng(0).permutation(len(bag))
    for what, order in (("tiles in reverse order", slice(None, None, -1)), ("tiles shuffled", shuffled)):
        yield _variation(what, usual, model.predict(bag[order]).values)
        advance(1)
    for count in THREADS:
        with with_threads(count):
            other = model.predict(bag).values
        yield _variation(f"{count} thread{'s' if count > 1 else ''}", usual, other)
        advance(1)


@dataclass(frozen=True)
class _Opened:
    """The model's encoder, with its settings."""

    network: TileEncoder
    config: EmbedConfig
    usual: int
    """Its usual batch size."""


def _open_encoder(model: SlideModel, project: Project, config: EmbedConfig, device: str) -> _Opened:
    encoder_id = model.config.encoder.encoder_id
    row_path = find_encoder(encoder_id[:-9], project)
    network = TileEncoder.load(row_path, encoder_run_on(device, config))
    check_opened(network, row_path, encoder_id)
    return _Opened(network, config, config.batch_size or usual_batch_size(network.devices, network.tile_px))


def _of_batches(
    unit: _Unit, model: SlideModel, encoder: _Opened, sizes: Sequence[int], project: Project, advance: Advance
) -> Iterator[Variation]:
    """Answers for some tiles embedded again, against that for their stored features."""
    bag = read_bag(unit.slides, unit.rows)
    usual = model.predict(bag).values
    for size in sizes:
        parts = [_embedded(slide, rows, encoder, size, project, advance) for slide, rows in unit.rows_of_slides()]
        again = np.concatenate([np.concatenate(parts), bag[:, -2:]], 1)
        yield _variation(f"embedded in batches of {size}", usual, model.predict(again).values)


def _embedded(
    slide: SlideFeatures,
    rows: NDArray[np.int64],
    encoder: _Opened,
    batch_size: int,
    project: Project,
    advance: Advance,
) -> NDArray[np.float32]:
    """Features of some of a slide's tiles, computed again and rounded as stored ones are, (rows, dims)."""
    reader = StoreReader(project.stored_at(slide.slide_id))
    overlap = slide.tiling().get("overlap")
    changed: dict[str, Any] = {"batch_size": batch_size} | ({} if overlap is None else {"overlap": overlap})
    config = encoder.config.model_copy(update=changed)
    grid = encoder_grid(reader, encoder.network, config)
    chosen = _in_grid(slide, slide.stored.xy0_n2[rows].astype(np.int64), grid)
    plan = plan_embedding(reader, encoder.network, grid, chosen, config)
    values_nd = values_of_plan(plan, OneDevice(encoder.network), advance)[np.argsort(plan.order)]
    where = f"slide {slide.slide_id}, encoder {encoder.network.encoder_id}"
    return to_float16(values_nd, where)[np.searchsorted(np.sort(chosen), chosen)].astype(np.float32)


def _in_grid(slide: SlideFeatures, corners_xy0: NDArray[np.int64], grid: TileGrid) -> NDArray[np.int64]:
    """Indices into the grid of tiles with these corners. Raises WrongSlideError: it has no such tiles."""
    columns, lines = corners_xy0.T // grid.stride_px0
    inside = (columns < grid.columns) & (lines < grid.rows)
    same = inside & (corners_xy0 % grid.stride_px0 == 0).all(1)
    if not same.all() or slide.stored.side_px0 != grid.side_px0:
        raise WrongSlideError(
            f"slide {slide.slide_id}: its features of {slide.stored.encoder_id} are of tiles {slide.stored.side_px0:g} "
            f"level-0 pixels wide, every {slide.stored.stride_px0:g}, but the encoder's row now gives "
            f"{grid.side_px0} and {grid.stride_px0}. Embed the slide again."
        )
    return np.asarray(lines * grid.columns + columns, np.int64)


def _variation(what: str, usual: Answer, other: Answer) -> Variation:
    """The largest difference of an answer's values, as a share of those larger than 1, and how many changed."""
    before, after = (np.concatenate([answer[name] for name in usual]) for answer in (usual, other))
    difference = np.abs(after - before) / np.maximum(1.0, np.abs(before))
    return Variation(what, float(difference.max()), int((after != before).sum()))

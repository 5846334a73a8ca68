"""Writing one store: levels, tissue mask, associated images, and the metadata that complete it."""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.annotations import nanometre_frame
from pipeline.codecs.types import Pixels, Stream
from pipeline.ingest.damage.found import Damage, summary_of
from pipeline.ingest.icc.strip import strip_icc_text
from pipeline.ingest.mpp import Mpp
from pipeline.ingest.routes import LevelPlan, StorePlan
from pipeline.ingest.shards import COPIERS, LevelsWriter, encoded_chunk, sums_of_all
from pipeline.ingest.tissue.detection import Tissue, overview_downsample, tissue_of_slide
from pipeline.run_record import versions
from pipeline.settings.config import IngestConfig
from pipeline.slides.common.slide import Slide, SlideInfo
from pipeline.store.format.checksums import write_checksums
from pipeline.store.format.layout import IMAGE, ArraySpec
from pipeline.store.format.metadata import (
    Link,
    Nanometres,
    SlideAttributes,
    Source,
    image_attributes,
    ome_xml,
    write_group,
    write_json,
)
from pipeline.store.format.shard import FileChecksum, write_shard
from pipeline.store.layers.damaged import write_damaged
from pipeline.store.layers.labels import write_tissue
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.linked_array import LinkedArrayReader
from pipeline.units import plausible_power
from training.foundation.progress import Advance, no_bar

ASSOCIATED_CHUNK_PX = 4096
"""Labels and macros are smaller, and so fit into one chunk."""


def _nanometres(info: SlideInfo) -> Nanometres | None:
    frame = nanometre_frame(info)
    return Nanometres(origin_xy0=frame.origin_xy0, nm_per_px0_xy=frame.nm_per_px0_xy) if frame else None


class StoreWriter:
    """A store under construction in `folder`; `write` does all of it, in order."""

    def __init__(
        self, folder: Path, slide: Slide, plan: StorePlan, config: IngestConfig, mpp: Mpp, advance: Advance = no_bar
    ) -> None:
        self.folder, self.slide, self.plans, self.config, self.mpp = folder, slide, plan.levels, config, mpp
        self._planes = plan.planes
        self._advance, self._damage, self._pointing = advance, plan.damage, plan.pointing
        damage = plan.damage
        self._damaged = _damage_mask(damage, plan.levels[0].spec) if damage and damage[0].tiles else None
        self.warnings: list[str] = []
        """Warnings to know before relying on the store; complete once all pixels are written."""

    def write(self, slide_id: str, source: Callable[[], Source]) -> Tissue | None:
        """Write everything; the root group comes last, because it says that the store is complete.

        A linked store that is not verified yet gets no tissue mask (None), and no associated images.

        Args:
            source: returns the facts about the source's bytes; called once all pixels are written.
        """
        start = time.perf_counter()
        written: dict[str, FileChecksum] = {}
        tissue = None
        for plans in self._planes:
            levels = LevelsWriter(self.folder / IMAGE, plans, self._advance, self._pointing)
            tissue = self._write_levels(levels, plans) or tissue
            written |= levels.sums
        if self._damaged:
            write_damaged(self.folder, self._damaged[0] > 0, self._damaged[1], self.mpp.mpp0, len(self.plans))
        if tissue:
            write_tissue(self.folder, tissue.mask_yx, tissue.mpp, self.mpp.mpp0, len(self.plans))
        associated = self._write_associated() if tissue else []
        sums = sums_of_all(self.folder / IMAGE, self.plans, written)
        shards = [sum(name.startswith(f"{plan.about.path}/") for name in sums) for plan in self.plans]
        self._write_groups(associated)
        if self._pointing:
            self._pointing.write_list(self.folder)
        self.warnings = [*filter(None, (self.mpp.warning, *self.slide.info.warnings, tissue and tissue.warning))]
        checksum = write_checksums(self.folder, {f"{IMAGE}/{name}": file_sum for name, file_sum in sums.items()})
        attributes = self._attributes(
            slide_id, source(), tissue, tuple(name for name, _ in associated),
            {"shards": shards, "checksums_sha256": checksum, "seconds": round(time.perf_counter() - start, 3)},
        )  # fmt: skip
        ome = {"version": "0.5", "bioformats2raw.layout": 3}
        write_group(self.folder, {"ome": ome, "gemslide": attributes.model_dump(mode="json")})
        return tissue

    def _write_levels(self, levels: LevelsWriter, plans: list[LevelPlan]) -> Tissue | None:
        """Coarse levels first: while threads copy the finest, which takes longest, the tissue is found.

        Args:
            plans: of one focal plane; the tissue is that of the default one.
        """
        overview = self._overview_level()
        num_source = sum(not plan.is_built for plan in plans)
        has_built = num_source < len(plans)
        has_tissue = self._is_compared and plans is self.plans
        # The last level of the source is written together with those that are built from it.
        finest_last = range(num_source - has_built - 1, -1, -1)
        with ThreadPoolExecutor(COPIERS, thread_name_prefix="copy") as pool:
            try:
                copying = {index: levels.start_copying(pool, index) for index in finest_last}
                if has_built:
                    levels.write_encoded(len(plans) - 1)
                for index in finest_last:
                    if plans[index].decoder is not None:
                        levels.write_encoded(index)
                _wait_for([future for index, futures in copying.items() if index >= overview for future in futures])
                tissue = self._find_tissue(overview) if has_tissue else None
                _wait_for([future for futures in copying.values() for future in futures])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            finally:
                levels.close()
        return tissue

    @property
    def _is_compared(self) -> bool:
        """Whether its tiles have been read and compared: all but those of a linked store's first appearance."""
        return self._pointing is None or self._pointing.is_verified

    def _overview_level(self) -> int:
        """The coarsest level that is fine enough for the tissue mask."""
        most = overview_downsample(self.mpp.mpp0, self.config.tissue) * 1.01
        return max(i for i, plan in enumerate(self.plans) if plan.about.downsample <= most)

    def _find_tissue(self, level: int) -> Tissue:
        """Tissue in the whole slide at the mask's resolution (or its own if that is coarser), area-averaged."""
        first = self.plans[0].spec
        path, spec = self.folder / IMAGE / self.plans[level].about.path, self.plans[level].spec
        reader = ArrayReader(path, spec)
        if self._pointing and spec.link:
            reader = LinkedArrayReader(path, spec, self._pointing.open_link)
        size_wh_px0 = first.width_px, first.height_px
        return tissue_of_slide(reader, size_wh_px0, self.mpp.mpp0, self.config.tissue, self._damaged)

    def _write_associated(self) -> list[tuple[str, ArraySpec]]:
        """Write the requested associated images as further series of the store, each in one shard."""
        kept: list[tuple[str, ArraySpec]] = []
        for series, name in enumerate((n for n in self.config.keep_associated if n in self.slide.info.associated), 1):
            pixels = self.slide.associated_image(name)
            spec = _one_shard_spec(pixels)
            array_dir = self.folder / str(series) / "0"
            shard = array_dir / spec.shard_key(0, 0)
            shard.parent.mkdir(parents=True, exist_ok=True)
            write_shard(shard, _chunks(pixels, spec))
            write_json(array_dir / "zarr.json", spec.to_zarr_json())
            write_group(array_dir.parent, image_attributes(name, [1.0]))
            kept.append((name, spec))
        return kept

    def _attributes(
        self,
        slide_id: str,
        source: Source,
        tissue: Tissue | None,
        associated: tuple[str, ...],
        facts: dict[str, object],
    ) -> SlideAttributes:
        info = self.slide.info
        icc = strip_icc_text(info.icc) if info.icc else None
        return SlideAttributes(
            slide_id=slide_id,
            mpp0=self.mpp.mpp0,
            source=source,
            levels=tuple(plan.about for plan in self.plans),
            associated=associated,
            icc=base64.b64encode(icc).decode() if icc else None,
            objective_power=plausible_power(info.objective_power),
            scanner_model=info.scanner_model,
            bounds_px0=info.bounds_px0,
            planes_um=info.planes_um or None,
            nanometres=_nanometres(info),
            mpp_source=self.mpp.source,
            link=self._link(),
            ingest={
                "versions": versions(),
                "settings": self.config.model_dump(mode="json"),
                **(_facts_of(tissue) if tissue else {}),
                "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                **({"damaged": summary_of(self._damage)} if self._damage else {}),
                **({"warnings": self.warnings} if self.warnings else {}),
                **facts,
            },
        )

    def _link(self) -> Link | None:
        places = {index: plan.places for index, plan in enumerate(self.plans) if plan.places is not None}
        return self._pointing.about(places) if self._pointing else None

    def _write_groups(self, associated: list[tuple[str, ArraySpec]]) -> None:
        mpp0 = self.mpp.mpp0
        spacings_um = [mpp0 * plan.about.downsample for plan in self.plans]
        write_group(self.folder / IMAGE, image_attributes("slide", spacings_um, self.slide.info.planes_um))
        series = [str(i) for i in range(1 + len(associated))]
        write_group(self.folder / "OME", {"ome": {"version": "0.5", "series": series}})
        first = self.plans[0].spec
        others = [(name, spec.width_px, spec.height_px, None) for name, spec in associated]
        xml = ome_xml([("slide", first.width_px, first.height_px, mpp0), *others], self.slide.info.planes_um)
        (self.folder / "OME" / "METADATA.ome.xml").write_text(xml, encoding="utf-8")


def _facts_of(tissue: Tissue) -> dict[str, object]:
    return {
        "tissue_fraction": round(tissue.fraction, 6),
        "background_lab": [round(v, 2) for v in tissue.background_lab],
    }


def _damage_mask(damage: Damage, finest: ArraySpec) -> tuple[NDArray[np.uint8], int]:
    """Damaged tiles of level 0 as a mask with a cell for each, and a cell's side in level-0 pixels."""
    t = damage[0].tile_px
    mask_yx = np.zeros((-(-finest.height_px // t), -(-finest.width_px // t)), np.uint8)
    for position in damage[0].tiles:
        mask_yx[position] = 1
    return mask_yx, t


def _wait_for(copying: list[Future[None]]) -> None:
    for future in copying:
        future.result()


def _one_shard_spec(pixels: Pixels) -> ArraySpec:
    height, width = pixels.shape[:2]
    chunk_px = min(max(width, height), ASSOCIATED_CHUNK_PX)
    return ArraySpec(width, height, chunk_px, -(-max(width, height) // chunk_px), "zstd")


def _chunks(pixels: Pixels, spec: ArraySpec) -> Iterator[Stream]:
    """All chunks of an image's one shard; () outside the image."""
    t = spec.chunk_px
    for row, column in itertools.product(range(spec.shard_chunks), repeat=2):
        part = pixels[row * t : row * t + t, column * t : column * t + t]
        yield encoded_chunk(part, t, None) if part.size else ()

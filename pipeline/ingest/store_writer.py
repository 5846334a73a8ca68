"""Writing one store: levels, tissue mask, associated images, and the metadata that make it whole."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.config import IngestConfig
from pipeline.ingest.gate import PassThroughGate
from pipeline.ingest.levels import (
    ChunkSource,
    decode_spec,
    decoded_chunks,
    encode_padded,
    halved_chunks,
    pass_through_spec,
    write_level,
)
from pipeline.ingest.mpp import Mpp
from pipeline.ingest.tissue import Tissue, find_tissue
from pipeline.progress import Advance, no_bar
from pipeline.run_record import versions
from pipeline.slides.slide import EncodedLevel, Pixels, Slide, level_size
from pipeline.store.array_reader import ArrayReader
from pipeline.store.labels import write_tissue
from pipeline.store.layout import IMAGE, ArraySpec
from pipeline.store.metadata import (
    Gate,
    Level,
    SlideAttributes,
    Source,
    image_attributes,
    ome_xml,
    write_group,
)


@dataclass
class StoreWriter:
    """A store under construction in `folder`; `write` does all of it, in order."""

    folder: Path
    slide: Slide
    config: IngestConfig
    mpp: Mpp
    advance: Advance = no_bar
    levels: list[Level] = field(default_factory=list)
    specs: list[ArraySpec] = field(default_factory=list)
    series: list[tuple[str, int, int, float | None]] = field(default_factory=list)
    """Associated images as OME-XML lists them: name, width, height, no scale."""

    def write(self, path: Path, slide_id: str, source: Source) -> Tissue:
        """Write everything; the root group comes last, because it says that the store is complete.

        Args:
            path: the slide file, for the gate's second decoder.
        """
        start = time.perf_counter()
        with PassThroughGate(path, self.slide, self.config.gate_tiles) as gate:
            for level in range(len(self.slide.info.levels)):
                self._write_source_level(level, gate)
        self._write_missing_levels()
        overview, overview_mpp = self._overview()
        tissue = find_tissue(overview, overview_mpp, self.config.tissue)
        write_tissue(self.folder, tissue.mask_yx, tissue.mpp, self.mpp.mpp0, len(self.specs))
        associated = self._write_associated()
        self._write_groups(self._attributes(slide_id, source, tissue, associated, time.perf_counter() - start))
        return tissue

    def _write_source_level(self, level: int, gate: PassThroughGate) -> None:
        size = self.slide.info.levels[level]
        encoded, verdict = _passing(self.slide, level, gate)
        source: ChunkSource
        if encoded is not None:
            spec = pass_through_spec(encoded, size.width_px, size.height_px, self.config.shard_px)
            source = encoded.jpeg
        else:
            spec = self._decode_spec(size.width_px, size.height_px)
            source = decoded_chunks(gate.decoder_after(verdict), level, spec)
        write_level(self._level_dir(level), spec, source, self.advance)
        route = "pass-through" if encoded is not None else "decode"
        self.specs.append(spec)
        self.levels.append(
            Level(path=str(level), downsample=size.downsample, route=route, codec=spec.codec, gate=verdict)
        )

    def _write_missing_levels(self) -> None:
        """Add halved levels below the source's last one until the slide fits a screen."""
        while max(self.specs[-1].width_px, self.specs[-1].height_px) > self.config.smallest_level_px:
            parent, level = self.specs[-1], len(self.specs)
            spec = self._decode_spec(-(-parent.width_px // 2), -(-parent.height_px // 2))
            reader = ArrayReader(self._level_dir(level - 1), parent)
            write_level(self._level_dir(level), spec, halved_chunks(reader, spec), self.advance)
            first = self.specs[0]
            size = level_size(spec.width_px, spec.height_px, first.width_px, first.height_px)
            self.specs.append(spec)
            self.levels.append(Level(path=str(level), downsample=size.downsample, route="built", codec=spec.codec))

    def _overview(self) -> tuple[Pixels, float]:
        """The whole slide at the tissue mask's resolution (or its own if that is coarser), area-averaged."""
        mpp0 = self.mpp.mpp0
        downsample = max(1.0, self.config.tissue.mpp / mpp0)
        fine_enough = [i for i, level in enumerate(self.levels) if level.downsample <= downsample * 1.01]
        spec = self.specs[fine_enough[-1]]
        reader = ArrayReader(self._level_dir(fine_enough[-1]), spec)
        first = self.specs[0]
        size_wh = max(1, round(first.width_px / downsample)), max(1, round(first.height_px / downsample))
        return reader.read_whole(*size_wh), downsample * mpp0

    def _write_associated(self) -> tuple[str, ...]:
        """Associated images that were asked for, as further series of the store."""
        kept = tuple(n for n in self.config.keep_associated if n in self.slide.info.associated)
        for series, name in enumerate(kept, start=1):
            pixels = self.slide.associated_image(name)
            spec = self._decode_spec(pixels.shape[1], pixels.shape[0])
            self.series.append((name, spec.width_px, spec.height_px, None))
            image = self.folder / str(series)
            write_level(image / "0", spec, _chunks_of(pixels, spec.chunk_px), no_bar)
            write_group(image, image_attributes(name, [1.0]))
        return kept

    def _attributes(
        self, slide_id: str, source: Source, tissue: Tissue, associated: tuple[str, ...], seconds: float
    ) -> SlideAttributes:
        info = self.slide.info
        return SlideAttributes(
            slide_id=slide_id,
            mpp0=self.mpp.mpp0,
            source=source,
            levels=tuple(self.levels),
            associated=associated,
            icc=base64.b64encode(info.icc).decode() if info.icc else None,
            objective_power=info.objective_power,
            scanner_model=info.scanner_model,
            mpp_source=self.mpp.source,
            ingest={
                "versions": versions(),
                "settings": self.config.model_dump(mode="json"),
                "tissue_fraction": round(tissue.fraction, 6),
                "shards": [count_shards(self._level_dir(level)) for level in range(len(self.levels))],
                "background_lab": [round(v, 2) for v in tissue.background_lab],
                "seconds": round(seconds, 3),
                "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            },
        )

    def _write_groups(self, attributes: SlideAttributes) -> None:
        mpp0 = self.mpp.mpp0
        spacings_um = [mpp0 * level.downsample for level in self.levels]
        write_group(self.folder / IMAGE, image_attributes("slide", spacings_um))
        series = [str(i) for i in range(1 + len(attributes.associated))]
        write_group(self.folder / "OME", {"ome": {"version": "0.5", "series": series}})
        first = self.specs[0]
        xml = ome_xml([("slide", first.width_px, first.height_px, mpp0), *self.series])
        (self.folder / "OME" / "METADATA.ome.xml").write_text(xml, encoding="utf-8")
        ome = {"version": "0.5", "bioformats2raw.layout": 3}
        write_group(self.folder, {"ome": ome, "gemslide": attributes.model_dump(mode="json")})

    def _level_dir(self, level: int) -> Path:
        return self.folder / IMAGE / str(level)

    def _decode_spec(self, width_px: int, height_px: int) -> ArraySpec:
        return decode_spec(width_px, height_px, self.config.decode_chunk_px, self.config.shard_px)


def count_shards(array_dir: Path) -> int:
    """Shard files of one level's array; shards of nothing but white are not written."""
    return sum(1 for path in (array_dir / "c").rglob("*") if path.is_file())


def _passing(slide: Slide, level: int, gate: PassThroughGate) -> tuple[EncodedLevel | None, Gate]:
    """The level's own tiles if they pass the gate, else None and why."""
    encoded = slide.encoded_level(level)
    if isinstance(encoded, str):
        return None, Gate(tiles=0, against=gate.against, equal=False, reason=encoded)
    verdict = gate.check(level, encoded)
    return (encoded if verdict.equal else None), verdict


def _chunks_of(pixels: Pixels, chunk_px: int) -> ChunkSource:
    t = chunk_px
    return lambda row, column: encode_padded(pixels[row * t : (row + 1) * t, column * t : (column + 1) * t], t)

"""Ingest: a slide's file becomes its store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

from pipeline.jobs.stage import Stage
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store.format.checksums import covered_files, list_digest, read_checksums
from pipeline.store.format.layout import IMAGE
from pipeline.store.format.shard import sum_file
from pipeline.store.reading.reader import StoreReader
from pipeline.study.stages.kind import Output, StageKind, Work

PIXEL_BYTES = 4 * 2**20
"""Total size of the files of a store's pixels that are always read."""


class Ingest(StageKind):
    """Its output is the list of all checksums; its measures are the slide's size, pixel, scanner and tissue."""

    name = section = "ingest"
    settings: ClassVar = IngestConfig

    def outputs(self, project: Project, slide_id: str) -> Iterator[Path]:
        yield project.store_path(slide_id)

    def stage(self, work: Work) -> Stage:
        from pipeline.ingest.ingest import IngestRequest
        from pipeline.ingest.stage import IngestStage

        (path, mpp, series), slide_id = work.source, work.output.slide_id
        request = IngestRequest(path, slide_id, mpp, series=series)
        return IngestStage(request, work.output.project, cast(IngestConfig, work.settings), fill=False)

    def output_sha256(self, output: Output) -> str:
        return list_digest(output.store)

    def measures(self, output: Output) -> dict[str, Any]:
        from pipeline.inference.results.slide_facts import tissue_mm2

        reader = StoreReader(output.store)
        return {
            "size_px0": list(reader.size_wh_px0),
            "mpp0": reader.mpp0,
            "mpp_source": reader.attributes.mpp_source,
            "scanner": reader.attributes.scanner_model,
            "tissue_mm2": tissue_mm2(reader),
        }

    def changed_files(self, output: Output, *, all_pixels: bool) -> Iterator[str]:
        return changed_files(output.store, all_pixels=all_pixels)


INGEST = Ingest()


def changed_files(store: Path, *, all_pixels: bool = False) -> Iterator[str]:
    """Files of a store that differ from its list of checksums. Raises OSError, ValueError."""
    expected, there = read_checksums(store), set(covered_files(store))
    yield from (f"{name}: is missing" for name in sorted(expected.keys() - there))
    yield from (f"{name}: was not written by ingest" for name in sorted(there - expected.keys()))
    left = PIXEL_BYTES
    for name in sorted(expected.keys() & there, key=lambda name: (expected[name].bytes, name)):
        was, path = expected[name], store / name
        if _is_pixels(name) and not all_pixels:
            left -= was.bytes
            if left < 0:
                if path.stat().st_size != was.bytes:
                    yield f"{name}: does not have the length that ingest wrote"
                continue
        if sum_file(path) != was:
            yield f"{name}: is not what ingest wrote"


def _is_pixels(name: str) -> bool:
    """Whether a file holds pixels of one of the slide's levels."""
    image, level, *rest = name.split("/")
    return image == IMAGE and level.isdecimal() and rest[:1] == ["c"]

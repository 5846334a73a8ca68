"""Slides whose tiles and tags contradict each other in every way: one image, whatever the pyramid and the route.

python -m tests.attacks.lying_colours --times 400
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import imagecodecs
import numpy as np

from pipeline.box import Box
from pipeline.ingest.source_comparison import verify_store
from pipeline.store.reading.reader import StoreReader
from tests.attacks.attack import Result, main
from tests.pipeline.make import Pixels, halved, ingest, sample_image
from tests.pipeline.slides.make_colours import (
    ADOBE_RGB,
    ADOBE_YCC,
    JFIF_SEGMENT,
    Coding,
    split_tables,
    tiles_of,
    write_tiles,
)

TILE_PX = 64
STATED = (
    Coding("ycbcr", JFIF_SEGMENT), Coding("ycbcr", JFIF_SEGMENT, subsampling="420"), Coding("rgb", ADOBE_RGB),
    Coding("rgb", ADOBE_RGB, b"RGB"), Coding("ycbcr", ADOBE_YCC), Coding("ycbcr", ADOBE_YCC, b"RGB", "422"),
    Coding("ycbcr", ADOBE_RGB + JFIF_SEGMENT), Coding("rgb", b"", b"RGB"), Coding("ycbcr", b"", subsampling="420"),
)  # fmt: skip
"""Codings of tiles that state themselves what they hold."""
APERIO = "Aperio Image Library v11\r\n{}x{} (64x64)|AppMag = 20|MPP = 0.5"


class _Trial:
    """One synthetic slide; its colours are known from the encoding of its tiles."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self.tag = self._one_of("rgb", "ycbcr")
        self.is_cut = bool(random.random() < 0.2)
        self.subfiletype = int(random.integers(2))
        self.description = self._one_of(None, None, APERIO)
        self.expected: list[Pixels] = []
        self.contradicts = False
        self._in_tables = b""
        self.coding = self._one_of(*STATED, Coding(self.tag))

    def _one_of(self, *choices):  # type: ignore[no-untyped-def]
        return choices[int(self._random.integers(len(choices)))]

    def _coding_of_tile(self) -> Coding:
        """Coding of one tile, which sometimes comes from another encoder."""
        return self._one_of(*STATED) if self._random.random() < 0.1 else self.coding

    def write(self, path: Path) -> Path:
        size_wh = int(self._random.integers(100, 260)), int(self._random.integers(70, 200))
        levels = halved(sample_image(*size_wh, seed=int(self._random.integers(100))), int(self._random.integers(2)))
        share = not self.is_cut and self._random.random() < 0.3
        coded = [(pixels, list(self._tiles(pixels, is_mixed=not share))) for pixels in levels]
        tables = None
        if share:
            self._in_tables = self.coding.markers if self._random.random() < 0.5 else b""
            tables, _ = split_tables(coded[0][1], self._in_tables)
            coded = [(pixels, [_without(stream, self._in_tables) for stream in split_tables(tiles)[1]])
                     for pixels, tiles in coded]  # fmt: skip
        options = {"description": self.description.format(*size_wh)} if self.description else {}
        return write_tiles(
            path, coded, tag=self.tag, tile_px=TILE_PX, tables=tables, subfiletype=self.subfiletype, **options
        )

    def _tiles(self, pixels: Pixels, *, is_mixed: bool) -> Iterator[bytes]:
        expected = np.empty_like(pixels)
        positions = [(y, x) for y in range(0, pixels.shape[0], TILE_PX) for x in range(0, pixels.shape[1], TILE_PX)]
        for (y, x), tile in zip(positions, tiles_of(pixels, TILE_PX, is_cut=self.is_cut), strict=True):
            coding = self._coding_of_tile() if is_mixed else self.coding
            stream = coding.encode(tile)
            decoded = imagecodecs.jpeg8_decode(
                stream, colorspace="RGB" if coding.holds == "rgb" else "YCBCR", outcolorspace="RGB"
            )
            inside = expected[y : y + TILE_PX, x : x + TILE_PX]
            inside[:] = decoded[: inside.shape[0], : inside.shape[1]]
            self.contradicts |= coding.holds != self.tag
            yield stream
        self.expected.append(expected)

    def __str__(self) -> str:
        return (
            f"{self.coding} under tag {self.tag}, markers {self._in_tables[4:9]!r} in tables, subfiletype "
            f"{self.subfiletype}, cut {self.is_cut}, {(self.description and 'Aperio') or 'generic'}"
        )


def _without(stream: bytes, markers: bytes) -> bytes:
    return stream.replace(markers, b"", 1) if markers else stream


def attack(times: int, seed: int) -> Result:
    """Ingest slides that lie about their colours, by both routes, and compare every pixel with the encoded one."""
    result = Result("slides whose markers and tags contradict each other")
    random = np.random.default_rng(seed)
    for _ in range(times):
        trial = _Trial(random)
        result.attempts += 1
        with tempfile.TemporaryDirectory() as folder:
            _check(trial, Path(folder), result, pass_through=bool(random.random() < 0.7))
    return result


def _check(trial: _Trial, folder: Path, result: Result, *, pass_through: bool) -> None:
    path = trial.write(folder / "a.tif")
    damaged = "mask" if pass_through and not trial.description else "refuse"
    report = ingest(path, folder, pass_through=pass_through, damaged=damaged, gate_tiles=4)
    reader = StoreReader(report.store)
    for level, expected in enumerate(trial.expected):
        box = Box(0, 0, expected.shape[1], expected.shape[0])
        difference = np.abs(reader.read_region(level, box).astype(int) - expected).max()
        result.check(difference == 0, f"level {level} differs by up to {difference}: {trial}")
    warned = any("were trusted" in warning for warning in report.warnings)
    result.check(warned == trial.contradicts, f"warned {warned}, contradicts {trial.contradicts}: {trial}")
    result.check(not report.damaged or not report.damaged[0], f"damage was found: {trial}")
    verify_store(report.store, source=path)


if __name__ == "__main__":
    main(attack, times=400)

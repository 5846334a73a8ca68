"""Bit rot: one bit of a store flips, in a chunk or in a shard's index. Every reader must notice.

    .venv/bin/python -m tests.attacks.bit_rot --times 300 --seed 0

Two slides are ingested (JPEG and JPEG 2000 tiles, built levels under zstd), with tissue, predictions and scores. Each
flip is checked by StoreReader, by plain zarr and by `gemslide verify`, then undone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import zarr

from pipeline.box import Box
from pipeline.errors import CorruptTileError, DamagedStoreError
from pipeline.ingest.source_comparison import verify_store
from pipeline.store.format.plain_array import array_names, read_array
from pipeline.store.format.shard import MISSING, index_bytes
from pipeline.store.layers.overlays import Predictions, write_predictions
from pipeline.store.layers.qc_scores import SCORE_NAMES, Quality, write_quality
from pipeline.store.reading.reader import StoreReader
from tests.attacks.attack import Result, main
from tests.pipeline.make import halved, ingest, sample_image, write_aperio_j2k, write_jpeg_pyramid
from training.foundation.errors import UnreadableError

NOTICED = (CorruptTileError, UnreadableError, DamagedStoreError, ValueError, RuntimeError)
"""zarr raises the last two: the first if a checksum does not match, the other from its codecs."""


@dataclass(frozen=True)
class Target:
    """Bytes of a file that can rot, and the call by which each reader reaches them."""

    kind: str
    path: Path
    start: int
    end: int
    readers: dict[str, Callable[[], object]]


def make_stores(folder: Path) -> list[Path]:
    """Make a store of JPEG tiles and one of JPEG 2000 tiles, both with a built level, predictions and scores."""
    pixels = cv2.GaussianBlur(sample_image(600, 400), (0, 0), 1.5)
    jpeg = write_jpeg_pyramid(folder / "a.tiff", halved(pixels, 1), tile_px=128)
    j2k = write_aperio_j2k(folder / "b.svs", pixels, compression=33005)
    stores = [
        ingest(jpeg, folder, slide_id="a", smallest_level_px=200).store,
        ingest(j2k, folder, slide_id="b", smallest_level_px=300).store,
    ]
    random = np.random.default_rng(0)
    for store in stores:
        yes, scores = random.random((30, 40)).astype(np.float16), random.random((4, 7, 10)).astype(np.float16)
        write_predictions(store, Predictions("m", ("no", "yes"), np.stack([1 - yes, yes]), 16, 16, {}), mpp0=0.5)
        write_quality(store, Quality(SCORE_NAMES, scores, 64, {}), mpp0=0.5, summary={"verdict": "ok"}, stain={})
    return stores


def targets(store: Path) -> list[Target]:
    """Every chunk and every shard's index of a store."""
    return [*_image_targets(store), *_small_targets(store)]


def _image_targets(store: Path) -> Iterator[Target]:
    for level in StoreReader(store).levels:
        spec = level.array.spec
        n, t = spec.shard_chunks, spec.chunk_px
        for path in sorted((level.array.path / "c").rglob("*")):
            if not path.is_file():
                continue
            shard_row, shard_column = int(path.parent.name), int(path.name)
            data = path.read_bytes()
            at_index = len(data) - index_bytes(n * n)
            index = np.frombuffer(data[at_index:-4], "<u8").reshape(-1, 2)
            for at, (offset, count) in enumerate(index.tolist()):
                row, column = shard_row * n + at // n, shard_column * n + at % n
                if offset != int(MISSING):
                    readers = _image_readers(store, level.level, row, column, t)
                    yield Target(spec.codec, path, offset, offset + count, readers)
            readers = _image_readers(store, level.level, shard_row * n, shard_column * n, t)
            yield Target("index", path, at_index, len(data), readers)


def _image_readers(store: Path, level: int, row: int, column: int, t: int) -> dict[str, Callable[[], object]]:
    return {
        "read_region": lambda: StoreReader(store).read_region(level, Box(column * t + 1, row * t + 1, 5, 5)),
        "chunk": lambda: StoreReader(store).chunk(level, row, column),
        "plain zarr": lambda: zarr.open_array(store / f"0/{level}", mode="r")[
            :, row * t + 1 : row * t + 6, column * t + 1 : column * t + 6
        ],
        "verify": lambda: verify_store(store, sample_chunks=1),
    }


def _small_targets(store: Path) -> Iterator[Target]:
    for group in ("0/labels", "predictions", "quality"):
        for name in array_names(store, group):
            readers: dict[str, Callable[[], object]] = {
                "read_array": lambda name=name: read_array(store, name),
                "plain zarr": lambda name=name: zarr.open_array(store / name, mode="r")[...],
                "verify": lambda: verify_store(store, sample_chunks=1),
            }
            for path in sorted((store / name / "c").rglob("*")):
                if path.is_file():
                    yield Target(group.split("/")[-1], path, 0, path.stat().st_size, readers)


@contextmanager
def flipped(path: Path, at: int, bit: int) -> Iterator[None]:
    """Flip one bit of a file in place; restore it afterwards."""
    with path.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)[0]
        for value in (byte ^ 1 << bit, byte):
            stream.seek(at)
            stream.write(bytes([value]))
            stream.flush()
            if value != byte:
                yield


def flip_bits(stores: list[Path], times: int, seed: int) -> Result:
    """Flip bits of these stores, all kinds of targets in turn."""
    random = np.random.default_rng(seed)
    by_kind: dict[str, list[Target]] = {}
    for store in stores:
        for target in targets(store):
            by_kind.setdefault(target.kind, []).append(target)
    result = Result(f"flipped bits in {', '.join(sorted(by_kind))}")
    for number in range(times):
        kind = sorted(by_kind)[number % len(by_kind)]
        target = by_kind[kind][random.integers(len(by_kind[kind]))]
        at, bit = int(random.integers(target.start, target.end)), int(random.integers(8))
        result.attempts += 1
        with flipped(target.path, at, bit):
            for reader, read in target.readers.items():
                result.check(_notices(read), f"{kind}: bit {bit} of byte {at} of {target.path}: silent in {reader}")
    return result


def _notices(read: Callable[[], object]) -> bool:
    try:
        read()
    except NOTICED:
        return True
    return False


def attack(times: int, seed: int) -> Result:
    """Flip bits of two stores made for this attack."""
    with tempfile.TemporaryDirectory() as folder:
        return flip_bits(make_stores(Path(folder)), times, seed)


if __name__ == "__main__":
    main(attack, times=300)

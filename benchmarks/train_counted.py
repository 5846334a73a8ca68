"""One rank of `benchmarks.train` that counts the bytes decoded in its first epoch into `$COUNT_INTO.<rank>`.

The first rank also writes `$COUNT_INTO.needed`: bytes of the chunks that hold the tiles of that epoch, when each tile
is read by itself, and pixels of the tiles themselves.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pipeline.store.reading.array_reader import ArrayReader
from training import train
from training.data.tile_batch import TileBatch
from training.run.trainer import Trainer

_decode, _step = ArrayReader.decode, Trainer.step
_batches: list[TileBatch] = []
_decoded = {"bytes": 0, "pixels": 0}


def _counted(self: ArrayReader, stream: bytes, row: int, column: int) -> Any:
    _decoded["bytes"] += len(stream)
    _decoded["pixels"] += self.spec.chunk_px**2
    return _decode(self, stream, row, column)


def _noted(self: Trainer, batch: TileBatch, upcoming: TileBatch | None) -> Any:
    if not _batches:
        _decoded.update(bytes=0, pixels=0)  # the first rank has already read tiles, for the mean of the channels
    _batches.append(batch)
    result = _step(self, batch, upcoming)
    if len(_batches) == self._steps_per_epoch:
        _write(self._rank, _decoded)
        if self._rank == 0:
            _decoded.update(bytes=0)
            tiles = [int(tile) for read_batch in _batches for tile in read_batch.indices]
            for tile in tiles:
                self.source.read(tile)
            _write("needed", {"bytes": _decoded["bytes"], "pixels": len(tiles) * self.source.tile_px**2})
    return result


def _write(name: object, counted: dict[str, int]) -> None:
    Path(f"{os.environ['COUNT_INTO']}.{name}").write_text(json.dumps(counted))


if __name__ == "__main__":
    ArrayReader.decode = _counted  # type: ignore[method-assign]
    Trainer.step = _noted  # type: ignore[method-assign]
    sys.exit(train.main())

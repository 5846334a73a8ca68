"""One rank of `benchmarks.train` that counts what it decodes in its first epoch, into `$COUNT_INTO.<rank>`.

The first rank also writes `$COUNT_INTO.needed`: what the tiles of that epoch take when each is read by itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pipeline.store.array_reader import ArrayReader
from training import train
from training.tile_batch import TileBatch
from training.trainer import Trainer

_decode, _step = ArrayReader.decode, Trainer.step
_batches: list[TileBatch] = []
_bytes = [0]


def _counted(self: ArrayReader, stream: bytes, row: int, column: int) -> Any:
    _bytes[0] += len(stream)
    return _decode(self, stream, row, column)


def _noted(self: Trainer, batch: TileBatch, upcoming: TileBatch | None) -> Any:
    if not _batches:
        _bytes[0] = 0  # statistics of the tile set have read before
    _batches.append(batch)
    result = _step(self, batch, upcoming)
    if len(_batches) == self._steps_per_epoch:
        _write(self._rank, _bytes[0])
        if self._rank == 0:
            _bytes[0] = 0
            for tile in (int(tile) for each in _batches for tile in each.indices):
                self.source.read(tile)
            _write("needed", _bytes[0])
    return result


def _write(name: object, count: int) -> None:
    Path(f"{os.environ['COUNT_INTO']}.{name}").write_text(str(count))


if __name__ == "__main__":
    ArrayReader.decode = _counted  # type: ignore[method-assign]
    Trainer.step = _noted  # type: ignore[method-assign]
    sys.exit(train.main())

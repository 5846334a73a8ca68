"""TensorBoard file of one run. torch's own writer puts the computer's name, which can name a person, into the file's
name; and it writes in a thread, where a full disk ends in a traceback.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import summary


class EventFile:
    """Scalars and images by step, in TensorBoard's record format.

    Raises:
        OSError: the file cannot be written; also from each method.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._stream = (folder / f"events.out.tfevents.{time.time():.0f}.gemslide").open("wb")
        self._records = RecordWriter(self._stream)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def scalar(self, name: str, value: float, step: int) -> None:
        """Write one number."""
        self._add(summary.scalar(name, value), step)  # type: ignore[no-untyped-call]

    def image(self, name: str, image_hwc: NDArray[np.uint8], step: int) -> None:
        """Write one RGB image, uint8 (height, width, 3)."""
        self._add(summary.image(name, image_hwc, dataformats="HWC"), step)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Write pending records and close the file."""
        self._stream.close()

    def _add(self, content: Summary, step: int) -> None:
        self._write(Event(wall_time=time.time(), step=step, summary=content))

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
        self._stream.flush()

"""Curves of a training run in progress: scalars of its TensorBoard file; each read continues from the last one."""

from __future__ import annotations

import itertools
import math
import os
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event

from pipeline.project import Project
from training.foundation.reading import open_regular
from training.foundation.run_record import is_run_id

READ_BYTES = 4 * 2**20
"""Read at most at once."""
MAX_SCALAR_BYTES = 4096
"""Of a record; longer ones contain images."""
MAX_TAGS = 256
"""Of a slide-level training: up to seven figures of each target."""
MAX_POINTS = 5_000
"""Per curve; a longer one loses every second point, as often as needed."""
MAX_RUNS = 32
_HEADER = struct.Struct("<QI")
_CRC_BYTES = 4
NUM_STEPS = "train/num_steps"

Points = list[tuple[int, float]]


@dataclass
class Curves:
    """Curves of one run.

    Attributes:
        points: (step, value) by tag, in the order of the steps.
        first_s, last_s: times of the first step and of the last, in seconds since 1970.
        is_whole: whether the file was read to its end.
    """

    points: dict[str, Points] = field(default_factory=dict)
    first_s: float | None = None
    last_s: float | None = None
    is_whole: bool = True

    @property
    def num_steps(self) -> int | None:
        """Total number of steps of the run; None where not recorded (runs of earlier versions)."""
        totals = self.points.get(NUM_STEPS)
        return int(totals[-1][1]) if totals and 0 < totals[-1][1] < 1e9 else None

    @property
    def steps_done(self) -> int:
        losses = self.points.get("train/loss")
        return losses[-1][0] + 1 if losses else 0

    @property
    def left_s(self) -> float | None:
        """Estimated time to the end, at the pace so far."""
        total, done = self.num_steps, self.steps_done
        if not total or done < 2 or self.first_s is None or self.last_s is None:
            return None
        return max(0, total - done) * (self.last_s - self.first_s) / (done - 1)


class CurvesFile:
    """Reads one event file as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._at = 0
        self._curves = Curves()

    def read(self) -> Curves:
        """Read the curves as they are now, at most `READ_BYTES` further per call.

        Raises:
            OSError: the file cannot be read.
        """
        with self._lock, open(open_regular(self._path), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            end = self._at + READ_BYTES
            while self._at < end and (length := self._next_length(stream.fileno(), size)) is not None:
                body_at = self._at + _HEADER.size
                if length <= MAX_SCALAR_BYTES:
                    self._add(os.pread(stream.fileno(), length, body_at))
                self._at = body_at + length + _CRC_BYTES
            points = {tag: list(points) for tag, points in self._curves.points.items()}
            return Curves(points, self._curves.first_s, self._curves.last_s, is_whole=self._at < end)

    def _next_length(self, descriptor: int, size: int) -> int | None:
        """Length of the next complete record; None where there is none yet."""
        header = os.pread(descriptor, _HEADER.size, self._at)
        if len(header) < _HEADER.size:
            return None
        length: int = _HEADER.unpack(header)[0]
        return length if self._at + _HEADER.size + length + _CRC_BYTES <= size else None

    def _add(self, record: bytes) -> None:
        event = Event()
        try:
            event.ParseFromString(record)
        except DecodeError:
            return
        for value in event.summary.value:
            if value.HasField("simple_value") and math.isfinite(value.simple_value) and 0 <= event.step < 2**40:
                self._point(value.tag, event.step, value.simple_value)
                if value.tag == "train/loss" and math.isfinite(event.wall_time):
                    self._curves.first_s = event.wall_time if self._curves.first_s is None else self._curves.first_s
                    self._curves.last_s = event.wall_time

    def _point(self, tag: str, step: int, value: float) -> None:
        points = self._curves.points
        if tag not in points and len(points) >= MAX_TAGS:
            return
        curve = points.setdefault(tag, [])
        curve.append((step, value))
        if len(curve) > MAX_POINTS:
            del curve[1:-1:2]


@lru_cache(maxsize=MAX_RUNS)
def _file_at(path: Path) -> CurvesFile:
    return CurvesFile(path)


def read_curves(project: Project, run_id: str) -> Curves | None:
    """Curves of a training run; None where it has none.

    Raises:
        OSError: they cannot be read.
    """
    if not is_run_id(run_id):
        return None
    folder = project.runs_dir / "tensorboard" / run_id
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith("events.out.tfevents."))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _file_at(folder / names[-1]).read() if names else None


def thinned(points: Points, most: int) -> Points:
    """A curve of at most `most` points: means of equal stretches if there are more."""
    if len(points) <= most:
        return points
    edges = [len(points) * index // most for index in range(most + 1)]
    stretches = [points[start:end] for start, end in itertools.pairwise(edges)]
    return [(part[len(part) // 2][0], sum(value for _, value in part) / len(part)) for part in stretches]


def epochs(curves: Curves) -> list[Mapping[str, float]]:
    """A row per validation: its step, the epoch's training loss, and every validation metric."""
    rows: dict[int, dict[str, float]] = {}
    for tag, points in curves.points.items():
        if tag.startswith("val/") or tag == "train/epoch_loss":
            for step, value in points[-1000:]:
                rows.setdefault(step, {"step": step + 1})[tag] = value
    return [rows[step] for step in sorted(rows)]

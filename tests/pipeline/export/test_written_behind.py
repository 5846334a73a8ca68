"""`WrittenBehind`: what a thread writes is what was given, in order, or an error."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from pipeline.export.dicom.behind import WrittenBehind

MIB = 2**20


def test_buffers_of_all_sizes_are_appended_in_order(tmp_path: Path) -> None:
    chance = random.Random(0)
    buffers = [chance.randbytes(chance.choice((0, 1, 8, 9000, 70_000, 3 * MIB))) for _ in range(60)]
    buffers += [chance.randbytes(chance.randrange(40)) for _ in range(5000)]  # more than one call takes
    path = tmp_path / "frames"
    with path.open("wb") as stream:
        stream.write(b"before")
        with WrittenBehind(stream) as file:
            for first in range(0, len(buffers), 7):
                file.append(buffers[first : first + 7])
        stream.write(b"after")
    assert path.read_bytes() == b"before" + b"".join(buffers) + b"after"


def test_a_piece_that_is_written_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, num_calls = os.write, 0

    def write_a_part(descriptor: int, data: bytes) -> int:
        nonlocal num_calls
        num_calls += 1
        return write(descriptor, data[: 300_000 + num_calls])

    monkeypatch.setattr(os, "write", write_a_part)
    monkeypatch.setattr(os, "writev", lambda descriptor, some: write_a_part(descriptor, b"".join(some)))
    pieces = [[bytes([number]) * (3 * MIB // 4), bytes([number + 100]) * 5] for number in range(9)]
    path = tmp_path / "frames"
    with path.open("wb", buffering=0) as stream, WrittenBehind(stream) as file:
        for piece in pieces:
            file.append(piece)
    assert path.read_bytes() == b"".join(b"".join(piece) for piece in pieces)
    assert num_calls > len(pieces)


def test_a_file_that_may_grow_no_further_is_an_error(tmp_path: Path) -> None:
    code = f"""
import resource, signal, sys
from pathlib import Path
from pipeline.export.dicom.behind import WrittenBehind
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({3 * MIB + 123}, {3 * MIB + 123}))
try:
    with Path(sys.argv[1]).open("wb", buffering=0) as stream, WrittenBehind(stream) as file:
        for number in range(64):
            file.append([bytes([number]) * {MIB // 4}] * 3)
except OSError as error:
    print(error.errno)
"""
    path = tmp_path / "frames"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(errno.EFBIG)], done.stderr
    whole = b"".join(bytes([number]) * (3 * MIB // 4) for number in range(64))
    assert path.read_bytes() == whole[: 3 * MIB + 123]


def write(stream: BinaryIO, error: Exception | None = None) -> None:
    with WrittenBehind(stream) as file:
        file.append([bytes(2 * MIB)])
        if error:
            raise error


def test_an_error_of_the_last_piece_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "frames"
    path.touch()
    with path.open("rb") as read_only, pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        write(read_only)


def test_an_error_within_the_block_is_the_one_that_is_raised(tmp_path: Path) -> None:
    with (tmp_path / "frames").open("wb") as stream, pytest.raises(ValueError, match="of the frames"):
        write(stream, ValueError("of the frames"))

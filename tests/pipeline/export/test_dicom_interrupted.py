"""DICOM exports that are killed, run out of disk, or meet another writer: complete or absent, and whole next time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.export.export import ExportRequest, export_slide
from tests.pipeline.export.make_store import jfif, jpeg_level, make_store, zstd_level
from tests.pipeline.make import halved, sample_image
from tests.small_disk import small_disk
from training.foundation.errors import BadRecipeError, DiskFullError, GemslideError, LockedError
from training.foundation.progress import Advance

KILLED, REFUSED = -signal.SIGKILL, 3


class Rows(Advance):
    """Progress of an export, which calls something at each row of frames."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self._call = call

    def __call__(self, steps: int) -> None:
        self._call()


def nothing() -> None:
    pass


def export(store: Path, out: Path, at_row: Callable[[], object] = nothing) -> None:
    export_slide(ExportRequest(store, out, "dicom"), advance=Rows(at_row))


def forked(work: Callable[[], object]) -> int:
    """Start work in another process, which ends with 0, or with `REFUSED` after an error of gemslide."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except GemslideError:
            code = REFUSED
        finally:
            if code == 1:
                traceback.print_exc()
            os._exit(code)
    return child


def code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Non-square levels of JPEG and lossless tiles, four rows and two of frames, that all differ."""
    first, second = halved(sample_image(700, 480), 1)
    levels = [jpeg_level(first, 120, jfif("422"), sparse={(0, 1)}), zstd_level(second, 120)]
    return make_store(tmp_path_factory.mktemp("store") / "S.ome.zarr", levels)


@pytest.fixture(scope="module")
def unbroken(store, tmp_path_factory):
    """Files of an export that nothing disturbed."""
    out = tmp_path_factory.mktemp("unbroken") / "S"
    export(store, out)
    return contents(out)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.85, 0.97])
def test_a_full_disk_is_one_error_and_the_next_export_is_whole(store, unbroken, tmp_path, share):
    total = sum(map(len, unbroken.values()))
    with small_disk(tmp_path / "disk", f"size={max(4, int(share * total / 1024))}k") as disk:
        with pytest.raises(DiskFullError, match="no space left"):
            export(store, disk / "S")
        assert list(disk.iterdir()) == []

        subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
        export(store, disk / "S")
        assert contents(disk / "S") == unbroken


@pytest.mark.parametrize("options", ["ro", "nr_inodes=1", "nr_inodes=2", "nr_inodes=3"])
def test_a_disk_that_takes_no_folder_or_no_file_is_one_error(store, tmp_path, options):
    with small_disk(tmp_path / "disk", options) as disk:
        with pytest.raises(DiskFullError):
            export(store, disk / "S")
        assert list(disk.iterdir()) == []


def make_file(path):
    path.write_text("mine")


def make_folder(path):
    path.mkdir()
    make_file(path / "level-0.dcm")


def make_link(path):
    path.symlink_to("nowhere")


@pytest.mark.parametrize("row", [1, 3, 6])
@pytest.mark.parametrize("appear", [make_file, make_folder, Path.mkdir, make_link])
def test_a_target_that_appears_during_the_export_is_not_replaced(store, tmp_path, appear, row):
    out, rows = tmp_path / "S", iter(range(1, 100))

    with pytest.raises(BadRecipeError, match="already exists"):
        export(store, out, lambda: appear(out) if next(rows) == row else None)

    assert [path.name for path in tmp_path.iterdir()] == ["S"]
    appear(tmp_path / "as made")
    assert out.lstat().st_mode == (tmp_path / "as made").lstat().st_mode
    assert [path.read_text() for path in out.rglob("*")] == [
        path.read_text() for path in (tmp_path / "as made").rglob("*")
    ]


def kill_before(tick: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A counter of moments that kills this process: rows of frames, and calls that flush or publish."""
    left = iter(range(tick, -1, -1))

    def count() -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        return lambda *arguments, **options: (count(), call(*arguments, **options))[1]

    for owner, name in ((os, "fsync"), (os, "mkdir"), (Path, "rename"), (Path, "open")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    return count


def test_killed_at_any_moment_it_leaves_nothing_half_written_and_the_next_export_is_whole(store, unbroken, tmp_path):
    tick, code, published = 0, KILLED, 0
    while code == KILLED:
        out = tmp_path / str(tick) / "S"
        out.parent.mkdir()

        def killed_export(tick=tick, out=out) -> None:
            with pytest.MonkeyPatch.context() as monkeypatch:
                export(store, out, kill_before(tick, monkeypatch))

        code = code_of(forked(killed_export))
        if out.exists():
            published += code == KILLED
        else:
            export(store, out)
        assert contents(out) == unbroken
        assert [path.name for path in out.parent.iterdir()] == ["S"]
        tick += 1

    assert (code, published) == (0, 1)
    assert tick > 12


@pytest.mark.prove
def test_killed_at_random_moments_it_leaves_nothing_half_written(store, unbroken, tmp_path):
    start = time.perf_counter()
    export(store, tmp_path / "timed")
    longest_s, chance, killed = 1.2 * (time.perf_counter() - start), random.Random(0), 0
    for number in range(150):
        out = tmp_path / str(number) / "S"
        child = forked(lambda out=out: export(store, out))
        time.sleep(chance.uniform(0, longest_s))
        os.kill(child, signal.SIGKILL)
        code = code_of(child)
        killed += code == KILLED
        if not out.exists():
            assert code == KILLED
            export(store, out)
        assert contents(out) == unbroken
        assert [path.name for path in out.parent.iterdir()] == ["S"]
    assert killed > 50


def test_while_an_export_runs_another_to_the_same_target_is_refused(store, unbroken, tmp_path):
    out = tmp_path / "S"
    arrived, tell_arrived = os.pipe()
    may_go_on, let_go_on = os.pipe()

    def wait_for_the_other() -> None:
        os.write(tell_arrived, b"x")
        os.read(may_go_on, 1)

    child = forked(lambda: export(store, out, wait_for_the_other))
    os.read(arrived, 1)
    with pytest.raises(LockedError, match="another process is writing it now"):
        export(store, out)
    os.write(let_go_on, b"x" * 100)

    assert code_of(child) == 0
    with pytest.raises(BadRecipeError, match="already exists"):
        export(store, out)
    assert contents(out) == unbroken
    assert [path.name for path in tmp_path.iterdir()] == ["S"]
    for descriptor in (arrived, tell_arrived, may_go_on, let_go_on):
        os.close(descriptor)


@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.prove)])
def test_of_several_exports_at_once_one_succeeds(store, unbroken, tmp_path, rounds):
    for number in range(rounds):
        out = tmp_path / str(number) / "S"
        children = [forked(lambda out=out: export(store, out)) for _ in range(4)]

        assert sorted(map(code_of, children)) == [0, REFUSED, REFUSED, REFUSED]
        assert contents(out) == unbroken
        assert [path.name for path in out.parent.iterdir()] == ["S"]

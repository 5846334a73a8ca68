"""Publishing is atomic at every moment, despite other writers and leftovers of dead runs."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small_disk import small_disk
from training.foundation import publish
from training.foundation.errors import DiskFullError, LockedError
from training.foundation.leftovers import recover_files, recover_folder
from training.foundation.publish import TemporaryFile, new_folder, write_bytes_atomic
from training.foundation.run_record import RecordFile


def write(final: Path, content: str) -> None:
    with new_folder(final) as folder:
        write_bytes_atomic(folder / "a", content.encode())
        write_bytes_atomic(folder / "sub/b", content.encode())


def write_and_fail(final: Path, error: BaseException, resume_key: str | None = None) -> None:
    with new_folder(final, resume_key=resume_key) as folder:
        (folder / "shard").write_text("x")
        raise error


def content(final: Path) -> set[str]:
    return {path.read_text() for path in final.rglob("*") if path.is_file()}


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


@pytest.fixture(params=["exchange", "journal"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to replace a folder; the second is for file systems that cannot exchange names."""
    if request.param == "journal":
        monkeypatch.setattr(publish, "exchange", lambda one, other: False)
    return str(request.param)


def test_a_folder_is_replaced_and_nothing_else_is_left(tmp_path: Path, way: str) -> None:
    write(tmp_path / "m", "old")
    write(tmp_path / "m", "new")

    assert content(tmp_path / "m") == {"new"}
    assert hidden(tmp_path) == []


def test_this_file_system_exchanges_names() -> None:
    """Guard the tests of the exchange, which would prove nothing on another file system."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder) / "one", Path(folder) / "other"
        one.mkdir()
        other.mkdir()
        (one / "a").touch()
        assert publish.exchange(one, other)
        assert (other / "a").exists()


def test_a_reader_finds_a_folder_at_every_moment_while_it_is_replaced(tmp_path: Path) -> None:
    final, absent, stop = tmp_path / "m", [], threading.Event()
    write(final, "0")

    def look() -> None:
        while not stop.is_set():
            if not final.exists():
                absent.append(1)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(100):
        write(final, str(number))
    stop.set()
    reader.join()
    assert absent == []


def test_an_error_keeps_the_old_folder_and_removes_the_new_one(tmp_path: Path) -> None:
    write(tmp_path / "m", "old")
    with pytest.raises(ValueError, match="stop"):
        write_and_fail(tmp_path / "m", ValueError("stop"))

    assert content(tmp_path / "m") == {"old"}
    assert hidden(tmp_path) == []


def test_a_link_is_replaced_by_a_folder_and_what_it_led_to_stays(tmp_path: Path, way: str) -> None:
    write(tmp_path / "elsewhere", "theirs")
    (tmp_path / "m").symlink_to(tmp_path / "elsewhere")
    write(tmp_path / "m", "ours")

    assert content(tmp_path / "m") == {"ours"}
    assert content(tmp_path / "elsewhere") == {"theirs"}
    assert hidden(tmp_path) == []


def dead_states(root: Path) -> Iterator[tuple[str, Path, str]]:
    """Every state in which a journalled swap can die: name, final, and the expected content afterwards."""
    for state, moves in (("begun", 0), ("old moved away", 1), ("new in place", 2)):
        folder = root / state.replace(" ", "-")
        write(folder / "m", "old")
        write(folder / "fresh", "new")
        (folder / "fresh").rename(folder / ".m.partial")
        (folder / ".m.swap").touch()
        if moves >= 1:
            (folder / "m").rename(folder / ".m.old")
        if moves >= 2:
            (folder / ".m.partial").rename(folder / "m")
        yield state, folder / "m", "new"


def test_a_swap_that_died_is_completed_from_wherever_it_was(tmp_path: Path) -> None:
    for state, final, expected in dead_states(tmp_path):
        assert recover_folder(final.parent), state
        assert content(final) == {expected}, state
        assert hidden(final.parent) == [], state
        assert recover_folder(final.parent) == [], state


def test_what_version_0_1_left_is_put_back_or_removed(tmp_path: Path) -> None:
    """It moved the old folder away, and died before renaming the new one."""
    nobody = 2**22 + 1  # above the largest process number
    write(tmp_path / f".m.old.{nobody}", "old")
    write(tmp_path / "n", "new")
    write(tmp_path / f".n.old.{nobody}", "old")
    (tmp_path / f".t.parquet.{nobody}.partial").write_text("half")
    write(tmp_path / ".r-00000000.partial", "half")

    recover_folder(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "n"]
    assert (content(tmp_path / "m"), content(tmp_path / "n")) == ({"old"}, {"new"})


def test_what_a_live_process_writes_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / f".t.parquet.{os.getpid()}.partial").write_text("a writer of version 0.1")
    with new_folder(tmp_path / "m") as folder, TemporaryFile(tmp_path / "t"):
        (folder / "a").write_text("x")
        before = hidden(tmp_path)
        assert recover_folder(tmp_path) == []
        assert hidden(tmp_path) == before
    assert content(tmp_path / "m") == {"x"}


def test_what_a_killed_ingest_can_go_on_with_is_kept(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(tmp_path / "s.ome.zarr", KeyboardInterrupt(), resume_key="k")

    assert recover_folder(tmp_path) == []
    with new_folder(tmp_path / "s.ome.zarr", resume_key="k") as folder:
        assert (folder / "shard").read_text() == "x"


def test_a_short_writer_is_waited_for(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def first() -> None:
        with new_folder(tmp_path / "m") as folder:
            (folder / "a").write_text("first")
            begun.set()
            go_on.wait()

    thread = threading.Thread(target=first)
    thread.start()
    begun.wait()
    with pytest.raises(LockedError, match="another process is writing it now"), new_folder(tmp_path / "m", wait_s=0):
        pass
    threading.Timer(0.05, go_on.set).start()
    with new_folder(tmp_path / "m", wait_s=30) as folder:
        (folder / "a").write_text("second")
    thread.join()
    assert content(tmp_path / "m") == {"second"}


def test_a_lock_ends_with_the_process_that_held_it(tmp_path: Path) -> None:
    program = (
        "import sys, os, signal; from pathlib import Path; from training.foundation.publish import new_folder\n"
        "with new_folder(Path(sys.argv[1])) as f: (f / 'a').write_text('x'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "m")], check=False)
    assert hidden(tmp_path) == [".m.partial"]

    write(tmp_path / "m", "new")
    assert content(tmp_path / "m") == {"new"}


def test_a_run_record_has_its_room_before_the_disk_is_full(disk: Path) -> None:
    """A long record is written without its lists."""
    for run_id, slides in (("one", []), ("two", ["s" * 100] * 2000)):
        file = RecordFile(disk / "runs", run_id)
        with pytest.raises(DiskFullError, match="no space left"):
            write_bytes_atomic(disk / "junk", bytes(2**20))
        fill(disk)
        file.write({"run_id": run_id, "slides": slides})
        text = (disk / f"runs/{run_id}.json").read_text()
        assert f'"run_id": "{run_id}"' in text
        assert ("the disk was full" in text) == bool(slides)
        (disk / "filler").unlink()
    assert hidden(disk / "runs") == []


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as stream:
        for piece in (4096, 1):
            try:
                while stream.write(bytes(piece)):
                    pass
            except OSError:
                continue


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "size=300k") as path:
        yield path


def test_a_file_keeps_its_old_content_when_the_new_one_does_not_fit(disk: Path) -> None:
    write_bytes_atomic(disk / "t", b"old")
    with pytest.raises(DiskFullError):
        write_bytes_atomic(disk / "t", bytes(2**20))

    assert (disk / "t").read_bytes() == b"old"
    assert hidden(disk) == []


def test_leftovers_on_a_read_only_disk_stop_nobody(disk: Path) -> None:
    (disk / ".m.partial").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    try:
        recover_folder(disk)
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


def test_the_lock_is_the_kernel_s(tmp_path: Path) -> None:
    with new_folder(tmp_path / "m"):
        descriptor = os.open(tmp_path / ".m.partial", os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)


def test_hidden_files_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    """The current folder is the default project, and may be somebody's home."""
    theirs = (".bashrc.old", ".download.partial", ".notes.swap", ".x.w123.partial", ".profile")
    for name in theirs:
        (tmp_path / name).write_text("theirs")
    (tmp_path / ".y.partial").mkdir()
    (tmp_path / f".cohort.csv.w{'0' * 8}.partial").write_text("ours")

    assert len(recover_files(tmp_path)) == 1

    assert hidden(tmp_path) == sorted((*theirs, ".y.partial"))


def test_a_link_is_not_followed_to_leftovers_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere / ".m.partial", "theirs")
    (tmp_path / "results").symlink_to(elsewhere)
    (tmp_path / ".n.partial").symlink_to(elsewhere)

    assert recover_folder(tmp_path / "results") == []
    assert recover_folder(tmp_path) == []
    assert content(elsewhere) == {"theirs"}


def test_a_swap_that_was_interrupted_is_completed_and_no_half_folder_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an atomic exchange: Ctrl+C between the two renames, then a run that dies while it writes."""
    monkeypatch.setattr(publish, "exchange", lambda one, other: False)
    write(tmp_path / "m", "old")
    rename, calls = Path.rename, []

    def second_is_interrupted(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", second_is_interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "m", "new")
    with pytest.raises(ValueError, match="died"):
        write_and_fail(tmp_path / "m", ValueError("died"))

    recover_folder(tmp_path)
    assert content(tmp_path / "m") == {"new"}
    assert hidden(tmp_path) == []


def test_a_journal_without_a_new_folder_puts_the_old_one_back(tmp_path: Path) -> None:
    write(tmp_path / ".m.old", "old")
    (tmp_path / ".m.swap").touch()

    assert recover_folder(tmp_path)
    assert content(tmp_path / "m") == {"old"}
    assert hidden(tmp_path) == []


def test_a_link_in_place_of_a_temporary_folder_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".m.partial").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(DiskFullError, match="cannot be written"):
        write(tmp_path / "m", "new")
    assert list((tmp_path / "elsewhere").iterdir()) == []

"""Parts of a job's log that pages show, and parts that they do not."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from pathology_app.jobs import job_log, log_writer
from pathology_app.jobs.job_log import READ_BYTES, TAIL_BYTES, JobLog, SlideEnd
from pathology_app.jobs.log_writer import LogWriter
from pipeline.project import Project


def line(slide_id: str, status: str = "done", message: str = "") -> str:
    return json.dumps({"slide_id": slide_id, "status": status, "code": None, "message": message}) + "\n"


def test_slides_are_counted_on_from_the_last_look(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(line("S-1") + "words\n" + line("S-2", "refused", "no mpp")[:-5])
    log = JobLog(path)
    assert log.count().states == {"done": 1}

    with path.open("a") as stream:
        stream.write(line("S-2", "refused", "no mpp")[-5:] + line("S-3", "skipped"))

    counted = log.count()
    assert counted.states == {"done": 1, "refused": 1, "skipped": 1}
    assert counted.bad == [SlideEnd("S-2", "refused", "", "no mpp")]
    assert list(counted.ends) == ["S-1", "S-2", "S-3"]


def test_a_long_log_is_read_in_pieces_and_its_end_shown_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [line(f"S-{number}", message="x" * 900) for number in range(6000)]
    path.write_text("".join(lines) + "the end\n")
    log = JobLog(path)

    first = log.count()

    assert not first.is_whole
    assert 0 < first.states.total() < READ_BYTES // 900
    assert log.tail()[-1] == "the end"
    assert sum(map(len, log.tail())) <= TAIL_BYTES
    while not (counted := log.count()).is_whole:
        pass
    assert counted.states.total() == 6000
    assert len(counted.ends) <= job_log.MAX_KEPT


def test_hostile_lines_are_no_slides(tmp_path: Path) -> None:
    path = tmp_path / "log"
    deep = '{"slide_id": ' + "[" * 100_000 + "\n"
    odd = b'{"slide_id": 1\n{"slide_id": {}, "status": []}\n\xff\xfe\n'
    path.write_bytes(deep.encode() + odd + line("S-1").encode())
    assert JobLog(path).count().states == {"[]": 1, "done": 1}


def test_a_log_written_anew_is_counted_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(line("S-1") + line("S-2"))
    log = JobLog(path)
    assert log.count().states.total() == 2
    path.write_text(line("S-9"))
    assert list(log.count().ends) == ["S-9"]


def test_progress_lines_say_where_it_is(tmp_path: Path) -> None:
    log = JobLog(tmp_path / "log")
    step = log.step(["training  loss 0.2: 69 of 92 (75%) after 3 min, 23 per min", "epoch 3: train loss 0.2"])
    assert step is not None
    assert (step.what, step.done, step.total) == ("training  loss 0.2", 69, 92)
    assert log.step(["3 of 4 slides"]) is None


def test_escapes_of_terminals_are_taken_out(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\x1b[31mred\x1b[0m\n")
    assert JobLog(tmp_path / "log").tail() == ["red"]


def test_a_pipe_in_place_of_a_log_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError, match="not a regular file"):
        JobLog(tmp_path / "log").tail()


def written(
    tmp_path: Path, output: bytes, hidden: tuple[Path, ...] = (), kept: tuple[str, ...] = ()
) -> tuple[str, LogWriter]:
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    writer = LogWriter(io.BytesIO(output), log, Project(tmp_path), hidden, kept)
    writer.run()
    writer.close()
    os.close(log)
    return (tmp_path / "log").read_text(), writer


def test_names_of_slide_files_stay_out_of_the_log(tmp_path: Path) -> None:
    slide = tmp_path / "incoming" / "Miller-Anna.svs"
    output = f"{slide}: cannot be read\nMiller-Anna.svs again\n" + line("S-1")
    text, _ = written(tmp_path, output.encode(), (slide,), ("S-1",))
    assert "Miller" not in text
    assert text.count("(name left out)") >= 2
    assert '"S-1"' in text


def test_a_log_without_end_is_cut_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "MAX_LOG_BYTES", 100)
    text, writer = written(tmp_path, b"x" * 50 + b"\n" + b"y" * 80 + b"\n")
    assert text == "x" * 50 + "\n(81 bytes of output were left out: no room for them)\n"
    assert writer.left_out == 81


def test_a_full_disk_under_the_log_does_not_end_the_run(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    writer = LogWriter(io.BytesIO(b"one\ntwo\n"), full, Project(tmp_path), (), ())
    writer.run()
    os.close(full)
    assert writer.left_out == 8


def test_a_run_that_is_refused_as_a_whole_is_no_slide(tmp_path: Path) -> None:
    refused = {"slide_id": "run", "status": "refused", "code": "no_slides", "message": "none", "seconds": 0.0}
    (tmp_path / "log").write_text(json.dumps(refused) + "\n" + line("run", "done"))
    assert JobLog(tmp_path / "log").count().states == {"done": 1}


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".TXT"])
def test_ids_in_a_manifest_stay_where_its_own_name_is_taken_out(tmp_path: Path, suffix: str) -> None:
    manifest = tmp_path / f"Miller{suffix}"
    manifest.write_text("path,slide_id\nMiller-Anna.svs,Miller-1\n")
    text, _ = written(tmp_path, b"Miller-1: done\nMiller-Anna.svs: Miller\n", (manifest,))
    assert text == "Miller-1: done\n(name left out): (name left out)\n"


def test_a_name_is_taken_out_where_a_long_line_is_parted(tmp_path: Path) -> None:
    slide = tmp_path / "incoming" / "Miller-Anna.svs"
    for begin in range(2**16 - 40, 2**16 + 5, 3):
        folder = tmp_path / str(begin)
        folder.mkdir()
        text, _ = written(folder, b"x" * begin + f" {slide} {slide}\n".encode(), (slide,))
        assert "Miller" not in text
        assert text.startswith("x" * begin)


def test_lines_of_json_that_are_none_of_ours_are_cleaned_too(tmp_path: Path) -> None:
    slide = tmp_path / "Müller, Anna.svs"
    output = json.dumps({"error": f"cannot open {slide}"}) + "\n{" + f"{slide}: no JSON\n"
    text, _ = written(tmp_path, output.encode(), (slide,))
    assert "ller" not in text
    assert json.loads(text.splitlines()[0])["error"] == "cannot open (name left out)"


def test_the_home_folder_and_the_project_s_stay_out_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna.miller")
    text, _ = written(tmp_path, f"{tmp_path}/slides/S-1.ome.zarr: x\n/home/anna.miller/.venv/lib.py: y\n".encode())
    assert text == "slides/S-1.ome.zarr: x\n~/.venv/lib.py: y\n"

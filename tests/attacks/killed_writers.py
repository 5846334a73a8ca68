"""kill -9 at random moments of publishing: model packages, predictions, quality scores, run records, tile tables.

Whatever the moment, every published output exists and is complete (the old one or the new one), and once the next run
has checked the project nothing else is left. Both ways of replacing a folder are attacked: the atomic exchange, and the
journalled swap on file systems without it (there, the next run may have to complete the swap first).

`python -m tests.attacks.killed_writers --times 280 --seed 0`
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from pipeline.project import Project
from pipeline.store.format.metadata import write_json
from tests.attacks.attack import Result, main
from training.foundation import publish
from training.foundation.publish import SHORT_WRITE_S, new_folder, write_bytes_atomic
from training.foundation.run_record import RecordFile
from training.packages.config import read_package_config
from training.packages.write import PackageContent, write_packages
from training.recipe.config import Recipe

NUM_FILES = 4
LONGEST_S = 0.03


def package_content(which: str, epoch: int) -> PackageContent:
    recipe = Recipe.model_validate(
        {"data": {"tile_set": "t"}, "model": {"depth": 11, "num_classes": 2}, "train": {"steps": 1}}
    )
    plan = {"strategy": "single", "num_stages": 1, "num_microbatches": 1}
    return PackageContent(
        recipe, "r", ("a", "b"), 32, 0.5, [0.5] * 3, [0.2] * 3, None, "0" * 64, "run", plan, which, epoch, {"loss": 0.1}
    )


def _packages(project: Path, number: int) -> None:
    """Packages "best" and "last" with equal weights, then with different ones, always under the same two ids."""
    one, other = {"w": torch.zeros(64)}, {"w": torch.ones(64)}
    best, last = package_content("best", number), package_content("last", number)
    write_packages(project / "models", [(one, best), (one if number % 2 else other, last)])


def _folder(project: Path, number: int) -> None:
    """Write a folder as predictions and quality scores are written inside a store."""
    with new_folder(project / "slides/s.ome.zarr/predictions/m-1", wait_s=SHORT_WRITE_S) as folder:
        for index in range(NUM_FILES):
            write_bytes_atomic(folder / f"{index}/c/0", str(number).encode())
        write_json(folder / "zarr.json", {"number": number})


def _files(project: Path, number: int) -> None:
    write_bytes_atomic(project / "tiles/t.parquet", str(number).encode() * 1000)
    RecordFile(project / "runs", "20260101T000000Z-abcdef").write({"number": number, "text": "x" * 10_000})


Writer = Callable[[Path, int], None]
WRITERS: tuple[Writer, ...] = (_packages, _folder, _files)


def attack(times: int, seed: int, writers: Sequence[Writer] = WRITERS) -> Result:
    result, chance = Result("kills of writers"), random.Random(seed)
    for number in range(times):
        writer, by_exchange = writers[number % len(writers)], number // len(writers) % 2 == 0
        with tempfile.TemporaryDirectory() as folder:
            project = Path(folder)
            (project / "slides/s.ome.zarr").mkdir(parents=True)
            (project / "slides/s.ome.zarr/zarr.json").write_text("{}")
            writer(project, 0)
            _kill(writer, project, chance.uniform(0, LONGEST_S), by_exchange=by_exchange)
            where = f"{writer.__name__}, kill {number}, {'exchange' if by_exchange else 'journal'}"
            if by_exchange:
                check_outputs(project, result, f"{where}, before recovery")
            Project(project).recover()
            check_outputs(project, result, f"{where}, after recovery")
            left = sorted(str(path.relative_to(project)) for path in project.rglob(".*"))
            result.check(not left, f"{where}: left {left}")
            writer(project, 10**6)  # no other run is active
        result.attempts += 1
    return result


def _kill(writer: Writer, project: Path, after_s: float, *, by_exchange: bool) -> None:
    """Write repeatedly in a separate process, and kill it."""
    started, says = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if not by_exchange:
                publish.exchange = lambda one, other: False
            for number in range(1, 10**6):
                writer(project, number)
                if number == 1:
                    os.write(says, b"x")
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.read(started, 1)
    time.sleep(after_s)  # any moment will do
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(started)
    os.close(says)
    assert os.WIFSIGNALED(status), "the writer ended by itself"


def check_outputs(project: Path, result: Result, where: str) -> None:
    """Check that every published output exists and is consistent."""
    for package in (path for path in (project / "models").glob("*") if path.name[0] != "."):
        try:
            read_package_config(package)
        except Exception as error:
            result.findings.append(f"{where}: {package.name} is damaged: {error}")
            continue
        whole = {path.name for path in package.iterdir()} == {
            "config.json", "model.safetensors", "metrics.json", "card.md",
        }  # fmt: skip
        result.check(whole, f"{where}: {package.name} is not whole")
    if (project / "models").exists():
        names = [path.name for path in (project / "models").glob("[!.]*")]
        result.check(len(names) == 2, f"{where}: packages {names}")
    predictions = project / "slides/s.ome.zarr/predictions"
    if predictions.exists():
        contents = {path.read_text() for path in (predictions / "m-1").glob("*/c/0")}
        root = predictions / "m-1/zarr.json"
        number = json.loads(root.read_text())["number"] if root.exists() else None
        whole = contents == {str(number)} and len(list((predictions / "m-1").glob("*/c/0"))) == NUM_FILES
        result.check(whole, f"{where}: predictions {contents}, {number}")
    if (project / "tiles").exists():
        record = json.loads((project / "runs/20260101T000000Z-abcdef.json").read_text())
        text = (project / "tiles/t.parquet").read_text()
        result.check(len(record["text"]) == 10_000, f"{where}: the record is cut short")
        result.check(len(text) % 1000 == 0 and text == text[: len(text) // 1000] * 1000, f"{where}: the table is mixed")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(attack, times=280)

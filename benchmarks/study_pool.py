"""Speed-up of a study's local pool over the machine's cores: eight mosaics through all stages, against single slides.

    GEMSLIDE_TEST_DATA=… .venv/bin/python -m benchmarks.study_pool [--rounds 3]

The five mosaics of `crc-mosaic` and three of them mirrored are studied with a small network (trained here for one
epoch; its predictions do not matter): ingested, checked, predicted. A round runs `gemslide study run` with as many
workers as there are cores, then slide by slide, each as a separate study with one worker on one core. The figure is
(sum of the single runs ÷ cores) ÷ the pool's wall-clock time; every run counts from its start to its end, with the
imports of its processes. Because single runs pay for their start eight times, the figure is also given with the stages'
own seconds of the single runs in place of their wall-clock time. Prints a JSON line; the committed ones are in
benchmarks/results/study.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tifffile

from benchmarks.example_study import trained
from benchmarks.machine import circumstances
from pipeline.ledger import Ledger, open_ledger
from pipeline.project import Project
from pipeline.study import AboutStudy, new_protocol
from tests.pipeline.make import halved, write_jpeg_pyramid

SLIDES, MIRRORED = 8, 3
INFER = '\n[infer]\nviews = "flips"\noverlap = 0.5\n'
PROGRAM = [sys.executable, "-c", "from pipeline.cli import main; main()"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    data = Path(os.environ["GEMSLIDE_TEST_DATA"]) / "crc-mosaic"
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as name:
        folder = Path(name)
        project = Project(folder / "model")
        model_id = trained(project, data, epochs=1)
        slides = mosaics(folder / "slides", data)
        rounds_done = [one_round(folder, project.models_dir, model_id, slides) for _ in range(rounds)]
    line = {
        "benchmark": "study",
        "measure": "local pool",
        "slides": len(slides),
        "workers": len(os.sched_getaffinity(0)),
        **{
            name: round(statistics.median(round_done[name] for round_done in rounds_done), 3) for name in rounds_done[0]
        },
        "all rounds": rounds_done,
    }
    print(json.dumps({**line, **circumstances("benchmarks.study_pool")}))


def mosaics(folder: Path, data: Path) -> list[Path]:
    """The mosaics, and some mirrored copies."""
    folder.mkdir()
    originals = sorted(data.glob("*.tiff"))
    for source in originals[:MIRRORED]:
        level0 = tifffile.imread(source, key=0)[:, ::-1]
        write_jpeg_pyramid(folder / f"mirrored_{source.name}", halved(level0, 3))
    slides = [*originals, *sorted(folder.glob("*.tiff"))]
    assert len(slides) == SLIDES, slides
    return slides


def one_round(folder: Path, models: Path, model_id: str, slides: Sequence[Path]) -> dict[str, float]:
    """Run the pool, then each slide alone on one core."""
    cores = sorted(os.sched_getaffinity(0))
    pool_s, _ = run_study(folder / "together", models, model_id, slides, workers=len(cores), cores=cores)
    alone = [
        run_study(folder / "alone", models, model_id, [slide], workers=1, cores=[cores[number % len(cores)]])
        for number, slide in enumerate(slides)
    ]
    clock_s, stages_s = (sum(values) for values in zip(*alone, strict=True))
    return {
        "single runs / cores / pool": round(clock_s / len(cores) / pool_s, 3),
        "stages of single runs / cores / pool": round(stages_s / len(cores) / pool_s, 3),
        "pool, s": round(pool_s, 2),
        "single runs, s": round(clock_s, 2),
    }


def run_study(
    folder: Path, models: Path, model_id: str, slides: Sequence[Path], *, workers: int, cores: Sequence[int]
) -> tuple[float, float]:
    """Wall-clock seconds of a study from start to end, and seconds of its stages."""
    shutil.rmtree(folder, ignore_errors=True)
    project = Project(folder)
    shutil.copytree(models, project.models_dir)
    manifest = folder / "cohort.csv"
    manifest.write_text("\n".join(["path,slide_id", *(f"{path},{path.stem}" for path in slides)]) + "\n")
    description = AboutStudy(title="", question="How good is it?", cohort=str(manifest))
    protocol = new_protocol(project, "s", description, [model_id])
    protocol.write_text(protocol.read_text().partition("[infer]")[0] + INFER)
    command = [*PROGRAM, "study", "run", "s", "--workers", str(workers), "--project", str(project.root)]
    start = time.perf_counter()
    subprocess.run(
        command, check=True, capture_output=True, preexec_fn=lambda: os.sched_setaffinity(0, cores), env=_environment()
    )
    elapsed = time.perf_counter() - start
    with open_ledger(project) as ledger:
        return elapsed, stages_s(ledger, [path.stem for path in slides])


def stages_s(ledger: Ledger, slide_ids: Sequence[str]) -> float:
    rows: Sequence[Any] = ledger.tasks("s", *slide_ids)
    assert {row.state for row in rows} == {"done"}, [row.message for row in rows]
    return sum(float(row.seconds) for row in rows)


def _environment() -> dict[str, str]:
    """Environment without settings for the number of threads, which the pool sets."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MKL_"))}


if __name__ == "__main__":
    main()

"""Starting training runs as processes of their own: a check first, then one process per rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pipeline import errors
from pipeline.errors import GemslideError

BY_CODE: dict[str, type[GemslideError]] = {kind.code: kind for kind in GemslideError.__subclasses__()}


@dataclass(frozen=True)
class TrainingResult:
    """Model ids of a finished run; best and last are the same when the last epoch was the best."""

    best: str
    last: str


def train(recipe: Path, project: Path, num_ranks: int) -> TrainingResult:
    """Train a recipe and wait for it; its progress goes to this process's standard error.

    Raises:
        GemslideError: with the code of whatever the check before the start found.
        UnreadableError: the run itself failed; its own message stands above.
    """
    _check(recipe, project, num_ranks)
    with tempfile.TemporaryDirectory(prefix="gemslide-") as folder:
        models_json = Path(folder) / "models.json"
        arguments = [str(recipe), "--project", str(project), "--models-json", str(models_json)]
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
        module = ["-m", "training.train"]
        command = [sys.executable, *(launcher if num_ranks > 1 else []), *module, *arguments]
        # torchrun would set one thread and say so in a banner; each rank gets its share of the cores.
        threads = str(max(1, (os.cpu_count() or 1) // num_ranks))
        code = subprocess.run(command, check=False, env={"OMP_NUM_THREADS": threads, **os.environ}).returncode
        if code or not models_json.exists():
            raise errors.UnreadableError(
                f"training {recipe.name} on {num_ranks} ranks ended with exit code {code}; its message stands above, "
                f"its record in {project / 'runs'}. No model package was written."
            )
        return TrainingResult(**json.loads(models_json.read_text(encoding="utf-8")))


def _check(recipe: Path, project: Path, num_ranks: int) -> None:
    command = [sys.executable, "-m", "training.preflight", str(recipe), "--project", str(project)]
    done = subprocess.run([*command, "--nproc", str(num_ranks)], check=False, capture_output=True, text=True)
    try:
        report = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise errors.UnreadableError(f"the check before training failed:\n{done.stderr.strip()}") from error
    if not report["ok"]:
        raise BY_CODE.get(report["code"], errors.BadRecipeError)(report["message"])

"""Other projects' readers for comparison: each in its own environment, with exact versions.

    .venv/bin/python -m benchmarks.others [--folder /tmp/gemslide-others]

TIAToolbox declares 41 packages, among them jupyterlab, bokeh and umap; its reader, PatchPredictor and tile server
import only some of them. So others_tiatoolbox.txt lists those, and torch is linked in from our environment instead of
being downloaded again (ours may be newer than TIAToolbox's bound; both sides of a comparison then compute with the same
version). wsidicomizer is installed completely; it needs the system's libturbojpeg, which on Debian is unpacked into the
folder if missing, without root. Takes 1.9 GB and five minutes, once.

FOLDER/others.json records the installed packages, or the failed command and its last error line. Benchmarks call
`read`, `predict`, `convert` and `tile_server`, which return the JSON line of a run, or the reason why there is none.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes.util import find_library
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = Path("/tmp/gemslide-others")
HOMES = {
    "tiatoolbox": "tiatoolbox",
    "tiatoolbox-tiff": "tiatoolbox",
    "wsidicomizer": "wsidicomizer",
    "wsidicom": "wsidicomizer",
}
"""Environment of each reader of others_read.py."""
CHECKS = {
    "tiatoolbox": (
        ("-c", "import tiatoolbox.wsicore.wsireader"),
        (str(HERE / "others_predict.py"), "--check"),
        (str(HERE / "others_tileserver.py"), "--check"),
    ),
    "wsidicomizer": (("-c", "import wsidicomizer"),),
}
"""Commands that a finished environment's Python must run."""
TORCH_FOLDERS = ("torch", "torchgen", "functorch", "nvidia", "triton")


class InstallError(RuntimeError):
    """A command failed: the command and its last line of output."""


def read(
    reader: str,
    slide: Path,
    corners_xy_px0: Sequence[tuple[int, int]],
    side_px: int,
    *,
    folder: Path = FOLDER,
    cores: int | None = None,
) -> dict[str, Any] | str:
    """Time `reader` on squares of a slide, or of a DICOM folder for "wsidicom"; a reason if it cannot."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as positions:
        json.dump([[int(x), int(y)] for x, y in corners_xy_px0], positions)
        positions.flush()
        arguments = [str(slide), positions.name, str(side_px), "--reader", reader]
        return _run("others_read.py", HOMES[reader], arguments + (["--cores", str(cores)] if cores else []), folder)


def predict(
    slide: Path, weights: Path, output: Path, *, loader_workers: int, pixels: bool = False, folder: Path = FOLDER
) -> dict[str, Any] | str:
    """Time TIAToolbox's PatchPredictor on a slide, results into `output` (see others_predict.py); a reason if not."""
    arguments = [str(slide), str(weights), str(output), "--workers", str(loader_workers)]
    return _run("others_predict.py", "tiatoolbox", arguments + (["--pixels"] if pixels else []), folder)


@contextmanager
def tile_server(slide: Path, *, folder: Path = FOLDER) -> Iterator[dict[str, Any] | str]:
    """Run TIAToolbox's tile server of a slide during the block: {port, levels}; a reason if it cannot."""
    command = _python("tiatoolbox", folder)
    if isinstance(command, str):
        yield command
        return
    python, environment = command
    arguments = [python, "-I", str(HERE / "others_tileserver.py"), str(slide)]
    with (
        tempfile.TemporaryFile("w+") as stderr,
        subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment) as process,
    ):
        try:
            assert process.stdout
            line = process.stdout.readline()
            stderr.seek(0)
            yield json.loads(line) if line else f"failed: {_last_line(stderr.read())}"
        finally:
            process.terminate()


def convert(slide: Path, output: Path, *, folder: Path = FOLDER, workers: int = 2) -> dict[str, Any] | str:
    """Time wsidicomizer from slide to DICOM folder `output`, which must not exist; a reason if it cannot."""
    return _run("others_ingest.py", "wsidicomizer", [str(slide), str(output), "--workers", str(workers)], folder)


def ndpi_tiles(slide: Path, tile_px: int, *, folder: Path = FOLDER) -> dict[str, Any] | str:
    """Time opentile on all tiles of an NDPI's finest level; a reason if it cannot."""
    return _run("others_ndpi.py", "wsidicomizer", [str(slide), "--tile-px", str(tile_px)], folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    folder = parser.parse_args().folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    installed = {name: _install(name, folder) for name in CHECKS}
    (folder / "others.json").write_text(json.dumps(installed, indent=1) + "\n")
    for name, state in installed.items():
        print(name, state.get("reason") or "is installed: " + state["python"])


def _run(script: str, home: str, arguments: list[str], folder: Path) -> dict[str, Any] | str:
    environment_python = _python(home, folder)
    if isinstance(environment_python, str):
        return environment_python
    python, environment = environment_python
    # -I keeps our folder and PYTHONPATH out of the other environment.
    command = [python, "-I", str(HERE / script), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    if run.returncode:
        return f"failed: {_last_line(run.stderr)}"
    line: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return line


def _python(home: str, folder: Path) -> tuple[str, dict[str, str]] | str:
    """Python of an environment and its environment variables; a reason if it is missing."""
    state_file = folder / "others.json"
    if not state_file.exists():
        return f"not installed: no {state_file} (python -m benchmarks.others --folder {folder})"
    state = json.loads(state_file.read_text())[home]
    if "reason" in state:
        return f"not installed: {state['reason']}"
    return state["python"], {**os.environ, **state["environment"]}


def _install(name: str, folder: Path) -> dict[str, Any]:
    """{python, environment} of the finished environment, or {reason}."""
    python = folder / name / "bin" / "python"
    environment: dict[str, str] = {}
    try:
        _command(sys.executable, "-m", "venv", str(folder / name))
        pip = (str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        # The list is complete: --no-deps keeps pip from adding dependencies of the rest of the package.
        _command(*pip, "--no-deps", "-r", str(HERE / f"others_{name}.txt"))
        if name == "tiatoolbox":
            _link_torch(folder / name)
        else:
            environment = _turbojpeg(folder / "libturbojpeg")
        for check in CHECKS[name]:
            _command(str(python), "-I", *check, environment=environment)
    except InstallError as error:
        return {"reason": str(error)}
    return {"python": str(python), "environment": environment}


def _link_torch(home: Path) -> None:
    """Link our torch, and nothing else of our environment, into the other one."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise InstallError("import torch: not found in our environment; TIAToolbox's reader imports it")
    ours = Path(spec.origin).parents[1]
    theirs = next((home / "lib").glob("python*/site-packages"))
    for name in (*TORCH_FOLDERS, f"torch-{version('torch')}.dist-info"):
        link = theirs / name
        if (ours / name).exists() and not link.is_symlink():
            link.symlink_to(ours / name, target_is_directory=True)


def _turbojpeg(folder: Path) -> dict[str, str]:
    """Environment in which opentile finds libturbojpeg; unpacked from Debian's package if the system has none."""
    if find_library("turbojpeg"):
        return {}
    folder.mkdir(exist_ok=True)
    if not list(folder.glob("*.deb")):
        _command("apt-get", "download", "libturbojpeg0", cwd=folder)
    package = next(folder.glob("*.deb"))
    _command("dpkg", "-x", str(package), str(folder))
    return {"TURBOJPEG": str(next(folder.glob("usr/lib/*/libturbojpeg.so.0")))}


def _command(*words: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> None:
    shown = " ".join(words)
    try:
        run = subprocess.run(words, capture_output=True, text=True, cwd=cwd, env={**os.environ, **(environment or {})})
    except FileNotFoundError:
        raise InstallError(f"{shown}: no such command on this machine") from None
    if run.returncode:
        raise InstallError(f"{shown}: {_last_line(run.stderr or run.stdout)}")


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


if __name__ == "__main__":
    main()

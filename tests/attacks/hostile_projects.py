"""Projects from outside with wrong file types, pipes, loops or devices in place of a slide's files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.inference.results.hotspots import MAX_STORED
from pipeline.project import Project
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID

Damage = Callable[[Project], None]

MARKDOWN = "![x](http://127.0.0.1:9/leak.png)"
DEEP = "[" * 100_000
DIGITS = "9" * 5_000


def _store(project: Project) -> Path:
    return project.store_path(SLIDE_ID)


def _predictions(project: Project) -> Path:
    return _store(project) / "predictions" / MODEL_ID


def _hotspots(project: Project) -> Path:
    return project.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json"


def _listed(spots: list[Any]) -> str:
    return json.dumps({"threshold": 0.5, "hotspots": spots})


PLACES: dict[str, Callable[[Project], Path]] = {
    "root": lambda project: _store(project) / "zarr.json",
    "level": lambda project: _store(project) / "0" / "1" / "zarr.json",
    "shard": lambda project: _store(project) / "0" / "1" / "c" / "0" / "0" / "0",
    "tissue": lambda project: _store(project) / "0" / "labels" / "tissue" / "zarr.json",
    "mask": lambda project: _store(project) / "0" / "labels" / "tissue" / "0" / "zarr.json",
    "mask's chunk": lambda project: _store(project) / "0" / "labels" / "tissue" / "0" / "c" / "0" / "0",
    "predictions": lambda project: _predictions(project) / "zarr.json",
    "map": lambda project: _predictions(project) / "0" / "zarr.json",
    "map's chunk": lambda project: _predictions(project) / "0" / "c" / "0" / "0" / "0",
    "hotspots": _hotspots,
}


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(2**27)


KINDS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a loop": lambda path: path.symlink_to(path),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "128 MB of zeros": _sparse,
    "empty": lambda path: path.write_bytes(b""),
    "not UTF-8": lambda path: path.write_bytes(b'"\xff\xfe'),
}

TEXTS = ("{", "null", "[]", "{}", '["a"]', "[{}]", "3", DEEP, DIGITS, '"\\ud800"')


def _put(place: Callable[[Project], Path], kind: Callable[[Path], object]) -> Damage:
    def damage(project: Project) -> None:
        path = place(project)
        _remove(path)
        kind(path)

    return damage


def _write(place: Callable[[Project], Path], text: str) -> Damage:
    return _put(place, lambda path: path.write_text(text))


def _set(place: Callable[[Project], Path], keys: str, value: Any) -> Damage:
    """Set one entry of gemslide's attributes in a `zarr.json`; keys are separated by dots."""

    def damage(project: Project) -> None:
        path = place(project)
        content = json.loads(path.read_text())
        *parents, last = keys.split(".")
        entry = content["attributes"]["gemslide"]
        for key in parents:
            entry = entry[int(key) if key.isdecimal() else key]
        entry[last] = value
        path.write_text(json.dumps(content))

    return damage


ROOT_FIELDS: tuple[tuple[str, Any], ...] = (
    ("slide_id", 5), ("slide_id", None), ("slide_id", ""), ("slide_id", "S-002"), ("slide_id", "../S-002"),
    ("slide_id", MARKDOWN), ("slide_id", "x" * 10**6), ("slide_id", ["S-001"]), ("slide_id", "S-001\n"),
    ("mpp0", "x"), ("mpp0", None), ("mpp0", float("nan")), ("mpp0", float("inf")), ("mpp0", 0), ("mpp0", -1),
    ("mpp0", 1e308), ("mpp0", []), ("levels", None), ("levels", []), ("levels", {}), ("levels", "x"),
    ("levels", [None]), ("levels", [{}]), ("levels.0.path", "../../S-002.ome.zarr/0/0"), ("levels.0.path", "/etc"),
    ("levels.0.path", 5), ("levels.0.path", ""), ("levels.0.downsample", 0), ("levels.0.downsample", -1),
    ("levels.1.downsample", float("nan")), ("levels.1.downsample", "x"), ("contract_version", 99),
    ("contract_version", None), ("contract_version", {}), ("contract_version", MARKDOWN), ("source", None),
    ("source", {}), ("source", []), ("icc", "!!!"), ("icc", 5),
)  # fmt: skip

PREDICTIONS_FIELDS: tuple[tuple[str, Any], ...] = (
    ("class_names", []), ("class_names", 5), ("class_names", [None]), ("class_names", ["a"]),
    ("class_names", ["a"] * 9),
    ("stride_px0", 0), ("stride_px0", float("nan")), ("stride_px0", "x"), ("stride_px0", -1), ("side_px0", None),
    ("model_id", "other"), ("made_from", {"source_sha256": "0" * 64}),
)  # fmt: skip

SPOT = {"x_px0": 480, "y_px0": 864, "area_um2": 1.0, "score": 0.5, "class": "positive"}
SPOTS: tuple[Any, ...] = (
    "a", None, 5, [SPOT], {}, {**SPOT, "score": float("nan")}, {**SPOT, "score": "x"}, {**SPOT, "score": 5},
    {**SPOT, "class": 5}, {**SPOT, "x_px0": None}, {**SPOT, "x_px0": -5}, {**SPOT, "y_px0": 1e300},
    {**SPOT, "area_um2": float("inf")}, {**SPOT, "class": "x" * 10**6},
)  # fmt: skip

NAMES = ("a model", MARKDOWN.replace("/", "\\"), "line\nbreak", "x" * 200, "…", "\udcff", "-", "a*b")
"""Folder names with blanks, Markdown, or bytes that are not UTF-8."""


def _beside(name: str) -> Damage:
    """Add predictions and results under a name that no model can have."""

    def damage(project: Project) -> None:
        shutil.copytree(_predictions(project), _predictions(project).with_name(name))
        shutil.copytree(project.results_dir / MODEL_ID, project.results_dir / name)

    return damage


def _another_slide(name: str, kind: Callable[[Path], object]) -> Damage:
    def damage(project: Project) -> None:
        kind(project.slides_dir / f"{name}.ome.zarr")

    return damage


def variants() -> dict[str, Damage]:
    """Every way to damage the small project's slide, by description."""
    damages: dict[str, Damage] = {}
    for name, place in PLACES.items():
        damages |= {f"{name}: {kind}": _put(place, make) for kind, make in KINDS.items()}
    for name in ("root", "level", "tissue", "predictions", "hotspots"):
        damages |= {f"{name}: {text[:9]}": _write(PLACES[name], text) for text in TEXTS}
    damages |= {f"root: {key} = {value!r:.40}": _set(PLACES["root"], key, value) for key, value in ROOT_FIELDS}
    damages |= {
        f"predictions: {key} = {value!r:.40}": _set(PLACES["predictions"], key, value)
        for key, value in PREDICTIONS_FIELDS
    }
    damages |= {f"hotspots: spot {spot!r:.90}": _write(_hotspots, _listed([spot])) for spot in SPOTS}
    damages["hotspots: very many"] = _write(_hotspots, _listed([SPOT] * (MAX_STORED + 1)))
    damages |= {f"a model called {name[:20]!r}": _beside(name) for name in NAMES}
    damages |= {f"a slide called {name[:20]!r}": _another_slide(name, Path.mkdir) for name in NAMES}
    for kind in ("a pipe", "a loop", "empty"):
        damages[f"a slide that is {kind}"] = _another_slide("S-003", KINDS[kind])
        damages[f"predictions that are {kind}"] = _put(lambda project: _predictions(project).parent, KINDS[kind])
        damages[f"a model that is {kind}"] = _put(_predictions, KINDS[kind])
        damages[f"results that are {kind}"] = _put(lambda project: project.results_dir, KINDS[kind])
        damages[f"a slide's results that are {kind}"] = _put(lambda p: _hotspots(p).parent, KINDS[kind])
    return damages

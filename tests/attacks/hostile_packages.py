"""Hostile model packages: every one is refused with a message, within seconds, before a network is built.

`python -m tests.attacks.hostile_packages`: every listed change of an honest package, and `--times` random ones.
"""

from __future__ import annotations

import copy
import json
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import save

from tests.attacks.attack import Result, main
from tests.attacks.killed_writers import package_content
from training.foundation.errors import UnreadableError
from training.inference import Classifier
from training.models.resnet_v2 import resnet_v2
from training.packages.write import write_packages

ABSENT = object()
ODD: tuple[Any, ...] = (
    None, "", "x" * 300, -1, 0, 1e308, float("nan"), 10**30, True, [], {}, [[]], ["a"], {"a": 1}, "\ud800", "../..",
    ABSENT,
)  # fmt: skip
"""Values that no key of a package may hold, except where `_may_be` allows them."""

KEYS: tuple[tuple[str, ...], ...] = (
    ("spec_version",), ("num_classes",), ("patch_size_pixels",), ("spacing_um_px",), ("class_names",), ("gemslide",),
    ("gemslide", "model"), ("gemslide", "model", "name"), ("gemslide", "model", "depth"),
    ("gemslide", "model", "num_classes"), ("gemslide", "model", "variant"), ("gemslide", "model", "norm"),
    ("gemslide", "statistics"), ("gemslide", "statistics", "mean"), ("gemslide", "statistics", "std"),
    ("gemslide", "stain"), ("gemslide", "split_sha256"), ("gemslide", "weights_sha256"),
)  # fmt: skip
QUOTED: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("gemslide", "model", "depth"), 9_000_000_002),
    (("gemslide", "model", "depth"), 1001),
    (("gemslide", "model", "depth"), 12),
    (("gemslide", "model", "num_classes"), 3),
    (("num_classes",), 3),
    (("class_names",), ["a", "b", "c"]),
    (("class_names",), ["a", "a"]),
    (("class_names",), ["a", " "]),
    (("class_names",), ["a", "b\x1b[31m"]),
    (("class_names",), ["a", "b" * 300]),
    (("gemslide", "statistics", "std"), [0.2]),
    (("gemslide", "statistics", "std"), [0.2, 0.2, 0.0]),
    (("gemslide", "statistics", "mean"), [0.2, 0.2, 2.0]),
    (("patch_size_pixels",), 2**31),
    (("spacing_um_px",), 0),
    (("spacing_um_px",), 1e9),
    (("gemslide", "model", "variant"), "gems-public"),
    (("gemslide", "weights_sha256"), "0" * 64),
    (("gemslide", "stain"), {"method": "macenko"}),
    (("gemslide", "stain"), {"method": "none", "target": {}}),
    (("gemslide", "stain"), {"method": "reinhard", "target": {"mean": "x"}}),
    (("gemslide", "runtime"), "onnx"),
    (("gemslide", "runtime"), "torchscript"),
    (("gemslide", "runtime"), "entry-point"),
    (("gemslide", "runtime"), "pickle"),
    (("gemslide", "outputs"), "votes"),
    (("gemslide", "entry_point"), {"name": "a"}),
    (("gemslide", "trust"), {"sha256": "x", "utc": ""}),
    (("gemslide", "focus"), {"median": 1e9, "spread": 1.0, "tiles": 1}),
    (("gemslide", "focus"), {"median": 1.0, "spread": -1.0, "tiles": 1}),
    (("gemslide", "data"), {"tile_set": "t", "by_split": {"elsewhere": {}}, "scanners": {}}),
)


def honest_package(models: Path) -> Path:
    state = resnet_v2(depth=11, num_classes=2).state_dict()
    (model_id,) = set(write_packages(models, [(state, package_content("best", 1))]))
    return models / model_id


def _may_be(key: tuple[str, ...], value: object) -> bool:
    """Whether a value is harmless: a key with a default, no stain, or free text."""
    if key[-1] == "stain":
        return value in (None, ABSENT)
    if key[-1] == "split_sha256":
        return isinstance(value, str) and len(value) <= 64
    return value is ABSENT and key[-1] in ("name", "variant", "norm")


def _changes() -> Iterator[tuple[str, tuple[str, ...], Any]]:
    for key, value in QUOTED:
        yield f"{'.'.join(key)} = {value!r:.60}", key, value
    for key in KEYS:
        for value in ODD:
            if not _may_be(key, value):
                yield f"{'.'.join(key)} = {'absent' if value is ABSENT else repr(value)[:60]}", key, value


def _changed(config: dict[str, Any], key: tuple[str, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    part = changed
    for name in key[:-1]:
        part = part[name]
    if value is ABSENT:
        del part[key[-1]]
    else:
        part[key[-1]] = value
    return changed


def _raw_files(honest: bytes) -> Iterator[tuple[str, bytes | None]]:
    """Whole config.json files; None: a named pipe."""
    yield "empty", b""
    yield "no JSON", b"{"
    yield "a list", b"[]"
    yield "deep", b'{"a":' * 200_000
    yield "digits", b'{"num_classes": ' + b"9" * 5000 + b"}"
    yield "not UTF-8", b'{"a": "\xff"}'
    yield "long", honest + b" " * 2**21
    yield "a pipe", None


def attack(times: int, seed: int) -> Result:
    """Apply every listed damage, and `times` random ones."""
    result, chance = Result("hostile model packages"), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        package = honest_package(Path(folder))
        Classifier.load(package)  # the honest package opens
        path, honest = package / "config.json", (package / "config.json").read_bytes()
        for what, key, value in _changes():
            path.write_text(json.dumps(_changed(json.loads(honest), key, value)), encoding="utf-8")
            _expect_refusal(result, what, package)
        for what, data in _raw_files(honest):
            path.unlink()
            if data is None:
                os.mkfifo(path)
            else:
                path.write_bytes(data)
            _expect_refusal(result, f"config.json: {what}", package)
        path.unlink()
        path.write_bytes(honest)
        _attack_weights(result, package, chance, times)
    return result


def _attack_weights(result: Result, package: Path, chance: random.Random, times: int) -> None:
    path = package / "model.safetensors"
    honest = path.read_bytes()
    others = save(resnet_v2(depth=11, num_classes=2).state_dict())
    for what, data in (("of another training", others), ("cut short", honest[:-1]), ("longer", honest + b"\0")):
        path.write_bytes(data)
        _expect_refusal(result, f"weights {what}", package)
    for number in range(times):
        damaged = bytearray(honest)
        at = chance.randrange(len(damaged)) if number % 2 else chance.randrange(2000)
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        _expect_refusal(result, f"weights with a flipped bit at {at}", package)
    path.write_bytes(honest)
    renamed = package.rename(package.with_name("r-00000000"))
    _expect_refusal(result, "a package under another id", renamed)


def _expect_refusal(result: Result, what: str, package: Path) -> None:
    result.expect_refusal(what, lambda: Classifier.load(package), UnreadableError)


if __name__ == "__main__":
    main(attack, times=64)

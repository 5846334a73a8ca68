"""Comparison of two models or runs: their differences, and whether these explain different weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

from pipeline.files import sha256_of
from pipeline.naming.models import did_you_mean
from pipeline.project import Project
from training.foundation.errors import UnreadableError
from training.foundation.model_files import weights_file
from training.foundation.reading import read_json_file
from training.foundation.tile_read import UNSTATED
from training.foundation.words.names import comparable, is_name

PARTS = ("settings", "inputs", "training", "arithmetic", "versions", "prediction", "weights", "metrics")
ABSENT = "not known"
NONE = "none"
"""Value of what a package could have, and has not, as a stain normalisation."""

_SPREAD = {f"parallel.{key}" for key in ("strategy", "num_stages", "recompute", "balance", "timeout_s")}
"""Settings that spread work over ranks. Weights do not depend on them (docs/explanation/engine.md)."""
_SHARES = {"parallel.num_microbatches", "parallel.data_parallel"}
"""Weights do not depend on these two either, as long as their product, and thus the batch, is the same."""
_NAMES = {"data.tile_set"}
"""Settings that only name an input; inputs are compared by hash."""

Facts = dict[str, dict[str, Any]]
"""By part, then by key."""


@dataclass(frozen=True)
class Difference:
    """A key whose values differ; `ABSENT` if one side does not state it, `NONE` if its package does without it."""

    part: str
    key: str
    a: Any
    b: Any


@dataclass(frozen=True)
class Comparison:
    """Comparison of two models or runs."""

    a: str
    b: str
    differences: list[Difference]
    weights_equal: bool | None
    """None: one of them has no weights."""
    conclusion: str


def compare(a: str, b: str, project: Project) -> Comparison:
    """Compare two models or runs.

    Args:
        a, b: a model id, a package's folder, a run id, or a run record's file.

    Raises:
        UnreadableError: no such model or run, or it is damaged.
    """
    one, other = facts_of(a, project), facts_of(b, project)
    differences = list(_differences(one, other))
    sums = [facts["weights"].get("sha256") for facts in (one, other)]
    equal = sums[0] == sums[1] if all(sums) else None
    runs = [facts["run"].get("id") for facts in (one, other)]
    of_one_run = runs[0] == runs[1] and runs[0] is not None
    return Comparison(a, b, differences, equal, _conclusion(equal, differences, of_one_run=of_one_run))


def facts_of(name: str, project: Project) -> Facts:
    """All known facts about a model or a run.

    Raises:
        UnreadableError: no such model or run, or it is damaged.
    """
    path = Path(name)
    if path.is_file():
        return _run_facts(_read(path), path.absolute().parent.parent)
    if (path / "config.json").is_file():
        return _package_facts(path.resolve())
    if is_name(name) and (project.model_path(name) / "config.json").is_file():
        return _package_facts(project.model_path(name))
    if is_name(name) and (record := project.runs_dir / f"{name}.json").is_file():
        return _run_facts(_read(record), project.root)
    known = [p.name for p in project.models_dir.glob("[!.]*")] + [p.stem for p in project.runs_dir.glob("[!.]*.json")]
    raise UnreadableError(
        f"{name}: no such model in {project.models_dir} and no such run in {project.runs_dir}. "
        f"{did_you_mean(name, sorted(known))} You can also name a package's folder or a run record's file."
    )


def _run_facts(record: dict[str, Any], root: Path) -> Facts:
    """Facts of a run: a training run has its best model's weights and metrics; other runs have none."""
    best = _table(record, "models").get("best")
    package = root / "models" / best if isinstance(best, str) and is_name(best) else None
    if package is None or not package.is_dir():
        return _facts(record, weights={"model": package.name} if package else {}, metrics={}, config={})
    weights, metrics = _results(package)
    return _facts(record, weights=weights, metrics=metrics, config=_read(package / "config.json"))


def _package_facts(package: Path) -> Facts:
    """Facts of a package, and of its run's record if the project has it."""
    config = _read(package / "config.json")
    ours = _table(config, "gemslide")
    weights, metrics = _results(package)
    run_id = ours.get("run_id")
    record_path = package.parent.parent / "runs" / f"{run_id}.json"
    if isinstance(run_id, str) and is_name(run_id) and record_path.is_file():
        return _facts(_read(record_path), weights=weights, metrics=metrics, config=config)
    known = {
        "inputs": [{"id": "tiles", "sha256": ours.get("split_sha256")}],
        "threads": ours.get("threads"),
        "isa": ours.get("isa"),
    }
    return _facts(known, weights=weights, metrics=metrics, config=config)


def _facts(
    record: Mapping[str, Any], *, weights: dict[str, Any], metrics: dict[str, Any], config: Mapping[str, Any]
) -> Facts:
    """Facts by part; the part `run` is not compared.

    Args:
        config: the package's `config.json`, whose `model` overrides the record's; empty if there is no package.
    """
    ours = _table(config, "gemslide")
    settings = dict(_flat(_table(record, "settings"))) | dict(_flat(_table(ours, "model"), "model."))
    in_settings = settings.pop("train.threads", None)
    threads = record.get("threads") or in_settings
    arithmetic = {"threads": threads, "isa": record.get("isa"), "machine": _table(record, "host").get("machine")}
    inputs = [entry for entry in record.get("inputs") or [] if isinstance(entry, dict)]
    return {
        "settings": settings,
        # By hash: the names of tile sets and slides do not matter.
        "inputs": {"sha256": sorted(str(entry.get("sha256")) for entry in inputs)} if inputs else {},
        # One run makes a package for each epoch worth keeping.
        "training": {"epoch": ours["epoch"]} if isinstance(ours.get("epoch"), int) else {},
        "run": {"id": ours["run_id"]} if isinstance(ours.get("run_id"), str) else {},
        "arithmetic": {key: value for key, value in arithmetic.items() if value is not None},
        "versions": dict(_flat(_table(record, "versions"))),
        "prediction": _prediction(config) if config else {},
        "weights": weights,
        "metrics": metrics,
    }


def _prediction(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a package says of its predictions, besides the network's weights and `model`.

    `transform` is what other programs normalise by, `statistics` what gemslide does.
    """
    ours = _table(config, "gemslide")
    names = config.get("class_names")
    outputs = "probabilities" if _table(ours, "model").get("variant") == "gems-public" else "logits"
    facts = {
        "class_names": [comparable(str(name)) for name in names] if isinstance(names, list) else names,
        "spacing_um_px": config.get("spacing_um_px"),
        "patch_size_pixels": config.get("patch_size_pixels"),
        "transform": config.get("transform"),
        "runtime": ours.get("runtime") or "torch",
        "outputs": ours.get("outputs") or outputs,
        "statistics": ours.get("statistics"),
        "stain": ours.get("stain"),
        "read": ours.get("read", UNSTATED) or ABSENT,
        "entry_point": ours.get("entry_point"),
    }
    return {key: value for key, value in _flat(facts) if value is not None}


def _results(package: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Hash of the weights, and metrics."""
    try:
        sha256 = sha256_of(weights := weights_file(package))
    except OSError as error:
        raise UnreadableError(f"{weights}: {error.strerror}. Copy the package again.") from error
    return {"sha256": sha256}, dict(_flat(_read(package / "metrics.json")))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_json_file(path)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: cannot be read ({error}). Copy it again.") from error
    if not isinstance(content, dict):
        raise UnreadableError(f"{path}: is neither a run record nor part of a model package.")
    return content


def _table(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key)
    return value if isinstance(value, dict) else {}


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables as dotted keys; tables in a list are counted from 1."""
    for key, value in table.items():
        inner = value
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            inner = {str(number): item for number, item in enumerate(value, start=1)}
        if isinstance(inner, dict) and inner:
            yield from _flat(inner, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _differences(one: Facts, other: Facts) -> Iterator[Difference]:
    for part in PARTS:
        absent = NONE if part == "prediction" and one[part] and other[part] else ABSENT
        for key in dict.fromkeys(chain(one[part], other[part])):
            a, b = (facts[part].get(key, absent) for facts in (one, other))
            if a != b:
                yield Difference(part, key, a, b)


def _conclusion(weights_equal: bool | None, differences: list[Difference], *, of_one_run: bool) -> str:
    if weights_equal is None:
        return "There are no two sets of weights to compare."
    if weights_equal:
        return "The weights are the same, byte for byte" + _but_predict_otherwise(differences)
    epochs = next((item for item in differences if item.part == "training"), None)
    if of_one_run and epochs is not None:
        return f"The weights differ because they are from two epochs of one run: {epochs.a} and {epochs.b}."
    decisive = list(_decisive(differences))
    stated = [item for item in decisive if ABSENT not in (item.a, item.b)]
    work = [item for item in stated if item.part in ("settings", "inputs", "training")]
    if work:
        return f"The weights differ because the runs do: {_named(work)}."
    unstated = [item for item in decisive if item not in stated]
    unknown = f" Unknown for one of them: {_keys(unstated)}." if unstated else ""
    if any(item.part in ("settings", "inputs") for item in unstated):
        return f"The weights differ, and it is unknown whether settings and inputs do.{unknown}"
    if stated:
        return f"The weights differ with the same settings and inputs. This is explained by {_named(stated)}.{unknown}"
    return (
        f"The weights differ with the same settings and inputs, and no recorded fact explains it.{unknown} "
        "GPU kernels that add in no fixed order would."
    )


def _but_predict_otherwise(differences: list[Difference]) -> str:
    """The end of a sentence about equal weights: what makes their predictions differ nonetheless, if anything does."""
    deciding = [
        item
        for item in differences
        if item.part == "prediction" or (item.part == "settings" and item.key.startswith("model."))
    ]
    return f", but predictions may differ, as these do: {_keys(deciding)}." if deciding else "."


def _decisive(differences: list[Difference]) -> Iterator[Difference]:
    """Differences that can change weights."""
    shares = [item for item in differences if item.key in _SHARES]
    batch_is_same = len(shares) == len(_SHARES) and prod(_whole(shares, "a")) == prod(_whole(shares, "b"))
    for item in differences:
        if item.key in _NAMES:
            continue
        is_spread = item.key.startswith(tuple(_SPREAD)) or (item.key in _SHARES and batch_is_same)
        if item.part in ("settings", "inputs", "training", "arithmetic", "versions") and not is_spread:
            yield item


def _whole(differences: list[Difference], side: str) -> Iterator[int]:
    for item in differences:
        value = getattr(item, side)
        yield value if isinstance(value, int) else 0


def _named(differences: list[Difference]) -> str:
    first = (f"{item.key} ({shown(item.a)} and {shown(item.b)})" for item in differences[:5])
    return ", ".join(first) + _more(differences)


def _keys(differences: list[Difference]) -> str:
    return ", ".join(item.key for item in differences[:5]) + _more(differences)


def _more(differences: list[Difference]) -> str:
    return f" and {len(differences) - 5} more" if len(differences) > 5 else ""


def shown(value: Any) -> str:
    """A value as shown in a table, with hashes shortened."""
    if isinstance(value, list):
        return ", ".join(map(shown, value)) or "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return f"{text[:12]}…" if len(text) == 64 else text[:60]

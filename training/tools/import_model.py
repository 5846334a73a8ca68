"""`python -m training.tools.import_model SOURCE --models FOLDER`: a model from elsewhere as a package of ours.

Reports the result in one JSON line on standard output.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from training.foundation.errors import BadRecipeError, UnreadableError
from training.foundation.model_files import WEIGHTS_FILES
from training.foundation.publish import SHORT_WRITE_S, new_folder
from training.foundation.reading import read_json_file, read_regular
from training.foundation.tile_read import UNSTATED, TileRead
from training.foundation.trusted import trust
from training.models.build import Outputs
from training.networks.entry_points import build_from_entry_point
from training.networks.probe import are_probabilities, probe, probe_images, run
from training.packages.card import CardContent
from training.packages.config import PackageConfig, explained
from training.packages.files import write_package_files, wsinfer_config
from training.packages.metrics import NO_METRICS, Metrics, read_metrics
from training.packages.network import blocks_network, open_weights, put_weights
from training.tools.import_source import Source, find_import_source
from training.tools.json_process import reply

MAX_METRICS_BYTES = 2**16
WSINFER_READS: TileRead = "finest"
"""WSInfer reads every patch from level 0."""


@dataclass(frozen=True)
class _Weights:
    """Bytes of a file and their hash: what was hashed is what runs."""

    data: bytes
    sha256: str


def import_model(
    source: Source, models_dir: Path, *, trusted_sha256: str | None = None, outputs: Outputs | None = None
) -> dict[str, Any]:
    """Write `models/<name>-<8 hex>/` with a model from elsewhere, after a trial run on probe images.

    Args:
        trusted_sha256: the file that the user vouches for; required if loading runs code, checked for every kind.
        outputs: the network's kind of output; None to determine it by running it.

    Raises:
        GemslideError: it cannot be read, does not fit its description, is not trusted, or is in the project already
            with another description.
    """
    weights = _read(source.weights)
    _check_trust(source, weights, trusted_sha256)
    draft = _config(source, weights, outputs or "logits")
    network = _network(source, weights, draft)
    where, tile_px, num_classes = str(source.weights), draft.patch_size_pixels, draft.num_classes
    given = outputs or _detect_outputs(network, where, tile_px)
    probe(network, where, tile_px=tile_px, num_classes=num_classes, outputs=given)
    model_id = f"{source.name}-{weights.sha256[:8]}"
    raw = _raw_config(source, weights, given)
    is_there = _is_imported(models_dir / model_id, raw)
    if not is_there:
        _write(models_dir / model_id, source, weights, raw)
    return {
        "model_id": model_id, "already_there": is_there, "runtime": source.runtime, "outputs": given,
        "class_names": list(draft.class_names), "tile_px": tile_px, "mpp": draft.spacing_um_px,
        "sha256": weights.sha256, "trust": raw["gemslide"]["trust"],
        "entry_point": source.entry_point.value if source.entry_point else None,
    }  # fmt: skip


def _read(path: Path) -> _Weights:
    try:
        data = read_regular(path, max_bytes=path.stat().st_size)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}. Name a file that you can read.") from error
    return _Weights(data, hashlib.sha256(data).hexdigest())


def _check_trust(source: Source, weights: _Weights, given: str | None) -> None:
    if given is not None and given.strip().lower() != weights.sha256:
        raise BadRecipeError(
            f"--trust {given[:80]}: {source.weights} has the SHA-256 {weights.sha256}. It is not the file "
            "whose SHA-256 you were given, or it was damaged in transit; none of its code was run."
        )
    if source.runtime == "torchscript" and given is not None:
        trust(weights.sha256)


def _network(source: Source, weights: _Weights, config: PackageConfig) -> torch.nn.Module:
    where = str(source.weights)
    if source.runtime in ("onnx", "torchscript"):
        return open_weights(weights.data, weights.sha256, config, where)
    if source.entry_point is not None:
        network = build_from_entry_point(
            source.entry_point, where, value=None, num_classes=config.num_classes, tile_px=config.patch_size_pixels
        )
    else:
        network = blocks_network(source.weights.parent, config, len(weights.data))
    put_weights(network, weights.data, where)
    return network


def _detect_outputs(network: torch.nn.Module, where: str, tile_px: int) -> Outputs:
    """Kind of output, from three different images: it is no accident if the numbers of each sum to 1."""
    given = run(network, probe_images(tile_px), where)
    return "probabilities" if given.ndim == 2 and are_probabilities(given) else "logits"


def _config(source: Source, weights: _Weights, outputs: Outputs) -> PackageConfig:
    """The configuration as it will be read.

    Raises:
        UnreadableError: values that no package of gemslide has.
    """
    try:
        return PackageConfig.model_validate(_raw_config(source, weights, outputs))
    except ValidationError as error:
        raise UnreadableError(f"{source.weights.parent}/config.json: {explained(error)}.") from error


def _raw_config(source: Source, weights: _Weights, outputs: Outputs) -> dict[str, Any]:
    described, entry = source.described, source.entry_point
    runs_code = source.runtime == "torchscript"
    ours = {
        # Entries that gemslide wrote for a model of its own come first, and are checked like everything else.
        "model": None, "stain": None, "split_sha256": "", "hues": None, "focus": None, "data": None,
        "read": UNSTATED if described.gemslide else WSINFER_READS,
        **described.gemslide,
        "runtime": source.runtime,
        "outputs": outputs,
        "statistics": {"mean": described.mean, "std": described.std},
        "class_order": list(described.class_names),
        "weights_sha256": weights.sha256,
        "files": {},
        "entry_point": _entry_facts(source) if entry else None,
        "trust": {"sha256": weights.sha256, "utc": _now()} if runs_code else None,
        "imported": {"file": WEIGHTS_FILES[source.runtime], "architecture": described.architecture},
    }  # fmt: skip
    wsinfer = wsinfer_config(
        architecture=described.architecture or source.name, class_names=described.class_names,
        tile_px=described.tile_px, mpp=described.mpp, mean=described.mean, std=described.std,
    )  # fmt: skip
    return {**wsinfer, "gemslide": ours}


def _entry_facts(source: Source) -> dict[str, Any]:
    entry = source.entry_point
    assert entry is not None
    return {
        "name": entry.name,
        "value": entry.value,
        "distribution": entry.dist.name if entry.dist else None,
        "version": entry.dist.version if entry.dist else None,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _is_imported(folder: Path, raw: dict[str, Any]) -> bool:
    """Whether the project already has this model.

    Raises:
        BadRecipeError: it has these weights under this name with another description.
    """
    if not folder.exists():
        return False
    try:
        existing = read_json_file(folder / "config.json")
    except (OSError, ValueError):
        existing = None
    if isinstance(existing, dict) and _without_time(existing) == _without_time(raw):
        return True
    raise BadRecipeError(
        f"{folder}: this project already has these weights under this name, but with another description. Nothing was "
        "changed: use it as it is, give the imported one another `--name`, or remove the folder first."
    )


def _without_time(config: dict[str, Any]) -> dict[str, Any]:
    """Part of a config that affects a model's results."""
    ours = config.get("gemslide")
    kept = ("runtime", "outputs", "model", "statistics", "stain", "read", "weights_sha256", "entry_point")
    decisive = {key: ours.get(key) for key in kept} if isinstance(ours, dict) else {}
    wsinfer = {key: value for key, value in config.items() if key not in ("gemslide", "architecture")}
    return {**wsinfer, "gemslide": decisive}


def _write(folder: Path, source: Source, weights: _Weights, raw: dict[str, Any]) -> None:
    metrics = _metrics(source)
    card = _card_content(folder.name, source, weights, raw, metrics)
    with new_folder(folder, wait_s=SHORT_WRITE_S) as partial:
        write_package_files(
            partial, {WEIGHTS_FILES[source.runtime]: weights.data}, config=raw, metrics=metrics, card=card
        )


def _metrics(source: Source) -> Metrics:
    """Figures that gemslide wrote beside a model of its own; none for others."""
    path = source.weights.parent / "metrics.json"
    return read_metrics(path) if source.described.gemslide and path.exists() else NO_METRICS


def _card_content(
    model_id: str, source: Source, weights: _Weights, raw: dict[str, Any], metrics: Metrics
) -> CardContent:
    described = source.described
    config = PackageConfig.model_validate(raw).gemslide
    network = described.architecture or "not named"
    vouched = " Loading it runs code; the user who imported it vouched for that file." if config.trust else ""
    by = f" by {source.entry_point.value}" if source.entry_point else ""
    return CardContent(
        model_id=model_id,
        network=f"{network}, run as {source.runtime}{by}",
        class_names=described.class_names,
        tile_px=described.tile_px,
        mpp=described.mpp,
        stain=config.stain.method if config.stain else None,
        read=config.read,
        data=config.data.facts() if config.data else None,
        split_sha256=config.split_sha256,
        metrics=metrics.figures,
        intervals=metrics.intervals,
        trained=[
            f"Imported with `gemslide model import`; the file `{source.weights.name}` has the SHA-256 "
            f"`{weights.sha256}`." + vouched,
            "Its training data and figures are as stated by its source.",
        ],
    )


def _limit_memory() -> None:
    """Make a file that needs more memory than the computer has fail here, not the programs beside it.

    Linux only: elsewhere the addresses already in use are unknown.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # CUDA reserves more addresses than that; the probe is small
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return
    used_bytes = int(statm.read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    most = used_bytes + os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m training.tools.import_model")
    parser.add_argument("source", type=Path)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--name")
    parser.add_argument("--trust")
    parser.add_argument("--entry-point")
    parser.add_argument("--outputs", choices=("logits", "probabilities"))
    arguments = parser.parse_args()
    _limit_memory()

    def work() -> dict[str, Any]:
        source = find_import_source(
            arguments.source, config=arguments.config, name=arguments.name, entry_point=arguments.entry_point
        )
        return import_model(source, arguments.models, trusted_sha256=arguments.trust, outputs=arguments.outputs)

    return reply(work)


if __name__ == "__main__":
    sys.exit(main())

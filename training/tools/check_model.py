"""`python -m training.tools.check_model PACKAGE`: is this package complete, and does its network work as described?

Reports the result in one JSON line on standard output.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path
from typing import Any

from training.foundation.errors import UnreadableError
from training.foundation.reading import read_regular
from training.networks.probe import probe
from training.packages.config import PackageConfig, read_package_config
from training.packages.metrics import read_metrics
from training.packages.network import trained_network
from training.tools.json_process import reply


def check_package(package: Path) -> dict[str, Any]:
    """Open a package and run its network on probe images.

    Returns:
        its description, and what was checked.

    Raises:
        GemslideError: it is damaged, inconsistent or not trusted, or its network gives implausible outputs.
    """
    package = package.resolve()
    config = read_package_config(package)
    ours = config.gemslide
    network, sha256 = trained_network(package, config)
    probe(network, str(package), tile_px=config.patch_size_pixels, num_classes=config.num_classes, outputs=ours.gives)
    metrics = read_metrics(package / "metrics.json")
    return {
        "model_id": package.name, "runtime": ours.runtime, "outputs": ours.gives, "class_names": config.class_names,
        "tile_px": config.patch_size_pixels, "mpp": config.spacing_um_px, "sha256": sha256,
        "trust": ours.trust.model_dump() if ours.trust else None,
        "entry_point": ours.entry_point.value if ours.entry_point else None,
        "read": ours.read,
        "stain": ours.stain.method if ours.stain else None, "knows_hues": ours.hues is not None,
        "knows_focus": ours.focus is not None, "metrics": dict(metrics.figures),
        "checked": _checked(package, config),
    }  # fmt: skip


def _checked(package: Path, config: PackageConfig) -> list[str]:
    """Hash the files beside the weights and list all checks made, for people.

    Raises:
        UnreadableError: one of them is missing, or is not the file in `config.json`.
    """
    done = ["config.json", "SHA-256 of the weights", "one run on probe images", "metrics.json"]
    for name, wanted in config.gemslide.files.items():
        path = package / Path(name).name
        try:
            actual = hashlib.sha256(read_regular(path, max_bytes=path.stat().st_size)).hexdigest()
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror}. Copy the package again.") from error
        if actual != wanted:
            raise UnreadableError(
                f"{path}: has the SHA-256 {actual}, but config.json says {wanted}. Copy the package again."
            )
        done.append(f"SHA-256 of {path.name}")
    return done


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m training.tools.check_model")
    parser.add_argument("package", type=Path)
    arguments = parser.parse_args()
    return reply(lambda: check_package(arguments.package))


if __name__ == "__main__":
    sys.exit(main())

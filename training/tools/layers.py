"""ParaDL projections: `python -m training.tools.layers LAYERS.csv --cluster FILE …`, which prints one JSON line."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from training.foundation.errors import GemslideError
from training.oracle.clusters.cluster import load_cluster
from training.oracle.layers_table import Epoch, load_layers, project


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m training.tools.layers")
    parser.add_argument("layers", type=Path)
    parser.add_argument("--cluster", type=Path, required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--world", type=int, nargs="+", required=True)
    arguments = parser.parse_args()
    report: dict[str, Any]
    try:
        cluster = load_cluster(arguments.cluster)
        epoch = Epoch(load_layers(arguments.layers), arguments.samples, arguments.batch, cluster)
        report = {"ok": True, "cluster": cluster.name, "rows": project(epoch, arguments.world)}
    except GemslideError as error:
        report = {"ok": False, "code": error.code, "message": str(error)}
    sys.stdout.write(json.dumps(report) + "\n")
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())

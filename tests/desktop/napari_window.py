"""Open napari on a store, print what it shows, and take a screenshot. Run under xvfb by test_napari.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pathology_app.desktop.window import open_viewer


def main(store: Path, image: Path) -> None:
    viewer = open_viewer(store)
    pixels = viewer.screenshot(path=str(image), canvas_only=True, flash=False)
    layers = [
        {
            "name": layer.name,
            "kind": type(layer).__name__,
            "units": [str(unit) for unit in layer.units],
            "corners_um": layer.extent.world.tolist(),
            "visible": layer.visible,
        }
        for layer in viewer.layers
    ]
    print(
        json.dumps(
            {
                "layers": layers,
                "title": viewer.title,
                "window": viewer.window.geometry(),
                "colours": len(set(map(tuple, pixels[::8, ::8].reshape(-1, 4).tolist()))),
            }
        )
    )
    viewer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

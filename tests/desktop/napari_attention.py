"""Open napari on a store with attention, show it, and print what is read there. Run under xvfb."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pathology_app.desktop.layers import ATTENTION, PREDICTION
from pathology_app.desktop.window import furnish, open_viewer
from tests.pathology_app.small_attention import PEAK_XY_PX0
from tests.pathology_app.small_project import MPP0


def main(store: Path, image: Path) -> None:
    viewer = open_viewer(store)
    dock = furnish(viewer)
    controls = dock.controls
    assert controls is not None
    assert not dock.attention_text.isHidden()
    x_um, y_um = ((at - 0.5) * MPP0 for at in PEAK_XY_PX0)
    before = controls.probe((y_um, x_um))
    (layer,) = controls.layers(ATTENTION)
    layer.visible = True
    for prediction in controls.layers(PREDICTION):
        prediction.visible = False
    viewer.screenshot(path=str(image), canvas_only=False, flash=False)
    said = {"before": before, "shown": controls.probe((y_um, x_um)), "outside": controls.probe((2.0, 2.0))}
    said |= {"dock": dock.attention_text.text()}
    print(json.dumps({**said, "limits": list(layer.contrast_limits), "order": [other.name for other in viewer.layers]}))
    viewer.close()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

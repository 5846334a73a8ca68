"""One definition of colours: the browser, images and napari use the same."""

from __future__ import annotations

import json
import re

import numpy as np
from skimage.color import deltaE_ciede2000, rgb2lab

from pathology_app.viewer.bundle import DIST
from pipeline.palettes import CLASS_COLOURS, DEFAULT_PALETTE, PALETTES, colours

STAINED = ("f3e3ee", "d9a0c0", "c77fa8", "a55c94", "7b4b8f", "4f3a7a", "8a5a34", "6b3f1e", "b98a5e", "a8b4cf", "6f83b5")
"""Eosin, haematoxylin, DAB from weak to strong, and counterstain."""


def _in_typescript(name: str) -> object:
    text = (DIST.parent / "src" / "layers" / "palettes.ts").read_text()
    match = re.search(rf"const {name}\b[^=]*= (.*?);\n", text, re.DOTALL)
    assert match, name
    return json.loads(re.sub(r",(\s*[\]}])", r"\1", re.sub(r"^(\s*)(\w+):", r'\1"\2":', match[1], flags=re.MULTILINE)))


def test_the_browser_has_the_same_palettes_in_the_same_order() -> None:
    stops_by_name = _in_typescript("STOPS")
    assert isinstance(stops_by_name, dict)
    assert {name: tuple(stops) for name, stops in stops_by_name.items()} == dict(PALETTES)
    assert list(stops_by_name) == list(PALETTES)
    assert next(iter(PALETTES)) == DEFAULT_PALETTE


def test_the_browser_has_the_same_colours_of_classes() -> None:
    assert tuple(_in_typescript("CLASS_COLOURS")) == CLASS_COLOURS  # type: ignore[arg-type]


def test_high_probabilities_cannot_be_taken_for_stain() -> None:
    tissue = np.array([list(bytes.fromhex(stop)) for stop in STAINED]) / 255

    def lab(rgb: np.ndarray) -> np.ndarray:
        return np.asarray(rgb2lab(rgb.reshape(-1, 1, 3))).reshape(-1, 3)

    def nearest(palette: str) -> float:
        tinted = [0.5 * tissue + 0.5 * colour for colour in colours(palette, 11)[5:]]
        return min(float(deltaE_ciede2000(lab(tint)[:, None], lab(tissue)[None]).min()) for tint in tinted)

    assert nearest(DEFAULT_PALETTE) > 10 > nearest("Turbo")

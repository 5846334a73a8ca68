"""Figures of docs/reference/quality.md, from scikit-image's photograph: planted faults, and normalised stains.

    .venv/bin/python -m benchmarks.draw_quality

The faults are those of the tests (tests/pipeline/qc/planted.py), painted into the photograph's real tissue.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from PIL import Image
from skimage import data

from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.qc.check import check_quality
from pipeline.qc.stain import fit_macenko, fit_reinhard
from pipeline.settings.config import IngestConfig, QualityConfig
from pipeline.stain import (
    LIGHT,
    MACENKO_REFERENCE,
    REINHARD_REFERENCE,
    MacenkoFit,
    Normaliser,
    Pixels,
    ReinhardFit,
    density_of,
)
from pipeline.units import RESEARCH_USE
from tests.pipeline.make import halved, write_pyramid
from tests.pipeline.qc import planted

FOLDER = Path(__file__).parents[1] / "docs/images/quality"
MPP0 = 0.5
MAX_WIDTH_PX = 1100


def draw_faults(out: Path) -> None:
    """Draw one slide with every kind of fault, as `gemslide qc` does."""
    pixels = planted.real_tissue(4200, 3000, margin_px=300)
    planted.blur(pixels, (500, 500, 1500, 1300), 3 / MPP0)
    for number, ink in enumerate(("blue", "green", "red", "black")):
        planted.pen(pixels, (150, 1500 + 320 * number, 1900, 1800 + 320 * number), ink, 200)
    planted.fold(pixels, (2300, 500, 2900, 2000), 120)
    planted.bubble(pixels, (3400, 1500), 500, 44)
    with tempfile.TemporaryDirectory() as name:
        project = Project(Path(name))
        source = write_pyramid(project.root / "planted-faults.tiff", halved(pixels, 2), mpp=MPP0)
        ingest_slide(IngestRequest(source, "planted-faults"), project, IngestConfig())
        report = check_quality("planted-faults", project, QualityConfig())
        shutil.copy(report.image, out)
    image = Image.open(out).convert("RGB")
    image.thumbnail((MAX_WIDTH_PX, MAX_WIDTH_PX))
    image.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(out, optimize=True)


def draw_stains(out: Path) -> None:
    """Draw two copies of one tile with different amounts of stain, and their normalised versions."""
    tile = np.ascontiguousarray(data.immunohistochemistry()[100:356, 60:400])
    copies = [_restained(tile, 1.35, 0.8), _restained(tile, 0.75, 1.25)]
    figure, grid = plt.subplots(2, 3, figsize=(9, 5), dpi=110, layout="constrained")
    for row, copy in zip(grid, copies, strict=True):
        macenko, reinhard = fit_macenko(copy.reshape(-1, 3)), fit_reinhard(copy.reshape(-1, 3))
        assert isinstance(macenko, MacenkoFit)
        assert isinstance(reinhard, ReinhardFit)
        looks = {
            "as stained": copy,
            "Macenko": Normaliser(macenko, MACENKO_REFERENCE)(copy),
            "Reinhard": Normaliser(reinhard, REINHARD_REFERENCE)(copy),
        }
        for axes, (title, image) in zip(row, looks.items(), strict=True):
            axes.imshow(image)
            axes.set(xticks=[], yticks=[])
            axes.set_title(title, fontsize=9)
    figure.suptitle(RESEARCH_USE, fontsize=9)
    figure.savefig(out)
    plt.close(figure)
    Image.open(out).convert("RGB").quantize(200).save(out, optimize=True)


def _restained(pixels: Pixels, first: float, second: float) -> Pixels:
    fit = fit_macenko(pixels.reshape(-1, 3))
    assert isinstance(fit, MacenkoFit)
    concentrations = density_of(pixels) @ np.linalg.pinv(fit.stain_matrix).T * (first, second)
    light = LIGHT * np.exp(-(concentrations @ np.transpose(fit.stain_matrix)))
    return np.asarray(np.clip(np.rint(light), 0, 255), np.uint8)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    draw_faults(FOLDER / "faults.png")
    draw_stains(FOLDER / "stains.png")


if __name__ == "__main__":
    main()

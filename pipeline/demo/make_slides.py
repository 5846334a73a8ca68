"""The demonstration's slides: real stained tissue, laid out as whole slides of known truth.

scikit-image bundles one real photograph of immunohistochemically stained tissue (512×512 px; brown DAB on blue
haematoxylin). Each slide is made from its own strip of it, so no pixel of a test slide was ever seen in training.
What is positive is measured on the finished slide by colour deconvolution: labels follow from colour, and a network
that learns them proves that the plumbing works, not that it can diagnose.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import shapely
import tifffile
from numpy.typing import NDArray
from skimage import color, data

from pipeline.codecs.types import Pixels
from pipeline.files import write_text_atomic
from pipeline.progress import Advance, no_bar

MPP0 = 0.25
SIZE_WH_PX0 = (8000, 6000)
CELL_PX0 = 256
SOURCE_CELL_PX = 64
STRIP_PX = 128
GLASS_RGB = (243, 243, 240)
DAB_DENSITY, WEAK_DAB_DENSITY = 0.10, 0.08
"""DAB value (skimage's rgb2hed) above which a pixel counts as stained, or as weakly stained."""
POSITIVE_FROM, NEGATIVE_TO = 0.30, 0.15
"""A positive crop has at least this share of stained, a negative one at most that of weakly stained pixels. Crops
between the two are not used, so that the truth is not a matter of taste."""
POSITIVE_CELL = 0.20
"""Share of stained pixels from which a cell of the finished slide is annotated positive."""
LUMEN_FROM = 225
"""A pixel whose darkest channel is lighter than this is empty space, not tissue."""
MIN_TISSUE = 0.75
"""Crops with less tissue than this are not used."""

COLOURS = {"negative": [76, 114, 176], "positive": [200, 60, 60]}


@dataclass(frozen=True)
class DemoSlide:
    """One slide to make."""

    slide_id: str
    strip: int
    split: str
    has_positive: bool


SLIDES = (
    DemoSlide("demo-train", 1, "train", True),
    DemoSlide("demo-val", 0, "val", True),
    DemoSlide("demo-test-positive", 2, "test", True),
    DemoSlide("demo-test-negative", 3, "test", False),
)

Cells = NDArray[np.bool_]
"""bool of shape (rows, columns): one per cell of the slide."""


def make_demo_cohort(folder: Path, *, advance: Advance = no_bar) -> Path:
    """Write four slides, their annotations and the manifest; files that exist are kept. Returns the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["path,slide_id,patient_id,site,annotations,split"]
    for number, slide in enumerate(SLIDES):
        path = folder / f"{slide.slide_id}.tiff"
        if not path.exists():
            make_slide(path, slide)
        patient = f"demo-patient-{number + 1}"
        rows.append(f"{path.name},{slide.slide_id},{patient},scikit-image,{slide.slide_id}.geojson,{slide.split}")
        advance(1)
    manifest = folder / "cohort.csv"
    write_text_atomic(manifest, "\n".join(rows) + "\n")
    return manifest


def make_slide(path: Path, slide: DemoSlide) -> None:
    """Write one slide (tiled pyramidal JPEG TIFF) and its annotations (QuPath GeoJSON beside it)."""
    random = np.random.default_rng(slide.strip)
    tissue = tissue_cells(random)
    positive = tissue & _islands(tissue.shape, random) if slide.has_positive else np.zeros_like(tissue)
    pixels = _lay_out(source_strip(slide.strip), tissue, positive, random)
    _write_annotations(path.with_suffix(".geojson"), pixels, tissue)
    _write_pyramid(path, pixels)


def tissue_cells(random: np.random.Generator) -> Cells:
    """A tissue outline: an ellipse with a wavy edge, on glass."""
    rows, columns = SIZE_WH_PX0[1] // CELL_PX0, SIZE_WH_PX0[0] // CELL_PX0
    y, x = np.mgrid[:rows, :columns] + 0.5
    dy, dx = (y - rows / 2) / (rows * 0.40), (x - columns / 2) / (columns * 0.40)
    angle = np.arctan2(dy, dx)
    phase = random.uniform(0, 2 * np.pi, 2)
    edge = 1 + 0.10 * np.sin(3 * angle + phase[0]) + 0.06 * np.sin(7 * angle + phase[1])
    return np.asarray(np.hypot(dx, dy) < edge)


def _islands(shape: tuple[int, ...], random: np.random.Generator) -> Cells:
    """Round islands where the positive tissue lies, far enough apart to be several hotspots."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    islands = np.zeros(shape, bool)
    for near_y, near_x in ((0.32, 0.35), (0.36, 0.65), (0.68, 0.33), (0.66, 0.64), (0.5, 0.5)):
        centre_y, centre_x = (near_y + random.uniform(-0.03, 0.03)) * shape[0], near_x * shape[1]
        islands |= np.hypot(y - centre_y, x - centre_x) < random.uniform(1.7, 2.9)
    return islands


def source_strip(number: int) -> Pixels:
    """One of four vertical strips of the photograph, uint8 (512, 128, 3); they do not overlap."""
    image = np.asarray(data.immunohistochemistry(), np.uint8)
    return image[:, number * STRIP_PX : (number + 1) * STRIP_PX]


def dab_density(pixels: Pixels) -> NDArray[np.float64]:
    """DAB per pixel, by colour deconvolution."""
    return np.asarray(color.rgb2hed(pixels)[..., 2])


def _lay_out(source: Pixels, tissue: Cells, positive: Cells, random: np.random.Generator) -> Pixels:
    """Fill cells with turned and mirrored crops of the source; no cell repeats its left or upper neighbour."""
    width_px0, height_px0 = SIZE_WH_PX0
    slide = np.empty((height_px0, width_px0, 3), np.uint8)
    slide[:] = np.clip(GLASS_RGB + random.normal(0, 1.0, (height_px0, width_px0, 1)), 0, 255).astype(np.uint8)
    corners = crop_corners(source)
    used: dict[tuple[int, int], tuple[int, ...]] = {}
    for row, column in np.argwhere(tissue):
        choices = corners[bool(positive[row, column])]
        neighbours = {used.get((row, column - 1)), used.get((row - 1, column))}
        pick = _pick(choices, random)
        while pick in neighbours:
            pick = _pick(choices, random)
        used[(row, column)] = pick
        y, x = row * CELL_PX0, column * CELL_PX0
        slide[y : y + CELL_PX0, x : x + CELL_PX0] = _cell(source, pick)
    return slide


def _pick(choices: NDArray[np.int64], random: np.random.Generator) -> tuple[int, ...]:
    y, x = choices[random.integers(len(choices))]
    return int(y), int(x), int(random.integers(4)), int(random.integers(2))


def _cell(source: Pixels, pick: tuple[int, ...]) -> Pixels:
    y, x, turns, mirrored = pick
    crop = np.rot90(source[y : y + SOURCE_CELL_PX, x : x + SOURCE_CELL_PX], turns)
    crop = crop[:, ::-1] if mirrored else crop
    enlarged = cv2.resize(np.ascontiguousarray(crop), (CELL_PX0, CELL_PX0), interpolation=cv2.INTER_CUBIC)
    return np.asarray(enlarged, np.uint8)


def crop_corners(source: Pixels) -> dict[bool, NDArray[np.int64]]:
    """Corners (y, x) of crops of a source: True clearly positive, False clearly negative; all of them tissue."""
    density = dab_density(source)
    stained, weak = _share_of_crops(density > DAB_DENSITY), _share_of_crops(density > WEAK_DAB_DENSITY)
    has_tissue = _share_of_crops(source.min(-1) < LUMEN_FROM) >= MIN_TISSUE
    return {
        True: np.argwhere((stained >= POSITIVE_FROM) & has_tissue),
        False: np.argwhere((weak <= NEGATIVE_TO) & has_tissue),
    }


def _share_of_crops(pixels_yx: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Share of true pixels in every crop, by the crop's corner."""
    share = cv2.boxFilter(pixels_yx.astype(np.float32), -1, (SOURCE_CELL_PX, SOURCE_CELL_PX), anchor=(0, 0))
    height, width = pixels_yx.shape
    return np.asarray(share[: height - SOURCE_CELL_PX + 1, : width - SOURCE_CELL_PX + 1], np.float32)


def _write_annotations(path: Path, pixels: Pixels, tissue: Cells) -> None:
    half = cv2.resize(pixels, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    dab = dab_density(np.asarray(half, np.uint8)) > DAB_DENSITY
    cell = CELL_PX0 // 2
    rows, columns = tissue.shape
    share = dab[: rows * cell, : columns * cell].reshape(rows, cell, columns, cell).mean((1, 3))
    features: list[dict[str, object]] = []
    is_positive = share >= POSITIVE_CELL
    for name, cells in (("positive", tissue & is_positive), ("negative", tissue & ~is_positive)):
        y, x = np.nonzero(cells)
        if not len(y):
            continue
        area = shapely.union_all(shapely.box(x, y, x + 1, y + 1))
        for part in shapely.get_parts(shapely.transform(area, lambda xy: xy * CELL_PX0)):
            features.append(_feature(name, part, len(features), path.stem))
    write_text_atomic(path, json.dumps({"type": "FeatureCollection", "features": features}) + "\n")


def _feature(name: str, area: shapely.Geometry, number: int, stem: str) -> dict[str, object]:
    return {
        "type": "Feature",
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"gemslide/{stem}/{number}")),
        "geometry": json.loads(shapely.to_geojson(area)),
        "properties": {"objectType": "annotation", "classification": {"name": name, "color": COLOURS[name]}},
    }


def _write_pyramid(path: Path, pixels: Pixels) -> None:
    """A tiled pyramidal TIFF as scanners write it: JPEG 4:2:0, 256 px tiles, levels 1, 2, 4, 8."""
    temporary = path.with_name(f".{path.name}.partial")
    with tifffile.TiffWriter(temporary) as tiff:
        for level in range(4):
            size_wh = tuple(side // 2**level for side in SIZE_WH_PX0)
            reduced = pixels if level == 0 else cv2.resize(pixels, size_wh, interpolation=cv2.INTER_AREA)
            tiff.write(
                reduced,
                tile=(256, 256),
                photometric="rgb",
                compression="jpeg",
                compressionargs={"level": 90},
                subsampling=(2, 2),
                resolution=(1e4 / (MPP0 * 2**level), 1e4 / (MPP0 * 2**level)),
                resolutionunit="CENTIMETER",
                subfiletype=1 if level else 0,
                metadata=None,
            )
    temporary.replace(path)

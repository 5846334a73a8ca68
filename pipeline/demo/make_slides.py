"""The demonstration's slides: real stained tissue, extended by image quilting, with known truth.

scikit-image bundles one real photograph of immunohistochemically stained tissue (512×512 px; brown DAB on blue
haematoxylin). Each slide is made from its own pieces of it, so no pixel of a test slide is ever seen in training.
Positive areas are measured on the finished tissue by colour deconvolution: labels follow from colour, and a network
that learns them proves that the workflow works, not that it can diagnose.

The tissue is made in the photograph's pixels (`_px`), then enlarged `ENLARGED` times to those of the slide (`_px0`).
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
from skimage import color, data, measure

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.demo.quilting import Maps, Mask, Source, collect_patches, quilt
from pipeline.files import write_text_atomic
from training.foundation.progress import Advance, no_bar

MPP0 = 0.25
SIZE_WH_PX0 = (8000, 6000)
ENLARGED = 4
SIZE_HW_PX = (SIZE_WH_PX0[1] // ENLARGED, SIZE_WH_PX0[0] // ENLARGED)
GLASS_RGB = (243, 243, 240)
GRAIN = 1.2
"""Standard deviation of the camera's noise, in grey levels."""
FRAY = 0.06
"""Extra reach of the tissue's edge along the darkest pixels compared with the lightest, in units of its field."""
LUMEN_FROM = 215
"""A pixel whose darkest channel is at least this light is empty space, not tissue."""
CELLULARITY_WEIGHT = 0.3
"""Weight of nuclear density, relative to that of positivity."""
POSITIVE_DENSITY = 0.045
"""Mean DAB density (skimage's rgb2hed) at or above which tissue is positive."""
DENSITY_SIGMA_PX = 5.0
"""Densities are Gaussian means of this width, about that of a nucleus."""
MIN_AREA_PX = 400
"""Areas and holes smaller than this are not annotated."""

COLOURS = {"negative": [76, 114, 176], "positive": [200, 60, 60]}

Field = NDArray[np.float32]
"""float32 of shape (height, width)."""


@dataclass(frozen=True)
class DemoSlide:
    """One slide to make."""

    slide_id: str
    seed: int
    pieces_px: tuple[Box, ...]
    """Parts of the photograph that no other slide shares."""
    split: str
    has_positive: bool
    scales: tuple[float, ...] = (1,)
    """Scales at which the pieces are used; several if there is little material."""
    is_fibrous: bool = False
    """Whether fibres and cells of its pieces run from top to bottom."""


SLIDES = (
    DemoSlide("demo-train", 1, (Box(128, 0, 128, 512),), "train", True),
    # The left quarter is nearly all positive; the upper right corner adds negative tissue.
    DemoSlide("demo-val", 0, (Box(0, 0, 128, 512), Box(384, 0, 128, 224)), "val", True, is_fibrous=True),
    DemoSlide("demo-test-positive", 2, (Box(256, 0, 128, 512),), "test", True),
    # Its piece excludes a brown spot and torn threads, whose repetition would catch the eye.
    DemoSlide("demo-test-negative", 3, (Box(390, 224, 122, 158),), "test", False, (0.85, 1, 1.2), is_fibrous=True),
)


def make_demo_cohort(folder: Path, *, advance: Advance = no_bar) -> Path:
    """Write four slides, their annotations and the manifest; existing files are kept. Returns the manifest."""
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
    random = np.random.default_rng(slide.seed)
    inside = tissue_field(random)
    islands = island_field(random) if slide.has_positive else np.full(SIZE_HW_PX, -1, np.float32)
    tissue = make_tissue(slide, inside, islands, random)
    _write_annotations(path.with_suffix(".geojson"), tissue, inside)
    _write_pyramid(path, lay_on_glass(tissue, inside, random))


def tissue_field(random: np.random.Generator) -> Field:
    """Outline of the tissue as a field that is positive inside it."""
    y, x = _offsets(0.5, 0.5)
    edge = 1 - np.hypot(y / (0.41 * SIZE_HW_PX[0]), x / (0.42 * SIZE_HW_PX[1])) ** 3
    waves = smooth_noise(SIZE_HW_PX, random, (400, 0.30), (130, 0.11), (45, 0.035), (12, 0.012))
    return np.asarray(edge + waves, np.float32)


def island_field(random: np.random.Generator) -> Field:
    """Outlines of positive islands (several hotspots) as a field that is positive inside them."""
    islands = np.full(SIZE_HW_PX, -np.inf, np.float32)
    for near_y, near_x in ((0.32, 0.35), (0.36, 0.65), (0.68, 0.33), (0.66, 0.64), (0.5, 0.5)):
        y, x = _offsets(near_y + random.uniform(-0.03, 0.03), near_x)
        islands = np.maximum(islands, 1 - np.hypot(y, x) / random.uniform(110, 185))
    return islands + smooth_noise(SIZE_HW_PX, random, (160, 0.35), (60, 0.2))


def make_tissue(slide: DemoSlide, inside: Field, islands: Field, random: np.random.Generator) -> Pixels:
    """Tissue in the photograph's pixels inside the outline, positive roughly where the islands are."""
    patches = collect_patches([Source(piece, guide_of(piece), slide.is_fibrous) for piece in pieces_of(slide)])
    # Tissue is quilted on a rotated canvas and then bent, so fibres and patches follow no single direction.
    turn, side_px = _turned_canvas(random)
    wanted = _wanted_guide(cv2.warpAffine(islands, turn, (side_px, side_px), borderValue=-1) > 0, random)
    turned_xy = cv2.transform(np.dstack(_offsets(0, 0)[::-1]), turn)
    x, y = (turned_xy[..., axis] + smooth_noise(SIZE_HW_PX, random, (450, 34), (150, 8)) for axis in (0, 1))
    needed = np.zeros((side_px, side_px), np.uint8)
    is_near = inside > -FRAY
    needed[np.clip(y[is_near].astype(int), 0, side_px - 1), np.clip(x[is_near].astype(int), 0, side_px - 1)] = 1
    quilted = quilt(patches, wanted, cv2.dilate(needed, np.ones((7, 7), np.uint8)) > 0, random)
    bent = cv2.remap(quilted, x, y, cv2.INTER_CUBIC)
    strength = 1 + smooth_noise(SIZE_HW_PX, random, (250, 0.06), (90, 0.03))
    return np.asarray(np.rint(255 * np.power(bent / np.float32(255), strength[..., None])), np.uint8)


def pieces_of(slide: DemoSlide) -> list[Pixels]:
    """A slide's pieces of the photograph, at all its scales."""
    photograph = np.asarray(data.immunohistochemistry(), np.uint8)
    pieces = [photograph[box.y_px : box.bottom_px, box.x_px : box.right_px] for box in slide.pieces_px]
    return [
        np.asarray(cv2.resize(piece, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC), np.uint8)
        for piece in pieces
        for scale in slide.scales
    ]


def _turned_canvas(random: np.random.Generator) -> tuple[NDArray[np.float32], int]:
    """Affine matrix from the slide to a square canvas on which it lies at a random angle, and the canvas's side."""
    height, width = SIZE_HW_PX
    side_px = int(np.hypot(height, width))
    to_middle = np.array([[0, 0, side_px - width], [0, 0, side_px - height]]) / 2
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), random.uniform(0, 360), 1)
    return np.asarray(turn + to_middle, np.float32), side_px


def guide_of(pixels: Pixels) -> Maps:
    """Guide for the quilting: positivity, emptiness and nuclear density of the tissue around each pixel."""
    positive = np.clip(dab_density(pixels) / POSITIVE_DENSITY, 0, 1)
    empty = cv2.blur((pixels.min(-1) >= LUMEN_FROM).astype(np.float32), (5, 5)) > 0.8
    nuclei = cv2.GaussianBlur(color.rgb2hed(pixels)[..., 0], (0, 0), 8)
    low, high = np.percentile(nuclei[positive < 1], (5, 95))
    cellular = np.where(positive < 1, np.clip((nuclei - low) / (high - low), 0, 1), 0)
    return np.stack([positive, empty, CELLULARITY_WEIGHT * cellular]).astype(np.float32)


def _wanted_guide(positive: Mask, random: np.random.Generator) -> Maps:
    """Target maps for a canvas: nothing empty, and negative tissue of varying nuclear density."""
    cellular = np.clip(0.5 + smooth_noise(positive.shape, random, (220, 0.3), (90, 0.15)), 0, 1)
    cellular = np.where(positive, 0, CELLULARITY_WEIGHT * cellular)
    return np.stack([positive, np.zeros(positive.shape), cellular]).astype(np.float32)


def dab_density(pixels: Pixels) -> Field:
    """Mean DAB density around every pixel, by colour deconvolution."""
    density = color.rgb2hed(pixels)[..., 2].astype(np.float32)
    return np.asarray(cv2.GaussianBlur(density, (0, 0), DENSITY_SIGMA_PX), np.float32)


def lay_on_glass(tissue: Pixels, inside: Field, random: np.random.Generator) -> Pixels:
    """The slide: tissue cut out along its edge, frayed between nuclei, on glass, enlarged, with camera noise."""
    darkness = cv2.GaussianBlur(255 - tissue.min(-1).astype(np.float32), (0, 0), 1.5) / 255
    cover = np.clip((inside + FRAY * (darkness - 0.2)) / 0.02, 0, 1)[..., None]
    glass = np.asarray(GLASS_RGB, np.float32)
    small = np.asarray(np.rint(glass + cover * (tissue - glass)), np.uint8)
    slide = cv2.resize(small, SIZE_WH_PX0, interpolation=cv2.INTER_CUBIC)
    for rows in np.array_split(slide, 16):
        grain = np.rint(GRAIN * random.standard_normal(rows.shape[:2], np.float32)).astype(np.int8)
        cv2.add(rows, cv2.merge([grain] * 3), rows, dtype=cv2.CV_8U)
    return np.asarray(slide, np.uint8)


def _offsets(at_y: float, at_x: float) -> tuple[Field, Field]:
    """Y and x of each pixel, relative to a point given as fractions of height and width."""
    y, x = np.mgrid[: SIZE_HW_PX[0], : SIZE_HW_PX[1]].astype(np.float32)
    return y - np.float32(at_y * SIZE_HW_PX[0]), x - np.float32(at_x * SIZE_HW_PX[1])


def smooth_noise(shape: tuple[int, ...], random: np.random.Generator, *octaves: tuple[float, float]) -> Field:
    """Noise around 0 without edges: a sum of octaves, each with its scale in pixels and its standard deviation."""
    height, width = shape
    total = np.zeros(shape, np.float32)
    for scale_px, deviation in octaves:
        coarse = random.standard_normal((int(height / scale_px) + 3, int(width / scale_px) + 3), np.float32)
        size_wh = (round(coarse.shape[1] * scale_px), round(coarse.shape[0] * scale_px))
        total += deviation * cv2.resize(coarse, size_wh, interpolation=cv2.INTER_CUBIC)[:height, :width]
    return total


def _write_annotations(path: Path, tissue: Pixels, inside: Field) -> None:
    """Outline positive and negative tissue as they turned out, whatever the target."""
    positive = outline(np.minimum(inside, (dab_density(tissue) - POSITIVE_DENSITY) / POSITIVE_DENSITY))
    negative = _without_specks(shapely.difference(outline(inside), positive))
    features: list[dict[str, object]] = []
    for name, area in (("positive", positive), ("negative", negative)):
        in_px0 = shapely.set_precision(shapely.transform(area, lambda xy: xy * ENLARGED), 0.1)
        for part in shapely.get_parts(in_px0):
            features.append(_feature(name, part, len(features), path.stem))
    write_text_atomic(path, json.dumps({"type": "FeatureCollection", "features": features}) + "\n")


def outline(field: Field) -> shapely.Geometry:
    """Area where a field is positive, in pixels with the origin at a corner, without specks and small holes."""
    rings = measure.find_contours(np.pad(field, 1, constant_values=-1), 0)
    # Padding adds one pixel, and a pixel's centre is half a pixel from its corner.
    lines = [shapely.linestrings(ring[:, ::-1] - 0.5) for ring in rings if len(ring) > 8]
    return _without_specks(shapely.simplify(shapely.build_area(shapely.MultiLineString(lines)), 0.5))


def _without_specks(area: shapely.Geometry) -> shapely.Geometry:
    """The area without small polygons and small holes."""
    kept = []
    for part in shapely.get_parts(area):
        holes = [ring for ring in part.interiors if shapely.Polygon(ring).area >= MIN_AREA_PX]
        if part.area >= MIN_AREA_PX:
            kept.append(shapely.Polygon(part.exterior, holes))
    return shapely.union_all(kept)


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

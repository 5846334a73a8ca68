"""Faults painted into real tissue are found where they were painted, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from pipeline.box import Box
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.qc.check import QualityReport, check_quality
from pipeline.settings.config import IngestConfig, QualityConfig
from pipeline.store.layers.qc_scores import Quality, read_quality
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import halved, write_pyramid
from tests.pipeline.qc import planted

CRC = "crc-mosaic/train_0.tiff"
SMALL_HE = "Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs"
POLYP = "kangyeolk+colorectal-cancer-segmentation/P2_0039_section1.tiff"
MPP0 = 0.5


@dataclass(frozen=True)
class Checked:
    """A checked slide and its painted faults, in level-0 pixels."""

    report: QualityReport
    quality: Quality
    boxes: dict[str, planted.Box]

    def scores(self, name: str) -> NDArray[np.float32]:
        return self.quality.scores_cyx[self.quality.names.index(name)].astype(np.float32)

    def cells_in(self, name: str, *, grown_px0: int = 0) -> NDArray[np.bool_]:
        """Cells entirely within a box (or touching it, if it is grown by at least a cell)."""
        left, top, right, bottom = self.boxes[name]
        rows, columns = self.quality.scores_cyx.shape[1:]
        y, x = (np.arange(n) * self.quality.cell_px0 for n in (rows, columns))
        cell = self.quality.cell_px0
        inside_y = (y >= top - grown_px0) & (y + cell <= bottom + grown_px0)
        inside_x = (x >= left - grown_px0) & (x + cell <= right + grown_px0)
        return inside_y[:, None] & inside_x[None, :]


def check(folder: Path, pixels: planted.Pixels, boxes: dict[str, planted.Box]) -> Checked:
    folder.mkdir(exist_ok=True)
    project = Project(folder)
    source = write_pyramid(folder / "s.tiff", halved(pixels, 2), mpp=MPP0)
    ingest_slide(IngestRequest(source, "s"), project, IngestConfig())
    report = check_quality("s", project, QualityConfig())
    quality = read_quality(project.store_path("s"))
    assert quality is not None
    return Checked(report, quality, boxes)


def paint_all(pixels: planted.Pixels, boxes: dict[str, planted.Box]) -> None:
    planted.blur(pixels, boxes["blur"], 3 / MPP0)
    planted.pen(pixels, boxes["pen"], "blue", round(200 / MPP0))
    planted.fold(pixels, boxes["fold"], 90)
    left, top, right, bottom = boxes["bubble"]
    planted.bubble(pixels, ((left + right) // 2, (top + bottom) // 2), (bottom - top) // 2 - 40, 50)


@pytest.fixture(scope="module")
def faulty(real_slides, tmp_path_factory):
    """Real H&E of the colon with faults of 1.2 mm each."""
    project = Project(tmp_path_factory.mktemp("crc"))
    ingest_slide(IngestRequest(real_slides / CRC, "crc"), project, IngestConfig())
    reader = StoreReader(project.store_path("crc"))
    pixels = reader.read_region(0, Box(2600, 500, 3000, 3500)).copy()
    boxes = {
        "blur": (1500, 1700, 2700, 3000),
        "pen": (300, 200, 1500, 900),
        "fold": (1900, 300, 2600, 1500),
        "bubble": (300, 1700, 1300, 2700),
    }
    paint_all(pixels, boxes)
    return check(project.root / "planted", pixels, boxes)


@pytest.mark.data
@pytest.mark.parametrize(("name", "auc"), [("blur", 0.99), ("pen", 0.97), ("fold", 0.85), ("bubble", 0.97)])
def test_a_fault_painted_into_real_tissue_is_found_where_it_was_painted(faulty, name, auc):
    scores, inside = faulty.scores(name), faulty.cells_in(name)
    if name == "bubble":  # a disc in its box
        y, x = np.mgrid[: inside.shape[0], : inside.shape[1]]
        inside &= np.hypot(y - y[inside].mean(), x - x[inside].mean()) < 3
    if name == "pen":  # a wavy stroke in its box
        inside &= np.abs(np.mgrid[: inside.shape[0], : inside.shape[1]][0] - np.nonzero(inside)[0].mean()) < 1
    far = ~faulty.cells_in(name, grown_px0=2 * faulty.quality.cell_px0) & np.isfinite(scores)
    if name == "blur":
        far &= ~(faulty.scores("pen") > 0)  # under ink nothing can be in focus
    inside &= np.isfinite(scores)
    known = inside | far

    assert roc_auc_score(inside[known], scores[known]) > auc
    limit = QualityConfig().limit(name)
    assert np.median(scores[inside]) > limit.threshold
    assert (scores[far] > limit.threshold).mean() < 0.03


@pytest.mark.data
def test_a_slide_with_faults_is_for_review_and_says_why(faulty):
    assert faulty.report.verdict == "review"
    assert {reason.split()[0] for reason in faulty.report.reasons} == {"blur", "pen", "fold", "bubble"}


@pytest.fixture(scope="module")
def four_inks(tmp_path_factory):
    """Slide with a 240 µm stroke of each ink, from glass over tissue to glass."""
    pixels = planted.real_tissue(1600, 2600, margin_px=200)
    for number, ink in enumerate(planted.INKS):
        planted.pen(pixels, (80, 300 + 500 * number, 1520, 600 + 500 * number), ink, 480 // 2)
    return check(tmp_path_factory.mktemp("inks"), pixels, {})


@pytest.mark.parametrize("ink", planted.INKS)
def test_ink_of_every_colour_is_found_on_tissue_and_on_glass(four_inks, ink):
    scores, cell = four_inks.scores("pen"), four_inks.quality.cell_px0
    row = (450 + 500 * list(planted.INKS).index(ink)) // cell
    between = (700 + 500 * list(planted.INKS).index(ink)) // cell

    assert (scores[row, 1:-2] > 0.2).mean() > 0.9
    assert not (scores[between, 4:6] > 0.2).any()


def test_blur_is_found_in_pale_tissue_too_and_sharp_tissue_scores_low(tmp_path):
    pixels = planted.real_tissue(2200, 1500, margin_px=200)
    box = (1200, 300, 1900, 1200)
    planted.blur(pixels, box, 4 / MPP0)
    done = check(tmp_path, pixels, {"blur": box})
    scores, inside = done.scores("blur"), done.cells_in("blur")
    far = ~done.cells_in("blur", grown_px0=200) & np.isfinite(scores)

    assert np.min(scores[inside]) > 0.5
    assert np.percentile(scores[far], 99) < 0.45
    assert done.report.verdict == "review"


def test_a_bubble_over_glass_and_tissue_is_found_with_its_inside(tmp_path):
    pixels = planted.real_tissue(2200, 1700, margin_px=250)
    planted.bubble(pixels, (900, 800), 500, 40)
    done = check(tmp_path, pixels, {"bubble": (400, 300, 1400, 1300)})
    scores, cell = done.scores("bubble"), done.quality.cell_px0

    assert scores[800 // cell, 900 // cell] == 1  # its middle
    assert np.nanmax(scores[:, 1600 // cell :]) == 0


@pytest.mark.data
@pytest.mark.parametrize(
    ("path", "mpp"), [(CRC, None), (SMALL_HE, None), (POLYP, 0.5)], ids=["crc", "small_HE", "polyp"]
)
def test_a_clean_real_slide_passes(real_slides, tmp_path, path, mpp):
    project = Project(tmp_path)
    ingest_slide(IngestRequest(real_slides / path, "s", None, mpp), project, IngestConfig())

    report = check_quality("s", project, QualityConfig())

    assert (report.verdict, report.reasons) == ("ok", ())
    assert report.shares["blur"] == 0
    assert report.shares["bubble"] == 0
    assert report.shares["fold"] < 0.03
    assert report.image.stat().st_size > 50_000


def test_sharp_tissue_passes_and_glass_has_no_scores(tmp_path):
    pixels = planted.real_tissue(1700, 1300, margin_px=300)
    done = check(tmp_path, pixels, {})

    assert done.report.verdict == "ok"
    assert np.isnan(done.quality.scores_cyx[:, 0]).all()
    assert np.isfinite(done.quality.scores_cyx[:, 4:7, 4:8]).all()


def test_pixels_too_coarse_for_focus_are_said_and_not_scored(tmp_path):
    pixels = planted.real_tissue(900, 700, margin_px=100)
    source = write_pyramid(tmp_path / "s.tiff", [pixels], mpp=6.0)
    ingest_slide(IngestRequest(source, "s"), Project(tmp_path), IngestConfig())

    report = check_quality("s", Project(tmp_path), QualityConfig())

    assert report.shares["blur"] is None
    assert "focus cannot be judged at 6 µm/px" in report.reasons

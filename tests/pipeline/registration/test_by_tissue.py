"""Registration by tissue: right to a few µm on known transforms, or refused."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from pipeline.errors import MissingMppError, NoTissueError, NotRegisteredError
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.registration import register_slides
from pipeline.registration.thumbnail import common_mpp
from pipeline.settings.config import IngestConfig
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.registration.tissue_pictures import (
    DAB,
    HEIGHT_PX,
    MPP,
    WIDTH_PX,
    ingested,
    largest_error_um,
    stained,
    tissue,
    transform,
    warped,
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("registration"))


@pytest.fixture(scope="module")
def one(project: Project) -> StoreReader:
    return ingested(project, "one", stained(tissue(1)))


@pytest.mark.parametrize(
    ("degrees", "is_mirrored", "scale", "vectors"),
    [(211.0, False, 1.0, None), (33.0, True, 1.03, DAB)],
    ids=["turned", "mirrored, swollen and re-stained"],
)
def test_a_known_transform_is_found_to_a_few_micrometres(project, one, degrees, is_mirrored, scale, vectors) -> None:
    truth = transform(degrees, is_mirrored=is_mirrored, scale=scale)
    picture = stained(tissue(1), vectors or DAB, (0.6, 0.9)) if vectors else stained(tissue(1))
    other = ingested(project, f"other-{degrees:.0f}", warped(picture, truth))
    found = register_slides(one, other)
    assert largest_error_um(found.transform, truth, mpp_fixed=MPP) < 8
    assert found.transform.is_mirrored == is_mirrored
    assert found.error_um < 8
    assert found.share_near > 0.8
    if is_mirrored:
        assert register_slides(one, other) == found, "the same each time"


def test_slides_of_unlike_resolution_are_registered_in_their_own_pixels(project, one) -> None:
    truth = transform(75.0)
    pixels = warped(stained(tissue(1)), truth)
    coarse = cv2.resize(pixels, (pixels.shape[1] * 5 // 10, pixels.shape[0] * 5 // 10), interpolation=cv2.INTER_AREA)
    found = register_slides(one, ingested(project, "coarse", coarse, mpp=2 * MPP))
    in_pixels = found.transform.scaled(moving=1, fixed=2)
    assert largest_error_um(in_pixels, truth, mpp_fixed=MPP) < 12


def test_other_tissue_is_refused(project, one) -> None:
    with pytest.raises(NotRegisteredError, match=r"slides one and unlike: .*Nothing was saved"):
        register_slides(one, ingested(project, "unlike", stained(tissue(2))))


def test_tissue_that_fits_in_two_ways_is_refused(project) -> None:
    picture = stained(tissue(4, is_symmetric=True))
    first, second = ingested(project, "symmetric", picture), ingested(project, "again", picture)
    with pytest.raises(NotRegisteredError, match="two different positions fit about equally well"):
        register_slides(first, second)


def test_blank_and_nearly_blank_slides_are_refused(project, one) -> None:
    blank = np.full((HEIGHT_PX, WIDTH_PX, 3), 240, np.uint8)
    with pytest.raises(NoTissueError, match=r"slide blank: 0\.00 mm² of tissue"):
        register_slides(one, ingested(project, "blank", blank))
    speck = blank.copy()
    speck[200:300, 300:380] = stained(tissue(5))[200:300, 300:380]
    with pytest.raises(NoTissueError, match="slide speck"):
        register_slides(ingested(project, "speck", speck), one)


def test_a_slide_without_a_usable_scale_is_refused(one, monkeypatch) -> None:
    odd = StoreReader(one.path)
    monkeypatch.setattr(odd, "mpp0", float("nan"))
    with pytest.raises(MissingMppError, match="slide one: its pixel size is nan"):
        common_mpp(odd, one)


@pytest.mark.data
def test_real_mosaics_of_other_tissue_on_the_same_grid_are_refused(real_slides: Path, tmp_path: Path) -> None:
    folder, project = real_slides / "crc-mosaic", Project(tmp_path)
    for name in ("train_0", "train_1"):
        ingest_slide(IngestRequest(folder / f"{name}.tiff", name, mpp_option=0.5), project, IngestConfig())
    with pytest.raises(NotRegisteredError):
        register_slides(*(StoreReader(project.store_path(name)) for name in ("train_0", "train_1")))

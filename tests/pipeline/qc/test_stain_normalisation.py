"""Stains are fitted and applied as by torchstain, and safely where torchstain is not safe."""

from __future__ import annotations

import numpy as np
import pytest
from skimage import data
from skimage.color import rgb2lab
from torchstain.numpy.normalizers.macenko import NumpyMacenkoNormalizer
from torchstain.numpy.normalizers.reinhard import NumpyReinhardNormalizer

from pipeline.box import Box
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.qc.check import check_quality
from pipeline.qc.stain import fit_macenko, fit_reinhard, fit_stain
from pipeline.settings.config import IngestConfig, QualityConfig
from pipeline.stain import (
    LIGHT,
    MACENKO_REFERENCE,
    METHODS,
    MIN_DENSITY,
    REINHARD_REFERENCE,
    MacenkoFit,
    Normaliser,
    ReinhardFit,
    as_lists,
    density_of,
    describe,
    fit_of,
)
from pipeline.store.layers.labels import read_tissue
from pipeline.store.layers.qc_scores import slide_normaliser
from pipeline.store.reading.reader import StoreReader

SMALL_HE = "Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs"


@pytest.fixture(scope="module")
def tile():
    return np.ascontiguousarray(data.immunohistochemistry()[100:400, 60:460])


@pytest.fixture(scope="module")
def small_he(real_slides, tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("he"))
    ingest_slide(IngestRequest(real_slides / SMALL_HE, "s"), project, IngestConfig())
    check_quality("s", project, QualityConfig())
    return StoreReader(project.store_path("s"))


def flat(pixels):
    return pixels.reshape(-1, 3)


def fitted(pixels, method):
    fit = fit_macenko(flat(pixels)) if method == "macenko" else fit_reinhard(flat(pixels))
    assert not isinstance(fit, str)
    return fit


def reference(method):
    return MACENKO_REFERENCE if method == "macenko" else REINHARD_REFERENCE


def restained(pixels, first, second):
    """The same tissue with more or less of its two stains."""
    fit = fitted(pixels, "macenko")
    concentrations = density_of(pixels) @ np.linalg.pinv(fit.stain_matrix).T * (first, second)
    return np.clip(np.rint(LIGHT * np.exp(-(concentrations @ np.transpose(fit.stain_matrix)))), 0, 255).astype(np.uint8)


def test_the_macenko_fit_is_torchstains(tile):
    witness = NumpyMacenkoNormalizer()
    witness.fit(tile, Io=LIGHT)

    fit = fitted(tile, "macenko")

    assert np.allclose(fit.stain_matrix, witness.HERef, atol=1e-4)
    assert np.allclose(fit.max_concentration, witness.maxCRef, atol=1e-3)


def test_macenko_changes_tissue_as_torchstain_does(tile):
    theirs, _, _ = NumpyMacenkoNormalizer().normalize(tile, Io=LIGHT, stains=False)

    ours = Normaliser(fitted(tile, "macenko"), MACENKO_REFERENCE)(tile)

    stained = density_of(tile).max(-1) >= MIN_DENSITY
    assert stained.mean() > 0.3
    assert np.abs(ours.astype(int) - theirs)[stained].max() <= 1  # it truncates, we round


def test_reinhard_changes_tissue_as_torchstain_does(tile):
    target = restained(tile, 1.4, 0.7)
    witness = NumpyReinhardNormalizer()
    witness.fit(target)
    theirs = witness.normalize(tile)

    ours = Normaliser(fitted(tile, "reinhard"), fitted(target, "reinhard"))(tile)

    stained = density_of(tile).max(-1) >= MIN_DENSITY
    difference = np.abs(ours.astype(int) - theirs)[stained]
    assert difference.max() <= 2
    assert difference.mean() < 0.7


@pytest.mark.parametrize(("method", "at_most"), [("macenko", 0.35), ("reinhard", 0.65)])
def test_copies_stained_differently_come_closer_together(tile, method, at_most):
    copies = [restained(tile, 1.35, 0.8), restained(tile, 0.75, 1.25)]
    looks = [Normaliser(fitted(copy, method), reference(method))(copy) for copy in copies]

    def apart(pair):
        return np.abs(rgb2lab(pair[0]) - rgb2lab(pair[1])).mean()

    assert apart(looks) < at_most * apart(copies)


@pytest.mark.parametrize("method", METHODS)
def test_a_slides_own_look_as_target_changes_nothing_that_is_stained(tile, method):
    fit = fitted(tile, "reinhard" if method == "reinhard" else "macenko")

    same = Normaliser(fit, fit)(tile).astype(int)

    # Macenko drops the residual that neither stain explains.
    assert np.abs(same - tile).mean() < (0.6 if method == "reinhard" else 8)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("grey", [255, 243, 239])
def test_glass_stays_as_it_is(tile, method, grey):
    white = np.full((40, 50, 3), grey, np.uint8)

    changed = Normaliser(fitted(tile, method), reference(method))(white)

    assert np.abs(changed.astype(int) - grey).max() <= (0 if grey > 239 else 4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("colour", [(0, 0, 0), (255, 0, 0), (0, 255, 255), (120, 60, 130), (1, 254, 128)])
def test_tiles_of_one_colour_give_one_colour(tile, method, colour):
    changed = Normaliser(fitted(tile, method), reference(method))(np.full((8, 9, 3), colour, np.uint8))

    assert changed.dtype == np.uint8
    assert changed.shape == (8, 9, 3)
    assert len(np.unique(flat(changed), axis=0)) == 1


def test_the_change_has_no_step_between_glass_and_tissue(tile):
    ramp = np.stack([np.full(200, 250), np.linspace(255, 150, 200), np.full(200, 250)], -1).astype(np.uint8)[None]

    changed = Normaliser(fitted(tile, "macenko"), MACENKO_REFERENCE)(ramp)[0].astype(int)

    assert np.abs(np.diff(changed, axis=0)).max() <= 8


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (np.full((500, 3), 120, np.uint8), "only 500 of 500"),
        (np.full((9000, 3), 250, np.uint8), "only 0 of 9,000"),
        (np.full((9000, 3), 120, np.uint8), "one stain"),
    ],
)
def test_too_little_to_fit_is_said_and_recorded_as_null(sample, reason):
    fits = fit_stain(sample, ["macenko", "reinhard"])

    assert fits["macenko"]["fit"] is None
    assert reason in fits["macenko"]["reason"]
    assert fits["reinhard"]["fit"] is None
    assert fits["reinhard"]["reason"]


@pytest.mark.parametrize("method", METHODS)
def test_what_a_package_records_gives_the_same_target_back(method):
    description = describe(method)

    assert fit_of(description["method"], description["target"]) == reference(method)


@pytest.mark.parametrize(
    ("method", "numbers"),
    [
        ("vahadane", {}),
        ("macenko", {"stain_matrix": [[1, 0], [0, 1]], "max_concentration": [1, 1]}),
        ("macenko", {**as_lists(MACENKO_REFERENCE), "max_concentration": [1, 0]}),
        ("reinhard", {"mean": [1, 2, float("nan")], "std": [1, 1, 1]}),
        ("reinhard", {"mean": [1, 2, 3], "std": [1, 1, 0]}),
        ("reinhard", {"mean": [1, 2, 3]}),
    ],
)
def test_numbers_that_cannot_be_a_fit_are_refused(method, numbers):
    with pytest.raises((ValueError, TypeError)):
        fit_of(method, numbers)


@pytest.mark.data
def test_a_real_slide_is_fitted_as_whole_and_looks_like_the_reference_afterwards(small_he):
    reader = small_he
    tile = reader.read_region(0, Box(800, 1500, 700, 600))
    tissue = density_of(tile).max(-1) > 0.3

    macenko = reader.attributes.stain["macenko"]
    assert macenko["pixels"] > 100_000
    fit = fit_of("macenko", macenko["fit"])
    assert isinstance(fit, MacenkoFit)
    red, green, _ = np.asarray(fit.stain_matrix)
    assert red[0] > 0.5 > red[1]  # haematoxylin absorbs red
    assert green[1] > 0.7  # eosin absorbs green
    own = fit_of("reinhard", reader.attributes.stain["reinhard"]["fit"])
    assert isinstance(own, ReinhardFit)

    for method in METHODS:
        changed = slide_normaliser(reader, describe(method))(tile)
        before, after = (fit_reinhard(pixels[tissue]) for pixels in (tile, changed))
        distance = [np.linalg.norm(np.subtract(f.mean, REINHARD_REFERENCE.mean)) for f in (before, after)]
        assert distance[1] < 0.6 * distance[0]


@pytest.mark.data
def test_reinhards_target_is_what_its_description_says(small_he):
    reader = small_he
    mask, mpp = read_tissue(reader.path)
    cell_px0 = mpp / reader.mpp0
    ys, xs = np.nonzero(mask)
    drawn = np.random.default_rng(0).choice(len(ys), 400, replace=False)
    spots = [reader.read_region(0, Box(int(xs[i] * cell_px0), int(ys[i] * cell_px0), 16, 16)) for i in drawn]
    normalised = slide_normaliser(reader, describe("macenko"))(np.concatenate(spots))
    fit = fit_reinhard(flat(normalised))

    assert isinstance(fit, ReinhardFit)
    assert np.allclose(fit.mean, REINHARD_REFERENCE.mean, atol=1.5)
    assert np.allclose(fit.std, REINHARD_REFERENCE.std, atol=2.0)

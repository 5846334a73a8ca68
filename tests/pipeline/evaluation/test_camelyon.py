"""CAMELYON17's stages and kappa, and CAMELYON16's files."""

import re

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from pipeline.errors import BadManifestError
from pipeline.evaluation.camelyon17 import STAGES, node_label, patient_stage, staging
from pipeline.evaluation.camelyon_files import read_candidates, write_candidates, write_slide_scores
from pipeline.evaluation.statistics.agreement import kappa_of_tables


@pytest.mark.parametrize(
    ("nodes", "stage"),
    [
        (["negative"] * 5, "pN0"),
        (["itc", "negative", "itc"], "pN0(i+)"),
        (["micro", "itc", "negative"], "pN1mi"),
        (["micro"] * 5, "pN1mi"),
        (["macro", "micro", "micro", "itc", "itc"], "pN1"),
        (["macro", "micro", "micro", "micro", "itc"], "pN2"),
        (["macro"] * 4, "pN2"),
    ],
)
def test_a_patient_s_stage_follows_the_challenge_s_rules(nodes, stage):
    assert patient_stage(nodes) == stage


def test_a_node_s_label_follows_its_longest_extent():
    assert [node_label(um) for um in (0, 150, 200, 201, 2000, 2001)] == [
        "negative", "itc", "itc", "micro", "micro", "macro",
    ]  # fmt: skip


def test_kappa_is_scikit_learn_s_for_every_table():
    random = np.random.default_rng(0)
    tables = random.integers(0, 5, (20, 5, 5)).astype(float)
    for table, kappa in zip(tables, kappa_of_tables(tables, "quadratic"), strict=True):
        a, b = (np.repeat(index.ravel(), table.astype(int).ravel()) for index in np.indices((5, 5)))
        assert kappa == pytest.approx(cohen_kappa_score(a, b, labels=range(5), weights="quadratic"))


def test_patients_are_staged_from_all_their_nodes():
    patients = [f"p{n // 2}" for n in range(12)]
    reference = ["macro", "negative", "micro", "itc", "negative", "negative"] * 2
    predicted = ["macro", "negative", "itc", "itc", "negative", "negative"] * 2

    result = staging(patients, reference, predicted, resamples=200, seed=0)

    # stages 3, 2, 0 twice; predicted 3, 1, 0: one off by one in each half
    expected = cohen_kappa_score([3, 2, 0] * 2, [3, 1, 0] * 2, labels=range(5), weights="quadratic")
    assert result.kappa.value == pytest.approx(expected)
    assert result.patients[1] == ("p1", "pN1mi", "pN0(i+)")
    assert result.confusion.shape == (len(STAGES), len(STAGES))
    assert result.kappa.low < result.kappa.value < result.kappa.high
    assert staging(["p"] * 2, ["itc"] * 2, ["itc"] * 2, resamples=9, seed=0) is None


def test_candidates_come_back_as_they_were_written_and_a_negative_slide_has_an_empty_file(tmp_path):
    points = np.array([(0.912345, 3000.0, 17.0), (0.5, 0.0, 0.0)])
    write_candidates(tmp_path / "tumour_001.csv", points)
    write_candidates(tmp_path / "normal_001.csv", np.zeros((0, 3)))
    write_slide_scores(tmp_path / "slides.csv", {"tumour_001": 0.9, "normal_001": 0.1})

    assert (tmp_path / "tumour_001.csv").read_text() == "0.912345,3000,17\n0.5,0,0\n"
    assert (tmp_path / "normal_001.csv").read_bytes() == b""
    assert (tmp_path / "slides.csv").read_text() == (
        "image_name,probability\ntumour_001,0.900000\nnormal_001,0.100000\n"
    )
    assert np.array_equal(read_candidates(tmp_path / "tumour_001.csv", (4000, 3000)), points)
    assert read_candidates(tmp_path / "normal_001.csv", (4000, 3000)).shape == (0, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("confidence,x,y\n", "line 1: 'confidence,x,y' is not"),
        ("0.5,1,2\n0.5,1\n", "line 2: '0.5,1' is not"),
        ("1.5,1,2\n", "the confidence 1.5 is not between 0 and 1"),
        ("nan,1,2\n", "the confidence nan is not between"),
        ("0.5,4000,2\n", "(4000, 2) lies outside the slide of 4000 × 3000"),
        ("0.5,1,nan\n", "(1, nan) lies outside"),
        ("0.5,-1,2\n", "(-1, 2) lies outside"),
    ],
)
def test_candidates_that_cannot_be_are_refused_with_their_line(tmp_path, text, said):
    (tmp_path / "s.csv").write_text(text)

    with pytest.raises(BadManifestError, match=re.escape(said)):
        read_candidates(tmp_path / "s.csv", (4000, 3000))


def test_a_slide_without_a_file_of_candidates_is_named(tmp_path):
    with pytest.raises(BadManifestError, match=r"s\.csv: no such file.*empty if it has no candidates"):
        read_candidates(tmp_path / "s.csv", (4000, 3000))
    (tmp_path / "s.csv").write_bytes(b"\xff\xfe0.5")
    with pytest.raises(BadManifestError, match="line 1: the byte 0x35 is not UTF-16"):
        read_candidates(tmp_path / "s.csv", (4000, 3000))

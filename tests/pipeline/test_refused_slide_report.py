"""`gemslide doctor --report`: says how a slide is built and why it is refused, and nothing about anybody."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tifffile

from pipeline.slides.structure.report import describe_structure
from pipeline.slides.structure.words import HIDDEN, hide_words_of
from tests.pipeline.make import halved, sample_image, write_jpeg_pyramid
from tests.pipeline.slides.make_dicom import write_dicom
from tests.pipeline.slides.make_ndpi import write_ndpi
from tests.pipeline.slides.make_vendor_slides import write_mrxs

WORDS = ("Jane", "Doe", "1950", "S12-345", "Mayer")
DATA = os.environ.get("GEMSLIDE_TEST_DATA")


def svs(folder: Path) -> Path:
    path = folder / "Doe Jane 1950.svs"
    text = "Aperio Image Library v12|AppMag = 20|MPP = 0.5|User = Mayer|Title = S12-345 Jane Doe"
    tifffile.imwrite(
        path, sample_image(300, 200), description=text, tile=(64, 64), compression="jpeg", photometric="rgb"
    )
    return path


def ndpi(folder: Path) -> Path:
    return write_ndpi(folder / "Doe Jane.ndpi", halved(sample_image(512, 384), 1)).path


def mrxs(folder: Path) -> Path:
    return write_mrxs(folder / "Doe.mrxs", {(0, 0): sample_image(96, 64)}, columns=2, rows=2).path


def dicom(folder: Path) -> Path:
    def named(dataset):
        dataset.PatientName, dataset.PatientID, dataset.ImageComments = "Doe^Jane", "S12-345", "seen by Mayer in 1950"
        dataset.ImageType = ["ORIGINAL", "PRIMARY", "VOLUME", "JANE"]

    (folder / "Doe Jane").mkdir()
    return write_dicom(folder / "Doe Jane" / "S12-345.dcm", sample_image(340, 250), change=named).parent


def cut_short(folder: Path) -> Path:
    path = write_jpeg_pyramid(folder / "Jane.tiff", [sample_image(500, 400)])
    path.write_bytes(path.read_bytes()[:200])
    return path


@pytest.mark.parametrize("make", [svs, ndpi, mrxs, dicom, cut_short])
def test_a_report_has_the_structure_and_no_word_of_the_slide(tmp_path, gemslide, make):
    slide = make(tmp_path)
    report = tmp_path / "report.json"

    done = gemslide("doctor", "--report", report, "--slide", slide, "--project", tmp_path)

    assert done.code == 0, done.err
    text = report.read_text(encoding="utf-8")
    facts = json.loads(text)
    assert not [word for word in WORDS if word.casefold() in text.casefold()]
    assert str(tmp_path) not in text
    structure = facts["slide"]["structure"]
    assert structure["bytes"] > 0
    assert ("opened" in facts["slide"]) != ("refused" in facts["slide"])
    assert "Research use only" in facts["use"]
    assert len(text) < 60_000
    if make is svs:
        page = structure["tiff"]["described"][0]
        values = {tag["code"]: tag.get("values") for tag in page["tags"]}
        assert (values[256], values[257], values[322], values[270]) == ([300], [200], [64], None)
        assert page["first_stream"][0]["marker"].startswith("ff")
        assert structure["openslide"]["numbers"]["openslide.level[0].width"] == "300"
    if make is dicom:
        (file,) = structure["dicom"]["described"]
        assert file["values"]["TotalPixelMatrixColumns"] == "340"
        assert file["values"]["ImageType"] == "ORIGINAL\\PRIMARY\\VOLUME\\other"
        assert "00100010 PN" in file["attributes"]
    if make is cut_short:
        assert facts["slide"]["refused"]["code"]


def test_a_message_that_quotes_the_slide_loses_its_words(tmp_path):
    slide = svs(tmp_path)

    assert hide_words_of(slide, "its title Jane Doe of 12 px says 'S12-345', not RGB") == (
        f"its {HIDDEN} {HIDDEN} {HIDDEN} of 12 px says '{HIDDEN}', not RGB"
    )


def test_without_a_slide_the_report_is_about_the_installation_and_names_no_place(tmp_path, gemslide):
    done = gemslide("doctor", "--report", tmp_path / "report.json", "--project", tmp_path)

    facts = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert done.code == 0, done.err
    assert "slide" not in facts
    assert facts["installation"]["OpenSlide library"]
    assert str(tmp_path) not in json.dumps(facts)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--slide", "a.svs"], "needs --report FILE"),
        (["--report", "there.json"], "already exists"),
        (["--report", "new.json", "--slide", "gone.svs"], "there is no such file"),
    ],
)
def test_a_report_that_cannot_be_made_is_one_clear_error(tmp_path, gemslide, arguments, says):
    (tmp_path / "there.json").write_text("mine")
    paths = [tmp_path / word if "." in word else word for word in arguments]

    done = gemslide("doctor", *paths, "--project", tmp_path)

    assert done.code == 1
    assert says in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.json"]


@pytest.mark.data
@pytest.mark.skipif(DATA is None, reason="GEMSLIDE_TEST_DATA is not set")
def test_the_structure_of_any_file_can_be_described(tmp_path):
    tricky = Path(DATA) / "python-pillow+test-images"
    files = [path for path in sorted(tricky.rglob("*")) if path.is_file()][:80]

    assert files
    for path in files:
        facts = describe_structure(path)
        assert json.loads(json.dumps(facts)) == facts, path


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file_can_be_described(tmp_path, seed):
    random = np.random.default_rng(seed)
    slide = (svs, ndpi)[seed % 2](tmp_path)
    content = bytearray(slide.read_bytes())
    for at in random.integers(0, len(content), 12):
        content[at] = random.integers(256)
    at = random.integers(0, len(content) - 400)
    content[at : at + 400] = random.bytes(400)
    slide.write_bytes(content)

    facts = describe_structure(slide)

    assert json.loads(json.dumps(facts)) == facts
    assert isinstance(hide_words_of(slide, "a message"), str)

"""DICOM results under an independent validator: dciodvfy, from Debian's package dicom3tools."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from pipeline.export.dicom.results import write_dicom_results
from pipeline.files import sha256_of
from tests.pipeline.export.predicted import made_predictions
from tests.pipeline.make import sample_image
from tests.pipeline.slides.make_dicom import placed_on_the_glass, write_dicom

OF_THE_SOURCE = {"Laterality"}
"""Findings inherited from the source: results repeat its patient data, and this one states no laterality."""
NOT_ASKED_FOR = {
    # A TILED_FULL frame's position follows from its number (PS3.3 C.7.6.17.3); the validator knows that of slides only.
    "PlanePositionSequence", "PlaneOrientationSequence", "PlanePositionSlideSequence", "SegmentIdentificationSequence",
    "PerFrameFunctionalGroupsSequence",
    # For images without Image Orientation (Slide), which these have (PS3.3 C.7.6.1).
    "PatientOrientation",
    # For padding that is a range (PS3.3 C.7.6.24); ours is one number.
    "FloatPixelPaddingRangeLimit",
}  # fmt: skip
"""Attributes that the validator reports as missing although the standard does not require them here."""


@pytest.mark.parametrize("kind", ["dicom-seg", "dicom-pm"])
def test_the_validator_finds_no_error_but_those_that_are_its_own(tmp_path, kind):
    validator = shutil.which("dciodvfy")
    if validator is None:
        pytest.skip("dciodvfy is not installed (Debian: dicom3tools)")
    source = write_dicom(tmp_path / "slide.dcm", sample_image(340, 250), change=placed_on_the_glass)
    result = tmp_path / "result.dcm"
    write_dicom_results(
        source, made_predictions(7, 10, stride_px0=32.0), {kind: result}, source_sha256=sha256_of(source)
    )

    done = subprocess.run([validator, "-new", result], capture_output=True, text=True, check=False)

    output = done.stdout + done.stderr
    assert re.search("^(Segmentation|ParametricMap)$", output, re.MULTILINE), output
    errors = [line for line in output.splitlines() if line.startswith("Error")]
    named = {re.search(r"(\w+)\([0-9a-f]{4},[0-9a-f]{4}\)>? *>? - ", line)[1]: line for line in errors}
    assert not [line for name, line in named.items() if name not in OF_THE_SOURCE | NOT_ASKED_FOR]
    assert len(named) >= 2, "it looks into the file"

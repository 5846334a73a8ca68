"""Names and texts of a store in DICOM, up to the limits of its value representations."""

from __future__ import annotations

import shutil
import subprocess

import pydicom
import pytest
from pydicom import config

from pipeline.export.export import ExportRequest, export_slide
from tests.pipeline.export.make_store import jfif, jpeg_level, make_store
from tests.pipeline.export.store_edits import edit_root
from tests.pipeline.make import sample_image


def exported(folder, slide_id="S-1", **root):
    """Attributes of an export, which pydicom and the validator accept."""
    store = make_store(folder / f"{slide_id}.ome.zarr", [jpeg_level(sample_image(150, 90), 64, jfif("422"))])
    edit_root(store, lambda content: content.update(root))
    with config.strict_reading(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(config.settings, "writing_validation_mode", config.RAISE)
        export_slide(ExportRequest(store, folder / "out", "dicom"))
        dataset = pydicom.dcmread(folder / "out/level-0.dcm", stop_before_pixels=True)
        str(dataset)  # converts every value
    if validator := shutil.which("dciodvfy"):
        done = subprocess.run([validator, folder / "out/level-0.dcm"], capture_output=True, text=True, check=False)
        assert [line for line in done.stderr.splitlines() if line.startswith("Error")] == []
    return dataset


@pytest.mark.parametrize("slide_id", ["a" * 64, "9" * 64, "-._" + "Z" * 61, "_", "-", "1.2.840.10008"])
def test_every_slide_id_fits_whole(tmp_path, slide_id):
    dataset = exported(tmp_path, slide_id)

    specimen = dataset.SpecimenDescriptionSequence[0]
    assert (dataset.ContainerIdentifier, specimen.SpecimenIdentifier) == (slide_id, slide_id)
    uids = [element.value for element in dataset.iterall() if element.VR == "UI"]
    assert len(uids) == 8
    assert all(uid.is_valid for uid in uids)


@pytest.mark.parametrize(
    ("model", "written"),
    [
        ("x" * 1000, "x" * 64),
        ("a\\b", "a/b"),
        ("a\nb\0c", "a b c"),
        ("\x1b[2J Scanner", "[2J Scanner"),
        ("\u0085Müller\x7f", "Müller"),
        (" \t\r\n", "unknown"),
        ("\x1b", "unknown"),
        ("x" * 63 + " yy", "x" * 63),
        ("^=", "^="),
    ],
)
def test_a_scanner_s_name_cannot_begin_a_second_value_or_change_the_characters(tmp_path, model, written):
    assert exported(tmp_path, scanner_model=model).ManufacturerModelName == written


@pytest.mark.parametrize("power", [1e300, -1.23456789123e-300, 40.123456789123, 5e-324])
def test_any_objective_power_is_a_number_that_dicom_can_hold(tmp_path, power):
    (path,) = exported(tmp_path, objective_power=power).OpticalPathSequence

    assert len(str(path.ObjectiveLensPower)) <= 16
    assert float(path.ObjectiveLensPower) == pytest.approx(power, rel=1e-8)

"""Images of one size, of which one is taken: the ingest report, the store and the slide's page name those left out."""

from __future__ import annotations

import pytest
import tifffile

from pathology_app.slides.presenters import slide_notes
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.slides import open_slide
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import sample_image
from tests.pipeline.slides.make_dicom import write_dicom
from tests.pipeline.slides.make_ome_zarr import write_container

TAKEN = "image {} of 3 of 300×210 px in its file or folder was taken, and 2 others were left out"


@pytest.fixture
def stack(tmp_path):
    path = tmp_path / "stack.tiff"
    with tifffile.TiffWriter(path) as tiff:
        for seed in range(3):
            tiff.write(sample_image(300, 210, seed), photometric="rgb", tile=(64, 64), metadata=None)
    return path


def test_ingest_the_store_and_the_page_say_which_plane_of_a_tiff_was_taken(tmp_path, stack):
    project = Project(tmp_path)
    report = ingest_slide(IngestRequest(stack, "S-1", mpp_option=0.5, series="1"), project, IngestConfig())
    said = f"{TAKEN.format(2)} (images of one size may be focal planes)"
    assert said in report.warnings
    reader = StoreReader(project.store_path("S-1"))
    assert said in reader.attributes.warnings
    assert any(said in note for note in slide_notes(reader))


def test_series_of_one_size_in_a_dicom_folder_are_planes_left_out(tmp_path):
    folder = tmp_path / "stack"
    folder.mkdir()
    for plane in range(3):
        pixels = sample_image(300, 210, plane)
        write_dicom(folder / f"{plane}.dcm", pixels, series=f"1.2.3.{plane}")
    with open_slide(folder, series="1.2.3.0") as slide:
        assert [clause for clause in slide.info.warnings if TAKEN.format(1) in clause]
        assert "1.2.3" not in " ".join(slide.info.warnings)
    with open_slide(folder / "0.dcm") as slide:
        assert not list(slide.info.warnings), "the file alone"


def test_images_of_one_size_in_an_ome_zarr_are_planes_left_out(tmp_path):
    images = {name: [sample_image(300, 210, seed)] for seed, name in enumerate(("a", "b", "c"))}
    path = write_container(tmp_path / "a.zarr", images, version="0.5", listed=True)
    with open_slide(path, series="2") as slide:
        assert [clause for clause in slide.info.warnings if TAKEN.format(3) in clause]


def test_an_image_of_another_size_is_no_plane(tmp_path):
    path = tmp_path / "two.tiff"
    with tifffile.TiffWriter(path) as tiff:
        for width_px in (300, 310):
            tiff.write(sample_image(width_px, 210), photometric="rgb", tile=(64, 64), metadata=None)
    with open_slide(path, series="0") as slide:
        assert not [clause for clause in slide.info.warnings if "left out" in clause]

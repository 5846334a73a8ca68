"""A DICOM file that declares a label or text burned into its image is refused, unless labels are kept."""

import json

import pytest

from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import ingest, sample_image
from tests.pipeline.slides.make_dicom import write_dicom
from training.foundation.errors import UnreadableError

ATTRIBUTES = ["BurnedInAnnotation", "SpecimenLabelInImage"]


def slide_that_says(path, **attributes):
    def set_attributes(ds):
        for name, value in attributes.items():
            setattr(ds, name, value)

    return write_dicom(path, sample_image(320, 200), change=set_attributes)


@pytest.mark.parametrize("name", ATTRIBUTES)
@pytest.mark.parametrize("value", ["YES", "yes ", ["NO", "YES"]])
@pytest.mark.filterwarnings("ignore:Invalid value for VR CS:UserWarning")
def test_a_slide_that_says_its_label_is_in_the_image_is_refused_and_leaves_nothing(tmp_path, name, value):
    path = slide_that_says(tmp_path / "a.dcm", **{name: value})

    with pytest.raises(UnreadableError, match=rf"slide S-1: .*\({name} YES\).*--keep-label"):
        ingest(path, tmp_path / "p")

    assert not list((tmp_path / "p").rglob("*.ome.zarr*"))


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_it_is_taken_when_labels_are_kept_and_the_store_says_so(tmp_path, name):
    path = slide_that_says(tmp_path / "a.dcm", **{name: "YES"})

    store = ingest(path, tmp_path / "p", keep_associated=("label",)).store

    assert StoreReader(store).attributes.ingest["settings"]["keep_associated"] == ["label"]


def test_files_that_say_no_or_nothing_are_taken(tmp_path):
    for number, attributes in enumerate([{}, {"BurnedInAnnotation": "NO", "SpecimenLabelInImage": "NO"}]):
        assert ingest(slide_that_says(tmp_path / f"{number}.dcm", **attributes), tmp_path / str(number)).store.is_dir()


def test_both_commands_that_look_at_a_cohort_say_what_to_do(gemslide, tmp_path):
    slide_that_says(tmp_path / "a.dcm", BurnedInAnnotation="YES")
    manifest = tmp_path / "cohort.csv"
    manifest.write_text("path,slide_id,patient_id\na.dcm,S-1,P-1\n")
    (tmp_path / "p").mkdir()

    checked = gemslide("cohort", "check", manifest, "--project", tmp_path / "p")
    refused = gemslide("ingest", manifest, "--project", tmp_path / "p", "--json")
    taken = gemslide("ingest", manifest, "--project", tmp_path / "p", "--keep-label")

    assert (checked.code, refused.code, taken.code) == (1, 1, 0)
    assert "BurnedInAnnotation YES" in checked.out + checked.err
    assert "give `--keep-label`" in json.loads(refused.out.splitlines()[0])["message"]

"""DICOM results match the slide's position on the glass, hold the array, and are conformant."""

import json
from dataclasses import replace

import highdicom as hd
import numpy as np
import pydicom
import pytest
from highdicom import _standard_utils

from pipeline.errors import ChangedSourceError
from pipeline.export.dicom.library import read_parametric_map, read_segmentation
from pipeline.export.dicom.results import write_dicom_results
from pipeline.files import sha256_of
from pipeline.inference.results.check import check_results
from pipeline.inference.results.files import write_results
from pipeline.inference.results.slide_report import About
from pipeline.settings.config import InferConfig
from pipeline.slides.common.damage import DamagedFileError
from pipeline.store.layers.overlays import write_predictions
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.export.predicted import NAMES, float32, made_predictions
from tests.pipeline.make import ingest, sample_image, write_jpeg_pyramid
from tests.pipeline.slides.make_dicom import PATIENT, placed_on_the_glass, write_dicom
from training.foundation.errors import BadRecipeError, UnreadableError

CAMELYON = "GoogleCloudPlatform+medical-imaging/pathology/dicom_proxy/testdata"
REAL = (
    f"{CAMELYON}/multi_frame_jpeg2000_camelyon_challenge_image.dcm",
    f"{CAMELYON}/multi_frame_jpeg_camelyon_challenge_image.dcm",
    "ImagingDataCommons+highdicom/data/test_files/sm_image.dcm",
)
STRIDE = 32.0


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dicom")
    return write_dicom(folder / "slide.dcm", sample_image(340, 250), change=placed_on_the_glass)


@pytest.fixture(scope="module")
def made():
    return made_predictions(7, 10, stride_px0=STRIDE)


@pytest.fixture(scope="module")
def written(source, made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    files = {"dicom-seg": folder / "s.dcm", "dicom-pm": folder / "p.dcm"}
    write_dicom_results(source, made, files, source_sha256=sha256_of(source))
    return files


def test_highdicom_reads_the_segmentation_back_to_a_255th(written, made):
    seg = hd.seg.segread(written["dicom-seg"])
    values = seg.get_total_pixel_matrix(dtype=np.float64)

    assert (seg.SegmentationType, seg.SegmentationFractionalType) == ("FRACTIONAL", "PROBABILITY")
    assert (seg.MaximumFractionalValue, seg.DimensionOrganizationType) == (255, "TILED_FULL")
    assert values.shape == (7, 10, 3)
    assert np.abs(values - np.nan_to_num(np.moveaxis(float32(made), 0, -1))).max() <= 0.5 / 255 + 1e-6
    assert [segment.SegmentLabel for segment in seg.SegmentSequence] == [name.replace("\\", "/") for name in NAMES]
    algorithm = seg.SegmentSequence[0].SegmentationAlgorithmIdentificationSequence[0]
    assert algorithm.AlgorithmName == made.model_id
    assert np.array_equal(read_segmentation(written["dicom-seg"]), np.moveaxis(values, -1, 0))


def test_the_parametric_map_holds_the_array_exactly_and_says_what_padding_is(written, made):
    pm = pydicom.dcmread(written["dicom-pm"])
    mappings = [group.RealWorldValueMappingSequence[0] for group in pm.PerFrameFunctionalGroupsSequence]

    assert np.array_equal(read_parametric_map(written["dicom-pm"]), np.nan_to_num(float32(made), nan=-1.0))
    assert (pm.FloatPixelPaddingValue, pm.ContentQualification) == (-1.0, "RESEARCH")
    assert [mapping.LUTExplanation for mapping in mappings] == [name.replace("\\", "/") for name in NAMES]
    assert {(mapping.RealWorldValueSlope, mapping.RealWorldValueIntercept) for mapping in mappings} == {(1.0, 0.0)}


@pytest.mark.parametrize("kind", ["dicom-seg", "dicom-pm"])
def test_a_cell_lies_where_the_source_pixel_under_it_lies(source, written, made, kind):
    of_source = hd.spatial.PixelToReferenceTransformer.for_image(hd.imread(source), for_total_pixel_matrix=True)
    of_cells = hd.spatial.PixelToReferenceTransformer.for_image(hd.imread(written[kind]), for_total_pixel_matrix=True)
    hot = np.argwhere(np.nan_to_num(float32(made)[1]) == np.nanmax(float32(made)[1]))[0]
    cells_xy = np.array([[0, 0], [9, 6], hot[::-1]])
    centres_xy = (cells_xy + 0.5) * STRIDE - 0.5

    # Whole pixels only: a centre between four pixels is the mean of the first and the last one.
    four = [of_source((np.floor(centres_xy) + shift).astype(int)) for shift in (0, 1)]
    assert of_cells(cells_xy) == pytest.approx((four[0] + four[1]) / 2, abs=1e-9)


@pytest.mark.parametrize("kind", ["dicom-seg", "dicom-pm"])
def test_it_belongs_to_the_slide_s_study_and_says_that_it_is_for_research(source, written, kind):
    ours, slide = pydicom.dcmread(written[kind]), pydicom.dcmread(source, stop_before_pixels=True)

    for keyword in ("PatientName", "PatientID", "StudyInstanceUID", "FrameOfReferenceUID", "AccessionNumber"):
        assert ours[keyword].value == slide[keyword].value
    assert str(ours.PatientName) == PATIENT
    assert ours.SeriesInstanceUID != slide.SeriesInstanceUID
    assert ours.SeriesDescription.startswith("Research use only")
    assert slide.SOPInstanceUID in str(ours)


def _named(ds):
    placed_on_the_glass(ds)
    ds.SpecificCharacterSet, ds.PatientName = "ISO_IR 100", "Müller^Jürgen"


def test_names_of_the_patient_and_of_classes_are_kept_in_any_script(tmp_path):
    names = ("腫瘍", "Größe")
    source = write_dicom(tmp_path / "slide.dcm", sample_image(340, 250), change=_named)
    files = {"dicom-seg": tmp_path / "s.dcm"}
    write_dicom_results(
        source, made_predictions(7, 10, stride_px0=STRIDE, names=names), files, source_sha256=sha256_of(source)
    )

    seg = pydicom.dcmread(files["dicom-seg"])
    assert str(seg.PatientName) == "Müller^Jürgen"
    assert tuple(segment.SegmentLabel for segment in seg.SegmentSequence) == names


def _items(datasets, path):
    for keyword in path:
        datasets = [item for dataset in datasets for item in dataset.get(keyword) or []]
    return datasets


@pytest.mark.parametrize("kind", ["dicom-seg", "dicom-pm"])
def test_it_has_every_attribute_that_the_standard_asks_for(written, kind):
    """Checked with the standard's own tables as shipped by highdicom: types 1 and 2 of the mandatory modules.

    The functional groups module is left out: its table lists macros, of which an object needs only some.
    """
    ds = pydicom.dcmread(written[kind])
    iod = _standard_utils.get_sop_class_iod_map()[ds.SOPClassUID]
    modules = [m["key"] for m in _standard_utils.get_iod_module_map()[iod] if m["usage"] == "M"]
    looked_at, missing = 0, []
    for module in modules:
        if module.endswith("functional-groups"):
            continue
        for attribute in _standard_utils.get_module_attribute_map()[module]:
            for dataset in _items([ds], attribute["path"]):
                looked_at += 1
                keyword, kind_of = attribute["keyword"], attribute["type"]
                is_there = keyword in dataset
                if kind_of in ("1", "2") and not (is_there and (kind_of == "2" or not dataset[keyword].is_empty)):
                    missing.append((module, attribute["path"], keyword))

    assert missing == []
    assert looked_at > 200


def test_the_same_predictions_keep_their_identity_and_others_get_another(source, made, written, tmp_path):
    files = {"dicom-seg": tmp_path / "again.dcm"}
    write_dicom_results(source, made, files, source_sha256=sha256_of(source))
    other = {"dicom-seg": tmp_path / "other.dcm"}
    write_dicom_results(source, made_predictions(6, 10, stride_px0=STRIDE), other, source_sha256=sha256_of(source))

    first, again, third = (
        pydicom.dcmread(path).SOPInstanceUID for path in (written["dicom-seg"], files["dicom-seg"], other["dicom-seg"])
    )
    assert first == again != third


def test_a_source_that_does_not_say_where_it_lies_begins_at_the_origin_and_that_is_said(made, tmp_path):
    source = write_dicom(tmp_path / "slide.dcm", sample_image(340, 250))
    files = {"dicom-seg": tmp_path / "s.dcm"}

    remark = write_dicom_results(source, made, files, source_sha256=sha256_of(source))

    (origin,) = pydicom.dcmread(files["dicom-seg"]).TotalPixelMatrixOriginSequence
    middle_mm = -(STRIDE - 1) / 2 * 0.0005  # half a cell less half a pixel; x on the glass runs opposite to the rows
    assert "its first pixel was taken as the origin" in remark
    assert origin.XOffsetInSlideCoordinateSystem == pytest.approx(middle_mm)
    assert origin.YOffsetInSlideCoordinateSystem == pytest.approx(middle_mm)


def _without_study(ds):
    placed_on_the_glass(ds)
    del ds.StudyInstanceUID


def _skewed(ds):
    placed_on_the_glass(ds)
    ds.ImageOrientationSlide = [1, 0, 0, 1, 0, 0]


@pytest.mark.parametrize(
    ("change", "says"),
    [(_without_study, "StudyInstanceUID"), (_skewed, r"Image Orientation \(Slide\) is")],
)
def test_a_source_that_lacks_what_a_result_repeats_is_refused(made, tmp_path, change, says):
    source = write_dicom(tmp_path / "slide.dcm", sample_image(340, 250), change=change)

    with pytest.raises(UnreadableError, match=says):
        write_dicom_results(source, made, {"dicom-pm": tmp_path / "p.dcm"}, source_sha256=sha256_of(source))
    assert [path.name for path in tmp_path.iterdir()] == ["slide.dcm"]


def test_inference_writes_everything_else_where_a_source_lacks_what_dicom_results_repeat(made, tmp_path):
    source = write_dicom(tmp_path / "slide.dcm", sample_image(340, 250), change=_skewed)
    reader = StoreReader(ingest(source, tmp_path / "project").store)
    (tmp_path / "out").mkdir()

    config = InferConfig(formats=("csv", "dicom-seg", "dicom-pm", "report"))
    written = write_results(reader, made, tmp_path / "out", config, About(source=source))

    assert "dicom-seg and dicom-pm not written: slide.dcm" in written.warning
    assert "Image Orientation (Slide) is" in written.warning
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"predictions.csv", "slide_report.html", "hotspots.json"}


def test_another_slide_than_the_predicted_one_is_refused(source, made, tmp_path):
    with pytest.raises(ChangedSourceError, match="but the predictions are of a slide with 000000000000"):
        write_dicom_results(source, made, {"dicom-seg": tmp_path / "s.dcm"}, source_sha256="0" * 64)


def test_a_damaged_result_is_said_to_be_damaged(written, tmp_path):
    for kind, read in (("dicom-seg", read_segmentation), ("dicom-pm", read_parametric_map)):
        (tmp_path / kind).write_bytes(written[kind].read_bytes()[:700])
        with pytest.raises(DamagedFileError):
            read(tmp_path / kind)


@pytest.mark.parametrize("name", REAL)
def test_results_on_real_slides_hold_the_array(real_slides, tmp_path, name):
    source = real_slides / name
    slide = pydicom.dcmread(source, stop_before_pixels=True)
    stride = max(slide.TotalPixelMatrixColumns, slide.TotalPixelMatrixRows) / 9.5
    rows, columns = (int(side / stride) for side in (slide.TotalPixelMatrixRows, slide.TotalPixelMatrixColumns))
    made = made_predictions(max(rows, 6), max(columns, 6), stride_px0=stride)
    files = {"dicom-seg": tmp_path / "s.dcm", "dicom-pm": tmp_path / "p.dcm"}

    write_dicom_results(source, made, files, source_sha256=sha256_of(source))

    assert np.array_equal(read_parametric_map(files["dicom-pm"]), np.nan_to_num(float32(made), nan=-1.0))
    assert np.abs(read_segmentation(files["dicom-seg"]) - np.nan_to_num(float32(made))).max() <= 0.5 / 255 + 1e-6


def test_export_writes_predictions_of_the_store_over_its_own_source(source, made, gemslide, tmp_path):
    store = ingest(source, tmp_path / "project").store
    write_predictions(store, made, mpp0=0.5)
    where = ["--project", tmp_path / "project", "--json"]

    lacking = gemslide("export", "S-1", tmp_path / "s.dcm", "--to", "dicom-seg", *where)
    done = gemslide(
        "export", "S-1", tmp_path / "s.dcm", "--to", "dicom-seg", "--model", made.model_id, "--source", source, *where
    )
    again = gemslide(
        "export", "S-1", tmp_path / "s.dcm", "--to", "dicom-seg", "--model", made.model_id, "--source", source, *where
    )
    unfit = gemslide("export", "S-1", tmp_path / "s.zarr", "--model", made.model_id, *where)

    assert (lacking.code, done.code, again.code, unfit.code) == (1, 0, 1, 1)
    assert "needs --model MODEL_ID" in json.loads(lacking.out)["message"]
    assert "already exists" in json.loads(again.out)["message"]
    assert "are for --to dicom-seg" in json.loads(unfit.out)["message"]
    assert np.abs(read_segmentation(tmp_path / "s.dcm") - np.nan_to_num(float32(made))).max() <= 0.5 / 255 + 1e-6
    record = json.loads(max((tmp_path / "project/runs").glob("*.json")).read_text())
    assert str(tmp_path) not in json.dumps(record)


def test_a_folder_of_several_series_is_refused_with_what_to_do(source, made, gemslide, tmp_path):
    store = ingest(source, tmp_path / "project").store
    write_predictions(store, made, mpp0=0.5)
    folder = tmp_path / "scans"
    folder.mkdir()
    for series in ("1.2.3.4", "1.2.3.5"):
        write_dicom(folder / f"{series}.dcm", sample_image(340, 250), series=series)
    chosen = (
        "--to",
        "dicom-pm",
        "--model",
        made.model_id,
        "--source",
        folder,
        "--project",
        tmp_path / "project",
        "--json",
    )

    done = gemslide("export", "S-1", tmp_path / "p.dcm", *chosen)

    assert json.loads(done.out)["code"] == "which_series"
    assert "Name a folder with only the files of the series" in done.out
    assert not (tmp_path / "p.dcm").exists()


def test_inference_that_knows_its_source_writes_both_and_they_are_held_against_the_array(source, made, tmp_path):
    reader = StoreReader(ingest(source, tmp_path / "project").store)
    config = InferConfig(formats=("dicom-seg", "dicom-pm"))
    (tmp_path / "out").mkdir()

    (tmp_path / "without").mkdir()

    written = write_results(reader, made, tmp_path / "out", config, About(source=source))
    unknown = write_results(reader, made, tmp_path / "without", config)

    assert written.warning is None
    assert "the store does not record its source" in unknown.warning
    assert {path.name for path in (tmp_path / "out").glob("*.dcm")} == {"segmentation.dcm", "parametric_map.dcm"}
    assert check_results(tmp_path / "out", made, reader=reader) == []
    bits = made.probabilities_cyx.copy()
    bits[:, 6, 9] = bits[[1, 2, 0], 6, 9]
    (tmp_path / "out/hotspots.json").unlink()
    faults = check_results(tmp_path / "out", replace(made, probabilities_cyx=bits), reader=reader)
    assert [fault.partition(":")[0] for fault in faults] == ["segmentation.dcm", "parametric_map.dcm"]
    assert all("in row 6, column 9 where" in fault for fault in faults)


def test_a_slide_that_is_not_dicom_gets_no_dicom_result(made, tmp_path):
    slide = write_jpeg_pyramid(tmp_path / "slide.tiff", [sample_image(340, 250)])

    with pytest.raises(BadRecipeError, match="not DICOM"):
        write_dicom_results(slide, made, {"dicom-seg": tmp_path / "s.dcm"}, source_sha256=sha256_of(slide))

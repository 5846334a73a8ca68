"""Only names of known scanners are stored, in one spelling, whatever else a file says about its scanner."""

import pytest

from pipeline.slides.common.scanner_models import known_model
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import ingest, sample_image, write_pyramid
from tests.pipeline.slides.make_dicom import write_dicom

MODEL_TAG = 272


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("Aperio GT450", "Aperio GT 450"),
        ("GT450 DX", "Aperio GT 450 DX"),
        ("LEICA BIOSYSTEMS APERIO AT2\0", "Aperio AT2"),
        ("ScanScope XT", "Aperio ScanScope XT"),
        ('"NanoZoomer 2.0-HT"', "NanoZoomer 2.0-HT"),
        ("Hamamatsu C13220-01", "C13220-01"),
        ("Pannoramic 250 Flash III", "Pannoramic 250 Flash III"),
        ("Philips Ultra Fast Scanner", "Ultra Fast Scanner"),
        ("UFS Scanner", "UFS Scanner"),
        ("Leica SCN400", "Leica SCN400"),
        ("VENTANA DP 200", "VENTANA DP 200"),
        ("iScan Coreo", "iScan Coreo"),
        ("Axio Scan.Z1", "Axio Scan.Z1"),
    ],
)
def test_a_scanner_is_known_however_its_name_is_spelled(text, stored):
    assert known_model(text) == stored
    assert known_model(stored) == stored


@pytest.mark.parametrize(
    "text",
    ["Jane Roe 1950-02-03", "TCGA-5P-A9K0", "TCGA-5P-A9K0-01Z-00-DX1", "Roe", "Aperio AT2 Jane Roe", "SN-99",
     "AT2 7731", "Aperio", "Leica Biosystems", "C9600-Roe", "", "\0", "x" * 100_000],
)  # fmt: skip
def test_a_person_a_barcode_or_a_serial_number_is_no_scanner(text):
    assert known_model(text) is None


def test_readers_of_tiff_and_dicom_give_a_name_of_the_table_or_none(tmp_path):
    for number, (text, stored) in enumerate([("Jane Roe 1950", None), ("aperio at2", "Aperio AT2")]):
        tag = (MODEL_TAG, 2, 0, text, True)
        tiff = write_pyramid(tmp_path / f"{number}.tiff", [sample_image(300, 200)], compression="lzw", extratags=[tag])

        def named(ds, text=text):
            ds.ManufacturerModelName = text

        dicom = write_dicom(tmp_path / f"{number}.dcm", sample_image(300, 200), change=named)
        for path in (tiff, dicom):
            with open_slide(path) as slide:
                assert slide.info.scanner_model == stored


@pytest.mark.parametrize(("power", "stored"), [("40", 40.0), ("19500203", None), ("-1", None), ("20.123", 20.12)])
def test_an_objective_power_that_no_objective_has_is_not_stored(tmp_path, power, stored):
    def powered(ds):
        ds.OpticalPathSequence[0].ObjectiveLensPower = power

    source = write_dicom(tmp_path / "a.dcm", sample_image(300, 200), change=powered)

    assert StoreReader(ingest(source, tmp_path).store).attributes.objective_power == stored

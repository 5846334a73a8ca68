"""Slides with readable labels go through the whole workflow; the project folder holds nothing of their identity."""

from __future__ import annotations

import json
import shutil

import pytest
import tifffile

from pipeline.cohort.manifest import COLUMNS
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.identity_scan import aperio_words, associated_page, identity_of, scan

pytestmark = pytest.mark.data

SLIDES = {
    "A9K0_1": "BhavyaKohli+MoNuSAC-Instance-Segmentation/code/sample_original/A9K0_1.svs",
    "A9K0_3": "BhavyaKohli+MoNuSAC-Instance-Segmentation/code/sample_original/A9K0_3.svs",
    "small_HE": "Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs",
}
WORDS = [
    "A9K0_1",
    "A9K0_3",
    "small_HE",
    "TCGA-5P-A9K0",
    "Jane Roe",
    "St. Mary Clinic",
    "ward-77",
    "Roe_Jane_1950-02-03",
]
LABELS_SAY = ["5P-A9K0", "01Z-00-DX1", "141009-0006", "9/23/2014"]
RECIPE = """
[data]
tile_set = "tiles"
[model]
depth = 11
num_classes = 2
[parallel]
num_microbatches = 2
microbatch_size = 4
[optim]
lr = 0.01
[train]
steps = 2
"""
SETTINGS = "[tile]\ntile_px = 32\nmpp = 1.0\nmin_tissue = 0.1\n"


@pytest.fixture(scope="module")
def sources(real_slides, tmp_path_factory):
    """Three slides in a folder named after a ward and a patient, with outlines and a manifest that names all."""
    folder = tmp_path_factory.mktemp("in") / "ward-77" / "Roe_Jane_1950-02-03"
    folder.mkdir(parents=True)
    rows = [",".join(COLUMNS)]
    for number, (stem, path) in enumerate(SLIDES.items()):
        shutil.copy(real_slides / path, folder / f"{stem}.svs")
        _write_halves(folder / f"{stem}.geojson", folder / f"{stem}.svs")
        cells = dict.fromkeys(COLUMNS, "") | {
            "path": f"{stem}.svs", "slide_id": stem, "patient_id": "Jane Roe" if number == 2 else "TCGA-5P-A9K0",
            "site": "St. Mary Clinic", "annotations": f"{stem}.geojson", "split": "train" if number == 2 else "val",
        }  # fmt: skip
        rows.append(",".join(cells.values()))
    (folder / "cohort.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def _write_halves(path, slide):
    """Outline the left half as "one", the right half as "two", with the patient's name in the outlines' names."""
    with tifffile.TiffFile(slide) as tiff:
        width, height = tiff.pages.first.imagewidth, tiff.pages.first.imagelength
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": [[[x0, 0], [x1, 0], [x1, height], [x0, height], [x0, 0]]]},
            "properties": {"objectType": "annotation", "name": "Jane Roe", "classification": {"name": name}},
        }
        for name, x0, x1 in (("one", 0, width // 2), ("two", width // 2, width))
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")


@pytest.fixture(scope="module")
def identity(sources):
    files = [sources / f"{stem}.svs" for stem in SLIDES]
    return identity_of(
        files, [*WORDS, *LABELS_SAY, *(word for file in files for word in aperio_words(file)), str(sources)]
    )


@pytest.fixture(scope="module")
def pseudonymized(gemslide, sources, tmp_path_factory):
    secret = tmp_path_factory.mktemp("secret")
    done = gemslide(
        "cohort", "pseudonymize", sources / "cohort.csv", "--map", secret / "map.csv", "--out", secret / "pseudo.csv"
    )
    assert done.code == 0, done.err
    return secret / "pseudo.csv"


@pytest.fixture(scope="module")
def project(gemslide_process, pseudonymized, tmp_path_factory):
    """Project after the whole workflow, run by its commands."""
    root = tmp_path_factory.mktemp("out") / "project"
    root.mkdir()
    (root / "gemslide.toml").write_text(SETTINGS)
    (root / "r.toml").write_text(RECIPE)

    def run(*arguments):
        done = gemslide_process(*arguments, "--project", root)
        assert done.code == 0, done.out + done.err
        return done

    ingested = run("ingest", pseudonymized)
    assert "named after" not in ingested.err
    run("tile", pseudonymized)
    run("train", root / "r.toml")
    model = sorted(p.name for p in (root / "models").iterdir() if p.name[0] != ".")[0]
    run("infer", model)
    run("evaluate", model, "--split", "val", "--no-baselines")
    slide_id = next((root / "slides").iterdir()).name.removesuffix(".ome.zarr")
    run("export", slide_id, root / "copy.ome.tiff")
    return root


def test_the_description_names_file_person_machine_and_moment(sources):
    """Check that the words to search for are really in the source."""
    assert aperio_words(sources / "small_HE.svs") == [
        "CPAPERIOCS", "CMU-1", "12/29/09", "09:59:15", "b414003d-95c6-48b0-9369-8010ed517ba7", "1004486",
    ]  # fmt: skip


def test_nothing_of_a_slide_s_identity_is_in_the_project_folder(project, identity):
    kinds = {path.suffix for path in project.rglob("*") if path.is_file()}
    assert {".json", ".parquet", ".csv", ".geojson", ".png", ".html", ".md", ".safetensors", ".tiff"} <= kinds
    assert len(list((project / "slides").iterdir())) == 3

    assert scan(project, identity) == []


def test_the_scan_finds_identity_where_it_is(project, identity, sources, tmp_path):
    """A planted name in a table and in UTF-16, a slide's stem as a file name, and a piece of a label's strip."""
    shutil.copytree(project / "runs", tmp_path / "runs")
    (tmp_path / "log.txt").write_bytes("patient JANE ROE".encode("utf-16-le"))
    (tmp_path / "small_he.txt").write_text("nothing")
    with tifffile.TiffFile(sources / "A9K0_1.svs") as tiff:
        label = associated_page(tiff, "Label")
        middle = len(label.dataoffsets) // 2
        tiff.filehandle.seek(label.dataoffsets[middle])
        strip = tiff.filehandle.read(label.databytecounts[middle])
    (tmp_path / "piece.bin").write_bytes(b"x" * 1000 + strip[20:60] + b"y" * 1000)

    lines = scan(tmp_path, identity)

    assert {line.split(":")[0] for line in lines} == {"log.txt", "name of small_he.txt", "piece.bin"}


def test_labels_are_in_the_store_when_asked_for_and_it_says_so(gemslide, pseudonymized, identity, tmp_path):
    done = gemslide("ingest", pseudonymized, "--project", tmp_path, "--keep-label")

    assert done.code == 0, done.err
    stores = sorted((tmp_path / "slides").iterdir())
    for store in stores:
        attributes = StoreReader(store).attributes
        assert attributes.associated == ("label",)
        assert attributes.ingest["settings"]["keep_associated"] == ["label"]
    (record,) = (json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*.json"))
    assert record["settings"]["ingest"]["keep_associated"] == ["label"]
    lines = scan(tmp_path, identity)
    assert [line.split(":")[0] for line in lines] == [
        f"values of slides/{store.name}/1/0/zarr.json" for store in stores
    ]


def test_macros_are_in_the_store_when_the_settings_ask_for_them(gemslide, sources, identity, tmp_path):
    (tmp_path / "S-1.svs").symlink_to(sources / "small_HE.svs")
    (tmp_path / "p").mkdir()
    (tmp_path / "p/gemslide.toml").write_text('[ingest]\nkeep_associated = ["macro"]\n')
    done = gemslide("ingest", tmp_path / "S-1.svs", "--project", tmp_path / "p")

    assert done.code == 0, done.err
    store = tmp_path / "p/slides/S-1.ome.zarr"
    assert StoreReader(store).attributes.associated == ("macro",)
    assert [line.split(":")[0] for line in scan(store, identity)] == ["values of 1/0/zarr.json"]


def test_slides_named_after_their_files_are_said_once(gemslide, sources, tmp_path):
    done = gemslide("ingest", sources / "A9K0_3.svs", "--project", tmp_path, "--json")

    assert done.code == 0
    assert done.err.count("named after its file") == 1
    assert "gemslide cohort pseudonymize" in done.err


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_manifest_inside_the_project_is_said(gemslide, sources, tmp_path, suffix):
    manifest = tmp_path / f"cohort.{suffix}"
    manifest.write_text(f"path,slide_id\n{sources / 'A9K0_3.svs'},S-1\n")

    done = gemslide("ingest", manifest, "--project", tmp_path)

    assert "is in the project folder, but it names files and patients" in done.err
    assert "named after" not in done.err

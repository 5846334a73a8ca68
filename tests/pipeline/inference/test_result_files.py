"""All files of a slide's results come from one array, and are checked against it."""

import json
import re
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.annotations.formats.geojson import qupath_origin_xy0
from pipeline.box import Box
from pipeline.export.qupath.collection import write_collection
from pipeline.inference.results.check import check_results
from pipeline.inference.results.files import FILE_OF, heatmap_name, write_results
from pipeline.inference.results.model_essentials import read_essentials
from pipeline.inference.results.slide_report import About
from pipeline.project import Project
from pipeline.settings.config import InferConfig
from pipeline.store.format.metadata import read_json, write_json
from pipeline.store.layers.overlays import Predictions, write_predictions
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.export.make_store import jfif, jpeg_level, make_store
from tests.pipeline.export.predicted import NAMES, made_predictions
from tests.pipeline.make import halved, ingest, sample_image, write_jpeg_pyramid
from training.foundation.errors import BadRecipeError
from training.foundation.settings import parse_section

EVERY = InferConfig(formats=("csv", "parquet", "geojson", "contours", "heatmap", "ome-tiff", "report"), threshold=0.4)
SECONDS = {"waiting": 0.25, "read": 1.5, "decode": 2.0, "transfer": 0.0, "compute": 30.25, "merge": 0.5}
FACTS = {"tiles": 57, "tiles_beside_damage": 3, "colour_distance": 1.25, "flags": ["<i>Far</i> from training."]}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    levels = [jpeg_level(pixels, 256, jfif("420")) for pixels in halved(sample_image(1330, 970), 1)]
    return make_store(tmp_path_factory.mktemp("results") / "slides/R-1.ome.zarr", levels)


@pytest.fixture(scope="module")
def reader(store):
    """Reader of a partly scanned slide, as in MRXS."""
    root = read_json(store / "zarr.json")
    root["attributes"]["gemslide"]["bounds_px0"] = Box(40, 60, 1200, 800)
    write_json(store / "zarr.json", root)
    return StoreReader(store)


@pytest.fixture(scope="module")
def made():
    return made_predictions()


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    (folder / "config.json").write_text(json.dumps({"architecture": "<b>resnet</b>", "gemslide": {"epoch": 4}}))
    (folder / "metrics.json").write_text(json.dumps({"auc": 0.8125, "note": "text", "nested": {}}))
    (folder / "card.md").write_text("# m\n\n## Intended use\nTo *find* tumour.\n\n## Limits\n| a |\nOne scanner.\n")
    return folder


@pytest.fixture(scope="module")
def written(reader, made, package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    write_results(reader, made, folder, EVERY, About(package, None, SECONDS, FACTS))
    return folder


def test_every_format_that_is_asked_for_is_written_and_no_other(written, reader, made, tmp_path):
    write_results(reader, made, tmp_path, InferConfig(formats=("parquet",)))

    heatmaps = {heatmap_name(name) for name in NAMES}
    files = {FILE_OF[kind] for kind in EVERY.formats if kind != "heatmap"}
    assert {path.name for path in written.iterdir()} == files | heatmaps | {"hotspots.json"}
    assert {path.name for path in tmp_path.iterdir()} == {"predictions.parquet", "hotspots.json"}


def test_all_files_agree_with_the_array(written, made, reader):
    assert check_results(written, made, reader=reader) == []


def test_qupath_s_coordinates_begin_where_the_scan_does_and_tables_at_the_slide_s_corner(written, reader):
    first = json.loads((written / "predictions.geojson").read_text())["features"][0]

    assert qupath_origin_xy0(reader.attributes.bounds_px0) == (40, 60)
    assert first["geometry"]["coordinates"][0][0] == [-40.0, 68.0]
    assert pq.read_table(written / "predictions.parquet")["minx"][0].as_py() == 0


def _other_number(folder):
    text = (folder / "predictions.csv").read_text().splitlines()
    text[5] = re.sub(r"(\d)$", lambda last: str((int(last[1]) + 5) % 10), text[5])
    (folder / "predictions.csv").write_text("\n".join(text) + "\n")


def _moved(folder):
    text = (folder / "predictions.geojson").read_text()
    (folder / "predictions.geojson").write_text(text.replace("[88.0, 68.0]", "[89.0, 68.0]", 1))


def _row_less(folder):
    table = pq.read_table(folder / "predictions.parquet")
    pq.write_table(table.slice(1), folder / "predictions.parquet")


def _area_less(folder):
    lines = (folder / "contours.geojson").read_text().splitlines()
    (folder / "contours.geojson").write_text("\n".join([lines[0], *lines[2:]]) + "\n")


def _areas_moved_by(right_px0):
    def move(folder):
        path = folder / "contours.geojson"
        content = json.loads(path.read_text())
        for feature in content["features"]:
            rings = feature["geometry"]["coordinates"]
            feature["geometry"]["coordinates"] = [[[x + right_px0, y] for x, y in ring] for ring in rings]
        write_collection(path, [[json.dumps(feature) for feature in content["features"]]])

    return move


def _another_slide_s_areas(folder):
    path = folder / "contours.geojson"
    path.write_text(re.sub(r'"slide_sha256": "\w+"', '"slide_sha256": "0123456789abcdef"', path.read_text()))


def _no_polygon(folder):
    path = folder / "contours.geojson"
    path.write_text(re.sub(r'"coordinates": \[.*?\]\]\]', '"coordinates": 5', path.read_text(), count=1))


def _cut(name):
    def cut(folder):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])

    return cut


def _score(folder):
    content = json.loads((folder / "hotspots.json").read_text())
    content["hotspots"][1]["score"] -= 0.001
    (folder / "hotspots.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_other_number, r"predictions\.csv: tile 5 has .* for 'Größe"),
        (_moved, r"predictions\.geojson: tile 1 has the corners"),
        (_row_less, r"predictions\.parquet: has 53 tiles, 54 were predicted"),
        (_area_less, r"contours\.geojson: its areas of .* cells, not"),
        (_areas_moved_by(128), r"contours\.geojson: its areas of .* leave out row \d+, column \d+ \(\d+ cells? "),
        (_areas_moved_by(48), r"contours\.geojson: its areas of .* have a corner at \[.*\], where no cell has one"),
        (_another_slide_s_areas, r"contours\.geojson: is of model .*, slide with SHA-256 0123456789ab…"),
        (_no_polygon, r"contours\.geojson: cannot be read .*GEOSException"),
        (_score, r"hotspots\.json: hotspot 2 has a score of"),
        (_cut("predictions.csv"), r"predictions\.csv: (has|cannot)"),
        (_cut("predictions.parquet"), r"predictions\.parquet: cannot be read"),
        (_cut("predictions.geojson"), r"predictions\.geojson: cannot be read"),
        (_cut("heatmap.ome.tiff"), r"heatmap\.ome\.tiff: cannot be read"),
        (_cut(heatmap_name("stroma")), r"heatmap_stroma\.png: cannot be read .*truncated"),
    ],
)
def test_a_file_that_says_something_else_is_named_with_the_first_difference(
    written, made, reader, tmp_path, change, says
):
    folder = shutil.copytree(written, tmp_path / "copy")
    change(folder)

    (fault,) = check_results(folder, made, reader=reader)

    assert re.match(says, fault), fault


def test_files_of_other_predictions_are_all_found(written, made, reader):
    bits = made.probabilities_cyx.copy()
    bits[:, 6, 9] = bits[[1, 2, 0], 6, 9]
    other = Predictions(made.model_id, made.class_names, bits, 128.0, 128.0, {})

    named = {fault.partition(":")[0] for fault in check_results(written, other, reader=reader)}

    whole = {"predictions.csv", "predictions.parquet", "predictions.geojson", "heatmap.ome.tiff", "slide_report.html"}
    assert named >= whole | {heatmap_name(name) for name in NAMES}


def test_verify_holds_results_against_the_store(made, gemslide, tmp_path):
    project = Project(tmp_path / "project")
    slide = write_jpeg_pyramid(tmp_path / "slide.tiff", halved(sample_image(1330, 970), 1))
    store = ingest(slide, project.root, slide_id="R-1").store
    write_predictions(store, made, mpp0=0.5)
    folder = project.result_dir("R-1", made.model_id)
    folder.mkdir(parents=True)
    write_results(StoreReader(store), made, folder, InferConfig(formats=("csv", "geojson")))

    whole = gemslide("verify", "R-1", "--project", project.root)
    _other_number(folder)
    changed = gemslide("verify", "R-1", "--project", project.root, "--json")

    assert (whole.code, changed.code) == (0, 1)
    assert "results as predicted" in whole.out
    assert json.loads(changed.out)["code"] == "damaged_store"
    assert re.search(r"predictions\.csv: tile 5 has .*`gemslide infer` rewrites these files", changed.out)


def test_the_report_shows_what_is_known_and_escapes_what_others_wrote(written):
    html = (written / "slide_report.html").read_text(encoding="utf-8")

    for text in (
        "Research use only. Not for diagnosis.", "R-1", "Größe &lt;b&gt;&amp;\\",
        "&lt;i&gt;Far&lt;/i&gt; from training.",
        "3 tiles were left out for touching damage",
        "&lt;b&gt;resnet&lt;/b&gt;", "auc 0.8125", "To find tumour.", "One scanner.", "30.25 s",
        "<td>write</td>", "gemslide qc", "1330 × 970 px", "0.67 × 0.48 mm",
    ):  # fmt: skip
        assert text in html, text
    assert html.index(">read<") < html.index(">compute<") < html.index(">waiting<") < html.index(">merge<")
    assert html.count("data:image/jpeg;base64,") == 8
    assert "://" not in html
    assert "<b>resnet" not in html


@pytest.mark.parametrize("junk", [b"", b"[]", b"\xff\xfe", b'{"gemslide": [], "architecture": []}', b"{" * 100_000])
def test_what_cannot_be_read_of_a_package_is_left_out_of_a_report(tmp_path, junk):
    for name in ("config.json", "metrics.json", "card.md"):
        (tmp_path / name).write_bytes(junk)

    model = read_essentials(tmp_path)

    assert (model.facts, model.metrics) == ({}, {})
    assert set(model.missing) <= {"config.json", "metrics.json", "card.md"}
    assert sum(map(len, model.sections.values())) < 1000


def test_a_report_without_hotspots_quality_package_or_time_says_so(reader, made, tmp_path):
    write_results(reader, made, tmp_path, InferConfig(formats=("report",), threshold=0.999))

    html = (tmp_path / "slide_report.html").read_text()
    assert "No cell reaches the threshold" in html
    assert "has not been run on this slide" in html
    assert "package was not available" in html
    assert html.count('class="bar"') == 1, "of the time, only how long writing took"


def test_the_same_predictions_give_the_same_files(written, reader, made, package, tmp_path):
    write_results(reader, made, tmp_path, EVERY, About(package, None, SECONDS, FACTS))

    for path in tmp_path.iterdir():
        if path.name not in ("slide_report.html", "predictions.parquet"):  # contain a time, or written by a library
            assert path.read_bytes() == (written / path.name).read_bytes(), path.name


@pytest.mark.parametrize("value", [1.0, np.nan])
def test_one_class_alone_or_nothing_predicted_gives_every_file_too(reader, tmp_path, value):
    made = Predictions("m-1", ("tumour",), np.full((1, 7, 10), value, np.float16), 128.0, 128.0, {})

    assert write_results(reader, made, tmp_path, EVERY).warning is None

    assert len(list(tmp_path.iterdir())) == 8
    assert check_results(tmp_path, made, reader=reader) == []


def test_dicom_on_another_slide_is_a_warning_and_no_error(reader, made, tmp_path):
    config = InferConfig(formats=("csv", "dicom-seg", "dicom-pm"))

    written = write_results(reader, made, tmp_path, config)

    assert {path.name for path in tmp_path.iterdir()} == {"predictions.csv", "hotspots.json"}
    assert written.warning == (
        "dicom-seg and dicom-pm not written: DICOM results need a DICOM slide, and this one was made"
    )


def test_a_format_that_there_is_not_is_refused_with_those_there_are():
    with pytest.raises(BadRecipeError, match="'csv', 'parquet', 'geojson'"):
        parse_section(InferConfig, {"formats": ["xlsx"]}, where="gemslide.toml")


def test_a_long_narrow_slide_gets_a_heatmap_of_bounded_size(tmp_path):
    from PIL import Image

    levels = [jpeg_level(sample_image(64, 6400), 64, jfif("420"))]
    reader = StoreReader(make_store(tmp_path / "slides/N-1.ome.zarr", levels))
    values = np.full((2, 100, 1), 0.5, np.float16)
    (tmp_path / "out").mkdir()
    write_results(
        reader,
        Predictions("m", ("a", "b"), values, 64.0, 64.0, {}),
        tmp_path / "out",
        InferConfig(formats=("heatmap",)),
    )

    with Image.open(tmp_path / "out/heatmap_b.png") as image:
        assert max(image.size) < 1500

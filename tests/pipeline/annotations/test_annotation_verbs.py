"""`gemslide annotations …`, and annotations on the road, as a person uses them."""

import json

import pytest

from pipeline.annotations.files import read_annotations
from pipeline.cohort.manifest import init_cohort
from tests.small_road import make_slide

BOW = [[100, 100], [300, 300], [300, 100], [100, 300], [100, 100]]
SQUARE = [[0, 0], [200, 0], [200, 100], [0, 100], [0, 0]]


def write(path, *rings, class_name="warm"):
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": [ring]},
            "properties": {"classification": {"name": class_name, "color": [1, 2, 3]}},
        }
        for ring in rings
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")
    return path


@pytest.mark.parametrize("to", ["qupath", "asap", "imagescope"])
def test_convert_writes_every_format_and_says_what_is_lost(gemslide, tmp_path, to):
    source = write(tmp_path / "a.geojson", SQUARE, BOW)
    point = {"type": "Feature", "geometry": {"type": "MultiPoint", "coordinates": [[1, 2], [3, 4]]}, "properties": {}}
    source.write_text(source.read_text().replace('"features": [', f'"features": [{json.dumps(point)}, '))

    done = gemslide("annotations", "convert", source, tmp_path / "b", "--to", to, "--json")

    told = json.loads(done.out)
    assert (done.code, told["from"], told["to"], told["objects"]) == (0, "qupath", to, 3)
    assert told["written"] == len(read_annotations(tmp_path / "b").objects) == (2 if to == "imagescope" else 3)
    assert bool(told["lost"]) == (to == "imagescope")


def test_convert_overwrites_nothing(gemslide, tmp_path):
    source = write(tmp_path / "a.geojson", SQUARE)

    done = gemslide("annotations", "convert", source, source, "--to", "asap")

    assert done.code == 1
    assert "exists already" in done.err
    assert read_annotations(source).format == "qupath"


def test_check_counts_and_finds_what_lies_outside_the_slide(gemslide, tmp_path, road):
    source = write(tmp_path / "a.geojson", SQUARE, BOW, [[1000, 0], [5000, 0], [5000, 9], [1000, 0]])
    make_slide(tmp_path / "slide.tiff", 0)

    alone = gemslide("annotations", "check", source, "--json")
    on_store = gemslide("annotations", "check", source, "--slide", road.project.store_path(road.test_slide))
    on_slide = gemslide("annotations", "check", write(tmp_path / "b.json", SQUARE), "--slide", tmp_path / "slide.tiff")

    told = json.loads(alone.out)
    assert (alone.code, told["classes"], told["labels"]["repaired"]) == (0, {"warm": 3}, 1)
    assert on_store.code == 1
    assert "1 outlines that crossed themselves repaired" in on_store.out
    assert "spans x 1000 to 5000, y 0 to 9, the slide only 1100×820" in on_store.err
    assert on_slide.code == 0
    assert "all regions lie inside it" in on_slide.out


def test_tile_says_per_slide_what_was_repaired(gemslide, tmp_path, road):
    (tmp_path / "slides").symlink_to(road.project.slides_dir)
    write(tmp_path / "a.json", SQUARE, BOW, [[0, 0], [9, 9], [0, 0]])
    (tmp_path / "cohort.csv").write_text(f"path,slide_id,annotations\nnone.tiff,{road.test_slide},a.json\n")

    done = gemslide("tile", tmp_path / "cohort.csv", "--project", tmp_path, "--tile-px", 32, "--mpp", 1, "--json")

    (line,) = map(json.loads, done.out.splitlines())
    assert (done.code, line["status"]) == (0, "done")
    assert "2 regions, 1 outlines that crossed themselves repaired" in line["message"]
    assert line["message"].endswith("1 without area dropped")


@pytest.mark.parametrize("suffix", [".geojson", ".json", ".xml"])
def test_cohort_init_finds_annotations_of_every_format_beside_the_slide(tmp_path, suffix):
    (tmp_path / "a.svs").touch()
    (tmp_path / f"a{suffix}").touch()
    (tmp_path / "b.svs").touch()

    cohort = init_cohort(tmp_path, tmp_path / "cohort.csv")

    assert [entry.annotations for entry in cohort.entries] == [f"a{suffix}", None]


def test_a_file_goes_into_the_project_and_comes_out_for_qupath(gemslide, road_copy, tmp_path):
    source = write(tmp_path / "a.geojson", SQUARE, BOW)
    there = ("--slide", road_copy.test_slide, "--project", road_copy.project.root)

    before = gemslide("annotations", "export", tmp_path / "b.geojson", *there)
    told = json.loads(gemslide("annotations", "import", source, *there, "--json").out)
    again = json.loads(gemslide("annotations", "import", source, *there, "--json").out)
    done = gemslide("annotations", "export", tmp_path / "b.geojson", *there)
    twice = gemslide("annotations", "export", tmp_path / "b.geojson", *there)

    assert (before.code, "nobody has drawn" in before.err) == (1, True)
    assert (told["saved"], told["unchanged"], again["saved"], again["unchanged"]) == (2, 0, 0, 2)
    assert (done.code, twice.code) == (0, 1)
    objects = read_annotations(tmp_path / "b.geojson").objects
    assert [obj.class_name for obj in objects] == ["warm", "warm"]
    assert all(obj.geometry.is_valid for obj in objects)


def test_a_file_for_a_slide_that_is_not_there_is_refused(gemslide, road_copy, tmp_path):
    source = write(tmp_path / "a.geojson", SQUARE)
    done = gemslide("annotations", "import", source, "--slide", "../x", "--project", road_copy.project.root)
    assert (done.code, "allowed are" in done.err) == (1, True)

"""`gemslide annotations …`, and annotations on the small project, as a user runs them."""

import json

import pytest

from pipeline.annotations.files import read_annotations
from pipeline.annotations.shapes.repair import labelled_regions
from pipeline.cohort.manifest import init_cohort
from pipeline.project import Project
from pipeline.tiles.table import read_table
from tests.small_trained_project import make_slide

BOW = [[100, 100], [300, 300], [300, 100], [100, 300], [100, 100]]
SQUARE = [[0, 0], [200, 0], [200, 100], [0, 100], [0, 0]]


def feature(class_name, ring):
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "properties": {"classification": {"name": class_name, "color": [1, 2, 3]}},
    }


def asap_polygon(group, left, top, side):
    corners = ((left, top), (left + side, top), (left + side, top + side), (left, top + side))
    points = "".join(f'<Coordinate Order="{i}" X="{x}" Y="{y}"/>' for i, (x, y) in enumerate(corners))
    return f'<Annotation Name="a" Type="Polygon" PartOfGroup="{group}"><Coordinates>{points}</Coordinates></Annotation>'


def write(path, *rings, class_name="warm"):
    features = [feature(class_name, ring) for ring in rings]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")
    return path


@pytest.mark.parametrize("to", ["qupath", "asap", "imagescope"])
def test_convert_writes_every_format_and_says_what_is_lost(gemslide, tmp_path, to):
    source = write(tmp_path / "a.geojson", SQUARE, BOW)
    point = {"type": "Feature", "geometry": {"type": "MultiPoint", "coordinates": [[1, 2], [3, 4]]}, "properties": {}}
    source.write_text(source.read_text().replace('"features": [', f'"features": [{json.dumps(point)}, '))

    done = gemslide("annotations", "convert", source, tmp_path / "b", "--to", to, "--json")

    report = json.loads(done.out)
    assert (done.code, report["from"], report["to"], report["objects"]) == (0, "qupath", to, 3)
    assert report["written"] == len(read_annotations(tmp_path / "b").objects) == (2 if to == "imagescope" else 3)
    assert bool(report["lost"]) == (to == "imagescope")


def test_convert_overwrites_nothing(gemslide, tmp_path):
    source = write(tmp_path / "a.geojson", SQUARE)

    done = gemslide("annotations", "convert", source, source, "--to", "asap")

    assert done.code == 1
    assert "already exists" in done.err
    assert read_annotations(source).format == "qupath"


def test_check_counts_and_finds_what_lies_outside_the_slide(gemslide, tmp_path, small_project):
    source = write(tmp_path / "a.geojson", SQUARE, BOW, [[1000, 0], [5000, 0], [5000, 9], [1000, 0]])
    make_slide(tmp_path / "slide.tiff", 0)

    alone = gemslide("annotations", "check", source, "--json")
    on_store = gemslide(
        "annotations", "check", source, "--slide", small_project.project.store_path(small_project.test_slide)
    )
    on_slide = gemslide("annotations", "check", write(tmp_path / "b.json", SQUARE), "--slide", tmp_path / "slide.tiff")

    report = json.loads(alone.out)
    assert (alone.code, report["classes"], report["labels"]["repaired"]) == (0, {"warm": 3}, 1)
    assert on_store.code == 1
    assert "1 outline that crossed itself repaired" in on_store.out
    assert "spans x 1000 to 5000, y 0 to 9, the slide only 1100×820" in on_store.err
    assert on_slide.code == 0
    assert "all regions are inside it" in on_slide.out


def test_tile_says_per_slide_what_was_repaired(gemslide, tmp_path, small_project):
    (tmp_path / "slides").symlink_to(small_project.project.slides_dir)
    write(tmp_path / "a.json", SQUARE, BOW, [[0, 0], [9, 9], [0, 0]])
    (tmp_path / "cohort.csv").write_text(f"path,slide_id,annotations\nnone.tiff,{small_project.test_slide},a.json\n")

    done = gemslide("tile", tmp_path / "cohort.csv", "--project", tmp_path, "--tile-px", 32, "--tile-mpp", 1, "--json")

    (line,) = map(json.loads, done.out.splitlines())
    assert (done.code, line["status"]) == (0, "done")
    assert "2 regions, 1 outline that crossed itself repaired" in line["message"]
    assert line["message"].endswith("1 without area dropped")


@pytest.mark.parametrize("suffix", [".geojson", ".json", ".xml"])
def test_cohort_init_finds_annotations_of_every_format_beside_the_slide(tmp_path, suffix):
    (tmp_path / "a.svs").touch()
    (tmp_path / f"a{suffix}").touch()
    (tmp_path / "b.svs").touch()

    cohort = init_cohort(tmp_path, tmp_path / "cohort.csv")

    assert [entry.annotations for entry in cohort.entries] == [f"a{suffix}", None]


def test_a_file_goes_into_the_project_and_comes_out_for_qupath(gemslide, small_project_copy, tmp_path):
    source = write(tmp_path / "a.geojson", SQUARE, BOW)
    target = ("--slide", small_project_copy.test_slide, "--project", small_project_copy.project.root)

    before = gemslide("annotations", "export", tmp_path / "b.geojson", *target)
    report = json.loads(gemslide("annotations", "import", source, *target, "--json").out)
    again = json.loads(gemslide("annotations", "import", source, *target, "--json").out)
    done = gemslide("annotations", "export", tmp_path / "b.geojson", *target)
    twice = gemslide("annotations", "export", tmp_path / "b.geojson", *target)

    assert (before.code, "nobody has drawn" in before.err) == (1, True)
    assert (report["saved"], report["unchanged"], again["saved"], again["unchanged"]) == (2, 0, 0, 2)
    assert (done.code, twice.code) == (0, 1)
    objects = read_annotations(tmp_path / "b.geojson").objects
    assert [obj.class_name for obj in objects] == ["warm", "warm"]
    assert all(obj.geometry.is_valid for obj in objects)


def test_a_file_for_a_slide_that_is_not_there_is_refused(gemslide, small_project_copy, tmp_path):
    source = write(tmp_path / "a.geojson", SQUARE)
    done = gemslide("annotations", "import", source, "--slide", "../x", "--project", small_project_copy.project.root)
    assert (done.code, "allowed are" in done.err) == (1, True)


IMAGESCOPE = (
    '<Annotations MicronsPerPixel="{mpp}"><Annotation Name="warm" LineColor="255"><Regions><Region Type="0"><Vertices>'
    '<Vertex X="100" Y="100"/><Vertex X="300" Y="100"/><Vertex X="300" Y="300"/></Vertices></Region></Regions>'
    "</Annotation></Annotations>"
)


def test_annotations_drawn_at_another_pixel_size_stop_every_verb_unless_allowed(gemslide, small_project_copy, tmp_path):
    project = small_project_copy.project.root
    source, target = tmp_path / "a.xml", ("--slide", small_project_copy.test_slide, "--project", project)
    source.write_text(IMAGESCOPE.format(mpp=0.25))
    make_slide(tmp_path / "s.tiff", 0)
    (tmp_path / "cohort.csv").write_text(f"path,slide_id,annotations\ns.tiff,{small_project_copy.test_slide},a.xml\n")
    tile = (
        "tile",
        tmp_path / "cohort.csv",
        "--project",
        project,
        "--tile-px",
        32,
        "--tile-mpp",
        1,
        "--tile-set",
        "other",
    )

    def run_all(*more):
        yield gemslide("annotations", "check", source, *target, *more)
        yield gemslide("annotations", "import", source, *target, *more)
        yield gemslide("cohort", "check", tmp_path / "cohort.csv", "--project", project)
        yield gemslide(*tile)

    for done in run_all():
        assert done.code == 1
        assert "says 0.25 µm/px, the slide has 0.5" in done.err + done.out
    settings = project / "gemslide.toml"
    before = settings.read_text() if settings.exists() else ""
    settings.write_text(before + "\n[tile]\nallow_other_mpp = true\n")
    assert [done.code for done in run_all("--allow-other-mpp")] == [0, 0, 0, 0]


@pytest.mark.parametrize("to", ["qupath", "asap"])
def test_convert_says_that_a_pixel_size_is_lost(gemslide, tmp_path, to):
    (tmp_path / "a.xml").write_text(IMAGESCOPE.format(mpp=0.25))

    done = gemslide("annotations", "convert", tmp_path / "a.xml", tmp_path / "b", "--to", to)

    assert (done.code, "pixel size (0.25 µm/px) is left out" in done.out) == (0, True)


def test_a_file_that_yields_nothing_ends_with_code_1(gemslide, tmp_path):
    source = write(tmp_path / "a.geojson")
    point = {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}, "properties": {}}
    (tmp_path / "p.geojson").write_text(json.dumps(point))

    checked = gemslide("annotations", "check", source)
    converted = gemslide("annotations", "convert", source, tmp_path / "b.xml", "--to", "asap")
    left_out = gemslide("annotations", "convert", tmp_path / "p.geojson", tmp_path / "b.xml", "--to", "imagescope")

    assert [done.code for done in (checked, converted, left_out)] == [1, 1, 1]
    assert "holds no annotation" in checked.err
    assert "nothing in the file can be written as imagescope: 1 object made of points is left out" in left_out.err
    assert not (tmp_path / "b.xml").exists()


@pytest.mark.data
def test_the_field_cases_of_annotations_give_what_is_right(gemslide, real_slides, tmp_path):
    cases = real_slides / "field_cases"

    def regions_of(name):
        return [(r.class_name, r.geometry.area) for r in labelled_regions(read_annotations(cases / name))[0]]

    assert regions_of("F4_nested_collection.geojson") == [("Tumor", 10_000), ("Stroma", 10_000)]
    assert regions_of("F4_dsa_list.json") == [("Tumor", 10_000)]
    assert regions_of("F4_negative_true.xml") == [("Tumor", 37_500)]
    assert regions_of("F4_type_words.xml") == [("Tumor", 40_000)]
    make_slide(tmp_path / "s.tiff", 0)
    other = gemslide("annotations", "check", cases / "F4_other_mpp.xml", "--slide", tmp_path / "s.tiff")
    assert (other.code, "says 0.25 µm/px, the slide has 0.5" in other.err) == (1, True)


def test_tile_warns_of_outlined_classes_that_label_no_tile(gemslide, tmp_path, small_project):
    (tmp_path / "slides").symlink_to(small_project.project.slides_dir)
    ids = ("small-test", "small-train")
    (tmp_path / "a.json").write_text(
        json.dumps([
            feature(class_name, [[x, y], [x + side, y], [x + side, y + side], [x, y + side]])
            for class_name, x, y, side in (
                ("tissue", 0, 0, 800), ("tiny", 300, 300, 20), ("tiny", 400, 300, 24), ("mitosis", 500, 300, 200)
            )
        ])
    )  # fmt: skip
    (tmp_path / "b.json").write_text(json.dumps([feature("mitosis", [*SQUARE[:2], [200, 4]])]))
    rows = [f"none.tiff,{name},{file}" for name, file in zip(ids, ("a.json", "b.json"), strict=True)]
    (tmp_path / "c.csv").write_text("path,slide_id,annotations\n" + "\n".join(rows) + "\n")

    done = gemslide("tile", tmp_path / "c.csv", "--project", tmp_path, "--tile-px", 32, "--tile-mpp", 1, "--json")

    warnings = [line for line in done.err.splitlines() if "labels no tile" in line or "label no tile" in line]
    assert done.code == 0
    assert len(warnings) == 2
    assert f"class 'mitosis': 1 outline labels no tile on slide {ids[1]}, though others" in warnings[0]
    assert f"class 'tiny': 2 outlines label no tile at all (slide {ids[0]}): they cover at most" in warnings[1]
    assert "less than min_label_fraction = 0.5. Use smaller tiles (tile_px = 32, mpp = 1.0)" in warnings[1]


def test_of_camelyon_s_groups_the_normal_area_within_a_tumour_labels_its_tiles(gemslide, tmp_path, small_project):
    slide = small_project.test_slide
    (tmp_path / "slides").symlink_to(small_project.project.slides_dir)
    outlines = "".join(asap_polygon(*outline) for outline in (("_2", 256, 256, 192), ("_0", 0, 0, 800)))
    (tmp_path / "a.xml").write_text(f"<ASAP_Annotations><Annotations>{outlines}</Annotations></ASAP_Annotations>")
    (tmp_path / "c.csv").write_text(f"path,slide_id,annotations\nnone.tiff,{slide},a.xml\n")

    done = gemslide("tile", tmp_path / "c.csv", "--project", tmp_path, "--tile-px", 32, "--tile-mpp", 1)

    frame = read_table(Project(tmp_path).tile_table_path("tiles")).frame
    within = frame.x_px0.between(256, 447) & frame.y_px0.between(256, 447)
    assert done.code == 0
    assert within.sum() == 9
    assert {*frame[within].label} == {"_2"}
    assert "_2" not in {*frame[~within].label}

"""NDPA of Hamamatsu: nanometres from the centre of the glass slide, placed on the pixels by the slide's own file."""

import json

import numpy as np
import pytest

from pipeline.annotations.files import read_annotations, write_annotations
from pipeline.annotations.frames import NanometreFrame, SlideFrame, frame_of_file, on_slide
from pipeline.errors import BadAnnotationError
from pipeline.slides.registry import open_slide
from tests.pipeline.slides.make_ndpi import write_ndpi
from tests.pipeline.slides.test_vendor_slides import halved, sample_image

CENTRE_NM = (4_000_000, -1_500_000)
FRAME = SlideFrame(0.5, nanometres=NanometreFrame((100.0, 50.0), (500.0, 250.0)))


def view(annotation, title="Tumor", unit="nanometers", details=""):
    return (
        f'<ndpviewstate id="1"><title>{title}</title><details>{details}</details><coordformat>{unit}</coordformat>'
        "<lens>20</lens><x>0</x><y>0</y><z>0</z><showtitle>0</showtitle><showhistogram>0</showhistogram>"
        f"<showlineprofile>0</showlineprofile>{annotation}</ndpviewstate>"
    )


def freehand(points, closed=1, special="", kind="freehand", color="#00ff00"):
    listed = "".join(f"<point><x>{x}</x><y>{y}</y></point>" for x, y in points)
    return (
        f'<annotation type="{kind}" displayname="AnnotateFreehand" color="{color}"><measuretype>0</measuretype>'
        f"<closed>{closed}</closed><specialtype>{special}</specialtype><pointlist>{listed}</pointlist></annotation>"
    )


def read(tmp_path, *views):
    path = tmp_path / "a.ndpi.ndpa"
    path.write_text(f'<?xml version="1.0" encoding="utf-8"?><annotations>{"".join(views)}</annotations>', "utf-8")
    return read_annotations(path)


SQUARE_NM = [(0, 0), (5000, 0), (5000, 5000), (0, 5000)]  # 10 × 20 px of 500 × 250 nm


def test_every_type_is_placed_in_pixels(tmp_path):
    file = read(
        tmp_path,
        view(freehand(SQUARE_NM), details="dense\n part"),
        view(freehand(SQUARE_NM, closed=0)),
        view(freehand(SQUARE_NM, special="rectangle", closed=0)),
        view('<annotation type="circle" color="#ff0000"><x>0</x><y>0</y><radius>5000</radius></annotation>', title=""),
        view('<annotation type="linearmeasure"><x1>0</x1><y1>0</y1><x2>500</x2><y2>0</y2></annotation>'),
        view('<annotation type="pointer"><x1>0</x1><y1>0</y1><x2>500</x2><y2>0</y2></annotation>'),
        view('<annotation type="pin"><x>-500</x><y>-250</y></annotation>'),
        view(""),
    )
    placed = on_slide(file, FRAME)
    assert (file.format, file.unit, placed.unit, len(file.dropped)) == ("ndpa", "nm", "px0", 1)
    assert [(obj.tool, round(obj.geometry.area), obj.geometry.bounds) for obj in placed.objects] == [
        ("freehand", 200, (100, 50, 110, 70)),
        ("line", 0, (100, 50, 110, 70)),
        ("rectangle", 200, (100, 50, 110, 70)),
        ("ellipse", 627, (90, 30, 110, 70)),
        ("measurement", 0, (100, 50, 101, 50)),
        ("line", 0, (100, 50, 101, 50)),
        ("points", 0, (99, 49, 99, 49)),
    ]
    assert [placed.objects[0].name, placed.objects[3].class_name] == ["dense part", "#ff0000"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (view(freehand(SQUARE_NM), unit="pixels"), "'pixels'.*NDPA"),
        (view(freehand(SQUARE_NM), unit=""), "is 'not stated'"),
        (view(freehand(SQUARE_NM, kind="lasso")), "type 'lasso'.*NDPA"),
        (view(freehand(SQUARE_NM, closed="")), "<closed> is ''"),
        (view(freehand(SQUARE_NM, special="star")), "'star'"),
        (view(freehand([("x", 0), *SQUARE_NM])), "<x> 'x' is not a number"),
        (view(freehand(SQUARE_NM) * 2), "has 2 annotations"),
        (view(freehand(SQUARE_NM), title="a</title><title>b"), "states <title> 2 times"),
        (view(freehand(SQUARE_NM).replace("color=", "Color="), title=""), "unknown attribute 'Color'.*'color'"),
        (view(freehand(SQUARE_NM).replace("color=", "class=")), "<annotation> 0: unknown attribute 'class'"),
        (view(freehand(SQUARE_NM).replace("pointlist>", "points>")), "<points>.*NDPA"),
        (view(freehand(SQUARE_NM)).replace("ndpviewstate", "view"), "<view>.*NDPA"),
        (view('<annotation type="circle"><x>0</x><y>0</y></annotation>'), "<radius> '' is not a number"),
    ],
)
def test_what_is_not_understood_is_named(tmp_path, text, says):
    with pytest.raises(BadAnnotationError, match=says):
        read(tmp_path, text)


def test_a_file_is_placed_by_its_slide_and_refused_without_one(tmp_path):
    file = read(tmp_path, view(freehand(SQUARE_NM)))
    with pytest.raises(BadAnnotationError, match=r"hamamatsu\.XOffsetFromSlideCentre"):
        on_slide(file, SlideFrame(0.5))
    with pytest.raises(BadAnnotationError, match="--slide"):
        write_annotations(tmp_path / "b.geojson", file, "qupath")


@pytest.fixture(scope="module")
def ndpi(tmp_path_factory):
    path = tmp_path_factory.mktemp("ndpi") / "a.ndpi"
    return write_ndpi(path, halved(sample_image(512, 384), 2), centre_nm=CENTRE_NM).path


def test_the_slide_s_file_says_where_the_centre_of_the_glass_lies(ndpi, tmp_path):
    with open_slide(ndpi) as slide:
        frame = frame_of_file(slide.info)
    # The centre of the scan, (256, 192), is 4 mm right of the glass's centre and 1.5 mm above it.
    file = read(tmp_path, view(freehand([(x + CENTRE_NM[0], y + CENTRE_NM[1]) for x, y in SQUARE_NM])))
    bounds = on_slide(file, frame).objects[0].geometry.bounds
    assert np.allclose(bounds, (256, 192, 266, 202), atol=0.01)


def test_an_ndpa_file_goes_from_slide_to_store_to_qupath(ndpi, tmp_path, gemslide):
    nm = [(x + CENTRE_NM[0], y + CENTRE_NM[1]) for x, y in SQUARE_NM]
    read(tmp_path, view(freehand(nm)))
    ndpa, target = tmp_path / "a.ndpi.ndpa", ("--project", tmp_path)
    (tmp_path / "cohort.csv").write_text(f"path,slide_id,annotations\n{ndpi},S-1,{ndpa}\n")

    checked = gemslide("cohort", "check", tmp_path / "cohort.csv", *target)
    ingested = gemslide("ingest", tmp_path / "cohort.csv", *target)
    imported = gemslide("annotations", "import", ndpa, "--slide", "S-1", *target)
    exported = gemslide("annotations", "export", tmp_path / "out.geojson", "--slide", "S-1", *target)
    alone = gemslide("annotations", "convert", ndpa, tmp_path / "b.geojson", "--to", "qupath")
    on_file = gemslide("annotations", "convert", ndpa, tmp_path / "b.geojson", "--to", "qupath", "--slide", ndpi)

    codes = [done.code for done in (checked, ingested, imported, exported, alone, on_file)]
    assert codes == [0, 0, 0, 0, 1, 0], [checked.err, ingested.err, imported.err, on_file.err]
    assert "--slide" in alone.err
    for name in ("out.geojson", "b.geojson"):
        (feature,) = json.loads((tmp_path / name).read_text())["features"]
        corners = np.asarray(feature["geometry"]["coordinates"][0])
        assert np.allclose([*corners.min(0), *corners.max(0)], (256, 192, 266, 202), atol=0.01)

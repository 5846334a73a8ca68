"""Every real QuPath, ASAP and ImageScope file: its content, and its position on its slide."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import shapely

from pipeline.annotations.files import read_annotations, write_annotations
from pipeline.annotations.shapes.region import check_regions, outside
from pipeline.annotations.shapes.repair import labelled_regions
from pipeline.box import Box
from pipeline.errors import BadAnnotationError
from pipeline.slides.registry import open_slide

pytestmark = pytest.mark.data

MONUSAC = "BhavyaKohli+MoNuSAC-Instance-Segmentation/code/sample_original"
CMU = "TIO-IKIM+PathoPatcher/test_database/input/Annotations/CMU-1.json"
ASAP = "imi-bigpicture+wsidicom/tests/testdata/annotation/asap"
QUPATH = "qupath+qupath/qupath-core/src/test/resources/data/polygon.geojson"

# file: format, objects, corners (the closing point of a ring not counted), objects by class, broken outlines
FILES = {
    f"{MONUSAC}/A9K0_1.xml": ("imagescope", 321, 26040, {"Epithelial": 314, "Macrophage": 7}, 76),
    f"{MONUSAC}/A9K0_3.xml": ("imagescope", 5, 442, {"Neutrophil": 5}, 2),
    "choosehappy+HistoQC/AnnotationModule/TCGA-EJ-5518-01Z-00-DX1.xml": (
        "imagescope", 4, 2820, {"#00ffff": 1, "#ff0000": 1, "CaP": 2}, 3,
    ),
    "ykrmm+monuseg/datasets/MoNuSegTestData/TCGA-HT-8564-01Z-00-DX1.xml": (
        "imagescope", 249, 20595, {"#80ff00": 249}, 75,
    ),
    CMU: ("qupath", 5, 15368, {"Cyst": 1, "Makrophage": 1, "Tissue": 1, "Tumor_vital": 1, "mark": 1}, 0),
    "girder+large_image/test/test_files/sample.geojson": ("qupath", 10, 482, {None: 10}, 0),
    QUPATH: ("qupath", 1, 1524, {None: 1}, 0),
    "NKI-AI+dlup/tests/files/qupath05.geojson": ("qupath", 3, 396, {None: 3}, 0),
    f"{ASAP}/asap-polygon.xml": ("asap", 1, 6, {None: 1}, 0),
    f"{ASAP}/asap-pointset.xml": ("asap", 1, 5, {None: 1}, 0),
    "crc-mosaic/train_0.geojson": ("qupath", 6, 180, {"AC": 1, "H": 2, "S": 1, "T": 1, "V": 1}, 0),
    "crc-mosaic/train_1.geojson": ("qupath", 7, 200, {"AC": 1, "H": 3, "S": 1, "T": 1, "V": 1}, 0),
    "crc-mosaic/train_2.geojson": ("qupath", 8, 212, {"AC": 1, "H": 4, "S": 1, "T": 1, "V": 1}, 0),
    "crc-mosaic/test_10.geojson": ("qupath", 10, 230, {"AC": 1, "H": 6, "S": 1, "T": 1, "V": 1}, 0),
    "crc-mosaic/test_12.geojson": ("qupath", 5, 194, {"AC": 1, "H": 1, "S": 1, "T": 1, "V": 1}, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES, ids=lambda name: name.rsplit("/", 1)[1])
def test_every_real_file_is_read_and_counted(real_slides, name):
    file = read_annotations(real_slides / name)
    regions, report = labelled_regions(file)

    corners = sum(drawn.num_vertices for drawn in file.objects)
    assert (file.format, len(file.objects), corners, file.count_by_class(), report.num_repaired) == FILES[name]
    assert (file.dropped, report.dropped) == ((), ())
    assert len(regions) == sum(count for class_name, count in file.count_by_class().items() if class_name)
    assert all(region.geometry.is_valid for region in regions)


@pytest.mark.parametrize(
    ("name", "regions", "vertices"),
    [(f"{MONUSAC}/A9K0_1.xml", 321, 26361), (f"{MONUSAC}/A9K0_3.xml", 5, 447),
     ("ykrmm+monuseg/datasets/MoNuSegTestData/TCGA-HT-8564-01Z-00-DX1.xml", 249, 20810)],
)  # fmt: skip
def test_every_vertex_of_imagescope_is_there_and_stays_through_a_round_trip(
    real_slides, tmp_path, name, regions, vertices
):
    in_file = [
        [(float(v.get("X")), float(v.get("Y"))) for v in region.iter("Vertex")]
        for region in ET.parse(real_slides / name).iter("Region")
    ]
    assert (len(in_file), sum(map(len, in_file))) == (regions, vertices)

    file = read_annotations(real_slides / name)
    write_annotations(tmp_path / "a.xml", file, "imagescope")

    for again in (file, read_annotations(tmp_path / "a.xml")):
        for drawn, points in zip(again.objects, in_file, strict=True):
            read = shapely.get_coordinates(drawn.geometry)
            assert read[: len(points)].tolist() == [list(point) for point in points]


def test_seventy_six_outlines_of_one_slide_are_not_valid_areas_and_lose_nothing_by_mending(real_slides):
    file = read_annotations(real_slides / MONUSAC / "A9K0_1.xml")
    reasons = [shapely.is_valid_reason(drawn.geometry).split("[")[0] for drawn in file.objects]

    regions, report = labelled_regions(file)

    # Closed polygons that shapely (OGC Simple Features) calls invalid; "ring" ones touch themselves, the others cross.
    assert reasons.count("Self-intersection") == 53
    assert reasons.count("Ring Self-intersection") == 23
    assert (len(regions), report.num_repaired) == (321, 76)
    assert report.added_px0 + report.removed_px0 < 3  # of 370,531 px²


def test_the_tissue_of_cmu_has_its_known_corners(real_slides):
    tissue = read_annotations(real_slides / CMU).objects[0]

    outlines = [part.exterior.coords for part in tissue.geometry.geoms]
    assert (tissue.class_name, tissue.geometry.geom_type) == ("Tissue", "MultiPolygon")
    assert sum(map(len, outlines)) == 13630  # closing points included, as its folder's index counts
    assert [len(part.interiors) for part in tissue.geometry.geoms] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("DeepMicroscopy+MIDOGpp/databases/MIDOG++.json", "JSON of COCO"),
        ("baidu-research+NCRF/jsons/train/Tumor_019.json", "keys positive, negative"),
    ],
)
def test_json_of_other_kinds_is_refused_in_one_sentence(real_slides, name, says):
    with pytest.raises(BadAnnotationError, match=says) as caught:
        read_annotations(real_slides / name)

    assert re.fullmatch(r"[^\n]{20,260}", str(caught.value))


def _inside(regions, width_px, height_px):
    """Mask (y, x) of pixels whose centre is in a region."""
    x, y = np.meshgrid(np.arange(width_px) + 0.5, np.arange(height_px) + 0.5)
    area = shapely.union_all([region.geometry for region in regions])
    shapely.prepare(area)
    return shapely.contains_xy(area, x, y)


@pytest.mark.parametrize(("stem", "darker"), [("A9K0_1", 0.12), ("A9K0_3", 0.16)])
def test_nuclei_outlined_in_imagescope_lie_on_the_dark_pixels_of_their_slide(real_slides, stem, darker):
    regions, _ = labelled_regions(read_annotations(real_slides / MONUSAC / f"{stem}.xml"))
    with open_slide(real_slides / MONUSAC / f"{stem}.svs") as slide:
        size = slide.info.levels[0]
        pixels = slide.read_region(0, Box(0, 0, size.width_px, size.height_px))
    check_regions(regions, (size.width_px, size.height_px))
    density = -np.log10((pixels.astype(float) + 1) / 256).mean(-1)

    inside = _inside(regions, size.width_px, size.height_px)
    contrast = density[inside].mean() - density[~inside].mean()
    turned = [
        density[m].mean() - density[~m].mean() for m in (inside[::-1], inside[:, ::-1], np.roll(inside, 40, (0, 1)))
    ]

    assert contrast > darker
    assert contrast > 5 * max(turned)  # they fit worse in any other frame


def test_regions_of_one_slide_are_found_outside_another(real_slides):
    regions, _ = labelled_regions(read_annotations(real_slides / MONUSAC / "A9K0_1.xml"))

    assert len(outside(regions, (497, 185))) > 200
    with pytest.raises(BadAnnotationError, match=r"of 321 regions lie outside"):
        check_regions(regions, (497, 185))

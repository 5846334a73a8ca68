"""ASAP and ImageScope XML as the programs write it on computers of any locale."""

import pytest

from pipeline.annotations import files
from pipeline.annotations.files import read_annotations
from pipeline.annotations.shapes.repair import labelled_regions
from pipeline.errors import BadAnnotationError

SQUARE = [(0, 0), (10, 0), (10, 5), (0, 5)]


def asap(*annotations, groups=("tumor",)):
    lines = "".join(
        f'<Annotation Name="n{i}" Type="{kind}" PartOfGroup="{group}" Color="#F4FA58"><Coordinates>'
        + "".join(f'<Coordinate Order="{k}" X="{x}" Y="{y}"/>' for k, (x, y) in enumerate(points))
        + "</Coordinates></Annotation>"
        for i, (kind, group, points) in enumerate(annotations)
    )
    named = "".join(f'<Group Name="{g}" PartOfGroup="None" Color="#ff0000"><Attributes/></Group>' for g in groups)
    return (
        f'<?xml version="1.0"?><ASAP_Annotations><Annotations>{lines}</Annotations>'
        f"<AnnotationGroups>{named}</AnnotationGroups></ASAP_Annotations>"
    )


def region(points, kind=0, negative=0):
    vertices = "".join(f'<Vertex X="{x}" Y="{y}" Z="0"/>' for x, y in points)
    return f'<Region Type="{kind}" NegativeROA="{negative}"><Attributes/><Vertices>{vertices}</Vertices></Region>'


def layer(*regions, name="", attributes="", color=255):
    return (
        f'<Annotation Id="1" Name="{name}" LineColor="{color}"><Attributes>{attributes}</Attributes>'
        f"<Regions>{''.join(regions)}</Regions></Annotation>"
    )


def imagescope(*layers):
    return f'<Annotations MicronsPerPixel="0.25">{"".join(layers)}</Annotations>'


def read(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "a.xml"
    path.write_bytes(text.encode(encoding))
    return read_annotations(path)


def areas(tmp_path, text):
    return [(r.class_name, r.geometry.area) for r in labelled_regions(read(tmp_path, text))[0]]


def test_every_type_of_asap_is_kept_and_areas_label(tmp_path):
    text = asap(
        ("Polygon", "tumor", SQUARE),
        ("Rectangle", "tumor", SQUARE),
        ("Rectangle", "tumor", [(10, 5), (0, 0)]),
        ("Spline", "tumor", SQUARE),
        ("Dot", "tumor", SQUARE[:1]),
        ("PointSet", "tumor", SQUARE),
        ("Measurement", "tumor", SQUARE[:2]),
        ("None", "tumor", SQUARE),
        ("Polygon", "None", SQUARE),
    )

    file = read(tmp_path, text)

    assert (file.format, len(file.objects), file.class_colors) == ("asap", 9, {"tumor": (255, 0, 0)})
    assert areas(tmp_path, text) == [("tumor", 50)] * 4
    assert [drawn.geometry.geom_type for drawn in file.objects[4:8]] == [
        "Point",
        "MultiPoint",
        "LineString",
        "MultiPoint",
    ]


def test_decimal_commas_are_read(tmp_path):
    points = [("0,5", "0"), ("10,5", "0"), ("10,5", "5"), ("0,5", "5")]

    assert areas(tmp_path, asap(("Polygon", "tumor", points))) == [("tumor", 50)]


def test_three_decimals_after_a_comma_are_read_where_others_show_that_commas_are_decimal(tmp_path):
    points = [("0", "0"), ("1200,5", "0"), ("1200,5", "1,200"), ("0", "1,200")]

    assert areas(tmp_path, asap(("Polygon", "tumor", points))) == [("tumor", pytest.approx(1200.5 * 1.2))]


@pytest.mark.parametrize(
    ("points", "says"),
    [
        ([("0", "0"), ("1,200", "0"), ("1,200", "900"), ("0", "900")], "X='1,200' may be .*no other coordinate"),
        ([("0", "0"), ("900", "0"), ("900", "-12,345"), ("0", "8")], "Y='-12,345' may be"),
        ([("0", "0"), ("1.200", "0"), ("1.200", "950,5"), ("0", "950,5")], "X='1.200' may be .*a decimal comma"),
        ([("0", "0"), ("1,200,300", "0"), ("9", "9"), ("0", "9")], "'1,200,300' is not a number"),
        ([("0", "0"), ("1,200.5", "0"), ("9", "9"), ("0", "9")], "'1,200.5' is not a number"),
    ],
)
@pytest.mark.parametrize("program", ["asap", "imagescope"])
def test_a_comma_that_may_part_thousands_is_refused(tmp_path, program, points, says):
    drawn = asap(("Polygon", "tumor", points)) if program == "asap" else imagescope(layer(region(points), name="t"))

    with pytest.raises(BadAnnotationError, match=says):
        read(tmp_path, drawn)


def test_coordinates_are_taken_by_their_order_not_their_place(tmp_path):
    text = asap(("Polygon", "tumor", SQUARE))
    first, second = ('<Coordinate Order="0" X="0" Y="0"/>', '<Coordinate Order="1" X="10" Y="0"/>')
    swapped = text.replace(first, "@").replace(second, first).replace("@", second)

    assert swapped != text
    assert areas(tmp_path, swapped) == [("tumor", 50)]


def test_groups_in_groups_are_kept(tmp_path):
    text = asap(("Polygon", "a", SQUARE), groups=("a",)).replace('"a" PartOfGroup="None"', '"a" PartOfGroup="lesion"')

    (group,) = read(tmp_path, text).groups

    assert (group.name, group.parent) == ("a", "lesion")


def test_negative_regions_are_holes_of_every_region_of_their_layer_and_of_no_other(tmp_path):
    hole = region([(2, 1), (4, 1), (4, 3), (2, 3)], negative=1)
    text = imagescope(
        layer(region(SQUARE), hole, region(SQUARE), name="tumor"), layer(region(SQUARE), name="stroma", color=65280)
    )

    assert areas(tmp_path, text) == [("tumor", 46), ("tumor", 46), ("stroma", 50)]


def test_a_negative_region_across_the_edge_takes_only_what_it_covers(tmp_path):
    over_the_edge = region([(8, 1), (20, 1), (20, 3), (8, 3)], negative=1)

    file = read(tmp_path, imagescope(layer(region(SQUARE), over_the_edge, name="tumor")))
    regions, report = labelled_regions(file)

    assert (regions[0].geometry.area, report.num_repaired) == (46, 0)


def test_a_broken_outline_with_a_negative_region_is_repaired_and_counted(tmp_path):
    twice_around = [*SQUARE, (0, 0), (9, 0), (9, 4), (0, 4)]
    hole = region([(2, 1), (4, 1), (4, 3), (2, 3)], negative=1)

    regions, report = labelled_regions(read(tmp_path, imagescope(layer(region(twice_around), hole, name="t"))))

    assert (regions[0].geometry.area, report.num_repaired) == (46, 1)


def test_negative_regions_that_cut_nothing_or_everything_are_said(tmp_path):
    far = region([(90, 90), (95, 90), (95, 95)], negative=1)
    whole = region([(-1, -1), (11, -1), (11, 6), (-1, 6)], negative=1)

    file = read(tmp_path, imagescope(layer(region(SQUARE), far, name="a"), layer(region(SQUARE), whole, name="b")))

    assert [drawn.class_name for drawn in file.objects] == ["a"]
    assert [why.split(": ")[1] for why in file.dropped] == [
        "a negative region that lies in no region of its layer",
        "negative regions cover all of it",
    ]


@pytest.mark.parametrize(
    ("name", "attributes", "color", "class_name"),
    [
        ("tumor", '<Attribute Name="other" Value=""/>', 255, "tumor"),
        ("", '<Attribute Name="Epithelial" Id="0" Value=""/>', 255, "Epithelial"),
        ("", '<Attribute Name="Description" Id="0" Value="necrosis"/>', 255, "necrosis"),
        ("", '<Attribute Name="Description" Id="0" Value=""/>', 255, "#ff0000"),
        ("", "", 16711680, "#0000ff"),
    ],
)
def test_a_layer_s_class_is_its_name_or_an_attribute_or_its_colour(tmp_path, name, attributes, color, class_name):
    text = imagescope(layer(region(SQUARE), name=name, attributes=attributes, color=color))

    assert areas(tmp_path, text) == [(class_name, 50)]


def test_rectangles_ellipses_and_lines_of_imagescope(tmp_path):
    text = imagescope(
        layer(
            region(SQUARE, kind=1),
            region([(10, 5), (0, 0)], kind=1),
            region(SQUARE, kind=2),
            region([*SQUARE, (-5, 2)], kind=1),
            region(SQUARE[:2], kind=3),
            region(SQUARE[:1], kind=3),
            name="t",
        )
    )

    drawn = read(tmp_path, text).objects

    assert [d.tool for d in drawn] == ["rectangle", "rectangle", "ellipse", "freehand", "line", "line"]
    assert [round(d.geometry.area) for d in drawn] == [50, 50, 39, 62, 0, 0]


def test_regions_without_area_are_dropped_and_said(tmp_path):
    text = imagescope(layer(region([]), region(SQUARE[:2]), region([(0, 0), (5, 5), (9, 9)]), region(SQUARE), name="t"))

    regions, report = labelled_regions(read(tmp_path, text))

    assert (len(regions), len(report.dropped)) == (1, 3)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_other_encodings_are_read(tmp_path, encoding):
    text = asap(("Polygon", "tümor", SQUARE), groups=("tümor",)).replace(
        'version="1.0"', f'version="1.0" encoding="{encoding.removesuffix("-sig").removesuffix("-le")}"'
    )
    data = ("\ufeff" + text) if encoding == "utf-16-le" else text

    assert read(tmp_path, data, encoding).count_by_class() == {"tümor": 1}


ONE_ASAP, ONE_LAYER = asap(("Polygon", "tumor", SQUARE)), imagescope(layer(region(SQUARE), name="tumor"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ONE_LAYER.replace("MicronsPerPixel", "micronsperpixel"), "<Annotations> 0: .*'micronsperpixel'.*'MicronsPer"),
        (ONE_LAYER.replace(' Name="tumor"', ' name="tumor"'), "<Annotation> 0: unknown attribute 'name'.*'Name'"),
        (ONE_LAYER.replace(' Id="1"', ' NegativeROA="1"'), "<Annotation> 0: unknown attribute 'NegativeROA'"),
        (ONE_LAYER.replace(' Id="1"', ' Class="stroma"'), "<Annotation> 0: unknown attribute 'Class'"),
        (ONE_LAYER.replace("<Attributes/>", "<Attributes><attribute/></Attributes>"), "<attribute>"),
        (ONE_LAYER.replace("<Attributes></Attributes>", "<Attributes><Class/></Attributes>"), "<Class>"),
        (ONE_ASAP.replace('PartOfGroup="tumor"', 'partofgroup="tumor"'), "<Annotation> 0: .*'partofgroup'.*'PartOfGr"),
        (ONE_ASAP.replace('PartOfGroup="tumor"', 'Group="tumor"'), "<Annotation> 0: unknown attribute 'Group'.*ASAP"),
        (ONE_ASAP.replace('<Group Name="tumor"', '<Group name="tumor"'), "<Group> 0: unknown attribute 'name'"),
        (ONE_ASAP.replace("Order=", "order="), "<Coordinate> 0: unknown attribute 'order'"),
        (ONE_ASAP.replace('Order="2"', ""), "3 of 4 coordinates have an Order"),
        (
            ONE_ASAP.replace("</Coordinates>", "</Coordinates><Coordinates/>"),
            "annotation 0: has 2 lists of",
        ),
    ],
)
def test_an_attribute_that_may_state_a_class_a_sign_or_an_outline_is_never_ignored(tmp_path, text, says):
    assert text not in (ONE_ASAP, ONE_LAYER)
    with pytest.raises(BadAnnotationError, match=says):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (ONE_LAYER.replace("<Region ", '<Region Grade="3" '), "attribute 'Grade' of <Region> is not read"),
        (ONE_LAYER.replace(' Id="1"', ' Author="x"'), "attribute 'Author' of <Annotation> is not read"),
        (ONE_LAYER.replace("MicronsPerPixel", "Scale"), "attribute 'Scale' of <Annotations> is not read"),
        (ONE_ASAP.replace(' Color="#F4FA58"', ' Author="x"'), "attribute 'Author' of <Annotation> is not read"),
        (ONE_ASAP.replace("<Attributes/>", "<Attributes><Attribute/></Attributes>"), "1 value in <Attributes>"),
    ],
)
def test_other_attributes_of_xml_are_read_or_noted(tmp_path, text, note):
    assert (read(tmp_path, ONE_ASAP).notes, read(tmp_path, ONE_LAYER).notes) == ((), ())
    (said,) = read(tmp_path, text).notes
    assert note in said


BOMB = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f'<!DOCTYPE x [<!ENTITY e0 "ha">{BOMB}]><ASAP_Annotations>&e11;</ASAP_Annotations>', "document type"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><Annotations/>', "document type"),
        ("<Annotations>", "not well-formed"),
        ("<html/>", "starts with <html>"),
        (asap(("Blob", "tumor", SQUARE)), "Type='Blob'"),
        (asap(("Polygon", "tumor", [("x", 0), *SQUARE])), "X='x' is not a number"),
        (asap(("Polygon", "tumor", [("nan", 0), *SQUARE])), "not a number of pixels"),
        (imagescope(layer(region(SQUARE), color="red")), "LineColor='red'"),
        (imagescope(layer("<Region><Vertices><Vertex X='1'/></Vertices></Region>", name="t")), "Y='' is not a number"),
    ],
)
def test_dangerous_or_damaged_xml_is_one_message(tmp_path, text, says):
    with pytest.raises(BadAnnotationError, match=says):
        read(tmp_path, text)


def test_the_format_is_told_by_what_is_in_the_file_not_by_its_name(tmp_path):
    path = tmp_path / "a.geojson"
    path.write_text("\n  " + imagescope(layer(region(SQUARE), name="t")), encoding="utf-8")

    assert read_annotations(path).format == "imagescope"


def test_a_file_too_large_to_read_whole_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 100)

    with pytest.raises(BadAnnotationError, match="the limit is 0 MiB"):
        read(tmp_path, asap(("Polygon", "tumor", SQUARE)))

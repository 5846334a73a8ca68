"""Annotation files with odd values in odd places: read, or refused in one message; never a crash."""

import copy
import json
import os
import random
from pathlib import Path

import pytest

from pipeline.annotations.files import WRITERS, read_annotations, write_annotations
from pipeline.annotations.shapes.repair import labelled_regions
from pipeline.errors import BadAnnotationError

RING = [[0, 0], [10, 0], [10, 5], [0, 5], [0, 0]]
AREA = {"type": "Polygon", "coordinates": [RING, [[2, 1], [4, 1], [4, 3]]]}
GEOMETRIES = [
    AREA,
    {"type": "MultiPolygon", "coordinates": [[RING], [RING]]},
    {"type": "MultiLineString", "coordinates": [RING, RING]},
    {"type": "Point", "coordinates": [1, 2]},
    {"type": "GeometryCollection", "geometries": [AREA, AREA]},
]
PROPERTIES = {
    "objectType": "annotation",
    "name": "n",
    "classification": {"name": "T", "color": [1, 2, 3]},
    "measurements": {"a": 1.5},
    "metadata": {"k": "v"},
}
ODD = [
    None,
    0,
    -1,
    1e308,
    1e-320,
    "",
    "x",
    [],
    {},
    [[]],
    True,
    [1],
    [[1, 2]],
    {"type": "Polygon"},
    float("nan"),
    10**400,
]


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from places(child, (*path, key))


def damaged_json(dice):
    content = [{"type": "Feature", "id": "x", "geometry": g, "properties": PROPERTIES} for g in GEOMETRIES]
    content = json.loads(json.dumps(content))
    for _ in range(dice.randint(1, 3)):
        *path, last = dice.choice(list(places(content))[1:])
        where = content
        for key in path:
            where = where[key]
        where[last] = copy.deepcopy(dice.choice(ODD))
    return json.dumps(content)


def damaged_xml(dice):
    def points(tag):
        few = [(dice.choice([0, 1, 5, 10, 1e-320, dice.uniform(-20, 20)]), dice.choice([0, 3, 7])) for _ in range(6)]
        return "".join(f'<{tag} X="{x}" Y="{y}"/>' for x, y in few[: dice.randint(0, 6)])

    if dice.random() < 0.4:
        kind = dice.choice(["Polygon", "Dot", "Spline", "Rectangle", "Measurement", "PointSet", "None"])
        annotation = (
            f'<Annotation Type="{kind}" PartOfGroup="g"><Coordinates>{points("Coordinate")}</Coordinates></Annotation>'
        )
        return f"<ASAP_Annotations><Annotations>{annotation}</Annotations></ASAP_Annotations>"
    regions = "".join(
        f'<Region Type="{dice.randint(0, 4)}" NegativeROA="{dice.randint(0, 1)}">'
        f"<Vertices>{points('Vertex')}</Vertices></Region>"
        for _ in range(dice.randint(1, 5))
    )
    color = dice.randint(-5, 2**26)
    return f'<Annotations><Annotation LineColor="{color}"><Regions>{regions}</Regions></Annotation></Annotations>'


@pytest.mark.parametrize("damaged", [damaged_json, damaged_xml])
def test_damaged_files_are_read_or_refused_and_explained(tmp_path, damaged):
    dice, path, num_read = random.Random(7), tmp_path / "a", 0
    for _ in range(250):
        path.write_text(damaged(dice), encoding="utf-8")
        try:
            file = read_annotations(path)
        except BadAnnotationError:
            continue
        regions, _ = labelled_regions(file)
        assert all(region.geometry.is_valid and region.geometry.area > 0 for region in regions)
        to = dice.choice(list(WRITERS))
        write_annotations(tmp_path / to, file, to)
        if any(obj.is_area for obj in file.objects):  # a file with areas is never written out empty
            read_annotations(tmp_path / to)
        num_read += 1

    assert num_read > 40


@pytest.mark.parametrize("name", ["a\x1bb", " a", "x" * 101, "\u202e"])
def test_a_class_that_cannot_be_called_so_is_refused_in_every_format(tmp_path, name):
    feature = {"type": "Feature", "geometry": AREA, "properties": {"classification": {"name": name}}}
    (tmp_path / "a.json").write_text(json.dumps([feature]))

    with pytest.raises(BadAnnotationError, match="feature 0: ") as raised:
        read_annotations(tmp_path / "a.json")

    assert str(raised.value).isprintable()


def test_a_class_with_half_of_a_surrogate_pair_is_refused(tmp_path):
    feature = {"type": "Feature", "geometry": AREA, "properties": {"classification": {"name": "\ud800"}}}
    (tmp_path / "a.json").write_text(json.dumps([feature]))

    with pytest.raises(BadAnnotationError, match="half of a surrogate pair") as raised:
        read_annotations(tmp_path / "a.json")

    assert str(raised.value).isprintable()


def test_a_group_of_asap_that_cannot_be_called_so_is_refused(tmp_path):
    groups = '<AnnotationGroups><Group Name="a&#9;" PartOfGroup="None"/></AnnotationGroups>'
    dot = '<Annotation Type="Dot"><Coordinates><Coordinate X="1" Y="2"/></Coordinates></Annotation>'
    text = f"<ASAP_Annotations><Annotations>{dot}</Annotations>{groups}</ASAP_Annotations>"
    (tmp_path / "a.xml").write_text(text)

    with pytest.raises(BadAnnotationError, match="a group"):
        read_annotations(tmp_path / "a.xml")


def test_a_named_pipe_and_a_device_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")

    for path in (tmp_path / "pipe.json", Path("/dev/zero")):
        with pytest.raises(BadAnnotationError, match="not a regular file"):
            read_annotations(path)


ELEMENT = {"type": "polyline", "closed": True, "points": [[0, 0, 0], [10, 0, 0], [10, 5, 0]]}


def read_dsa(tmp_path, element, **document):
    content = {"annotation": {"name": "a", "description": "", "elements": [element], **document}, "_id": "x"}
    (tmp_path / "a.json").write_text(json.dumps(content))
    return read_annotations(tmp_path / "a.json")


@pytest.mark.parametrize(
    "more", [{"negative": True}, {"Group": "a"}, {"class": "a"}, {"Holes": []}, {"type": "point", "holes": []}]
)
def test_a_key_of_dsa_that_may_state_a_class_or_a_sign_is_refused(tmp_path, more):
    (key,) = more.keys() - {"type"}
    with pytest.raises(BadAnnotationError, match=f"element 0: unknown attribute '{key}'; the Digital Slide Archive"):
        read_dsa(tmp_path, {**ELEMENT, "center": [1, 2, 0], **more})


def test_keys_of_dsa_that_are_not_read_are_noted(tmp_path):
    assert read_dsa(tmp_path, ELEMENT).notes == ()
    file = read_dsa(
        tmp_path, {**ELEMENT, "user": {"class": "a"}, "label": {"value": "b", "x": 1}}, attributes={"stain": "HE"}
    )
    assert [note.split(" is not read")[0] for note in file.notes] == [
        "the attribute 'attributes' of documents",
        "the attribute 'user' of elements",
        "the attribute 'x' of labels of elements",
    ]

"""Annotation files and manifests as other programs write them, slightly wrong: read in full, or refused.

`python -m tests.attacks.foreign_files --times 600`: each attempt draws some squares, or fills a small table, writes it
as one of the programs does, changes one detail that a program or a person might, and reads it. The result is complete,
or a refusal; nothing is lost, flipped or renamed.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import random
import tempfile
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.annotations import labelled_regions, read_annotations
from pipeline.annotations.frames import NanometreFrame, SlideFrame, on_slide
from pipeline.cohort.manifest import load_cohort
from pipeline.errors import BadAnnotationError, BadManifestError
from tests.attacks.attack import Result, main

SIDE = 10.0
FRAME = SlideFrame(0.5, nanometres=NanometreFrame((0.0, 0.0), (500.0, 500.0)))
Squares = list[tuple[str, float, float, bool]]
"""Class, left, top, and whether a hole of 4 × 4 is in it."""


def draw(chance: random.Random) -> Squares:
    """Draw some squares that do not touch."""
    names = ["Tumor", "Stroma", "Müller cells"]
    return [
        (chance.choice(names), 30.0 * i, 20.0 * chance.randrange(9), chance.random() < 0.4)
        for i in range(chance.randint(1, 6))
    ]


def _ring(left: float, top: float, side: float = SIDE) -> list[list[float]]:
    return [[left, top], [left + side, top], [left + side, top + side], [left, top + side]]


def _closed(ring: list[list[float]]) -> list[list[float]]:
    return [*ring, ring[0]]


def _rings(left: float, top: float, has_hole: bool) -> list[list[list[float]]]:
    return [_ring(left, top), _ring(left + 3, top + 3, 4)] if has_hole else [_ring(left, top)]


def qupath(squares: Squares, chance: random.Random) -> Any:
    """GeoJSON, nested at random."""
    features = []
    for name, left, top, has_hole in squares:
        rings = [_closed(ring) for ring in _rings(left, top, has_hole)]
        geometry = {"type": "Polygon", "coordinates": rings}
        geometry = chance.choice(
            [
                geometry,
                {"type": "MultiPolygon", "coordinates": [rings]},
                {"type": "GeometryCollection", "geometries": [geometry]},
            ]
        )
        classification = chance.choice([name, {"name": name}, {"names": [name], "color": [1, 2, 3]}])
        feature = {"type": "Feature", "geometry": geometry, "properties": {"classification": classification}}
        features.append(chance.choice([feature, {"type": "FeatureCollection", "features": [feature]}, [feature]]))
    return chance.choice([{"type": "FeatureCollection", "features": features}, features])


def dsa(squares: Squares, chance: random.Random) -> Any:
    """Documents of the Digital Slide Archive."""
    documents = []
    for name, left, top, has_hole in squares:
        outline, *holes = [[[*point, 0] for point in ring] for ring in _rings(left, top, has_hole)]
        element: dict[str, Any] = {"type": "polyline", "closed": True, "points": outline, "holes": holes}
        if not has_hole and chance.random() < 0.5:
            centre = [left + SIDE / 2, top + SIDE / 2, 0]
            element = {"type": "rectangle", "center": centre, "width": SIDE, "height": SIDE, "rotation": 0}
        annotation = {"name": name, "elements": [element]}
        if chance.random() < 0.5:
            annotation = {"name": "x", "elements": [element | {"group": name}]}
        documents.append(chance.choice([annotation, {"_id": "1", "annotation": annotation}]))
    return documents


def layers(squares: Squares, chance: random.Random) -> str:
    """XML of ImageScope or of HALO."""
    corner, kind = chance.choice([("Vertex", "0"), ("V", "Polygon"), ("Vertex", "polygon"), ("V", "Freehand")])
    negative = chance.choice(["1", "true", "True", "TRUE", "yes"])

    def region(ring: list[list[float]], roa: str) -> str:
        corners = "".join(f'<{corner} X="{x}" Y="{y}"/>' for x, y in ring)
        return f'<Region Type="{kind}" NegativeROA="{roa}"><Vertices>{corners}</Vertices></Region>'

    text = ""
    for name, left, top, has_hole in squares:
        outline, *holes = _rings(left, top, has_hole)
        regions = [region(outline, "0"), *(region(hole, negative) for hole in holes)]
        chance.shuffle(regions)
        text += f'<Annotation Name="{name}" LineColor="255"><Regions>{"".join(regions)}</Regions></Annotation>'
    return f'<Annotations MicronsPerPixel="0.5">{text}<Annotation Name="e"><Regions/></Annotation></Annotations>'


def ndpa(squares: Squares, chance: random.Random) -> str:
    """NDPA, which has no holes."""
    text = ""
    for name, left, top, _ in squares:
        points = "".join(f"<point><x>{x * 500:.0f}</x><y>{y * 500:.0f}</y></point>" for x, y in _ring(left, top))
        text += (
            f"<ndpviewstate><title>{name}</title><coordformat>nanometers</coordformat>"
            f'<annotation type="freehand" color="#ff0000"><closed>1</closed><pointlist>{points}</pointlist>'
            "</annotation></ndpviewstate>"
        )
    return f"<annotations>{text}</annotations>"


def asap(squares: Squares, chance: random.Random) -> str:
    """ASAP, which has no holes."""
    text = ""
    for name, left, top, _ in squares:
        corners = "".join(f'<Coordinate Order="{i}" X="{x}" Y="{y}"/>' for i, (x, y) in enumerate(_ring(left, top)))
        if chance.random() < 0.5:
            corners = corners.replace(".", ",")
        text += f'<Annotation Type="Polygon" PartOfGroup="{name}"><Coordinates>{corners}</Coordinates></Annotation>'
    return f"<ASAP_Annotations><Annotations>{text}</Annotations></ASAP_Annotations>"


FORMATS: dict[str, tuple[Callable[[Squares, random.Random], Any], bool]] = {
    "qupath": (qupath, True),
    "dsa": (dsa, True),
    "layers": (layers, True),
    "ndpa": (ndpa, False),
    "asap": (asap, False),
}
"""A writer, and whether its format has holes."""

_KEYS = ("type", "features", "geometry", "coordinates", "classification", "elements", "closed", "points", "annotation")
_WORDS = ("Region", "Regions", "Vertices", "Vertex", "Annotation", "NegativeROA", "Type", "Coordinates", "Coordinate",
          "pointlist", "annotation", "closed", "coordformat", "nanometers", "freehand", "Polygon")  # fmt: skip


def changed_json(content: Any, chance: random.Random) -> Any:
    """Rename one key, or change one value to another type."""
    content = copy.deepcopy(content)
    places: list[tuple[Any, Any]] = []
    waiting = [content]
    while waiting:
        container = waiting.pop()
        items = (
            container.items()
            if isinstance(container, dict)
            else enumerate(container)
            if isinstance(container, list)
            else ()
        )
        for key, value in items:
            places.append((container, key))
            waiting.append(value)
    parent, key = chance.choice(places)
    if isinstance(parent, dict) and key in _KEYS and chance.random() < 0.5:
        parent[chance.choice([str(key).upper(), f"{key}s", f"_{key}"])] = parent.pop(key)
    else:
        parent[key] = chance.choice([None, "x", 5, {}, "1,5", {"type": "Circle"}, True])
    return content


def changed_xml(text: str, chance: random.Random) -> str:
    """Change the spelling of one word, everywhere or once."""
    word = chance.choice([word for word in _WORDS if word in text])
    other = chance.choice([word.lower() + "_", f"{word}2", "Shape", word.swapcase()])
    return text.replace(word, other) if chance.random() < 0.5 else text.replace(f'"{word}"', f'"{other}"')


def attack(times: int, seed: int) -> Result:
    """Make `times` attempts: two thirds with an annotation file, the others with a manifest."""
    result, chance = Result("files of other programs"), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(times):
            if number % 3 == 2:
                _try_manifest(result, Path(folder) / "cohort.csv", chance)
            else:
                _try_annotations(result, Path(folder) / "a", chance, is_changed=number % 3 == 1)
    return result


def _try_annotations(result: Result, path: Path, chance: random.Random, *, is_changed: bool) -> None:
    result.attempts += 1
    name = chance.choice(list(FORMATS))
    write, has_holes = FORMATS[name]
    squares = [(c, x, y, h and has_holes) for c, x, y, h in draw(chance)]
    content = write(squares, chance)
    if is_changed:
        content = changed_xml(content, chance) if isinstance(content, str) else changed_json(content, chance)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    path.write_text(unicodedata.normalize(chance.choice(["NFC", "NFD"]), text), encoding="utf-8")
    expected = sorted((c, x, y, SIDE**2 - (16 if h else 0)) for c, x, y, h in squares)
    try:
        file = read_annotations(path)
        regions, report = labelled_regions(on_slide(file, FRAME))
    except BadAnnotationError as error:
        result.check(is_changed, f"{name}: refused what the program writes: {error!s:.200}")
        return
    except Exception as error:
        result.findings.append(f"{name}: {type(error).__name__}: {error!s:.200}")
        return
    squares_read = sorted((r.class_name, *r.geometry.bounds[:2], round(r.geometry.area, 6)) for r in regions)
    is_said = bool(report.dropped or file.notes or report.num_unused)
    if not is_changed:
        result.check(squares_read == expected, f"{name}: read {squares_read}, drawn was {expected}: {text:.300}")
    else:  # missing squares are reported; the others are as drawn, or differ in the word for their class
        result.check(
            is_said or len(squares_read) == len(expected),
            f"{name}: {len(squares_read)} of {len(expected)}, silently: {text:.300}",
        )
        if isinstance(content, str) and not is_said:
            is_turned = {square[1:] for square in squares_read} - {square[1:] for square in expected}
            result.check(not is_turned, f"{name}: {is_turned} was not drawn: {text:.300}")


def _try_manifest(result: Result, path: Path, chance: random.Random) -> None:
    result.attempts += 1
    header = ["path", "slide_id", "patient_id", "mpp"]
    rows = [
        [f"s{i}.svs", f"S-{i}", chance.choice(["Müller", "O'Hara; Jr", 'a "b"', "x,y", "tab\there", "p-1"]), mpp]
        for i, mpp in enumerate(chance.choices(["0.5", "", "0.25"], k=chance.randint(1, 5)))
    ]
    separator, comma = chance.choice([(",", False), (";", True), ("\t", True), ("|", False), (";", False)])
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=separator, lineterminator=chance.choice(["\n", "\r\n"]))
    more = [""] * chance.randint(0, 2)
    for row in (header, *rows):
        cells = [
            cell.replace(".", ",") if comma and row is not header and i == 3 else cell for i, cell in enumerate(row)
        ]
        writer.writerow([*cells, *more])
    text = (f"sep={separator}\r\n" if chance.random() < 0.3 else "") + stream.getvalue()
    encoding = chance.choice(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "mac-roman"])
    path.write_bytes(unicodedata.normalize(chance.choice(["NFC", "NFC", "NFD"]), text).encode(encoding, "replace"))
    expected = [(p, s, name, float(mpp) if mpp else None) for p, s, name, mpp in rows]
    try:
        entries_read = [(e.path, e.slide_id, e.patient_id, e.mpp) for e in load_cohort(path).entries]
    except BadManifestError as error:
        may_be = encoding in ("cp1252", "mac-roman") or any("\t" in row[2] for row in rows)
        result.check(may_be, f"manifest: refused {text!r:.200} in {encoding}: {error!s:.200}")
        return
    except Exception as error:
        result.findings.append(f"manifest: {type(error).__name__}: {error!s:.200}")
        return
    if "?" not in "".join(name for _, _, name, _ in entries_read):  # lost before the file was written
        result.check(entries_read == expected, f"manifest: read {entries_read}, written was {expected} in {encoding}")


if __name__ == "__main__":
    main(attack, times=600)

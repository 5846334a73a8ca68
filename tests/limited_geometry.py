"""Every operation on shapes, on every hostile family, under a system limit on address space.

    python -m tests.limited_geometry MIB CORNERS

Prints a JSON line: the processor time of each operation, and how it ended.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from shapely.geometry import LineString, shape

from pipeline.annotations import labelled_regions, read_annotations, write_annotations
from pipeline.errors import BadAnnotationError
from pipeline.review import Draft, merge_annotations, rows_of, rows_of_file, split_annotation
from pipeline.tiles.labels import label_tiles
from tests.hostile_shapes import FAMILIES, RINGS, areas

SIDE = 100_000


def joining(family: str, corners: int) -> object:
    return merge_annotations([shape(area) for area in areas(family, corners, SIDE)])


def splitting(family: str, corners: int) -> object:
    line = LineString(RINGS.get(family, RINGS["a weave"])(corners, SIDE))
    return split_annotation(shape(areas(family, corners, SIDE)[0]), line)


def saving(family: str, corners: int) -> object:
    drafts = [Draft(shape(area), "polygon", "T") for area in areas(family, corners, SIDE)]
    return rows_of(drafts, "S-1", "ada", None)


def importing(family: str, corners: int) -> object:
    features = [
        {"type": "Feature", "geometry": area, "properties": {"classification": "T"}}
        for area in areas(family, corners, SIDE)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.geojson"
        path.write_text(json.dumps(features))
        file = read_annotations(path)
        rows_of_file("S-1", file, "ada", size_wh_px0=(SIDE, SIDE))
        write_annotations(path.with_suffix(".xml"), file, "imagescope")
        regions, _ = labelled_regions(file)
        corners_xy0 = np.stack(np.meshgrid(*[np.arange(0, SIDE, 1000)] * 2), -1).reshape(-1, 2)
        return label_tiles(regions, corners_xy0, 1000, classes=["T"], min_fraction=0.5, label_by="centre")


WORKS: tuple[Callable[[str, int], object], ...] = (joining, splitting, saving, importing)


def main() -> None:
    mib, corners = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
    ended: dict[str, Any] = {}
    for work in WORKS:
        for family in FAMILIES:
            start, outcome = time.process_time(), "done"
            try:
                work(family, corners)
            except BadAnnotationError as error:
                outcome = str(error)
            ended[f"{work.__name__} {family}"] = [round(time.process_time() - start, 2), outcome]
    print(json.dumps(ended))


if __name__ == "__main__":
    main()

"""Read a copy with other programs' libraries, in a process where gemslide cannot be imported.

    python read_copy.py COPY zarr|tensorstore|ome-zarr NUM_LEVELS

Prints, as one JSON object, the CRC-32 of each level's c,y,x bytes and the reader's other results.
"""

from __future__ import annotations

import json
import sys
import zlib

import numpy as np

for ours in ("pipeline", "training", "pathology_app"):
    sys.modules[ours] = None  # importing it is now an error


def by_zarr(copy: str, num_levels: int) -> dict[str, object]:
    import zarr

    root = zarr.open_group(copy, mode="r")
    levels = [root[f"0/{level}"] for level in range(num_levels)]
    tissue = root["0/labels/tissue/0"][...]
    associated = [zlib.crc32(np.ascontiguousarray(root[f"{i}/0"][...])) for i in (1,) if str(i) in root]
    return {
        "crc": [zlib.crc32(np.ascontiguousarray(level[...])) for level in levels],
        "tissue": int(tissue.sum()),
        "associated": associated,
    }


def by_tensorstore(copy: str, num_levels: int) -> dict[str, object]:
    import tensorstore

    driver = "zarr" if copy.endswith("-0.4.zarr") else "zarr3"
    arrays = [
        tensorstore.open(
            {"driver": driver, "kvstore": {"driver": "file", "path": f"{copy}/0/{level}/"}}, read=True, open=True
        ).result()
        for level in range(num_levels)
    ]
    return {"crc": [zlib.crc32(np.ascontiguousarray(array.read().result())) for array in arrays]}


def by_ome_zarr(copy: str, num_levels: int) -> dict[str, object]:
    from ome_zarr.io import parse_url
    from ome_zarr.reader import Reader

    image, *others = list(Reader(parse_url(f"{copy}/0", mode="r"))())
    assert len(image.data) == num_levels
    return {
        "crc": [zlib.crc32(np.ascontiguousarray(level.compute())) for level in image.data],
        "axes": [axis["name"] for axis in image.metadata["axes"]],
        "scale": image.metadata["coordinateTransformations"][0][0]["scale"],
        "labels": [node.zarr.basename() for node in others],
    }


if __name__ == "__main__":
    copy, reader, num_levels = sys.argv[1:]
    by = {"zarr": by_zarr, "tensorstore": by_tensorstore, "ome-zarr": by_ome_zarr}[reader]
    print(json.dumps(by(copy, int(num_levels))))

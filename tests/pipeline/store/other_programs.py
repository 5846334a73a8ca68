"""Open a store with ome-zarr-py and napari's layers, and print what they read. Started as a process by the tests.

    python other_programs.py STORE

Imports nothing from gemslide and opens no window. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import zlib

import dask.array as da
import numpy as np
from napari.layers import Image, Labels
from ome_zarr.io import parse_url
from ome_zarr.reader import Reader

OUR_CODEC = ("pipeline.store", "pipeline.codecs")
"""Modules of gemslide that zarr imports: the codec, by its entry point, and its dependencies."""


def crc(array: object) -> int:
    return zlib.crc32(np.ascontiguousarray(array))


def look(store: str) -> dict[str, object]:
    nodes = {str(node.zarr.basename()): node for node in Reader(parse_url(f"{store}/0"))()}
    slide, tissue = nodes["0"], nodes["tissue"]
    levels_yxc = [da.moveaxis(level, 0, -1) for level in slide.data]
    is_pyramid = len(levels_yxc) > 1
    layer = Image(levels_yxc if is_pyramid else levels_yxc[0], rgb=True, multiscale=is_pyramid)
    layer_levels = list(layer.data) if is_pyramid else [layer.data]
    labels = Labels(tissue.data[0])
    ours = [name for name in sys.modules if name.startswith("pipeline.") and not name.startswith(OUR_CODEC)]
    return {
        "axes": [axis["name"] for axis in slide.metadata["axes"]],
        "transformations": slide.metadata["coordinateTransformations"],
        "colours": slide.metadata["colormap"],
        "is_lazy": [isinstance(level, da.Array) for level in slide.data],
        "crcs": [crc(level.compute()) for level in levels_yxc],
        "tissue_transformations": tissue.metadata["coordinateTransformations"],
        "tissue_crcs": [crc(level.compute()) for level in tissue.data],
        "napari_shapes": [list(level.shape) for level in layer_levels],
        "napari_crcs": [crc(np.asarray(level)) for level in layer_levels],
        "napari_tissue_crc": crc(np.asarray(labels.data)),
        "ours": [*ours, *(name for name in sys.modules if name.startswith("pathology_app"))],
    }


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1])))

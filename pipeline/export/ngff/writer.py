"""NGFF copies that need only core codecs: 0.5 (zarr v3, zstd in shards) and 0.4 (zarr v2, Blosc-zstd chunks)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numcodecs.blosc import Blosc
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.places.object_path import StorePath
from pipeline.store.format.chunks import encode_zstd
from pipeline.store.format.inside import INGEST_AGAIN
from pipeline.store.format.layout import FILL_VALUE, IMAGE, LABELS, ArraySpec
from pipeline.store.format.metadata import ome_xml, read_json, write_group, write_json
from pipeline.store.format.plain_array import write_array
from pipeline.store.format.shard import chunks_in_order, write_shard
from pipeline.store.layers.labels import read_label
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.reader import StoreReader
from pipeline.store.reading.threads import CORES, parallel_for
from training.foundation.errors import UnreadableError
from training.foundation.progress import Advance
from training.foundation.words.names import ALLOWED, is_name

V2_CHUNK_PX = 1024
ATTRIBUTE = "gemslide_export"
_BLOSC = Blosc(cname="zstd", clevel=3, shuffle=Blosc.NOSHUFFLE)

ReadPlanes = Callable[[int, int, int, int], NDArray[np.uint8]]
"""(y, x, height, width) -> values of that part of a v2 array: c,y,x or y,x."""


@dataclass(frozen=True)
class NgffExport:
    """Writes one copy into a folder: image, its labels, and associated images as further series.

    Args:
        planes: the slide at each focal plane to be written, lowest first; NGFF 0.4 takes one.
        associated: arrays by name, in the order of their series.
    """

    planes: tuple[StoreReader, ...]
    associated: dict[str, ArrayReader]
    about: dict[str, Any]
    """Root attribute `gemslide_export`: metadata that NGFF cannot hold."""
    advance: Advance

    @property
    def reader(self) -> StoreReader:
        """Of everything but pixels, which is the same for all planes."""
        return self.planes[0]

    def write_05(self, folder: Path) -> None:
        """Write NGFF 0.5. Chunks and shards are the store's own, with JPEG chunks recoded as zstd; all have a CRC."""
        for plane in self.planes:
            for level in plane.levels:
                spec = level.array.spec if self.planes[1:] else replace(level.array.spec, planes=None)
                self._write_level_05(folder / IMAGE / str(level.level), level.array, spec)
        write_group(folder / IMAGE, {"ome": self._image()})
        self._write_labels_05(folder)
        for series, array in enumerate(self.associated.values(), start=1):
            self._write_level_05(folder / str(series) / "0", array, array.spec)
            write_group(folder / str(series), {"ome": _ome(array.path.parent)})
        write_group(folder / "OME", {"ome": {"version": "0.5", "series": self._series()}})
        self._write_xml(folder)
        write_group(folder, {"ome": {"version": "0.5", "bioformats2raw.layout": 3}, ATTRIBUTE: self.about})

    def _image(self) -> dict[str, Any]:
        """`ome` of the slide's image."""
        ome, is_stack = _ome(self.reader.path / IMAGE), self.reader.plane_um is not None
        return _without_z(ome) if is_stack and not self.planes[1:] else ome

    def _write_level_05(self, path: Path, array: ArrayReader, form: ArraySpec) -> None:
        """Args: form: the array's in the copy, but for its codec."""
        spec = replace(form, codec="zstd", has_checksums=True, link=None)
        for shard_row in range(spec.shard_rows):
            (path / spec.shard_key(shard_row, 0)).parent.mkdir(parents=True, exist_ok=True)
        self.advance.expect(spec.shard_rows * spec.shard_columns)

        def streams(row: int, columns: range) -> list[tuple[bytes, ...]]:
            stored = zip(columns, array.chunks(row, columns), strict=True)
            return [() if stream is None else (_zstd(array, stream, row, column),) for column, stream in stored]

        def write(shard_row: int, shard_column: int) -> None:
            cells = spec.cells_of_shard(shard_row, shard_column)
            chunks = list(chunks_in_order(spec.shard_chunks, *cells, streams))
            write_shard(path / spec.shard_key(shard_row, shard_column), chunks)
            self.advance(1)

        parallel_for(write, itertools.product(range(spec.shard_rows), range(spec.shard_columns)), CORES)
        write_json(path / "zarr.json", spec.to_zarr_json())

    def write_04(self, folder: Path) -> None:
        """Write NGFF 0.4, in chunks of three colours of 1024 × 1024 px, with `/` in their keys."""
        for level in self.reader.levels:
            self._write_level_04(folder / IMAGE / str(level.level), level.array)
        _write_v2_group(folder / IMAGE, _as_04(self._image()))
        self._write_labels_04(folder)
        for series, array in enumerate(self.associated.values(), start=1):
            self._write_level_04(folder / str(series) / "0", array)
            _write_v2_group(folder / str(series), _as_04(_ome(array.path.parent)))
        _write_v2_group(folder / "OME", {"series": self._series()})
        self._write_xml(folder)
        _write_v2_group(folder, {"bioformats2raw.layout": 3, ATTRIBUTE: self.about})

    def _write_level_04(self, path: Path, array: ArrayReader) -> None:
        def read(y_px: int, x_px: int, height_px: int, width_px: int) -> NDArray[np.uint8]:
            return np.moveaxis(array.read_region(Box(x_px, y_px, width_px, height_px)), -1, 0)

        self._write_v2(path, (3, array.spec.height_px, array.spec.width_px), read, FILL_VALUE)

    def _labels(self) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        """The store's label images: name, attribute `ome`, and paths of the datasets, finest first."""
        labels = self.reader.path / LABELS
        try:
            for name in _ome(labels)["labels"]:
                ome = _ome(labels / _file_name(name))
                yield name, ome, [_file_name(entry["path"]) for entry in ome["multiscales"][0]["datasets"]]
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise UnreadableError(
                f"{labels}: cannot be read ({type(error).__name__}: {error}). {INGEST_AGAIN}"
            ) from error

    def _write_labels_05(self, folder: Path) -> None:
        labels = list(self._labels())
        for name, ome, datasets in labels:
            for dataset in datasets:
                values = read_label(self.reader.path, name, dataset)
                write_array(folder / LABELS / name / dataset, values, "yx", fill_value=0)
            write_group(folder / LABELS / name, {"ome": ome})
        write_group(folder / LABELS, {"ome": {"version": "0.5", "labels": [name for name, *_ in labels]}})

    def _write_labels_04(self, folder: Path) -> None:
        labels = list(self._labels())
        for name, ome, datasets in labels:
            for dataset in datasets:
                values = read_label(self.reader.path, name, dataset)

                def read(y: int, x: int, height: int, width: int, values: NDArray[Any] = values) -> NDArray[Any]:
                    part = values[y : y + height, x : x + width]
                    return np.pad(part, ((0, height - part.shape[0]), (0, width - part.shape[1])))

                self._write_v2(folder / LABELS / name / dataset, values.shape, read, 0, str(values.dtype.str))
            _write_v2_group(folder / LABELS / name, _as_04(ome))
        _write_v2_group(folder / LABELS, {"labels": [name for name, *_ in labels]})

    def _write_v2(
        self, path: Path, shape: tuple[int, ...], read: ReadPlanes, fill_value: int, dtype: str = "|u1"
    ) -> None:
        """Write one array; chunks that hold only the fill value are left out."""
        side = V2_CHUNK_PX
        rows, columns = (-(-size // side) for size in shape[-2:])
        lead = ("0",) * (len(shape) - 2)
        for row in range(rows):
            path.joinpath(*lead, str(row)).mkdir(parents=True, exist_ok=True)
        self.advance.expect(rows * columns)

        def write(row: int, column: int) -> None:
            values = np.ascontiguousarray(read(row * side, column * side, side, side))
            if (values != fill_value).any():
                _write_file(path.joinpath(*lead, str(row), str(column)), _BLOSC.encode(values))
            self.advance(1)

        parallel_for(write, itertools.product(range(rows), range(columns)), CORES)
        write_json(
            path / ".zarray",
            {
                "zarr_format": 2,
                "shape": list(shape),
                "chunks": [*shape[:-2], side, side],
                "dtype": dtype,
                "compressor": _BLOSC.get_config(),
                "fill_value": fill_value,
                "order": "C",
                "filters": None,
                "dimension_separator": "/",
            },
        )

    def _series(self) -> list[str]:
        return [str(i) for i in range(1 + len(self.associated))]

    def _write_xml(self, folder: Path) -> None:
        width_px, height_px = self.reader.size_wh_px0
        images: list[tuple[str, int, int, float | None]] = [("slide", width_px, height_px, self.reader.mpp0)]
        images += [(name, array.spec.width_px, array.spec.height_px, None) for name, array in self.associated.items()]
        planes_um = self.reader.attributes.planes_um if self.planes[1:] else None
        (folder / "OME").mkdir(exist_ok=True)
        (folder / "OME" / "METADATA.ome.xml").write_text(ome_xml(images, planes_um), encoding="utf-8")


def _ome(group: StorePath) -> dict[str, Any]:
    """The `ome` attribute of one of the store's groups.

    Raises:
        UnreadableError: missing, or without the parts of an image (`multiscales`) or of labels.
    """
    try:
        ome = read_json(group / "zarr.json")["attributes"]["ome"]
        _check_parts(ome)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableError(f"{group}: cannot be read ({type(error).__name__}: {error}). {INGEST_AGAIN}") from error
    checked: dict[str, Any] = ome
    return checked


def _without_z(ome: dict[str, Any]) -> dict[str, Any]:
    """`ome` of one focal plane of a stack. Raises UnreadableError: it is not that of a stack."""
    single = deepcopy(ome)
    try:
        for image in single["multiscales"]:
            z = [axis["name"] for axis in image["axes"]].index("z")
            del image["axes"][z]
            for step in (step for dataset in image["datasets"] for step in dataset["coordinateTransformations"]):
                del step[step["type"]][z]
        single["omero"]["rdefs"]["defaultZ"] = 0
    except (LookupError, TypeError, ValueError) as error:
        raise UnreadableError(
            f"its image has no focal planes ({type(error).__name__}: {error}). {INGEST_AGAIN}"
        ) from error
    return single


def _check_parts(ome: Any) -> None:
    scales = ome.get("multiscales", []) if isinstance(ome, dict) else None
    is_scales = isinstance(scales, list) and all(isinstance(entry, dict) for entry in scales)
    if not is_scales or not isinstance(ome.get("image-label", {}), dict) or not {"multiscales", "labels"} & ome.keys():
        raise ValueError("its attribute `ome` does not describe an image")


def _file_name(name: Any) -> str:
    """A name from the store's metadata, checked for use in a path. Raises ValueError if it could lead elsewhere."""
    if not isinstance(name, str) or not is_name(name):
        raise ValueError(f"invalid name {name!r:.100}: allowed are {ALLOWED}")
    return name


def _zstd(array: ArrayReader, stream: bytes, row: int, column: int) -> bytes:
    """A chunk's stream as zstd."""
    return stream if array.spec.codec == "zstd" else encode_zstd(array.decode(stream, row, column))


def _as_04(ome: dict[str, Any]) -> dict[str, Any]:
    """Attributes for NGFF 0.4: without the key `ome`, and with the version in each part."""
    parts = {key: value for key, value in ome.items() if key != "version"}
    parts["multiscales"] = [{"version": "0.4", **entry} for entry in ome.get("multiscales", [])]
    if "image-label" in parts:
        parts["image-label"] = {**parts["image-label"], "version": "0.4"}
    return parts


def _write_v2_group(path: Path, attributes: dict[str, Any]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / ".zgroup", {"zarr_format": 2})
    write_json(path / ".zattrs", attributes)


def _write_file(path: Path, data: bytes) -> None:
    """Write a file in a folder that gets its name when complete, so no temporary file is needed."""
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def about_export(planes: Sequence[StoreReader]) -> dict[str, Any]:
    """Metadata that NGFF cannot hold: slide id, scale, colours, and heights of focal planes.

    Nothing here names a file or a person.
    """
    attributes = planes[0].attributes
    heights_um = [plane.plane_um for plane in planes if plane.plane_um is not None]
    return {
        **attributes.model_dump(include={"slide_id", "mpp0", "icc", "objective_power", "scanner_model"}),
        "source_sha256": attributes.source_sha256,
        "routes": [level.route for level in attributes.levels],
        **({"planes_um": heights_um} if heights_um else {}),
    }

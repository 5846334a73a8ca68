"""Check that a store is as written: structure, checksums of files and chunks, indexes, and pixels that decode."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import partial
from typing import Any
from xml.etree import ElementTree

import numpy as np

from pipeline.errors import CorruptTileError, DamagedStoreError, WrongSlideError
from pipeline.places.byte_source import ByteSource, open_bytes, read_file, results_of
from pipeline.places.object_path import StorePath
from pipeline.store.format.checksums import covered_files, list_digest, read_checksums
from pipeline.store.format.inside import INGEST_AGAIN, check_inside, real_store_of
from pipeline.store.format.layout import (
    ATTENTION,
    CHECKSUMS,
    FEATURES,
    IMAGE,
    LABELS,
    PREDICTIONS,
    QUALITY,
    TISSUE,
    ArraySpec,
)
from pipeline.store.format.metadata import SlideAttributes, image_attributes, read_json
from pipeline.store.format.plain_array import PlainArray, array_names
from pipeline.store.format.shard import FileChecksum, index_bytes, is_as_written, read_index, sum_file
from pipeline.store.layers.features import list_features, read_features
from pipeline.store.layers.tissue_origin import find_mask_damage, mask_origin
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.reader import LevelArray, StoreReader, is_store
from pipeline.store.reading.threads import parallel_for
from pipeline.units import described
from training.foundation.errors import UnreadableError
from training.foundation.reading import MAX_JSON_BYTES
from training.foundation.words.counts import counted

OME_XML = "OME/METADATA.ome.xml"


def find_damage(store: StorePath, *, sample_chunks: int, every_chunk: bool = False, threads: int = 1) -> list[str]:
    """Find and explain damage to what ingest wrote; an empty list if it is intact.

    Args:
        sample_chunks: chunks decoded per level.
        every_chunk: decode all chunks instead.

    Raises:
        UnreadableError: it is not a store. WrongSlideError: its folder is named after another slide.
    """
    try:
        reader = StoreReader(store)
        arrays = image_arrays(reader)
    except UnreadableError as error:
        if not is_store(store):
            raise
        return [str(error)]
    attributes = reader.attributes
    findings = [*_check_structure(store, reader, attributes), *_check_files(store, attributes, threads)]
    for name, array in arrays.items():
        if not array.spec.has_checksums:
            findings.append(f"{name}: its chunks have no checksums")
        findings += _check_chunks(array, name, sample_chunks, every_chunk, threads)
    return [*findings, *_check_small_arrays(store, LABELS), *find_mask_damage(reader)]


def check_levels(reader: StoreReader) -> None:
    """Check that the levels are those that ingest wrote, as far as names, lengths and metadata tell; no chunk is read.

    A reader shows a missing shard as white, and believes any scale and size that the metadata state.

    Raises:
        DamagedStoreError: they are not. UnreadableError: the image's metadata cannot be read.
    """
    try:
        image = read_json(reader.path / IMAGE / "zarr.json")["attributes"]
        datasets = image["ome"]["multiscales"][0]["datasets"]
        findings = [*_check_scales(datasets, reader), *_check_planes(image, reader)]
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise UnreadableError(f"{reader.path}: its metadata cannot be read ({why}). {INGEST_AGAIN}") from error
    if len(datasets) != len(reader.levels):
        findings.append(f"{counted(len(datasets), 'dataset')} for {counted(len(reader.levels), 'level')}")
    if "checksums_sha256" in reader.attributes.ingest:
        findings += _check_shards(reader)
    if findings:
        more = f" (and {len(findings) - 1} more)" if findings[1:] else ""
        raise DamagedStoreError(f"{reader.path}: {findings[0]}{more}. {INGEST_AGAIN}")


def _check_shards(reader: StoreReader) -> Iterator[str]:
    """Compare the levels' shards with the list of checksums by length and order, their metadata byte for byte."""
    try:
        recorded = _read_list(reader.path, reader.attributes)
    except ValueError as error:
        yield str(error)
        return
    real_store = real_store_of(reader.path)
    names = [name for name in recorded if re.fullmatch(rf"{IMAGE}/\d+/.+", name)]
    yield from filter(
        None, results_of(reader.path, (partial(_fault, reader, real_store, name, recorded[name]) for name in names))
    )


def _fault(reader: StoreReader, real_store: str, name: str, recorded: FileChecksum) -> str | None:
    """What is wrong with a file of a level, by its length, or by its content if it is no shard."""
    path, level = reader.path / name, int(name.split("/")[1])
    check_inside(path, real_store)
    if level >= len(reader.levels):
        return f"{name}: is of no level of the root"
    spec = reader.levels[level].array.spec
    try:
        source = open_bytes(path, end_bytes=index_bytes(spec.shard_chunks**2))
    except FileNotFoundError:
        return f"{name}: is missing"
    except OSError as error:
        return f"{name}: cannot be read ({error.strerror})"
    if source.num_bytes != recorded.bytes:
        return f"{name}: {source.num_bytes} bytes, was {recorded.bytes}"
    if path.name == "zarr.json":
        return None if sum_file(path) == recorded else f"{name}: is not as ingest wrote it"
    return None if _is_in_order(source, spec) else f"{name}: its index is not the one that ingest wrote"


def _is_in_order(shard: ByteSource, spec: ArraySpec) -> bool:
    if spec.link is not None:  # pointers, which have a list of their own
        return True
    try:
        index = read_index(shard, spec.shard_chunks**2, spec.max_chunk_bytes)
    except ValueError:
        return False
    return is_as_written(index, shard.num_bytes)


def find_overlay_damage(store: StorePath) -> list[str]:
    """Find damage to predictions, quality scores, features and attention, which come after ingest; all is decoded."""
    groups = (PREDICTIONS, QUALITY, FEATURES, ATTENTION)
    findings = [finding for group in groups for finding in _check_small_arrays(store, group)]
    return findings or _check_features(store)


def _check_features(store: StorePath) -> list[str]:
    """Features that are not as they were written, by their hash, or that belong to another slide or encoder."""
    findings = []
    for encoder_id in list_features(store):
        try:
            read_features(store, encoder_id)
        except (UnreadableError, WrongSlideError) as error:
            findings.append(str(error).rstrip("."))
    return findings


def image_arrays(reader: StoreReader) -> dict[str, ArrayReader]:
    """Arrays of the slide's levels, at each focal plane, and of its associated images, by path below the store.

    Raises:
        UnreadableError: an associated image is missing or damaged.
    """
    levels = {f"{IMAGE}/{level.level}{_at(plane)}": level.array for plane in reader.planes() for level in plane.levels}
    return levels | {f"{array.path.parent.name}/0": array for array in reader.associated().values()}


def _at(reader: StoreReader) -> str:
    """The focal plane in words; "" of a slide with a single one."""
    return "" if reader.plane_um is None else f" at {reader.plane_um:g} µm"


def _check_small_arrays(store: StorePath, group: str) -> list[str]:
    """Damage in the arrays below a group, chunk by chunk."""
    findings = []
    try:
        for name in array_names(store, group):
            array = PlainArray.open(store, name)
            for position in array.positions():
                try:
                    array.chunk(position)
                except UnreadableError as error:
                    findings.append(str(error).rstrip("."))
    except UnreadableError as error:
        findings.append(str(error).rstrip("."))
    return findings


def _check_structure(store: StorePath, reader: StoreReader, attributes: SlideAttributes) -> Iterator[str]:
    num_levels = len(attributes.levels)
    try:
        image = read_json(store / IMAGE / "zarr.json")["attributes"]
        datasets = image["ome"]["multiscales"][0]["datasets"]
        labels = read_json(store / TISSUE / "zarr.json")["attributes"]["ome"]["multiscales"][0]["datasets"]
        series = read_json(store / "OME/zarr.json")["attributes"]["ome"]["series"]
        check_inside(store / OME_XML, real_store_of(store))
        xml = read_file(store / OME_XML, max_bytes=MAX_JSON_BYTES)
        pixels = ElementTree.fromstring(xml).findall("{*}Image/{*}Pixels")
        counts = len(datasets), len(labels), len(series)
        depth = int(pixels[0].attrib["SizeZ"])
        sizes = [(int(element.attrib["SizeX"]), int(element.attrib["SizeY"])) for element in pixels]
    except (OSError, ValueError, LookupError, TypeError, UnreadableError, ElementTree.ParseError) as error:
        yield f"its metadata cannot be read ({type(error).__name__}: {error})"
        return
    num_datasets, num_labels, num_series = counts
    if not num_datasets == num_labels == num_levels:
        yield f"{counted(num_datasets, 'dataset')} and {num_labels} of tissue for {counted(num_levels, 'level')}"
    if not num_series == len(sizes) == 1 + len(attributes.associated) or sizes[0] != reader.size_wh_px0:
        yield f"OME lists {num_series} series, its XML {len(sizes)} of {sizes[:1]} px"
    if depth != len(attributes.planes_um or (0.0,)):
        yield f"its XML has {counted(depth, 'focal plane')}, the root {len(attributes.planes_um or (0.0,))}"
    yield from _check_scales(datasets, reader)
    yield from _check_planes(image, reader)
    for level, entry in zip(reader.levels, attributes.levels, strict=True):
        if level.codec != entry.codec:
            yield f"{IMAGE}/{entry.path}: its codec is {level.codec}, the root says {entry.codec}"


def _check_scales(datasets: list[dict[str, Any]], reader: StoreReader) -> Iterator[str]:
    """Compare the root's scale with the image's own, whose file has a checksum, and with the levels' sizes."""
    for level, dataset in zip(reader.levels, datasets, strict=False):
        expected = reader.mpp0 * level.downsample
        try:
            own = float(dataset["coordinateTransformations"][0]["scale"][-1])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            yield f"level {level.level}: its scale cannot be read ({type(error).__name__}: {error})"
            continue
        if not abs(own - expected) <= 1e-6 * expected or not _fits_size(level, reader.levels[0]):
            yield (
                f"zarr.json: says {reader.mpp0:g} µm/px and a downsample of {level.downsample:g} for level "
                f"{level.level}, which is {level.width_px} × {level.height_px} px at {own:g} µm/px"
            )


def _check_planes(image: dict[str, Any], reader: StoreReader) -> Iterator[str]:
    """Compare the root's focal planes with the image's own, whose file has a checksum, and with its scale along z."""
    planes_um = reader.attributes.planes_um
    if planes_um is None:
        return
    expected = image_attributes("slide", [reader.mpp0 * level.downsample for level in reader.levels], planes_um)
    differ = [part for part in ("gemslide", "ome") if _along_z(image, part) != _along_z(expected, part)]
    if differ:
        yield f"zarr.json: says {described(planes_um)}, and {IMAGE}/zarr.json states other focal planes"


def _along_z(image: dict[str, Any], part: str) -> object:
    """What an image states of its focal planes; None if it cannot be read."""
    try:
        if part == "gemslide":
            return image["gemslide"]["planes_um"]
        steps = [step for d in image["ome"]["multiscales"][0]["datasets"] for step in d["coordinateTransformations"]]
        return image["ome"]["omero"]["rdefs"]["defaultZ"], [step[step["type"]][1] for step in steps]
    except (LookupError, TypeError):
        return None


def _fits_size(level: LevelArray, finest: LevelArray) -> bool:
    """Whether a downsample is that of either side, or in between: short sides were rounded more than long ones."""
    sides = ((finest.width_px, level.width_px), (finest.height_px, level.height_px))
    ratios = [(own, own / side + 0.02 * own) for own, side in ((whole / side, side) for whole, side in sides)]
    lowest, highest = min(own - rounding for own, rounding in ratios), max(own + rounding for own, rounding in ratios)
    return lowest <= level.downsample <= highest


def _check_files(store: StorePath, attributes: SlideAttributes, threads: int) -> list[str]:
    """Compare every file with the list of checksums, and the list with the root."""
    try:
        expected = _read_list(store, attributes)
    except ValueError as error:
        return [str(error)]
    present = covered_files(store)
    if _has_replaced_mask(store):  # which has its own checksum
        present = [name for name in present if not name.startswith(f"{TISSUE}/")]
        expected = {name: recorded for name, recorded in expected.items() if not name.startswith(f"{TISSUE}/")}
    findings = [f"{name}: is missing" for name in sorted(set(expected) - set(present))]
    findings += [f"{name}: was not written by ingest" for name in sorted(set(present) - set(expected))]
    damaged: list[str] = []
    both = sorted(set(expected) & set(present))

    def check(index: int) -> None:
        name = both[index]
        now, recorded = sum_file(store / name), expected[name]
        if now != recorded:
            damaged.append(
                f"{name}: {now.bytes} bytes with CRC {now.crc32c:08x}, was {recorded.bytes} with {recorded.crc32c:08x}"
            )

    parallel_for(check, ((index,) for index in range(len(both))), threads)
    return findings + sorted(damaged)


def _read_list(store: StorePath, attributes: SlideAttributes) -> dict[str, FileChecksum]:
    """The list of checksums, which the root names by its hash.

    Raises:
        ValueError: it cannot be read, or is another one.
    """
    try:
        recorded = read_checksums(store)
        digest = list_digest(store)
    except (OSError, ValueError) as error:
        raise ValueError(f"{CHECKSUMS}: cannot be read ({error})") from error
    if digest != attributes.ingest.get("checksums_sha256"):
        raise ValueError(f"{CHECKSUMS}: is not the list with which the root was written")
    return recorded


def _has_replaced_mask(store: StorePath) -> bool:
    try:
        return mask_origin(store) is not None
    except UnreadableError:
        return False


def _check_chunks(array: ArrayReader, name: str, sample_chunks: int, every_chunk: bool, threads: int) -> list[str]:
    """Decode chunks; the shards' indexes are checked on the way."""
    damaged: list[str] = []

    def decode(row: int, column: int) -> None:
        try:
            array.decoded_chunk(row, column)
        except CorruptTileError as error:
            damaged.append(f"{name}: chunk in row {row}, column {column}: {error}")
        except (OSError, UnreadableError) as error:
            damaged.append(f"{name}: {error}")

    spec = array.spec
    grid = itertools.product(range(spec.rows), range(spec.columns)) if every_chunk else sampled(spec, sample_chunks)
    parallel_for(decode, grid, threads)
    return sorted(damaged)


def sampled(spec: ArraySpec, num_chunks: int) -> list[tuple[int, int]]:
    """Corners and random chunks of a level, the same every time, as (row, column)."""
    corners = {(r, c) for r in (0, spec.rows - 1) for c in (0, spec.columns - 1)}
    count = spec.rows * spec.columns
    chosen = np.random.default_rng(count).choice(count, min(num_chunks, count), replace=False)
    return sorted(corners | {divmod(int(index), spec.columns) for index in chosen})

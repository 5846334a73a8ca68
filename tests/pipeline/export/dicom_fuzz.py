"""Single bytes of a slide store changed, then exported as DICOM: an error of gemslide, or the pixels of a reader.

    python -m tests.pipeline.export.dicom_fuzz FOLDER SEED CASES

Bytes of shards and of metadata change; those of chunks and indexes also with checksums that are valid again, in a store
with a list of checksums and in one without. The process may use little more memory than it has at the start. Prints one
JSON object: how cases ended, and what was wrong.
"""

from __future__ import annotations

import base64
import json
import random
import resource
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import openslide
import pydicom
from PIL import ImageCms
from pydicom.encaps import get_frame

from pipeline.box import Box
from pipeline.errors import CorruptTileError
from pipeline.export.export import ExportRequest, export_slide
from pipeline.store.format.checksums import write_checksums
from pipeline.store.reading.reader import LevelArray, StoreReader
from tests.pipeline.export.make_store import j2k_level, jfif, jpeg_level, make_store, zstd_level
from tests.pipeline.export.store_edits import edit_chunks, edit_index, edit_root
from tests.pipeline.make import halved, sample_image
from training.foundation.errors import GemslideError

MORE_MEMORY_BYTES = 2**29


def make_stores(folder: Path) -> list[Path]:
    """A store of three codecs, without a list of checksums and with one."""
    levels = halved(sample_image(300, 200), 2)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    store = make_store(
        folder / "plain/S.ome.zarr",
        [jpeg_level(levels[0], 64, jfif("422"), sparse={(0, 1)}), j2k_level(levels[1], 64), zstd_level(levels[2], 40)],
        icc=base64.b64encode(profile).decode(),
    )
    listed = shutil.copytree(store, folder / "listed/S.ome.zarr")
    digest = write_checksums(listed, {})
    edit_root(listed, lambda root: root["ingest"].update(checksums_sha256=digest))
    return [store, listed]


@contextmanager
def changed(store: Path, draw: random.Random) -> Iterator[str]:
    """Change a byte of a store; restore it afterwards.

    Yields:
        What was changed.
    """
    shards = sorted(path for path in store.glob("0/*/c/0/*/*") if path.is_file())
    metadata = [*sorted(store.glob("0/*/zarr.json")), store / "0/zarr.json", *[store / "zarr.json"] * 4]
    kind = draw.choice(["byte of a shard", "byte of metadata", "byte of metadata", "chunk", "chunk", "chunk", "index"])
    path = draw.choice(metadata if kind == "byte of metadata" else shards)
    whole = path.read_bytes()
    what = f"{store.parent.name}/{path.relative_to(store)}: {kind}"
    try:
        if kind == "chunk":
            edit_chunks(path, lambda chunks: chunks.__setitem__(*_changed_chunk(chunks, draw)))
        elif kind == "index":
            edit_index(path, lambda index: _change_index(index, draw))
        else:
            path.write_bytes(_with_other_byte(whole, draw))
        yield what
    finally:
        path.write_bytes(whole)


def _with_other_byte(content: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(content))
    # Digits of metadata become other digits, so that numbers change more often than syntax.
    is_digit = content[at : at + 1].isdigit() and draw.random() < 0.8
    new = ord(draw.choice("0123456789")) if is_digit else draw.randrange(256)
    return content[:at] + bytes([new]) + content[at + 1 :]


def _changed_chunk(chunks: list[bytes | None], draw: random.Random) -> tuple[int, bytes]:
    number = draw.choice([number for number, chunk in enumerate(chunks) if chunk is not None])
    chunk = chunks[number]
    assert chunk is not None
    in_header = draw.random() < 0.7
    length = 700 if in_header else len(chunk)
    return number, _with_other_byte(chunk[:length], draw) + chunk[length:]


def _change_index(index: list[list[int]], draw: random.Random) -> None:
    record, which = draw.choice(index), draw.randrange(2)
    number = bytearray(record[which].to_bytes(8, "little"))
    number[draw.choice([0, 0, 1, 1, 2, 7])] = draw.randrange(256)
    record[which] = int.from_bytes(number, "little")


def outcome_of(store: Path, out: Path) -> tuple[str, list[str]]:
    """How an export ends, and what is wrong with it."""
    try:
        report = export_slide(ExportRequest(store, out, "dicom"))
    except GemslideError as error:
        left = [path.name for path in out.parent.iterdir()]
        return error.code, [f"left {left}"] * bool(left) + ["says little"] * (len(str(error)) < 40)
    reader = StoreReader(store)
    wrong = [finding for level in reader.levels for finding in _wrong_in_level(reader, level, out)]
    wrong += [] if sorted(report.how) == [str(level.level) for level in reader.levels] else ["levels"]
    shutil.rmtree(out)
    return "exported", wrong


def _wrong_in_level(reader: StoreReader, level: LevelArray, out: Path) -> Iterator[str]:
    dataset = pydicom.dcmread(out / f"level-{level.level}.dcm")
    stated = dataset.TotalPixelMatrixColumns, dataset.TotalPixelMatrixRows, dataset.Columns, dataset.Rows
    if stated != (level.width_px, level.height_px, level.chunk_px, level.chunk_px):
        yield f"level {level.level} states {stated}"
    spacing = dataset.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0].PixelSpacing
    if not np.allclose(spacing, reader.mpp0 * level.downsample / 1000, rtol=1e-6):
        yield f"level {level.level} states {spacing} mm"
    shown, whole = _shown(out, level), Box(0, 0, level.width_px, level.height_px)
    try:
        if shown is None or not np.array_equal(shown, reader.read_region(level.level, whole)):
            yield from _wrong_tiles(level, dataset, out)
    except CorruptTileError:
        yield from _wrong_tiles(level, dataset, out)


def _shown(out: Path, level: LevelArray, box: Box | None = None) -> np.ndarray | None:
    """Pixels of a level as OpenSlide reads them; None if it cannot."""
    box = box or Box(0, 0, level.width_px, level.height_px)
    try:
        with openslide.OpenSlide(out / "level-0.dcm") as slide:
            number = slide.level_dimensions.index((level.width_px, level.height_px))
            scale = slide.level_downsamples[number]
            corner_xy0 = round(box.x_px * scale), round(box.y_px * scale)
            return np.asarray(slide.read_region(corner_xy0, number, box.size_wh_px).convert("RGB"))
    except (openslide.OpenSlideError, ValueError):
        return None


def _wrong_tiles(level: LevelArray, dataset: pydicom.Dataset, out: Path) -> Iterator[str]:
    """Tile by tile. A chunk that a decoder refuses must be a frame as it is: then every decoder treats both alike.

    OpenSlide also refuses JPEG of which libjpeg only warns.
    """
    tables = dataset.ExtendedOffsetTable, dataset.ExtendedOffsetTableLengths
    number, t = int(dataset.NumberOfFrames), level.chunk_px
    for index in range(number):
        row, column = divmod(index, level.columns)
        box = Box(column * t, row * t, min(t, level.width_px - column * t), min(t, level.height_px - row * t))
        try:
            expected = level.array.read_region(box)
        except CorruptTileError:
            expected = None
        shown = _shown(out, level, box)
        if expected is not None and shown is not None:
            is_right = np.array_equal(shown, expected)
        else:
            frame = get_frame(dataset.PixelData, index, extended_offsets=tables, number_of_frames=number)
            chunk = level.array.chunk(row, column)
            is_right = chunk is not None and frame == chunk + b"\0" * (len(chunk) % 2)
        if not is_right:
            yield f"level {level.level}, row {row}, column {column}: {'no' if shown is None else 'other'} pixels"


def limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_MEMORY_BYTES, used + MORE_MEMORY_BYTES))


def main(folder: Path, seed: int, cases: int) -> None:
    warnings.simplefilter("error")
    stores, outcomes, findings = make_stores(folder), Counter[str](), list[str]()
    (folder / "out").mkdir()
    for store in stores:  # imports do not count
        outcomes.update([outcome_of(store, folder / "out/S")[0]])
    assert outcomes == {"exported": 2}
    limit_memory()
    outcomes.clear()
    for number in range(cases):
        draw = random.Random(f"{seed}/{number}")
        with changed(draw.choice(stores), draw) as what:
            try:
                outcome, wrong = outcome_of(*_paths(what, folder))
            except Exception as error:  # noqa: BLE001 - whatever else comes out is what we look for
                outcome, wrong = "exception", [f"{type(error).__name__}: {error}"]
        outcomes[outcome] += 1
        findings += [f"{seed}/{number}: {what}: {finding}" for finding in wrong]
    print(json.dumps({"outcomes": outcomes, "findings": findings}))


def _paths(what: str, folder: Path) -> tuple[Path, Path]:
    return folder / what.split("/")[0] / "S.ome.zarr", folder / "out/S"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

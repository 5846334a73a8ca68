"""A linked store shows what a full one shows, holds no tile, and is not relied on before it was compared."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from pipeline.errors import (
    AmbiguousSeriesError,
    ChangedSourceError,
    CorruptTileError,
    DamagedStoreError,
    OutsideFoldersError,
    SourceGoneError,
    UnverifiedLinkError,
)
from pipeline.export.export import ExportRequest, export_slide
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.ingest.linked import appear, ingest_linked, relink, verify_linked
from pipeline.ingest.source_comparison import verify_store
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.settings.site import SLIDES_VARIABLE, WITHIN_VARIABLE
from pipeline.slides.tiff.streams import EncodedTiffLevel
from pipeline.store.format.link_shard import RECORD
from pipeline.store.layers.overlays import Predictions, list_predictions, write_predictions
from pipeline.store.links import source as linked_files
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.ingest.store_bytes import left_in, tree
from tests.pipeline.ingest.test_aperio_edges import RIGHT, scramble, tissue, write_aperio
from tests.pipeline.make import (
    PLAIN_TISSUE,
    halved,
    overwrite_tile,
    sample_image,
    write_aperio_j2k,
    write_jpeg_pyramid,
    write_pyramid,
)
from tests.pipeline.slides.make_dicom import write_dicom
from training.foundation.errors import BadRecipeError, UnreadableError

CONFIG = IngestConfig(shard_px=512, tissue=PLAIN_TISSUE, smallest_level_px=400)
MPP = 0.5


def write_tiff(folder: Path) -> Path:
    return write_jpeg_pyramid(folder / "name of a patient.tiff", halved(sample_image(1300, 900), 1))


def write_svs(folder: Path) -> Path:
    """Its reduced level has a scrambled tile."""
    source = write_aperio(folder / "a.svs", [tissue(), halved(tissue(), 1)[1]])
    scramble(source, RIGHT)
    return source


def write_jpeg_2000(folder: Path) -> Path:
    return write_aperio_j2k(folder / "j.svs", sample_image(1100, 700), compression=33005)


def write_folder(folder: Path) -> Path:
    """DICOM: two levels in one file each, one of them without an offset table."""
    slide = folder / "dicom"
    slide.mkdir()
    for level, pixels in enumerate(halved(sample_image(700, 520), 1)):
        write_dicom(slide / f"{level}.dcm", pixels, downsample=2**level, offsets=("basic", "none")[level])
    return slide


KINDS = {"tiff": write_tiff, "svs": write_svs, "jpeg 2000": write_jpeg_2000, "dicom": write_folder}


def link(source: Path, root: Path, **settings: object):
    config = CONFIG.model_copy(update=settings)
    return ingest_linked(IngestRequest(source, "S-1", mpp_option=MPP), Project(root), config)


def full(source: Path, root: Path, **settings: object):
    config = CONFIG.model_copy(update=settings)
    return ingest_slide(IngestRequest(source, "S-1", mpp_option=MPP), Project(root), config)


def make_first_appearance(source: Path, root: Path) -> Path:
    assert appear(IngestRequest(source, "S-1", mpp_option=MPP), Project(root), CONFIG)
    return Project(root).store_path("S-1")


def chunks(store: Path) -> dict[tuple[int, int, int], bytes | None]:
    reader = StoreReader(store)
    return {
        (level.level, row, column): level.array.chunk(row, column)
        for level in reader.levels
        for row in range(level.rows)
        for column in range(level.columns)
    }


def labels(store: Path) -> dict[str, bytes]:
    return {name: content for name, content in tree(store).items() if name.startswith("0/labels/")}


def links(root: Path) -> dict:
    return json.loads((root / "links.json").read_text())["links"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A slide, and a verified store linked to it; read them, do not write."""
    folder = tmp_path_factory.mktemp("linked")
    source = write_tiff(folder)
    return source, link(source, folder / "p")


@pytest.fixture
def copied(made, tmp_path):
    """The same, to be changed."""
    source = write_tiff(tmp_path)
    report = link(source, tmp_path / "p")
    return source, report.store


@pytest.mark.parametrize("kind", KINDS)
def test_a_linked_store_has_the_chunks_and_the_mask_of_a_full_one(tmp_path, kind):
    source = KINDS[kind](tmp_path)

    linked, whole = link(source, tmp_path / "linked"), full(source, tmp_path / "full")

    assert chunks(linked.store) == chunks(whole.store)
    assert (linked.sha256, linked.tissue_fraction) == (whole.sha256, whole.tissue_fraction)
    assert linked.levels[0].route == "linked"
    assert [level.rebuilt for level in linked.levels] == [level.rebuilt for level in whole.levels]
    assert labels(linked.store) == labels(whole.store)
    assert verify_store(linked.store, source=source)


@pytest.mark.parametrize("kind", KINDS)
def test_a_linked_store_is_made_full_with_the_bytes_of_a_direct_ingest(tmp_path, kind):
    source = KINDS[kind](tmp_path)
    linked, whole = link(source, tmp_path / "linked"), full(source, tmp_path / "full")
    predicted = Predictions("m", ("a", "b"), np.full((2, 2, 3), 0.5, np.float32), 256, 256, {})
    write_predictions(linked.store, predicted, mpp0=MPP)

    filled = full(source, tmp_path / "linked")

    assert not filled.skipped
    assert list_predictions(filled.store) == ["m"]
    own = {name: content for name, content in tree(filled.store).items() if not name.startswith("predictions")}
    assert own == tree(whole.store)
    assert links(tmp_path / "linked") == {}
    assert full(source, tmp_path / "linked").skipped


def test_a_linked_store_holds_neither_tiles_nor_the_path_of_the_slide(made):
    source, report = made
    files = [path for path in report.store.rglob("*") if path.is_file() and "/0/2/" not in str(path)]  # 2 is built
    stored = b"".join(path.read_bytes() for path in files)

    assert b"\xff\xd8\xff" not in stored
    assert b"patient" not in stored
    assert str(source.parent).encode() not in stored
    entry = next(iter(links(report.store.parents[1]).values()))
    assert entry["files"][0]["path"] == str(source)
    assert (report.store.parents[1] / "links.json").stat().st_mode & 0o777 == 0o600


def test_before_it_was_compared_a_store_shows_its_tiles_and_nothing_may_rely_on_it(tmp_path, made):
    source = write_tiff(tmp_path)

    reader = StoreReader(make_first_appearance(source, tmp_path / "p"))

    assert chunks(reader.path) == chunks(made[1].store)
    assert reader.attributes.link.state == "linked"
    assert reader.attributes.link.bytes > 0.5 * source.stat().st_size
    with pytest.raises(UnverifiedLinkError, match=r"S-1: is linked and not verified.*gemslide verify S-1"):
        _ = reader.source_sha256


def test_the_first_appearance_reads_no_tile_of_the_finest_level(tmp_path, monkeypatch):
    source, read = write_tiff(tmp_path), list[int]()
    streams = EncodedTiffLevel.streams

    def noting(self: EncodedTiffLevel, row: int, columns: range):
        read.append(self.columns)
        return streams(self, row, columns)

    monkeypatch.setattr(EncodedTiffLevel, "streams", noting)

    store = make_first_appearance(source, tmp_path / "p")

    assert [level.columns for level in StoreReader(store).levels] == [6, 3, 2]
    assert set(read) == {3}  # level 2 is built from level 1


def test_a_page_that_only_has_the_slides_proportions_is_not_shown_as_a_level(tmp_path):
    """Such as a label: though only a few places are compared before the slide appears."""
    other = halved(sample_image(1300, 900, seed=9), 1)[1]
    source = write_jpeg_pyramid(tmp_path / "a.tiff", [sample_image(1300, 900), other])

    with pytest.raises(AmbiguousSeriesError, match="Choose one"):
        make_first_appearance(source, tmp_path / "p")


def test_verify_completes_what_ingest_began(tmp_path, made):
    source = write_tiff(tmp_path)
    store = make_first_appearance(source, tmp_path / "p")

    said = verify_linked(store, None, None, lambda path, series: pytest.fail("it was not finished"))

    assert "compared with the scanner's file for the first time" in said
    assert StoreReader(store).source_sha256 == made[1].sha256
    assert chunks(store) == chunks(made[1].store)
    assert len(links(tmp_path / "p")) == 1
    assert left_in(tmp_path / "p") == ["S-1.ome.zarr"]


def test_a_store_whose_slide_is_damaged_is_withdrawn(tmp_path):
    source = write_tiff(tmp_path)
    overwrite_tile(source, 7, b"junk" * 40)
    store = make_first_appearance(source, tmp_path / "p")

    with pytest.raises(CorruptTileError, match=r"row 1, column 1.*The linked store was withdrawn"):
        link(source, tmp_path / "p")

    assert left_in(tmp_path / "p") == []
    assert links(tmp_path / "p") == {}
    assert not store.exists()


def test_damaged_tiles_are_masked_in_a_linked_store_too(tmp_path):
    source = write_tiff(tmp_path)
    overwrite_tile(source, 7, b"junk" * 40)

    linked = link(source, tmp_path / "linked", damaged="mask")
    whole = full(source, tmp_path / "full", damaged="mask")

    assert linked.damaged == whole.damaged == (1, 24)
    assert chunks(linked.store) == chunks(whole.store)
    assert StoreReader(linked.store).chunk(0, 1, 1) is None


def test_a_slide_whose_tiles_are_not_stored_as_they_are_is_refused(tmp_path):
    source = write_pyramid(tmp_path / "z.tiff", halved(sample_image(700, 500), 1), compression="zlib")

    with pytest.raises(BadRecipeError, match=r"S-1: cannot be linked: compressed with.*without `--link`"):
        link(source, tmp_path / "p")

    assert left_in(tmp_path / "p") == []


def test_a_slide_that_is_gone_or_changed_is_named_by_its_id_only(copied):
    source, store = copied
    moved = source.with_name("moved.tiff")

    source.rename(moved)
    with pytest.raises(SourceGoneError, match=r"^slide S-1: .*gemslide verify S-1 --source FILE") as gone:
        StoreReader(store)
    moved.rename(source)
    os.utime(source, ns=(1, 1))
    with pytest.raises(ChangedSourceError, match=r"^slide S-1: ") as changed:
        StoreReader(store)

    assert "patient" not in str(gone.value) + str(changed.value)


def test_a_slide_written_to_while_it_is_open_is_noticed_by_the_next_tile(copied):
    source, store = copied
    reader = StoreReader(store)
    assert reader.chunk(0, 0, 0)

    overwrite_tile(source, 0, b"\xff\xd9", at=-60)

    with pytest.raises(ChangedSourceError, match="not what it was"):
        reader.chunk(0, 0, 0)


def test_bytes_that_changed_with_length_time_and_inode_kept_are_noticed(copied):
    source, store = copied
    before = source.stat()
    overwrite_tile(source, 0, bytes(30), at=-60)
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(CorruptTileError, match="row 0, column 0"):
        StoreReader(store).chunk(0, 0, 0)
    with pytest.raises(DamagedStoreError, match="restore the file"):
        verify_store(store)


def test_a_store_follows_its_slide_only_to_a_copy_of_the_same_bytes(copied, tmp_path):
    source, store = copied
    before = chunks(store)
    other = write_jpeg_pyramid(tmp_path / "other.tiff", halved(sample_image(1300, 900, seed=1), 1))
    moved = Path(shutil.move(source, tmp_path / "moved.tiff"))

    with pytest.raises(ChangedSourceError, match="Name a copy of the same file"):
        relink(store, other, None)
    relink(store, moved, None)

    assert chunks(store) == before


def test_an_unverified_store_follows_nothing(tmp_path):
    source = write_tiff(tmp_path)
    store = make_first_appearance(source, tmp_path / "p")

    with pytest.raises(UnverifiedLinkError, match="never verified"):
        relink(store, source, None)


def test_another_file_under_the_same_id_is_refused(tmp_path):
    store = make_first_appearance(write_tiff(tmp_path), tmp_path / "p")
    other = write_jpeg_pyramid(tmp_path / "other.tiff", halved(sample_image(1300, 900, seed=1), 1))

    with pytest.raises(ChangedSourceError, match="linked to another file"):
        full(other, tmp_path / "p")
    with pytest.raises(ChangedSourceError, match="linked to another file"):
        link(other, tmp_path / "p")

    assert StoreReader(store).attributes.is_unverified


def test_a_full_ingest_replaces_a_store_that_was_never_compared(tmp_path):
    source = write_tiff(tmp_path)
    make_first_appearance(source, tmp_path / "linked")

    filled, whole = full(source, tmp_path / "linked"), full(source, tmp_path / "full")

    assert tree(filled.store) == tree(whole.store)
    assert links(tmp_path / "linked") == {}


@pytest.mark.parametrize("field", RECORD.names)
def test_a_pointer_that_was_changed_is_followed_nowhere(copied, field):
    """Not even if the store's own checksums are made to fit: another tile, the label, or bytes past the end."""
    _, store = copied
    shard = store / "0/0/c/0/0/0"
    records = np.frombuffer(shard.read_bytes(), RECORD).copy()
    records[field][0] = {"offset": records["offset"][1], "count": 40, "file": 1}.get(field, 0)
    records[field][0] += field == "zero"
    shard.write_bytes(records.tobytes())

    with pytest.raises(CorruptTileError, match="not those that were written"):
        StoreReader(store).chunk(0, 0, 0)


def test_a_store_copied_to_another_project_says_what_it_lacks(copied, tmp_path):
    _, store = copied
    moved = shutil.copytree(store, tmp_path / "q/slides/S-1.ome.zarr")

    with pytest.raises(UnreadableError, match=r"links\.json does not say to which"):
        StoreReader(moved)


def test_links_that_others_could_change_are_not_followed(copied):
    _, store = copied
    (store.parents[1] / "links.json").chmod(0o666)

    with pytest.raises(UnreadableError, match=r"mode 666.*chmod 600"):
        StoreReader(store)


def test_the_web_app_follows_links_into_allowed_folders_only(copied, monkeypatch):
    source, store = copied
    monkeypatch.setenv(WITHIN_VARIABLE, "[]")

    with pytest.raises(OutsideFoldersError, match=r"^slide S-1: .*GEMSLIDE_SLIDES"):
        StoreReader(store)
    monkeypatch.setenv(SLIDES_VARIABLE, str(source.parent))

    assert StoreReader(store).chunk(0, 0, 0)


def test_plain_zarr_reads_a_linked_store(made, tmp_path):
    _, report = made
    read = (
        "import sys, zarr, numpy as np; a = zarr.open(sys.argv[1], mode='r')['0/0'];"
        "np.save(sys.argv[2], a[:]); np.save(sys.argv[3], a[1:3, 5:890:3, [7, 600, 1299]])"
    )
    out = tmp_path / "all.npy", tmp_path / "some.npy"
    subprocess.run([sys.executable, "-c", read, str(report.store), *map(str, out)], check=True)

    level = StoreReader(report.store).levels[0]
    expected = level.array.read_whole(level.width_px, level.height_px).transpose(2, 0, 1)
    assert np.array_equal(np.load(out[0]), expected)
    assert np.array_equal(np.load(out[1]), expected[1:3, 5:890:3][:, :, [7, 600, 1299]])


def test_plain_zarr_does_not_write_into_a_linked_store(copied):
    _, store = copied
    with pytest.raises(TypeError, match="not written through zarr"):
        zarr.open(str(store))["0/0"][:, :10, :10] = 0


def test_a_slide_that_two_threads_open_at_once_is_read_by_both(made, monkeypatch):
    """Only one of their open files is kept; the other must stay open until its thread has read it."""
    _, report = made
    whole = StoreReader(report.store).chunk(0, 1, 2)
    monkeypatch.setattr(linked_files, "_opened", linked_files._opened.__wrapped__)

    assert StoreReader(report.store).chunk(0, 1, 2) == whole


def test_a_reader_of_a_linked_store_can_be_sent_to_another_process(made):
    import pickle

    reader = StoreReader(made[1].store)

    assert pickle.loads(pickle.dumps(reader)).chunk(0, 1, 2) == reader.chunk(0, 1, 2)
    assert pickle.loads(pickle.dumps(reader.levels[0].array)).chunk(1, 2) == reader.chunk(0, 1, 2)


@pytest.mark.parametrize("kind", ["ngff-0.5", "ngff-0.4", "ome-tiff", "tiff", "dicom"])
def test_an_export_of_a_linked_store_is_that_of_a_full_one(made, tmp_path, kind):
    source, report = made
    whole = full(source, tmp_path / "full")
    shown = []
    for store, out in ((report.store, tmp_path / "linked"), (whole.store, tmp_path / "copied")):
        export_slide(ExportRequest(store, out, kind))
        files = [out] if out.is_file() else sorted(path for path in out.rglob("*") if path.is_file())
        contents = [path.read_bytes().replace(b"linked", b"pass-through") for path in files]
        shown.append([(str(path.relative_to(out)), content) for path, content in zip(files, contents, strict=True)])

    assert shown[0] == shown[1]


def test_a_store_that_was_not_compared_is_not_exported(tmp_path):
    store = make_first_appearance(write_tiff(tmp_path), tmp_path / "p")

    with pytest.raises(UnverifiedLinkError):
        export_slide(ExportRequest(store, tmp_path / "out.tiff", "tiff"))

    assert not (tmp_path / "out.tiff").exists()


def test_the_command_links_verifies_and_fills(tmp_path, gemslide_process):
    source, project = write_tiff(tmp_path), tmp_path / "p"

    linked = gemslide_process("ingest", "--link", source, "--slide-id", "S-1", "--project", project)
    verified = gemslide_process("verify", "S-1", "--project", project)
    filled = gemslide_process("ingest", source, "--slide-id", "S-1", "--project", project)

    assert linked.code == 0, linked.err
    assert "S-1: can be viewed now" in linked.err
    assert "0 linked" in linked.out
    assert "where it is linked to" in verified.out, verified.err
    assert "0 pass-through" in filled.out
    assert links(project) == {}


def test_commands_refuse_a_store_that_was_not_compared_yet(tmp_path, small_project_copy, gemslide_process):
    project, model_id = small_project_copy.project, small_project_copy.model_id
    source = write_tiff(tmp_path)
    assert appear(IngestRequest(source, "linked", mpp_option=MPP), project, CONFIG)

    for command in (("tile",), ("qc",), ("infer", model_id)):
        refused = gemslide_process(*command, "linked", "--project", project.root)

        said = refused.err + refused.out
        assert refused.code == 1, command
        assert "unverified_link" in said, command
        assert "gemslide verify linked" in said, command


def test_a_study_refuses_a_store_that_was_not_compared_and_keeps_one_that_was(tmp_path):
    source = write_tiff(tmp_path)
    store = make_first_appearance(source, tmp_path / "p")
    request = IngestRequest(source, "S-1", mpp_option=MPP)

    with pytest.raises(UnverifiedLinkError):
        ingest_slide(request, Project(tmp_path / "p"), CONFIG, fill=False)
    link(source, tmp_path / "p")
    kept = ingest_slide(request, Project(tmp_path / "p"), CONFIG, fill=False)

    assert kept.skipped
    assert StoreReader(store).attributes.link is not None

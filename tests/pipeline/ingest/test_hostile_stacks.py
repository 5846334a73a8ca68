"""Stacks that somebody sent: every plane under its own height and in its own place, or one clear error."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.encaps import generate_frames
from pydicom.uid import generate_uid

from pipeline.box import Box
from pipeline.ingest import writing
from pipeline.ingest.damage.absent import find_absent
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader
from pipeline.units import described
from tests.pipeline.make import PLAIN_TISSUE, halved, sample_image
from tests.pipeline.slides.make_dicom import JPEG, _attributes, _place, jpeg_rgb, jpeg_ycc, put_pixels, tiles_of
from tests.pipeline.slides.make_dicom import write_dicom_stack as write_stack
from tests.pipeline.slides.make_ndpi import NdpiImage, stack_images, write_ndpi_images
from training.foundation.errors import GemslideError, UnreadableError

CONFIG = IngestConfig(shard_px=1024, tissue=PLAIN_TISSUE, smallest_level_px=400)
HEIGHTS_UM = (0.0, 1.0, 2.0)
WIDTH_PX, HEIGHT_PX = 200, 136
TILES = 12  # of 64 px, in four columns
PLANES = {um: sample_image(WIDTH_PX, HEIGHT_PX, seed) for seed, um in enumerate(HEIGHTS_UM)}
OTHER = sample_image(WIDTH_PX, HEIGHT_PX, 7)[::-1]

Change = Callable[[Dataset], None]


def ingest(source: Path, root: Path, **settings: object) -> StoreReader:
    config = CONFIG.model_copy(update=settings)
    return StoreReader(ingest_slide(IngestRequest(source, "S-1", mpp_option=0.5), Project(root), config).store)


def refused(source: Path, root: Path, **settings: object) -> str:
    """The one error with which a slide is refused, and that nothing is left of it."""
    with pytest.raises(GemslideError) as caught:
        ingest(source, root, **settings)
    assert not Project(root).store_path("S-1").exists()
    return str(caught.value)


def in_one(folder: Path, change: Change, *, is_full: bool = True, planes: dict[float, np.ndarray] = PLANES) -> Path:
    (folder / "s").mkdir()
    write_stack(folder / "s" / "0.dcm", planes, is_full=is_full, change=change)
    return folder / "s"


def apart(
    folder: Path,
    *,
    changes: dict[tuple[int, int], Change] | None = None,
    images: dict[tuple[int, int], np.ndarray] | None = None,
    levels: int = 1,
    heights_um: tuple[float, ...] = HEIGHTS_UM,
) -> Path:
    """An instance for each plane and level; changes and images by (plane, level)."""
    (folder / "s").mkdir()
    for plane, um in enumerate(heights_um):
        for level, pixels in enumerate(halved(PLANES[HEIGHTS_UM[plane]], levels - 1)):
            shown = (images or {}).get((plane, level), pixels)
            change = (changes or {}).get((plane, level), lambda ds: None)
            write_stack(folder / "s" / f"{plane}-{level}.dcm", {um: shown}, downsample=2**level, change=change)
    return folder / "s"


def setting(**values: object) -> Change:
    return lambda ds: [setattr(ds, name, value) for name, value in values.items()] and None


def spaced(value: str, first: float | None = None) -> Change:
    """With another Spacing Between Slices, in mm, and another height of the lowest plane."""

    def change(ds: Dataset) -> None:
        ds.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0].SpacingBetweenSlices = value
        if first is not None:
            ds.TotalPixelMatrixOriginSequence[0].ZOffsetInSlideCoordinateSystem = first

    return change


def stating(heights: list[str | None]) -> Change:
    """With another height for each frame."""

    def change(ds: Dataset) -> None:
        for groups, height in zip(ds.PerFrameFunctionalGroupsSequence, heights, strict=True):
            place = groups.PlanePositionSlideSequence[0]
            del place.ZOffsetInSlideCoordinateSystem
            if height is not None:
                place.ZOffsetInSlideCoordinateSystem = height

    return change


def framed(edit: Callable[[int, bytes], bytes], *, offsets: str = "basic") -> Change:
    """With other frames."""

    def change(ds: Dataset) -> None:
        frames = [edit(i, frame) for i, frame in enumerate(frames_of(ds))]
        put_pixels(ds, frames, offsets)

    return change


def frames_of(ds: Dataset) -> list[bytes]:
    return list(generate_frames(ds.PixelData, number_of_frames=ds.NumberOfFrames))


def placed(x_mm: float, y_mm: float) -> Change:
    def change(ds: Dataset) -> None:
        origin = ds.TotalPixelMatrixOriginSequence[0]
        origin.XOffsetInSlideCoordinateSystem, origin.YOffsetInSlideCoordinateSystem = x_mm, y_mm

    return change


def sized(mpp: float) -> Change:
    def change(ds: Dataset) -> None:
        ds.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0].PixelSpacing = [mpp / 1000] * 2

    return change


# --- heights of TILED_FULL


@pytest.mark.parametrize("value", ["0", "-0.001", "nan", "inf", "1e-400", "0.002\\0.003"])
def test_a_distance_of_planes_that_is_none_is_refused(tmp_path, value):
    assert "SpacingBetweenSlices" in refused(in_one(tmp_path, spaced(value)), tmp_path / "p").replace(" ", "")


@pytest.mark.parametrize(
    ("distance_mm", "first_um"),
    [("1e-7", None), ("3e-7", None), ("0.001", 1e17), ("0.001", 1e300)],
    ids=["all at one height", "two at one height", "lost in rounding", "beyond all numbers"],
)
def test_no_plane_is_lost_because_its_height_is_that_of_another(tmp_path, distance_mm, first_um):
    source = in_one(tmp_path, spaced(distance_mm, first_um))

    try:
        store = ingest(source, tmp_path / "p")
    except GemslideError:
        return
    assert len(store.attributes.planes_um or (0,)) == 3


def test_heights_that_overflow_are_one_clear_error(tmp_path):
    refused(in_one(tmp_path, spaced("1e305")), tmp_path / "p")


@pytest.mark.parametrize(
    "heights", [("2", "1", "0"), ("0", "5", "20"), ("0", "0", "0")], ids=["turned over", "other steps", "one height"]
)
def test_heights_of_frames_that_contradict_their_order_are_refused_or_believed(tmp_path, heights):
    """TILED_FULL needs no groups for each frame; where there are some, they must not say something else."""

    def change(ds: Dataset) -> None:
        places = [(tile % 4 * 64 + 1, tile // 4 * 64 + 1, float(um)) for um in heights for tile in range(TILES)]
        ds.PerFrameFunctionalGroupsSequence = [_place(*place) for place in places]

    source = in_one(tmp_path, change)

    try:
        store = ingest(source, tmp_path / "p").path
    except GemslideError:
        return
    for um, pixels in zip(map(float, heights), PLANES.values(), strict=True):
        assert (
            np.abs(StoreReader(store, um).read_region(0, Box(0, 0, 64, 64)).astype(int) - pixels[:64, :64]).mean() < 9
        )


@pytest.mark.parametrize("planes", [0, 1, 2, 4, 300, 2**31])
def test_a_number_of_planes_that_the_frames_do_not_fill_is_refused(tmp_path, planes):
    refused(in_one(tmp_path, setting(TotalPixelMatrixFocalPlanes=planes)), tmp_path / "p")


# --- heights of TILED_SPARSE


@pytest.mark.parametrize(
    "heights",
    [
        ("0", "nan", "2"), ("nan", "1", "2"), ("0", "-inf", "2"), ("0", "1e400", "2"), ("0", "1\\2", "2"),
        ("0", "1", None), ("0", "0", "2"), ("0", "0.0004", "2"),
    ],
)  # fmt: skip
def test_heights_of_frames_that_are_none_or_the_same_are_refused(tmp_path, heights):
    each = [um for um in heights for _ in range(TILES)]
    refused(in_one(tmp_path, stating(each), is_full=False), tmp_path / "p")


@pytest.mark.parametrize("frame", [0, 13])
def test_a_height_in_words_is_refused(tmp_path, frame):
    heights = [f"{um:g}" for um in HEIGHTS_UM for _ in range(TILES)]
    source = in_one(tmp_path, stating([*heights[:frame], "12.5", *heights[frame + 1 :]]), is_full=False)
    content = (source / "0.dcm").read_bytes()
    assert content.count(b"12.5") == 1
    (source / "0.dcm").write_bytes(content.replace(b"12.5", b"eins"))

    assert "eins" in refused(source, tmp_path / "p")


def test_a_frame_at_a_height_of_its_own_makes_no_plane(tmp_path):
    heights = [f"{um:g}" for um in HEIGHTS_UM for _ in range(TILES)]
    assert "same tiles" in refused(in_one(tmp_path, stating([*heights[:-1], "2.5"]), is_full=False), tmp_path / "p")


@pytest.mark.parametrize("heights_um", [(0.0, 20_000.0, 40_000.0), (12345.678, 12346.789, 12350.0)])
def test_a_plane_can_be_named_as_it_is_listed(tmp_path, gemslide, heights_um):
    """The error that lists the heights, like `gemslide info`, is where a person finds what to write."""
    planes = dict(zip(heights_um, PLANES.values(), strict=True))
    try:
        ingest(in_one(tmp_path, lambda ds: None, is_full=False, planes=planes), tmp_path / "p")
    except GemslideError:
        return  # no scanner's focus travels 10 mm

    listed = described(heights_um).removesuffix(" µm").split(" at ")[1].split(", ")
    for um in listed:
        done = gemslide("tile", "S-1", "--project", tmp_path / "p", f"--plane={um}", "--tile-px", 32, "--tile-set", "t")
        assert done.code == 0, done.out + done.err


# --- an instance for each plane


@pytest.mark.parametrize(
    "changed",
    [
        setting(PatientID="another"), setting(FrameOfReferenceUID="1.2.9"), setting(StudyInstanceUID="1.2.9"),
        setting(PhotometricInterpretation="RGB"),
    ],
    ids=["patient", "frame of reference", "study", "colours"],
)  # fmt: skip
def test_a_plane_of_another_slide_is_refused_by_what_it_states(tmp_path, changed):
    refused(apart(tmp_path, changes={(2, 0): changed}), tmp_path / "p")


@pytest.mark.parametrize(
    "changed",
    [placed(5.0, 5.0), setting(ImageOrientationSlide=[0, 1, 0, 1, 0, 0]), sized(0.25)],
    ids=["shifted", "turned", "of other pixels"],
)
@pytest.mark.parametrize("plane", [0, 2])
def test_a_plane_that_lies_elsewhere_on_the_glass_is_refused(tmp_path, changed, plane):
    """As a reduced level is that does; these are the planes that are not shown by default, and the one that is."""
    refused(apart(tmp_path, changes={(plane, 0): changed}), tmp_path / "p")


def test_two_regions_of_one_size_and_different_focus_are_not_a_stack(tmp_path):
    source = apart(tmp_path, changes={(1, 0): placed(7.0, 3.0)}, heights_um=(12.3, 14.1))
    refused(source, tmp_path / "p")


def test_a_level_that_shows_another_image_is_refused_at_every_plane(tmp_path):
    other = halved(OTHER, 1)[1]
    assert "different things" in refused(apart(tmp_path, levels=2, images={(2, 1): other}), tmp_path / "p")


def test_a_level_that_shows_another_image_is_refused_at_the_default_plane(tmp_path):
    other = halved(OTHER, 1)[1]
    assert "different things" in refused(apart(tmp_path, levels=2, images={(0, 1): other}), tmp_path / "p")


@pytest.mark.parametrize("tile_px", [32, 128])
def test_planes_of_other_tiles_are_refused(tmp_path, tile_px):
    source = apart(tmp_path)
    write_stack(source / "2-0.dcm", {2.0: PLANES[2.0]}, tile_wh=(tile_px, tile_px))
    assert "stored in different ways" in refused(source, tmp_path / "p")


@pytest.mark.parametrize("size_wh", [(204, 136), (150, 30), (300, 310)])
def test_a_plane_of_another_size_is_refused_and_drives_no_other_out(tmp_path, size_wh):
    """Images of other sizes that are no reduced copies are refused in a slide of one plane."""
    source = apart(tmp_path)
    write_stack(source / "2-0.dcm", {2.0: sample_image(*size_wh, 2)})
    refused(source, tmp_path / "p")


def test_planes_nearly_at_one_height_are_refused(tmp_path):
    source = apart(tmp_path)
    write_stack(source / "again.dcm", {0.0004: OTHER})
    assert "at one height" in refused(source, tmp_path / "p")


def test_a_level_without_one_of_the_planes_is_built_for_all(tmp_path):
    source = apart(tmp_path, levels=2)
    (source / "2-1.dcm").unlink()

    store = ingest(source, tmp_path / "p", smallest_level_px=100)
    assert store.attributes.planes_um == HEIGHTS_UM
    assert [level.route for level in store.attributes.levels] == ["pass-through", "built"]


# --- parts of a concatenation


def in_parts(folder: Path, change: Change, *, frames_of_first: int = 18) -> Path:
    (folder / "s").mkdir()
    write_stack(folder / "whole.dcm", PLANES)
    for part, (start, end) in enumerate(((0, frames_of_first), (frames_of_first, 3 * TILES))):
        ds = pydicom.dcmread(folder / "whole.dcm")
        frames = frames_of(ds)[start:end]
        ds.ConcatenationUID, ds.InConcatenationNumber, ds.InConcatenationTotalNumber = "1.2.77", part + 1, 2
        ds.SOPInstanceUID = ds.file_meta.MediaStorageSOPInstanceUID = generate_uid()
        ds.ConcatenationFrameOffsetNumber, ds.NumberOfFrames = start, len(frames)
        put_pixels(ds, frames, "basic")
        if part:
            change(ds)
        ds.save_as(folder / "s" / f"{part}.dcm", enforce_file_format=True)
    return folder / "s"


def test_a_plane_may_go_on_in_the_next_part(tmp_path):
    (tmp_path / "a").mkdir()
    store = ingest(in_parts(tmp_path, lambda ds: None), tmp_path / "p")
    whole = ingest(in_one(tmp_path / "a", lambda ds: None), tmp_path / "q")

    for um in HEIGHTS_UM:
        box = Box(0, 0, WIDTH_PX, HEIGHT_PX)
        parts = StoreReader(store.path, um).read_region(0, box)
        assert np.array_equal(parts, StoreReader(whole.path, um).read_region(0, box))


@pytest.mark.parametrize(
    "changed",
    [setting(TotalPixelMatrixFocalPlanes=1), spaced("0.5"), setting(DimensionOrganizationType="TILED_SPARSE")],
    ids=["planes", "distance", "organization"],
)
def test_parts_that_state_other_planes_are_refused(tmp_path, changed):
    refused(in_parts(tmp_path, changed), tmp_path / "p")


# --- frames of a plane that is not shown by default


def test_a_damaged_frame_is_refused_whatever_plane_it_is_of(tmp_path):
    def edit(at: int, frame: bytes) -> bytes:
        return frame[:300] + bytes(100) + frame[400:] if at == 2 * TILES + 5 else frame

    source = in_one(tmp_path, framed(edit))
    assert "row 1, column 1" in refused(source, tmp_path / "p", gate_tiles=1000)


def test_a_frame_without_bytes_is_refused_whatever_plane_it_is_of_or_masked_at_all(tmp_path):
    source = in_one(tmp_path, framed(lambda at, frame: b"" if at == 2 * TILES + 5 else frame, offsets="none"))
    assert "has no data" in refused(source, tmp_path / "p")

    store = ingest(source, tmp_path / "p", damaged="mask")
    assert store.attributes.damaged_tiles == 1
    for plane in store.planes():
        assert (plane.read_region(0, Box(64, 64, 64, 64)) == 255).all()
        assert (plane.read_region(0, Box(128, 64, 64, 64)) != 255).any()


def test_planes_whose_frames_hold_other_colours_than_stated_come_out_right(tmp_path):
    coded = [jpeg_rgb(tile) for tile in tiles_of(PLANES[2.0], (64, 64))]
    source = in_one(tmp_path, framed(lambda at, frame: coded[at - 2 * TILES] if at >= 2 * TILES else frame))

    store = ingest(source, tmp_path / "p")
    for um, pixels in PLANES.items():
        shown = StoreReader(store.path, um).read_region(0, Box(0, 0, WIDTH_PX, HEIGHT_PX)).astype(int)
        assert np.abs(shown - pixels).mean() < 9


# --- claims


_BOUNDED = """
import resource, sys
from pathlib import Path
from pipeline.slides.registry import open_slide
from training.foundation.errors import GemslideError
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
try:
    with open_slide(Path(sys.argv[1])):
        print("opened")
except GemslideError as error:
    print("refused", error)
"""


def write_mostly_absent(folder: Path, num_levels: int, planes: int, *, side_px: int = 4096) -> None:
    """Levels of which one tile of 16 px is there at each plane."""
    ds = _attributes(np.empty((1, 1, 3), np.uint8), (16, 16), JPEG, "YBR_FULL_422", "VOLUME", 1, "1.2.3.4")
    ds.NumberOfFrames, ds.DimensionOrganizationType = planes, "TILED_SPARSE"
    ds.PerFrameFunctionalGroupsSequence = [_place(1, 1, float(um)) for um in range(planes)]
    put_pixels(ds, [jpeg_ycc(sample_image(16, 16))] * planes, "basic")
    for number in range(num_levels):
        ds.TotalPixelMatrixColumns = ds.TotalPixelMatrixRows = side_px - 16 * number
        ds.SOPInstanceUID = ds.file_meta.MediaStorageSOPInstanceUID = generate_uid()
        ds.save_as(folder / f"{number}.dcm", enforce_file_format=True)


def test_small_files_that_claim_many_planes_take_bounded_memory(tmp_path):
    """Two megabytes, each of whose ten levels claims sixteen million places of tiles."""
    (tmp_path / "s").mkdir()
    write_mostly_absent(tmp_path / "s", 10, 256)

    command = [sys.executable, "-c", _BOUNDED, str(tmp_path / "s"), str(3 * 2**29)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-500:]


def test_a_stack_without_data_is_refused_at_its_first_plane(tmp_path, monkeypatch):
    """Not after all of them, each of which has 48 tiles of which one is there."""
    (tmp_path / "s").mkdir()
    write_mostly_absent(tmp_path / "s", 1, 20, side_px=112)
    looked = []
    monkeypatch.setattr(writing, "find_absent", lambda *given: looked.append(given) or find_absent(*given))

    assert "have no data" in refused(tmp_path / "s", tmp_path / "p")
    assert len(looked) == 1


# --- NDPI

NDPI_WH_PX = (1024, 544)
LOW, HIGH = (sample_image(*NDPI_WH_PX, seed) for seed in range(2))


def pages() -> list[NdpiImage]:
    return stack_images({0: [LOW], 500: [HIGH]})


def hamamatsu(folder: Path, images: list[NdpiImage]) -> Path:
    write_ndpi_images(folder / "s.ndpi", images)
    return folder / "s.ndpi"


@pytest.mark.parametrize(
    "images",
    [
        lambda: [*pages(), *stack_images({500: [LOW]})],
        lambda: stack_images({500: [LOW], 1000: [HIGH]}),
        lambda: [replace(stack_images({0: [LOW[:64, :512]]})[0], height_nm=nm) for nm in range(257)],
        lambda: [pages()[0], *stack_images({500: [sample_image(1024, 480)]})],
        lambda: [pages()[0], *stack_images({500: [sample_image(2048, 1088)]})],
    ],
    ids=["a height twice", "no plane at 0", "257 planes", "a smaller plane", "a larger plane"],
)
def test_an_ndpi_stack_that_is_none_is_refused(tmp_path, images):
    with pytest.raises(GemslideError):
        open_slide(hamamatsu(tmp_path, images()))


@pytest.mark.parametrize("heights_nm", [(-(2**31), 0), (0, 2**31 - 1), (0, 9)])
def test_heights_that_no_scanner_has_are_refused(tmp_path, heights_nm):
    low, _ = pages()
    with pytest.raises(UnreadableError, match="focal plane"):
        open_slide(hamamatsu(tmp_path, [replace(low, height_nm=nm) for nm in heights_nm]))


@pytest.mark.parametrize("tag", [282, 65422], ids=["resolution", "place"])
def test_a_plane_of_another_scale_or_place_is_refused(tmp_path, tag):
    write_ndpi_images(tmp_path / "s.ndpi", pages(), centre_nm=(0, 0))
    content = bytearray((tmp_path / "s.ndpi").read_bytes())
    at = content.rindex(struct.pack("<HHI", tag, {282: 5, 65422: 9}[tag], 1)) + 8  # of the plane at 500 nm
    (value,) = struct.unpack_from("<i", content, at)
    struct.pack_into("<i", content, value if tag == 282 else at, 5_000_000)
    (tmp_path / "s.ndpi").write_bytes(content)

    assert "resolution or place" in refused(tmp_path / "s.ndpi", tmp_path / "p")


def test_a_plane_whose_jpeg_is_of_another_shape_than_its_page_is_refused(tmp_path):
    """As it is in a file with this page alone: the tiles would be cut at the wrong places."""
    low, high = pages()
    (turned,) = stack_images({500: [sample_image(512, 1088)]})
    source = hamamatsu(tmp_path, [low, replace(turned, width_px=high.width_px, height_px=high.height_px)])

    assert "s.ndpi" in refused(source, tmp_path / "p")


def test_a_grey_plane_is_refused(tmp_path):
    low, high = pages()
    stream = BytesIO()
    Image.fromarray(HIGH[..., 0]).save(stream, "JPEG", restart_marker_blocks=8)
    with pytest.raises(UnreadableError, match="three 8-bit components"):
        open_slide(hamamatsu(tmp_path, [low, replace(high, stream=stream.getvalue(), components=1)]))


def test_planes_of_other_subsampling_come_out_right(tmp_path):
    (high,) = stack_images({500: [HIGH]}, subsampling=2)
    store = ingest(hamamatsu(tmp_path, [pages()[0], high]), tmp_path / "p")

    for um, pixels in {0.0: LOW, 0.5: HIGH}.items():
        shown = StoreReader(store.path, um).read_region(0, Box(0, 0, *NDPI_WH_PX)).astype(int)
        assert np.abs(shown - pixels).mean() < 12

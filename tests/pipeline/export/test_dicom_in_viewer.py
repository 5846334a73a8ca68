"""dicom-microscopy-viewer shows an export over DICOMweb, in Chromium: every tile in its place, in the right colours."""

from __future__ import annotations

import base64
import re
import time
from io import BytesIO
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from pipeline.box import Box
from pipeline.export.export import ExportRequest, export_slide
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.colour import to_srgb
from tests.browser.conftest import chromium
from tests.pathology_app.profiles import matrix_profile
from tests.pipeline.export.dicomweb_server import served
from tests.pipeline.export.make_store import j2k_level, jfif, jpeg_level, make_store, rgb_jpeg
from tests.pipeline.export.npm_package import npm_package
from tests.pipeline.make import halved, sample_image

pytestmark = [pytest.mark.browser, pytest.mark.prove, pytest.mark.xdist_group("browser")]

VIEWER = (
    "dicom-microscopy-viewer", "0.48.24",
    "016o/23eNqXMxgX5EjnDmFz1ROSMQmU7vmRlTVPUgshl6NaBrZzEyWkzq4BNaFFPfrE274AWdR5crW51cWh+9g==",
)  # fmt: skip
CLIENT = (
    "dicomweb-client", "0.11.3",
    "7t1Rc/01fyFnKlQeNPW9Pvxvmsx8R/BgB2n7BxTuWirRFwlTC5upEeLeS3vO72P+n6/SQZ3+5ij0bgaWDHQG/A==",
)  # fmt: skip
"""Both under the MIT licence; the second is what the first asks servers with."""
PAGE = Path(__file__).with_name("dicom_viewer.html")
LONGEST_S = 90
BLOCKS_WH = (19, 14)
"""Means of blocks are compared: what scaling does to single pixels is no matter of ours."""
SAME_GREY_LEVELS = 6
WHITE = {(1, 2), (3, 0)}
"""Tiles that the store leaves out, as (row, column)."""


@pytest.fixture(scope="module")
def files():
    """Static files by the path at which the viewer looks for them; its worker below /static/js/."""
    bundle = npm_package(*VIEWER) / "dist/dynamic-import"
    found = {"/": PAGE, "/dicomweb-client.js": npm_package(*CLIENT) / "build/dicomweb-client.js"}
    for path in (path for path in bundle.iterdir() if path.suffix in (".js", ".wasm")):
        found |= {f"/{path.name}": path, f"/static/js/{path.name}": path}
    return found


@pytest.fixture(scope="module")
def browser(playwright):
    with chromium(playwright, "--force-color-profile=srgb") as browser:
        yield browser


def expected(store, level, size_wh):
    """A level in sRGB as the viewer lays the slide, with the label to the right: turned by 180 degrees."""
    reader = StoreReader(store)
    pixels = reader.read_region(level, Box(0, 0, reader.levels[level].width_px, reader.levels[level].height_px))
    pixels = to_srgb(reader.icc)(pixels) if reader.icc else pixels
    return cv2.resize(np.rot90(pixels, 2), size_wh, interpolation=cv2.INTER_AREA)


def blocks(pixels):
    return cv2.resize(pixels.astype(np.float32), BLOCKS_WH, interpolation=cv2.INTER_AREA)


def shown(page, size_wh):
    """What is on the screen where the slide must be: in the middle, as high as the window."""
    with Image.open(BytesIO(page.screenshot())) as image:
        screen = np.asarray(image.convert("RGB"))
    left = (screen.shape[1] - size_wh[0]) // 2
    return screen[:, left : left + size_wh[0]]


def jpeg_levels(images, encode):
    return [
        jpeg_level(image, 240, encode, sparse=WHITE if number == 0 else set()) for number, image in enumerate(images)
    ]


def j2k_levels(images):
    return [j2k_level(image, 240, sparse=WHITE if number == 0 else set()) for number, image in enumerate(images)]


CASES = {
    "Y, Cb, Cr at level 0": (lambda images: jpeg_levels(images, jfif("422")), None, (1400, 700), 0),
    "R, G, B with a profile": (lambda images: jpeg_levels(images, rgb_jpeg), matrix_profile(1.0), (1400, 700), 0),
    "Y, Cb, Cr at level 1": (lambda images: jpeg_levels(images, jfif("420")), matrix_profile(2.2), (820, 340), 1),
    "JPEG 2000": (j2k_levels, None, (1400, 700), 0),
}
"""Levels of a store from its images, its colour profile, the window's size, the level that fills it."""


@pytest.mark.parametrize("case", CASES)
def test_the_viewer_shows_every_tile_in_its_place_and_colours(tmp_path, browser, files, case):
    levels, profile, (window_w, window_h), level = CASES[case]
    images = halved(with_white_tiles(cv2.GaussianBlur(sample_image(1330, 970), (0, 0), 2)), 2)
    icc = None if profile is None else base64.b64encode(profile).decode()
    store = make_store(tmp_path / "S.ome.zarr", levels(images), icc=icc)
    export_slide(ExportRequest(store, tmp_path / "out", "dicom"))
    size_wh = round(window_h * 1330 / 970), window_h
    wanted = blocks(expected(store, level, size_wh))

    with served(tmp_path / "out", files) as web:
        page = browser.new_page(viewport={"width": window_w, "height": window_h})
        others: list[str] = []
        page.on("request", lambda request: others.append(request.url) if is_elsewhere(request.url, web.url) else None)
        page.goto(f"{web.url}/")
        difference, ends = np.inf, time.monotonic() + LONGEST_S
        while difference > SAME_GREY_LEVELS and time.monotonic() < ends:
            page.wait_for_timeout(500)
            difference = float(np.abs(blocks(shown(page, size_wh)) - wanted).max())
        page.screenshot(path=tmp_path / "shown.png")
        failures = page.evaluate("failures")
        page.close()

    assert (failures, web.missing, others) == ([], [], [])
    assert difference <= SAME_GREY_LEVELS, f"look at {tmp_path / 'shown.png'}"
    instance = next(dataset for dataset in web.instances if dataset.InstanceNumber == level + 1)
    assert web.frames[instance.SOPInstanceUID] == set(range(1, instance.NumberOfFrames + 1))


def with_white_tiles(pixels):
    for row, column in WHITE:
        pixels[row * 240 : (row + 1) * 240, column * 240 : (column + 1) * 240] = 255
    return pixels


def is_elsewhere(url, own):
    return not re.match(rf"{own}/|data:|blob:", url)


def test_the_comparison_notices_another_turn_other_tiles_and_other_colours(tmp_path):
    pixels = sample_image(1330, 970)
    store = make_store(tmp_path / "S.ome.zarr", [jpeg_level(pixels, 240, rgb_jpeg)])
    wanted = expected(store, 0, (960, 700))
    shifted = wanted.copy()
    shifted[:240, :240] = wanted[:240, 240:480]
    profiled = to_srgb(matrix_profile(1.8))(wanted)

    assert np.abs(blocks(wanted) - blocks(wanted)).max() == 0
    for other in (wanted[::-1, ::-1], wanted[:, ::-1], wanted[..., ::-1], shifted, profiled):
        assert np.abs(blocks(np.ascontiguousarray(other)) - blocks(wanted)).max() > 3 * SAME_GREY_LEVELS

"""The viewer's TypeScript: its own tests, and a check that the committed bundle is built from it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tifffile
from pydicom import dcmread
from skimage.color import deltaE_ciede2000, rgb2lab

from pathology_app.tiles.colour_body import colour_body
from pathology_app.viewer.bundle import DIST, bundle_path
from pipeline.codecs.types import Pixels
from pipeline.store.view.colour import ToSrgb, colour_table
from tests.pathology_app.profiles import matrix_profile, table_profile

NPM = shutil.which("npm")
UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH")


def npm(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert NPM
    return subprocess.run([NPM, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def frontend(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy of the front end's folder outside the checkout, with its locked packages installed."""
    if NPM is None:
        pytest.skip("npm is not installed: it tests and builds the viewer's TypeScript")
    folder = tmp_path_factory.mktemp("frontend") / "viewer"
    shutil.copytree(DIST.parent, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    installed = npm(folder, "ci")
    if any(word in installed.stderr for word in UNREACHABLE):
        pytest.skip("npm's registry cannot be reached: the viewer's TypeScript was not tested")
    assert installed.returncode == 0, installed.stderr
    return folder


def test_the_typescript_is_sound_and_its_own_tests_pass(frontend: Path) -> None:
    checked, tested = npm(frontend, "run", "check"), npm(frontend, "test")
    assert checked.returncode == 0, checked.stdout
    assert tested.returncode == 0, tested.stdout
    assert "# fail 0" in tested.stdout


def test_the_committed_bundle_is_built_from_this_source(frontend: Path) -> None:
    built = npm(frontend, "run", "build")
    assert built.returncode == 0, built.stderr
    assert [path.name for path in (frontend / "dist").iterdir()] == [bundle_path().name]


CONVERT = """
import { readFileSync, writeFileSync } from "node:fs";
import { profileConverter, tableOf } from "./colour.mjs";
const [table, pixels] = ["table", "pixels"].map((name) => new Uint8Array(readFileSync(name)).buffer);
const converted = new Uint32Array(pixels);
profileConverter(tableOf(table))(converted);
writeFileSync("converted", converted);
"""


@pytest.fixture(scope="module")
def converter(frontend: Path) -> Path:
    """Folder with the viewer's colour arithmetic as a node module, and a script that uses it."""
    folder = frontend / "colours"
    folder.mkdir()
    esbuild = [NPM, "exec", "--", "esbuild", "src/image/colour.ts", "--format=esm", "--outfile=colours/colour.mjs"]
    subprocess.run([str(part) for part in esbuild], cwd=frontend, capture_output=True, check=True, timeout=60)
    (folder / "convert.mjs").write_text(CONVERT)
    return folder


def differences(converter: Path, icc: bytes, colours: Pixels) -> np.ndarray:
    """ΔE00 between the browser's and Little CMS's conversion of colours (n, 3)."""
    (converter / "table").write_bytes(colour_body(colour_table(icc)))
    opaque = np.concatenate([colours, np.full((len(colours), 1), 255, np.uint8)], axis=1)
    (converter / "pixels").write_bytes(opaque.tobytes())
    subprocess.run(["node", "convert.mjs"], cwd=converter, check=True, timeout=60)
    shown = np.frombuffer((converter / "converted").read_bytes(), np.uint8).reshape(-1, 4)
    assert (shown[:, 3] == 255).all()
    expected = ToSrgb(icc)(colours[None])
    return deltaE_ciede2000(rgb2lab(expected), rgb2lab(shown[None, :, :3]))[0]


def is_near(profile: str, ours: np.ndarray) -> None:
    print(f"{profile}: ΔE00 mean {ours.mean():.3f}, 99 % {np.percentile(ours, 99):.3f}, largest {ours.max():.3f}")
    assert ours.mean() <= 0.4
    assert np.percentile(ours, 99) <= 1
    # One level more or less in a colour near black or grey is a ΔE00 of up to 2.4; more would not be rounding.
    assert ours.max() <= 2.6


def all_colours(step: int) -> Pixels:
    values = np.append(np.arange(0, 255, step), 255).astype(np.uint8)
    return np.stack(np.meshgrid(values, values, values, indexing="ij"), axis=-1).reshape(-1, 3)


MADE = {
    "linear": lambda: matrix_profile(1.0),
    "gamma 1.8": lambda: matrix_profile(1.8),
    "gamma 2.6": lambda: matrix_profile(2.6),
    "table": table_profile,
}


@pytest.mark.parametrize("profile", MADE)
def test_the_browser_s_colours_are_those_of_little_cms_over_all_that_a_scanner_can_tell_apart(
    converter: Path, profile: str
) -> None:
    is_near(profile, differences(converter, MADE[profile](), all_colours(7)))


def profile_in(real_slides: Path, profile: str) -> bytes:
    if profile == "of a TIFF":
        with tifffile.TiffFile(real_slides / "openslide+openslide-python/tests/fixtures/boxes.tiff") as tiff:
            return bytes(tiff.pages[0].iccprofile)
    dataset = dcmread(real_slides / "ImagingDataCommons+highdicom/data/test_files/sm_image.dcm")
    return bytes(dataset.OpticalPathSequence[0].ICCProfile)


@pytest.mark.data
@pytest.mark.parametrize("profile", [*MADE, "of a TIFF", "of a DICOM slide"])
def test_the_browser_s_colours_of_real_tissue_are_those_of_little_cms(
    converter: Path, real_slides: Path, profile: str
) -> None:
    icc = MADE[profile]() if profile in MADE else profile_in(real_slides, profile)
    tissue = tifffile.imread(real_slides / "Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs", level=0)

    converted = differences(converter, icc, tissue[800:1200, 600:1000].reshape(-1, 3))

    is_near(profile, converted)

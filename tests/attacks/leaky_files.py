"""Slide files that hide a patient's name, or a whole label; each has an honest twin.

`python -m tests.attacks.leaky_files FOLDER` writes all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from tests.attacks import leaky_streams as leaks
from tests.attacks.leaky_profiles import header_with, profile_of
from tests.pipeline.make import APERIO, _full_tiles, sample_image
from tests.pipeline.slides import make_dicom

Pixels = NDArray[np.uint8]
Encode = Callable[[Pixels], bytes]

WORDS = ("Jane Roe", "1950-02-03", "TCGA-5P-A9K0", "JRoe50")
TEXT = b"JRoe50, Jane Roe, born 1950-02-03, barcode TCGA-5P-A9K0-01Z. "
TILE_PX = 64
PIXELS = sample_image(300, 200)
ICC_PROFILE, SCANNER_MODEL = 34675, 272


def progressive(tile: Pixels) -> bytes:
    out = BytesIO()
    Image.fromarray(tile).save(out, "JPEG", quality=85, progressive=True)
    return out.getvalue()


@dataclass(frozen=True)
class Family:
    """Tiles of one codec, in a TIFF and in DICOM."""

    encode: Encode
    is_rgb: bool
    is_jpeg: bool
    leaks: Sequence[leaks.Leak]

    def tiff(self, path: Path, tiles: Sequence[bytes], extratags: Sequence[tuple[object, ...]] = ()) -> Path:
        height, width = PIXELS.shape[:2]
        options = {"description": APERIO.format(width=width, height=height)} if not self.is_jpeg else {}
        kind = {
            "compression": "jpeg", "compressionargs": {"outcolorspace": "RGB" if self.is_rgb else "YCBCR"},
            "subsampling": (1, 1) if self.is_rgb else (2, 2),
        }  # fmt: skip
        with tifffile.TiffWriter(path) as tiff:
            tiff.write(
                iter(tiles), shape=PIXELS.shape, dtype=np.uint8, tile=(TILE_PX, TILE_PX), photometric="rgb",
                metadata=None, resolution=(2e4, 2e4), resolutionunit="CENTIMETER", extratags=extratags, **options,
                **(kind if self.is_jpeg else {"compression": 33005}),
            )  # fmt: skip
        return path

    def dicom(self, path: Path, tiles: Sequence[bytes], **header: object) -> Path:
        frames = iter(tiles)
        syntax = make_dicom.JPEG if self.is_jpeg else make_dicom.JPEG_2000_LOSSLESS
        photometric = "RGB" if self.is_rgb else "YBR_FULL_422" if self.is_jpeg else "YBR_RCT"

        def set_header(ds: object) -> None:
            for name, value in header.items():
                setattr(ds, name, value)

        return make_dicom.write_dicom(
            path, PIXELS, tile_wh=(TILE_PX, TILE_PX), syntax=syntax, photometric=photometric,
            encode=lambda _: next(frames), change=set_header,
        )  # fmt: skip

    def tiles(self) -> list[bytes]:
        return [self.encode(tile) for tile in _full_tiles(PIXELS, TILE_PX)]


def _restarting(tile: Pixels) -> bytes:
    out = BytesIO()
    Image.fromarray(tile).save(out, "JPEG", quality=85, restart_marker_blocks=3)
    return out.getvalue()


# A JFIF segment would change the colours of R, G, B.
FAMILIES = {
    "jpeg": Family(make_dicom.jpeg_ycc, False, True, leaks.JPEG_LEAKS),
    "rgb": Family(make_dicom.jpeg_rgb, True, True, (*leaks.JPEG_LEAKS[:-1], leaks.adobe_fields)),
    "progressive": Family(progressive, False, True, (*leaks.JPEG_LEAKS, leaks.between_the_scans)),
    "restarts": Family(_restarting, False, True, leaks.JPEG_LEAKS),
    "jpeg2000": Family(make_dicom.jpeg_2000, False, False, leaks.JPEG_2000_LEAKS),
}


@dataclass(frozen=True)
class LeakyFile:
    """A file with a secret in it."""

    name: str
    write: Callable[[Path], Path]
    is_refused: bool = False


def leaky_files() -> list[LeakyFile]:
    """Labels behind the image, texts elsewhere; every way in both TIFF and DICOM, or one of them for rare codecs."""
    files = []
    for kind, family in FAMILIES.items():
        plain = family.tiles()
        for number, leak in enumerate(family.leaks):
            secret = leaks.label_jpeg() + TEXT if leak.__name__.startswith("behind") else TEXT
            # The first tile is honest: a fast reader learns from it how tiles begin.
            tiles = [plain[0], *(leak(tile, secret) for tile in plain[1:])]
            both = [
                LeakyFile(f"{kind}-{leak.__name__}.svs", partial(family.tiff, tiles=tiles)),
                LeakyFile(f"{kind}-{leak.__name__}.dcm", partial(family.dicom, tiles=tiles)),
            ]
            files += both if kind in ("jpeg", "jpeg2000") else [both[number % 2]]
    return files + _refused() + _headers() + _whole_streams()


def _refused() -> list[LeakyFile]:
    """Files that libjpeg cannot decode either, and one that declares a burned-in label."""
    family = FAMILIES["jpeg"]
    plain = family.tiles()
    files = []
    for number, leak in enumerate(leaks.REFUSED_JPEG_LEAKS.values()):
        tiles = [*plain[:7], leak(plain[7], TEXT), *plain[8:]]
        files += [
            LeakyFile(f"refused-{number}.svs", partial(family.tiff, tiles=tiles), is_refused=True),
            LeakyFile(f"refused-{number}.dcm", partial(family.dicom, tiles=tiles), is_refused=True),
        ]
    burned_in = partial(family.dicom, tiles=plain, BurnedInAnnotation="YES", PatientName=WORDS[0])
    return [*files, LeakyFile("burned-in.dcm", burned_in, is_refused=True)]


def _headers() -> list[LeakyFile]:
    """Profiles and models."""
    family = FAMILIES["jpeg"]
    plain = family.tiles()
    profile = header_with(profile_of("mft2", text=TEXT), TEXT)
    icc, model = (ICC_PROFILE, 7, len(profile), profile, True), (SCANNER_MODEL, 2, 0, WORDS[0] + " " + WORDS[1], True)
    return [
        LeakyFile("profile.svs", partial(family.tiff, tiles=plain, extratags=[icc])),
        LeakyFile("model.svs", partial(family.tiff, tiles=plain, extratags=[model])),
        LeakyFile("model.dcm", partial(family.dicom, tiles=plain, ManufacturerModelName=f"{WORDS[0]} {WORDS[1]}")),
    ]


def _whole_streams() -> list[LeakyFile]:
    """Ways that cannot be combined with others: JP2 files as tiles, and tile parts of open length."""
    family = FAMILIES["jpeg2000"]
    plain = family.tiles()
    files = []
    for leak in (leaks.in_boxes, leaks.with_an_open_end):
        tiles = [leak(tile, TEXT) for tile in plain]
        files += [
            LeakyFile(f"{leak.__name__}.svs", partial(family.tiff, tiles=tiles)),
            LeakyFile(f"{leak.__name__}.dcm", partial(family.dicom, tiles=tiles)),
        ]
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for file in leaky_files():
        print(file.write(folder / file.name))


if __name__ == "__main__":
    main()

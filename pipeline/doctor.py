"""What is installed, what works, what is missing and how to get it."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

import imagecodecs
import numpy as np

from pipeline.run_record import versions
from pipeline.slides.openslide_ import library_version
from pipeline.store.codecs import decode_jpeg, encode_jpeg

LOW_DISK_BYTES = 5 * 2**30
FORMATS = (
    "Aperio SVS, generic and OME-TIFF (tiled or striped), NDPI, MRXS, SCN, BIF, VMS, DICOM and others by OpenSlide"
)


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    name: str
    is_good: bool
    value: str
    remedy: str = ""
    is_required: bool = True


def examine(project: Path) -> list[Finding]:
    """Look at everything a run may need."""
    return [
        *(Finding(f"version {n}", v != "not installed", v, f"pip install {n}") for n, v in versions().items()),
        Finding("OpenSlide library", True, library_version()),
        Finding("slide formats", True, FORMATS),
        *_codecs(),
        _zarr_codec(),
        _gpu(),
        _disk(project),
        *_optional_parts(),
    ]


def _codecs() -> list[Finding]:
    sample = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    works = decode_jpeg(encode_jpeg(sample)).shape == sample.shape
    found = [Finding("codec jpeg", works, "decodes" if works else "fails", "pip install --force-reinstall imagecodecs")]
    for name in ("jpeg2k", "zstd", "lzw", "deflate", "webp"):
        available = bool(getattr(imagecodecs, name.upper()).available)
        found.append(
            Finding(f"codec {name}", available, "available" if available else "missing", "pip install imagecodecs")
        )
    return found


def _zarr_codec() -> Finding:
    from zarr.registry import get_codec_class

    found = get_codec_class("imagecodecs_jpeg").__module__
    return Finding("zarr codec imagecodecs_jpeg", found.startswith("pipeline."), found, "pip install --no-deps -e .")


def _gpu() -> Finding:
    nvidia = shutil.which("nvidia-smi")
    value = f"driver found ({nvidia})" if nvidia else "none: training and inference run on the CPU"
    remedy = "" if nvidia else "a CUDA build of torch and its driver make training quick; nothing needs them"
    return Finding("GPU", nvidia is not None, value, remedy, is_required=False)


def _disk(project: Path) -> Finding:
    existing = next(p for p in [project.absolute(), *project.absolute().parents] if p.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / 2**30:.1f} GiB free at {existing}"
    return Finding("disk", free > LOW_DISK_BYTES, text, "free space, or choose another --project", is_required=False)


def _optional_parts() -> list[Finding]:
    found = []
    for module, extra, what in (
        ("streamlit", "app", "web viewer (gemslide app)"),
        ("napari", "desktop", "desktop viewer (gemslide view)"),
    ):
        there = importlib.util.find_spec(module) is not None
        remedy = f"pip install 'gemslide[{extra}]'"
        found.append(Finding(what, there, "installed" if there else "not installed", remedy, is_required=False))
    return found

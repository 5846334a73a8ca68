"""Check of what is installed, what works, what is missing and how to get it."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from collections.abc import Callable
from ctypes.util import find_library
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipeline.run_record import versions

CODECS = ("jpeg2k", "jpegls", "htj2k", "ljpeg", "zstd", "lzw", "deflate", "webp")
ZARR_CODECS = ("imagecodecs_jpeg", "imagecodecs_jpeg2k", "jpeg")
LOW_DISK_BYTES = 5 * 2**30
FORMATS = (
    "Aperio SVS, generic, Philips and OME-TIFF, DICOM (a file, or a folder of series), OME-Zarr 0.4 and 0.5; "
    "NDPI, MRXS, SCN, BIF, CZI, VMS and others through OpenSlide"
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
    """Check everything a run may need. Libraries are imported one by one, so that a missing one is a finding."""
    reinstall = "make setup (or: pip install --force-reinstall -r requirements.lock; for torch requirements-torch.lock)"
    entry_points = f"{reinstall}, then pip install --no-deps -e ."
    return [
        *(Finding(f"version {n}", v != "not installed", v, reinstall) for n, v in versions().items()),
        _guarded("OpenSlide library", _openslide, reinstall),
        Finding("slide formats", True, FORMATS),
        *_readers(),
        _guarded("OpenCV library", _opencv, reinstall),
        _guarded("codec jpeg", _jpeg, reinstall),
        *(_guarded(f"codec {name}", partial(_codec, name), reinstall) for name in CODECS),
        *(_guarded(f"zarr codec {name}", partial(_zarr_codec, name), entry_points) for name in ZARR_CODECS),
        _guarded("DICOM libraries", _dicom, reinstall),
        _gpu(),
        _disk(project),
        *_optional_parts(),
        _pango(),
    ]


def _guarded(name: str, probe: Callable[[], str], remedy: str) -> Finding:
    try:
        return Finding(name, True, probe())
    except (ImportError, OSError, ValueError, KeyError) as error:
        return Finding(name, False, f"{type(error).__name__}: {error}", remedy)


def _openslide() -> str:
    from pipeline.slides.openslide.library import library_version

    return library_version()


def _readers() -> list[Finding]:
    """Readers in the order in which they are tried, then those of other packages that cannot be loaded."""
    try:
        from pipeline.slides.plugins import load_plugins
        from pipeline.slides.registry import readers
    except (ImportError, OSError) as error:
        return [Finding("readers", False, f"{type(error).__name__}: {error}", "see the libraries above")]
    remedy = "reinstall the package that provides it, or remove it; other formats are read without it"
    broken = load_plugins().broken.items()
    return [Finding(f"reader {reader.name}", True, _describe_reader(reader)) for reader in readers()] + [
        Finding(f"reader {name}", False, why, remedy, is_required=False) for name, why in broken
    ]


def _describe_reader(reader: object) -> str:
    """A reader's place among the others, and the suffixes that it declares."""
    suffixes = ", ".join(getattr(reader, "suffixes", ())) or "declares no suffixes"
    return f"priority {getattr(reader, 'priority', 0)}: {suffixes}"


def _opencv() -> str:
    import cv2

    return str(cv2.__version__)


def _jpeg() -> str:
    import numpy as np

    from pipeline.codecs.images import decode_jpeg, encode_jpeg

    sample = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    if decode_jpeg(encode_jpeg(sample)).shape != sample.shape:
        raise ValueError("decodes to a different shape")
    return "decodes"


def _codec(name: str) -> str:
    import imagecodecs

    if not getattr(imagecodecs, name.upper()).available:
        raise ImportError(f"imagecodecs was built without {name}")
    return "available"


def _zarr_codec(name: str) -> str:
    from zarr.registry import get_codec_class

    module = get_codec_class(name).__module__
    if not module.startswith("pipeline."):
        raise ImportError(f"zarr finds {module}, not ours")
    return module


def _dicom() -> str:
    for module in ("pydicom", "wsidicom.codec"):
        importlib.import_module(module)
    return "pydicom and wsidicom can be imported"


def _gpu() -> Finding:
    nvidia = shutil.which("nvidia-smi")
    value = f"driver found ({nvidia})" if nvidia else "none: training and inference run on the CPU"
    remedy = "" if nvidia else "a CUDA build of torch and its driver speed up training; nothing requires them"
    return Finding("GPU", nvidia is not None, value, remedy, is_required=False)


def _disk(project: Path) -> Finding:
    existing = next(p for p in [project.absolute(), *project.absolute().parents] if p.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / 2**30:.1f} GiB free at {existing}"
    return Finding("disk", free > LOW_DISK_BYTES, text, "free space, or choose another --project", is_required=False)


def _pango() -> Finding:
    is_found = all(find_library(name) is not None for name in ("pango-1.0", "pangoft2-1.0", "harfbuzz-subset"))
    remedy = "Debian: apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0; macOS: brew install pango"
    value = "found" if is_found else "not found"
    return Finding("Pango (PDF of gemslide study report)", is_found, value, remedy, is_required=False)


def _optional_parts() -> list[Finding]:
    findings = []
    for module, extra, what in (
        ("streamlit", "app", "web viewer (gemslide app)"),
        ("napari", "desktop", "desktop viewer (gemslide view)"),
        ("dask_jobqueue", "dask", "Dask (gemslide study run --on dask)"),
        ("obstore", "buckets", "slides in a bucket"),
    ):
        is_installed = importlib.util.find_spec(module) is not None
        remedy = f"pip install 'gemslide[{extra}]'"
        findings.append(
            Finding(what, is_installed, "installed" if is_installed else "not installed", remedy, is_required=False)
        )
    return findings

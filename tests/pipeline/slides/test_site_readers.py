"""A site's package adds a format by entry point: the example in docs/reference/readers.md, verbatim."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.slides.registry import BUILT_IN
from tests.pipeline.make import sample_image, write_jpeg_pyramid

ROOT = Path(__file__).parents[3]
INGEST = """
import json, sys
from pathlib import Path
import numpy as np
from pipeline.box import Box
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import ingest

report = ingest(Path(sys.argv[1]), Path(sys.argv[2]), mpp=0.5, decode_to="zstd", smallest_level_px=100)
reader = StoreReader(report.store)
np.save(sys.argv[3], reader.read_region(0, Box(0, 0, 150, 110)))
print(json.dumps([reader.attributes.source.format, reader.attributes.levels[0].gate.reason]))
"""
OPEN = """
import sys
from pathlib import Path
from training.foundation.errors import UnreadableError
from pipeline.slides import open_slide

try:
    with open_slide(Path(sys.argv[1])) as slide:
        print(slide.info.format)
except UnreadableError as error:
    print(error)
"""
COHORT = """
import sys
from pathlib import Path
from pipeline.cohort.manifest import init_cohort

print([entry.slide_id for entry in init_cohort(Path(sys.argv[1]), Path(sys.argv[2])).entries])
"""
DOCTOR = """
import json
from pathlib import Path
from pipeline.doctor import examine

print(json.dumps({f.name: [f.is_good, f.value] for f in examine(Path(".")) if f.name.startswith("reader")}))
"""


def install(folder: Path, module: str, entry_point: str, code: str) -> Path:
    """Install a package as an installer would: a module, with its distribution's entry points beside it."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[gemslide.readers]\n{entry_point}\n")
    return folder


def example() -> str:
    (code,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/reference/readers.md").read_text(encoding="utf-8"), re.DOTALL
    )
    return code


def run(site: Path, script: str, *arguments: object) -> str:
    paths = os.pathsep.join([str(ROOT), str(site)])
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths}, cwd=site, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def write_ppm(path: Path, pixels) -> Path:
    height, width = pixels.shape[:2]
    path.write_bytes(f"P6\n{width} {height}\n255\n".encode() + pixels.tobytes())
    return path


def test_a_format_that_a_site_added_is_ingested_with_the_right_pixels(tmp_path):
    site = install(tmp_path / "site", "site_ppm", "ppm = site_ppm:PpmReader", example())
    pixels = sample_image(150, 110)

    output = run(site, INGEST, write_ppm(tmp_path / "a.ppm", pixels), tmp_path / "project", tmp_path / "a.npy")

    assert json.loads(output) == ["ppm", "PPM is not compressed"]
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), pixels)


def test_cohort_init_finds_the_slides_of_a_format_that_a_site_added(tmp_path):
    site = install(tmp_path / "site", "site_ppm", "ppm = site_ppm:PpmReader", example())
    (tmp_path / "in").mkdir()
    write_ppm(tmp_path / "in/a.ppm", sample_image(9, 9))

    assert run(site, COHORT, tmp_path / "in", tmp_path / "cohort.csv") == "['a']"


def test_a_reader_of_a_site_stands_in_the_doctor_s_list(tmp_path):
    site = install(tmp_path / "site", "site_ppm", "ppm = site_ppm:PpmReader", example())

    readers = json.loads(run(site, DOCTOR))

    assert list(readers) == ["reader ppm", *(f"reader {reader.name}" for reader in BUILT_IN)]
    assert all(is_good for is_good, _ in readers.values())


@pytest.mark.parametrize(
    ("entry_point", "code", "why"),
    [
        ("ppm = site_ppm:PpmReader", "import no_such_library", "ModuleNotFoundError"),
        ("ppm = site_ppm:Missing", "", "AttributeError"),
        ("ppm = site_ppm:PpmReader", "class PpmReader", "SyntaxError"),
        ("ppm = site_ppm:PpmReader", "PpmReader = 3", "is not a reader"),
    ],
)
def test_a_broken_reader_stops_no_other_format_and_is_named_where_nothing_reads_the_file(
    tmp_path, entry_point, code, why
):
    site = install(tmp_path / "site", "site_ppm", entry_point, code)
    tiff = write_jpeg_pyramid(tmp_path / "a.tiff", [sample_image(100, 80)])

    assert run(site, OPEN, tiff) == "tiff:generic"
    assert "could not be loaded: ppm (`gemslide doctor`" in run(
        site, OPEN, write_ppm(tmp_path / "a.ppm", sample_image(9, 9))
    )
    is_good, value = json.loads(run(site, DOCTOR))["reader ppm"]
    assert not is_good
    assert why in value


def test_a_reader_of_higher_priority_comes_first(tmp_path):
    code = example().replace('b"P6\\n"', 'b"II*"')
    site = install(tmp_path / "site", "site_ppm", "ppm = site_ppm:PpmReader", code)
    tiff = write_jpeg_pyramid(tmp_path / "a.tiff", [sample_image(100, 80)])

    assert "a.tiff: no width and height in its header" in run(site, OPEN, tiff)

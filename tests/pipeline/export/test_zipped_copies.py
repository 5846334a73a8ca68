"""An `.ozx` is the NGFF 0.5 copy in one archive of stored entries, readable without gemslide."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from pipeline.export.export import ExportRequest, export_slide, kind_of
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.export.conftest import planes

PLAIN = """
import json, sys
import numpy as np
import zarr
from zarr.storage import ZipStore
group = zarr.open_group(ZipStore(sys.argv[1], mode="r"), mode="r")
assert not any(name.startswith(("pipeline", "training")) for name in sys.modules)
for level in range(3):
    np.save(f"{sys.argv[2]}/{level}.npy", group["0"][str(level)][:])
print(json.dumps([dict(group.attrs), dict(group["0"].attrs)["ome"]["version"]]))
"""


@pytest.fixture
def archive(tmp_path, mixed_store):
    out = tmp_path / "M-1.ozx"
    export_slide(ExportRequest(mixed_store, out, kind_of(None, out), with_associated=True))
    return out


def test_plain_zarr_reads_every_level_from_the_archive(archive, mixed_store, tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", PLAIN, archive, tmp_path]
    attributes, version = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    reader = StoreReader(mixed_store)
    for level in range(3):
        np.testing.assert_array_equal(np.load(tmp_path / f"{level}.npy"), planes(reader, level))
    assert version == "0.5"
    assert attributes["gemslide_export"]["slide_id"] == "M-1"


def test_entries_are_stored_with_the_metadata_first_and_those_of_the_root_before_all(archive):
    with zipfile.ZipFile(archive) as opened:
        entries, comment = opened.infolist(), json.loads(opened.comment)
        assert opened.testzip() is None

    names = [entry.filename for entry in entries]
    is_metadata = [name.endswith("zarr.json") for name in names]
    assert names[0] == "zarr.json"
    assert is_metadata == sorted(is_metadata, reverse=True)
    depths = [name.count("/") for name in names if name.endswith("zarr.json")]
    assert depths == sorted(depths)
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
    assert comment["ome"] == {"version": "0.5", "zipFile": {"centralDirectory": {"jsonFirst": True}}}
    assert sorted(path.name for path in archive.parent.iterdir()) == ["M-1.ozx"]


def test_what_a_crashed_run_left_is_replaced(tmp_path, mixed_store):
    left = tmp_path / ".c.ozx.unzipped"
    (left / "0").mkdir(parents=True)
    (left / "0" / "old").write_text("of another run")

    export_slide(ExportRequest(mixed_store, tmp_path / "c.ozx", "ozx"))
    export_slide(ExportRequest(mixed_store, tmp_path / "d.ozx", "ozx"))

    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.ozx", "d.ozx"]
    assert (tmp_path / "c.ozx").read_bytes() == (tmp_path / "d.ozx").read_bytes()
    with zipfile.ZipFile(tmp_path / "c.ozx") as opened:
        assert "0/old" not in opened.namelist()

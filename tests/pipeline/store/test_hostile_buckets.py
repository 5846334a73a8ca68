"""A bucket that answers slowly, wrongly or not at all: one clear error, no wait without end, and no secret in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from wsgiref.types import WSGIEnvironment

import numpy as np
import pytest

from pipeline.box import Box
from pipeline.errors import CorruptTileError
from pipeline.places import connection
from pipeline.project import Project
from pipeline.settings.site import BUCKET_VARIABLE
from pipeline.store.layers.labels import read_tissue
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import halved, ingest, sample_image, write_jpeg_pyramid
from tests.pipeline.store.bucket_server import BUCKET, BucketServer, Fault, bucket_server
from training.foundation.errors import GemslideError, UnreadableError

STORE = "trial/S-1.ome.zarr"
URL = f"s3://{BUCKET}/{STORE}"
NOT_IN_A_MESSAGE = ("AKIASECRETKEYID", "secret-access-key", "127.0.0.1", "Debug", "reqwest", "Authorization")
ETAG = b'ETag: "0123456789abcdef0123456789abcdef"\r\n'
MODIFIED = b"Last-Modified: Sun, 29 Nov 2026 08:00:00 GMT\r\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    source = write_jpeg_pyramid(folder / "slide.tiff", halved(sample_image(900, 700), 1))
    return ingest(source, folder / "p", mpp=0.5).store


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[BucketServer]:
    with bucket_server() as running:
        running.put_folder(store, STORE)
        yield running


@pytest.fixture(autouse=True)
def reachable(server: BucketServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("_REQUEST", "_CONNECT", "_RETRY"):
        monkeypatch.setattr(connection, name, timedelta(seconds=1))
    monkeypatch.setattr(connection, "_RETRIES", 1)
    server.reach(monkeypatch)
    yield
    server.fault = None
    connection.connect.cache_clear()


def answered(status: bytes, body: bytes = b"", headers: bytes = ETAG + MODIFIED, length: int | None = None) -> bytes:
    num_bytes = len(body) if length is None else length
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, headers, num_bytes, body)


def always(answer: bytes) -> Fault:
    return lambda environ: answer


def slowly(environ: WSGIEnvironment) -> bytes:
    """A byte of an answer now and then, until the other side has gone."""
    connected = environ["werkzeug.socket"]
    connected.sendall(b"HTTP/1.1 200 OK\r\n" + ETAG + MODIFIED + b"Content-Length: 100000\r\n\r\n")
    for _ in range(100):
        connected.sendall(b" ")
        time.sleep(0.1)
    return b""


def never(environ: WSGIEnvironment) -> bytes:
    """Nothing, until the other side has gone."""
    environ["werkzeug.socket"].settimeout(30)
    environ["werkzeug.socket"].recv(1)
    return b""


FAULTS = {
    "refuses": always(answered(b"403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>")),
    "does not accept the key": always(answered(b"401 Unauthorized")),
    "fails": always(answered(b"500 Internal Server Error", b"AKIASECRETKEYID")),
    "closes the connection": always(b""),
    "speaks something else": always(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "states no ETag": always(answered(b"200 OK", b"{}", MODIFIED)),
    "states no length": always(b"HTTP/1.1 200 OK\r\n" + ETAG + MODIFIED + b"\r\n{}"),
    "claims terabytes": always(answered(b"200 OK", b"{", length=10**13)),
    "sends half": always(answered(b"200 OK", b'{"zarr_format"', length=1000)),
    "sends no JSON": always(answered(b"200 OK", b"\x00\xff" * 50)),
    "sends nested JSON": always(answered(b"200 OK", b"[" * 100_000)),
    "leads elsewhere": always(answered(b"301 Moved Permanently", b"", b"Location: http://169.254.169.254/\r\n")),
    "answers slowly": slowly,
    "says nothing": never,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_answer_opens_a_slide_but_the_right_one(server: BucketServer, fault: str) -> None:
    server.fault = FAULTS[fault]
    began = time.monotonic()

    with pytest.raises(GemslideError) as refused:
        StoreReader(URL)

    assert time.monotonic() - began < 15
    assert refused.value.code == "unreadable"
    assert URL in str(refused.value)
    assert not any(secret in str(refused.value) for secret in NOT_IN_A_MESSAGE)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_answer_gives_pixels_but_the_right_ones(server: BucketServer, store: Path, fault: str) -> None:
    reader = StoreReader(URL)
    server.fault = FAULTS[fault]

    with pytest.raises((UnreadableError, CorruptTileError)) as refused:
        reader.read_region(0, reader_box(reader))

    assert not any(secret in str(refused.value) for secret in NOT_IN_A_MESSAGE)
    server.fault = None
    assert np.array_equal(
        reader.read_region(0, reader_box(reader)), StoreReader(store).read_region(0, reader_box(reader))
    )


def of_ranges(answer: Fault) -> Fault:
    """Only requests for a part of an object."""
    return lambda environ: answer(environ) if "HTTP_RANGE" in environ else None


@pytest.mark.parametrize("end", [True, False], ids=["the index", "the chunks"])
def test_a_part_that_is_not_the_one_that_was_asked_for_is_refused(server: BucketServer, store: Path, end: bool) -> None:
    content = (store / "0/0/c/0/0/0").read_bytes()
    whole = answered(b"200 OK", content)
    part = b"Content-Range: bytes 0-99/%d\r\n" % len(content)
    shifted = answered(b"206 Partial Content", content[:100], ETAG + MODIFIED + part)
    for answer in (whole, shifted):
        reader = StoreReader(URL)
        if not end:
            reader.chunk(0, 0, 0)
        server.fault = of_ranges(always(answer))
        with pytest.raises((UnreadableError, CorruptTileError)):
            reader.chunk(0, 0, 0)
        server.fault = None


def test_bytes_of_another_object_with_the_same_etag_are_noticed(server: BucketServer) -> None:
    """As from a proxy that has kept a wrong answer."""
    reader = StoreReader(URL)
    right = reader.chunk(0, 0, 0)
    assert right is not None

    def other(environ: WSGIEnvironment) -> bytes | None:
        if "HTTP_IF_MATCH" not in environ:
            return None
        first, last = map(int, environ["HTTP_RANGE"].removeprefix("bytes=").split("-"))
        body = bytes(last - first + 1)
        span = b"Content-Range: bytes %d-%d/1000000\r\n" % (first, last)
        return answered(
            b"206 Partial Content", body, b"ETag: " + environ["HTTP_IF_MATCH"].encode() + b"\r\n" + MODIFIED + span
        )

    server.fault = other
    with pytest.raises((UnreadableError, CorruptTileError)):
        reader.chunk(0, 0, 0)


def test_a_mask_and_a_list_that_cannot_be_read_are_errors(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(BUCKET_VARIABLE, f"s3://{BUCKET}/trial")
    project = Project(tmp_path)
    assert project.slide_ids() == ["S-1"]
    path = StoreReader(URL).path
    for fault in ("refuses", "fails", "sends half", "sends no JSON"):
        server.fault = FAULTS[fault]
        with pytest.raises(UnreadableError, match="Check the bucket"):
            project.slide_ids()
        with pytest.raises(UnreadableError):
            read_tissue(path)


def reader_box(reader: StoreReader) -> Box:
    return Box(0, 0, *reader.size_wh_px0)

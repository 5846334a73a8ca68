"""A small DICOMweb server (PS3.18) for the instances of a folder, on a free port of 127.0.0.1; and static files.

QIDO-RS of studies, series and instances; WADO-RS of metadata, frames and bulk data. Frames go out as they are stored,
whatever transfer syntax a client asks for. Everything that is not there is 404, and is kept in `missing`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pydicom
from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset
from pydicom.encaps import get_frame

BOUNDARY = "part-of-a-dicomweb-answer"
MEDIA_TYPES = {
    "1.2.840.10008.1.2.4.50": "image/jpeg",
    "1.2.840.10008.1.2.4.51": "image/jpeg",
    "1.2.840.10008.1.2.4.90": "image/jp2",
    "1.2.840.10008.1.2.4.91": "image/jp2",
}
FILE_TYPES = {".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm"}
NOT_METADATA = {"PixelData", "ExtendedOffsetTable", "ExtendedOffsetTableLengths"}
BULK_DATA_BYTES = 256
"""Binary values longer than this are bulk data."""
STUDIES = "/dicomweb/studies"
STUDY = r"(?:/(?P<study>[\d.]+))?"
SERIES = r"(?:/series(?:/(?P<series>[\d.]+))?)?"
INSTANCE = r"(?:/instances(?:/(?P<instance>[\d.]+))?)?"
PATH = re.compile(rf"{STUDIES}{STUDY}{SERIES}{INSTANCE}(?P<rest>/metadata|/frames/\d+|/bulk/\d+)?")


class DicomWeb:
    """Answers by path, from instances that are in memory."""

    def __init__(self, folder: Path, files: dict[str, Path]) -> None:
        """Args: files: static files by the path at which they are served."""
        self.instances = [pydicom.dcmread(path) for path in sorted(folder.glob("*.dcm"))]
        self.files = files
        self.url = ""
        self.missing: list[str] = []
        self.frames: dict[str, set[int]] = {str(dataset.SOPInstanceUID): set() for dataset in self.instances}
        """Numbers of the frames that were asked for, by instance."""
        self._bulk: list[bytes] = []

    def answer(self, path: str) -> tuple[bytes, str] | None:
        """Body and content type; None if there is nothing at the path."""
        if path in self.files:
            return self.files[path].read_bytes(), FILE_TYPES[self.files[path].suffix]
        matched = PATH.fullmatch(path)
        if matched is None:
            return None
        found = self._matching(matched)
        rest = matched["rest"] or ""
        if rest.startswith("/frames/") and len(found) == 1:
            return self._frame(found[0], int(rest.removeprefix("/frames/")))
        if rest.startswith("/bulk/") and found:
            return _multipart(self._bulk[int(rest.removeprefix("/bulk/"))], "application/octet-stream")
        if rest == "/metadata":
            return _json([self._metadata(dataset) for dataset in found])
        return self._search(path, found)

    def _matching(self, matched: re.Match[str]) -> list[Dataset]:
        asked = {
            "StudyInstanceUID": matched["study"],
            "SeriesInstanceUID": matched["series"],
            "SOPInstanceUID": matched["instance"],
        }
        return [
            dataset
            for dataset in self.instances
            if all(uid in (None, dataset[keyword].value) for keyword, uid in asked.items())
        ]

    def _search(self, path: str, found: list[Dataset]) -> tuple[bytes, str]:
        """What QIDO-RS returns of studies, series or instances: once each."""
        keywords = ["StudyInstanceUID", "PatientID"]
        if path.endswith(("/series", "/instances")):
            keywords += ["SeriesInstanceUID", "Modality"]
        if path.endswith("/instances"):
            keywords += ["SOPInstanceUID", "SOPClassUID"]
        rows = {json.dumps({_tag(dataset[k]): dataset[k].to_json_dict(None, 0) for k in keywords}) for dataset in found}
        return _json([json.loads(row) for row in sorted(rows)])

    def _metadata(self, dataset: Dataset) -> dict[str, Any]:
        instance = (
            f"{self.url}{STUDIES}/{dataset.StudyInstanceUID}/series/{dataset.SeriesInstanceUID}"
            f"/instances/{dataset.SOPInstanceUID}"
        )

        def link_to(element: DataElement) -> str:
            self._bulk.append(element.value)
            return f"{instance}/bulk/{len(self._bulk) - 1}"

        elements = [element for element in dataset if element.keyword not in NOT_METADATA]
        return {_tag(element): element.to_json_dict(link_to, BULK_DATA_BYTES) for element in elements}

    def _frame(self, dataset: Dataset, number: int) -> tuple[bytes, str] | None:
        if not 1 <= number <= dataset.NumberOfFrames:
            return None
        self.frames[dataset.SOPInstanceUID].add(number)
        tables = dataset.ExtendedOffsetTable, dataset.ExtendedOffsetTableLengths
        frame = get_frame(
            dataset.PixelData, number - 1, number_of_frames=int(dataset.NumberOfFrames), extended_offsets=tables
        )
        return _multipart(frame, MEDIA_TYPES[dataset.file_meta.TransferSyntaxUID])


def _tag(element: DataElement) -> str:
    return f"{element.tag:08X}"


def _json(content: list[dict[str, Any]]) -> tuple[bytes, str]:
    return json.dumps(content).encode(), "application/dicom+json"


def _multipart(body: bytes, media_type: str) -> tuple[bytes, str]:
    head = f"--{BOUNDARY}\r\nContent-Type: {media_type}\r\n\r\n".encode()
    return (
        head + body + f"\r\n--{BOUNDARY}--\r\n".encode(),
        f'multipart/related; type="{media_type}"; boundary={BOUNDARY}',
    )


def _handler(answer: Callable[[str], tuple[bytes, str] | None], missing: list[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found = answer(path)
            if found is None:
                missing.append(path)
            body, kind = found or (b"", "text/plain")
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def served(folder: Path, files: dict[str, Path]) -> Iterator[DicomWeb]:
    """Serve a folder's instances, and files by their paths, until the block ends."""
    web = DicomWeb(folder, files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(web.answer, web.missing))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    web.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""`--json` lines contain no source names: file names can name patients, and lines are stored and passed on."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli import cli
from pipeline.naming.sources import HIDDEN, MAX_ENTRIES, TOO_MANY, SourceNames
from pipeline.project import Project
from tests.small_trained_project import SmallProject, make_slide, write_annotations

PERSON = "Mustermann^Erika-19670308"
PARTS = ("mustermann", "erika", "19670308")
HEADER = "path,slide_id,patient_id,annotations,split\n"


@dataclass(frozen=True)
class Files:
    """A folder and all its files, named after a person; and a project that is not."""

    folder: Path
    project: Path
    small_project: SmallProject

    @property
    def model(self) -> Path:
        return self.small_project.project.models_dir / self.small_project.model_id

    def named(self, suffix: str, content: str | bytes | None = None) -> Path:
        path = self.folder / f"{PERSON}{suffix}"
        if content is not None:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def manifest(self, rows: str, header: str = HEADER) -> Path:
        return self.named(".csv", header + rows)

    def dicom_folder(self) -> Path:
        folder = self.folder / f"{PERSON} series"
        folder.mkdir()
        (folder / f"{PERSON}.7").write_bytes(bytes(128) + b"DICM" + b"\x02\x00\x00\x00UL\x04\x00\xff\xff\xff\x00" * 9)
        return folder


@pytest.fixture
def files(tmp_path, small_project) -> Files:
    folder = tmp_path / "in" / PERSON
    folder.mkdir(parents=True)
    (tmp_path / "p").mkdir()
    shutil.copytree(
        small_project.project.slides_dir, tmp_path / "p/slides"
    )  # a link would put records into the shared project
    make_slide(folder / f"{PERSON}.tiff", 2)
    write_annotations(folder / f"{PERSON}.geojson")
    return Files(folder, tmp_path / "p", small_project)


GOOD = {
    "info": lambda f: ["info", f.named(".tiff")],
    "cohort check": lambda f: ["cohort", "check", f.manifest(f"{PERSON}.tiff,S-1,p,{PERSON}.geojson,train\n")],
    "ingest": lambda f: ["ingest", f.manifest(f"{PERSON}.tiff,S-1,p,,train\n"), "--project", f.project.parent / "new"],
    "tile": lambda f: [
        *("tile", f.manifest(f"{PERSON}.tiff,small-test,p,{PERSON}.geojson,train\n")),
        *("--tile-px", 32, "--tile-mpp", 1),
    ],
    "verify": lambda f: ["verify", "small-test", "--source", f.named(".tiff"), "--sample-chunks", 1],
    "annotations check": lambda f: ["annotations", "check", f.named(".geojson"), "--slide", f.named(".tiff")],
    "annotations convert": lambda f: ["annotations", "convert", f.named(".geojson"), f.named(".xml"), "--to", "asap"],
    "export": lambda f: ["export", "small-test", f.named(".ome.tiff")],
}
BAD = {
    "info, no slide": lambda f: ["info", f.named(".svs", "no slide")],
    "info, missing": lambda f: ["info", f.named("-missing.svs")],
    "info, DICOM": lambda f: ["info", f.dicom_folder()],
    "ingest, illegal id": lambda f: ["ingest", f.named(".tiff")],
    "ingest, damaged": lambda f: ["ingest", f.named(".tif", f.named(".tiff").read_bytes()[:900])],
    "ingest, DICOM": lambda f: ["ingest", f.dicom_folder()],
    "ingest, two kinds": lambda f: ["ingest", f.named(".tiff"), f.manifest("a.tiff,S-1,,,\n")],
    "ingest, missing in a manifest": lambda f: ["ingest", f.manifest(f"{PERSON}-2.svs,S-1,,,\n")],
    "ingest, a pipe's name": lambda f: ["ingest", f.folder],
    "cohort check, no header": lambda f: ["cohort", "check", f.manifest("", f"{PERSON}.tiff,x\n")],
    "cohort check, illegal id": lambda f: ["cohort", "check", f.manifest(f"{PERSON}.tiff,,,,\n")],
    "cohort check, shifted": lambda f: ["cohort", "check", f.manifest(f"x.tiff,S-1,,,{PERSON}.geojson\n")],
    "cohort check, missing": lambda f: ["cohort", "check", f.named("-2.csv")],
    "cohort check, damaged slide": lambda f: ["cohort", "check", f.manifest(f"{PERSON}.geojson,S-1,,,\n")],
    "cohort check, annotations": lambda f: ["cohort", "check", f.manifest(f"{PERSON}.tiff,S-1,,{PERSON}.tiff,\n")],
    "tile, annotations": lambda f: ["tile", f.manifest(f"x.tiff,small-test,,{PERSON}.xml,\n")],
    "tile, outside": lambda f: [
        "tile",
        f.manifest(f"x.tiff,small-test,,{f.named('.json', OUTSIDE).name},\n"),
    ],
    "verify, another slide": lambda f: ["verify", "small-train", "--source", f.named(".tiff")],
    "verify, damaged": lambda f: ["verify", "small-train", "--source", f.named(".svs", b"II*\0" + bytes(99))],
    "verify, all": lambda f: ["verify", "--source", f.named(".tiff")],
    "annotations check": lambda f: ["annotations", "check", f.named(".xml", "<ASAP_Annotations>")],
    "annotations check, dropped": lambda f: ["annotations", "check", f.named(".json", EMPTY_RING)],
    "annotations check, outside": lambda f: [
        *("annotations", "check", f.named(".json", OUTSIDE), "--slide", f.named(".tiff")),
    ],
    "annotations convert, exists": lambda f: [
        *("annotations", "convert", f.named(".geojson"), f.named(".geojson"), "--to", "asap"),
    ],
    "export, exists": lambda f: ["export", "small-test", f.named(".ome.tiff", "taken")],
    "export, a slide": lambda f: ["export", f.named(".svs", "no store"), f.named(".ome.tiff")],
    "infer, a slide": lambda f: ["infer", f.model, f.named(".tiff")],
    "infer, a name": lambda f: ["infer", f.model, "Mustermann-Erika_19670308.svs"],
    "qc, no header": lambda f: ["qc", f.manifest("", f"{PERSON}.tiff,x\n")],
    "qc, a slide": lambda f: ["qc", f.named(".tiff")],
}  # fmt: skip


def polygon(ring: list[list[int]]) -> str:
    geometry = {"type": "Polygon", "coordinates": [ring]}
    return json.dumps([{"type": "Feature", "geometry": geometry, "properties": {"classification": "warm"}}])


OUTSIDE = polygon([[0, 0], [9000, 0], [9000, 9000]])
EMPTY_RING = json.dumps([*json.loads(polygon([[0, 0], [9, 9]])), *json.loads(OUTSIDE)])


def run(arguments: list[object], project: Path, *more: str):
    at_project = [] if "--project" in arguments or arguments[0] == "annotations" else ["--project", project]
    return CliRunner().invoke(cli, [*map(str, [*arguments, *at_project]), *more])


def names_in(text: str) -> list[str]:
    return [part for part in PARTS if part in text.lower()]


@pytest.mark.parametrize("case", GOOD)
def test_no_json_line_of_a_good_run_names_a_source(files, case):
    done = run(GOOD[case](files), files.project, "--json")

    assert (done.exit_code, names_in(done.stdout)) == (0, []), done.output
    assert [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("case", BAD)
def test_no_json_line_of_a_bad_run_names_a_source_and_the_words_do(files, case):
    arguments = BAD[case](files)

    done, in_words = run(arguments, files.project, "--json"), run(arguments, files.project)

    assert names_in(done.stdout) == [], done.stdout
    assert [json.loads(line) for line in done.stdout.splitlines()]
    assert names_in(in_words.output), in_words.output
    assert done.exit_code == in_words.exit_code == (0 if "dropped" in case else 1)
    assert [path.read_text() for path in files.project.glob("runs/*.json") if names_in(path.read_text())] == []


def test_lines_name_slides_by_their_ids(files):
    shutil.copy(files.named(".tiff"), files.folder / "S-7.tiff")

    done = run(["ingest", files.folder / "S-7.tiff"], files.project.parent / "new", "--json")

    line = json.loads(done.stdout)
    assert (line["slide_id"], line["output"].endswith("/slides/S-7.ome.zarr")) == ("S-7", True)


def test_the_longest_name_is_taken_out_and_common_words_stay(tmp_path):
    names = SourceNames(tmp_path / "slides/Max.svs", tmp_path / "slides/Max", tmp_path / "slides/12.svs")

    cleaned = names.removed_from(f"{tmp_path / 'slides/Max.svs'}: slides of Max (12 of Maximal) are 'Max', not 12.svs")

    assert cleaned == f"{HIDDEN}: slides of {HIDDEN} (12 of Maximal) are '{HIDDEN}', not {HIDDEN}"


def test_a_slide_id_stays_whole_though_a_file_is_named_like_a_part_of_it(tmp_path):
    names = SourceNames(tmp_path / "text.svs")
    names.keep("S-text")

    assert names.removed_from("S-text of text, text-2, S-text2") == (
        f"S-text of {HIDDEN}, {HIDDEN}-2, S-text2"
    )  # fmt: skip


def test_a_link_hides_what_it_leads_to(tmp_path):
    (tmp_path / f"{PERSON}.svs").touch()
    (tmp_path / "link.svs").symlink_to(tmp_path / f"{PERSON}.svs")

    assert names_in(SourceNames(tmp_path / "link.svs").removed_from(f"{PERSON}: {tmp_path}/{PERSON}.svs")) == []


def test_of_a_folder_with_more_files_than_are_looked_through_no_message_is_kept(tmp_path, monkeypatch):
    (tmp_path / "one.dcm").touch()
    monkeypatch.setattr("pipeline.naming.sources.MAX_ENTRIES", 1)
    few = SourceNames(tmp_path).removed_from("two.dcm")
    (tmp_path / "two.dcm").touch()

    assert (few, SourceNames(tmp_path).removed_from("two.dcm")) == ("two.dcm", TOO_MANY)
    assert MAX_ENTRIES > 1000


def test_ten_thousand_slides_are_looked_for_in_a_moment(tmp_path):
    rows = "".join(f"{PERSON}/slide-{number:05}.svs,S-{number},,,\n" for number in range(10_000))
    (tmp_path / "cohort.csv").write_text(HEADER + rows)
    names = SourceNames(tmp_path / "cohort.csv", project=Project(tmp_path / "p"))

    for number in range(2000):
        names.keep(f"S-{number}")
        assert (
            names.removed_from(f"{PERSON}/slide-{number:05}.svs: S-{number} is damaged")
            == f"{HIDDEN}: S-{number} is damaged"
        )

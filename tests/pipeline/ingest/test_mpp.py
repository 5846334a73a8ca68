"""Pixel size: from the file, the manifest or the user; refused if none of them states it."""

from __future__ import annotations

import json
import re

import pytest

from pipeline.cohort.manifest import load_cohort
from pipeline.errors import MissingMppError
from pipeline.ingest.check import check_slide
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import APERIO, sample_image, write_pyramid

OME = (
    '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0"><Pixels ID="Pixels:0" '
    'DimensionOrder="XYCZT" Type="uint8" SizeX="90" SizeY="60" SizeC="3" SizeZ="1" SizeT="1" Interleaved="true" '
    'PhysicalSizeX="250" PhysicalSizeXUnit="nm" PhysicalSizeY="250" PhysicalSizeYUnit="nm">'
    '<Channel ID="Channel:0:0" SamplesPerPixel="3"/><TiffData IFD="0" PlaneCount="1"/></Pixels></Image></OME>'
)


def slide(tmp_path, name="a.tiff", **options):
    return write_pyramid(tmp_path / name, [sample_image(90, 60)], tile_px=64, compression="lzw", **options)


def ingested(tmp_path, path, **request):
    report = ingest_slide(IngestRequest(path, "S-1", **request), Project(tmp_path), IngestConfig())
    attributes = StoreReader(report.store).attributes
    return attributes.mpp0, attributes.mpp_source


def test_resolution_tags_give_the_mpp(tmp_path):
    assert ingested(tmp_path, slide(tmp_path)) == (0.5, "file (tiff:generic)")


def test_an_aperio_description_gives_the_mpp(tmp_path):
    source = slide(tmp_path, "a.svs", mpp=None, description=APERIO.format(width=90, height=60))

    assert ingested(tmp_path, source) == (0.499, "file (tiff:aperio)")


def test_an_ome_header_in_nanometres_gives_the_mpp(tmp_path):
    assert ingested(tmp_path, slide(tmp_path, "a.ome.tiff", mpp=None, description=OME)) == (0.25, "file (tiff:ome)")


def test_the_option_wins_over_the_manifest_and_both_over_the_file_and_are_recorded(tmp_path):
    source = slide(tmp_path)

    assert ingested(tmp_path / "a", source, mpp_manifest=0.3) == (0.3, "override by manifest (file: 0.5)")
    assert ingested(tmp_path / "b", source, mpp_manifest=0.3, mpp_option=0.2) == (0.2, "override by --mpp (file: 0.5)")


def test_an_override_of_a_file_that_says_nothing_is_recorded_as_such(tmp_path):
    assert ingested(tmp_path, slide(tmp_path, mpp=None), mpp_option=0.2) == (0.2, "override by --mpp (file: none)")


@pytest.mark.parametrize("mpp", [352.8, 50.1, 0.049])
def test_an_absurd_resolution_counts_as_missing_and_the_message_shows_it(tmp_path, mpp):
    with pytest.raises(MissingMppError, match=rf"resolution tags: {mpp}.*`--mpp VALUE`"):
        ingested(tmp_path, slide(tmp_path, mpp=mpp))


@pytest.mark.parametrize("mpp", [0.05, 50.0])
def test_the_ends_of_the_plausible_range_are_in_it(tmp_path, mpp):
    assert ingested(tmp_path, slide(tmp_path, mpp=None), mpp_option=mpp)[0] == mpp


@pytest.mark.parametrize("request_mpp", [{"mpp_option": 352.8}, {"mpp_manifest": 0.01}])
def test_an_absurd_override_is_refused_even_if_the_file_knows_better(tmp_path, request_mpp):
    with pytest.raises(MissingMppError, match=r"plausible values: 0\.05 to 50"):
        ingested(tmp_path, slide(tmp_path), **request_mpp)


def test_a_missing_mpp_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(MissingMppError, match="MPP in the description: none; OME PhysicalSize: none; res"):
        ingested(tmp_path / "project", slide(tmp_path, mpp=None))

    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize("text", ["0.4.9", ".", "1.234,5", "", "1e400"])
def test_an_mpp_that_is_not_a_number_is_missing_and_no_crash(tmp_path, text):
    description = APERIO.format(width=90, height=60).replace("0.4990", text)

    with pytest.raises(MissingMppError):
        ingested(tmp_path, slide(tmp_path, "a.svs", mpp=None, description=description))


def test_sides_that_differ_by_more_than_one_percent_are_refused_unless_a_person_says(tmp_path):
    skewed = slide(tmp_path, mpp=(0.5, 0.506))

    with pytest.raises(MissingMppError, match=r"not square: 0\.5 × 0\.506"):
        ingested(tmp_path, skewed)

    assert ingested(tmp_path, skewed, mpp_option=0.5)[0] == 0.5


def test_sides_that_differ_by_less_are_averaged(tmp_path):
    assert ingested(tmp_path, slide(tmp_path, mpp=(0.5, 0.504)))[0] == pytest.approx(0.502)


def test_checking_a_cohort_finds_the_missing_mpp_that_ingest_would(tmp_path):
    slide(tmp_path, mpp=None)
    manifest = tmp_path / "cohort.csv"
    manifest.write_text("path,slide_id,mpp\na.tiff,S-1,\na.tiff,S-2,0.4\n")
    cohort = load_cohort(manifest)

    with pytest.raises(MissingMppError):
        check_slide(cohort, cohort.entries[0])
    check_slide(cohort, cohort.entries[1])


@pytest.mark.parametrize(
    ("request_mpp", "said"),
    [
        ({"mpp_manifest": 0.25}, ["manifest says 0.25 µm/px where the file says 0.5; 0.25 is used"]),
        ({"mpp_option": 0.56}, ["--mpp says 0.56 µm/px where the file says 0.5; 0.56 is used"]),
        ({"mpp_option": 0.5, "mpp_manifest": 0.25}, ["--mpp says 0.5 µm/px where the manifest says 0.25; 0.5 is used"]),
        ({"mpp_manifest": 0.46}, []),
        ({}, []),
    ],
)
def test_a_scale_far_from_another_one_is_said_with_both_numbers(tmp_path, request_mpp, said):
    report = ingest_slide(IngestRequest(slide(tmp_path), "S-1", **request_mpp), Project(tmp_path), IngestConfig())
    for warnings in (report.warnings, StoreReader(report.store).attributes.warnings):
        assert [warning for warning in warnings if "µm/px" in warning] == said


@pytest.mark.parametrize("mpp", [2.5, 5, 10, 20, 40, 60, 80, 100])
@pytest.mark.parametrize("source", ["mpp_manifest", "mpp_option"])
def test_a_magnification_in_place_of_the_scale_is_refused_with_both_numbers(tmp_path, mpp, source):
    with pytest.raises(
        MissingMppError, match=rf"says {mpp:g} µm/px, which looks like a magnification.*states 0.5 µm/px"
    ):
        ingested(tmp_path, slide(tmp_path), **{source: mpp})


def test_a_scale_that_only_looks_like_a_magnification_is_taken(tmp_path):
    assert ingested(tmp_path / "a", slide(tmp_path, "a.tiff", mpp=10.0), mpp_manifest=10.0)[0] == 10.0
    assert ingested(tmp_path / "b", slide(tmp_path, "b.tiff", mpp=None), mpp_option=5.0)[0] == 5.0


def test_a_check_says_what_the_manifest_and_the_file_say(gemslide, tmp_path):
    for seed, name in enumerate("abc"):
        write_pyramid(tmp_path / f"{name}.tiff", [sample_image(90, 60, seed)], tile_px=64, compression="lzw")
    (tmp_path / "cohort.csv").write_text("path,mpp\na.tiff,0.25\nb.tiff,0.5\nc.tiff,20\n")
    done = gemslide("cohort", "check", tmp_path / "cohort.csv", "--project", tmp_path, "--json")
    lines = {line["slide_id"]: line for line in map(json.loads, done.out.splitlines())}
    assert (
        lines["a"]["message"] == "can be ingested; but manifest says 0.25 µm/px where the file says 0.5; 0.25 is used"
    )
    assert (lines["b"]["message"], lines["c"]["code"]) == ("can be ingested", "missing_mpp")


@pytest.mark.parametrize(("mpp", "is_taken"), [(0.25, True), (0.5, True), (20.0, False), (40.0, False)])
def test_an_objective_tells_a_magnification_from_a_scale_where_the_file_has_none(tmp_path, mpp, is_taken):
    about = APERIO.format(width=90, height=60).replace("MPP = 0.4990", "").replace("MPP = 0.499", "")
    source = slide(tmp_path, "a.svs", mpp=None, description=about)
    if is_taken:
        assert ingested(tmp_path, source, mpp_option=mpp)[0] == mpp
        return
    with pytest.raises(MissingMppError, match=r"looks like a magnification.*states an objective of \d+x"):
        ingested(tmp_path, source, mpp_option=mpp)


APERIO_40X = "Aperio Image Library v12.0.15\r\n90x60 [0,0 90x60] (64x64) JPEG/RGB Q=70|AppMag = 40|MPP = {mpp}"
SCALES_THAT_CONTRADICT = {
    "tags and description": ({"mpp": 0.5, "description": APERIO_40X.format(mpp=0.25)}, "0.25 × 0.25.*tags: 0.5 × 0.5"),
    "tags and XML": ({"mpp": 0.5, "description": OME}, r"OME PhysicalSize: 0\.25.*resolution tags: 0\.5"),
    "objective and pixels": (
        {"mpp": None, "description": APERIO_40X.format(mpp=1.0)}, "objective of 40x and 1 × 1 µm/px, which contradict"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCALES_THAT_CONTRADICT)
def test_scales_that_contradict_each_other_in_a_file_are_reported_by_check_and_ingest(tmp_path, case):
    options, said = SCALES_THAT_CONTRADICT[case]
    suffix = ".ome.tiff" if "XML" in case else ".svs"
    path = slide(tmp_path, f"a{suffix}", **options)
    (tmp_path / "cohort.csv").write_text(f"path\n{path.name}\n")
    cohort = load_cohort(tmp_path / "cohort.csv")

    checked = check_slide(cohort, cohort.entries[0])
    report = ingest_slide(IngestRequest(path, "S-1"), Project(tmp_path), IngestConfig())

    for warnings in (checked.warnings, report.warnings):
        assert [bool(re.search(said, warning)) for warning in warnings].count(True) == 1
    chosen = ingest_slide(IngestRequest(path, "S-2", mpp_option=0.25), Project(tmp_path), IngestConfig())
    assert not any("states several" in warning for warning in chosen.warnings)


def test_scales_that_agree_give_no_warning(tmp_path):
    agreeing = slide(tmp_path, "a.svs", mpp=0.2505, description=APERIO_40X.format(mpp=0.25))
    by_adapter = slide(tmp_path, "b.svs", mpp=None, description=APERIO_40X.format(mpp=0.09))

    for number, path in enumerate((agreeing, by_adapter)):
        report = ingest_slide(IngestRequest(path, f"S-{number}"), Project(tmp_path), IngestConfig())
        assert not any("states" in warning for warning in report.warnings)

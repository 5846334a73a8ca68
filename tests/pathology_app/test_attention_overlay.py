"""Attention of slide-level models as a layer: its colours' range, its values, and people who may not see it."""

from __future__ import annotations

import io
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from pathology_app.access.visibility import attended_of
from pathology_app.html.attention import MIN_LIMIT, attention_at, attention_text, colour_limit
from pathology_app.people.person import Person
from pathology_app.project.ledger import close_study_ledgers
from pathology_app.readings.blinding import Visibility
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.overlays import layers_of
from pipeline.ledger.opening import open_ledger
from pipeline.project import Project
from pipeline.store import read_attention
from pipeline.study import Blinded
from tests.pathology_app.routes_in_process import get
from tests.pathology_app.small_attention import (
    PEAK,
    PEAK_XY_PX0,
    SLIDE_MODEL,
    times_average_yx,
    write_small_attention,
)
from tests.pathology_app.small_project import HEIGHT_PX0, MODEL_ID, SLIDE_ID, STRIDE_PX0, WIDTH_PX0
from tests.pathology_app.small_reading import make_reading_study, of_study, read_one

OTHER = "S-002"
URL = f"/overlays/{SLIDE_ID}/{SLIDE_MODEL}/attention.png"


@pytest.fixture
def attended(project: Project, tmp_path: Path) -> Project:
    """The small project with attention of a patient of two slides, of which one is here."""
    shutil.copytree(project.root, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("cache"))
    copied = Project(tmp_path)
    write_small_attention(copied, slides=(SLIDE_ID, OTHER))
    return copied


@given(
    arrays.arrays(
        np.float16,
        st.tuples(st.integers(1, 9), st.integers(10, 20)),
        elements=st.one_of(st.floats(0, 65504, width=16), st.just(math.nan)),
    )
)
def test_colours_end_at_the_99th_percentile_and_never_below_twice_the_average(values_yx: np.ndarray) -> None:
    limit = colour_limit(values_yx)

    known = values_yx[~np.isnan(values_yx)].astype(np.float64)
    highest = float(np.percentile(known, 99)) if known.size else 0.0
    assert limit >= MIN_LIMIT == 2.0
    assert max(highest, 2.0) - 1e-6 <= limit < max(highest, 2.0) + 0.1 + 1e-6
    assert round(limit, 1) == pytest.approx(limit), "as the legend states it"


def test_the_layer_states_its_model_its_range_and_what_it_is_not(attended: Project) -> None:
    layers, notes = layers_of(SlideCache(attended), SLIDE_ID, [MODEL_ID], (MODEL_ID, 1), [SLIDE_MODEL])

    assert notes == []
    (layer,) = [layer for layer in layers if layer["kind"] == "attention"]
    assert [layer["id"] for layer in layers][2] == f"attention/{SLIDE_MODEL}", "below the predictions"
    assert (layer["group"], layer["label"]) == ("Attention", f"{SLIDE_MODEL}: attention")
    assert (layer["limit"], layer["unit"], layer["cell_px0"]) == (6.3, "× average", STRIDE_PX0)
    assert layer["note"] == (
        "Attention: share of a tile in the result, 1 = average. No outline of disease. Research use only."
    )
    assert layer["style"] == {
        "visible": False, "opacity": 0.5, "threshold": 0.0, "palette": "Cividis", "outline": False,
    }  # fmt: skip
    others = [(other["limit"], other["unit"], other["note"]) for other in layers if other is not layer]
    assert set(others) == {(1.0, "", "")}


def test_the_image_holds_every_tile_s_value_and_nothing_where_there_is_none(attended: Project) -> None:
    answer = get(SlideCache(attended), URL)

    assert (answer.status_code, answer.headers["cache-control"]) == (200, "private, no-cache")
    codes = np.asarray(Image.open(io.BytesIO(answer.content)))
    values = times_average_yx().astype(np.float64)
    assert codes.shape == values.shape
    assert codes.shape[0] != codes.shape[1]
    np.testing.assert_array_equal(codes == 0, np.isnan(values))
    shown = ~np.isnan(values) & (values < 6.3)
    np.testing.assert_allclose((codes[shown] - 0.5) / 254 * 6.3, values[shown], atol=6.3 / 508 + 1e-3)
    column, row = (at // STRIDE_PX0 for at in PEAK_XY_PX0)
    assert codes[row, column] == 255, "beyond the range of colours"


def test_a_point_has_the_value_of_its_tile(attended: Project) -> None:
    attention = read_attention(attended.store_path(SLIDE_ID), SLIDE_MODEL)

    assert attention_at(attention, *PEAK_XY_PX0) == PEAK
    assert attention_text(attention_at(attention, *PEAK_XY_PX0)) == "14.5 × average"
    for x_px0, y_px0 in ((5, 5), (-1, 700), (700, -1), (WIDTH_PX0 + STRIDE_PX0, 700), (700, HEIGHT_PX0 + STRIDE_PX0)):
        assert attention_at(attention, x_px0, y_px0) is None
    assert attention_text(None) == "no tile"


def test_damaged_attention_is_a_note_and_leaves_the_other_layers(attended: Project) -> None:
    (attended.store_path(SLIDE_ID) / "attention" / SLIDE_MODEL / "zarr.json").write_text("{}")

    layers, (note,) = layers_of(SlideCache(attended), SLIDE_ID, [MODEL_ID], None, [SLIDE_MODEL])

    assert {layer["kind"] for layer in layers} == {"prediction", "tissue"}
    assert "no readable attention" in note
    assert str(attended.root) not in note
    assert get(SlideCache(attended), URL).status_code == 500


@pytest.mark.parametrize(
    ("url", "status"),
    [
        (f"/overlays/{SLIDE_ID}/{MODEL_ID}/attention.png", 404),
        (f"/overlays/{SLIDE_ID}/none-1/attention.png", 404),
        (f"/overlays/none/{SLIDE_MODEL}/attention.png", 404),
        (f"/overlays/{SLIDE_ID}/{SLIDE_MODEL}/0.png", 404),
        (f"/overlays/{SLIDE_ID}/{SLIDE_MODEL}/attention.jpg", 400),
        (f"/overlays/{SLIDE_ID}/..%5Cattention/attention.png", 400),
    ],
)
def test_a_link_to_attention_that_is_not_there_is_refused(attended: Project, url: str, status: int) -> None:
    answer = get(SlideCache(attended), url)

    assert (answer.status_code, answer.headers["cache-control"]) == (status, "no-store")


@pytest.mark.parametrize(
    ("patterns", "shown"), [(None, [SLIDE_MODEL]), (("S-0*",), [SLIDE_MODEL]), ((SLIDE_ID,), []), ((), [])]
)
def test_who_may_not_see_every_slide_of_the_patient_is_not_shown_what_rests_on_them(
    attended: Project, patterns: tuple[str, ...] | None, shown: list[str]
) -> None:
    person = Person("ada", slides=patterns)

    assert attended_of(SlideCache(attended), Visibility(person), SLIDE_ID) == shown


def test_who_still_reads_a_slide_of_the_patient_is_shown_nothing_of_a_model_that_saw_it(attended: Project) -> None:
    cache, blinded = SlideCache(attended), Blinded("readers", "r1 reads for study readers")

    assert Visibility(Person()).attention_of(cache, SLIDE_ID) == [SLIDE_MODEL]
    assert Visibility(Person(), hidden={SLIDE_ID: blinded}).attention_of(cache, SLIDE_ID) == []
    assert Visibility(Person(), hidden={OTHER: blinded}).attention_of(cache, SLIDE_ID) == [], "the same prediction"
    assert Visibility(Person(), blinded, read=frozenset({SLIDE_ID})).attention_of(cache, SLIDE_ID) == []
    both = frozenset({SLIDE_ID, OTHER})
    assert Visibility(Person(), blinded, read=both).attention_of(cache, SLIDE_ID) == [SLIDE_MODEL]
    helped = Blinded("readers", "with help", is_helped=True)
    assert Visibility(Person(), hidden=dict.fromkeys(both, helped)).attention_of(cache, SLIDE_ID) == [SLIDE_MODEL]


def test_a_link_to_attention_is_refused_while_another_slide_of_the_patient_is_read(
    project: Project, tmp_path: Path
) -> None:
    make_reading_study(project, tmp_path, slides=2, readers=["r1"], adjudicators=[])
    copied = Project(tmp_path)
    with open_ledger(copied) as ledger:
        readings = of_study(ledger)
        done = read_one(readings, "r1", "benign")
        due = readings.next_of("r1")
        readings.start("r1", due.session, due.position)
        cache, url = SlideCache(copied), f"/overlays/{done}/{SLIDE_MODEL}/attention.png"
        try:
            write_small_attention(copied, done, slides=(done,))
            assert get(cache, url).status_code == 200, "of the slide alone, which has been read"
            write_small_attention(copied, done, slides=(done, due.slide_id))
            answer = get(cache, url)
            assert (answer.status_code, answer.json()["code"]) == (403, "blinded")
            assert due.slide_id in answer.json()["message"]
            read_one(readings, "r1", "benign")
            assert get(cache, url).status_code == 200
        finally:
            close_study_ledgers()

"""Slides that a patient is predicted from, when some could not be embedded."""

import pytest

from pipeline.run_record import SlideOutcome
from pipeline.verbs.slide_level.infer_slides import usable_slides

BLANK = SlideOutcome("blank", "no_tissue", code="no_tissue")
BROKEN = SlideOutcome("broken", "unreadable", code="corrupt_tile")
COARSE = SlideOutcome("coarse", "refused", code="bad_recipe")
NOT_EMBEDDED = {outcome.slide_id: outcome for outcome in (BLANK, BROKEN, COARSE)}


@pytest.mark.parametrize(
    ("slides", "usable", "fault"),
    [
        (["a", "b"], ("a", "b"), None),
        (["a", "blank"], ("a",), None),
        (["blank"], (), BLANK),
        (["a", "broken"], ("a",), BROKEN),
        (["a", "blank", "coarse", "broken"], ("a",), COARSE),
    ],
)
def test_a_blank_slide_is_left_out_and_any_other_fault_keeps_the_patient_from_being_predicted(slides, usable, fault):
    assert usable_slides(slides, NOT_EMBEDDED) == (usable, fault)

"""Acts of people in the web app, and the right that each act requires: one table, checked by the function that performs
the act.

Leaving a form out of a page protects nothing, since any client can send over the page's WebSocket what the form would
send. `Readings` checks in addition that the study's protocol lists the reader or adjudicator.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pathology_app.people.person import Action, Person, require


class Act(StrEnum):
    """Act of a person. Each is performed by one function, in the module named in the comments of `RIGHTS`."""

    START_READING = "start reading"
    ANSWER = "answer"
    SIGN = "sign"
    START_DECIDING = "start deciding"
    DECIDE = "decide"
    SIGN_DECISION = "sign a decision"
    LAY_OUT = "lay out readings"
    GIVE_DISAGREEMENTS = "give disagreements to adjudicators"
    RETRY = "retry slides"
    PAUSE = "pause a study"
    RESUME = "resume a study"
    START_RUN = "start a run"
    STOP_RUN = "stop a run"
    REVIEW = "review a slide"
    JUDGE = "judge hotspots"
    NOTE_LOOKS = "note what was looked at"
    ANNOTATE = "annotate"
    REGISTER = "register slides"
    IMPORT = "import annotations"
    EXPORT_RESULTS = "export results"
    EXPORT_ANNOTATIONS = "export annotations"
    SEE_LOG = "see the log"
    VERIFY_LOG = "verify the log"


RIGHTS: Mapping[Act, Action] = {
    # readings/acts.py
    Act.START_READING: Action.READ,
    Act.ANSWER: Action.READ,
    Act.SIGN: Action.READ,
    Act.START_DECIDING: Action.ADJUDICATE,
    Act.DECIDE: Action.ADJUDICATE,
    Act.SIGN_DECISION: Action.ADJUDICATE,
    Act.LAY_OUT: Action.COORDINATE,
    Act.GIVE_DISAGREEMENTS: Action.COORDINATE,
    # app_pages/studies/acts.py
    Act.RETRY: Action.COORDINATE,
    Act.PAUSE: Action.COORDINATE,
    Act.RESUME: Action.COORDINATE,
    Act.REVIEW: Action.ANNOTATE,
    # app_pages/runs/acts.py
    Act.START_RUN: Action.RUN,
    Act.STOP_RUN: Action.RUN,
    # tiles/review_routes.py
    Act.JUDGE: Action.ANNOTATE,
    Act.NOTE_LOOKS: Action.LOOK,
    # registering/routes.py
    Act.REGISTER: Action.ANNOTATE,
    # annotating/routes.py
    Act.ANNOTATE: Action.ANNOTATE,
    Act.IMPORT: Action.ANNOTATE,
    Act.EXPORT_ANNOTATIONS: Action.EXPORT,
    # tiles/exports.py
    Act.EXPORT_RESULTS: Action.EXPORT,
    # app_pages/log/
    Act.SEE_LOG: Action.ADMINISTER,
    Act.VERIFY_LOG: Action.ADMINISTER,
}


def check_act(person: Person, act: Act) -> None:
    """Raises ForbiddenError if a person may not perform an act."""
    require(person, RIGHTS[act])

"""Questions that end with a signature: typed answers survive a reload, and the form is signed as it was shown.

They are drawn in the browser (frontend/src/reading/form.ts): a Streamlit field sends nothing to the server until it
loses focus.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from pathology_app.html.text import READ_ERRORS, message_of
from pathology_app.project.served import served_project
from pathology_app.viewer.component import signed_form
from pipeline.errors import BadManifestError
from pipeline.study import Answer

Answers = dict[str, Answer]


@dataclass(frozen=True)
class DraftPlace:
    """Where the browser's copy of typed answers is found again, and by whom.

    Attributes:
        owner: from `draft_owner`; nobody else is shown the answers.
        title: of the form, for the list at sign-out.
        query: of the page with the form.
    """

    owner: str
    title: str
    query: Mapping[str, str]


@dataclass(frozen=True)
class SignedForm:
    """A form of one page.

    Attributes:
        place: identifies the form among all that the browser has seen (`place_of`).
        questions: from `reading_rows.question_data`.
        draft: whose form it is, and where it is found again.
        answers: those known to the server.
        others: readers' answers to decide between (`reading_rows.others_data`); empty if they may not be seen.
    """

    key: str
    place: str
    questions: Sequence[Mapping[str, Any]]
    draft: DraftPlace
    answers: Mapping[str, Answer] = field(default_factory=dict)
    button: str = "Sign"
    others: Sequence[Mapping[str, Any]] = ()

    def draw(self, *, on_sign: Callable[[Answers], None], on_keep: Callable[[Answers], None] | None = None) -> None:
        """Draw the form. An error appears in it, next to the typed answers.

        Args:
            on_sign, on_keep: called with the answers; their errors are shown. Without `on_keep`, only the browser
                keeps the typed answers until they are signed.
        """
        keep = on_keep or (lambda _: None)
        data = {
            "place": self.place,
            "questions": list(self.questions),
            "answers": dict(self.answers),
            "wrong": st.session_state.pop(self._wrong, None),
            "signs": st.session_state.get(self._signs, 0),
            "keeps": on_keep is not None,
            "button": self.button,
            "others": list(self.others),
            "draft": {"owner": self.draft.owner, "title": self.draft.title, "link": f"?{urlencode(self.draft.query)}"},
        }
        signed_form(
            data,
            key=self.key,
            on_keep=lambda sent: self._do(keep, sent),
            on_sign=lambda sent: self._do(on_sign, sent, is_signature=True),
        )

    @property
    def _wrong(self) -> str:
        return f"{self.key} wrong"

    @property
    def _signs(self) -> str:
        return f"{self.key} signs"

    def _do(self, work: Callable[[Answers], None], sent: object, *, is_signature: bool = False) -> None:
        st.session_state[self._signs] = st.session_state.get(self._signs, 0) + is_signature
        try:
            work(answers_in(sent, self.place))
        except READ_ERRORS as error:
            st.session_state[self._wrong] = message_of(error, served_project().root)


def place_of(*parts: object) -> str:
    """Identifier of a form: the same for the same parts in the same project."""
    text = "\n".join(map(str, (served_project().root, *parts)))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def answers_in(sent: object, place: str) -> Answers:
    """Answers sent by a browser. The caller must check each of them against its question.

    Raises:
        BadManifestError: no answers, or answers to a form other than the one that is open.
    """
    values = sent.get("answers") if isinstance(sent, Mapping) else None
    if not isinstance(sent, Mapping) or not isinstance(values, Mapping):
        raise BadManifestError("The form was sent without answers. Reload the page.")
    if sent.get("place") != place:
        raise BadManifestError("A different reading is open now. Reload the page.")
    answers: Answers = {}
    for name, value in values.items():
        if not isinstance(value, str | int | float):
            raise BadManifestError(f"question {name!r:.100}: {value!r:.100} is not an answer.")
        answers[str(name)] = value
    return answers

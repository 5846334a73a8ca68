"""Questions that end with a signature: what is typed survives a reload, and what is signed is what was shown.

They are drawn in the browser (frontend/src/reading/form.ts): a field of Streamlit's tells the server nothing before
it is left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from pathology_app.html.text import READ_ERRORS, message_of
from pathology_app.project.served import served_project
from pathology_app.viewer.component import signed_form
from pipeline.errors import BadManifestError
from pipeline.study import Answer

Answers = dict[str, Answer]


@dataclass(frozen=True)
class SignedForm:
    """A form of one page.

    Attributes:
        place: names what is answered, among all that the browser has seen (`place_of`).
        questions: as `reading_rows.question_data` makes them.
        answers: those that the server knows.
    """

    key: str
    place: str
    questions: Sequence[Mapping[str, Any]]
    answers: Mapping[str, Answer] = field(default_factory=dict)
    button: str = "Sign"

    def draw(self, *, on_sign: Callable[[Answers], None], on_keep: Callable[[Answers], None] | None = None) -> None:
        """Draw the form. An error appears in it, beside what was typed.

        Args:
            on_sign, on_keep: called with the answers; what they raise is said. Without `on_keep`, the browser alone
                keeps what was typed until it is signed.
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
        }
        signed_form(
            data,
            key=self.key,
            on_keep=lambda said: self._do(keep, said),
            on_sign=lambda said: self._do(on_sign, said, is_signature=True),
        )

    @property
    def _wrong(self) -> str:
        return f"{self.key} wrong"

    @property
    def _signs(self) -> str:
        return f"{self.key} signs"

    def _do(self, work: Callable[[Answers], None], said: object, *, is_signature: bool = False) -> None:
        st.session_state[self._signs] = st.session_state.get(self._signs, 0) + is_signature
        try:
            work(answers_in(said, self.place))
        except READ_ERRORS as error:
            st.session_state[self._wrong] = message_of(error, served_project().root)


def place_of(*parts: object) -> str:
    """A name for what is answered: of the same parts, in the same project, the same."""
    text = "\n".join(map(str, (served_project().root, *parts)))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def answers_in(said: object, place: str) -> Answers:
    """Answers that a browser sends. The caller must check each of them against its question.

    Raises:
        BadManifestError: no answers, or those to another form than the one that is open.
    """
    found = said.get("answers") if isinstance(said, Mapping) else None
    if not isinstance(said, Mapping) or not isinstance(found, Mapping):
        raise BadManifestError("What was sent holds no answers. Reload the page.")
    if said.get("place") != place:
        raise BadManifestError("Another reading is open by now than the one that was answered. Reload the page.")
    answers: Answers = {}
    for name, value in found.items():
        if not isinstance(value, str | int | float):
            raise BadManifestError(f"question {name!r:.100}: {value!r:.100} is no answer.")
        answers[str(name)] = value
    return answers

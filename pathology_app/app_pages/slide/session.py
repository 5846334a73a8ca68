"""Typed state that one browser tab keeps between reruns."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

_KEY = "slide_session"


@dataclass
class SlideSession:
    """State of the slide page for one slide and model."""

    slide_id: str
    model_id: str | None
    goto_id: int = 0
    """Number of jumps requested: the viewer moves when it changes."""
    goto_hotspot: int = 0
    probe_xy_px0: tuple[int, int] | None = None
    """The last point clicked."""

    def go_to(self, hotspot: int) -> None:
        """Ask the viewer to show a hotspot."""
        self.goto_id += 1
        self.goto_hotspot = hotspot


def slide_session(slide_id: str, model_id: str | None) -> SlideSession:
    """The session of the slide shown; a new one when slide or model has changed."""
    state = st.session_state.get(_KEY)
    if not isinstance(state, SlideSession) or (state.slide_id, state.model_id) != (slide_id, model_id):
        state = SlideSession(slide_id, model_id)
        st.session_state[_KEY] = state
    return state

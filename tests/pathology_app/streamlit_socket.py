"""Streamlit's WebSocket without a browser: run a page, read what it draws, and send what a browser might."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from websockets.sync.client import ClientConnection, connect

from tests.pathology_app.started_app import StartedApp


class Tab:
    """One tab of a browser."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.heard = bytearray()
        """All bytes received."""
        self.fragments: set[str] = set()
        """Parts of the page that can run separately."""

    def run(self, query: str, widgets: list[WidgetState] | None = None, *, fragment_id: str = "") -> list[Any]:
        """Run the script, or one of its fragments; return Streamlit's elements."""
        states = WidgetStates(widgets=widgets or [])
        state = ClientState(query_string=query, widget_states=states, fragment_id=fragment_id)
        self._socket.send(BackMsg(rerun_script=state).SerializeToString())
        drawn = []
        ends = time.monotonic() + 30
        while time.monotonic() < ends:
            frame = self._socket.recv(timeout=30)
            assert isinstance(frame, bytes)
            self.heard += frame
            message = ForwardMsg.FromString(frame)
            if message.WhichOneof("type") == "delta" and message.delta.fragment_id:
                self.fragments.add(message.delta.fragment_id)
            if message.WhichOneof("type") == "delta" and message.delta.WhichOneof("type") == "new_element":
                drawn.append(message.delta.new_element)
            if message.WhichOneof("type") == "script_finished":
                return drawn
        raise AssertionError("the script did not end")


@contextmanager
def tab(app: StartedApp, cookie: str, **headers: str) -> Iterator[Tab]:
    """Open a tab with a session."""
    given = {"Cookie": cookie, "Origin": app.url, **headers}
    with connect(
        f"ws://{app.name}:{app.port}/_stcore/stream",
        additional_headers=given,
        subprotocols=["streamlit"],  # type: ignore[list-item]
        max_size=None,
    ) as socket:
        yield Tab(socket)


def texts(drawn: list[Any]) -> str:
    """All readable text."""
    return "\n".join(str(element) for element in drawn)


def form_of(drawn: list[Any], label: str) -> list[WidgetState]:
    """Widget states that a browser sends when the form with this button is filled in and submitted."""
    button = next(
        element.button for element in drawn if element.WhichOneof("type") == "button" and element.button.label == label
    )
    states = [WidgetState(id=button.id, trigger_value=True)]
    for element in drawn:
        if element.WhichOneof("type") == "text_input" and element.text_input.form_id == button.form_id:
            states.append(WidgetState(id=element.text_input.id, string_value="because"))
    return states


def signed_form_of(drawn: list[Any], **answers: Any) -> list[WidgetState]:
    """Widget states that a browser sends when the page's signed form (app_pages/signed_form.py) is signed."""
    form = next(
        component for component in components_of(drawn) if component.component_name.endswith("gemslide_questions")
    )
    answer = {"place": json.loads(form.json)["place"], "answers": answers}
    return [WidgetState(id=form.id, json_value="{}"), trigger_of(form, "sign", answer)]


def components_of(drawn: list[Any]) -> list[Any]:
    """Our own components on the page."""
    return [element.bidi_component for element in drawn if element.WhichOneof("type") == "bidi_component"]


def trigger_of(component: Any, event: str, value: object) -> WidgetState:
    """Widget state that a browser sends for an event in a component."""
    events = f"$$STREAMLIT_INTERNAL_KEY_{component.id}__events"
    return WidgetState(id=events, json_trigger_value=json.dumps([{"event": event, "value": value}]))

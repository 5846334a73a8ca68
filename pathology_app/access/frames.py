"""Messages between pages and Streamlit: the script's path on this computer is removed, and messages caused by a person
are distinguished from those that a page sends by itself."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.message import DecodeError
from starlette.types import Message, Send
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg


def without_script_path(send: Send, script: Path) -> Send:
    """`send` of a WebSocket, with the script's name in place of its path."""
    path = str(script).encode()

    async def guarded(message: Message) -> None:
        data = message.get("bytes")
        if data and path in data:
            message["bytes"] = _renamed(data, script)
        await send(message)

    return guarded


def _renamed(data: bytes, script: Path) -> bytes:
    forward = ForwardMsg.FromString(data)
    if forward.WhichOneof("type") == "new_session":
        forward.new_session.main_script_path = script.name
    renamed: bytes = forward.SerializeToString()
    return renamed


def is_by_hand(message: Message) -> bool:
    """Whether a browser's message comes from a person's action, not from a page that refreshes itself."""
    if message["type"] != "websocket.receive" or not (data := message.get("bytes")):
        return False
    try:
        back = BackMsg.FromString(data)
    except DecodeError:
        return False
    return back.WhichOneof("type") == "rerun_script" and not back.rerun_script.is_auto_rerun

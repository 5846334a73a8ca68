"""Streamlit tells every browser where its script lies on this computer. Nobody there needs to know."""

from __future__ import annotations

from pathlib import Path

from starlette.types import Message, Send
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

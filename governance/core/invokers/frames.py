"""The wire format between a worker process and its invoker: JSON objects, each prefixed with its length.

The objects are JSON rather than pickle, because a tool's output may be hostile.
"""

import asyncio
import json
import socket
import struct
from typing import Any

Frame = dict[str, Any]

TAG_NAME = "TURNKEEPER_WORKER"  # in the environment of a worker and of its children
HEADER = struct.Struct("!I")
DEFAULT_RESULT_LIMIT = 4_000_000
ENVELOPE = 500_000  # bytes for the frame around a result, and for a traceback or a piece of output


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


class FrameError(Exception):
    """The received bytes are not a frame."""


class FrameTooLarge(Exception):
    """The frame to send exceeds the limit."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"{size} bytes, limit {limit}")
        self.size = size
        self.limit = limit


def to_json(value: Any) -> bytes:
    """Return `value` as strict JSON. Raise `TypeError` or `ValueError` if it has no JSON form (including NaN)."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return text.encode(errors="replace")  # a lone surrogate cannot be encoded


def pack(frame: Frame, *, limit: int) -> bytes:
    """Return the bytes of a frame. Raise `FrameTooLarge`, or the errors of `to_json`."""
    body = to_json(frame)
    if len(body) > limit:
        raise FrameTooLarge(len(body), limit)
    return HEADER.pack(len(body)) + body


def body_size(header: bytes, *, limit: int) -> int:
    """Return the length of the body. Raise `FrameError` if it exceeds the limit."""
    size: int = HEADER.unpack(header)[0]
    if size > limit:
        raise FrameError(f"a frame of {size} bytes")
    return size


def unpack(body: bytes) -> Frame:
    try:
        frame = _DECODER.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise FrameError("what is no JSON") from error
    if not isinstance(frame, dict):
        raise FrameError("what is no frame")
    return frame


async def receive(reader: asyncio.StreamReader, *, limit: int) -> Frame:
    """Read the next frame in the server. Raise `FrameError`, or `IncompleteReadError` at the end of the stream."""
    size = body_size(await reader.readexactly(HEADER.size), limit=limit)
    return unpack(await reader.readexactly(size))


def receive_blocking(connection: socket.socket) -> Frame | None:
    """Read the next frame in a worker. Return None at the end of the stream."""
    header = _read(connection, HEADER.size)
    body = header and _read(connection, HEADER.unpack(header)[0])
    return unpack(body) if body else None


def _read(connection: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(min(size - len(received), 1 << 20))
        if not piece:
            return None
        received += piece
    return bytes(received)

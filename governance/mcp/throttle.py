"""Slows down reading an endless stream, so that one server does not occupy the event loop."""

import asyncio

from governance.mcp.specs import McpTiming

_BURST = 10.0  # seconds of reading that are allowed without a pause; the longest message uses all of them
_LINES = 5  # how many lines one message may take in a stream, with a margin


class Throttle:
    """Limits the rate at which a stream is read, in bytes and in lines, because even empty lines take time."""

    def __init__(self, timing: McpTiming) -> None:
        self._seconds_per_byte = _BURST / timing.longest_message
        self._seconds_per_line = 1 / (_LINES * timing.messages_per_second)
        self._paid_until = 0.0

    async def wait_after(self, piece: bytes) -> None:
        """Wait until more may be read after `piece`."""
        now = asyncio.get_running_loop().time()
        lines = max(piece.count(b"\n"), piece.count(b"\r"))
        cost = max(len(piece) * self._seconds_per_byte, lines * self._seconds_per_line)
        self._paid_until = max(self._paid_until, now - _BURST) + cost
        if self._paid_until > now:
            await asyncio.sleep(self._paid_until - now)

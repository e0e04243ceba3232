"""An MCP server over HTTP, byte by byte, whose answers to calls are as odd as its `habit` says."""

import gzip
import json
import math

from tests.tcp_server import TcpServer

VERSION = "2025-06-18"
_HALF = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{"
ODD_ANSWERS = {
    "fails": (b"<html>a proxy</html>", {"status": "502 Bad Gateway"}),
    "unauthorised": (b"who are you?", {"status": "401 Unauthorized"}),
    "busy": (b"not now", {"status": "429 Too Many Requests"}),
    "page": (b"<html>please sign in</html>", {"content-type": "text/html"}),
    "nonsense": (b"[42]", {}),
    "forwards": (b"", {"status": "307 T", "location": "http://169.254.169.254/"}),
    "falls silent": (b": wait\n\n", {"content-type": "text/event-stream"}),
}
# What it sends before the answer to a call.
MESSAGES_BEFORE = {
    "changes its list": {"method": "notifications/tools/list_changed"},
    "asks back": {"method": "ping", "id": 77},
}
BOMB = gzip.compress(b" " * 30_000_000)


class OddServer(TcpServer):
    """Listens on loopback while it is entered. What it is asked while it `is_hung` is never answered; `asked` is all."""

    def __init__(self, habit):
        super().__init__()
        self.habit = habit
        self.is_hung = False
        self.asked = []
        self._waiting = []

    def answer_waiting(self):
        """Answer what was asked while the habit was to wait."""
        for writer, id in self._waiting:
            _result(writer, id, content=[{"type": "text", "text": "fine"}])

    def stop_listening(self):
        """Take no new connection, and leave only those that wait for an answer."""
        self._server.close()
        waiting = [writer for writer, _ in self._waiting]
        for writer in self._open.values():
            if writer not in waiting:
                writer.transport.abort()

    @property
    def url(self):
        return f"http://{self.address}/mcp"

    async def _talk(self, reader, writer):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            lengths = [line for line in head.split("\r\n") if line.startswith("content-length")]
            size = int(lengths[0].partition(":")[2]) if lengths else 0
            message = json.loads(await reader.readexactly(size) or b"{}")
            self.asked.append(message.get("method"))
            if not self.is_hung:
                self._answer(writer, message)
            await writer.drain()

    def _answer(self, writer, message):
        method, id = message.get("method"), message.get("id")
        if method == "initialize" and self.habit == "bomb":
            _send(writer, BOMB, **{"content-encoding": "gzip"})
        elif method == "initialize":
            about = {"name": "odd", "version": "1"}
            _result(writer, id, protocolVersion=VERSION, capabilities={}, serverInfo=about)
        elif method == "tools/list":
            _result(writer, id, tools=[{"name": "tool", "inputSchema": {"type": "object"}}])
        elif method == "tools/call":
            self._call(writer, id)
        elif id is not None:
            _error(writer, id, -32601, "Method not found")
        else:
            _send(writer, b"", status="202 Accepted" if method else "405 Method Not Allowed")

    def _begin_session(self, writer, id, result):
        body = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()
        _send(writer, body, **{"mcp-session-id": "1"})

    def _call(self, writer, id):
        if self.habit in MESSAGES_BEFORE:
            self.is_hung = True
            _events(writer, {**MESSAGES_BEFORE[self.habit], "jsonrpc": "2.0"}, _fine(id))
            return
        if self.habit in ODD_ANSWERS:
            body, more = ODD_ANSWERS[self.habit]
            _send(writer, body, **more)
            return
        match self.habit:
            case "refuses":
                _error(writer, id, -32602, "There is no such tool here")
            case "breaks":
                writer.transport.abort()
            case "stops halfway":
                writer.write(_HALF)
                writer.transport.close()
            case "has no number":
                _result(writer, id, content=[], structuredContent={"x": math.nan})
            case "waits":
                self._waiting.append((writer, id))
            case _:
                _result(writer, id, content=[{"type": "text", "text": "fine"}])


def _fine(id):
    return {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "fine"}]}}


def _events(writer, *messages):
    body = "".join(f"data: {json.dumps(message)}\n\n" for message in messages)
    _send(writer, body.encode(), **{"content-type": "text/event-stream"})


def _result(writer, id, **result):
    _send(writer, json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode())


def _error(writer, id, code, words):
    error = {"code": code, "message": words}
    _send(writer, json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode())


def _send(writer, body, *, status="200 OK", **headers):
    headers = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body)

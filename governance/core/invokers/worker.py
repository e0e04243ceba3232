"""The worker process, which runs one call and sends the result to the server (T8).

The tool receives a context of the same class as in the server, but its requests are sent over the connection. What the
tool prints is written to the server's stderr, up to a limit.
"""

import _thread
import asyncio
import base64
import importlib
import inspect
import io
import math
import os
import signal
import socket
import sys
import threading
import time
import traceback
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from governance.core.calls import Progress
from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Callback, Cancellation, CancellationToken, Cancelled
from governance.core.exceptions import ToolFailed
from governance.core.excerpts import excerpt, shortened
from governance.core.images import not_shown
from governance.core.invokers import frames
from governance.core.results import Writer
from governance.core.tools import Tool, ToolContext, UnknownUsers, Users

Send = Callable[[dict[str, Any]], None]

_LONGEST_MESSAGE = 2_000
_LONGEST_TRACEBACK = 20_000
_MOST_PRINTED = 64_000  # bytes
_DROPPED = b"\n[the rest of this call's output was dropped]\n"
_REPORTS_PER_SECOND = 20.0
_BURST = 10.0
_LONGEST_OUTPUT = 64_000  # characters in one report


class Refused(Exception):
    """The call cannot be made, or its result cannot be sent. `code` is one of the codes of `CallRefused`."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class Worker:
    """The runner of the call that arrives over a connection."""

    def __init__(
        self, connection: socket.socket, *, result_limit: int, users: Users | None
    ) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._result_limit = result_limit
        self._users = users or UnknownUsers()
        self._pid = os.getpid()
        self._token = WorkerToken()

    def answer(self, call: frames.Frame) -> None:
        """Run the call and send its answer."""
        self._send(self._answer(call))

    def _answer(self, call: frames.Frame) -> frames.Frame:
        try:
            value = self._run(call)
            return {"kind": "result", "value": _checked(value, limit=self._result_limit)}
        except Refused as refused:
            return {"kind": "refused", "code": refused.code, "detail": _text(refused)}
        except ToolFailed as failed:
            return {"kind": "failed", "message": _text(failed)}
        except BaseException as error:  # noqa: BLE001 - a tool's SystemExit must not end the worker
            return _describe(error)

    def _run(self, call: frames.Frame) -> Any:
        reports = Reports(
            lambda report: self._send({**report, "kind": "progress"}),
            max_output=self._result_limit,
        )
        function = _resolve(call["function"])
        keywords = _typed(function, call["arguments"])
        if (parameter := _context_parameter(function)) is not None:
            keywords[parameter] = make_context(
                call["call"],
                call["context"],
                token=self._token,
                reports=reports,
                users=self._users,
                show=self._show,
                still_mine=self._still_mine,
            )
        signal.signal(signal.SIGTERM, self._on_terminate if parameter else signal.SIG_DFL)
        try:
            return Writer(limit=call["limit"]).as_json(function(**keywords))
        finally:
            moment = time.monotonic()
            if os.getpid() != self._pid:
                os._exit(0)  # this is a child that the tool forked, and it must not send an answer
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            reports.close()
            # This is sent before the answer, because a long answer may arrive only after the limit.
            self._send({"kind": "returned", "at": moment})

    def _show(self, content: bytes, name: str) -> str:
        """Send an image to the server. Return the line for the result. Raise `Cancelled` if the call ends first."""
        encoded = base64.b64encode(content).decode()
        try:
            answer = self._ask({"kind": "image", "name": name, "content": encoded})
        except frames.FrameTooLarge:
            return not_shown(content, "It is too large to leave its worker process.")
        if answer is None:  # the server sends no more answers to a worker that it is ending
            raise Cancelled(Cancellation(reason=CancelReason.PARENT))
        line: str = answer["line"]
        return line

    def _still_mine(self) -> bool:
        """Ask the server whether it still owns the call. Return False if the server has closed the connection."""
        answer = self._ask({"kind": "owner"})
        return answer is not None and bool(answer["is_mine"])

    def _ask(self, question: frames.Frame) -> frames.Frame | None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "A worker asks the server from the thread in which it runs the tool."
            )
        self._send(question)
        return frames.receive_blocking(self._connection)

    def _send(self, frame: frames.Frame) -> None:
        packed = frames.pack(frame, limit=self._result_limit + frames.ENVELOPE)
        with self._sending:  # another thread may send a report concurrently
            self._connection.sendall(packed)

    def _on_terminate(self, number: int, _: FrameType | None) -> None:
        if not self._token.is_watched:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._token.request()


def work(connection: socket.socket, settings: Mapping[str, Any]) -> None:
    """Report that the worker is ready, run one call, and wait until the server has read the answer."""
    output = redirect_output()
    # An event loop created before the fork would be shared with other workers.
    asyncio.set_event_loop(asyncio.new_event_loop())
    hello, _ = called(settings["initializer"], *settings["initializer_arguments"])
    worker_users: Users | None = None
    if hello["kind"] == "ready":
        hello, worker_users = called(settings["users"])
    connection.sendall(frames.pack(hello, limit=frames.ENVELOPE))
    if hello["kind"] == "ready" and (call := frames.receive_blocking(connection)):
        Worker(connection, result_limit=settings["result_limit"], users=worker_users).answer(call)
        output.flush()
        connection.recv(1)


def called(name: str | None, *arguments: Any) -> tuple[frames.Frame, Any]:
    """Call the function `name` ("module:function"), if any.

    Return a frame that reports success or failure, and the function's value.
    """
    try:
        return {"kind": "ready"}, name and _resolve(name)(*arguments)
    except BaseException as error:  # noqa: BLE001 - every error is reported to the server
        return _describe(error), None


def _resolve(name: str) -> Callable[..., Any]:
    module, _, path = name.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in path.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise Refused("not_importable", f"{name}: {error}") from error
    if not callable(target) or inspect.iscoroutinefunction(target):
        raise Refused("not_importable", f"{name} is not a plain function")
    function: Callable[..., Any] = target
    return function


def _context_parameter(function: Callable[..., Any]) -> str | None:
    """Return the name of the parameter that is annotated as `ToolContext`, or else that is named `context`."""
    try:
        hints = typing.get_type_hints(function)
        names = inspect.signature(function).parameters
    except (TypeError, ValueError, NameError):  # a C function, or unreadable type hints
        return None
    by_class = (name for name in names if hints.get(name) is ToolContext)
    return next(by_class, "context" if "context" in names else None)


def _typed(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Restore the types that the arguments of a declared tool lost in JSON, such as dates, paths and enums."""
    tool = getattr(function, "tool", None)
    return tool.validate(arguments) if isinstance(tool, Tool) else arguments


def _checked(value: Any, *, limit: int) -> Any:
    try:
        size = len(frames.to_json(value))
    except (TypeError, ValueError) as error:
        raise Refused("not_json", f"{type(value).__name__}: {error}") from error
    if size > limit:
        raise Refused("too_large", f"{size} bytes, limit {limit}")
    return value


def _describe(error: BaseException) -> frames.Frame:
    return {
        "kind": "raised",
        "type_name": type(error).__name__[:100],
        "message": _text(error),
        "traceback": "".join(traceback.format_exception(error))[-_LONGEST_TRACEBACK:],
    }


def _text(error: BaseException) -> str:
    try:
        return excerpt(str(error), limit=_LONGEST_MESSAGE)
    except Exception:  # noqa: BLE001 - the text of a tool's exception may raise an error too
        return ""


class BoundedOutput(io.RawIOBase):
    """A stream that passes on a limited amount of output, so that a flood of prints cannot fill the server's log."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.left = _MOST_PRINTED

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """Return the descriptor of stdout for child processes of the tool, whose output is discarded."""
        return 1

    def write(self, content: "bytes | memoryview") -> int:  # type: ignore[override]  # io asks for Buffer, 3.12
        """Write output until the limit is reached, and then a single note that the rest was dropped."""
        if self.left > 0:
            os.write(self._target, bytes(content[: self.left]))
            self.left -= len(content)
            if self.left <= 0:
                os.write(self._target, _DROPPED)
        return len(content)


class _Text(io.TextIOWrapper):
    """A text stream that drops output beyond the limit before encoding it, so that a flood of prints costs little."""

    def __init__(self, output: BoundedOutput) -> None:
        raw: io.RawIOBase = output
        super().__init__(
            io.BufferedWriter(raw),
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=True,
        )
        self._output = output

    def write(self, text: str, /) -> int:
        return super().write(text) if self._output.left > 0 else len(text)


def redirect_output() -> io.TextIOWrapper:
    """Redirect stdout and stderr of this process to a bounded stream. Direct writes to the descriptors are dropped."""
    output = BoundedOutput(os.dup(2))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.close(silence)
    text = _Text(output)
    sys.stdout = sys.stderr = text
    return text


class WorkerToken(CancellationToken):
    """The token of a call in a worker, which SIGTERM cancels.

    A tool that uses the token in any way is considered cooperative and has the grace period to finish. Other tools are
    ended immediately.
    """

    __slots__ = ("is_watched",)

    def __init__(self) -> None:
        super().__init__()
        self.is_watched = False

    @property
    def cancellation(self) -> Cancellation | None:
        """The cancel request, without its real reason, which only the server knows."""
        self.is_watched = True
        return super().cancellation

    @property
    def is_cancelled(self) -> bool:
        self.is_watched = True
        return super().is_cancelled

    def raise_if_cancelled(self) -> None:
        self.is_watched = True
        super().raise_if_cancelled()

    def on_cancel(self, callback: Callback) -> Callable[[], None]:
        """Call `callback` in a separate thread when the call is cancelled."""
        self.is_watched = True
        return super().on_cancel(callback)

    def request(self) -> None:
        """Handle SIGTERM in another thread, because the interrupted one may hold the token's lock."""
        cancellation = Cancellation(reason=CancelReason.PARENT, note="SIGTERM")
        _thread.start_new_thread(self.cancel, (cancellation,))


def make_context(
    call_id: str,
    facts: Mapping[str, Any],
    *,
    token: WorkerToken,
    reports: "Reports",
    users: Users,
    show: Callable[[bytes, str], str],
    still_mine: Callable[[], bool],
) -> ToolContext:
    """Return the context of a call with the `facts` that the invoker has sent."""
    workspace, user_id = facts.get("workspace"), facts.get("user_id")
    return ToolContext(
        call_id=call_id,
        tool_name=facts.get("tool_name", ""),
        scope=facts.get("scope", ""),
        token=token,
        report=reports.add,
        workspace=Path(workspace) if workspace else None,
        metadata=facts.get("metadata", {}),
        user_id=None if user_id is None else users.typed(user_id),
        agent=facts.get("agent", ""),
        depth=facts.get("depth", 0),
        users=users,
        show_blocking=show,
        ask_owner_blocking=still_mine,
    )


class Reports:
    """A sender of progress reports at a limited rate.

    Reports between two sends are merged: only the newest message is sent, but all the output, up to `max_output`
    characters per call.
    """

    def __init__(self, send: Send, *, max_output: int) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._pending: dict[str, Any] = {}
        self._output: list[str] = []
        self._held = 0
        self._output_left = max_output
        self._tokens = _BURST
        self._counted_at = time.monotonic()
        self._timer: threading.Timer | None = None
        self._is_due = False
        self._is_closed = False

    def add(self, report: Progress) -> None:
        """Send the report, immediately or with the next batch. This may be called from any thread."""
        with self._lock:
            if self._is_closed:
                return
            self._note(report)
            if self._held >= _LONGEST_OUTPUT or self._take_token():
                self._flush()
            elif self._timer is None:
                self._start_timer()

    def close(self) -> None:
        """Send the pending reports. Later reports, which leftover threads may make, are dropped."""
        with self._lock:
            self._is_closed = True
            self._flush()

    def _note(self, report: Progress) -> None:
        if report.message:
            self._pending["message"] = shortened(str(report.message), limit=_LONGEST_MESSAGE)
        for name, number in (("progress", report.progress), ("total", report.total)):
            if number is not None and math.isfinite(number):
                self._pending[name] = float(number)
        output = str(report.output or "")[: self._output_left]
        self._output_left -= len(output)
        self._output.append(output)
        self._held += len(output)
        self._is_due = True

    def _take_token(self) -> bool:
        now = time.monotonic()
        self._tokens = min(_BURST, self._tokens + (now - self._counted_at) * _REPORTS_PER_SECOND)
        self._counted_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _start_timer(self) -> None:
        self._timer = threading.Timer(1 / _REPORTS_PER_SECOND, self._flush_late)
        self._timer.daemon = True
        # If the timer's thread received a SIGTERM, that would not wake the main thread from a sleep or a read.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._timer.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _flush_late(self) -> None:
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_due:
            return
        pending, output = self._pending, "".join(self._output)
        self._pending, self._output, self._held, self._is_due = {}, [], 0, False
        while len(output) > _LONGEST_OUTPUT:
            self._send({"output": output[:_LONGEST_OUTPUT]})
            output = output[_LONGEST_OUTPUT:]
        self._send({**pending, "output": output})

"""The main program of a worker process: takes one call after the other and answers each (T8).

Started as `python -m governance.core.invokers.worker <connection> <lifeline> <parent>` by `WorkerConnection`.
"""

import base64
import importlib
import inspect
import os
import signal
import socket
import sys
import threading
import time
import traceback
import typing
from collections.abc import Callable
from types import FrameType
from typing import Any

from governance.core import procfs
from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation, Cancelled
from governance.core.exceptions import ToolFailed
from governance.core.excerpts import excerpt
from governance.core.images import not_shown
from governance.core.invokers import frames
from governance.core.invokers.worker_context import Reports, WorkerToken, make_context
from governance.core.invokers.worker_output import BoundedOutput, redirect_output
from governance.core.parent_guard import die_with_parent, guard_group
from governance.core.tools import Tool, ToolContext

_LONGEST_MESSAGE = 2_000
_LONGEST_TRACEBACK = 20_000


class Refused(Exception):
    """The call cannot be made, or its result cannot be sent; `code` is one of `CallRefused`'s."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class Worker:
    """Answers the calls that come over one connection."""

    def __init__(
        self, connection: socket.socket, *, output: BoundedOutput, result_limit: int
    ) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._output = output
        self._result_limit = result_limit
        self._pid = os.getpid()
        self._token = WorkerToken()
        self._is_ending = False

    def serve(self) -> None:
        """Answer calls until the connection closes, or SIGTERM came during a call."""
        while not self._is_ending and (call := frames.receive_blocking(self._connection)):
            self._output.renew()
            answer = self._answer(call)
            self._send({**answer, "call": call["call"], "resident_bytes": procfs.resident_bytes()})

    def _answer(self, call: frames.Frame) -> frames.Frame:
        try:
            value = self._run(call)
            return {"kind": "result", "value": _checked(value, limit=self._result_limit)}
        except Refused as refused:
            return {"kind": "refused", "code": refused.code, "detail": _text(refused)}
        except ToolFailed as failed:
            return {"kind": "failed", "message": _text(failed)}
        except BaseException as error:  # noqa: BLE001 - SystemExit of a tool is its failure, not ours
            return _describe(error)

    def _run(self, call: frames.Frame) -> Any:
        reports = Reports(
            lambda report: self._send({**report, "kind": "progress", "call": call["call"]}),
            max_output=self._result_limit,
        )
        self._token = WorkerToken()
        function = _resolve(call["function"])
        keywords = _typed(function, call["arguments"])
        if (parameter := _context_parameter(function)) is not None:
            keywords[parameter] = make_context(
                call["call"],
                call["context"],
                token=self._token,
                reports=reports,
                show=lambda content, name: self._show(call["call"], content, name),
            )
        # Each call starts from the default signal handlers, whatever the one before did.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGTERM, self._on_terminate if parameter else signal.SIG_DFL)
        try:
            return function(**keywords)
        finally:
            moment = time.monotonic()
            if os.getpid() != self._pid:
                os._exit(0)  # a tool forked and its child came back: it has no business here
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            reports.close()
            # Before the answer: that may be long, and the limit may run out on its way.
            self._send({"kind": "returned", "call": call["call"], "at": moment})

    def _show(self, call_id: str, content: bytes, name: str) -> str:
        """Let the server keep an image. Return the line for the result; raise `Cancelled` where the call is ended first."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("A worker shows images from the thread in which it runs the tool.")
        encoded = base64.b64encode(content).decode()
        try:
            self._send({"kind": "image", "call": call_id, "name": name, "content": encoded})
        except frames.FrameTooLarge:
            return not_shown(content, "It is too large to leave its worker process.")
        answer = frames.receive_blocking(self._connection)
        if answer is None:  # the server says nothing more to a worker that it ends
            raise Cancelled(Cancellation(reason=CancelReason.PARENT))
        line: str = answer["line"]
        return line

    def _send(self, frame: frames.Frame) -> None:
        packed = frames.pack(frame, limit=self._result_limit + frames.ENVELOPE)
        with self._sending:  # a thread may report meanwhile
            self._connection.sendall(packed)

    def _on_terminate(self, number: int, _: FrameType | None) -> None:
        if not self._token.is_watched:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._is_ending = True
        self._token.request()


def main() -> None:
    """Run a worker until its server has no more use for it."""
    connection_fd, lifeline, parent = (int(argument) for argument in sys.argv[1:4])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    tag = f"{frames.TAG_NAME}={os.environ[frames.TAG_NAME]}"
    guard_group(lifeline, tag=tag, not_for_guard=(connection_fd,))
    die_with_parent(parent)
    connection = socket.socket(fileno=connection_fd)
    connection.set_inheritable(False)
    start = frames.receive_blocking(connection)
    if start is None:
        return
    _restore_environment(start["pythonpath"])
    worker = Worker(connection, output=redirect_output(), result_limit=start["result_limit"])
    hello = _initialize(start["initializer"])
    connection.sendall(frames.pack(hello, limit=frames.ENVELOPE))
    if hello["kind"] == "ready":
        worker.serve()


def _restore_environment(pythonpath: str | None) -> None:
    """Restore the server's search path for our children; ours was widened to find this module."""
    os.environ.pop("PYTHONPATH", None)
    if pythonpath is not None:
        os.environ["PYTHONPATH"] = pythonpath


def _initialize(initializer: str | None) -> frames.Frame:
    try:
        if initializer is not None:
            _resolve(initializer)()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the server has to hear of it
        return _describe(error)
    return {"kind": "ready"}


def _resolve(name: str) -> Callable[..., Any]:
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise Refused("not_importable", f"{name}: {error}") from error
    if not callable(found) or inspect.iscoroutinefunction(found):
        raise Refused("not_importable", f"{name} is not a plain function")
    function: Callable[..., Any] = found
    return function


def _context_parameter(function: Callable[..., Any]) -> str | None:
    """Return the parameter that wants the context: by its class, else by the name `context`."""
    try:
        hints = typing.get_type_hints(function)
        names = inspect.signature(function).parameters
    except (TypeError, ValueError, NameError):  # written in C, or hints that cannot be read
        return None
    by_class = (name for name in names if hints.get(name) is ToolContext)
    return next(by_class, "context" if "context" in names else None)


def _typed(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Give the arguments back the types that they lost on the way: dates, paths, enums of a declared tool."""
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
    except Exception:  # noqa: BLE001 - a tool's exception may fail at this too
        return ""


if __name__ == "__main__":
    main()

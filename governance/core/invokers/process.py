"""Runs plain Python tools, each call in a separate process that can be ended at any time (T8, C4).

`ProcessInvoker` belongs to the executor. In the server, `ForkServer` represents the process that forks, and
`WorkerConnection` the worker of one call. docs/decisions/worker-processes.md explains why this module does not use the
process pool of a library.
"""

import asyncio
import base64
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import pydantic_core

from governance.core.calls import Progress
from governance.core.cancellation import CancellationToken
from governance.core.exceptions import MayStillRun
from governance.core.images import Show
from governance.core.invokers import frames
from governance.core.invokers.worker_errors import (
    InputRefused,
    WorkerDied,
    WorkerNotStarted,
    value_of,
)
from governance.core.process_groups import terminate_group, wait_for_exit
from governance.core.tools import StillMine, Tool, ToolContext, always_mine

logger = logging.getLogger(__name__)

_PROOF_TIMEOUT = 1.0  # seconds to wait for killed processes when the server shuts down
_PIECE = 1 << 16
_BUSY_PAUSE = 0.01
_STATUS_WAIT = 0.5
_COMMAND = ("-P", "-m", "governance.core.invokers.fork_server")
_NOT_STARTED = "The tool's process could not be started."
SHUTTING_DOWN = "The server is shutting down; the tool was not started."


class ProcessInvoker:
    """An invoker that forks a worker for each call from a process that `initializer` ("module:function") has set up.

    `users` names, in the same form, the function that returns the `Users` object for the calls in each worker. An
    invoker belongs to one event loop and starts no process before the first call. `max_workers` is its `capacity`, so
    the executor's queue prevents more calls from starting. A worker and all its descendants end with its call.
    """

    def __init__(
        self,
        *,
        max_workers: int,
        kill_grace: float,
        initializer: str | None = None,
        users: str | None = None,
        initializer_arguments: Sequence[Any] = (),
        result_limit: int = frames.DEFAULT_RESULT_LIMIT,
        start_timeout: float = 30.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = WorkerSettings(
            kill_grace=kill_grace,
            start_timeout=start_timeout,
            result_limit=result_limit,
            initializer=initializer,
            users=users,
            initializer_arguments=initializer_arguments,
            environment=environment,
        )
        self.capacity = max_workers
        self._fork_server = ForkServer(self._settings)
        self._workers: set[WorkerConnection] = set()
        self._is_closed = False

    @property
    def live(self) -> int:
        """The number of workers that are starting, are running a call, or have not been shown to have ended."""
        return len(self._workers)

    async def prepare(self, token: CancellationToken) -> "StartedWorker | None":
        """Start the worker of one call before the call's clock runs (T5). Return `None` if `token` was cancelled first.

        Raises:
            WorkerNotStarted: no worker could be started, or `aclose` was called.
        """
        if self._is_closed:
            raise WorkerNotStarted(SHUTTING_DOWN)
        if token.is_cancelled:
            return None
        worker = WorkerConnection(self._settings, self._fork_server, on_gone=self._workers.discard)
        self._workers.add(worker)
        starting = asyncio.create_task(worker.start(), name="start a worker")
        try:
            with token.watched() as cancelled:
                either: set[asyncio.Future[Any]] = {starting, cancelled}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                if not token.is_cancelled:
                    return StartedWorker(worker, result_limit=self._settings.result_limit)
        except BaseException:
            await _give_up(starting, worker)
            raise
        await _give_up(starting, worker)
        return None

    async def aclose(self) -> None:
        """End every worker with all its descendants, and wait for them until one second after the grace period."""
        self._is_closed = True
        ends = [asyncio.create_task(worker.ended()) for worker in self._workers]
        for worker in tuple(self._workers):
            worker.end()
        await self._fork_server.close()
        if ends:
            await asyncio.wait(ends, timeout=self._settings.kill_grace + _PROOF_TIMEOUT)


class StartedWorker:
    """A worker that waits for its one call or for `release`."""

    def __init__(self, worker: "WorkerConnection", *, result_limit: int) -> None:
        self._worker = worker
        self._result_limit = result_limit
        self._is_used = False

    def release(self) -> None:
        """End the worker, unless it has received its call."""
        if not self._is_used:
            self._worker.end()

    async def invoke(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Run the tool's function and return its result with its text.

        In the worker, the function receives a context of the same class, but without `time_left`. The token there does
        not know the real reason for a cancel.
        """
        value = await self.call(
            {
                "call": context.call_id,
                "function": f"{tool.function.__module__}:{tool.function.__qualname__}",
                "arguments": arguments,
                "limit": context.writer.limit,
                "context": {
                    "tool_name": context.tool_name,
                    "scope": context.scope,
                    "workspace": context.workspace,
                    "metadata": dict(context.metadata),
                    "user_id": context.user_id,
                    "agent": context.agent,
                    "depth": context.depth,
                },
            },
            on_progress=context.report,
            on_return=context.returned,
            show=context.show,
            still_mine=context.still_mine,
        )
        if context.writer.writes_quickly(value):
            return context.writer.write(value)
        return await asyncio.to_thread(context.writer.write, value)

    async def call(
        self,
        call: Mapping[str, Any],
        *,
        on_progress: Callable[[Progress], None],
        on_return: Callable[[float], None],
        show: Show,
        still_mine: StillMine = always_mine,
    ) -> Any:
        """Run the "function" ("module:qualname") of `call` with its "arguments", and return the result.

        A lazy result is collected in the worker, up to "limit" characters. "context" contains the facts for the tool's
        context: `tool_name`, `scope`, `workspace`, `metadata`, `user_id`, `agent`, `depth`. `on_return` receives the
        `time.monotonic()` at which the function returned, and `show` each image that the function shows. `still_mine`
        returns whether this process still owns the call. Cancelling the surrounding task sends SIGTERM to the worker's
        group, and after the grace period SIGKILL to all its descendants. `CancelledError` is raised when all have
        ended, or immediately at a second cancel.

        Raises:
            ToolFailed: the tool raised `ToolFailed`, with a sentence for the model.
            RemoteToolError: the tool raised another exception.
            CallRefused: the function, the arguments or the result cannot be transferred.
            WorkerDied: the worker ended during the call.
            MayStillRun: the call was cancelled, and the end of the worker's descendants could not be observed.
        """
        self._is_used = True
        worker = self._worker
        try:
            answer = await worker.call(
                _packed(call, limit=self._result_limit),
                on_progress=on_progress,
                on_return=on_return,
                show=show,
                still_mine=still_mine,
            )
        except asyncio.CancelledError:
            worker.end()
            if not await worker.ended():
                raise MayStillRun("The end of its processes could not be seen.") from None
            raise
        except BaseException:
            worker.end()
            raise
        return value_of(answer)


async def _give_up(starting: "asyncio.Task[None]", worker: "WorkerConnection") -> None:
    starting.cancel()
    await asyncio.wait({starting})
    worker.end()


def _packed(call: Mapping[str, Any], *, limit: int) -> bytes:
    try:
        return frames.pack(pydantic_core.to_jsonable_python(call), limit=limit)
    except frames.FrameTooLarge as error:
        raise InputRefused("too_large", f"input: {error}") from None
    except (TypeError, ValueError) as error:
        raise InputRefused("not_json", f"input: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings for starting and ending workers. Times are in seconds, and sizes in bytes."""

    kill_grace: float
    start_timeout: float
    result_limit: int
    initializer: str | None
    users: str | None
    initializer_arguments: Sequence[Any]
    environment: Mapping[str, str] | None


class ForkServer:
    """The process that forks the workers of one event loop. It is started at the first request.

    Use it only in the loop's thread, because the kernel ends a process together with the thread that started it.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    @property
    def status(self) -> int | None:
        """The exit status of the process, or None while it runs."""
        return self._process.poll() if self._process else None

    async def fork(self, connection: socket.socket, control: socket.socket) -> None:
        """Request a worker that uses these two socket ends. Raise `OSError` if the system refuses."""
        while True:
            if self.status is not None:
                await self.close()
            if self._requests is None:
                self._requests = self._start()
            try:
                socket.send_fds(self._requests, [b"+"], [connection.fileno(), control.fileno()])
            except BlockingIOError:  # the pipe is full, because too many workers are being started
                await asyncio.sleep(_BUSY_PAUSE)
            except BrokenPipeError:  # the process is ending
                await self.close()
            else:
                return

    async def close(self) -> None:
        """End the process. Running workers continue."""
        process, requests = self._process, self._requests
        self._process = self._requests = None
        if process is not None and requests is not None:
            requests.close()
            process.kill()
            await wait_for_exit(process)

    def _start(self) -> socket.socket:
        settings = self._settings
        environment = dict(os.environ if settings.environment is None else settings.environment)
        search_path = os.pathsep.join(path or os.getcwd() for path in sys.path)
        own_socket, peer_socket = socket.socketpair()
        own_socket.settimeout(0)
        callbacks = {
            "command": [sys.executable, *_COMMAND],
            "initializer": settings.initializer,
            "initializer_arguments": list(settings.initializer_arguments),
            "is_plain": False,
            "kill_grace": settings.kill_grace,
            "parent": os.getpid(),
            "pythonpath": environment.get("PYTHONPATH"),
            "requests": peer_socket.fileno(),
            "result_limit": settings.result_limit,
            "users": settings.users,
        }
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
                [sys.executable, *_COMMAND],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={
                    **environment,
                    "PYTHONPATH": search_path,
                    "TURNKEEPER_FORK_SERVER": json.dumps(callbacks),
                },
                pass_fds=(peer_socket.fileno(),),
                start_new_session=True,
            )
        except OSError:
            own_socket.close()
            raise
        finally:
            peer_socket.close()
        return own_socket


class WorkerConnection:
    """The worker of one call, from its start to the proven end of the worker and its descendants."""

    def __init__(
        self,
        settings: WorkerSettings,
        fork_server: ForkServer,
        *,
        on_gone: "Callable[[WorkerConnection], None]",
    ) -> None:
        self._settings = settings
        self._fork_server = fork_server
        self._on_gone = on_gone
        self._limit = settings.result_limit + frames.ENVELOPE
        self._reader: StreamReader
        self._writer: StreamWriter
        self._control: StreamWriter
        self._pid = 0
        self._tag = ""
        self._is_dismissed = False
        self._is_cut = False
        self._status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._watching: asyncio.Task[bool] | None = None
        self._discarding: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Wait until the worker is ready. Raise `WorkerNotStarted` if it fails."""
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                await self._connect()
                hello = await self._receive()
        except TimeoutError:
            detail = f"it was not ready within {self._settings.start_timeout:g} s"
        except OSError as error:
            detail = str(error)
        except WorkerDied as death:
            detail = death.description
            if (status := self._fork_server.status) is not None:
                detail = f"the process that forks workers {_description(status)}"
        else:
            if hello.get("kind") == "ready":
                return
            detail = f"{hello.get('type_name')}: {hello.get('message')}"
        logger.error("A worker process could not be started", extra={"detail": detail})
        raise WorkerNotStarted(_NOT_STARTED, detail=detail)

    async def call(
        self,
        request: bytes,
        *,
        on_progress: Callable[[Progress], None],
        on_return: Callable[[float], None],
        show: Show,
        still_mine: StillMine,
    ) -> frames.Frame:
        """Send the call and return the worker's answer to it.

        Until the answer arrives, pass on progress, images, ownership questions and the time of return. Raise
        `WorkerDied` if the worker ends or breaks the protocol first.
        """
        if self._is_dismissed:
            raise WorkerNotStarted(SHUTTING_DOWN)
        self._writer.write(request)
        try:
            while True:
                frame = await self._receive()
                if frame.get("kind") == "progress":
                    on_progress(_progress(frame))
                    # Reading buffered data never suspends, so a flood would block the loop.
                    await asyncio.sleep(0)
                elif frame.get("kind") == "image":
                    await self._show(frame, show)
                elif frame.get("kind") == "owner":
                    self._answer({"is_mine": await still_mine()})
                elif frame.get("kind") == "returned":
                    if (moment := _number(frame.get("at"))) is not None:
                        on_return(moment)
                else:
                    return frame
        finally:
            self._say_no_more()
            self._discarding = asyncio.create_task(self._discard())

    def end(self) -> None:
        """End the worker and all its descendants, after a grace period."""
        if self._watching is None:
            self._on_gone(self)
        elif not self._watching.done():
            self._say_no_more()
            if not self._is_cut:
                self._control.write(b"-")

    async def ended(self) -> bool:
        """Wait until the worker and its descendants have ended. Return False if that could not be observed.

        If the wait is cancelled, they are ended without a grace period.
        """
        if self._watching is None:
            return True
        try:
            return await asyncio.shield(self._watching)
        except asyncio.CancelledError:
            if not self._watching.done():
                self._is_cut = True
                self._control.write_eof()
            raise

    def _say_no_more(self) -> None:
        """Close the sending side, so that a worker that waits for a call or a reply learns that none will come."""
        self._is_dismissed = True
        if not self._writer.is_closing():
            with suppress(OSError):  # the worker has just ended
                self._writer.write_eof()

    async def _connect(self) -> None:
        own_socket, peer_socket = socket.socketpair()
        control, keepers = socket.socketpair()
        with peer_socket, keepers, ExitStack() as undo:
            undo.callback(own_socket.close)
            undo.callback(control.close)
            self._reader, self._writer = await asyncio.open_connection(sock=own_socket)
            undo.callback(self._writer.transport.abort)
            reader, self._control = await asyncio.open_connection(sock=control)
            undo.pop_all()
            self._watching = asyncio.create_task(self._watch(reader), name="watch a worker")
            await self._fork_server.fork(peer_socket, keepers)

    async def _watch(self, reader: StreamReader) -> bool:
        """Read the keeper's reports. Return whether the keeper observed the end of all processes."""
        is_proven = False
        with suppress(asyncio.IncompleteReadError, OSError, frames.FrameError):
            while not is_proven:
                match await frames.receive(reader, limit=frames.ENVELOPE):
                    case {"pid": int(pid), "tag": str(tag)}:
                        self._pid, self._tag = pid, tag
                    case {"status": int(status)}:
                        self._status.set_result(status)
                        self._writer.transport.abort()  # children of the worker may keep the other end open
                    case {"gone": True}:
                        is_proven = True
        self._control.transport.abort()
        if not is_proven and self._pid:  # the tool killed the keeper
            await terminate_group(self._pid, grace=0, sweep_tag=f"{frames.TAG_NAME}={self._tag}")
        self._writer.transport.abort()
        self._on_gone(self)
        return is_proven or not self._pid

    async def _show(self, frame: frames.Frame, show: Show) -> None:
        self._answer({"line": await show(_content(frame), str(frame.get("name")))})

    def _answer(self, answer: frames.Frame) -> None:
        if not self._is_dismissed:
            self._writer.write(frames.pack(answer, limit=self._limit))

    async def _discard(self) -> None:
        """Read and drop the worker's remaining output, so that it does not block on a full socket."""
        with suppress(OSError):
            while await self._reader.read(_PIECE):
                pass

    async def _receive(self) -> frames.Frame:
        try:
            return await frames.receive(self._reader, limit=self._limit)
        except frames.FrameError as error:
            raise WorkerDied(f"sent {error}") from None
        except (asyncio.IncompleteReadError, OSError):
            await asyncio.wait({self._status}, timeout=_STATUS_WAIT)
            if self._status.done():
                raise WorkerDied(_description(self._status.result())) from None
            raise WorkerDied("closed its connection") from None


def _description(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _progress(frame: frames.Frame) -> Progress:
    """Parse an untrusted progress report."""
    message, output = frame.get("message"), frame.get("output")
    return Progress(
        message=message if isinstance(message, str) else "",
        progress=_number(frame.get("progress")),
        total=_number(frame.get("total")),
        output=output if isinstance(output, str) else "",
    )


def _content(frame: frames.Frame) -> bytes:
    """Return the bytes of an image, or empty bytes if the frame is invalid."""
    try:
        return base64.b64decode(str(frame.get("content")), validate=True)
    except ValueError:
        return b""


def _number(value: Any) -> float | None:
    return value if isinstance(value, float) else None

"""The server's end of one worker process: start it, give it a call, end it with everything it started."""

import asyncio
import base64
import os
import signal
import socket
import subprocess
import sys
import uuid
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from governance.core.calls import Progress
from governance.core.images import Show
from governance.core.invokers import frames
from governance.core.invokers.worker_errors import WorkerDied
from governance.core.process_groups import GroupEnding, terminate_group, wait_for_exit

_EXIT_STATUS_WAIT = 0.5
_PIECE = 1 << 16
_PROOF_TIMEOUT = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How workers are started and ended. Seconds and bytes."""

    kill_grace: float
    start_timeout: float
    max_calls: int
    max_bytes: int
    result_limit: int
    initializer: str | None
    environment: Mapping[str, str] | None

    def start_frame(self) -> frames.Frame:
        """Return the first frame that a worker reads."""
        environment = os.environ if self.environment is None else self.environment
        return {
            "initializer": self.initializer,
            "pythonpath": environment.get("PYTHONPATH"),
            "result_limit": self.result_limit,
        }


class WorkerConnection:
    """One worker process, from its start to the proof that it is gone.

    Made on the event loop, in the loop's thread: the kernel ends a worker with the thread that started it.
    Making it raises `WorkerDied` if the system refuses another process.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._tag = uuid.uuid4().hex
        self._limit = settings.result_limit + frames.ENVELOPE
        self._socket, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        try:
            self._process = self._spawn(theirs.fileno(), lifeline)
        except OSError as error:
            self._socket.close()
            os.close(self._lifeline)
            raise WorkerDied("", "could not be started", detail=str(error)) from error
        finally:
            theirs.close()
            os.close(lifeline)
        self._reader: StreamReader | None = None
        self._writer: StreamWriter | None = None
        self._exit = asyncio.create_task(self._watch_exit(), name=f"watch worker {self.pid}")
        self._ending: asyncio.Task[GroupEnding] | None = None
        self._discarding: asyncio.Task[None] | None = None
        self._calls = 0
        self._resident_bytes = 0
        self.is_in_call = False

    @property
    def pid(self) -> int:
        """The worker's process id, which is that of its group too."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs and we have not begun to end it."""
        return self._ending is None and not self._exit.done() and self._process.poll() is None

    @property
    def is_spent(self) -> bool:
        """Whether it has taken so many calls, or grown so large, that a fresh one shall follow."""
        return (
            self._calls >= self._settings.max_calls
            or self._resident_bytes > self._settings.max_bytes
        )

    @property
    def ending(self) -> "asyncio.Task[GroupEnding] | None":
        """The task that ends this worker, once `end` was called."""
        return self._ending

    async def start(self) -> None:
        """Wait until the worker is ready. Raise `WorkerDied` if it does not get there."""
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
                self._writer.write(frames.pack(self._settings.start_frame(), limit=self._limit))
                hello = await self._receive("")
        except TimeoutError:
            raise WorkerDied(
                "", f"was not ready within {self._settings.start_timeout:g} s"
            ) from None
        if hello.get("kind") != "ready":
            detail = f"{hello.get('type_name')}: {hello.get('message')}"
            raise WorkerDied("", "could not be initialized", detail=detail)

    async def call(
        self,
        request: bytes,
        *,
        call_id: str,
        on_progress: Callable[[Progress], None],
        on_return: Callable[[float], None],
        show: Show,
    ) -> frames.Frame:
        """Send the call, pass on its progress, its images and its return, and return its answer. Raise `WorkerDied`."""
        assert self._writer is not None, "start() comes first"  # noqa: S101
        self.is_in_call = True
        self._calls += 1
        self._writer.write(request)
        try:
            while True:
                frame = await self._receive(call_id)
                if frame.get("call") != call_id:
                    continue  # from a thread that an earlier call left behind
                if frame.get("kind") == "progress":
                    on_progress(_progress(frame))
                elif frame.get("kind") == "image":
                    await self._show(frame, show)
                elif frame.get("kind") == "returned":
                    if (moment := _number(frame.get("at"))) is not None:
                        on_return(moment)
                else:
                    self._resident_bytes = _integer(frame.get("resident_bytes"))
                    self.is_in_call = False
                    return frame
        finally:
            if self.is_in_call:
                self._discarding = asyncio.create_task(self._discard())

    def terminate(self) -> "asyncio.Task[GroupEnding]":
        """Start to end the worker's group; every caller gets the same task."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._terminate(), name=f"end worker {self.pid}")
        return self._ending

    async def _terminate(self) -> GroupEnding:
        self._say_no_more()
        try:
            return await terminate_group(
                self._process,
                grace=self._settings.kill_grace,
                sweep_tag=f"{frames.TAG_NAME}={self._tag}",
                proof_timeout=_PROOF_TIMEOUT,
            )
        finally:
            os.close(self._lifeline)
            self._close_socket()
            self._exit.cancel()
            await asyncio.wait({self._exit, self._discarding or self._exit})

    def _say_no_more(self) -> None:
        """A worker that waits for an answer learns that none comes."""
        if self._writer is not None and not self._writer.is_closing():
            with suppress(OSError):  # it has just gone
                self._writer.write_eof()

    async def _show(self, frame: frames.Frame, show: Show) -> None:
        assert self._writer is not None  # noqa: S101
        line = await show(_content(frame), str(frame.get("name")))
        self._writer.write(frames.pack({"line": line}, limit=self._limit))

    async def _discard(self) -> None:
        """Read what a worker says that is ended in its call: it must not wait for a reader."""
        assert self._reader is not None  # noqa: S101
        with suppress(OSError):
            while await self._reader.read(_PIECE):
                pass

    def _spawn(self, connection: int, lifeline: int) -> "subprocess.Popen[bytes]":
        environment = dict(
            os.environ if self._settings.environment is None else self._settings.environment
        )
        environment[frames.TAG_NAME] = self._tag
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        arguments = [str(connection), str(lifeline), str(os.getpid())]
        return subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
            [sys.executable, "-P", "-m", "governance.core.invokers.worker", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment,
            pass_fds=(connection, lifeline),
            start_new_session=True,
        )

    async def _receive(self, call_id: str) -> frames.Frame:
        assert self._reader is not None, "start() comes first"  # noqa: S101
        try:
            size = frames.body_size(
                await self._reader.readexactly(frames.HEADER.size), limit=self._limit
            )
            return frames.unpack(await self._reader.readexactly(size))
        except frames.FrameError as error:
            raise WorkerDied(call_id, f"sent {error}") from None
        except (asyncio.IncompleteReadError, OSError):
            raise WorkerDied(call_id, await self._describe_exit()) from None

    async def _watch_exit(self) -> int:
        """Close the connection when the worker ends: its children may still hold the other end open."""
        status = await wait_for_exit(self._process)
        if self._writer is not None:
            self._writer.transport.abort()
        return status

    async def _describe_exit(self) -> str:
        await asyncio.wait({self._exit}, timeout=_EXIT_STATUS_WAIT)
        status = self._process.poll()
        if status is None:
            return "closed its connection"
        if status >= 0:
            return f"exited with status {status}"
        return f"was ended by {_signal_name(-status)}"

    def _close_socket(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        else:
            self._socket.close()


def _progress(frame: frames.Frame) -> Progress:
    """Read a report, believing nothing."""
    message, output = frame.get("message"), frame.get("output")
    return Progress(
        message=message if isinstance(message, str) else "",
        progress=_number(frame.get("progress")),
        total=_number(frame.get("total")),
        output=output if isinstance(output, str) else "",
    )


def _content(frame: frames.Frame) -> bytes:
    """Read the bytes of an image; nothing where there are none."""
    try:
        return base64.b64decode(str(frame.get("content")), validate=True)
    except ValueError:
        return b""


def _number(value: Any) -> float | None:
    return value if isinstance(value, float) else None


def _integer(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""Runs an MCP server as a child process in its own process group, and ends it so that no process is left (G2).

The SDK's own transport is not used, because it does not expose the process: neither its exit status, nor its end while
a child holds the pipes open. The SDK's transport also accepts lines of any length, and copies the incomplete line with
each chunk. It drops a response with invalid UTF-8, so the call waits until its limit. It does not report whether a
request was sent, or that the server has stopped reading. It takes four seconds to end a server that ignores SIGTERM.
"""

import asyncio
import io
import json
import logging
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage, jsonrpc_message_adapter

from governance.core import parent_guard
from governance.core.process_groups import GroupEnding, terminate_group, wait_for_exit
from governance.mcp.errors import ServerUnavailable
from governance.mcp.message_filter import Streams
from governance.mcp.request_state import RequestState, RequestStates
from governance.mcp.specs import McpTiming, ServerSpec
from governance.mcp.throttle import Throttle
from governance.sanitize import sanitize_json
from governance.threads import run_in_thread

logger = logging.getLogger(__name__)

TAG_NAME = "TURNKEEPER_MCP"  # in the environment of a server and of its children
_HARMLESS = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
_CHUNK = 65_536
# Seconds to wait for the exit status once the output has ended, or for the last output once the process has ended.
_LAST_WORDS = 0.2


class StdioServer:
    """An asynchronous context manager that runs a server's command and exchanges newline-delimited JSON with it.

    `ended` resolves with a clause when the streams become unusable, because the process has ended or sends garbage.
    `stuck` resolves with a clause when the process does not read its input.
    """

    def __init__(
        self, spec: ServerSpec, *, timing: McpTiming, request_states: RequestStates
    ) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()
        self.stuck: asyncio.Future[str] = loop.create_future()
        self._request_states = request_states
        self._spec = spec
        self._timing = timing
        self._tag = f"{TAG_NAME}={uuid.uuid4()}"
        self._garbage = 0  # consecutive lines that are not messages
        self._has_logged_garbage = False
        self._is_closing = False  # if it is set, the end of the process is not reported
        self._tasks: list[asyncio.Task[Any]] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._complaints: asyncio.BaseTransport | None = None
        self._incoming: MemoryObjectSendStream[SessionMessage | Exception]
        self._outgoing: MemoryObjectReceiveStream[SessionMessage]
        self._incoming, self._readable = anyio.create_memory_object_stream[
            SessionMessage | Exception
        ](0)
        self._writable, self._outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def __aenter__(self) -> Streams:
        try:
            await self._start()
        except BaseException:
            await self._to_the_end(self._close())
            raise
        return self._readable, self._writable

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._to_the_end(self._close())

    def abort(self, reason: str) -> None:
        """Report once why the streams are unusable, and end them for the session's reader."""
        if not self.ended.done() and not self._is_closing:
            self.ended.set_result(reason)
            self._incoming.close()

    async def _find_program(self, path: str) -> str:
        if not self._spec.command:
            raise ServerUnavailable("it has no command")
        # In a thread, because it searches the disk.
        program = await run_in_thread(shutil.which, self._spec.command[0], path=path)
        if program is None:
            raise ServerUnavailable("its command was not found on this server")
        return program

    async def _start(self) -> None:
        environment = self._environment()
        program = await self._find_program(environment["PATH"])
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        errors, their_errors = io.FileIO(read_end), io.FileIO(write_end, "w")
        lifeline, self._lifeline = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603 - takes a millisecond; running commands is the purpose
                self._launch(program, lifeline),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=their_errors,
                env=environment,
                pass_fds=(lifeline,),
                start_new_session=True,
            )
            await self._connect(ours, errors)
        except BaseException as error:
            ours.close()  # a cancel may arrive before a transport owns the socket
            if self._complaints is None:
                errors.close()
            if isinstance(error, OSError | ValueError):
                raise ServerUnavailable("its command could not be started") from error
            raise
        finally:
            theirs.close()
            their_errors.close()
            os.close(lifeline)

    def _launch(self, program: str, lifeline: int) -> list[str]:
        guarded = parent_guard.script(lifeline, tag=self._tag)
        return [*guarded, program, *self._spec.command[1:]]

    def _environment(self) -> dict[str, str]:
        """Return the command's environment: a few harmless variables, those that the row names, and the tag."""
        if missing_names := [name for name in self._spec.environment if name not in os.environ]:
            raise ServerUnavailable(
                f"the environment variable {missing_names[0]} is not set on this server"
            )
        names = (*_HARMLESS, *self._spec.environment)
        tag_name, tag = self._tag.split("=")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        return {"PATH": os.defpath} | environment | {tag_name: tag}

    async def _connect(self, ours: socket.socket, errors: io.FileIO) -> None:
        loop = asyncio.get_running_loop()
        self._complaints, _ = await loop.connect_read_pipe(_Complaints, errors)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        for work, what in (
            (self._read(reader), "reading"),
            (self._write(self._writer), "writing"),
            (self._watch(), "watching"),
        ):
            name = f"{what} MCP server {self._spec.name}"
            task = asyncio.create_task(work, name=name)
            task.add_done_callback(self._on_task_done)
            self._tasks.append(task)

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        """End the session if one of its tasks failed, because otherwise every later call would wait until its limit."""
        if not task.cancelled() and (error := task.exception()) is not None:
            facts = {"server": self._spec.name}
            logger.error("Failed: %s", task.get_name(), exc_info=error, extra=facts)
            self.abort("the connection to it failed; the details are in the log")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Pass on each line. Stop reading until the receiver has accepted the previous message."""
        buffer = bytearray()
        throttle = Throttle(self._timing)
        try:
            while chunk := await reader.read(_CHUNK):
                searched = len(buffer)
                buffer += chunk
                while (end := buffer.find(b"\n", searched)) >= 0:
                    line = bytes(buffer[:end])
                    del buffer[: end + 1]
                    searched = 0
                    await self._handle_line(line)
                if len(buffer) > self._timing.longest_message:
                    self.abort("it sent a message that is too long")
                    return
                await throttle.wait_after(chunk)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the reader has ended, or the connection is closing
        if await self._exit_status(within=_LAST_WORDS) is None:
            self.abort("it closed its output")

    async def _handle_line(self, line: bytes) -> None:
        if not line.strip():
            return
        message = _read_message(line)
        if message is None:
            self._garbage += 1
            if not self._has_logged_garbage:
                self._has_logged_garbage = True
                facts = {"server": self._spec.name}
                logger.warning("An MCP server writes other things than messages", extra=facts)
            if self._garbage > self._timing.most_garbage:
                self.abort("it writes other things than messages of the protocol")
            return
        self._garbage = 0
        await self._incoming.send(SessionMessage(message))

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        try:
            async for item in self._outgoing:
                request_id = getattr(item.message, "id", None)
                request_state = self._request_states.pop(request_id, RequestState())
                if not request_state.send():
                    continue
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(text.encode() + b"\n")
                await self._drained(writer)
        except OSError:
            if await self._exit_status(within=_LAST_WORDS) is None:
                self.abort("it closed its input")

    async def _drained(self, writer: asyncio.StreamWriter) -> None:
        """Wait until the server has read enough of its input. Report it as stuck if that takes too long."""
        draining = asyncio.ensure_future(writer.drain())
        try:
            await asyncio.wait({draining}, timeout=self._timing.request_timeout)
            if not draining.done() and not self.stuck.done():
                self.stuck.set_result("it does not read its input")
            await draining
        finally:
            draining.cancel()

    async def _watch(self) -> None:
        """Detect the end of the process, even while one of its children holds the streams open."""
        assert self._process is not None  # noqa: S101 - it was started
        status = await wait_for_exit(self._process)
        await asyncio.wait({self._tasks[0]}, timeout=_LAST_WORDS)  # the last line may be a response
        how = f"with exit code {status}" if status >= 0 else f"by signal {-status}"
        self.abort(f"it ended {how}")

    async def _exit_status(self, *, within: float) -> int | None:
        """Return the exit status if the process ends within `within` seconds, or else None."""
        if self._process is None:
            return None
        ending = asyncio.ensure_future(wait_for_exit(self._process))
        await asyncio.wait({ending}, timeout=within)
        ending.cancel()
        return self._process.poll()

    async def _close(self) -> None:
        """Close the server's input, wait briefly, end its process group, and release all resources."""
        self._is_closing = True
        if self._process is not None and self._lifeline is not None:
            await self._end(self._process)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._timing.end_grace)
        for stream in (self._incoming, self._readable, self._writable, self._outgoing):
            stream.close()
        for transport in (self._writer, self._complaints):
            if transport is not None:
                transport.close()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    async def _end(self, process: subprocess.Popen[bytes]) -> None:
        if self._writer is not None and not self.ended.done():
            if self._writer.can_write_eof():
                self._writer.write_eof()
            await self._exit_status(within=self._timing.close_grace)
        ending = await terminate_group(process, grace=self._timing.end_grace, sweep_tag=self._tag)
        if ending in {GroupEnding.SURVIVED, GroupEnding.NOT_OURS}:
            facts = {"server": self._spec.name, "ending": ending}
            logger.warning("An MCP server outlived its connection", extra=facts)

    async def _to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for the work, which is bounded, even if this task is cancelled; then raise the cancellation again."""
        task = asyncio.create_task(work, name=f"ending MCP server {self._spec.name}")
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            raise


def _read_message(line: bytes) -> JSONRPCMessage | None:
    """Return the message in the line, or None if it contains none.

    Lone surrogates, which JavaScript may write, are replaced.
    """
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        pass
    try:
        return jsonrpc_message_adapter.validate_python(
            sanitize_json(json.loads(line)), by_name=False
        )
    except (ValueError, RecursionError):
        return None


class _Complaints(asyncio.Protocol):
    """Reads the server's stderr, so that the server never blocks, and logs it for debugging."""

    def data_received(self, data: bytes) -> None:
        """Log the end of a chunk of the output."""
        logger.debug("An MCP server complains: %s", data[-2_000:].decode(errors="replace"))

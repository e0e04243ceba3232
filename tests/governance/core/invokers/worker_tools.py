"""Tools that behave in every way a worker process must cope with; run in workers by test_process_invoker."""

import asyncio
import ctypes
import datetime
import itertools
import logging
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from governance.core.cancellation import Cancelled
from governance.core.exceptions import ToolFailed
from governance.core.registry import ToolRegistry, tool
from governance.core.tools import Isolation, ToolContext

SLEEPER = (
    "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    " print(os.getpid(), flush=True); time.sleep(60)"
)
initialized: list[int] = []
opened: list[Any] = []


class OwnUsers:
    """The users that a program without Django may give to its workers."""

    def typed(self, user_id):
        """Return the id as a number."""
        return int(user_id)

    def find_blocking(self, user_id):
        """Return the name."""
        return {5: "ada"}.get(user_id)


def whose(context: ToolContext):
    return [context.user_id, context.user_blocking()]


def initialize():
    initialized.append(os.getpid())


def fail_to_initialize():
    raise RuntimeError("no settings, secret=hunter2")


def wait_at_start():
    with open(os.environ["HELD_AT"]) as pipe:
        pipe.read()


def die_at_start():
    os._exit(9)


def add(a, b):
    return a + b


def pid():
    return os.getpid()


def initialized_in():
    return initialized


def leave_thread_open():
    opened.append(ThreadPoolExecutor(1))
    opened[0].submit(os.getpid).result()


def leave_connection_open():
    os.environ.pop("WORKER_TEST")
    listening = socket.create_server(("127.0.0.1", 0))
    opened.append(socket.create_connection(listening.getsockname()))
    opened.append(listening.accept()[0])


def leave_position_open():
    opened.append(open(__file__))  # noqa: SIM115 - it stays open


def leave_log_open():
    initialize()
    opened.append(open(os.path.join(tempfile.gettempdir(), "log"), "a"))  # noqa: SIM115


def leave_loop_open():
    initialize()
    opened.append(asyncio.new_event_loop())


def use_what_was_left_open():
    match opened:
        case [ThreadPoolExecutor() as threads]:
            return threads.submit(os.getpid).result()
        case [socket.socket() as one, other]:
            one.sendall(str(os.getpid()).encode())
            return int(other.recv(100))
        case [file]:
            assert file.readline()
            return os.getpid()


def tell_pid_and_wait(context):
    context.progress(str(os.getpid()))
    time.sleep(60)


def environment(name):
    return os.environ.get(name)


def child_sees(name):
    code = f"import os; print(os.environ.get({name!r}))"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def spin(context):
    context.progress("spinning")
    while True:
        pass


def sleep_until_released(path, context):
    context.progress("waiting")
    with open(path) as pipe:
        return pipe.read()


def ignore_sigterm(context):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    context.progress(str(os.getpid()))
    while True:
        time.sleep(60)


def start_family(context):
    """A child without our environment, a daemon in a session of its own, one by fork; all deaf to SIGTERM."""
    in_group = subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True, env={}
    )
    daemon = subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    forked = _fork_daemon()
    pids = [os.getpid(), int(in_group.stdout.readline()), int(daemon.stdout.readline()), forked]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    context.progress(" ".join(map(str, pids)))
    time.sleep(60)


def escape(context):
    """A process that nothing marks: its own session, no environment, no parent, no descriptor of ours."""
    pipe, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(told, str(os.getpid()).encode())
            os.closerange(0, 100)
            os.execve("/bin/sleep", ["sleep", "60"], {})
        os._exit(0)
    os.wait()
    context.progress(os.read(pipe, 32).decode())
    time.sleep(60)


def kill_the_keeper(context):
    context.progress(str(leave_child_behind()))
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def leave_child_behind():
    return subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.DEVNULL).pid


def _fork_daemon():
    pipe, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.write(told, str(os.getpid()).encode())
            time.sleep(60)
        os._exit(0)
    os.wait()
    return int(os.read(pipe, 32))


def come_back_twice():
    return "once" if os.fork() else "twice"


def hold_the_interpreter(context):
    context.progress("holding")
    ctypes.PyDLL(None).sleep(60)


def match_catastrophically(context):
    context.progress("matching")
    re.match(r"(a+)+$", "a" * 64 + "b")


def exit_hard(status):
    os._exit(status)


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def die_while_child_holds_the_connection():
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    os._exit(3)


def connection():
    """The descriptor of this worker's connection, its only socket."""
    descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]
    return next(each for each in descriptors if stat.S_ISSOCK(os.fstat(each).st_mode))


def close_the_connection():
    os.close(connection())
    time.sleep(60)


def exit_politely():
    sys.exit("secret=hunter2")


class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def raise_error(kind):
    if kind == "value":
        raise ValueError("secret=hunter2")
    if kind == "unspeakable":
        raise UnspeakableError
    raise ToolFailed("Give me a city.")


def print_flood(megabytes):
    for descriptor in (1, 2):
        os.write(descriptor, b"\x00\x00\x00\x05hello" * 1000)
    for _ in range(megabytes):
        print("x" * 1_000_000)  # noqa: T201 - the flood is the point
        sys.stderr.buffer.write(b"y" * 1_000_000)
    subprocess.run([sys.executable, "-c", "print('z' * 100000)"], check=True)
    return "done"


def log_a_line():
    logging.getLogger("some.tool").warning("the tool has something to say")
    return True


def big(size):
    return "é" * (size // 2)


def result(kind):
    return {
        "set": {1, 2},
        "nan": [float("nan")],
        "bytes": b"x",
        "surrogate": "\ud83d half",
        "nested": _nested(),
        "good": {"a": [1, None, "ü"]},
    }[kind]


def lazy(kind):
    return {
        "generator": (number * number for number in range(4)),
        "dates": map(datetime.date.fromisoformat, ["2025-12-31"]),
        "endless": itertools.count(1_000_000),
        "async": _squares(),
    }[kind]


async def _squares():
    for number in range(4):
        yield number * number


def forgets_to_await():
    return coroutine()


@tool(isolation="process", register=ToolRegistry())
async def yield_squares(count: int):
    """A declared tool that is an asynchronous generator."""
    for number in range(count):
        yield number * number


def _nested():
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    return value


def scribble_on_the_connection():
    os.write(connection(), b"\xff\xff\xff\xff")
    time.sleep(60)


def report(context):
    context.progress("one", progress=1, total=3)
    context.progress("two", progress=2, total=3)
    context.progress(output="some text\n")
    return context.call_id


def report_fast(count, context):
    for number in range(count):
        context.progress(f"number {number}", output=f"{number}\n")
    return "reported"


def report_too_fast_then_wait(path, context):
    for number in range(50):
        context.progress(f"number {number}")
    with open(path) as pipe:
        return pipe.read()


def finish_when_asked(path, context):
    assert not context.is_cancelled
    context.progress("cooperative")
    while not context.is_cancelled:
        time.sleep(0.01)
    with open(path, "w") as file:
        file.write("tidied up")


def wait_to_be_asked(path, context):
    assert not context.token.is_cancelled
    context.progress("cooperative")
    if context.token.wait_blocking(60):
        with open(path, "w") as file:
            file.write("woken up")


def draw(context, size=3):
    context.progress("drawing")
    return context.show_image_blocking(b"PNG" + bytes(size), name="drawing")


def draw_while_a_thread_reports(context):
    def talk():
        while not is_over.is_set():
            context.progress(output="x" * 10_000)

    is_over = threading.Event()
    thread = threading.Thread(target=talk)
    thread.start()
    lines = [context.show_image_blocking(b"PNG" + bytes(200_000)) for _ in range(4)]
    is_over.set()
    thread.join()
    return lines


def draw_from_a_thread(context):
    lines = []

    def attempt():
        try:
            lines.append(draw(context))
        except RuntimeError as error:
            lines.append(str(error))

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return lines


def draw_and_tidy_up(path, size, context):
    assert not context.is_cancelled
    try:
        draw(context, size)
    except Cancelled:
        with open(path, "w") as file:
            file.write("tidied up")
    context.progress("much", output="x" * 1_000_000)
    return "y" * 1_000_000


async def coroutine():
    return 1


@tool(isolation=Isolation.PROCESS, register=ToolRegistry())
def next_day(day: datetime.date, ctx: ToolContext) -> str:
    """A declared tool: its arguments arrive as their types, its context by annotation."""
    return f"{day + datetime.timedelta(days=1)} in {ctx.scope} at {ctx.workspace}"


@tool(isolation=Isolation.PROCESS, register=ToolRegistry())
def spin_for_ever(context: ToolContext) -> None:
    """A declared tool that never ends."""
    context.progress("spinning", output="partial")
    while True:
        pass


@tool(isolation=Isolation.PROCESS, register=ToolRegistry())
def tell_keeper(context: ToolContext) -> None:
    """A declared tool that names the process which sees to its end."""
    context.progress(output=str(os.getppid()))
    time.sleep(60)


@tool(isolation=Isolation.PROCESS, register=ToolRegistry())
def draw_twice(context: ToolContext) -> list[str]:
    """A declared tool that shows an image, and one that is none."""
    return [context.show_image_blocking(each, name="drawing") for each in (b"PNG", b"scrawl")]


@tool(isolation="process")
def return_much(context: ToolContext, size: int) -> str:
    context.progress(output="ready")
    while not context.workspace.joinpath("may return").exists():
        time.sleep(0.01)
    context.workspace.joinpath("returns").touch()
    return "x" * size

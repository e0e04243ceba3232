"""Several processes on one machine, to try out: PostgreSQL, Redis, two web processes, two runners; one log, one Ctrl-C."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import environ

from scripts.servers import NotInstalled, Postgres, Redis, Server, ends_with_us
from scripts.start import ROOT, open_up

WEBS = 2
RUNNERS = 2
AGAIN_AFTER = 2.0  # seconds
TOO_SOON = 10.0  # whoever ends that soon will not do better the next time
WIDTH = 9


class Member:
    """One process of the site; it is started again when it has died."""

    def __init__(self, name: str, *command: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self._command = command
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._is_leaving = False

    async def run(self) -> None:
        """Run it until it is told to end. Raise `RuntimeError` if it cannot be kept up."""
        while not self.is_leaving():
            began_at = time.monotonic()
            # Out of the terminal's reach: Ctrl-C is ours to pass on.
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=ROOT,
                env=dict(self._environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=ends_with_us(signal.SIGTERM),
            )
            if self.is_leaving():  # told so while it was being started
                self._process.terminate()
            await self._pass_on(self._process.stdout)
            code = await self._process.wait()
            if self.is_leaving():
                return
            self.say(f"ended with {code}")
            if time.monotonic() - began_at < TOO_SOON:
                raise RuntimeError(f"{self.name} does not stay up")
            await asyncio.sleep(AGAIN_AFTER)

    def is_leaving(self) -> bool:
        """Whether it was told to end."""
        return self._is_leaving

    def end(self, number: signal.Signals) -> None:
        """Let it end."""
        self._is_leaving = True
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def say(self, line: str) -> None:
        """Print a line under its name."""
        print(f"{self.name:<{WIDTH}}| {line}", flush=True)

    async def _pass_on(self, stream: asyncio.StreamReader | None) -> None:
        while stream is not None:
            try:
                line = await stream.readline()
            except ValueError:  # longer than the reader keeps
                continue
            if not line:
                return
            self.say(line.decode("utf-8", "replace").rstrip())


class Site:
    """All members: one interrupt ends them in an orderly way, the second at once."""

    def __init__(self, members: list[Member]) -> None:
        self._members = members
        self._interrupts = 0

    async def run(self) -> int:
        """Run until a signal comes; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupted)
        running = [asyncio.create_task(member.run(), name=member.name) for member in self._members]
        done, others = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        if others:
            self._end(signal.SIGTERM)
            await asyncio.wait(others)
        failures = [failure for task in done if (failure := task.exception()) is not None]
        for failure in failures:
            print(failure, file=sys.stderr)
        return 1 if failures else 0

    def _interrupted(self) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            print(
                "Ending: running turns may finish. Ctrl-C again ends all of it at once.", flush=True
            )
        self._end(signal.SIGTERM if self._interrupts == 1 else signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        for member in self._members:
            member.end(number)


def members(environment: Mapping[str, str], *, host: str, port: int) -> list[Member]:
    """Return the processes of the site: the runners first, so that nothing waits."""
    python = sys.executable
    runners = [
        Member(
            f"runner-{number}",
            *(python, "manage.py", "runner", "--name", f"runner-{number}"),
            environment=environment,
        )
        for number in range(1, RUNNERS + 1)
    ]
    webs = [
        Member(
            f"web-{number}",
            *(python, "-m", "uvicorn", "config.asgi:application", "--host", host),
            *("--port", str(port + number - 1), "--ws-max-size", "1048576"),
            *("--ws", "webchat.socket_protocol:WebSocketProtocol"),
            *("--timeout-graceful-shutdown", "1", "--no-access-log", "--log-level", "warning"),
            environment=environment,
        )
        for number in range(1, WEBS + 1)
    ]
    return [*runners, *webs]


def prepare(environment: Mapping[str, str], *, var: Path) -> None:
    """Migrate and make the demo users, in processes of their own: this one has to know no settings."""
    for arguments in (
        ("migrate", "--verbosity", "0"),
        ("create_demo_users", "--credentials", str(var / "credentials.txt")),
    ):
        command = [sys.executable, "manage.py", *arguments]
        code = subprocess.run(command, cwd=ROOT, env=dict(environment), check=False).returncode
        if code:
            raise RuntimeError(f"manage.py {arguments[0]} failed")


def own(kind: type[Postgres | Redis], directory: Path, *, instead: str) -> Server:
    """Make a server of our own, which is used where the variable `instead` names none. Raise `RuntimeError`."""
    try:
        return kind(directory / kind.__name__.lower())
    except NotInstalled as missing:
        raise RuntimeError(f"{missing}, or set {instead}.") from missing


def main() -> int:
    """Start what is needed, run until Ctrl-C, and stop what was started."""
    environ.Env.read_env(os.environ.get("ENV_FILE") or str(ROOT / ".env"))
    open_up()
    environment = {**os.environ, "TURNS_DISPATCHER": "procrastinate", "PYTHONUNBUFFERED": "1"}
    # All processes are on this machine, and reach the same files.
    environment["SILENCED_SYSTEM_CHECKS"] = (
        environment.get("SILENCED_SYSTEM_CHECKS") or "turns.W008"
    )
    host, port = os.environ.get("HOST") or "127.0.0.1", int(os.environ.get("PORT") or 8000)
    var = Path(os.environ.get("VAR_DIR") or ROOT / "var").resolve()
    started: list[Server] = []
    try:
        for variable, kind in (("DATABASE_URL", Postgres), ("REDIS_URL", Redis)):
            if not environment.get(variable):
                server = own(kind, var / "scaled", instead=variable)
                started.append(server)
                server.start()
                environment[variable] = server.url
        prepare(environment, var=var)
        for number in range(WEBS):
            print(f"Serving on http://{host}:{port + number}", flush=True)
        print("Behind a proxy any of them may get any request. Ctrl-C ends all of it.", flush=True)
        return asyncio.run(Site(members(environment, host=host, port=port)).run())
    except RuntimeError as problem:
        print(problem, file=sys.stderr)
        return 1
    finally:
        for server in reversed(started):
            server.stop()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before the site had its own answer to Ctrl-C
        sys.exit(130)

"""Runs a scaled site on one machine for a trial: PostgreSQL, Redis, two web processes and two runners, with one log."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import environ

from governance.private_files import make_directory
from scripts.servers import NotInstalled, Postgres, Redis, Server, ends_with_us
from scripts.start import ROOT, open_up

WEBS = 2
RUNNERS = 2
AGAIN_AFTER = 2.0  # seconds
LOOK_INTERVAL = 0.5  # seconds
TOO_SOON = 10.0  # seconds; a process that ends earlier would fail again
WIDTH = 9


def say(name: str, line: str) -> None:
    print(f"{name:<{WIDTH}}| {line}", flush=True)


class Member:
    """A process of the site, which is restarted after a crash."""

    def __init__(self, name: str, *command: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self._command = command
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._is_leaving = False

    async def run(self) -> None:
        """Run the process until `end` is called. Raise `RuntimeError` if it ends soon after its start."""
        while not self.is_leaving():
            began_at = time.monotonic()
            # In a separate session, so that Ctrl-C reaches it only through this process.
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
            if self.is_leaving():  # `end` was called during the start
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
        """Whether `end` was called."""
        return self._is_leaving

    def end(self, number: signal.Signals) -> None:
        """Send the process a signal, and do not restart it."""
        self._is_leaving = True
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def say(self, line: str) -> None:
        say(self.name, line)

    async def _pass_on(self, stream: asyncio.StreamReader | None) -> None:
        while stream is not None:
            try:
                line = await stream.readline()
            except ValueError:  # skip a line that is longer than the reader's buffer
                continue
            if not line:
                return
            self.say(line.decode("utf-8", "replace").rstrip())


class WatchedServer:
    """A server that the members need, which is restarted after a crash."""

    def __init__(self, server: Server) -> None:
        self.name = type(server).__name__.lower()
        self._server = server
        self._is_leaving = False

    async def run(self) -> None:
        """Watch the server until `end` is called. Raise `RuntimeError` if it ends again soon after a restart."""
        restarted_at: float | None = None
        while not self.is_leaving():
            await asyncio.sleep(LOOK_INTERVAL)
            code = self._server.exit_code
            if code is None:
                continue
            self._say(f"ended with {code}. Its last words:", *self._server.said.splitlines()[-10:])
            if restarted_at is not None and time.monotonic() - restarted_at < TOO_SOON:
                raise RuntimeError(f"{self.name} does not stay up")
            await asyncio.sleep(AGAIN_AFTER)
            if self.is_leaving():
                return
            restarted_at = time.monotonic()
            await asyncio.to_thread(self._server.start)
            self._say("runs again")

    def is_leaving(self) -> bool:
        """Whether `end` was called."""
        return self._is_leaving

    def end(self, _number: signal.Signals) -> None:
        """Stop watching the server, which is stopped after the members."""
        self._is_leaving = True

    def _say(self, *lines: str) -> None:
        for line in lines:
            say(self.name, line)


class Site:
    """All members of a trial. The first interrupt shuts them down gracefully, and the second kills them."""

    def __init__(self, members: Sequence[Member | WatchedServer]) -> None:
        self._members = members
        self._interrupts = 0

    async def run(self) -> int:
        """Run the members until a signal arrives or one of them fails. Return the exit code."""
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
                "Ending: running turns may finish. Press Ctrl-C again to end everything immediately.",
                flush=True,
            )
        self._end(signal.SIGTERM if self._interrupts == 1 else signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        for member in self._members:
            member.end(number)


def members(environment: Mapping[str, str], *, host: str, port: int) -> list[Member]:
    """Return the processes of the site. The runners come first, so that they are ready before the first turn."""
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
            *(python, "manage.py", "serve", "--host", host, "--port", str(port + number - 1)),
            environment=environment,
        )
        for number in range(1, WEBS + 1)
    ]
    return [*runners, *webs]


def prepare(environment: Mapping[str, str], *, var: Path) -> None:
    """Migrate the database and create the demo users in separate processes, so that this process needs no Django
    settings.
    """
    for arguments in (
        ("migrate", "--verbosity", "0"),
        ("create_demo_users", "--credentials", str(var / "credentials.txt")),
    ):
        command = [sys.executable, "manage.py", *arguments]
        code = subprocess.run(command, cwd=ROOT, env=dict(environment), check=False).returncode
        if code:
            raise RuntimeError(f"manage.py {arguments[0]} failed")


def own(kind: type[Postgres | Redis], directory: Path, *, instead: str) -> Server:
    """Return a server that stores its files in `directory`. Raise `RuntimeError` if its program is not installed.

    `instead` is the variable that can name another server. The error message mentions it.
    """
    try:
        return kind(directory / kind.__name__.lower())
    except NotInstalled as missing:
        raise RuntimeError(f"{missing}, or set {instead}.") from missing


def main() -> int:
    """Start the servers that are missing, run the site until Ctrl-C, and stop them."""
    environ.Env.read_env(os.environ.get("ENV_FILE") or str(ROOT / ".env"))
    open_up()
    environment = {**os.environ, "TURNS_DISPATCHER": "runners", "PYTHONUNBUFFERED": "1"}
    # The silenced warning is about shared files. All processes are on this machine, so they see the same files.
    environment["SILENCED_SYSTEM_CHECKS"] = (
        environment.get("SILENCED_SYSTEM_CHECKS") or "turns.W008"
    )
    host, port = os.environ.get("HOST") or "127.0.0.1", int(os.environ.get("PORT") or 8000)
    var = Path(os.environ.get("VAR_DIR") or ROOT / "var").resolve()
    servers: list[Server] = []
    try:
        # The settings also do this, but the directory must be private before a server stores files in it.
        with suppress(OSError):
            make_directory(var)
        for variable, kind in (("DATABASE_URL", Postgres), ("REDIS_URL", Redis)):
            if not environment.get(variable):
                server = own(kind, var / "scaled", instead=variable)
                servers.append(server)
                server.start()
                environment[variable] = server.url
        prepare(environment, var=var)
        print(
            "Behind a proxy, each of them may serve any request. Press Ctrl-C to end everything.",
            flush=True,
        )
        watched = [WatchedServer(server) for server in servers]
        site = Site([*watched, *members(environment, host=host, port=port)])
        return asyncio.run(site.run())
    except RuntimeError as problem:
        print(problem, file=sys.stderr)
        return 1
    finally:
        for server in reversed(servers):
            server.stop()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before the site's handler for Ctrl-C was installed
        sys.exit(130)

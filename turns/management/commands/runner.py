"""`manage.py runner`: a process that runs the turns queued by web processes."""

import asyncio
import os
import socket
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from turns.conf import app_settings
from turns.queueing.dispatchers import get_dispatcher
from turns.running import runtime
from turns.running.draining import Drain
from turns.storage import database_state

LISTENER_GRACE = 2.0  # seconds


class Command(BaseCommand):
    """Runs turns until a signal arrives."""

    help = (
        "Run the turns that web processes queue. This needs TURNS_DISPATCHER=runners and PostgreSQL, and Redis as the channel"
        " layer so that pages show text as it is written. You can start any number of runners, on any machine with the same"
        " settings. After SIGTERM or Ctrl-C, a runner starts no more turns and gives the running ones TURNS_DRAIN_GRACE"
        " seconds to end; a second signal cancels them, and a third one makes the runner exit immediately. Exit codes: 0 if"
        " all turns have ended, 1 if the runner could not shut down cleanly, 70 if something hung and the runner exited"
        " without it. Other processes end the turns that it has left open."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--concurrency",
            type=int,
            default=app_settings.MAX_LIVE,
            help="maximum number of turns that run at a time (default: TURNS_MAX_LIVE, now %(default)s)",
        )
        parser.add_argument(
            "--name",
            default=f"{socket.gethostname()}:{os.getpid()}",
            help="name of the runner in the log (default: host and process id)",
        )
        parser.add_argument(
            "--metrics-port",
            type=int,
            help="port for Prometheus metrics (needs the “metrics” extra; default: no metrics)",
        )
        parser.add_argument(
            "--metrics-host",
            default="127.0.0.1",
            help="address for Prometheus metrics; anyone who can reach it can read them (default: %(default)s)",
        )

    def handle(self, *args: Any, concurrency: int, name: str, **options: Any) -> None:
        if concurrency < 1:
            raise CommandError("--concurrency must be at least 1.")
        if get_dispatcher().is_embedded:
            raise CommandError(
                "Turns currently run in the web processes. To use runners, set TURNS_DISPATCHER=runners."
            )
        if problem := database_state.problem():
            raise CommandError(problem)
        if missing := database_state.missing_migrations():
            raise CommandError(
                f"The database lacks {', '.join(missing)}. Nothing was started. Run manage.py migrate."
            )
        if options["metrics_port"] is not None:
            self._serve_metrics(options["metrics_port"], host=options["metrics_host"])
        sys.exit(asyncio.run(self._run(concurrency, name=name)))

    async def _run(self, max_live: int, *, name: str) -> int:
        """Run turns until a signal arrives; return the exit code."""
        runtime.become_runner(max_live, name=name)
        drained = asyncio.Event()
        drain = Drain(asyncio.get_running_loop(), leave=drained.set, say=self._say)
        drain.watch_signals()
        running = await runtime.ensure_started()
        listening = asyncio.create_task(
            get_dispatcher().listen(running.supervisor.wake, name=name), name="fetching of turns"
        )
        running.on_draining(listening.cancel)
        self._say(f"{name} runs up to {max_live} turns at a time (Ctrl-C to stop)")
        await drained.wait()
        await asyncio.wait({listening}, timeout=LISTENER_GRACE)
        return drain.exit_code

    def _serve_metrics(self, port: int, *, host: str) -> None:
        if find_spec("prometheus_client") is None:
            raise CommandError("--metrics-port needs the extra: django-turnkeeper[metrics].")
        try:
            import_module("turns.running.metrics").serve(port, host=host)
        except OSError as error:
            raise CommandError(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
        self._say(f"Metrics on http://{host}:{port}/metrics")

    def _say(self, sentence: str) -> None:
        self.stdout.write(sentence)
        self.stdout.flush()

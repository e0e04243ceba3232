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
        "Run the turns that web processes queue. Needs TURNS_DISPATCHER=runners, PostgreSQL and,"
        " so that pages see text as it is written, Redis as the channel layer; start as many as you like, on any machine that"
        " has the same settings. SIGTERM or Ctrl-C starts nothing more and lets running turns end for"
        " TURNS_DRAIN_GRACE seconds; a second one cancels them, a third one leaves at once. Exit codes: 0 when all turns"
        " have ended, 1 when it could not go down as it should, 70 when something hung and the rest was ended without"
        " it; whatever it has left open, the other processes end."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--concurrency",
            type=int,
            default=app_settings.MAX_LIVE,
            help="how many turns may be busy at once (default: TURNS_MAX_LIVE, now %(default)s)",
        )
        parser.add_argument(
            "--name",
            default=f"{socket.gethostname()}:{os.getpid()}",
            help="what it is called in the log (default: host and process number)",
        )
        parser.add_argument(
            "--metrics-port",
            type=int,
            help="answer Prometheus on this port (needs the “metrics” extra; default: not at all)",
        )
        parser.add_argument(
            "--metrics-host",
            default="127.0.0.1",
            help="… at this address, to whoever can reach it (default: %(default)s)",
        )

    def handle(self, *args: Any, concurrency: int, name: str, **options: Any) -> None:
        if concurrency < 1:
            raise CommandError("--concurrency must be at least 1.")
        if get_dispatcher().is_embedded:
            raise CommandError(
                "Turns run in the processes that serve people. For runners set TURNS_DISPATCHER=runners."
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
        self._say(f"{name} runs up to {max_live} turns at once (Ctrl-C to stop)")
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

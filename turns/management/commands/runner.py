"""`manage.py runner`: a process that runs the turns which web processes queue."""

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
from turns.running.runner_process import RunnerProcess
from turns.storage import database_state


class Command(BaseCommand):
    """Runs turns until a signal comes."""

    help = (
        "Run the turns that web processes queue. Needs TURNS_DISPATCHER=procrastinate, PostgreSQL (DATABASE_URL) and,"
        " so that pages see text as it is written, Redis (REDIS_URL); start as many as you like, on any machine that"
        " has the same settings. SIGTERM or Ctrl-C starts nothing more and lets running turns end for"
        " TURNS_DRAIN_GRACE seconds; a second one cancels them, a third one leaves at once. Exit codes: 0 when all turns"
        " have ended, 1 when it could not go down as it should, 70 when something hung and the rest was ended without"
        " it; whatever it has left open, the other processes end."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take how much to do at once, and what to be called in the log."""
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
            help="answer Prometheus on this port (needs the extra “metrics”; default: not at all)",
        )
        parser.add_argument(
            "--metrics-host",
            default="127.0.0.1",
            help="… at this address, to whoever can reach it (default: %(default)s)",
        )

    def handle(self, *args: Any, concurrency: int, name: str, **options: Any) -> None:
        """Run turns until a signal comes."""
        if concurrency < 1:
            raise CommandError("--concurrency must be at least 1.")
        if get_dispatcher().is_embedded:
            raise CommandError(
                "Turns run in the processes that serve people. For runners set TURNS_DISPATCHER=procrastinate."
            )
        if problem := database_state.problem():
            raise CommandError(problem)
        if options["metrics_port"] is not None:
            self._serve_metrics(options["metrics_port"], host=options["metrics_host"])
        runner = RunnerProcess(max_live=concurrency, name=name, say=self._say)
        sys.exit(asyncio.run(runner.run()))

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

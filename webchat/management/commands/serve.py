"""`manage.py serve`: the site and its turns in one process."""

import os
import sys
from typing import Any

from channels.routing import get_default_application
from django.apps import apps
from django.conf import settings
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from turns.storage import database_state
from webchat.server import TurnServer


class Command(BaseCommand):
    """Serves the site with Daphne. The turn supervisor starts first, and drains on Ctrl-C or SIGTERM."""

    help = "Serve the site and run its turns in this process (Daphne)."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the arguments for host and port, whose defaults come from the environment."""
        host, port = os.environ.get("HOST") or "127.0.0.1", os.environ.get("PORT") or "8000"
        parser.add_argument("--host", default=host, help="address (HOST)")
        parser.add_argument("--port", type=int, default=port, help="port (PORT)")

    def handle(self, *args: Any, host: str, port: int, **options: Any) -> None:
        application = _application()
        if problem := database_state.problem():
            raise CommandError(problem)
        server = TurnServer(application, host=host, port=port, say=self._say)
        server.run()
        sys.exit(server.exit_code)

    def _say(self, sentence: str) -> None:
        self.stdout.write(sentence)
        self.stdout.flush()


def _application() -> Any:
    """Return the project's ASGI application. With DEBUG, it also serves static files, like `runserver`."""
    try:
        application: Any = get_default_application()
    except ImproperlyConfigured as problem:
        raise CommandError(str(problem)) from problem
    if settings.DEBUG and apps.is_installed("django.contrib.staticfiles"):
        return ASGIStaticFilesHandler(application)
    return application

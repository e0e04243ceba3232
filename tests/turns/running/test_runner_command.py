"""`manage.py runner --help` says what a reader needs to start one, to watch it and to end it."""

import pytest

from turns.conf import app_settings
from turns.management.commands.runner import Command
from turns.running.draining import EXIT_UNCLEAN


@pytest.fixture
def help_text() -> str:
    """Return what `--help` prints, on one line."""
    return " ".join(Command().create_parser("manage.py", "runner").format_help().split())


@pytest.mark.parametrize(
    "essential",
    [
        "TURNS_DISPATCHER=runners",
        "PostgreSQL",
        "Redis as the channel layer",
        "any number of runners",
        "SIGTERM or Ctrl-C",
        "TURNS_DRAIN_GRACE seconds",
        "a second signal cancels them",
        "--concurrency CONCURRENCY maximum number of turns that run at a time",
        "--name NAME name of the runner in the log",
        "--metrics-port METRICS_PORT port for Prometheus metrics",
    ],
)
def test_the_help_names_what_a_reader_needs(help_text: str, essential: str):
    assert essential in help_text


def test_the_help_says_which_defaults_and_exit_codes_there_are(help_text: str):
    assert f"default: TURNS_MAX_LIVE, now {app_settings.MAX_LIVE}" in help_text
    assert "0 if all turns have ended" in help_text
    assert f"{EXIT_UNCLEAN} if something hung" in help_text

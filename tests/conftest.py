"""What holds for every test. Blocking calls in async tests fail, and what a machine lacks is left out by name."""

import gc
import inspect
import os
import shutil
import signal
import ssl
import time
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from blockbuster import BlockBuster
from django.db import connection
from django.test import TransactionTestCase
from django.utils import translation
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from pytest_django import DjangoDbBlocker

from governance.core import procfs
from tests import made_once, parts, progress
from tests.clean_database import CleanDatabase, end_other_sessions
from tests.faulty_database import FaultyDatabase
from tests.support import browser_path

gc.set_threshold(50_000, 20, 100)  # as in manage.py
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background would ignore it
hypothesis_settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
hypothesis_settings.load_profile("any machine")
_PACKAGES = ("config", "console", "governance", "turns", "webchat")
_TESTS = Path(__file__).parent
_BROWSER_TESTS = _TESTS / "e2e"
_START_PROGRAMS = tuple(
    _TESTS / name for name in ("e2e", "faults", "projects", "setup", "benchmarks")
)
_LONGEST_OF_WHOLE_HOUR = 20.0  # seconds that such a test takes at most
_PROCESS_TABLE = {"<genexpr>", *vars(procfs)}


@pytest.fixture(autouse=True)
def _blocking_calls_fail(
    request: pytest.FixtureRequest, _guard_of_the_loop: BlockBuster
) -> Iterator[None]:
    """Refuse calls of the project's own code that would hold up the event loop (invariant 1)."""
    if not inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        yield
        return
    _guard_of_the_loop.activate()
    try:
        yield
    finally:
        _guard_of_the_loop.deactivate()


@pytest.fixture(autouse=True)
def _the_language_is_no_readers() -> Iterator[None]:
    """Forget the language of who asked last: a request activates it for its thread."""
    yield
    translation.deactivate()


@pytest.fixture(scope="session")
def _guard_of_the_loop() -> BlockBuster:
    """Return what refuses blocking calls; to make it takes longer than many a test."""
    # The wrapper of a task that a tool has started stands below the code of whatever library started it.
    made = BlockBuster(list(_PACKAGES), excluded_modules=["governance.core.containment"])
    _allow_short_reads(made)
    return made


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_read_once() -> Iterator[None]:
    """Share the TLS settings: every HTTP client would read all authorities again, which takes 40 ms."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def _workers_share_what_is_made_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.getbasetemp()
    made_once.share_in(directory.parent if "PYTEST_XDIST_WORKER" in os.environ else directory)


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_modify_db_settings: None, django_db_keepdb: bool) -> bool:
    """Begin with a copy of a migrated file: to migrate takes longer than many a test."""
    if connection.vendor != "sqlite":
        return django_db_keepdb
    shutil.copy(made_once.migrated_file(), connection.settings_dict["TEST"]["NAME"])
    return True


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Make the database once, and take each test's rows out of it again."""
    with django_db_blocker.unblock():
        database = CleanDatabase()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(TransactionTestCase, "_fixture_teardown", lambda _: database.restore())
        yield
    if connection.vendor == "postgresql":
        with django_db_blocker.unblock():
            end_other_sessions()


@pytest.fixture
def whole_hour() -> None:
    """Wait for the next hour if it is near. A test in which an hour or a day begins would find its figures split."""
    left = 3_600 - time.time() % 3_600
    if left < _LONGEST_OF_WHOLE_HOUR:
        time.sleep(left)


@pytest.fixture
def faulty_database(monkeypatch: pytest.MonkeyPatch) -> FaultyDatabase:
    """Return what makes the database lose something, for as long as the test runs."""
    return FaultyDatabase(monkeypatch)


def _allow_short_reads(blockbuster: BlockBuster) -> None:
    # Done once, or bounded by the kernel: starting a program, importing a module, reading a catalogue, a traceback or
    # the kernel's table of processes.
    for function in blockbuster.functions.values():
        function.can_block_in("/subprocess.py", {"__init__", "_execute_child"})
        function.can_block_in("<frozen importlib._bootstrap>", {"_load_unlocked", "_find_and_load"})
        function.can_block_in("<frozen importlib._bootstrap_external>", {"get_data", "get_code"})
        function.can_block_in("/django/core/handlers/base.py", {"load_middleware"})
        function.can_block_in("/gettext.py", {"find", "translation"})
        function.can_block_in("/linecache.py", {"updatecache", "checkcache"})
        function.can_block_in("/logging/__init__.py", {"emit", "handle"})
        function.can_block_in("/playwright/_impl/_driver.py", {"compute_driver_executable"})
        function.can_block_in("/redis/utils.py", {"get_lib_version"})
        function.can_block_in("/webchat/static_files.py", {"__init__"})
        function.can_block_in("/governance/core/procfs.py", _PROCESS_TABLE)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make test` and `make test-all` ask for."""
    parser.addoption(
        "--part", choices=parts.PARTS, help="run this part of the suite (tests/parts.py)"
    )
    parser.addoption(
        "--progress", action="store_true", help="show the time left, then what was dear"
    )


@pytest.hookimpl(trylast=True)  # after the terminal reporter is there
def pytest_configure(config: pytest.Config) -> None:
    """Show the progress where that was asked for; notice a part that names what is gone."""
    if config.getoption("progress"):
        progress.register(config)
    if os.environ.get("CI") == "true" and parts.missing():
        raise pytest.UsageError(f"tests/parts.py names what does not exist: {parts.missing()}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what belongs to another part: its packages may not be installed."""
    part = config.getoption("part")
    if part and collection_path.is_relative_to(_TESTS) and not parts.holds(part, collection_path):
        return True
    return True if collection_path == _BROWSER_TESTS and _lacks_a_browser() else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the part that was asked for, and without a browser those that need none.

    What needs no database comes first and what starts programs last: a mistake shows in the first minute. Tests with a
    browser stay together, since a worker starts site and browser anew whenever it comes back to them.
    """
    with_database = {item.path for item in items if _needs_database(item)}
    items.sort(key=lambda item: _program_rank(item.path) or item.path in with_database)
    for item in items:
        if item.path.is_relative_to(_BROWSER_TESTS):
            item.add_marker("browser")
    part = config.getoption("part")
    kept = [item for item in items if not part or parts.part_of(item.nodeid) == part]
    if _lacks_a_browser():
        kept = [item for item in kept if not item.get_closest_marker("browser")]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[*{*items} - {*kept}])
        items[:] = kept


def _program_rank(path: Path) -> int:
    for rank, directory in enumerate(_START_PROGRAMS, 2):
        if path.is_relative_to(directory):
            return rank
    return 0


def _needs_database(item: pytest.Item) -> bool:
    fixtures = {"db", "transactional_db"}.intersection(getattr(item, "fixturenames", ()))
    return bool(fixtures) or item.get_closest_marker("django_db") is not None


def pytest_collection_finish() -> None:
    """Keep what was imported out of the collector's rounds."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out."""
    if what := _lacks_a_browser():
        terminalreporter.line(f"Left out: the tests with a browser (needs {what})", yellow=True)
    if parts.missing():
        terminalreporter.line(f"tests/parts.py names what does not exist: {parts.missing()}")


@cache
def _lacks_a_browser() -> str:
    """Return what is missing for the tests with a browser; none may be left out under CI."""
    if os.environ.get("CI") == "true":
        return ""
    if not browser_path():
        return "Chromium: install the package chromium"
    return "" if find_spec("playwright") else "playwright: EXTRAS=browser"

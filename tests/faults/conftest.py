"""Servers of our own and sites on them. What a machine lacks is left out by name, unless nothing may be left out."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scripts.servers import NotInstalled, Postgres, Redis, find_postgres, find_redis, passing
from tests.faults.site import Blank, Site, make_blank
from tests.fork_server import ForkServer, shared_fork_server

MakeSite = Callable[..., Site]

# Short spans: what is promised holds for any, and a test shall not wait for long ones. But a lease is long where
# it is not what the test is about: a busy machine would lose it.
SPANS: dict[str, Any] = {
    "TURNS_POLL_INTERVAL": 0.3,
    "TURNS_LEASE_FENCE_AFTER": 60.0,
    "TURNS_LEASE_TTL": 90.0,
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long, unless it was asked for."""
    if os.environ.get("FAULTS_LONG"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def _need(find: Callable[[], object]) -> None:
    try:
        find()
    except NotInstalled as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="module", autouse=True)
def _tables_can_be_read(django_db_blocker: Any) -> Iterator[None]:
    """Let the checker read the databases of sites; the tests' own one is not touched."""
    with django_db_blocker.unblock():
        yield


@pytest.fixture(scope="session")
def own_postgres() -> Iterator[Postgres]:
    """Run a PostgreSQL for these tests alone."""
    _need(find_postgres)
    with passing(partial(Postgres, is_durable=False)) as made:
        yield made


@pytest.fixture(scope="session")
def own_redis() -> Iterator[Redis]:
    """Run a Redis for these tests alone."""
    _need(find_redis)
    with passing(Redis) as made:
        yield made


@pytest.fixture
def false_time() -> Mapping[str, str]:
    """Return what a process has in its environment whose clock is wrong, by as much as `FAKETIME` says."""
    _need(_find_false_time)
    return {"LD_PRELOAD": str(_find_false_time()), "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def _find_false_time() -> Path:
    for library in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"):
        return library
    raise NotInstalled("faketime: install faketime")


@pytest.fixture
def postgres(own_postgres: Postgres) -> Postgres:
    """Return a PostgreSQL that runs, whatever the test before has done to it."""
    own_postgres.start()
    return own_postgres


@pytest.fixture
def redis(own_redis: Redis) -> Redis:
    """Return a Redis that runs, whatever the test before has done to it."""
    own_redis.start()
    return own_redis


@pytest.fixture(scope="session")
def blank_file(tmp_path_factory: pytest.TempPathFactory) -> Blank:
    """Migrate a SQLite file once."""
    return make_blank(tmp_path_factory.mktemp("blank"))


@pytest.fixture(scope="session")
def blank_database(own_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Blank:
    """Migrate a PostgreSQL database once."""
    return make_blank(tmp_path_factory.mktemp("blank"), postgres=own_postgres)


@pytest.fixture(scope="session")
def fork_server() -> ForkServer:
    """Return what starts processes quickly."""
    return shared_fork_server()


@pytest.fixture
def embedded(tmp_path: Path, blank_file: Blank, fork_server: ForkServer) -> Iterator[MakeSite]:
    """Return a function that makes a site of one process: SQLite, messages in memory. Nothing is started yet."""
    with _sites(tmp_path, blank=blank_file, fork_server=fork_server) as make:
        yield make


@pytest.fixture
def scaled(
    tmp_path: Path, blank_database: Blank, fork_server: ForkServer, postgres: Postgres, redis: Redis
) -> Iterator[MakeSite]:
    """Return a function that makes a site of many processes: PostgreSQL, Redis. Nothing is started yet."""
    servers = {"postgres": postgres, "redis": redis}
    with _sites(tmp_path, blank=blank_database, fork_server=fork_server, **servers) as make:
        yield make


@pytest.fixture(scope="module")
def shared_embedded(
    tmp_path_factory: pytest.TempPathFactory, blank_file: Blank, fork_server: ForkServer
) -> Iterator[MakeSite]:
    """Return what `embedded` returns, for a site that does for all tests of a module."""
    directory = tmp_path_factory.mktemp("shared")
    with _sites(directory, blank=blank_file, fork_server=fork_server) as make:
        yield make


@pytest.fixture(scope="module")
def shared_scaled(
    tmp_path_factory: pytest.TempPathFactory,
    blank_database: Blank,
    fork_server: ForkServer,
    own_postgres: Postgres,
    own_redis: Redis,
) -> Iterator[MakeSite]:
    """Return what `scaled` returns, for a site that does for all tests of a module: none of them breaks its servers."""
    own_postgres.start()
    own_redis.start()
    directory = tmp_path_factory.mktemp("shared")
    servers = {"postgres": own_postgres, "redis": own_redis}
    with _sites(directory, blank=blank_database, fork_server=fork_server, **servers) as make:
        yield make


@contextmanager
def _sites(directory: Path, **parts: Any) -> Iterator[MakeSite]:
    """Give a function that makes sites of these parts, and end them afterwards."""
    made: list[Site] = []

    def make(**settings: Any) -> Site:
        var = directory / f"{os.getpid()}_{len(made)}_{directory.name[-20:]}"
        var.mkdir()
        made.append(Site(var, **parts, **{**SPANS, **settings}))
        return made[-1]

    try:
        yield make
    finally:
        for site in made:
            site.leave()

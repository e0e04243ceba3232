"""The servers of our own can be broken and come back. Else what the other tests do to them proves nothing."""

import signal

import psycopg
import pytest

from scripts.servers import Postgres, Redis
from tests.faults.conftest import MakeSite


def test_a_postgres_that_was_ended_keeps_what_it_had(postgres: Postgres):
    postgres.run("CREATE TABLE IF NOT EXISTS kept (n int)")
    postgres.crash()
    with pytest.raises(psycopg.OperationalError):
        postgres.run("SELECT 1")
    postgres.start()
    assert postgres.run("SELECT count(*) FROM kept") == [(0,)]


def test_a_redis_comes_back_on_its_port(redis: Redis):
    port = redis.port
    redis.signal(signal.SIGSTOP)
    redis.crash()
    redis.start()
    assert redis.port == port


def test_a_site_of_many_processes_has_a_database_of_its_own(scaled: MakeSite):
    first, second = scaled(), scaled()
    assert first.database_url != second.database_url
    assert first.record().turns == second.record().turns == []
    assert first.verdict() == []

"""The threads that are asked all the time keep their connections to PostgreSQL, as long as these are whole."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.servers import Postgres
from tests.support import run_program

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = """
import asyncio, json, sys
from contextlib import suppress

import django
django.setup()

import psycopg
from django.conf import settings
from django.db import DatabaseError, connection
from governance import db

cross = getattr(db, sys.argv[1])

def ask(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]

@cross
def server_process():
    return ask("SELECT pg_backend_pid()")

@cross
def has_connection():
    return connection.connection is not None

@cross
def fail():
    with suppress(DatabaseError):
        ask("SELECT nonsense")

@cross
def leave_autocommit():
    connection.set_autocommit(False)
    return ask("SELECT 1")

def end(pid):
    known = settings.DATABASES["default"]
    names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    with psycopg.connect(**{name: known[key] for name, key in names.items()}) as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])

async def main():
    told = {"first": await server_process(), "is_kept": await has_connection(), "second": await server_process()}
    await fail()
    told["is_kept_after_a_failure"] = await has_connection()
    await leave_autocommit()
    told["is_kept_without_autocommit"] = await has_connection()
    ended = await server_process()
    await asyncio.to_thread(end, ended)
    told["ended"], told["after_the_end"] = ended, await server_process()
    print(json.dumps(told))

asyncio.run(main())
"""


def told(postgres: Postgres, var: Path, *, door: str, pool_size: int) -> dict[str, Any]:
    environment = {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "ENV_FILE": os.devnull,
        "VAR_DIR": str(var),
        "DATABASE_URL": postgres.database_url("postgres"),
        "DATABASE_POOL_SIZE": str(pool_size),
    }
    done = run_program([sys.executable, "-c", PROGRAM, door], cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("door", ["run_in_db_thread", "run_in_poll_thread"])
def test_a_whole_connection_is_kept_and_any_other_goes_back(
    postgres: Postgres, tmp_path: Path, door: str
):
    answer = told(postgres, tmp_path, door=door, pool_size=4)
    assert answer["is_kept"]
    assert answer["second"] == answer["first"]
    assert not answer["is_kept_after_a_failure"]
    assert not answer["is_kept_without_autocommit"]
    assert answer["after_the_end"] != answer["ended"]


@pytest.mark.parametrize("pool_size", [1, 2])
def test_nobody_keeps_a_connection_of_a_pool_that_others_need(
    postgres: Postgres, tmp_path: Path, pool_size: int
):
    answer = told(postgres, tmp_path, door="run_in_db_thread", pool_size=pool_size)
    assert not answer["is_kept"]

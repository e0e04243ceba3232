"""What differs on PostgreSQL: the tests of hot statements both ways, once more, and those of locked rows."""

import os
import subprocess
import sys
from pathlib import Path

from scripts.servers import Postgres
from tests.support import LONG_PATIENCE

ROOT = Path(__file__).resolve().parent.parent.parent
TESTS = (
    "tests/governance/test_prepared_statements.py",
    "tests/turns/test_hot_statements.py",
    "tests/turns/test_locked_rows.py",
)


def test_statements_have_the_same_rows_and_wait_for_the_same_on_postgresql(postgres: Postgres):
    postgres.run("CREATE DATABASE statements")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        env={**os.environ, "TEST_DATABASE_URL": postgres.database_url("statements")},
        capture_output=True,
        text=True,
        timeout=2 * LONG_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5_000:]

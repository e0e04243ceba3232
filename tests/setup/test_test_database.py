"""TEST_DATABASE_URL names the database of the tests, in the workers of pytest-xdist too."""

import os
import sys

from scripts.servers import free_port
from tests.support import run_program

TEST = "tests/turns/endings/test_recovery.py"


def test_workers_use_the_database_that_the_environment_names():
    nowhere = f"postgres://nobody@127.0.0.1:{free_port()}/nothing"
    done = run_program(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "1", "-p", "no:cacheprovider", TEST],
        env={"PATH": os.environ["PATH"], "TEST_DATABASE_URL": nowhere},
    )
    assert done.returncode in {1, 2}, done.stdout
    assert "onnection refused" in done.stdout

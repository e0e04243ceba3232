"""A host on PostgreSQL: no connection is closed in a transaction of the host or of its tests."""

import os
from functools import partial
from pathlib import Path

import pytest

from scripts.servers import NotInstalled, Postgres, passing
from tests.docs.pages import DOCS, python_blocks
from tests.projects.hosts import ROOT, HostProject


def test_the_hosts_own_tests_pass_and_its_transactions_stay_whole(installed: Path, tmp_path: Path):
    [run_tool] = [
        block
        for block in python_blocks(DOCS / "howto" / "use-governance-alone.md")
        if "def run_tool" in block
    ]
    try:
        with passing(partial(Postgres, is_durable=False)) as postgres:
            host = HostProject(
                "on_postgres", path=(installed, ROOT / "tests" / "projects"), directory=tmp_path
            )
            host.environment["HOST_PROJECT_POSTGRES"] = postgres.database_url("host")
            host.environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
            (tmp_path / "governed.py").write_text(run_tool, "utf-8")
            done = host.try_to_run(
                "-m", "django", "test", "on_postgres", "--pattern", "own_tests.py"
            )
    except NotInstalled as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    assert done.returncode == 0, done.stderr
    assert "Ran 5 tests" in done.stderr

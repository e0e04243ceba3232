"""Commands that look after a site: they run where no sandbox can, as in a closed unit or a web container."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.fork_server import ROOT
from tests.made_once import migrated_file
from tests.support import run_program


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("prune --days 90", "Deleted: 0 turns"),
        ("roll_up_durations --days 1", "Rolled up: "),
        ("issue_token nobody scrape", "There is no active user"),
    ],
)
def test_a_sandbox_that_is_demanded_and_missing_stops_no_maintenance(
    command: str, said: str, tmp_path: Path
):
    shutil.copy(migrated_file(), tmp_path / "db.sqlite3")
    environment = {
        "PATH": str(tmp_path),
        "ENV_FILE": os.devnull,
        "VAR_DIR": str(tmp_path),
        "GOVERNANCE_EXEC_SANDBOX": "bwrap",
    }
    ended = run_program([sys.executable, "manage.py", *command.split()], cwd=ROOT, env=environment)
    assert said in ended.stdout + ended.stderr

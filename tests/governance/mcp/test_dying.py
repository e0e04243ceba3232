"""A process of ours that dies without a word takes its servers with it, and what they started."""

import json
import subprocess
import sys

from tests.governance.core.process_table import runs
from tests.support import eventually_sync


def test_servers_die_with_the_process_that_started_them():
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.governance.mcp.dying"], stdout=subprocess.PIPE
    )
    try:
        pids = json.loads(process.stdout.readline())
        assert len(pids) == 3
        assert all(map(runs, pids))
    finally:
        process.kill()
        process.communicate()
    eventually_sync(lambda: not any(map(runs, pids)))

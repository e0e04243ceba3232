"""What every test of the worker processes needs: marked processes, invokers that leave none, a pipe to wait at."""

import os
import sys
import uuid

import pytest

from governance.core.invokers import process
from governance.core.invokers.process import ProcessInvoker
from tests.governance.core.invokers.worker_calls import GRACE
from tests.governance.core.process_table import tagged
from tests.support import PATIENCE, eventually

collect_ignore_glob = [] if sys.platform == "linux" else ["test_process_*.py", "test_worker_*.py"]


@pytest.fixture(autouse=True)
def mark(monkeypatch):
    """What marks the processes of this test, so that others on the machine do not matter."""
    monkeypatch.setattr(process, "_PROOF_TIMEOUT", PATIENCE)
    monkeypatch.setenv("WORKER_TEST", uuid.uuid4().hex)
    return f"WORKER_TEST={os.environ['WORKER_TEST']}"


@pytest.fixture
async def make(mark):
    """Make invokers; afterwards none of their processes may be left."""
    made = []

    def make_invoker(**options):
        invoker = ProcessInvoker(**{"max_workers": 1, "kill_grace": GRACE, **options})
        made.append(invoker)
        return invoker

    yield make_invoker
    for invoker in made:
        await invoker.aclose()
        assert invoker.live == 0
    await eventually(lambda: not tagged(mark))


@pytest.fixture
def pipe(tmp_path):
    """A named pipe on which a tool waits until something is written."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path

"""What `make run-scaled` starts: a site of several processes on servers of its own, gone with one Ctrl-C."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from scripts.servers import are_installed, free_port
from tests.setup.started_site import ROOT, signed_in, started_site
from tests.support import LONG_PATIENCE, eventually_sync, run_program


def answers(url: str) -> Callable[[], bool]:
    def ask() -> bool:
        try:
            return httpx.get(f"{url}/readyz", trust_env=False, timeout=5).is_success
        except httpx.TransportError:
            return False

    return ask


@pytest.fixture
def var() -> Iterator[Path]:
    """Return a directory that the user of PostgreSQL may enter, as a clone of the project is one."""
    made = Path(tempfile.mkdtemp(prefix="turnkeeper-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.mark.skipif(
    not are_installed() and os.environ.get("CI") != "true",
    reason="needs postgresql and redis-server",
)
@pytest.mark.timeout(600)
def test_a_message_to_one_process_is_answered_in_another_and_ctrl_c_ends_all_of_it(var: Path):
    port = free_port()
    urls = [f"http://127.0.0.1:{port + number}" for number in range(2)]
    up = [answers(url) for url in urls]
    with started_site(
        "scripts.scaled", var=var, port=port, is_up=lambda _: all(is_up() for is_up in up)
    ) as said:
        password = re.search(r"user demo with the password (\S+)", said.read_text())[1]
        with signed_in(urls[0], password=password) as client:
            made = client.post("/api/conversations", json={}).json()["conversation_id"]
            path = f"/api/conversations/{made}/messages"
            turn = client.post(path, json={"text": "help"}).json()["turn_id"]
        with signed_in(urls[1], password=password) as client:
            eventually_sync(
                lambda: client.get(f"/api/turns/{turn}").json()["status"] == "completed",
                timeout=LONG_PATIENCE,
            )
        eventually_sync(lambda: "runner-1 |" in said.read_text())


def test_a_missing_program_is_named(tmp_path: Path):
    run = run_program(
        [sys.executable, "-m", "scripts.scaled"],
        cwd=ROOT,
        env={
            "PATH": "/nowhere",
            "ENV_FILE": os.devnull,
            "VAR_DIR": str(tmp_path),
            "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none",
            "PORT": "",  # as an empty line of .env
        },
    )
    assert run.returncode == 1
    assert run.stderr.strip() == "Redis: install redis-server, or set REDIS_URL."

"""What `make run-scaled` starts: a site of several processes on servers of its own, gone with one Ctrl-C."""

import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
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
    shutil.rmtree(cluster(made).parent)
    shutil.rmtree(made, ignore_errors=True)


def cluster(var: Path) -> Path:
    """Return where PostgreSQL keeps its files: root lends them to another user, outside."""
    note = var / "scaled" / "postgres" / "elsewhere"
    return (Path(note.read_text()) if note.exists() else note.parent) / "data"


def run_scaled(var: Path, port: int) -> AbstractContextManager[Path]:
    up = [answers(f"http://127.0.0.1:{port + number}") for number in range(2)]
    return started_site(
        "scripts.scaled", var=var, port=port, is_up=lambda _: all(is_up() for is_up in up)
    )


@pytest.mark.skipif(
    not are_installed() and os.environ.get("CI") != "true",
    reason="needs postgresql and redis-server",
)
@pytest.mark.timeout(600)
def test_a_message_to_one_process_is_answered_in_another_and_ctrl_c_ends_all_of_it(var: Path):
    port = free_port()
    urls = [f"http://127.0.0.1:{port + number}" for number in range(2)]
    with run_scaled(var, port) as said:
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


@pytest.mark.skipif(
    not are_installed() and os.environ.get("CI") != "true",
    reason="needs postgresql and redis-server",
)
@pytest.mark.timeout(600)
def test_a_second_start_finds_the_conversations_of_the_first_one_and_a_dead_database_comes_back(
    var: Path,
):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with run_scaled(var, port) as said:
        password = re.search(r"user demo with the password (\S+)", said.read_text())[1]
        with signed_in(url, password=password) as client:
            made = client.post("/api/conversations", json={}).json()["conversation_id"]
    with run_scaled(var, port) as said, signed_in(url, password=password) as client:
        assert client.get(f"/api/conversations/{made}/export").is_success
        os.kill(int((cluster(var) / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        eventually_sync(lambda: "postgres | ended with -9" in said.read_text())
        eventually_sync(lambda: "postgres | runs again" in said.read_text(), timeout=LONG_PATIENCE)
        eventually_sync(answers(url), timeout=LONG_PATIENCE)
        assert client.get(f"/api/conversations/{made}/export").is_success


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

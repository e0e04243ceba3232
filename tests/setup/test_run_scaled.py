"""What `make run-scaled` starts: a site of several processes on servers of its own, gone with one Ctrl-C."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from governance.core import procfs
from scripts.servers import are_installed, free_port
from tests.setup.test_start import ROOT
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync


@contextmanager
def signed_in(url: str, *, password: str) -> Iterator[httpx.Client]:
    how = {"base_url": url, "trust_env": False, "timeout": 15, "headers": {"Referer": url}}
    with httpx.Client(**how) as client:
        page = client.get("/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)[1]
        form = {"username": "demo", "password": password, "csrfmiddlewaretoken": token}
        client.post("/login/", data=form)
        client.headers["X-CSRFToken"] = client.cookies["csrftoken"]
        yield client


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
    environment = {
        "PATH": os.environ["PATH"],
        "ENV_FILE": os.devnull,
        "VAR_DIR": str(var),
        "PORT": str(port),
        "TURNKEEPER_TEST": str(var),
    }
    said = var / "said.txt"
    with said.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "scripts.scaled"],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
        )
    urls = [f"http://127.0.0.1:{port + number}" for number in range(2)]
    try:
        for url in urls:
            is_up = answers(url)
            eventually_sync(lambda: is_up() or process.poll() is not None, timeout=LONG_PATIENCE)  # noqa: B023
        assert process.poll() is None, said.read_text()
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
        assert "runner-1 |" in said.read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 0, said.read_text()
        tag = f"TURNKEEPER_TEST={var}"
        eventually_sync(
            lambda: not [pid for pid in procfs.pids() if procfs.is_tagged(pid, tag=tag)]
        )
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_missing_program_is_named(tmp_path: Path):
    run = subprocess.run(
        [sys.executable, "-m", "scripts.scaled"],
        cwd=ROOT,
        env={
            "PATH": "/nowhere",
            "ENV_FILE": os.devnull,
            "VAR_DIR": str(tmp_path),
            "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none",
        },
        capture_output=True,
        text=True,
        timeout=LONG_PATIENCE,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.strip() == "Redis: install redis-server, or set REDIS_URL."

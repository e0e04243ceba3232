"""What `make run` starts: a site that can be signed in to, ends on Ctrl-C, and is the same one the next time."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from governance.core import procfs
from scripts.start import chosen_extras, is_loopback
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync

ROOT = Path(__file__).resolve().parents[2]


HIDE = """
import sys
from importlib.machinery import PathFinder

class WithoutExtras(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in {names}:
            return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutExtras
"""
OF_EXTRAS = {
    "anthropic",
    "channels_redis",
    "google",
    "mcp",
    "openai",
    "playwright",
    "procrastinate",
    "prometheus_client",
    "psycopg",
    "psycopg_pool",
    "pydantic_ai",
    "redis",
    "uvicorn",
    "websockets",
}


@contextmanager
def site(var: Path) -> Iterator[tuple[str, Path]]:
    """Run a site until the block ends; Ctrl-C then has to end it, and everything that it started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tag = f"TURNKEEPER_TEST={var}"
    environment = {
        "PATH": os.environ["PATH"],
        "ENV_FILE": os.devnull,
        "VAR_DIR": str(var),
        "PORT": str(port),
        "TURNKEEPER_TEST": str(var),
        "PYTHONPATH": str(var / "first"),  # what a test puts there
    }
    said = var / "said.txt"
    command = [sys.executable, "-m", "scripts.start"]
    with said.open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        eventually_sync(
            lambda: "Serving on" in said.read_text() or process.poll() is not None,
            timeout=LONG_PATIENCE,
        )
        assert process.poll() is None, said.read_text()
        yield f"http://127.0.0.1:{port}", said
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 0, said.read_text()
        eventually_sync(
            lambda: not [pid for pid in procfs.pids() if procfs.is_tagged(pid, tag=tag)]
        )
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def sign_in(url: str, *, password: str) -> httpx.Response:
    with httpx.Client(base_url=url, trust_env=False) as client:
        page = client.get("/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)[1]
        form = {"username": "demo", "password": password, "csrfmiddlewaretoken": token}
        client.post("/login/", data=form, headers={"Referer": url})
        return client.get("/")


def test_what_is_wrong_is_said_instead_of_served(tmp_path):
    environment = {
        "PATH": str(tmp_path),
        "ENV_FILE": os.devnull,
        "VAR_DIR": str(tmp_path),
        "GOVERNANCE_EXEC_SANDBOX": "bwrap",
    }
    command = [sys.executable, "-m", "scripts.start"]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG_PATIENCE,
        check=False,
    )
    assert ended.returncode == 1
    assert "governance.E036" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_first_start_shows_a_password_that_works_and_the_second_one_reuses_everything(tmp_path):
    with site(tmp_path) as (url, said):
        password = re.search(r"user demo with the password (\S+)", said.read_text())[1]
        assert sign_in(url, password=password).status_code == 200
        assert httpx.get(f"{url}/static/webchat/js/chat.js", trust_env=False).status_code == 200
    with site(tmp_path) as (url, said):
        assert password not in said.read_text()
        assert sign_in(url, password=password).status_code == 200
        assert sign_in(url, password="wrong").status_code == 302


def test_the_default_needs_nothing_of_what_the_extras_install(tmp_path):
    (tmp_path / "first").mkdir()
    hide = HIDE.replace("{names}", repr(OF_EXTRAS))
    (tmp_path / "first" / "sitecustomize.py").write_text(hide, "utf-8")
    with site(tmp_path) as (url, said):
        password = re.search(r"user demo with the password (\S+)", said.read_text())[1]
        assert sign_in(url, password=password).status_code == 200
        assert "Traceback" not in said.read_text()


@pytest.mark.parametrize(
    ("variable", "value", "extra"),
    [
        ("AGENT_MODEL", "anthropic:claude", "anthropic"),
        ("AGENT_MODEL", "google:gemini", "google"),
        ("AGENT_MODEL", "openai:gpt", "openai"),
        ("DATABASE_URL", "postgres://user@host/name", "scaled"),
        ("REDIS_URL", "redis://host", "scaled"),
        ("TURNS_DISPATCHER", "procrastinate", "scaled"),
    ],
)
def test_what_the_environment_asks_for_names_its_extra_unless_it_is_there(
    monkeypatch, variable, value, extra
):
    assert (ROOT / "requirements" / f"{extra}.in").exists()
    assert [*chosen_extras({variable: value})] == []
    monkeypatch.setattr("scripts.start.find_spec", lambda _name: None)
    assert [*chosen_extras({variable: value})] == [(variable, value, extra)]
    assert [*chosen_extras({"AGENT_MODEL": "local", "TURNS_DISPATCHER": "embedded"})] == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_commands_may_run_where_no_other_machine_can_reach_the_site(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
def test_commands_stay_off_where_another_machine_can_reach_the_site(host):
    assert not is_loopback(host)

"""Plugging in: host projects of two kinds, with the package as it is installed and not the repository behind it."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, python_blocks
from tests.support import eventually_sync

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ("governance_only", "everything")

MAKE_TOKEN = """
import django
django.setup()
from django.contrib.auth import get_user_model
from webchat import tokens
ada = get_user_model().objects.create_user("ada", password="correct horse")
print(tokens.issue(user=ada, name="test")[1])
"""
LOAD_PAGES = """
import django
django.setup()
from django.contrib.auth import get_user_model
from django.contrib.staticfiles import finders
from django.test import Client
browser = Client()
assert browser.get("/").content == b"the host's own page"
away = browser.get("/assistant/")
assert (away.status_code, away["Location"]) == (302, "/assistant/login/?next=/assistant/"), away
assert b"<form" in browser.get("/assistant/login/").content
browser.force_login(get_user_model().objects.create_superuser("grace"))
page = browser.post("/assistant/c/new/", follow=True)
assert page.status_code == 200
assert b"webchat/js/chat.js" in page.content
assert "script-src" not in page["Content-Security-Policy"]
assert finders.find("webchat/js/chat.js")
assert b"Tool limits" in browser.get("/admin/").content
"""
RUN_RECORDED = """
import asyncio
import django
django.setup()
from governance.models import ToolCall as Row
from governance.runtime import close_executor

async def main():
    outcome = await run_tool(answer_id="a1", call_id="c1", name="order_status", arguments={"order": 7})
    assert outcome.result == "Order 7 is on its way.", outcome
    following = asyncio.create_task(follow_edits())
    await asyncio.sleep(0)
    following.cancel()
    await close_executor()

asyncio.run(main())
row = Row.objects.get(group="a1", call_id="c1")
assert (row.status, row.timeout_ms, row.timeout_source) == ("succeeded", 30_000, "tool"), vars(row)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the package and unpack it, as pip would."""
    target = tmp_path_factory.mktemp("installed")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    [wheel] = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target / "site")
    return target / "site"


class HostProject:
    """A project of somebody else, in a directory of its own."""

    def __init__(self, name: str, *, installed: Path, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{installed}{os.pathsep}{ROOT / 'tests' / 'projects'}",
            "DJANGO_SETTINGS_MODULE": f"{name}.settings",
            "HOST_PROJECT_DATABASE": str(directory / "db.sqlite3"),
        }

    def run(self, *arguments: str) -> str:
        """Run Python in the project; return what it printed."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def manage(self, *arguments: str) -> str:
        """Run a management command."""
        return self.run("-m", "django", *arguments)


@pytest.fixture
def host(request: pytest.FixtureRequest, installed: Path, tmp_path: Path) -> HostProject:
    made = HostProject(request.param, installed=installed, directory=tmp_path)
    assert str(ROOT) not in made.run("-c", "import governance; print(governance.__file__)")
    return made


@pytest.mark.parametrize("host", HOSTS, indirect=True)
def test_a_host_project_has_no_complaints_and_nothing_to_migrate_afterwards(host):
    assert "no issues" in host.manage("check", "--fail-level", "WARNING")
    host.manage("makemigrations", "--check", "--dry-run")
    host.manage("migrate", "--verbosity", "0")
    host.manage("migrate", "--check")


@pytest.mark.parametrize("host", ["governance_only"], indirect=True)
def test_governance_alone_runs_the_example_of_its_page_and_records_it(host):
    host.manage("migrate", "--verbosity", "0")
    blocks = python_blocks(DOCS / "howto" / "use-governance-alone.md")
    [run_tool] = [block for block in blocks if "def run_tool" in block]
    [follow_edits] = [block for block in blocks if "def follow_edits" in block]
    begin, rest = RUN_RECORDED.split("django.setup()\n")
    script = f"{begin}django.setup()\n{run_tool}\n{follow_edits}\n{rest}"
    host.run("-c", script)
    imported = "import django, sys; django.setup(); print({'turns', 'webchat', 'channels'} & {*sys.modules})"
    assert host.run("-c", imported).strip() == "set()"


@pytest.mark.parametrize("host", ["everything"], indirect=True)
def test_the_pages_are_there_below_the_prefix_of_the_host(host):
    host.manage("migrate", "--verbosity", "0")
    host.run("-c", LOAD_PAGES)


@pytest.mark.parametrize("host", ["everything"], indirect=True)
def test_a_host_project_serves_turns_with_its_own_tools(host):
    host.manage("migrate", "--verbosity", "0")
    token = host.run("-c", MAKE_TOKEN).strip()
    with _serving(host) as url:
        api = f"{url}/assistant/api"
        begun = _ask(f"{api}/conversations", token=token, body={})
        messages = f"{api}/conversations/{begun['conversation_id']}/messages"
        sent = _ask(messages, token=token, body={"text": 'call order_status {"order": 7}'})
        turn = f"{api}/turns/{sent['turn_id']}"
        eventually_sync(lambda: _ask(turn, token=token)["status"] == "completed", timeout=20)
        [call] = _ask(turn, token=token)["calls"]
    assert (call["tool_name"], call["status"]) == ("order_status", "succeeded")


@contextmanager
def _serving(host: HostProject) -> Iterator[str]:
    """Serve the project with `manage.py serve`; end it as Ctrl-C does."""
    port = _free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "django", "serve", "--port", str(port)],
        cwd=host.directory,
        env=host.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = server.stdout.readline()
        assert "Serving on" in said, said
        yield f"http://localhost:{port}"
        server.send_signal(signal.SIGINT)
        said, _errors = server.communicate(timeout=30)
        assert server.returncode == 0, said
    finally:
        server.kill()
        server.communicate()


def _ask(url: str, *, token: str, body: object = None) -> dict:
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]

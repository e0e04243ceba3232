"""Plugging in to the letter: a project that `startproject` made a moment ago, and the blocks of the page."""

import json
import shutil
from uuid import uuid4

import pytest
from websockets.sync.client import connect

from tests.docs.pages import python_blocks
from tests.projects.hosts import PLUG_IN, FreshProject, Visitor
from tests.support import eventually_sync

SERVE = ("django", "serve", "--port", "{port}")
RUNSERVER = ("django", "runserver", "--noreload", "localhost:{port}")
UVICORN = ("uvicorn", "myproject.asgi:application", "--host", "localhost", "--port", "{port}")
PAGES = (
    "/assistant/",
    "/assistant/api/docs",
    "/admin/",
    "/admin/governance/toolpolicy/",
    "/admin/governance/toolpolicy/add/",
    "/admin/turns/turn/",
    "/admin/webchat/apitoken/add/",
)
IN_PRODUCTION = "DEBUG = False\nALLOWED_HOSTS = ['localhost']\n"


@pytest.fixture(scope="module")
def pattern(installed, tmp_path_factory):
    """A project with its tables and its first user."""
    made = FreshProject.start(path=(installed,), directory=tmp_path_factory.mktemp("pattern"))
    made.manage("migrate", "--verbosity", "0")
    made.manage("createsuperuser", "--no-input", "--username", "ada", "--email", "ada@example.org")
    return made


@pytest.fixture
def project(pattern, installed, tmp_path):
    shutil.copytree(pattern.directory, tmp_path, dirs_exist_ok=True)
    return FreshProject(path=(installed,), directory=tmp_path)


def block_with(text: str) -> str:
    """Return the block of the page in which this stands."""
    [block] = [block for block in python_blocks(PLUG_IN) if text in block]
    return block


def look_around(url: str) -> None:
    """Sign in, open a conversation, and get every file that a page names."""
    with Visitor(url) as visitor:
        files = visitor.files_of("/assistant/login/")
        visitor.sign_in("/assistant/login/", name="ada")
        conversation = visitor.post_form("/assistant/c/new/").url.path
        files |= visitor.files_of(conversation, *PAGES)
        assert {path: status for path, status in files.items() if status != 200} == {}
        for name in ("webchat/js/chat.js", "webchat/js/reducer.js", "webchat/css/page.css"):
            assert f"/static/{name}" in files
        assert any(path.startswith("/static/admin/css/") for path in files)
        run_a_turn(visitor, conversation_id=conversation.split("/")[-2])


def run_a_turn(visitor: Visitor, *, conversation_id: str) -> None:
    """Say something on the socket, and see the answer there."""
    url = str(visitor.base_url.copy_with(scheme="ws")).rstrip("/")
    cookie = f"sessionid={visitor.cookies['sessionid']}"
    with connect(
        f"{url}/ws/conversations/{conversation_id}/",
        additional_headers={"Cookie": cookie},
        origin=str(visitor.base_url).rstrip("/"),
        proxy=None,
    ) as socket:
        for frame in (
            {"type": "hello", "protocol": 1},
            {"type": "message", "client_id": str(uuid4()), "text": "wait 0"},
        ):
            socket.send(json.dumps(frame))
        seen: list[str] = []

        def is_over() -> bool:
            seen.append(json.loads(socket.recv(timeout=30))["type"])
            return seen[-1] == "turn_end"

        eventually_sync(is_over, timeout=60)


def test_it_has_no_complaints(project):
    assert project.complaints() == []
    project.manage("makemigrations", "--check", "--dry-run")


def test_serve_has_every_file_that_a_page_names(project):
    with project.serving(*SERVE) as url:
        look_around(url)


def test_daphnes_runserver_has_every_file_that_a_page_names(project):
    project.apply(block_with('"daphne"'))
    assert project.complaints() == []
    with project.serving(*RUNSERVER) as url:
        look_around(url)


def test_another_server_has_every_file_that_a_page_names(project):
    project.apply(block_with("staticfiles_urlpatterns()"))
    with project.serving(*UVICORN) as url:
        look_around(url)


@pytest.mark.parametrize("server", [SERVE, UVICORN], ids=["serve", "uvicorn"])
def test_in_production_the_process_has_every_file_that_a_page_names(project, server):
    project.apply(IN_PRODUCTION)
    assert project.complaints() == ["webchat.W020"]
    project.apply(block_with("STATIC_ROOT"))
    assert project.complaints() == ["webchat.W020"]
    project.apply(block_with("webchat.static_files"))
    project.manage("collectstatic", "--no-input", "--verbosity", "0")
    assert project.complaints() == []
    with project.serving(*server) as url:
        look_around(url)


def test_djangos_own_runserver_says_that_it_knows_no_websockets(project):
    with project.serving(*RUNSERVER):
        pass
    assert "webchat.W023" in (project.directory / "server.log").read_text("utf-8")

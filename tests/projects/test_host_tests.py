"""The tests of docs/howto/testing-tools.md, run as a project runs them: by Django's runner and by pytest-django."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scripts.servers import NotInstalled, Postgres, passing
from tests.docs.pages import DOCS, python_blocks
from tests.projects.hosts import FreshProject

PAGE = DOCS / "howto" / "testing-tools.md"
VIEWS = """
from asgiref.sync import async_to_sync
from django.http import HttpResponse
from django.urls import path
from governance.runtime import close_executor
from myproject.urls import urlpatterns as of_project
from shops.governed import run_tool

async def run(name):
    try:
        arguments = {"name": name}
        return await run_tool(answer_id="a1", call_id="c1", name="open_shop", arguments=arguments)
    finally:
        await close_executor()

def open_shop(request):
    return HttpResponse(async_to_sync(run)(request.POST["name"]).result)

urlpatterns = [path("shops/open/", open_shop), *of_project]
"""
POSTGRES = """
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": %r,
        "USER": %r,
        "PASSWORD": %r,
        "HOST": %r,
        "PORT": %r,
        "CONN_MAX_AGE": 60,
    }
}
"""


def block_with(text: str, page: Path = PAGE) -> str:
    [block] = [block for block in python_blocks(page) if text in block]
    return block


@contextmanager
def passing_postgres() -> Iterator[Postgres]:
    try:
        with passing(partial(Postgres, is_durable=False)) as postgres:
            yield postgres
    except NotInstalled as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture
def project(installed: Path, tmp_path: Path) -> FreshProject:
    made = FreshProject.start(path=(installed,), directory=tmp_path)
    made.apply('INSTALLED_APPS += ["shops"]\nROOT_URLCONF = "shops.urls"')
    app = tmp_path / "shops"
    app.mkdir()
    (tmp_path / "conftest.py").write_text(block_with("conftest.py"), "utf-8")
    for name, text in {
        "__init__.py": "",
        "governed.py": block_with("def run_tool", DOCS / "howto" / "use-governance-alone.md"),
        "test_switch.py": block_with("one_database_thread"),
        "test_tools.py": block_with("settings.GOVERNANCE"),
        "tests.py": block_with("TransactionTestCase"),
        "tools.py": block_with("def print_labels"),
        "urls.py": VIEWS,
    }.items():
        (app / name).write_text(text, "utf-8")
    return made


def run_all_tests(project: FreshProject) -> None:
    done = project.try_to_run("-m", "pytest", "-q", "--reuse-db", "shops")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    done = project.try_to_run(
        "-m", "django", "test", "shops", "--pattern", "tests.py", "--no-input"
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 6 tests" in done.stderr
    own = project.directory / "db.sqlite3"
    assert not own.exists()


def test_the_tests_of_the_page_pass_on_a_sqlite_file(project):
    project.apply(block_with('["TEST"]'))
    run_all_tests(project)


def test_the_tests_of_the_page_pass_on_postgresql(project):
    with passing_postgres() as postgres:
        place = urlsplit(postgres.database_url("host"))
        name = place.path.strip("/")
        values = (name, place.username, place.password, place.hostname, place.port)
        project.apply(POSTGRES % values)
        run_all_tests(project)


def test_the_tests_in_a_transaction_pass_in_memory_and_another_says_what_it_needs(project):
    threads = "shops.tests.ShopToolsInThreads.test_a_cancel_of_a_plain_function"
    done = project.try_to_run("-m", "django", "test", "shops.tests.ShopTools", threads)
    assert "Ran 5 tests" in done.stderr
    assert "FAILED (errors=1)" in done.stderr
    assert "on PostgreSQL or a SQLite file" in done.stderr

"""Plugging in to the letter: a project that `startproject` made a moment ago, and the blocks of the page."""

import shutil
import sqlite3
from contextlib import closing

import httpx
import pytest

from tests.docs.pages import DOCS, python_blocks
from tests.projects.hosts import FreshProject, block_with
from tests.projects.site_client import visit_pages
from tests.support import LONG_PATIENCE

SERVE = ("django", "serve", "--port", "{port}")
RUNSERVER = ("django", "runserver", "--noreload", "localhost:{port}")
DAPHNE = ("daphne", "-b", "localhost", "-p", "{port}", "myproject.asgi:application")
UVICORN = ("uvicorn", "myproject.asgi:application", "--host", "localhost", "--port", "{port}")
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


def test_it_has_no_complaints(project):
    assert project.complaints() == []
    project.manage("makemigrations", "--check", "--dry-run")


def test_serve_has_every_file_that_a_page_names(project):
    with project.serving(*SERVE) as url:
        visit_pages(url, name="ada")


def test_daphnes_runserver_has_every_file_that_a_page_names(project):
    project.apply(block_with('"daphne"'))
    assert project.complaints() == []
    with project.serving(*RUNSERVER) as url:
        visit_pages(url, name="ada")


@pytest.mark.parametrize("server", [UVICORN, DAPHNE], ids=lambda server: server[0])
def test_another_server_has_every_file_that_a_page_names(project, server):
    project.apply(block_with("staticfiles_urlpatterns()"))
    with project.serving(*server) as url:
        visit_pages(url, name="ada")


PAGES_OF_WSGI = """
from django.contrib.auth import get_user_model
from django.http import HttpResponse
from django.urls import path
from myproject.urls import urlpatterns as plugged_in

def count_people(request):
    return HttpResponse(f"{get_user_model().objects.count()} people")

def stamp(get_response):
    def stamped(request):
        response = get_response(request)
        response["X-Stamp"] = str(request.user)
        return response
    return stamped

urlpatterns = [path("people/", count_people), *plugged_in]
"""


@pytest.mark.parametrize("server", [SERVE, RUNSERVER], ids=["ASGI", "WSGI"])
def test_pages_and_middleware_that_are_no_coroutines_stay_as_they_were(project, server):
    (project.directory / "myproject" / "pages.py").write_text(PAGES_OF_WSGI, "utf-8")
    project.apply("ROOT_URLCONF = 'myproject.pages'\nMIDDLEWARE += ['myproject.pages.stamp']")
    with project.serving(*server) as url:
        people = httpx.get(f"{url}/people/", trust_env=False, timeout=LONG_PATIENCE)
        assert (people.text, people.headers["X-Stamp"]) == ("1 people", "AnonymousUser")
        sign_in = httpx.get(f"{url}/assistant/login/", trust_env=False, timeout=LONG_PATIENCE)
        assert sign_in.status_code == 200
        if server == SERVE:
            visit_pages(url, name="ada")


def test_in_production_the_process_has_every_file_that_a_page_names(project):
    project.apply(IN_PRODUCTION)
    assert project.complaints() == ["webchat.W020"]
    project.apply(block_with("STATIC_ROOT"))
    assert project.complaints() == ["webchat.W020"]
    project.apply(block_with("webchat.static_files"))
    project.manage("collectstatic", "--no-input", "--verbosity", "0")
    assert project.complaints() == []
    for server in (SERVE, UVICORN):
        with project.serving(*server) as url:
            visit_pages(url, name="ada")


def test_the_log_of_the_page_has_one_line_for_a_request_with_a_wrong_host(project):
    project.apply(IN_PRODUCTION + block_with("ShortLines"))
    with project.serving(*SERVE) as url:
        wrong = {"Host": "elsewhere.example"}
        answer = httpx.get(
            f"{url}/assistant/login/", headers=wrong, trust_env=False, timeout=LONG_PATIENCE
        )
        assert answer.status_code == 400
    said = (project.directory / "server.log").read_text("utf-8")
    assert said.count("Invalid HTTP_HOST header") == 1, said
    assert "Traceback" not in said


def test_djangos_own_runserver_says_that_it_knows_no_websockets(project):
    with project.serving(*RUNSERVER):
        pass
    assert "webchat.W023" in (project.directory / "server.log").read_text("utf-8")


TRY_TO_SIGN_IN = """
import django
from django.conf import settings
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # the others take their time
django.setup()
from django.contrib.auth import get_user_model
from django.test import Client
get_user_model().objects.create_user("ben", password="right")
seen = [
    Client().post("/assistant/login/", {"username": "ben", "password": "wrong"}, HTTP_HOST="localhost").status_code
    for _ in range(21)
]
assert seen == [200] * 19 + [429] * 2, seen
"""


def test_the_sign_in_is_protected_by_the_blocks_of_its_page(project):
    def deployment() -> set[str]:
        said = project.try_to_run("-m", "django", "check", "--deploy").stderr
        return {check for check in ("webchat.W005", "webchat.I002") if check in said}

    few_at_a_time, hasher, _own_backend, limits = python_blocks(DOCS / "howto" / "sign-in.md")
    assert deployment() == {"webchat.W005", "webchat.I002"}
    project.apply(few_at_a_time)
    project.apply(hasher)
    assert deployment() == {"webchat.I002"}
    project.apply(limits)
    assert deployment() == set()
    assert project.complaints() == []
    project.manage("migrate", "--verbosity", "0")
    project.run("-c", TRY_TO_SIGN_IN)


NO_MORE = "INSTALLED_APPS = [app for app in INSTALLED_APPS if app not in {apps!r}]\n"


@pytest.mark.parametrize(
    ("apps", "complaints"),
    [
        (["governance"], ["console.E001", "turns.E050", "webchat.E022"]),
        (["turns"], ["console.E001", "webchat.E022"]),
        (["turns", "governance"], ["console.E001"] * 2 + ["webchat.E022"] * 2),
        (["webchat"], ["webchat.E023"]),
        (["django.contrib.staticfiles"], ["webchat.W020"]),
    ],
)
def test_an_app_that_is_missing_is_named_by_a_check_and_not_by_a_traceback(
    project, apps, complaints
):
    project.apply(NO_MORE.format(apps=apps))
    assert project.complaints() == complaints


@pytest.mark.parametrize(
    ("line", "complaints"),
    [
        ("del ASGI_APPLICATION", ["webchat.W021"]),
        ("ASGI_APPLICATION = 'myproject.asgy.application'", ["webchat.E021"]),
        ("del LOGIN_URL", ["webchat.W022"]),
        ("del STATIC_URL", ["webchat.E020"]),
    ],
)
def test_a_line_that_is_missing_or_wrong_is_named_by_a_check(project, line, complaints):
    project.apply(line)
    assert project.complaints() == complaints


def test_a_project_without_time_zones_is_refused_before_anything_is_migrated(installed, tmp_path):
    project = FreshProject.start(path=(installed,), directory=tmp_path)
    project.apply("USE_TZ = False")
    assert project.complaints() == ["governance.E064"]
    refused = project.try_to_run("-m", "django", "migrate")
    assert refused.returncode == 1
    assert "Set USE_TZ = True" in refused.stderr
    with closing(sqlite3.connect(tmp_path / "db.sqlite3")) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == []


def test_another_distribution_with_a_package_of_the_same_name_is_named(project):
    assert project.complaints() == []
    other = project.directory / "governance_of_others-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: governance-of-others\nVersion: 1.0\n"
    )
    (other / "RECORD").write_text("governance/__init__.py,,\n")
    assert project.complaints() == ["governance.E065"]
    said = project.try_to_run("-m", "django", "check").stderr
    assert "django-turnkeeper, governance-of-others" in said


def test_serve_says_what_is_missing_instead_of_a_traceback(project):
    project.apply("del ASGI_APPLICATION")
    ended = project.try_to_run("-m", "django", "serve")
    assert ended.returncode == 1
    assert "ASGI_APPLICATION" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_apps_may_stand_in_any_order(project):
    project.apply("INSTALLED_APPS.reverse()")
    assert project.complaints() == []
    with project.serving(*SERVE) as url:
        visit_pages(url, name="ada")

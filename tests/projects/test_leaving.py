"""The page on taking the package out of a project, to the letter."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, text_of
from tests.projects.hosts import FreshProject
from turns.storage.groups import GROUPS

LEAVE = DOCS / "howto" / "leave.md"
USE = """
import django
django.setup()
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from webchat import api_tokens
from turns.models import Conversation, Agent
ada = get_user_model().objects.create_user("ada")
kept = Group.objects.get(name="Governance auditors")
kept.permissions.add(Permission.objects.get(codename="add_user"))
ada.groups.set(Group.objects.all())
api_tokens.issue(user=ada, name="test")
Conversation.objects.create(owner=ada, agent=Agent.objects.get().name)
"""
WITHOUT = """
INSTALLED_APPS = [app for app in INSTALLED_APPS if app not in ("governance", "turns", "webchat", "console", "ninja")]
MIDDLEWARE = [name for name in MIDDLEWARE if not name.startswith("webchat.")]
del LOGIN_URL, CHANNEL_LAYERS
"""
PLAIN_URLS = """
from django.contrib import admin
from django.urls import path
urlpatterns = [path("admin/", admin.site.urls)]
"""
PLAIN_ASGI = """
import os
from django.core.asgi import get_asgi_application
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "myproject.settings")
application = get_asgi_application()
"""
OURS = "app_label IN ('governance', 'turns', 'webchat')"


@pytest.fixture
def project(installed: Path, tmp_path: Path) -> FreshProject:
    made = FreshProject.start(path=(installed,), directory=tmp_path)
    made.manage("migrate", "--verbosity", "0")
    made.run("-c", USE)
    return made


def test_nothing_of_ours_is_left_in_the_database_and_the_project_goes_on(project):
    early = project.try_to_run("-m", "django", "remove_turnkeeper", "--no-input")
    assert early.returncode == 1
    assert "migrate webchat zero" in early.stderr
    assert "Traceback" not in early.stderr
    commands = re.findall(r"^python manage\.py (.+)$", text_of(LEAVE), re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["migrate"] * 3 + ["remove_turnkeeper"]
    for command in commands[:-1]:
        project.manage(*command.split())
    assert "auth.Group" in project.manage(*commands[-1].split(), "--no-input")
    assert "nothing to remove" in project.manage(*commands[-1].split(), "--no-input")

    with closing(sqlite3.connect(project.directory / "db.sqlite3")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
        assert [
            name for name in tables if name.startswith(("governance", "turns", "webchat"))
        ] == []
        types = f"SELECT id FROM django_content_type WHERE {OURS}"
        assert database.execute(types).fetchall() == []
        held = "SELECT auth_group.name, codename FROM auth_group JOIN auth_group_permissions ON group_id = auth_group.id JOIN"
        held += " auth_permission ON permission_id = auth_permission.id"
        assert database.execute(held).fetchall() == [("Governance auditors", "add_user")]
        groups = {name for (name,) in database.execute("SELECT name FROM auth_group")}
        assert groups == {"Governance auditors"} < {*GROUPS}

    package = project.directory / "myproject"
    (package / "urls.py").write_text(PLAIN_URLS, "utf-8")
    (package / "asgi.py").write_text(PLAIN_ASGI, "utf-8")
    project.apply(WITHOUT)
    assert project.complaints() == []
    project.manage("migrate", "--verbosity", "0")
    project.manage("makemigrations", "--check", "--dry-run")

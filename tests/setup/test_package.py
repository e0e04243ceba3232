"""What is shipped: the packages with their types, templates and static files; not the site, not the tests."""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from hatch_build import tracked_files
from tests.support import run_program

ROOT = Path(__file__).resolve().parents[2]


ADDRESS = "https://forge.example.org/somebody/turnkeeper"
RELATIVE = re.compile(r"\]\((?!\w+:)")


def build(kind: str, *, root: Path, target: Path, **environment: str) -> Path:
    """Build one kind of archive as pip would."""
    done = run_program(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)],
        cwd=root,
        env={"PATH": os.environ["PATH"], **environment},
    )
    assert done.returncode == 0, done.stderr
    [made] = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def about(wheel: Path):
    """Return what a package page shows."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The repository as git knows it, with files that git does not know."""
    root = tmp_path_factory.mktemp("checkout")
    for name in tracked_files(ROOT):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    for name in ("notes.log", "docs/draft.md", "governance/draft.txt"):
        (root / name).write_text("mine", "utf-8")
    return root


def test_the_source_archive_holds_what_git_tracks_and_makes_the_same_wheel(checkout, tmp_path):
    sdist = build("sdist", root=checkout, target=tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [unpacked] = tmp_path.glob("django_turnkeeper-*")
    names = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()} - {
        "PKG-INFO"
    }
    assert names == {name for name in tracked_files(checkout) if not name.startswith(".ci/")}
    assert "notes.log" not in names
    wheel = build("wheel", root=unpacked, target=tmp_path / "wheel")
    for name in ("docs/draft.md", "governance/draft.txt", "notes.log"):
        (checkout / name).unlink()
    expected = build("wheel", root=checkout, target=tmp_path / "expected")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(expected) as other:
        assert set(one.namelist()) == set(other.namelist())


def test_the_package_page_has_whole_addresses_where_one_is_given(checkout, tmp_path):
    page = about(build("wheel", root=checkout, target=tmp_path, PROJECT_URL=f"{ADDRESS}/"))
    urls = [url.split(", ") for url in page.get_all("Project-URL")]
    assert [name for name, _url in urls] == ["Source", "Documentation", "Changes"]
    assert all(url.startswith(ADDRESS) for _name, url in urls)
    readme = page.get_payload()
    assert RELATIVE.search(readme) is None
    assert "![The chat page" in readme
    for kind, path in re.findall(rf"{ADDRESS}/(blob|raw)/HEAD/([^)#]+)", readme):
        assert (ROOT / path).is_file(), path
        assert kind == ("raw" if path.endswith(".png") else "blob")


def test_the_package_page_has_no_link_that_leads_nowhere(checkout, tmp_path):
    page = about(build("wheel", root=checkout, target=tmp_path))
    assert page.get_all("Project-URL") is None
    readme = page.get_payload()
    assert page["Description-Content-Type"] == "text/markdown"
    assert RELATIVE.search(readme) is None
    assert "![" not in readme
    assert "pip install django-turnkeeper" in readme
    assert readme.rstrip().endswith("begin with `docs/index.md`.")


CHECK_A_NEW_PROJECT = """
import governance, os, sys
from django.core.management import call_command
assert governance.__file__.startswith(sys.prefix), governance.__file__
from django.conf import settings
settings.configure(
    SECRET_KEY="-", STATIC_URL="static/", USE_TZ=True, ROOT_URLCONF="webchat.urls",
    INSTALLED_APPS=["django.contrib." + app for app in ("auth", "contenttypes", "sessions", "messages", "staticfiles")]
    + ["governance", "turns", "webchat"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}},
)
import django
django.setup()
call_command("migrate", verbosity=0)
"""


def test_what_make_package_makes_passes_twine_and_works_in_an_empty_environment(tmp_path):
    made = run_program(["make", "--old-file=dev", "package", f"DIST={tmp_path / 'dist'}"], cwd=ROOT)
    assert made.returncode == 0, made.stdout + made.stderr
    assert made.stdout.count("PASSED") == 2
    [wheel] = (tmp_path / "dist").glob("*.whl")
    environment = tmp_path / "environment"
    run_program([sys.executable, "-m", "venv", str(environment)])
    python = environment / "bin" / "python"
    offline = [python, "-m", "pip", "install", "--no-index", "--no-deps", wheel]
    installed = run_program(offline)
    assert installed.returncode == 0, installed.stderr
    # What it depends on is that of the tests, behind it: a test asks no index.
    [packages] = environment.glob("lib/python*/site-packages")
    dependencies = str(Path(pytest.__file__).resolve().parents[1])
    (packages / "dependencies.pth").write_text(f"{dependencies}\n", "utf-8")
    checked = run_program([python, "-c", CHECK_A_NEW_PROJECT], cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert (tmp_path / "db.sqlite3").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    built = run_program(command, cwd=ROOT)
    assert built.returncode == 0, built.stderr
    [path] = target.glob("django_turnkeeper-*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_templates_and_static_files_lie_in_the_app_that_they_are_named_by(wheel):
    names = set(wheel.namelist())
    for folder in ("templates", "static"):
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        assert files
        for path in files:
            parts = path.relative_to(ROOT / folder).parts
            app = "console" if parts[0] == "admin" else parts[0]
            assert f"{app}/{path.relative_to(ROOT)}" in names


def test_the_translations_are_shipped(wheel):
    for package in ("console", "governance", "turns", "webchat"):
        compiled = f"{package}/locale/de/LC_MESSAGES/django.mo"
        assert wheel.read(compiled) == (ROOT / compiled).read_bytes()


def test_only_the_packages_are_shipped_each_with_its_types(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "console",
        "governance",
        "turns",
        "webchat",
    }
    assert {
        f"{package}/py.typed" for package in ("console", "governance", "turns", "webchat")
    } <= set(wheel.namelist())

"""What the site keeps is for its user alone, from the first start on and after an update."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from governance import private_files
from tests.processes import run_python

ROOT = Path(__file__).resolve().parents[2]
DATABASE = ("db.sqlite3", "db.sqlite3-wal", "db.sqlite3-shm")


def manage(*arguments, var, **environment):
    """Run a command of the site as most shells would start it: what it makes is readable by everybody."""
    given = {
        "PATH": os.environ["PATH"],
        "ENV_FILE": os.devnull,
        "VAR_DIR": str(var),
        "DJANGO_SETTINGS_MODULE": "config.settings",
        **environment,
    }
    done = run_python("manage.py", *arguments, environment=given)
    assert done.returncode == 0, done.stderr


def open_to_others(top):
    """What somebody else than its owner may do something with."""
    return [path for path in (top, *top.rglob("*")) if path.stat().st_mode & 0o077]


def test_everything_is_private_from_the_start(tmp_path):
    var = tmp_path / "deep" / "var"
    manage("migrate", "--verbosity", "0", var=var)
    manage("create_demo_users", "--credentials", str(var / "credentials.txt"), var=var)
    assert {path.name for path in var.iterdir()} >= {"secret_key", "db.sqlite3", "credentials.txt"}
    assert open_to_others(tmp_path / "deep") == []


def test_what_an_older_release_has_left_becomes_private_at_the_next_start(tmp_path):
    var = tmp_path / "var"
    (var / "workspaces" / "one").mkdir(parents=True)
    with sqlite3.connect(var / "db.sqlite3") as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE kept (value)")
        for path in (var, var / "workspaces", *(var / name for name in DATABASE)):
            path.chmod(path.stat().st_mode | 0o055)
        manage("check", var=var)
        for path in (var, var / "workspaces", *(var / name for name in DATABASE)):
            assert not path.stat().st_mode & 0o077, path
        assert database.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    database.close()


def test_a_database_elsewhere_is_private_and_its_directory_is_left_alone(tmp_path):
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o755)
    url = f"sqlite:///{place / 'site.sqlite3'}"
    manage("migrate", "--verbosity", "0", var=tmp_path / "var", DATABASE_URL=url)
    assert stat.S_IMODE(place.stat().st_mode) == 0o755
    assert open_to_others(place) == [place]


def test_directories_of_the_system_are_left_alone(tmp_path):
    everybodys = tmp_path / "everybodys"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    private_files.make_directory(everybodys)
    assert stat.S_IMODE(everybodys.stat().st_mode) == 0o1777
    before = Path("/usr").stat().st_mode
    private_files.restrict(Path("/usr"))
    assert Path("/usr").stat().st_mode == before
    private_files.restrict(tmp_path / "missing")


def test_a_file_in_the_way_is_an_error(tmp_path):
    (tmp_path / "var").write_text("x")
    with pytest.raises(FileExistsError):
        private_files.make_directory(tmp_path / "var")


def test_a_directory_is_private_if_it_is_no_link_and_no_one_else_may_use_it(tmp_path):
    ours, others, link = tmp_path / "ours", tmp_path / "others", tmp_path / "link"
    ours.mkdir(mode=0o700)
    others.mkdir()
    others.chmod(0o710)
    link.symlink_to(ours)
    places = (ours, others, link, tmp_path / "missing", Path(__file__))
    assert [private_files.is_private_directory(place) for place in places] == [
        True,
        *[False] * 4,
    ]

"""`create_demo_users`: two people to try the site with, whose passwords are shown once."""

from pathlib import Path
from stat import S_IMODE

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command

pytestmark = pytest.mark.django_db


@pytest.fixture
def credentials(tmp_path):
    return tmp_path / "var" / "credentials.txt"


def create(credentials: Path, capsys: pytest.CaptureFixture[str]) -> str:
    call_command("create_demo_users", credentials=credentials)
    return capsys.readouterr().out


def kept(credentials: Path) -> dict[str, str]:
    return dict(line.split() for line in credentials.read_text("utf-8").splitlines())


def test_the_passwords_are_shown_kept_for_the_owner_only_and_good_to_sign_in(credentials, capsys):
    shown = create(credentials, capsys)
    passwords = kept(credentials)
    assert set(passwords) == {"demo", "admin"}
    assert all(password in shown for password in passwords.values())
    assert S_IMODE(credentials.stat().st_mode) == 0o600
    users = {user.get_username(): user for user in get_user_model().objects.all()}
    assert all(users[name].check_password(password) for name, password in passwords.items())
    assert users["admin"].is_superuser
    assert users["admin"].is_staff
    assert not users["demo"].is_staff


def test_nobody_is_made_whose_password_cannot_be_kept(credentials, capsys):
    credentials.parent.write_text("a file where a directory should be")
    with pytest.raises(FileExistsError):
        create(credentials, capsys)
    assert not get_user_model().objects.exists()


def test_the_second_time_shows_no_password_and_changes_none(credentials, capsys):
    create(credentials, capsys)
    before = kept(credentials)
    shown = create(credentials, capsys)
    assert str(credentials) in shown
    assert not any(password in shown for password in before.values())
    assert kept(credentials) == before
    assert get_user_model().objects.get(username="demo").check_password(before["demo"])


def test_who_is_missing_is_made_again_and_the_other_keeps_the_password(credentials, capsys):
    create(credentials, capsys)
    before = kept(credentials)
    get_user_model().objects.get(username="demo").delete()
    shown = create(credentials, capsys)
    assert kept(credentials)["demo"] in shown
    assert kept(credentials)["demo"] != before["demo"]
    assert kept(credentials)["admin"] == before["admin"]

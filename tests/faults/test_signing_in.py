"""A flood of sign-ins. The turns of the process go on, a cancel is answered, and guesses are counted over all processes."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from tests.faults.cluster import DEFAULT_LEASE
from tests.faults.conftest import MakeSite
from tests.faults.site import Site

HASHERS = [
    "webchat.sign_in.PasswordHasher",  # takes a processor for a while, as in production
    "django.contrib.auth.hashers.MD5PasswordHasher",  # of the users that are there
]
FLOOD = 40
LIMIT = 20

pytestmark = pytest.mark.timeout(180)


class Stranger:
    """Somebody who tries to sign in, again and again."""

    def __init__(self, url: str, page: str) -> None:
        self._url = url + page
        self._cookies = httpx.get(self._url, trust_env=False, timeout=30).cookies

    def try_as(self, name: str) -> int:
        """Send a wrong password; return the status of the answer."""
        form = {
            "username": name,
            "password": "wrong",
            "csrfmiddlewaretoken": self._cookies["csrftoken"],
        }
        answer = httpx.post(
            self._url, data=form, cookies=self._cookies, trust_env=False, timeout=120
        )
        return answer.status_code


@contextmanager
def flood(stranger: Stranger) -> Iterator[list[int]]:
    """Let dozens of sign-ins come at once meanwhile; their answers are there at the end."""
    answers: list[int] = []
    with ThreadPoolExecutor(FLOOD) as crowd:
        coming = [crowd.submit(stranger.try_as, f"nobody-{number}") for number in range(FLOOD)]
        yield answers
        answers += [one.result() for one in coming]


def assert_no_lease_was_lost(site: Site, processes: int) -> None:
    rows: Sequence[object] = [row["ended_at"] for row in site.record().processes]
    assert rows == [None] * processes


@pytest.mark.parametrize(
    ("server", "page"), [("serve", "/login/"), ("serve_uvicorn", "/admin/login/")]
)
def test_while_dozens_sign_in_a_cancel_is_answered_and_the_lease_is_kept(
    embedded: MakeSite, page: str, server: str
):
    site = embedded(PASSWORD_HASHERS=HASHERS, **DEFAULT_LEASE)
    getattr(site, server)()
    client = site.client()
    turn = client.say(client.converse(), "wait 150")
    client.until_running(turn, "wait")
    with flood(Stranger(site.url(), page)) as answers:
        assert client.cancel(turn).status_code == 200
        assert client.until_ended(turn, within=60)["status"] == "cancelled"
    assert set(answers) == {200, 429}
    assert_no_lease_was_lost(site, 1)
    assert site.verdict() == []


def test_guesses_are_counted_over_all_processes(scaled: MakeSite):
    site = scaled()
    for name in ("one", "two"):
        site.serve(name, role="web")
    one, two = (Stranger(site.url(name), "/login/") for name in ("one", "two"))
    guesses = [stranger.try_as("ada") for _ in range(LIMIT // 2) for stranger in (one, two)]
    assert guesses == [200] * (LIMIT - 1) + [429]
    assert one.try_as("ada") == two.try_as("ada") == 429

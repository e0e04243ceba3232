"""Signing in: few passwords at a time, off the event loop, limited per name and address, no hint who exists."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import httpx
import pytest
from axes.models import AccessAttempt
from django.contrib.auth import aauthenticate
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import Client, RequestFactory
from django.utils import timezone

from config.asgi import application
from governance.db import run_in_db_thread
from tests.support import eventually
from tests.webchat.hashers import HashCounter, workshop
from webchat import api_tokens
from webchat.addresses import client_address
from webchat.sign_in import TooManySignIns, password_check

PAGES = ("/login/", "/admin/login/")
AHEAD = 9  # one whose password is checked, and eight who wait
LIMIT = 20  # of the site as it ships


@pytest.fixture
def watched(settings: Any) -> Iterator[HashCounter]:
    settings.PASSWORD_HASHERS = ["tests.webchat.hashers.WatchedHasher"]
    workshop.open_again()
    yield workshop
    workshop.is_open.set()


@pytest.fixture
async def http(site: None) -> AsyncIterator[httpx.AsyncClient]:
    """Return a browser before the real application, where each request has a thread of its own."""
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
        yield client


async def form(http: httpx.AsyncClient, page: str) -> Callable[..., Any]:
    """Open a page with the form; return a function that sends it."""
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', (await http.get(page)).text)
    assert found

    async def send(name: str, password: str = "wrong") -> httpx.Response:
        fields = {"username": name, "password": password, "csrfmiddlewaretoken": found[1]}
        return await http.post(page, data=fields)

    return send


def sign_in(name: str, password: str = "wrong", *, page: str = "/login/", **meta: Any) -> Any:
    return Client(**meta).post(page, {"username": name, "password": password})


@pytest.fixture
async def api(site: None, person: User) -> AsyncIterator[httpx.AsyncClient]:
    """Return a program that has the person's token."""
    _, token = await run_in_db_thread(api_tokens.issue)(user=person, name="test")
    headers = {"Authorization": f"Bearer {token}"}
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://testserver", headers=headers
    ) as client:
        yield client


async def begin(api: httpx.AsyncClient) -> str:
    """Let a turn run that takes long; return its id."""
    made = (await api.post("/api/conversations", json={})).json()["conversation_id"]
    said = await api.post(f"/api/conversations/{made}/messages", json={"text": "wait 100"})
    turn = f"/api/turns/{said.json()['turn_id']}"
    await eventually(lambda: stands(api, turn, "running"))
    return turn


async def stands(api: httpx.AsyncClient, turn: str, status: str) -> bool:
    return bool((await api.get(turn)).json()["status"] == status)


@pytest.mark.parametrize("page", PAGES)
async def test_dozens_who_sign_in_at_once_hold_up_no_cancel(
    page: str, http: httpx.AsyncClient, api: httpx.AsyncClient, watched: HashCounter
):
    turn = await begin(api)
    send = await form(http, page)
    watched.is_open.clear()
    attempts = [asyncio.create_task(send(f"nobody-{number}")) for number in range(40)]
    try:
        await eventually(lambda: sum(task.done() for task in attempts) == 40 - AHEAD)
        refused = [task.result() for task in attempts if task.done()]
        assert {answer.status_code for answer in refused} == {429}
        assert refused[0].headers["Retry-After"] == "5"
        assert "Your password was not checked." in refused[0].text
        assert (await api.post(f"{turn}/abort", json={})).status_code == 200
        await eventually(lambda: stands(api, turn, "cancelled"))
        assert sum(task.done() for task in attempts) == 40 - AHEAD
    finally:
        watched.is_open.set()
        answers = await asyncio.gather(*attempts)
    assert sorted(answer.status_code for answer in answers) == [200] * AHEAD + [429] * (40 - AHEAD)
    assert (watched.made, watched.most) == (AHEAD, 1)
    assert threading.get_ident() not in watched.threads


async def test_how_many_passwords_are_checked_at_a_time_is_a_setting(
    http: httpx.AsyncClient, watched: HashCounter, settings: Any
):
    settings.WEBCHAT_MAX_PASSWORD_CHECKS = 2
    settings.WEBCHAT_MAX_WAITING_SIGN_INS = 1
    send = await form(http, "/login/")
    watched.is_open.clear()
    attempts = [asyncio.create_task(send(f"nobody-{number}")) for number in range(6)]
    await eventually(lambda: sum(task.done() for task in attempts) == 3)
    watched.is_open.set()
    await asyncio.gather(*attempts)
    assert (watched.made, watched.most) == (3, 2)


async def test_who_changes_a_password_takes_a_turn_like_those_who_sign_in(
    http: httpx.AsyncClient, person: User, watched: HashCounter, settings: Any
):
    settings.PASSWORD_HASHERS = ["tests.webchat.hashers.QueuedWatchedHasher"]
    person.is_staff = True
    await person.asave()
    await (await form(http, "/login/"))("ada", "pw")
    page = await http.get("/admin/password_change/")
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    fields = {
        "csrfmiddlewaretoken": token and token[1],
        "old_password": "wrong",
        "new_password1": "x",
        "new_password2": "x",
    }
    watched.open_again()
    watched.is_open.clear()
    attempts = [
        asyncio.create_task(http.post("/admin/password_change/", data=fields)) for _ in range(20)
    ]
    try:
        await eventually(lambda: sum(task.done() for task in attempts) == 20 - AHEAD)
        refused = next(task.result() for task in attempts if task.done())
        assert refused.status_code == 429
        assert "Nothing was changed." in refused.text
    finally:
        watched.is_open.set()
        answers = await asyncio.gather(*attempts)
    assert sorted(answer.status_code for answer in answers) == [200] * AHEAD + [429] * (20 - AHEAD)
    assert (watched.made, watched.most) == (AHEAD, 1)


async def test_who_waited_is_signed_in_when_it_is_their_turn(
    http: httpx.AsyncClient, person: User, watched: HashCounter
):
    send = await form(http, "/login/")
    watched.is_open.clear()
    first = asyncio.create_task(send("nobody"))
    await eventually(lambda: watched.is_busy)
    second = asyncio.create_task(send("ada", "pw"))
    watched.is_open.set()
    assert (await first).status_code == 200
    assert (await second).status_code == 302


async def test_a_coroutine_that_authenticates_does_not_hash_on_the_event_loop(
    transactional_db: None, person: User, watched: HashCounter, settings: Any
):
    settings.AUTHENTICATION_BACKENDS = ["webchat.sign_in.SignInBackend"]  # axes has no coroutine
    request = HttpRequest()
    assert await aauthenticate(request, username="ada", password="pw") == person
    assert await aauthenticate(request, username="nobody", password="pw") is None
    assert await aauthenticate(request, key="no password") is None
    assert watched.made == 2
    assert threading.get_ident() not in watched.threads


def test_a_check_that_fails_gives_its_place_to_the_next(settings: Any):
    settings.WEBCHAT_MAX_WAITING_SIGN_INS = 0
    for _ in range(3):
        with suppress(ZeroDivisionError), password_check(), password_check():
            with ThreadPoolExecutor(1) as other, pytest.raises(TooManySignIns):
                other.submit(password_check().__enter__).result()
            raise ZeroDivisionError


def answers(name: str, page: str) -> list[tuple[int, str]]:
    """Fail to sign in until it is enough, and return what came, without the name and the random parts."""
    AccessAttempt.objects.all().delete()
    seen = [sign_in(name, page=page) for _ in range(3)]
    varying = rf'\b{name}\b|(?<=csrfmiddlewaretoken" value=")\w+'
    return [(answer.status_code, re.sub(varying, "", answer.content.decode())) for answer in seen]


@pytest.mark.django_db
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("name", ["ada", "switched_off", "without_password"])
def test_a_name_that_exists_costs_as_many_hashes_and_has_the_same_answers_as_one_that_does_not(
    page: str, name: str, watched: HashCounter, settings: Any
):
    settings.AXES_FAILURE_LIMIT = 2
    User.objects.create_user("ada", password="pw", is_staff=True)
    User.objects.create_user("switched_off", password="wrong", is_active=False)
    User.objects.create_user("without_password")
    watched.open_again()
    unknown = answers("nobody", page)
    assert watched.made == 2  # what is refused is not hashed
    assert answers(name, page) == unknown
    assert watched.made == 4
    assert [status for status, _ in unknown] == [200, 429, 429]


@pytest.mark.django_db
@pytest.mark.parametrize("page", PAGES)
def test_a_name_that_failed_too_often_has_to_wait_wherever_it_comes_from(page: str):
    User.objects.create_superuser("ada", password="pw")
    for number in range(LIMIT):
        answer = sign_in("ada", page=PAGES[number % 2], REMOTE_ADDR=f"192.0.2.{number}")
    assert answer.status_code == 429
    refused = sign_in("ada", "pw", page=page, REMOTE_ADDR="198.51.100.1")
    assert refused.status_code == 429
    assert refused["Retry-After"] == "600"
    assert "Wait 10 min, then try again." in refused.content.decode()
    assert sign_in("bob", "pw", page=page, REMOTE_ADDR="198.51.100.1").status_code == 200
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(minutes=11))
    assert sign_in("ada", "pw", page=page, REMOTE_ADDR="198.51.100.1").status_code == 302


@pytest.mark.django_db
def test_an_address_that_failed_too_often_has_to_wait_whatever_name_it_gives():
    User.objects.create_user("ada", password="pw")
    for number in range(LIMIT):
        sign_in(f"nobody-{number}", REMOTE_ADDR="192.0.2.1")
    assert sign_in("ada", "pw", REMOTE_ADDR="192.0.2.1").status_code == 429
    assert sign_in("ada", "pw", REMOTE_ADDR="192.0.2.2").status_code == 302


@pytest.mark.django_db
@pytest.mark.parametrize("page", PAGES)
def test_a_name_that_no_column_has_room_for_counts_like_any_other(page: str):
    """PostgreSQL refuses what SQLite would keep."""
    assert sign_in("x" * 5_000, page=page).status_code == 200
    attempt = AccessAttempt.objects.get()
    attempt.clean_fields(exclude={"get_data"})
    assert attempt.failures_since_start == 1
    for _ in range(LIMIT):
        answer = sign_in("x" * 5_000, page=page)
    assert answer.status_code == 429


@pytest.mark.django_db
def test_to_sign_in_oneself_in_between_gives_nobody_more_guesses():
    User.objects.create_user("ada", password="pw")
    User.objects.create_user("eve", password="pw")
    for _ in range(LIMIT // 2):
        sign_in("ada", REMOTE_ADDR="192.0.2.1")
    assert sign_in("eve", "pw", REMOTE_ADDR="192.0.2.1").status_code == 302
    for _ in range(LIMIT // 2):
        sign_in("ada", REMOTE_ADDR="192.0.2.1")
    assert sign_in("ada", "pw", REMOTE_ADDR="192.0.2.1").status_code == 429


@pytest.mark.django_db
def test_who_goes_on_while_refused_does_not_prolong_it_and_leaves_nothing_behind():
    for _ in range(LIMIT):
        sign_in("ada")
    before = AccessAttempt.objects.values().get()
    assert before["failures_since_start"] == LIMIT
    assert sign_in("ada", HTTP_USER_AGENT="another").status_code == 429
    assert AccessAttempt.objects.values().get() == before


@pytest.mark.django_db
def test_no_password_is_kept_of_an_attempt():
    sign_in("ada", "a-secret")
    assert "a-secret" not in str(AccessAttempt.objects.values().get())


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", None, "203.0.113.9"),
        ("203.0.113.9", "1.1.1.1", "203.0.113.9"),  # not one of ours: invented
        ("10.0.0.2", None, "10.0.0.2"),
        ("10.0.0.2", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.2", "1.1.1.1, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.2", "1.1.1.1, 203.0.113.9 , 10.0.0.3", "203.0.113.9"),
        ("10.0.0.2", "10.0.0.4, 10.0.0.3", "10.0.0.4"),
        ("10.0.0.2", "203.0.113.9, unknown", "10.0.0.2"),
        ("10.0.0.2", "203.0.113.9, , 10.0.0.3", "10.0.0.3"),
        ("::ffff:10.0.0.2", "203.0.113.9", "203.0.113.9"),
        ("2001:db8::1", "203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", None, "2001:db8:1:2::"),  # whoever has it has all of them
        ("fe80::1%eth0", None, "fe80::"),
        ("", "1.1.1.1, 203.0.113.9", "203.0.113.9"),  # a Unix socket
        ("", None, None),
    ],
)
def test_the_clients_address_is_what_known_proxies_say_and_nobody_else(
    peer: str, forwarded: str | None, client: str | None, rf: RequestFactory, settings: Any
):
    settings.WEBCHAT_TRUSTED_PROXIES = ["10.0.0.0/24", "2001:db8::1"]
    headers = {} if forwarded is None else {"HTTP_X_FORWARDED_FOR": forwarded}
    assert client_address(rf.post("/login/", REMOTE_ADDR=peer, **headers)) == client


def test_without_a_known_proxy_nobodys_word_counts(rf: RequestFactory):
    for peer, client in (("203.0.113.9", "203.0.113.9"), ("", None)):
        request = rf.post("/login/", REMOTE_ADDR=peer, HTTP_X_FORWARDED_FOR="1.1.1.1")
        assert client_address(request) == client


@pytest.mark.django_db
def test_an_invented_address_gives_nobody_more_guesses():
    for number in range(LIMIT):
        sign_in(f"nobody-{number}", HTTP_X_FORWARDED_FOR=f"192.0.2.{number}")
    assert sign_in("ada", HTTP_X_FORWARDED_FOR="198.51.100.1").status_code == 429

"""Django's middleware for coroutines: the same answers as Django's own, and a thread only for what waits."""

import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from django.conf import settings as django_settings
from django.conf.urls.i18n import i18n_patterns
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application as get_djangos_application
from django.http import HttpResponse
from django.middleware import common
from django.test import AsyncClient, RequestFactory, override_settings
from django.urls import path

from governance.db import run_in_db_thread
from webchat import async_middleware
from webchat.asgi import get_asgi_application

pytestmark = pytest.mark.usefixtures("site")

GERMAN = {"Accept-Language": "de-AT,de;q=0.9"}
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/login/", {}),
    ("GET", "/login/", {"headers": GERMAN}),
    ("GET", "/login/", {"headers": {"Host": "evil.example"}}),
    ("GET", "/login", {}),
    ("GET", "/nowhere/", {"headers": GERMAN}),
    ("GET", "/", {}),
    ("GET", "/admin/", {"headers": GERMAN}),
    ("GET", "/api/conversations", {"headers": GERMAN}),
    ("POST", "/api/conversations", {"json": {}}),
    ("POST", "/login/", {"data": {"username": "ada", "password": "pw"}}),
    ("POST", "/logout/", {}),
]


@pytest.fixture
async def browser(person: User) -> AsyncIterator[Callable[..., httpx.AsyncClient]]:
    """Return a function that opens browsers before the site, or before one that has Django's own middleware."""
    opened: list[httpx.AsyncClient] = []

    def open_one(*, djangos: bool = False, session: str = "") -> httpx.AsyncClient:
        site = get_djangos_application() if djangos else get_asgi_application()
        cookies = {django_settings.SESSION_COOKIE_NAME: session} if session else {}
        transport = httpx.ASGITransport(app=site)
        opened.append(
            httpx.AsyncClient(transport=transport, base_url="http://testserver", cookies=cookies)
        )
        return opened[-1]

    yield open_one
    for client in opened:
        await client.aclose()


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the middleware whose halves were given to a thread, as it happens."""
    given: list[str] = []
    real = async_middleware.sync_to_async

    def counted(half: Any, **how: Any) -> Any:
        given.append(type(half.__self__).__name__)
        return real(half, **how)

    monkeypatch.setattr(async_middleware, "sync_to_async", counted)
    return given


def facts(answer: httpx.Response) -> tuple[Any, ...]:
    """What two answers to the same request have in common: a token and a session are new in each."""
    new = {"expires", "set-cookie"}
    headers = {name: value for name, value in answer.headers.items() if name not in new}
    cookies = sorted(cookie.split("=")[0] for cookie in answer.headers.get_list("set-cookie"))
    return answer.status_code, headers, cookies


@pytest.mark.parametrize("is_signed_in", [False, True])
@pytest.mark.parametrize(("method", "address", "how"), REQUESTS)
async def test_an_answer_is_what_djangos_own_middleware_gives(
    browser: Callable[..., httpx.AsyncClient],
    user_client: AsyncClient,
    method: str,
    address: str,
    how: dict[str, Any],
    is_signed_in: bool,
):
    session = user_client.cookies[django_settings.SESSION_COOKIE_NAME].value
    answers = []
    for djangos in (False, True):
        client = browser(djangos=djangos, session=session if is_signed_in else "")
        if method == "POST" and "/api/" not in address:
            page = await client.get("/login/" if not is_signed_in else "/admin/login/")
            how = {
                **how,
                "data": {
                    **how.get("data", {}),
                    "csrfmiddlewaretoken": page.cookies.get("csrftoken", ""),
                },
            }
        answers.append(facts(await client.request(method, address, **how)))
    assert answers[0] == answers[1]


class CommonMiddleware(common.CommonMiddleware):
    """A project's own."""

    def process_response(self, request: Any, response: Any) -> Any:
        """Say that it was here."""
        response["X-Own"] = "yes"
        return super().process_response(request, response)


async def test_a_projects_own_subclass_stays(browser: Callable[..., httpx.AsyncClient]):
    djangos = "django.middleware.common.CommonMiddleware"
    listed = [
        f"{__name__}.CommonMiddleware" if name == djangos else name
        for name in django_settings.MIDDLEWARE
    ]
    with override_settings(MIDDLEWARE=listed):
        client = browser()
        assert listed == django_settings.MIDDLEWARE
    assert (await client.get("/login/")).headers["X-Own"] == "yes"
    assert "X-Own" not in (await browser().get("/login/")).headers


async def test_a_request_that_stores_nothing_takes_no_thread_for_them(
    browser: Callable[..., httpx.AsyncClient], in_threads: list[str], user_client: AsyncClient
):
    client = browser(session=user_client.cookies["sessionid"].value)
    assert (await client.get("/", headers=GERMAN)).status_code in (200, 302)
    in_threads.clear()
    answer = await client.get("/api/conversations", headers=GERMAN)
    assert (answer.status_code, answer.headers["Content-Language"]) == (200, "de")
    assert in_threads == []


@pytest.mark.parametrize("address", ["/login/", "/logout/", "/nowhere/"])
async def test_a_form_without_its_token_is_refused_in_a_thread(
    browser: Callable[..., httpx.AsyncClient],
    in_threads: list[str],
    user_client: AsyncClient,
    address: str,
):
    session = user_client.cookies["sessionid"].value
    refused = [
        await browser(djangos=djangos, session=session).post(address, data={"username": "ada"})
        for djangos in (False, True)
    ]
    assert refused[0].status_code == refused[1].status_code == (404 if "no" in address else 403)
    assert ("CsrfViewMiddleware" in in_threads) is ("no" not in address)


async def test_the_texts_of_a_language_are_read_in_a_thread_once(
    browser: Callable[..., httpx.AsyncClient],
    in_threads: list[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(async_middleware.LocaleMiddleware, "_known", set())
    client = browser()
    for _ in range(2):
        await client.get("/login/", headers=GERMAN)
    assert in_threads.count("LocaleMiddleware") == 1
    await client.get("/login/", headers={"Accept-Language": "en"})
    assert in_threads.count("LocaleMiddleware") == 2


def test_a_language_in_an_address_is_looked_for_in_a_thread():
    middleware = async_middleware.LocaleMiddleware(lambda _request: HttpResponse())
    request = RequestFactory().get("/de/page/")
    middleware.process_request(request)
    assert not middleware.request_waits(request)
    request.urlconf = tuple(i18n_patterns(path("page/", lambda _request: HttpResponse())))  # type: ignore[attr-defined]
    assert middleware.request_waits(request)


async def test_what_is_kept_of_languages_is_bounded(
    browser: Callable[..., httpx.AsyncClient],
    in_threads: list[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(async_middleware, "MOST_KNOWN", 3)
    monkeypatch.setattr(async_middleware.LocaleMiddleware, "_known", known := set[Any]())
    client = browser()
    for number in range(6):
        await client.get("/login/", headers={"Accept-Language": f"de;q=0.{number}"})
    assert len(known) == 3
    known.clear()
    answer = await client.get("/login/", headers={"Accept-Language": "de" + ",en;q=0.1" * 40})
    assert (answer.headers["Content-Language"], known) == ("de", set())


async def test_sessions_and_messages_are_stored_in_a_thread(
    browser: Callable[..., httpx.AsyncClient], in_threads: list[str], user_client: AsyncClient
):
    client = browser()
    page = await client.get("/login/")
    token = page.cookies["csrftoken"]
    in_threads.clear()
    fields = {"username": "ada", "password": "pw", "csrfmiddlewaretoken": token}
    answer = await client.post("/login/", data=fields)
    assert (answer.status_code, "sessionid" in answer.cookies) == (302, True)
    assert in_threads.count("SessionMiddleware") == 1
    await client.get("/login/")
    in_threads.clear()
    person = await run_in_db_thread(User.objects.get)(username="ada")
    person.is_staff = person.is_superuser = True
    await run_in_db_thread(person.save)()
    page = await client.get("/admin/auth/group/add/")
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    assert found
    assert "MessageMiddleware" not in in_threads
    fields = {"name": "helpers", "csrfmiddlewaretoken": found[1]}
    assert (await client.post("/admin/auth/group/add/", data=fields)).status_code == 302
    assert in_threads.count("MessageMiddleware") == 1
    shown = [(await client.get("/admin/auth/group/")).text.count("messagelist") for _ in range(2)]
    assert shown[0] > shown[1]

"""Static files through the real middleware, for coroutines and for threads."""

import asyncio
import contextvars

import pytest
from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.urls import path

from governance.db import run_in_db_thread
from tests.support import PATIENCE
from webchat.static_files import StaticFilesMiddleware

SCRIPT = "ninja/swagger-ui-init.js"


def content_of(name: str) -> bytes:
    path = finders.find(name)
    assert isinstance(path, str)
    with open(path, "rb") as file:
        return file.read()


async def test_a_file_is_served_whole_with_its_type_and_only_when_it_changed():
    client = AsyncClient()
    answer = await client.get(f"/static/{SCRIPT}")
    assert (answer.status_code, answer["Content-Type"]) == (200, 'text/javascript; charset="utf-8"')
    assert answer.content == await asyncio.to_thread(content_of, SCRIPT)
    assert int(answer["Content-Length"]) == len(answer.content)
    again = await client.get(
        f"/static/{SCRIPT}", headers={"If-Modified-Since": answer["Last-Modified"]}
    )
    assert (again.status_code, again.content) == (304, b"")
    head = await client.head(f"/static/{SCRIPT}")
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    "path", ["/static/nothing.js", "/static/../config/settings.py", "/static/"]
)
async def test_what_is_no_static_file_is_not_found(path: str):
    assert (await AsyncClient().get(path)).status_code == 404


def test_threads_get_the_same_file():
    assert Client().get(f"/static/{SCRIPT}").getvalue() == content_of(SCRIPT)
    middleware = StaticFilesMiddleware(lambda _request: HttpResponse("next"))
    answer = middleware(RequestFactory().get("/elsewhere"))
    assert isinstance(answer, HttpResponse)
    assert answer.content == b"next"


@run_in_db_thread
def pass_through_the_databases_thread() -> None:
    """Do nothing there."""


async def waits(_request: HttpRequest) -> HttpResponse:
    """Wait for somebody else's work in the database."""
    work = asyncio.create_task(pass_through_the_databases_thread(), context=contextvars.Context())
    async with asyncio.timeout(PATIENCE):  # a busy machine is no deadlock
        await work
    return HttpResponse("done")


urlpatterns = [path("waits/", waits)]


@override_settings(ROOT_URLCONF=__name__)
async def test_a_view_that_waits_does_not_hold_the_databases_thread():
    """With WhiteNoise's own middleware it does, and this is a deadlock."""
    assert (await AsyncClient().get("/waits/")).content == b"done"

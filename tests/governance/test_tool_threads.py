"""The thread of a coroutine tool for the ORM: it is its own wherever it is called from (invariant 7)."""

import asyncio
import threading
import time

import httpx
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.asgi import get_asgi_application
from django.http import JsonResponse
from django.urls import path

from governance import ToolTimeoutError
from governance.contrib.callables import governed
from governance.models import ToolPolicy
from governance.runtime import close_executor, get_executor
from tests.support import eventually, with_room

pytestmark = pytest.mark.django_db(transaction=True)

may_go = threading.Event()
hanging: list[int] = []


def hang() -> None:
    """Take long, as a slow query."""
    hanging.append(threading.get_ident())
    may_go.wait(60.0)


async def slow() -> None:
    """Hang in the thread of the ORM."""
    await sync_to_async(hang)()


async def count() -> tuple[int, int]:
    """Ask the database; return the thread that did, and how many policies there are."""
    thread = await sync_to_async(threading.get_ident)()
    return thread, await ToolPolicy.objects.acount()


@pytest.fixture(autouse=True)
def _let_go():
    may_go.clear()
    hanging.clear()
    yield
    may_go.set()


async def work() -> dict[str, object]:
    """Call tools, one of which hangs in its thread, and use the ORM meanwhile."""
    began_at = time.monotonic()
    own, _ = await count()
    stuck = asyncio.create_task(governed(slow, executor=get_executor, timeout=1.0)())
    await eventually(lambda: hanging)
    again, found = await count()
    other, _ = await governed(count, executor=get_executor)()
    with pytest.raises(ToolTimeoutError):
        await stuck
    took = time.monotonic() - began_at
    await close_executor()
    return {"threads": [own, again, other, *hanging], "found": found, "took": took}


async def view(_request):
    return JsonResponse(await work())


urlpatterns = [path("work/", view)]


def check(told):
    own, again, other, stuck = told["threads"]
    assert own == again
    assert len({own, other, stuck}) == 3
    assert told["found"] == 0
    assert told["took"] < with_room(5.0)


async def test_inside_an_async_view_tools_and_view_have_threads_of_their_own(settings):
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = []
    transport = httpx.ASGITransport(app=get_asgi_application())
    async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
        answer = await client.get("/work/")
    check(answer.json())


def test_inside_async_to_sync_tools_and_caller_have_threads_of_their_own():
    told = async_to_sync(work)()
    assert told["threads"][0] == threading.get_ident()
    check(told)

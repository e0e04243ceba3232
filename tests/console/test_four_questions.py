"""The four questions of an operator, from the admin's first page by links and forms, each to its export."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connections
from django.urls import reverse

from tests.console.visitor import Visitor
from tests.staff import sign_in
from tests.support import eventually
from tests.turns.row_factory import make_process
from tests.turns.support import ChatDriver, FakeTools, in_database
from turns.models import Process
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)

MOST_CLICKS = 4


async def in_browser(steps: Callable[[], Any]) -> Any:
    """Do these steps in a thread of their own, as requests are: the turns go on meanwhile."""

    def do() -> Any:
        try:
            return steps()
        finally:
            connections.close_all()

    return await asyncio.to_thread(do)


@pytest.fixture
async def visitor(transactional_db, settings) -> Visitor:
    settings.TURNS_POLL_INTERVAL = 0.05

    def start() -> Visitor:
        boss = get_user_model().objects.create_superuser("boss")
        return Visitor(sign_in(boss), reverse("admin:index"))

    return await in_browser(start)


def exported(visitor: Visitor) -> list[dict[str, Any]]:
    """Take the export of the list that is open; the answer to a question is reached with few clicks."""
    visitor.follow("Export JSON")
    assert visitor.clicks <= MOST_CLICKS
    rows: list[dict[str, Any]] = json.loads(visitor.body)
    return rows


async def test_what_runs_where_is_stopped_and_why_it_was_is_found(
    chat: ChatDriver, fake_tools: FakeTools, visitor: Visitor
):
    chat.use_script([call("a", "held")], [text("Fine.")])
    turn_id = await chat.say()
    await chat.running(turn_id, "a")
    process = str(await in_database(Process.objects.get))

    def stop() -> dict[str, Any]:
        visitor.follow("Running now")
        for words in ("#1 go", "ada · assistant", "held", f"29 min 59 s {process} Cancel turn"):
            assert words in visitor.page.text
        visitor.send("Cancel this turn (#1, ada)", why="the wrong customer")
        assert "stopped after" in visitor.page.text
        visitor.follow("Cancelled turns")
        [row] = exported(visitor)
        return row

    def ask_why() -> dict[str, Any]:
        visitor.begin()
        visitor.follow("Turns", to="turn/")
        assert "boss" in visitor.page.text
        visitor.follow(to=f"/turn/{turn_id}/")
        assert "the wrong customer" in visitor.page.text
        visitor.follow("Cancelled turns")
        [row] = exported(visitor)
        return row

    row = await in_browser(stop)
    turn = await chat.ended(turn_id)
    assert turn.status == "cancelled"
    assert (row["turn_id"], row["by_name"], row["source"]) == (str(turn_id), "boss", "admin")
    assert (row["note"], row["process"]) == ("the wrong customer", process)
    [made] = row["calls"]
    assert (made["tool_name"], made["status"]) == ("held", "cancelled")
    again = await in_browser(ask_why)
    assert again["note"] == "the wrong customer"
    assert again["told"][0]["result"].startswith("[CANCELLED]")


async def test_whether_a_limit_is_right_and_in_force_everywhere(
    chat: ChatDriver, fake_tools: FakeTools, visitor: Visitor, settings
):
    settings.TURNS_LEASE_RENEW_INTERVAL = 0.1
    chat.use_script([call("a", "held", _meta={"timeout_ms": 50})], [text("Fine.")])
    turn = await chat.run()
    await in_database(lambda: make_process(name="runner-2", age=-600))

    def is_it_right() -> list[dict[str, Any]]:
        visitor.follow("Tool limits")
        assert "1 (100.0 %)" in visitor.page.text
        visitor.follow("held")
        assert "Durations of its calls" in visitor.page.text
        assert "timed out" in visitor.page.text
        visitor.follow("1")
        return exported(visitor)

    def tune() -> None:
        visitor.begin()
        visitor.follow("Tool limits")
        visitor.follow("held")
        visitor.send("Save", **{"held-timeout_ms": "2 min", "why": "the provider is slow"})
        assert "Version 1." in visitor.page.text

    def is_it_in_force() -> list[dict[str, Any]]:
        visitor.begin()
        visitor.follow("Tool limits")
        assert "Active in 1 of 2 processes" in visitor.page.text
        visitor.follow("Processes")
        assert "version 0, behind" in visitor.page.text
        visitor.follow("Limit changes")
        assert "the provider is slow" in visitor.page.text
        return exported(visitor)

    [made] = await in_browser(is_it_right)
    assert (made["group"], made["limit_reached"], made["timeout_ms"]) == (str(turn.pk), "total", 50)
    await in_browser(tune)
    reported = Process.objects.exclude(name="runner-2").filter(policy_version=1)
    await eventually(lambda: in_database(reported.exists))
    [change] = await in_browser(is_it_in_force)
    assert (change["by_name"], change["reason"]) == ("boss", "the provider is slow")
    assert (change["tool_name"], change["version"]) == ("held", 1)
    assert change["changes"]["timeout_ms"] == [None, 120_000]
    assert change["at"]

"""An administrator edits a limit in the admin while a call runs. The call obeys, and its row says so (acceptance 11)."""

import asyncio

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from governance import runtime
from governance.core.calls import CallStatus, ToolCall
from governance.core.executor import Host
from governance.core.registry import make_tool, registry
from governance.db import run_in_db_thread
from governance.models import ToolCall as Row
from governance.models import ToolPolicy
from governance.recorder import Recorder

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def executor():
    executor = await runtime.get_executor()
    yield executor
    await runtime.close_executor()


@run_in_db_thread
def _sign_in():
    admin_client = Client()
    admin_client.force_login(
        get_user_model().objects.create_superuser("boss", "boss@example.org", "secret")
    )
    return admin_client


@run_in_db_thread
def _edit(admin_client, **values):
    """Add or change the limits of `endless` as a person does."""
    row = ToolPolicy.objects.filter(tool_name="endless").first()
    url = (
        reverse("admin:governance_toolpolicy_change", args=[row.pk])
        if row
        else reverse("admin:governance_toolpolicy_add")
    )
    fields = {
        "tool_name": "endless",
        "is_active": "on",
        "tool_enabled": "on",
        "note": "",
        "max_running": "",
    }
    limits = {
        "timeout_ms": "",
        "idle_timeout_ms": "",
        "ceiling_ms": "",
        "revision": row.revision if row else "",
    }
    assert admin_client.post(url, fields | limits | values).status_code == 302


@run_in_db_thread
def _row(call_id):
    return Row.objects.get(call_id=call_id)


async def test_a_running_call_obeys_an_edit_in_the_admin_and_so_does_the_next(executor):
    started = asyncio.Event()

    async def endless() -> None:
        """Never end."""
        started.set()
        await asyncio.Event().wait()

    registry.register(make_tool(endless, timeout=600))
    try:
        admin_client, host = await _sign_in(), Host(observer=Recorder(group="turn"))
        first = ToolCall(id="first", tool_name="endless", scope="conversation")
        running = asyncio.create_task(executor.run(first, host=host))
        await started.wait()
        await _edit(admin_client, timeout_ms="20 min")
        await _edit(admin_client, timeout_ms="50 ms", accepted="timeout_ms=50")
        assert (await running).status is CallStatus.TIMED_OUT
        stored = await _row("first")
        assert [(c["from_ms"], c["to_ms"]) for c in stored.deadline_changes] == [
            (600_000, 1_200_000),
            (1_200_000, 50),
        ]
        assert {c["by"] for c in stored.deadline_changes} == {"boss"}
        assert (stored.timeout_ms, stored.timeout_source) == (50, "override")
        second = ToolCall(id="second", tool_name="endless", scope="conversation")
        assert (await executor.run(second, host=host)).status is CallStatus.TIMED_OUT
        assert (await _row("second")).timeout_ms == 50
    finally:
        registry.unregister("endless")

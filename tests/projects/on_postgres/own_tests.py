"""Tests as a host project writes them: within Django's transactions, and of a governed call in one of its own."""

from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from governed import run_tool

from governance.models import ToolCall
from governance.runtime import close_executor


@async_to_sync
async def order_status() -> str:
    """Run one governed call, as a view or a command does it that is no coroutine."""
    try:
        outcome = await run_tool(
            answer_id="a1", call_id="c1", name="order_status", arguments={"order": 7}
        )
        return outcome.result
    finally:
        await close_executor()


class Pages(TestCase):
    """Tests that Django wraps in a transaction each."""

    def test_a_page_with_the_chat(self) -> None:
        ada = get_user_model().objects.create_user("ada", password="right")
        assert self.client.get("/assistant/").status_code == 302
        self.client.post("/assistant/login/", {"username": "ada", "password": "right"})
        assert self.client.get("/assistant/").status_code == 200
        chat = self.client.post("/assistant/c/new/", follow=True)
        self.assertContains(chat, "webchat/js/chat.js")
        assert self.client.get("/assistant/readyz").json()["database"] is True
        assert self.client.get("/assistant/api/conversations").status_code == 200
        ada.refresh_from_db()

    async def test_a_page_with_the_chat_in_a_coroutine(self) -> None:
        await self.async_client.aforce_login(await get_user_model().objects.acreate(username="ben"))
        answer = await self.async_client.get("/assistant/")
        assert answer.status_code == 200

    def test_a_governed_call(self) -> None:
        assert order_status() == "Order 7 is on its way."
        assert ToolCall.objects.get().status == "succeeded"


class OwnTransaction(TransactionTestCase):
    """What a governed call does to a transaction that is open around it."""

    def test_its_rows_are_committed_with_the_others(self) -> None:
        with transaction.atomic():
            Group.objects.create(name="before")
            assert order_status() == "Order 7 is on its way."
            Group.objects.create(name="after")
        connection.close()
        assert Group.objects.filter(name__in=("before", "after")).count() == 2
        assert ToolCall.objects.get().status == "succeeded"

    def test_its_rows_are_rolled_back_with_the_others(self) -> None:
        with self.assertRaises(LookupError), transaction.atomic():  # noqa: PT027 - a host without pytest
            Group.objects.create(name="before")
            order_status()
            raise LookupError
        assert Group.objects.filter(name="before").count() == 0
        assert ToolCall.objects.count() == 0

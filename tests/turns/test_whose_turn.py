"""For whom a tool works, in each kind of place and in sub-agents, and the permission that it may demand of that person."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser, Permission
from django.db import connection

from governance import Host, ToolCall, ToolContext, make_tool, registry
from governance.runtime import get_executor
from tests.support import PATIENCE
from tests.turns.support import PROMISED_MS, ChatDriver, in_database
from tests.turns.tools.scripted_agents import ask, child, use_scripts
from turns.models import Agent, Turn
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)

PERMISSION = "turns.view_turn"
answers: dict[str, Any] = {}
hanging = threading.Event()


def _described(context: ToolContext, user: Any) -> dict[str, Any]:
    return {
        "user_id": context.user_id,
        "user": user and user.get_username(),
        "agent": context.agent,
        "depth": context.depth,
        "place": context.workspace and context.workspace.parent.name,
    }


async def whose(context: ToolContext) -> dict[str, Any]:
    """Say for whom the call works."""
    answers[context.call_id] = _described(context, await context.user())
    return answers[context.call_id]


def whose_in_thread(context: ToolContext) -> dict[str, Any]:
    """Say for whom the call works."""
    return _described(context, context.user_blocking())


def whose_in_process(context: ToolContext) -> dict[str, Any]:
    """Say for whom the call works."""
    return _described(context, context.user_blocking())


async def guarded(context: ToolContext) -> str:
    """Do what needs a permission."""
    return f"{context.call_id} ran"


class HangingBackend:
    """An authentication backend whose server does not answer."""

    def authenticate(self, request: Any, **credentials: Any) -> None:
        """Know nobody."""

    def has_perm(self, user: Any, permission: str, obj: Any = None) -> bool:
        """Hang until the test is over."""
        hanging.wait(PATIENCE)
        return True


class FailingBackend(HangingBackend):
    """An authentication backend that is broken."""

    def has_perm(self, user: Any, permission: str, obj: Any = None) -> bool:
        """Raise."""
        raise RuntimeError("the directory is gone")


@contextmanager
def registered(*functions: Callable[..., Any], **declared: Any) -> Iterator[None]:
    tools = [make_tool(function, **declared) for function in functions]
    for tool in tools:
        registry.register(tool)
    try:
        yield
    finally:
        for tool in tools:
            registry.unregister(tool.name)


@pytest.fixture
def guard() -> Iterator[None]:
    with registered(guarded, permission=PERMISSION):
        yield


@pytest.fixture
def database_of_the_test(monkeypatch: pytest.MonkeyPatch, transactional_db: None) -> None:
    """Let worker processes use the same database."""
    of = connection.settings_dict
    address = f"sqlite:///{of['NAME']}"
    if connection.vendor != "sqlite":
        address = f"postgres://{of['USER']}:{of['PASSWORD']}@{of['HOST']}:{of['PORT']}/{of['NAME']}"
    monkeypatch.setenv("TEST_DATABASE_URL", address)


def permit(user: AbstractUser) -> None:
    user.user_permissions.add(Permission.objects.get(codename="view_turn"))


async def outcome(chat: ChatDriver) -> Any:
    """Let the agent call the guarded tool once."""
    turn = await chat.play([call("c1", "guarded")], [text("Done.")])
    return (await chat.calls(turn.pk))["c1"]


class TestContext:
    @pytest.mark.parametrize(
        ("function", "declared"),
        [(whose, {}), (whose_in_thread, {}), (whose_in_process, {"isolation": "process"})],
    )
    async def test_a_tool_learns_for_whom_it_works(
        self, chat: ChatDriver, database_of_the_test, function, declared, tmp_path
    ):
        with registered(function, **declared):
            turn = await chat.play([call("c1", function.__name__)], [text("Done.")])
        row = (await chat.calls(turn.pk))["c1"]

        assert row.status == "succeeded", row.result
        assert json.loads(row.result) == {
            "user_id": chat.user.pk,
            "user": "ada",
            "agent": "assistant",
            "depth": 0,
            "place": tmp_path.name,
        }

    async def test_a_sub_agent_works_for_the_same_person(self, chat: ChatDriver):
        await in_database(lambda: Agent.objects.create(name="researcher"))
        use_scripts(
            chat,
            go=[[ask("a1", "dig", "researcher")], [text("Done.")]],
            dig=[[ask("a2", "deeper")], [call("c1", "whose")], [text("Gold.")]],
            deeper=[[call("c2", "whose")], [text("Rock.")]],
        )
        with registered(whose):
            await chat.run()

        first, second = answers["c1"], answers["c2"]
        assert (first["user_id"], first["user"]) == (chat.user.pk, "ada")
        assert (first["agent"], first["depth"], first["place"]) == ("researcher", 1, "sub-agents")
        assert (second["user_id"], second["user"]) == (chat.user.pk, "ada")
        assert (second["agent"], second["depth"]) == ("assistant", 2)

    async def test_nobody_and_a_deleted_person_are_none(self, site):
        gone = await in_database(lambda: get_user_model().objects.create_user("gone"))
        gone_id = gone.pk
        await in_database(gone.delete)
        with registered(whose):
            executor = await get_executor()
            for user_id in (None, gone_id):
                done = await executor.run(
                    ToolCall(id="c1", tool_name="whose"), host=Host(user_id=user_id)
                )
                assert (done.value["user_id"], done.value["user"]) == (user_id, None)


class TestPermission:
    async def test_a_call_without_it_never_runs_and_says_so(self, chat: ChatDriver, guard):
        refused = await outcome(chat)

        assert (refused.status, refused.error_type) == ("failed", "forbidden")
        assert refused.disposition == "not_started"
        assert "'turns.view_turn'" in refused.result
        assert "It was not run." in refused.result
        assert chat.sink.find("tool_result", tool_id="c1")["error_type"] == "forbidden"
        assert chat.sink.find("tool_start", tool_id="c1") is None

    async def test_it_counts_from_the_next_call_on(self, chat: ChatDriver, guard):
        assert (await outcome(chat)).error_type == "forbidden"
        await in_database(lambda: permit(chat.user))
        assert (await outcome(chat)).result == "c1 ran"
        await in_database(chat.user.user_permissions.clear)
        assert (await outcome(chat)).error_type == "forbidden"

    async def test_superusers_have_it_and_deactivated_users_have_none(self, site, guard):
        def change(**fields: Any) -> Any:
            return get_user_model().objects.update_or_create(username="root", defaults=fields)[0]

        executor = await get_executor()
        results = []
        for fields in ({"is_superuser": True}, {"is_active": False}):
            root = await in_database(lambda fields=fields: change(**fields))
            done = await executor.run(
                ToolCall(id="c1", tool_name="guarded"), host=Host(user_id=root.pk)
            )
            results.append(done.error_type)
        assert results == [None, "forbidden"]

    async def test_a_call_for_nobody_has_none(self, site, guard):
        done = await (await get_executor()).run(ToolCall(id="c1", tool_name="guarded"))
        assert done.error_type == "forbidden"

    async def test_a_sub_agent_has_no_more_than_its_person(self, chat: ChatDriver, guard):
        use_scripts(
            chat,
            go=[[ask("a1", "dig")], [text("Done.")]],
            dig=[[call("c1", "guarded")], [text("I may not.")]],
        )
        await chat.run()

        dug = await child("dig")
        assert (await chat.calls(dug.pk))["c1"].error_type == "forbidden"

    async def test_nobody_is_asked_about_a_call_without_it(self, chat: ChatDriver, guard, settings):
        settings.GOVERNANCE_APPROVAL = {"guarded": "always"}
        refused = await outcome(chat)
        assert refused.error_type == "forbidden"
        assert chat.sink.find("tool_approval") is None

    async def test_it_is_gone_when_the_person_has_approved(self, chat: ChatDriver, guard, settings):
        settings.GOVERNANCE_APPROVAL = {"guarded": "always"}
        await in_database(lambda: permit(chat.user))
        chat.use_script([call("c1", "guarded")], [text("Done.")])
        turn_id = await chat.say()
        await chat.asked(turn_id, "c1")
        await in_database(chat.user.user_permissions.clear)
        await chat.decide(turn_id, "c1")
        await chat.ended(turn_id)
        refused = (await chat.calls(turn_id))["c1"]
        assert (refused.status, refused.error_type) == ("failed", "forbidden")

    async def test_a_call_without_it_waits_for_no_place(self, chat: ChatDriver, fake_tools):
        with registered(guarded, permission=PERMISSION, concurrency="exclusive"):
            turn_id = await chat.begin([call("c1", "held"), call("c2", "guarded")], [text("Done.")])
            await chat.sink.until("tool_result", tool_id="c2")
            fake_tools.open_all()
            await chat.ended(turn_id)
        assert (await chat.calls(turn_id))["c1"].status == "succeeded"

    async def test_a_backend_that_hangs_holds_up_no_cancel(self, chat: ChatDriver, guard, settings):
        settings.AUTHENTICATION_BACKENDS = [f"{__name__}.HangingBackend"]
        hanging.clear()
        try:
            chat.use_script([call("c1", "guarded")])
            turn_id = await chat.say()
            await chat.sink.until("message", turn_id=str(turn_id), role="assistant")
            await chat.cancel(turn_id)
            turn: Turn = await chat.ended(turn_id)
        finally:
            hanging.set()
        request = await chat.request(turn_id)
        assert turn.status == "cancelled"
        assert (turn.ended_at - request.requested_at).total_seconds() * 1000 < PROMISED_MS
        assert (await chat.calls(turn_id))["c1"].status == "not_started"

    async def test_a_backend_that_fails_lets_nothing_run(self, chat: ChatDriver, guard, settings):
        settings.AUTHENTICATION_BACKENDS = [f"{__name__}.FailingBackend"]
        refused = await outcome(chat)
        assert (refused.status, refused.error_type) == ("failed", "execution_error")
        assert "the directory is gone" not in refused.result

"""Rights that end while a socket is open: by signal at once, else by the next frame or heartbeat."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.contrib.sessions.models import Session
from django.db.backends.utils import CursorWrapper
from django.test import AsyncClient
from django.urls import reverse

from governance.db import run_in_db_thread
from tests.support import PATIENCE
from tests.webchat.sockets import Frame, Socket
from tests.webchat.staff import make_staff, session_of, signed_in
from turns.models import Turn
from turns.services import ConversationSummary
from webchat import api_tokens
from webchat.models import ApiToken
from webchat.protocol.client_frames import client_frames
from webchat.protocol.generators import schema_of, type_of

pytestmark = pytest.mark.usefixtures("site")

Connect = Callable[..., Socket]
SCHEMAS = {type_of(frame): schema_of(frame) for frame in client_frames()}
TYPES = list(SCHEMAS)
FIELDS = {
    "protocol": 1,
    "client_id": "c",
    "op_id": "o",
    "turn_id": "00000000-0000-0000-0000-000000000007",
    "tool_id": "t",
    "text": "wait 60",
    "timeout_ms": 1000,
    "decision": "approve",
}


def frame_of(kind: str) -> Frame:
    names = set(SCHEMAS[kind]["properties"]) & set(FIELDS)
    return {"type": kind, **{name: FIELDS[name] for name in names}}


@pytest.fixture
async def operator(connect: Connect, stranger: User, watchers: Group) -> Socket:
    """Return the open socket of staff who sees everything by way of a group."""

    await make_staff(stranger)
    await stranger.groups.aadd(watchers)
    client = await signed_in(stranger)
    return await connect(session=session_of(client)).open()


@pytest.fixture
def watchers(transactional_db: None) -> Group:
    group = Group.objects.create(name="watchers")
    group.permissions.set(Permission.objects.filter(codename="view_all"))
    return group


@pytest.fixture
async def program(connect: Connect, person: User) -> Socket:
    _, token = await run_in_db_thread(api_tokens.issue)(user=person, name="script")
    return await connect(session=None, token=token, origin=None).open()


@pytest.mark.parametrize("kind", TYPES)
async def test_every_kind_of_frame_asks_anew_who_sends_it(
    connect: Connect, person: User, kind: str
):
    socket = await connect().open()
    await User.objects.filter(pk=person.pk).aupdate(is_active=False)  # sends no signal
    await socket.send(**frame_of(kind))
    assert await socket.close_code() == 4401
    assert not await Turn.objects.aexists()


async def test_a_new_secret_key_ends_no_session_that_a_fallback_verifies(
    connect: Connect, user_client: AsyncClient, settings: Any
):
    """Django would give the session another key, which no answer to the browser carries."""
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "of the tests, after the old one " + "x" * 40
    socket = await connect().open()
    await socket.send(type="message", client_id="c", text="Hello")
    assert (await socket.read("message_result"))["turn_id"]
    assert await Session.objects.aget() == await Session.objects.aget(pk=session_of(user_client))
    assert (await user_client.get("/")).status_code == 200


@run_in_db_thread
def lose_rank(user: User, group: Group) -> None:
    User.objects.filter(pk=user.pk).update(is_staff=False)


@run_in_db_thread
def lose_membership(user: User, group: Group) -> None:
    User.groups.through.objects.filter(user=user).delete()


@run_in_db_thread
def lose_permissions(user: User, group: Group) -> None:
    Group.permissions.through.objects.filter(group=group).delete()


@pytest.mark.parametrize("lose", [lose_rank, lose_membership, lose_permissions])
async def test_a_right_that_is_lost_without_a_signal_is_lost_at_the_next_action(
    connect: Connect,
    operator: Socket,
    stranger: User,
    watchers: Group,
    lose: Callable[..., Awaitable[None]],
    settings: Any,
):
    """The heartbeat would find it, too; nothing that is asked for before that is done."""
    settings.WEBCHAT_HEARTBEAT_INTERVAL = 600
    may_cancel = Permission.objects.filter(codename="cancel_any")
    await run_in_db_thread(lambda: watchers.permissions.add(*may_cancel))()
    owner = await connect().open()
    await owner.send(type="message", client_id="c", text="wait 60")
    turn_id = (await owner.read("tool_start"))["turn_id"]
    await operator.read("tool_start")
    await lose(stranger, watchers)
    await operator.send(type="cancel_turn", op_id="o", turn_id=turn_id)
    assert (await operator.read("op_result"))["outcome"] == "not_found"
    await operator.send(type="ping")
    assert await operator.close_code() == 4404
    turn = await Turn.objects.aget(pk=turn_id)
    assert turn.status == "running"
    await owner.send(type="cancel_turn", op_id="p", turn_id=turn_id)
    await owner.read("turn_end")


async def deactivate(user: User) -> None:
    user.is_active = False
    await user.asave()


async def change_password(user: User) -> None:
    user.set_password("another")
    await user.asave()


async def delete(user: User) -> None:
    await user.adelete()


@pytest.mark.parametrize("what", [deactivate, change_password, delete])
async def test_a_user_who_may_not_be_here_any_more_is_let_go_at_once(
    connect: Connect, person: User, what: Callable[[User], Awaitable[None]]
):
    socket = await connect().open()
    await what(person)
    assert await socket.close_code() == 4401


async def test_a_user_who_goes_while_the_rights_are_checked_is_told_so(
    connect: Connect, person: User, monkeypatch: pytest.MonkeyPatch
):
    socket = await connect().open()
    loop, execute = asyncio.get_running_loop(), CursorWrapper._execute

    def execute_after_the_deletion(cursor: CursorWrapper, sql: str, *arguments: Any) -> Any:
        if "is_owner_active" in sql:  # who may see the conversation is read
            monkeypatch.setattr(CursorWrapper, "_execute", execute)
            asyncio.run_coroutine_threadsafe(delete(person), loop).result(PATIENCE)
        return execute(cursor, sql, *arguments)

    monkeypatch.setattr(CursorWrapper, "_execute", execute_after_the_deletion)
    await socket.send(type="ping")
    assert await socket.close_code() == 4401


async def test_what_takes_no_right_away_closes_nothing(
    connect: Connect, person: User, user_client: AsyncClient
):
    socket = await connect().open()
    person.first_name = "Ada"
    await person.asave()
    await AsyncClient().aforce_login(person)
    await run_in_db_thread(lambda: person.groups.add(Group.objects.create(name="any")))()
    await socket.ping()


async def demote(user: User, group: Group) -> None:
    user.is_staff = False
    await user.asave()


async def leave_group(user: User, group: Group) -> None:
    await user.groups.aremove(group)


async def expel(user: User, group: Group) -> None:
    await group.user_set.aremove(user)


async def empty(user: User, group: Group) -> None:
    await group.user_set.aclear()


async def weaken(user: User, group: Group) -> None:
    await group.permissions.aclear()


async def withdraw(user: User, group: Group) -> None:
    permission = await Permission.objects.aget(codename="view_all")
    await permission.group_set.aremove(group)


async def dissolve(user: User, group: Group) -> None:
    await group.adelete()


@pytest.mark.parametrize("what", [demote, leave_group, expel, empty, weaken, withdraw, dissolve])
async def test_staff_who_may_not_look_any_more_is_let_go_at_once(
    operator: Socket, stranger: User, watchers: Group, what: Callable[..., Awaitable[None]]
):
    await operator.ping()
    await what(stranger, watchers)
    assert await operator.close_code() == 4404


async def test_a_permission_of_one_s_own_counts_too(connect: Connect, stranger: User):
    await make_staff(stranger, "view_all")
    client = await signed_in(stranger)
    operator = await connect(session=session_of(client)).open()
    await stranger.user_permissions.aclear()
    assert await operator.close_code() == 4404


async def test_a_token_that_is_revoked_in_the_admin_ends_its_sockets_at_once(
    program: Socket, connect: Connect
):
    @run_in_db_thread
    def revoke() -> None:
        from django.test import Client

        client = Client()
        client.force_login(User.objects.create_superuser("root"))
        chosen = {"action": "revoke", "_selected_action": [ApiToken.objects.get().pk]}
        client.post(reverse("admin:webchat_apitoken_changelist"), chosen)

    page = await connect().open()
    await revoke()
    assert await program.close_code() == 4401
    await page.ping()


async def test_a_token_that_is_deleted_ends_its_sockets_at_once(program: Socket):
    await ApiToken.objects.all().adelete()
    assert await program.close_code() == 4401


async def test_a_change_that_is_rolled_back_tells_nobody(
    connect: Connect, person: User, monkeypatch: pytest.MonkeyPatch
):
    from django.db import transaction

    from webchat import revocations

    told: list[Any] = []
    monkeypatch.setattr(revocations, "_send", lambda user_id, _message: told.append(user_id))

    @run_in_db_thread
    def try_it() -> None:
        with transaction.atomic():
            person.is_active = False
            person.save()
            transaction.set_rollback(True)

    await try_it()
    assert told == []


async def test_a_dead_broker_keeps_nobody_from_saving(
    connect: Connect,
    person: User,
    conversation: ConversationSummary,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
):
    from channels.layers import InMemoryChannelLayer

    async def dead(*_: Any) -> None:
        raise ConnectionError("no broker")

    settings.WEBCHAT_HEARTBEAT_INTERVAL = 0.05
    socket = await connect().open()
    monkeypatch.setattr(InMemoryChannelLayer, "group_send", dead)
    await deactivate(person)
    assert await socket.close_code() == 4401  # by the heartbeat

"""How much one user may do in a minute, over all of his sockets and the API. A cancel is never in the way."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient

from tests.webchat.sockets import Socket
from turns.services import ConversationSummary
from webchat.rate_limits import UserRateLimits

pytestmark = pytest.mark.usefixtures("site")

Connect = Callable[..., Socket]


async def post(client: AsyncClient, path: str, body: Any) -> tuple[int, Any]:
    answer = await client.post(path, data=json.dumps(body), content_type="application/json")
    return answer.status_code, answer.json()


async def test_the_frames_of_all_sockets_of_a_user_count_together_but_a_cancel_always_comes_through(
    connect: Connect, settings: Any
):
    settings.WEBCHAT_MAX_USER_FRAMES_PER_MINUTE = 10
    one, two = await connect().open(), await connect().open()
    await one.send(type="message", client_id="c", text="wait 60")
    turn_id = (await one.read("tool_start"))["turn_id"]
    for _ in range(5):
        await two.ping()
    await two.send(type="ping")
    assert (await two.read("error"))["code"] == "too_many_frames"
    assert await two.close_code() == 4429
    await one.send(type="cancel_turn", op_id="o", turn_id=turn_id)
    assert (await one.read("op_result"))["outcome"] == "accepted"
    assert (await one.read("turn_end"))["status"] == "cancelled"


async def test_the_frames_of_somebody_else_do_not_count(
    connect: Connect, stranger: User, settings: Any
):
    from turns import services

    settings.WEBCHAT_MAX_USER_FRAMES_PER_MINUTE = 4
    client = AsyncClient()
    await client.aforce_login(stranger)
    other = await services.create_conversation(user=stranger)
    cookie = client.cookies["sessionid"].value
    mine = await connect().open()
    theirs = await connect(conversation_id=other.id, session=cookie).open()
    for socket in (mine, theirs):
        await socket.ping()
        await socket.ping()


async def test_messages_by_socket_and_by_http_count_together_and_the_answer_names_the_message(
    connect: Connect, user_client: AsyncClient, conversation: ConversationSummary, settings: Any
):
    settings.TURNS_MAX_MESSAGES_PER_MINUTE = 2
    socket = await connect().open()
    path = f"/api/conversations/{conversation.id}/messages"
    known = {"text": "help", "client_id": "known"}
    accepted = await post(user_client, path, known)
    assert accepted[0] == 202
    await socket.send(type="message", client_id="a", text="help")
    await socket.read("message_result")
    await socket.send(type="message", client_id="b", text="help")
    error = await socket.read("error")
    assert (error["code"], error["client_id"]) == ("too_many_messages", "b")
    await socket.ping()
    status, body = await post(user_client, path, {"text": "help"})
    assert (status, body["code"]) == (429, "too_many_messages")
    assert await post(user_client, path, known) == accepted  # the same message, so no further one


async def test_a_user_has_so_many_sockets_at_most_and_the_one_too_many_is_told_why(
    connect: Connect, stranger: User, settings: Any
):
    from turns import services

    settings.WEBCHAT_MAX_SOCKETS_PER_USER = 2
    first, second = await connect().open(), await connect().open()
    third = connect()
    assert await third.connect()
    error = await third.read("error")
    assert error["code"] == "too_many_sockets"
    assert "Close one of their pages" in error["message"]
    assert await third.close_code() == 4429
    client = AsyncClient()
    await client.aforce_login(stranger)
    other = await services.create_conversation(user=stranger)
    cookie = client.cookies["sessionid"].value
    theirs = await connect(conversation_id=other.id, session=cookie).open()
    for socket in (first, second, theirs):
        await socket.ping()
    await first.leave()
    await (await connect().open()).ping()


async def test_every_post_is_limited_and_each_address_alone(
    user_client: AsyncClient, conversation: ConversationSummary, settings: Any
):
    settings.WEBCHAT_MAX_POSTS_PER_MINUTE = 2
    statuses = [(await post(user_client, "/api/conversations", {}))[0] for _ in range(3)]
    assert statuses == [201, 201, 429]
    status, body = await post(user_client, "/api/conversations", {})
    assert (status, body["code"]) == (429, "too_many_requests")
    assert (await user_client.get("/api/conversations")).status_code == 200
    path = "/api/turns/{}/abort"
    statuses = [(await post(user_client, path.format(uuid4()), {}))[0] for _ in range(3)]
    assert statuses == [404, 404, 429]


def test_who_is_quiet_is_forgotten():
    now = 0.0
    rates = UserRateLimits(clock=lambda: now)
    for user_id in range(100):
        assert rates.allow(user_id, "frames", limit=1)
    assert not rates.allow(7, "frames", limit=1)
    assert rates.allow(7, "messages", limit=1)
    now = 60.0
    assert rates.allow(7, "frames", limit=1)
    assert len(rates) == 1

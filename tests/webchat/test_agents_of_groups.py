"""An agent that is given to groups, at each door: the API with a token, the socket, the pages and embedded chats."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.template import Context, Template
from django.test import AsyncClient, RequestFactory
from django.urls import reverse

from governance.db import run_in_db_thread
from tests.webchat.sockets import Socket
from turns.agents.edits import save_agent
from turns.models import Conversation
from turns.services import ConversationSummary
from webchat import api_tokens

SAMPLE = "How many orders are open?"


@pytest.fixture
def clerks(transactional_db: None) -> Group:
    group = Group.objects.create(name="Clerks")
    values: Any = {"groups": ["Clerks"], "samples": [SAMPLE]}
    save_agent(name="clerk", values=values, by=None)
    return group


class Api:
    """A program that uses the API with a token."""

    def __init__(self, user: User) -> None:
        self._token = api_tokens.issue(user=user, name="script")[1]
        self._client = AsyncClient()

    async def ask(self, method: str, path: str, **body: Any) -> tuple[int, Any]:
        """Send a request; return the status and the answer."""
        answer = await self._client.generic(
            method,
            f"/api/{path}",
            json.dumps(body),
            content_type="application/json",
            headers={"authorization": f"Bearer {self._token}"},
        )
        return answer.status_code, answer.json()


async def test_the_api_neither_lists_it_nor_takes_it(site: None, clerks: Group, person: User):
    api = await run_in_db_thread(Api)(person)

    _, listed = await api.ask("GET", "agents")
    unknown = await api.ask("POST", "conversations", agent="nobody")
    refused = await api.ask("POST", "conversations", agent="clerk")
    assert [agent["name"] for agent in listed["agents"]] == ["assistant"]
    assert (refused[0], refused[1]["code"]) == (422, "agent_unavailable")
    assert refused[1]["error"] == unknown[1]["error"].replace("nobody", "clerk")

    _, made = await api.ask("POST", "conversations")
    place = f"conversations/{made['conversation_id']}"
    status, answer = await api.ask("PATCH", place, agent="clerk")
    assert (status, answer["code"]) == (422, "agent_unavailable")

    await run_in_db_thread(person.groups.add)(clerks)
    _, listed = await api.ask("GET", "agents")
    assert [agent["name"] for agent in listed["agents"]] == ["assistant", "clerk"]
    assert (await api.ask("PATCH", place, agent="clerk"))[0] == 200
    status, _ = await api.ask("POST", f"{place}/messages", text="say Hello.")
    assert status == 202

    await run_in_db_thread(person.groups.clear)()
    status, answer = await api.ask("POST", f"{place}/messages", text="say Hello.")
    assert (status, answer["code"]) == (422, "agent_unavailable")


async def test_the_socket_refuses_a_message_to_it(
    clerks: Group, person: User, conversation: ConversationSummary, user_client: AsyncClient
):
    chosen = Conversation.objects.filter(pk=conversation.id)
    await run_in_db_thread(lambda: chosen.update(agent="clerk"))()
    session = user_client.cookies["sessionid"].value
    socket = await Socket(conversation_id=conversation.id, session=session).open()

    await socket.send(type="message", client_id="c", text="say Hello.")
    error = await socket.read("error")

    assert (error["code"], error["client_id"]) == ("agent_unavailable", "c")
    assert "Start a new conversation with another agent" in error["message"]
    await run_in_db_thread(person.groups.add)(clerks)
    await socket.send(type="message", client_id="d", text="say Hello.")
    assert (await socket.read("turn_end"))["status"] == "completed"
    await socket.leave()


async def test_pages_do_not_offer_it(clerks: Group, user_client: AsyncClient):
    listed = (await user_client.get("/")).content.decode()
    made = await user_client.post(reverse("webchat:new_conversation"), {"agent": "clerk"})
    empty = await user_client.get(f"{reverse('webchat:new_conversation')}?agent=clerk", follow=True)

    assert "clerk" not in listed
    assert (made.status_code, empty.status_code) == (422, 422)
    for page in (made, empty):
        assert "There is no agent named “clerk”" in page.content.decode()
        assert SAMPLE not in page.content.decode()


async def test_the_page_of_a_conversation_shows_that_its_agent_is_gone(
    clerks: Group, conversation: ConversationSummary, user_client: AsyncClient
):
    chosen = Conversation.objects.filter(pk=conversation.id)
    await run_in_db_thread(lambda: chosen.update(agent="clerk"))()

    page = await user_client.get(f"/c/{conversation.id}/")

    assert '<option value="clerk" selected disabled>clerk</option>' in page.content.decode()


def test_an_embedded_chat_shows_its_samples_to_those_who_may_use_it(clerks: Group, person: User):
    page = Template('{% load webchat %}{% turnkeeper_chat agent="clerk" %}')
    request = RequestFactory().get("/")
    request.user = person
    assert SAMPLE not in page.render(Context({"request": request}))
    person.groups.add(clerks)
    assert SAMPLE in page.render(Context({"request": request}))


def test_an_embedded_chat_is_there_for_a_person_who_may_use_no_agent(clerks: Group, person: User):
    save_agent(name="assistant", values={"groups": ["Clerks"]}, by=None)
    request = RequestFactory().get("/")
    request.user = person
    page = Template("{% load webchat %}{% turnkeeper_chat %}").render(Context({"request": request}))
    assert SAMPLE not in page

"""How many tools a request carries, and what they weigh: bounded, told, and chosen by server in the admin."""

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.test import Client

from governance.models import McpServer
from tests.console.test_agents import ADD, LIST, said, save, url_of
from tests.turns.agents.test_agents import with_agent
from tests.turns.tools_of_servers import many_tools
from turns.models import Agent
from turns.testing import text

MANY = 200


@pytest.fixture
def crowd():
    """More tools of an MCP server than a request takes."""
    with many_tools(MANY) as names:
        yield names


def times_told(chat):
    return sum(event.get("code") == "tools_left_out" for event in chat.sink.events)


@pytest.mark.django_db(transaction=True)
async def test_a_request_has_no_heavier_tools_than_the_project_wants(chat, settings, crowd):
    settings.TURNS_MAX_TOOL_TOKENS = 100
    model = chat.use_script([text("Hello.")], [text("Hello again.")], [text("Now.")])
    await with_agent(chat, tools=["quick", "aaa_*"])

    await chat.run("Hello")

    names = [tool.name for tool in model.requests[0].tools]
    assert "quick" in names  # what belongs to the site goes first
    assert 1 < len(names) < 10
    message = chat.sink.find("error", code="tools_left_out")["message"]
    assert f"has {MANY + 1} tools" in message
    assert f"aaa_{len(names) - 1:03}" in message
    assert "and " in message
    assert "more. An administrator can select the agent’s tools." in message

    await chat.run("Hello again")
    assert times_told(chat) == 1, "the same is said once in a conversation"

    settings.TURNS_MAX_TOOL_TOKENS = 200
    await chat.run("And now?")
    assert times_told(chat) == 2, "others are left out now"


@pytest.mark.django_db(transaction=True)
async def test_all_tools_of_a_server_are_chosen_by_one_tick(chat, settings):
    def choose():
        McpServer.objects.create(name="github", command="x", prefix="gh_")
        admin_client = Client()
        admin_client.force_login(get_user_model().objects.create_superuser("chief", "", "pw"))
        page = admin_client.get(ADD).content.decode()
        save(
            admin_client,
            ADD,
            name="librarian",
            which_tools="some",
            ticked_tools=["gh_*", "read_file"],
        )
        again = admin_client.get(url_of("librarian"))
        return page, again.context["adminform"].form.initial

    page, initial = await sync_to_async(choose)()

    assert "<code>gh_*</code> all tools of this server, including those added later" in page
    agent = await Agent.objects.aget(name="librarian")
    assert agent.tools == ["gh_*", "read_file"]
    assert sorted(initial["ticked_tools"]) == ["gh_*", "read_file"]
    assert initial["named_tools"] == []


@pytest.mark.django_db
class TestAdmin:
    @pytest.fixture
    def admin_client(self, admin_client):
        tools = [{"name": f"t{number:03}", "text": "", "tokens": 150} for number in range(MANY)]
        McpServer.objects.create(name="aaa", command="x", tools_found=tools)
        return admin_client

    def test_heavy_tools_are_a_warning_with_the_estimate(self, admin_client):
        page = save(admin_client, ADD, name="librarian", which_tools="some", ticked_tools=["aaa_*"])

        (warning,) = [text for text in said(page) if "tokens" in text]
        assert f"Its {MANY} tools use about 30000 tokens of each request" in warning
        assert f"{MANY} tools, about 30000 tokens." in admin_client.get(url_of("librarian")).text
        assert "30000" in admin_client.get("/admin/governance/mcpserver/").text

    def test_too_many_for_the_provider_are_a_warning_wherever_one_looks(
        self, admin_client, monkeypatch
    ):
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        values = {"which_tools": "some", "ticked_tools": ["aaa_*"], "chat_model": "openai:gpt-5"}
        made = save(admin_client, ADD, name="librarian", **values)

        sentence = "This agent has 200 tools, but a request can contain at most 128"
        assert any(text.startswith(sentence) for text in said(made))
        assert sentence in admin_client.get(url_of("librarian")).text
        listed = said(admin_client.get(LIST))
        assert any(text.startswith(f"librarian: {sentence}") for text in listed)

    def test_a_few_light_tools_are_no_warning(self, admin_client):
        page = save(
            admin_client, ADD, name="librarian", which_tools="some", ticked_tools=["read_file"]
        )

        assert not any("tokens" in text for text in said(page))

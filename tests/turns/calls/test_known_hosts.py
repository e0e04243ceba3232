"""A host that nobody has named is reached only after a person has heard of it, whoever asks."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from governance.toolbox.known_hosts import canonical
from tests.governance.toolbox.http_server import HttpServer, answer
from tests.turns.support import ChatDriver
from tests.turns.tools.scripted_agents import ask, child, use_scripts
from turns.calls.approvals import is_named_in
from turns.testing import Item, call, text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _hosts_are_asked_about(settings) -> None:
    settings.GOVERNANCE_APPROVAL = {}
    settings.GOVERNANCE_WEB_ALLOW_PRIVATE = True
    settings.GOVERNANCE_WEB_ASK_HOSTS = True


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    async with HttpServer().serve() as running:
        running.pages["/"] = answer("hello")
        yield running


def fetch(id: str, server: HttpServer, *, host: str = "localhost", path: str = "/") -> Item:
    return call(id, "web_fetch", url=server.url(path).replace("127.0.0.1", host))


async def test_a_new_host_is_asked_about_once_and_another_one_again(
    chat: ChatDriver, server: HttpServer
):
    chat.use_script([fetch("a", server)], [text("Fine.")])
    turn_id = await chat.say()
    await chat.asked(turn_id, "a")
    asked = chat.sink.find("tool_approval", tool_id="a")
    assert (asked["host"], asked["can_remember"]) == ("localhost", True)
    assert server.requests == []
    await chat.decide(turn_id, "a", remember=True)
    assert (await chat.ended(turn_id)).status == "completed"
    assert len(server.requests) == 1

    chat.use_script([fetch("b", server), fetch("c", server, host="127.0.0.1")], [text("Fine.")])
    turn_id = await chat.say()
    await chat.asked(turn_id, "c")
    await chat.decide(turn_id, "c", decision="deny")
    await chat.ended(turn_id)
    assert {id: made.status for id, made in (await chat.calls(turn_id)).items()} == {
        "b": "succeeded",
        "c": "denied",
    }
    assert len(await chat.questions(turn_id)) == 1


async def test_a_word_on_one_call_is_not_remembered(chat: ChatDriver, server: HttpServer):
    chat.use_script([fetch("a", server)], [fetch("b", server)], [text("Fine.")])
    turn_id = await chat.say()
    for tool_id in ("a", "b"):
        await chat.asked(turn_id, tool_id)
        await chat.decide(turn_id, tool_id)
    assert (await chat.ended(turn_id)).status == "completed"


@pytest.mark.parametrize("said", ["Read http://localhost:1/x please", "what is on LOCALHOST?"])
async def test_what_the_person_has_named_is_not_asked_about(
    chat: ChatDriver, server: HttpServer, said: str
):
    chat.use_script([fetch("a", server)], [text("Fine.")])
    turn = await chat.run(said)
    assert (await chat.calls(turn.pk))["a"].status == "succeeded"
    chat.use_script([fetch("b", server)], [text("Fine.")])
    assert (await chat.calls((await chat.run()).pk))["b"].status == "succeeded"


async def test_a_word_of_the_person_names_no_host_of_which_it_is_the_end(chat: ChatDriver):
    chat.use_script([call("a", "web_fetch", url="http://WWW.me./")], [text("Fine.")])
    turn_id = await chat.say("Tell me a story")
    await chat.asked(turn_id, "a")
    assert chat.sink.find("tool_approval", tool_id="a")["host"] == "www.me"
    await chat.decide(turn_id, "a", decision="deny")
    await chat.ended(turn_id)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WEB_KNOWN_HOSTS", ["localhost"]),
        ("WEB_KNOWN_HOSTS", ["*.localhost"]),
        ("WEB_KNOWN_HOSTS", ["LocalHost."]),
        ("WEB_ASK_HOSTS", False),
    ],
)
async def test_nobody_is_asked_where_it_is_off_or_the_administrator_has_named_the_host(
    chat: ChatDriver, server: HttpServer, settings, name: str, value: Any
):
    setattr(settings, f"GOVERNANCE_{name}", value)
    chat.use_script([fetch("a", server)], [text("Fine.")])
    assert (await chat.calls((await chat.run()).pk))["a"].status == "succeeded"


async def test_a_redirect_to_a_new_host_is_told_and_not_followed(
    chat: ChatDriver, server: HttpServer
):
    there = server.url("/there?secret=1")
    server.pages["/away"] = answer("", status="302 Found", location=there)
    model = chat.use_script([fetch("a", server, path="/away")], [text("Fine.")])
    turn = await chat.run("Look at localhost")
    assert (await chat.calls(turn.pk))["a"].status == "failed"
    read = model.requests[1].messages[-1].tool_results[0].content
    assert "'127.0.0.1', which was not approved" in read
    assert len(server.requests) == 1


async def test_the_rule_of_the_tool_counts_beside_the_host(
    chat: ChatDriver, server: HttpServer, settings
):
    settings.GOVERNANCE_APPROVAL = {"web_fetch": "once_per_conversation"}
    chat.use_script([fetch("a", server)], [fetch("b", server)], [text("Fine.")])
    turn_id = await chat.say("Look at localhost")  # a host that is known does not let the tool run
    await chat.asked(turn_id, "a")
    await chat.decide(turn_id, "a", remember=True)
    assert (await chat.ended(turn_id)).status == "completed"
    assert len(await chat.questions(turn_id)) == 1


async def test_what_an_agent_tells_its_sub_agent_names_no_host(
    chat: ChatDriver, server: HttpServer
):
    use_scripts(
        chat,
        go=[[ask("a1", "look at localhost")], [text("Done.")]],
        look_at_localhost=[[fetch("c1", server)], [text("It says hello.")]],
    )
    turn_id = await chat.say()
    below = await child("look at localhost")
    await chat.asked(below.pk, "c1")
    await chat.decide(below.pk, "c1")
    assert (await chat.ended(turn_id)).status == "completed"


async def test_what_the_person_has_named_counts_for_sub_agents(
    chat: ChatDriver, server: HttpServer
):
    said = "read localhost"
    use_scripts(
        chat,
        read_localhost=[[ask("a1", "go and look")], [text("Done.")]],
        go_and_look=[[fetch("c1", server)], [text("It says hello.")]],
    )
    turn_id = await chat.say(said)
    assert (await chat.ended(turn_id)).status == "completed"
    below = await child("go and look")
    assert (await chat.calls(below.pk))["c1"].status == "succeeded"


@pytest.mark.parametrize(
    ("said", "is_named"),
    [
        ("see example.org", True),
        ("see https://example.org/a?b", True),
        ("see https://www.Example.org:8080.", True),
        ("(example.org)", True),
        ("example.org.", True),
        ("docs.example.org", False),
        ("example.org.evil.test", False),
        ("my-example.org", False),
        ("example.organic", False),
        ("example.org-mirror.test", False),
        ("ada@example.org", False),
        ("exampleXorg", False),
    ],
)
def test_a_text_names_this_very_host(said: str, is_named: bool):
    assert is_named_in(said, "example.org") is is_named


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("www.Example.org.", "example.org"),
        ("www.www.example.org", "www.example.org"),
        ("www.me", "www.me"),
        ("me", "me"),
    ],
)
def test_a_host_and_its_www_are_one_but_not_where_only_an_end_is_left(host: str, name: str):
    assert canonical(host) == name

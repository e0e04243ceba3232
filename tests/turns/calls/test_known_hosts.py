"""A host that nobody has named is reached only after a person has heard of it, by whomever it is asked for."""

from collections.abc import AsyncIterator

import pytest

from governance.toolbox.known_hosts import canonical
from tests.governance.toolbox.http_server import HttpServer, answer
from tests.turns.sub_agents.stage import ask, cast, child
from tests.turns.support import Stage
from turns.calls.known_hosts import names
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
    stage: Stage, server: HttpServer
):
    stage.play([fetch("a", server)], [text("Fine.")])
    turn_id = await stage.say()
    await stage.asked(turn_id, "a")
    asked = stage.listener.find("tool_approval", tool_id="a")
    assert (asked["host"], asked["can_remember"]) == ("localhost", True)
    assert server.requests == []
    await stage.decide(turn_id, "a", remember=True)
    assert (await stage.ended(turn_id)).status == "completed"
    assert len(server.requests) == 1

    stage.play([fetch("b", server), fetch("c", server, host="127.0.0.1")], [text("Fine.")])
    turn_id = await stage.say()
    await stage.asked(turn_id, "c")
    await stage.decide(turn_id, "c", decision="deny")
    await stage.ended(turn_id)
    assert {id: made.status for id, made in (await stage.calls(turn_id)).items()} == {
        "b": "succeeded",
        "c": "denied",
    }
    assert len(await stage.questions(turn_id)) == 1


async def test_a_word_on_one_call_is_not_remembered(stage: Stage, server: HttpServer):
    stage.play([fetch("a", server)], [fetch("b", server)], [text("Fine.")])
    turn_id = await stage.say()
    for tool_id in ("a", "b"):
        await stage.asked(turn_id, tool_id)
        await stage.decide(turn_id, tool_id)
    assert (await stage.ended(turn_id)).status == "completed"


@pytest.mark.parametrize("said", ["Read http://localhost:1/x please", "what is on LOCALHOST?"])
async def test_what_the_person_has_named_is_not_asked_about(
    stage: Stage, server: HttpServer, said: str
):
    stage.play([fetch("a", server)], [text("Fine.")])
    turn = await stage.run(said)
    assert (await stage.calls(turn.pk))["a"].status == "succeeded"
    stage.play([fetch("b", server)], [text("Fine.")])
    assert (await stage.calls((await stage.run()).pk))["b"].status == "succeeded"


async def test_a_word_of_the_person_names_no_host_of_which_it_is_the_end(stage: Stage):
    stage.play([call("a", "web_fetch", url="http://WWW.me./")], [text("Fine.")])
    turn_id = await stage.say("Tell me a story")
    await stage.asked(turn_id, "a")
    assert stage.listener.find("tool_approval", tool_id="a")["host"] == "www.me"
    await stage.decide(turn_id, "a", decision="deny")
    await stage.ended(turn_id)


@pytest.mark.parametrize("known", ["localhost", "*.localhost", "LocalHost."])
async def test_what_the_administrator_has_named_is_not_asked_about(
    stage: Stage, server: HttpServer, settings, known: str
):
    settings.GOVERNANCE_WEB_KNOWN_HOSTS = [known]
    stage.play([fetch("a", server)], [text("Fine.")])
    assert (await stage.calls((await stage.run()).pk))["a"].status == "succeeded"


async def test_nobody_is_asked_where_it_is_off(stage: Stage, server: HttpServer, settings):
    settings.GOVERNANCE_WEB_ASK_HOSTS = False
    stage.play([fetch("a", server)], [text("Fine.")])
    assert (await stage.calls((await stage.run()).pk))["a"].status == "succeeded"


async def test_a_redirect_to_a_new_host_is_told_and_not_followed(stage: Stage, server: HttpServer):
    there = server.url("/there?secret=1")
    server.pages["/away"] = answer("", status="302 Found", location=there)
    model = stage.play([fetch("a", server, path="/away")], [text("Fine.")])
    turn = await stage.run("Look at localhost")
    assert (await stage.calls(turn.pk))["a"].status == "failed"
    read = model.requests[1].messages[-1].tool_results[0].content
    assert "'127.0.0.1', which was not asked for" in read
    assert len(server.requests) == 1


async def test_the_rule_of_the_tool_counts_beside_the_host(
    stage: Stage, server: HttpServer, settings
):
    settings.GOVERNANCE_APPROVAL = {"web_fetch": "once_per_conversation"}
    stage.play([fetch("a", server)], [fetch("b", server)], [text("Fine.")])
    turn_id = await stage.say("Look at localhost")  # a host that is known does not let the tool run
    await stage.asked(turn_id, "a")
    await stage.decide(turn_id, "a", remember=True)
    assert (await stage.ended(turn_id)).status == "completed"
    assert len(await stage.questions(turn_id)) == 1


async def test_what_an_agent_tells_its_sub_agent_names_no_host(stage: Stage, server: HttpServer):
    cast(
        stage,
        go=[[ask("a1", "look at localhost")], [text("Done.")]],
        look_at_localhost=[[fetch("c1", server)], [text("It says hello.")]],
    )
    turn_id = await stage.say()
    below = await child("look at localhost")
    await stage.asked(below.pk, "c1")
    await stage.decide(below.pk, "c1")
    assert (await stage.ended(turn_id)).status == "completed"


async def test_what_the_person_has_named_counts_for_sub_agents(stage: Stage, server: HttpServer):
    said = "read localhost"
    cast(
        stage,
        read_localhost=[[ask("a1", "go and look")], [text("Done.")]],
        go_and_look=[[fetch("c1", server)], [text("It says hello.")]],
    )
    turn_id = await stage.say(said)
    assert (await stage.ended(turn_id)).status == "completed"
    below = await child("go and look")
    assert (await stage.calls(below.pk))["c1"].status == "succeeded"


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
    assert names(said, "example.org") is is_named


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

"""Who answers: the default agent of a fresh site, an agent's own limits and tools, and agents that are gone."""

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command

from governance import ErrorType
from tests.turns.support import Stage, in_database
from turns import selectors, services
from turns.agents.lookup import find_agent, make_first_agent
from turns.core.tool_names import ToolNames
from turns.exceptions import AgentUnavailable
from turns.models import Agent, Conversation, Turn
from turns.queueing import queue
from turns.running import runtime
from turns.testing import call, gate, text

pytestmark = pytest.mark.django_db(transaction=True)


async def with_agent(stage: Stage, **fields) -> Agent:
    """Let the stage's conversation have an agent of its own."""

    def change() -> Agent:
        agent = Agent.objects.create(**{"name": "librarian", **fields})
        Conversation.objects.filter(pk=stage.id).update(agent=agent.name)
        return agent

    return await in_database(change)


class TestFirstAgent:
    def test_a_fresh_site_has_a_default_agent(self):
        agent = Agent.objects.get()

        assert (agent.name, agent.is_default, agent.is_enabled) == ("assistant", True, True)
        assert agent.tools is None
        assert agent.description

    def test_it_is_not_made_again_where_there_is_any_agent(self):
        Agent.objects.all().delete()
        Agent.objects.create(name="librarian")

        call_command("migrate", verbosity=0)

        assert Agent.objects.get().name == "librarian"

    def test_it_is_back_after_all_rows_were_deleted(self):
        call_command("flush", interactive=False, verbosity=0)

        assert Agent.objects.get().name == "assistant"

    def test_a_database_without_the_table_is_left_alone(self):
        class Before:
            def get_model(self, app_label, model_name):
                raise LookupError

        make_first_agent(apps=Before())

    async def test_without_any_agent_the_settings_count(self, stage, settings):
        settings.TURNS_STEP_LIMIT = 7
        await in_database(Agent.objects.all().delete)
        stage.play([call("c1", "quick")], [text("Done.")])

        turn = await stage.run()

        assert (turn.status, turn.agent, turn.step_limit) == ("completed", "", 7)


class TestLimits:
    async def test_a_turn_takes_its_agents_limits_and_name(self, stage):
        await with_agent(stage, turn_timeout_ms=5_000, step_limit=3, token_limit=900)
        model = stage.play([text("Done.")])

        turn = await stage.run()

        assert (turn.agent, turn.turn_timeout_ms) == ("librarian", 5_000)
        assert (turn.step_limit, turn.token_limit) == (3, 900)
        assert model.requests[0].max_tokens == 900
        started = stage.listener.find("turn_start")
        assert (started["agent"], started["turn_timeout_ms"]) == ("librarian", 5_000)

    async def test_a_blank_limit_is_the_projects_and_zero_is_none(self, stage, settings):
        settings.TURNS_TURN_TIMEOUT = 60.0
        settings.TURNS_STEP_LIMIT = 9
        agent = await with_agent(stage)
        stage.play([text("Done.")], [text("Done.")])

        first = await stage.run()
        await in_database(lambda: Agent.objects.filter(pk=agent.pk).update(turn_timeout_ms=0))
        second = await stage.run()

        assert (first.turn_timeout_ms, first.step_limit, first.token_limit) == (60_000, 9, None)
        assert second.turn_timeout_ms is None

    async def test_a_turn_that_has_used_up_its_tokens_says_so(self, stage, settings):
        settings.TURNS_CHAT_MODEL = "local"
        await with_agent(stage, token_limit=40)

        turn = await stage.run("say " + "word " * 200)

        assert (turn.status, turn.error_code) == ("failed", "token_limit")
        assert "40 tokens" in stage.listener.find("error", code="token_limit")["message"]
        said = (await stage.history())[-1].texts[0].text
        assert said.startswith("word word")

    async def test_calls_beyond_its_number_at_once_wait(self, stage, props):
        await with_agent(stage, max_parallel_calls=1)
        stage.play([call("c1", "held"), call("c2", "held")], [text("Done.")])
        turn_id = await stage.say()
        await stage.running(turn_id, "c1")

        assert stage.listener.find("tool_start", tool_id="c2") is None
        waiting = await runtime.find_call(turn_id, "c2")
        assert waiting.elapsed == 0.0
        props.open_all()
        turn = await stage.ended(turn_id)

        assert turn.status == "completed"
        assert {row.status for row in (await stage.calls(turn_id)).values()} == {"succeeded"}


class TestTools:
    async def test_the_model_is_offered_the_tools_of_its_agent_and_no_others(self, stage):
        await with_agent(stage, tools=["quick", "he*", "comes_later"])
        model = stage.play([text("Done.")])

        await stage.run()

        assert {tool.name for tool in model.requests[0].tools} == {"quick", "held"}

    async def test_a_name_that_the_model_makes_up_is_refused(self, stage, props):
        await with_agent(stage, tools=["quick"])
        stage.play([call("c1", "failing"), call("c2", "quick")], [text("Done.")])

        turn = await stage.run()

        calls = await stage.calls(turn.pk)
        assert (calls["c1"].status, calls["c1"].error_type) == ("failed", ErrorType.UNKNOWN_TOOL)
        assert "There is no tool named 'failing'." in calls["c1"].result
        assert calls["c2"].status == "succeeded"
        assert props.started == ["c2"]

    async def test_no_tools_at_all_is_a_choice_too(self, stage):
        await with_agent(stage, tools=[])
        model = stage.play([text("I only talk.")])

        await stage.run()

        assert model.requests[0].tools == ()

    def test_an_asterisk_stands_for_every_ending(self):
        names = ToolNames(["read_file", "github_*"])

        assert "read_file" in names
        assert "github_search" in names
        assert "read_file_2" not in names
        assert "git" not in names
        assert None not in names
        assert "anything" in ToolNames(["*"])
        assert "anything" not in ToolNames([])

    async def test_an_agent_asks_where_its_tools_do_not(self, stage, props):
        await with_agent(stage, approval="always")
        stage.play([call("c1", "quick")], [text("Done.")])
        turn_id = await stage.say()
        await stage.asked(turn_id, "c1")
        assert props.started == []

        await stage.decide(turn_id, "c1")

        assert (await stage.ended(turn_id)).status == "completed"
        assert props.started == ["c1"]


class TestCast:
    async def test_instructions_are_the_projects_then_the_agents(self, stage, settings):
        settings.TURNS_INSTRUCTIONS = "Be brief."
        await with_agent(stage, instructions="You know books.\n")
        model = stage.play([text("Done.")])

        await stage.run()

        assert model.requests[0].instructions.startswith("Be brief.\n\nYou know books.\n\n")

    async def test_an_agent_answers_with_its_own_chat_model(self, stage):
        await with_agent(stage, chat_model="local")

        turn = await stage.run("say Hello from here")

        assert turn.status == "completed"
        assert (await stage.history())[-1].texts[0].text == "Hello from here"

    async def test_the_local_model_lists_whom_it_may_ask(self, stage, settings):
        settings.TURNS_CHAT_MODEL = "local"
        await with_agent(stage, description="Knows *books*.")
        await in_database(lambda: Agent.objects.create(name="retired", is_enabled=False))

        await stage.run("agents")

        said = (await stage.history())[-1].texts[0].text
        assert "`assistant`: Answers where no other agent was chosen" in said
        assert "librarian" not in said
        assert "retired" not in said

    async def test_the_local_model_says_if_there_is_nobody_to_ask(self, stage, settings):
        settings.TURNS_CHAT_MODEL = "local"

        await stage.run("agents")

        assert "no other agent" in (await stage.history())[-1].texts[0].text

    async def test_a_chat_model_that_is_gone_ends_the_turn_with_words(self, stage):
        await with_agent(stage, chat_model="no.such:model")

        turn = await stage.run()

        assert (turn.status, turn.error_code) == ("failed", "unknown_chat_model")


class TestUnavailable:
    async def test_a_conversation_begins_with_an_agent_that_there_is(self, stage):
        made = await services.create_conversation(user=stage.user, agent="assistant")
        assert made.agent == "assistant"

        with pytest.raises(AgentUnavailable) as refused:
            await services.create_conversation(user=stage.user, agent="nobody")
        assert "“nobody”" in refused.value.sentence

    async def test_without_a_choice_the_default_one_answers_whoever_that_is_then(self, stage):
        def move() -> None:
            Agent.objects.update(is_default=False)
            Agent.objects.create(name="librarian", is_default=True)

        stage.play([text("Done.")], [text("Done.")])
        first = await stage.run()
        await in_database(move)
        second = await stage.run()

        assert (first.agent, second.agent) == ("assistant", "librarian")
        (shown,) = await selectors.list_conversations(user=stage.user)
        assert shown.agent == "librarian"

    @pytest.mark.parametrize("how", ["deleted", "switched off"])
    async def test_a_message_to_an_agent_that_is_gone_is_refused(self, stage, how):
        agent = await with_agent(stage)
        await in_database(
            agent.delete
            if how == "deleted"
            else lambda: Agent.objects.filter(pk=agent.pk).update(is_enabled=False)
        )

        with pytest.raises(AgentUnavailable) as refused:
            await stage.say()

        assert refused.value.code == "agent_unavailable"
        assert "Start a new conversation" in refused.value.sentence
        assert await in_database(Turn.objects.count) == 0

    async def test_the_same_message_again_is_the_same_turn_although_the_agent_is_gone(self, stage):
        agent = await with_agent(stage)
        stage.play([text("Done.")])
        turn = await stage.run(client_id="m1")
        await in_database(agent.delete)

        assert await stage.say(client_id="m1") == turn.pk

    async def test_a_queued_turn_of_an_agent_that_is_gone_ends_visibly(self, stage):
        agent = await with_agent(stage)
        hold = gate()
        stage.play([hold, text("Done.")])
        first = await stage.say("first")
        await hold.reached.wait()
        second = await stage.say("second")
        await in_database(agent.delete)

        hold.opening.set()
        assert (await stage.ended(first)).status == "completed"
        turn = await stage.ended(second)

        assert (turn.status, turn.error_code) == ("failed", "agent_unavailable")
        told = stage.listener.find("error", turn_id=str(second))
        assert told["code"] == "agent_unavailable"
        assert "“librarian”" in told["message"]

    def test_a_default_agent_is_found_without_a_name(self):
        assert find_agent().name == find_agent("assistant").name == "assistant"

    def test_a_turn_is_not_queued_for_an_agent_that_is_gone(self, ada):
        made = async_to_sync(services.create_conversation)(user=ada, agent="assistant")
        Agent.objects.all().delete()

        with pytest.raises(AgentUnavailable):
            queue.enqueue(made.id, text="go", source="typed", client_id=None)

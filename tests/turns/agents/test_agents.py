"""Who answers: the default agent of a fresh site, an agent's own limits and tools, and agents that are gone."""

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command

from governance import ErrorType
from tests.turns.support import ChatDriver, find_live_call, in_database
from turns import selectors, services
from turns.agents.lookup import ToolNames, find_agent, make_first_agent
from turns.exceptions import AgentUnavailable
from turns.history.histories import note_on
from turns.models import Agent, Conversation, Turn
from turns.queueing import queue
from turns.testing import call, gate, text

pytestmark = pytest.mark.django_db(transaction=True)


async def with_agent(chat: ChatDriver, **fields) -> Agent:
    """Let the chat's conversation have an agent of its own."""

    def change() -> Agent:
        agent = Agent.objects.create(**{"name": "librarian", **fields})
        Conversation.objects.filter(pk=chat.id).update(agent=agent.name)
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

        make_first_agent(using="default", apps=Before())

    async def test_without_any_agent_the_settings_count(self, chat, settings):
        settings.TURNS_STEP_LIMIT = 7
        await in_database(Agent.objects.all().delete)
        turn = await chat.play([call("c1", "quick")], [text("Done.")])

        assert (turn.status, turn.agent, turn.step_limit) == ("completed", "", 7)


class TestLimits:
    async def test_a_turn_takes_its_agents_limits_and_name(self, chat):
        await with_agent(chat, turn_timeout_ms=5_000, step_limit=3, token_limit=900)
        model = chat.use_script([text("Done.")])

        turn = await chat.run()

        assert (turn.agent, turn.turn_timeout_ms) == ("librarian", 5_000)
        assert (turn.step_limit, turn.token_limit) == (3, 900)
        assert model.requests[0].max_tokens == 900
        started = chat.sink.find("turn_start")
        assert (started["agent"], started["turn_timeout_ms"]) == ("librarian", 5_000)

    async def test_a_blank_limit_is_the_projects_and_zero_is_none(self, chat, settings):
        settings.TURNS_TURN_TIMEOUT = 60.0
        settings.TURNS_STEP_LIMIT = 9
        agent = await with_agent(chat)
        first = await chat.play([text("Done.")], [text("Done.")])
        await in_database(lambda: Agent.objects.filter(pk=agent.pk).update(turn_timeout_ms=0))
        second = await chat.run()

        assert (first.turn_timeout_ms, first.step_limit, first.token_limit) == (60_000, 9, None)
        assert second.turn_timeout_ms is None

    async def test_a_turn_that_has_used_up_its_tokens_says_so(self, chat, settings):
        settings.TURNS_CHAT_MODEL = "local"
        await with_agent(chat, token_limit=40)

        turn = await chat.run("say " + "word " * 200)

        assert (turn.status, turn.error_code) == ("failed", "token_limit")
        assert "40 tokens" in chat.sink.find("error", code="token_limit")["message"]
        said = (await chat.history())[-1].texts[0].text
        assert said.startswith("word word")

    async def test_calls_beyond_its_number_at_once_wait(self, chat, fake_tools):
        await with_agent(chat, max_parallel_calls=1)
        turn_id = await chat.begin([call("c1", "held"), call("c2", "held")], [text("Done.")])

        assert chat.sink.find("tool_start", tool_id="c2") is None
        waiting = find_live_call(turn_id, "c2")
        assert waiting.elapsed == 0.0
        fake_tools.open_all()
        turn = await chat.ended(turn_id)

        assert turn.status == "completed"
        assert {row.status for row in (await chat.calls(turn_id)).values()} == {"succeeded"}


class TestTools:
    async def test_the_model_is_offered_the_tools_of_its_agent_and_no_others(self, chat):
        await with_agent(chat, tools=["quick", "he*", "comes_later"])
        model = chat.use_script([text("Done.")])

        await chat.run()

        assert {tool.name for tool in model.requests[0].tools} == {"quick", "held"}

    async def test_a_name_that_the_model_makes_up_is_refused(self, chat, fake_tools):
        await with_agent(chat, tools=["quick"])
        turn = await chat.play([call("c1", "failing"), call("c2", "quick")], [text("Done.")])

        calls = await chat.calls(turn.pk)
        assert (calls["c1"].status, calls["c1"].error_type) == ("failed", ErrorType.UNKNOWN_TOOL)
        assert "There is no tool named 'failing'." in calls["c1"].result
        assert calls["c2"].status == "succeeded"
        assert fake_tools.started == ["c2"]

    async def test_no_tools_at_all_is_a_choice_too(self, chat):
        await with_agent(chat, tools=[])
        model = chat.use_script([text("I only talk.")])

        await chat.run()

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

    async def test_an_agent_asks_where_its_tools_do_not(self, chat, fake_tools):
        await with_agent(chat, approval="always")
        chat.use_script([call("c1", "quick")], [text("Done.")])
        turn_id = await chat.say()
        await chat.asked(turn_id, "c1")
        assert fake_tools.started == []

        await chat.decide(turn_id, "c1")

        assert (await chat.ended(turn_id)).status == "completed"
        assert fake_tools.started == ["c1"]


class TestCast:
    async def test_instructions_are_the_projects_then_the_agents(self, chat, settings):
        settings.TURNS_INSTRUCTIONS = "Be brief."
        await with_agent(chat, instructions="You know books.\n")
        model = chat.use_script([text("Done.")])

        await chat.run()

        assert model.requests[0].instructions.startswith("Be brief.\n\nYou know books.\n\n")

    async def test_an_agent_answers_with_its_own_chat_model(self, chat):
        await with_agent(chat, chat_model="local")

        turn = await chat.run("say Hello from here")

        assert turn.status == "completed"
        assert (await chat.history())[-1].texts[0].text == "Hello from here"

    async def test_the_local_model_lists_whom_it_may_ask(self, chat, settings):
        settings.TURNS_CHAT_MODEL = "local"
        await with_agent(chat, description="Knows *books*.")
        await in_database(lambda: Agent.objects.create(name="retired", is_enabled=False))

        await chat.run("agents")

        said = (await chat.history())[-1].texts[0].text
        assert "`assistant`: Answers where no other agent was chosen" in said
        assert "librarian" not in said
        assert "retired" not in said

    async def test_the_local_model_says_if_there_is_nobody_to_ask(self, chat, settings):
        settings.TURNS_CHAT_MODEL = "local"

        await chat.run("agents")

        assert "no other agent" in (await chat.history())[-1].texts[0].text

    async def test_a_chat_model_that_is_gone_ends_the_turn_with_words(self, chat):
        await with_agent(chat, chat_model="no.such:model")

        turn = await chat.run()

        assert (turn.status, turn.error_code) == ("failed", "unknown_chat_model")


class TestUnavailable:
    async def test_a_conversation_begins_with_an_agent_that_there_is(self, chat):
        made = await services.create_conversation(user=chat.user, agent="assistant")
        assert made.agent == "assistant"

        with pytest.raises(AgentUnavailable) as refused:
            await services.create_conversation(user=chat.user, agent="nobody")
        assert "“nobody”" in refused.value.sentence

    async def test_without_a_choice_the_default_one_answers_whoever_that_is_then(self, chat):
        def move() -> None:
            Agent.objects.update(is_default=False)
            Agent.objects.create(name="librarian", is_default=True)

        first = await chat.play([text("Done.")], [text("Done.")])
        await in_database(move)
        second = await chat.run()

        assert (first.agent, second.agent) == ("assistant", "librarian")
        (shown,) = await selectors.list_conversations(user=chat.user)
        assert shown.agent == "librarian"

    @pytest.mark.parametrize("how", ["deleted", "switched off"])
    async def test_a_message_to_an_agent_that_is_gone_is_refused(self, chat, how):
        agent = await with_agent(chat)
        await in_database(
            agent.delete
            if how == "deleted"
            else lambda: Agent.objects.filter(pk=agent.pk).update(is_enabled=False)
        )

        with pytest.raises(AgentUnavailable) as refused:
            await chat.say()

        assert refused.value.code == "agent_unavailable"
        assert "Start a new conversation" in refused.value.sentence
        assert await in_database(Turn.objects.count) == 0

    async def test_the_same_message_again_is_the_same_turn_although_the_agent_is_gone(self, chat):
        agent = await with_agent(chat)
        chat.use_script([text("Done.")])
        turn = await chat.run(client_id="m1")
        await in_database(agent.delete)

        assert await chat.say(client_id="m1") == turn.pk

    async def test_a_queued_turn_of_an_agent_that_is_gone_ends_visibly(self, chat):
        agent = await with_agent(chat)
        hold = gate()
        chat.use_script([hold, text("Done.")])
        first = await chat.say("first")
        await hold.reached.wait()
        second = await chat.say("second")
        await in_database(agent.delete)

        hold.opening.set()
        assert (await chat.ended(first)).status == "completed"
        turn = await chat.ended(second)

        assert (turn.status, turn.error_code) == ("failed", "agent_unavailable")
        told = chat.sink.find("error", turn_id=str(second))
        assert told["code"] == "agent_unavailable"
        assert "“librarian”" in told["message"]
        assert "its agent was not available" in await in_database(lambda: note_on(turn))

    def test_a_default_agent_is_found_without_a_name(self):
        assert find_agent().name == find_agent("assistant").name == "assistant"

    def test_a_turn_is_not_queued_for_an_agent_that_is_gone(self, ada):
        made = async_to_sync(services.create_conversation)(user=ada, agent="assistant")
        Agent.objects.all().delete()

        with pytest.raises(AgentUnavailable):
            queue.enqueue(made.id, text="go", source="typed", client_id=None)

"""Agents that are given to groups: who may choose them and use them, from which turn on, and what is kept of the edit."""

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db.models import ProtectedError

from tests.turns.support import ChatDriver, in_database
from tests.turns.tools.scripted_agents import ask, child, spawn, use_scripts
from turns import selectors, services
from turns.agents import edits
from turns.agents.lookup import find_agent, usable_agents
from turns.exceptions import AgentUnavailable
from turns.models import Agent, AgentChange, Turn
from turns.testing import call, gate, text

pytestmark = pytest.mark.django_db(transaction=True)


def give(name: str, *groups: str) -> None:
    for group in groups:
        Group.objects.get_or_create(name=group)
    edits.save_agent(name=name, values={"groups": list(groups)}, by=None)


def put_into(user, group: str) -> None:
    user.groups.add(Group.objects.get_or_create(name=group)[0])


def give_to_own_group(name: str, user) -> None:
    give(name, "Clerks")
    put_into(user, "Clerks")


def names(user) -> list[str]:
    return [agent.name for agent in usable_agents(user_id=user.pk)]


class TestWho:
    def test_members_and_superusers_may_use_it_and_nobody_else(self, ada, eve):
        give("clerk", "Clerks")
        root = get_user_model().objects.create_superuser("root")
        staff = get_user_model().objects.create_user("staff", is_staff=True)
        put_into(ada, "Clerks")
        put_into(eve, "Others")

        assert names(ada) == names(root) == ["assistant", "clerk"]
        assert names(eve) == names(staff) == ["assistant"]
        for user in (ada, root):
            get_user_model().objects.filter(pk=user.pk).update(is_active=False)
            assert names(user) == ["assistant"]

    def test_one_of_several_groups_is_enough(self, ada):
        give("clerk", "Clerks", "Others")
        put_into(ada, "Others")
        put_into(ada, "More")

        assert names(ada) == ["assistant", "clerk"]

    def test_without_the_default_agent_the_first_by_name_answers(self, ada, eve):
        give("assistant", "Clerks")
        with pytest.raises(AgentUnavailable):
            find_agent(user_id=ada.pk)
        Agent.objects.create(name="zoe")
        Agent.objects.create(name="bob")
        put_into(eve, "Clerks")

        assert find_agent(user_id=ada.pk).name == "bob"
        assert find_agent(user_id=eve.pk).name == "assistant"

    async def test_lists_go_on_where_a_person_may_use_no_agent(self, chat: ChatDriver):
        await in_database(lambda: give("assistant", "Clerks"))

        (listed,) = await selectors.list_conversations(user=chat.user)
        shown = await selectors.get_conversation(conversation_id=chat.id, user=chat.user)
        assert listed.agent == shown.agent == ""
        assert await selectors.list_agents(user=chat.user) == []


class TestTurns:
    async def test_a_change_counts_for_the_next_turn(self, chat: ChatDriver):
        await in_database(lambda: give_to_own_group("assistant", chat.user))
        hold = gate()
        chat.use_script([hold, call("c1", "quick")], [text("Done.")])
        running = await chat.say("first")
        await hold.reached.wait()
        waiting = await chat.say("second")

        await in_database(chat.user.groups.clear)
        hold.opening.set()
        first, second = await chat.ended(running), await chat.ended(waiting)

        assert first.status == "completed"
        assert (await chat.calls(running))["c1"].status == "succeeded"
        assert (second.status, second.error_code) == ("failed", "agent_unavailable")
        with pytest.raises(AgentUnavailable) as refused:
            await chat.say("third")
        assert "Start a new conversation with another agent" in refused.value.sentence
        assert await in_database(Turn.objects.count) == 2

    async def test_no_door_of_the_services_leads_to_it(self, chat: ChatDriver):
        await in_database(lambda: give("clerk", "Clerks"))

        with pytest.raises(AgentUnavailable):
            await services.create_conversation(user=chat.user, agent="clerk")
        with pytest.raises(AgentUnavailable):
            await services.edit_conversation(conversation_id=chat.id, user=chat.user, agent="clerk")
        starters = await selectors.starters(agent="clerk", user=chat.user)
        assert (starters.samples, starters.placeholder) == ((), "")

    @pytest.mark.parametrize("tool", [ask, spawn])
    async def test_a_sub_agent_works_only_for_those_who_may_use_it(self, chat: ChatDriver, tool):
        await in_database(lambda: give("clerk", "Clerks"))
        scripts = {
            "go": [[tool("a1", "dig", "clerk")], [text("Well.")]],
            "dig": [[text("Gold.")]],
            "[SUB-AGENT]": [[text("Thanks.")]],
        }
        agents = use_scripts(chat, **scripts)
        turn = await chat.run()

        refused = (await chat.calls(turn.pk))["a1"]
        assert refused.status == "failed"
        assert 'There is no agent named "clerk"' in refused.result
        assert "You can ask: assistant" in refused.result
        assert "clerk" not in agents.requests["go"][0].instructions
        assert not await in_database(Turn.objects.filter(parent__isnull=False).exists)

        await in_database(lambda: put_into(chat.user, "Clerks"))
        use_scripts(chat, **scripts)
        turn = await chat.run()
        assert (await chat.calls(turn.pk))["a1"].status == "succeeded"
        assert (await child("dig")).agent == "clerk"

    async def test_what_is_taken_away_in_a_turn_is_gone_for_its_next_sub_agent(
        self, chat: ChatDriver
    ):
        await in_database(lambda: give_to_own_group("clerk", chat.user))
        hold = gate()
        use_scripts(
            chat,
            go=[[ask("a1", "dig", "clerk")], [hold, ask("a2", "more", "clerk")], [text("Well.")]],
            dig=[[text("Gold.")]],
        )
        turn_id = await chat.say()
        await hold.reached.wait()
        await in_database(chat.user.groups.clear)
        hold.opening.set()
        await chat.ended(turn_id)

        calls = await chat.calls(turn_id)
        assert (calls["a1"].status, calls["a2"].status) == ("succeeded", "failed")


class TestEdits:
    def test_they_are_audited_by_name(self, db):
        Group.objects.bulk_create([Group(name="B"), Group(name="A")])
        added = edits.save_agent(name="clerk", values={"groups": ["B", "A"]}, by=None)
        same = edits.save_agent(name="clerk", values={"groups": ["A", "B"]}, by=None)
        changed = edits.save_agent(name="clerk", values={"groups": []}, by=None)
        edits.save_agent(name="clerk", values={"groups": ["A"]}, by=None)
        deleted = edits.delete_agent(name="clerk", by=None)

        assert added.changes == {"groups": [[], ["A", "B"]]}
        assert same is None
        assert changed.summary == "groups: A, B → everybody"
        assert deleted.changes["groups"] == [["A"], None]
        assert AgentChange.objects.count() == 4

    def test_a_group_that_is_not_there_is_refused(self, db):
        with pytest.raises(ValidationError, match="no group named “Clerks”"):
            edits.save_agent(name="clerk", values={"groups": ["Clerks"]}, by=None)
        assert not Agent.objects.filter(name="clerk").exists()

    def test_the_last_group_is_not_deleted_behind_the_agent(self, db):
        give("clerk", "Clerks")
        with pytest.raises(ProtectedError):
            Group.objects.filter(name="Clerks").delete()
        edits.delete_agent(name="clerk", by=None)
        Group.objects.filter(name="Clerks").delete()

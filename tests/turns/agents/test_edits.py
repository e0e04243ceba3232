"""Edits of agents: checked in words, audited with both values, one default always, nobody overwritten."""

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError

from turns.agents import edits
from turns.agents.lookup import Sample, Starters, starters_of
from turns.models import Agent, AgentChange

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin_user():
    return get_user_model().objects.create_superuser("boss", "boss@example.org", "pw")


@pytest.fixture
def staff():
    return get_user_model().objects.create_user("clerk", password="pw", is_staff=True)


def save(name="librarian", /, by=None, seen=None, **values):
    return edits.save_agent(name=name, values=values, by=by, version=seen)


def test_every_edit_is_audited_with_old_and_new_values(admin_user):
    added = save(description="Knows books.", tools=["read_file"], by=admin_user)
    changed = save(turn_timeout_ms=90_000, tools=None, by=admin_user)
    deleted = edits.delete_agent(name="librarian", by=admin_user)

    assert [change.action for change in (added, changed, deleted)] == ["add", "change", "delete"]
    assert changed.changes == {"turn_timeout_ms": [None, 90_000], "tools": [["read_file"], None]}
    assert changed.summary == "tools: read_file → all; turn limit: not set → 1 min 30 s"
    assert deleted.changes["description"] == ["Knows books.", None]
    assert {change.by_name for change in AgentChange.objects.all()} == {"boss"}
    assert "1 min 30 s" in LogEntry.objects.filter(action_flag=2).get().change_message
    assert not Agent.objects.filter(name="librarian").exists()


def test_an_edit_that_changes_nothing_leaves_no_trace(admin_user):
    save(description="Knows books.", by=admin_user)

    assert save(description="Knows books.", by=admin_user) is None
    assert AgentChange.objects.count() == 1
    assert edits.delete_agent(name="nobody", by=admin_user) is None


def test_making_another_one_the_default_moves_it_and_both_are_audited(admin_user):
    save(is_default=True, by=admin_user)

    assert [agent.name for agent in Agent.objects.filter(is_default=True)] == ["librarian"]
    old = AgentChange.objects.get(agent_name="assistant")
    assert (old.changes, old.by) == ({"is_default": [True, False]}, admin_user)


def test_one_agent_is_the_default_always():
    with pytest.raises(ValidationError, match="Make another agent the default instead"):
        save("assistant", is_default=False)
    with pytest.raises(ValidationError, match="cannot be disabled"):
        save("assistant", is_enabled=False)
    with pytest.raises(ValidationError, match="Make another one the default first"):
        edits.delete_agent(name="assistant", by=None)
    with pytest.raises(ValidationError, match="cannot be disabled"):
        save(is_default=True, is_enabled=False)
    assert Agent.objects.get().is_default


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"chat_model": "gpt-5"}, "no chat model named “gpt-5”"),
        ({"chat_model": "no.such.module:factory"}, "no chat model named"),
        ({"tools": "read_file"}, "list of tool names"),
        ({"tools": ["read file"]}, "“read file” is not a valid tool name"),
        ({"tools": ["git*hub"]}, "asterisk is only allowed at the end"),
        ({"tools": [7]}, "“7” is not a valid tool name"),
        ({"turn_timeout_ms": 8 * 86_400_000}, "longer than a week"),
        ({"turn_timeout_ms": -1}, "negative"),
        ({"turn_timeout_ms": "soon"}, "whole number"),
        ({"token_limit": 10**15}, "Leave the field blank"),
        ({"step_limit": 0}, "greater than or equal to 1"),
        ({"max_parallel_calls": 0}, "greater than or equal to 1"),
        ({"approval": "never"}, "not a valid choice"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_in_words(values, words):
    (field,) = values
    with pytest.raises(ValidationError) as refused:
        save(**values)

    assert words in " ".join(refused.value.message_dict[field])
    assert Agent.objects.count() == 1
    assert not AgentChange.objects.exists()


def test_a_name_is_what_people_can_type():
    with pytest.raises(ValidationError) as refused:
        save("Bücher Wurm")
    assert "Lower-case letters" in refused.value.message_dict["name"][0]


def test_a_path_is_named_by_superusers_only_since_its_code_is_run(admin_user, staff):
    path = "tests.turns.support.current_chat_model"
    with pytest.raises(ValidationError, match="Only a superuser"):
        save(chat_model=path, by=staff)
    save(chat_model="openai:gpt-5", by=staff)
    save(chat_model=path, by=admin_user)
    save(description="Knows books.", by=staff)  # what the superuser chose stays

    assert Agent.objects.get(name="librarian").chat_model == path


def test_an_edit_on_top_of_a_newer_one_is_refused(admin_user):
    save(description="Knows books.")
    seen = Agent.objects.get(name="librarian").updated_at
    save(description="Knows all books.")

    with pytest.raises(ValidationError, match="Someone else has changed"):
        save(description="Knows no books.", seen=seen)
    assert Agent.objects.get(name="librarian").description == "Knows all books."


def test_a_field_that_agents_do_not_have_is_a_mistake_of_the_code():
    with pytest.raises(TypeError):
        save(colour="blue")


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        ("help", "list of strings"),
        ([1], "list of strings"),
        (["a"] * 5, "at most 4 samples"),
        (["a" * 201], "1 to 200 characters"),
        ([" "], "1 to 200 characters"),
        (["safe\u202egpj.exe"], "invisible characters"),
        (["two\nlines"], "a single line"),
    ],
)
def test_samples_are_few_short_and_plain(samples, problem):
    with pytest.raises(ValidationError, match=problem):
        save(samples=samples)


def test_samples_and_the_placeholder_are_audited_and_open_a_conversation():
    first = starters_of("")
    assert [sample.text for sample in first.samples][:1] == ["wait 20"]
    saved = save(samples=["Which book?", "What is new?"], placeholder="Ask for a book…")
    assert saved.changes["samples"] == [[], ["Which book?", "What is new?"]]
    assert starters_of("librarian") == Starters(
        samples=(Sample(text="Which book?"), Sample(text="What is new?")),
        placeholder="Ask for a book…",
    )
    save(samples=[], chat_model="anthropic:claude-sonnet-5-5")
    assert starters_of("librarian").samples == ()
    save(is_enabled=False)
    assert starters_of("librarian") == Starters()

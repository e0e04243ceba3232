"""Agents in the real admin: made and edited in words and units, audited, one default always, nobody overwritten."""

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from governance.models import McpServer
from tests.staff import sign_in
from turns.agents import edits
from turns.models import Agent, AgentChange, Conversation, Turn

pytestmark = pytest.mark.django_db

LIST = reverse("admin:turns_agent_changelist")
ADD = reverse("admin:turns_agent_add")


@pytest.fixture
def staff():
    """Staff that may edit agents, but not run code on this machine."""
    user = get_user_model().objects.create_user("clerk", password="pw", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(codename__in=["view_agent", "change_agent"])
    )
    return user


def url_of(name):
    return reverse("admin:turns_agent_change", args=[Agent.objects.get(name=name).pk])


def filled_in(page, **values):
    """The fields of the page's form as a browser would send them back, with some of them changed."""
    form = page.context["adminform"].form
    fields = {}
    for name in form.fields:
        value = form[name].value()
        if value is True:
            value = "on"
        if value not in (None, False):
            fields[name] = value
    merged = {**fields, **values}
    return {name: value for name, value in merged.items() if value is not None}


def save(admin_client, url, **values):
    return admin_client.post(url, filled_in(admin_client.get(url), **values), follow=True)


def said(page):
    return [str(message) for message in page.context["messages"]]


def errors(page):
    return page.context["adminform"].form.errors


def test_an_agent_is_made_with_what_the_form_asks_first(admin_client, admin_user):
    page = save(admin_client, ADD, name="librarian", description="Knows books.")

    assert page.status_code == 200
    agent = Agent.objects.get(name="librarian")
    assert (agent.tools, agent.is_enabled, agent.is_default) == (None, True, False)
    assert AgentChange.objects.get().by == admin_user
    assert any("This applies to turns that start from now on" in text for text in said(page))


def test_limits_are_written_in_units_and_read_back_in_words(admin_client):
    save(
        admin_client,
        ADD,
        name="librarian",
        turn_timeout_ms="2 min",
        step_limit="9",
        token_limit="5000",
    )

    assert Agent.objects.get(name="librarian").turn_timeout_ms == 120_000
    assert b'value="2 min"' in admin_client.get(url_of("librarian")).content
    assert "2 min, 9 steps, 5000 tokens" in admin_client.get(LIST).content.decode()


def test_an_answer_has_limits_of_the_agents_own(admin_client):
    save(
        admin_client,
        ADD,
        name="thinker",
        first_byte_timeout_ms="5 min",
        idle_timeout_ms="90 s",
        request_timeout_ms="1 h",
    )

    agent = Agent.objects.get(name="thinker")
    limits = (agent.first_byte_timeout_ms, agent.idle_timeout_ms, agent.request_timeout_ms)
    assert limits == (300_000, 90_000, 3_600_000)
    page = save(admin_client, url_of("thinker"), idle_timeout_ms="0")
    assert "100 ms" in str(errors(page)["idle_timeout_ms"])


def test_a_turn_limit_below_a_second_is_saved_after_a_warning(admin_client):
    hasty = {
        "turn_timeout_ms": "90 ms",
        "which_tools": "some",
        "ticked_tools": ["wait", "read_file"],
    }
    page = save(admin_client, ADD, name="hasty", **hasty)
    assert "90 ms is shorter than a second. Save again to confirm." in str(errors(page))
    assert not Agent.objects.filter(name="hasty").exists()
    page = admin_client.post(ADD, filled_in(page, turn_timeout_ms="80 ms"))  # not what was accepted
    assert "80 ms is shorter than a second" in str(errors(page))
    admin_client.post(ADD, filled_in(page))
    agent = Agent.objects.get(name="hasty")
    assert (agent.turn_timeout_ms, agent.tools) == (80, ["read_file", "wait"])
    save(
        admin_client, url_of("hasty"), description="Quick."
    )  # the limit is as it was: no word of it
    assert Agent.objects.get(name="hasty").description == "Quick."
    save(admin_client, url_of("hasty"), turn_timeout_ms="0")
    assert Agent.objects.get(name="hasty").turn_timeout_ms == 0


def test_tools_are_ticked_from_all_that_the_site_and_its_servers_offer(admin_client):
    McpServer.objects.create(
        name="github",
        command="github-mcp",
        tools_found=[
            {"name": "search", "text": "Search <b>code</b>."},
            {"name": "merge", "text": ""},
        ],
        allowed_tools=["search"],
    )
    page = admin_client.get(ADD).content.decode()
    assert "<code>read_file</code>" in page
    assert "<code>github_search</code> Search &lt;b&gt;code&lt;/b&gt;." in page
    assert "MCP server github" in page
    assert "github_merge" not in page

    made = save(
        admin_client,
        ADD,
        name="librarian",
        which_tools="some",
        ticked_tools=["read_file", "github_search"],
        named_tools="wiki_*\n",
    )

    assert Agent.objects.get(name="librarian").tools == ["github_search", "read_file", "wiki_*"]
    assert any("“wiki_*”" in text and "applies once there is one" in text for text in said(made))
    form = admin_client.get(url_of("librarian")).context["adminform"].form
    assert form["which_tools"].value() == "some"
    assert sorted(form["ticked_tools"].value()) == ["github_search", "read_file"]
    assert form["named_tools"].value() == "wiki_*"


def test_an_agent_is_given_to_groups_and_the_edit_is_audited(admin_client, client, staff):
    clerks = Group.objects.create(name="Clerks")
    page = save(admin_client, ADD, name="clerk", given_to=[str(clerks.pk)])

    assert list(Agent.objects.get(name="clerk").groups.all()) == [clerks]
    assert any("groups: everybody → Clerks" in text for text in said(page))
    assert AgentChange.objects.get().changes["groups"] == [[], ["Clerks"]]
    assert "Clerks" in admin_client.get(LIST).content.decode()
    assert "superusers may use it" in admin_client.get(url_of("clerk")).content.decode()
    staff.user_permissions.remove(Permission.objects.get(codename="change_agent"))
    client.force_login(staff)
    assert "Clerks" in client.get(url_of("clerk")).content.decode()
    refused = admin_client.post(reverse("admin:auth_group_delete", args=[clerks.pk]), follow=True)
    assert "clerk – Clerks" in refused.content.decode()
    save(admin_client, url_of("clerk"), given_to=None)
    assert not Agent.objects.get(name="clerk").groups.exists()


def test_a_form_that_nobody_touched_saves_nothing(admin_client):
    clerks = Group.objects.create(name="Clerks")
    save(
        admin_client,
        ADD,
        name="librarian",
        given_to=[str(clerks.pk)],
        which_tools="some",
        ticked_tools=["read_file"],
        named_tools="x_*",
    )
    save(admin_client, url_of("librarian"))

    assert AgentChange.objects.count() == 1


def test_ticks_do_not_count_where_all_tools_are_chosen(admin_client):
    save(admin_client, ADD, name="librarian", which_tools="all", ticked_tools=["read_file"])

    assert Agent.objects.get(name="librarian").tools is None


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"chat_model": "gpt-5"}, "chat_model", "no chat model named “gpt-5”"),
        ({"turn_timeout_ms": "soon"}, "turn_timeout_ms", "is not a duration"),
        ({"turn_timeout_ms": "9 d"}, "turn_timeout_ms", "longer than a week"),
        ({"token_limit": "0"}, "token_limit", "greater than or equal to 1"),
        ({"name": "Big Agent"}, "name", "Lower-case letters"),
        ({"name": "assistant"}, "name", "An agent with this name already exists"),
        (
            {"named_tools": "rm -rf", "which_tools": "some"},
            "named_tools",
            "is not a valid tool name",
        ),
        ({"ticked_tools": ["nonsense"], "which_tools": "some"}, "ticked_tools", "nonsense"),
        ({"is_default": "on", "is_enabled": None}, "is_enabled", "cannot be disabled"),
    ],
)
def test_what_makes_no_sense_is_a_form_error_in_words(admin_client, values, field, words):
    page = save(admin_client, ADD, **{"name": "librarian", **values})

    assert words in " ".join(errors(page)[field])
    assert Agent.objects.count() == 1


def test_a_missing_key_or_package_is_a_warning_not_an_error(admin_client, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    page = save(admin_client, ADD, name="librarian", chat_model="anthropic:claude-sonnet-5-5")

    assert Agent.objects.get(name="librarian").chat_model == "anthropic:claude-sonnet-5-5"
    assert any("ANTHROPIC_API_KEY" in text for text in said(page))


def test_the_name_stays(admin_client):
    save(admin_client, url_of("assistant"), name="renamed", description="Helps.")

    agent = Agent.objects.get()
    assert (agent.name, agent.description) == ("assistant", "Helps.")


def test_the_default_moves_and_never_goes_away(admin_client):
    save(admin_client, ADD, name="librarian", is_default="on")
    assert [agent.name for agent in Agent.objects.filter(is_default=True)] == ["librarian"]

    page = save(admin_client, url_of("librarian"), is_default=None)
    assert any("Make another agent the default instead" in text for text in said(page))
    page = save(admin_client, url_of("librarian"), is_enabled=None)
    assert "cannot be disabled" in " ".join(errors(page)["is_enabled"])
    delete = reverse("admin:turns_agent_delete", args=[Agent.objects.get(name="librarian").pk])
    assert admin_client.post(delete, {"post": "yes"}).status_code == 403

    assert Agent.objects.get(is_default=True).name == "librarian"


def test_a_form_from_before_the_default_moved_does_not_take_it_back(admin_client):
    before = filled_in(admin_client.get(url_of("assistant")), description="Helps.")
    save(admin_client, ADD, name="librarian", is_default="on")
    page = admin_client.post(url_of("assistant"), before, follow=True)

    assert "default: yes → no" in " ".join(errors(page)["__all__"])
    assert Agent.objects.get(is_default=True).name == "librarian"


def test_the_default_moves_by_an_action_too(admin_client):
    save(admin_client, ADD, name="librarian")
    pk = Agent.objects.get(name="librarian").pk
    page = admin_client.post(
        LIST, {"action": "make_default", "_selected_action": [pk]}, follow=True
    )

    assert said(page) == ["“librarian” is now the default agent."]
    everybody = [agent.pk for agent in Agent.objects.all()]
    page = admin_client.post(
        LIST, {"action": "make_default", "_selected_action": everybody}, follow=True
    )
    assert said(page) == ["Select exactly one agent."]
    Agent.objects.filter(name="assistant").update(is_enabled=False)
    pk = Agent.objects.get(name="assistant").pk
    page = admin_client.post(
        LIST, {"action": "make_default", "_selected_action": [pk]}, follow=True
    )
    assert "cannot be disabled" in said(page)[0]


def test_an_agent_is_deleted_with_a_trace_and_its_conversations_stay(admin_client, admin_user):
    save(admin_client, ADD, name="librarian")
    conversation = Conversation.objects.create(owner=admin_user, agent="librarian")
    delete = reverse("admin:turns_agent_delete", args=[Agent.objects.get(name="librarian").pk])
    admin_client.post(delete, {"post": "yes"})

    assert not Agent.objects.filter(name="librarian").exists()
    assert AgentChange.objects.first().action == "delete"
    conversation.refresh_from_db()


def test_an_edit_on_top_of_a_newer_one_is_refused_with_what_the_other_changed(
    admin_client, admin_user
):
    save(admin_client, ADD, name="librarian")
    page = admin_client.get(url_of("librarian"))
    edits.save_agent(name="librarian", values={"description": "Theirs."}, by=admin_user)

    answer = admin_client.post(url_of("librarian"), filled_in(page, step_limit="5"))

    assert "Changed in the meantime by boss" in " ".join(errors(answer)["__all__"])
    assert "Theirs." in " ".join(errors(answer)["__all__"])
    assert Agent.objects.get(name="librarian").step_limit is None
    again = admin_client.post(url_of("librarian"), filled_in(answer, step_limit="5"), follow=True)
    assert again.status_code == 200
    agent = Agent.objects.get(name="librarian")
    assert agent.step_limit == 5


def test_a_clerk_may_not_name_a_path_and_it_is_not_even_imported(staff, tmp_path, monkeypatch):
    (tmp_path / "planted_code.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    admin_client = sign_in(staff)

    page = save(admin_client, url_of("assistant"), chat_model="planted_code:factory")

    assert "Only a superuser" in " ".join(errors(page)["chat_model"])
    assert save(admin_client, url_of("assistant"), chat_model="local").status_code == 200
    assert Agent.objects.get().chat_model == "local"


def test_who_may_only_look_reads_the_values_in_words(staff):
    staff.user_permissions.set(Permission.objects.filter(codename="view_agent"))
    Agent.objects.update(turn_timeout_ms=90_000, tools=["read_file"])
    admin_client = sign_in(staff)

    page = admin_client.get(url_of("assistant")).content.decode()

    assert "1 min 30 s" in page
    assert "read_file" in page
    assert "which_tools" not in page


def test_the_list_says_when_each_was_used_last_in_few_queries(admin_client, admin_user):
    conversation = Conversation.objects.create(owner=admin_user)
    for number in range(3):
        Turn.objects.create(
            conversation=conversation, number=number, agent="assistant", queued_at=timezone.now()
        )
    with CaptureQueriesContext(connection) as few:
        row = admin_client.get(LIST).context["cl"].result_list[0]
    assert row.used_at is not None
    for number in range(10):
        edits.save_agent(name=f"agent-{number}", values={}, by=None)
    with CaptureQueriesContext(connection) as many:
        assert admin_client.get(LIST).status_code == 200
    assert len(many) == len(few)


def test_the_edits_are_a_list(admin_client):
    save(admin_client, ADD, name="librarian", description="<b>Knows</b> books.")

    page = admin_client.get(reverse("admin:turns_agentchange_changelist")).content.decode()

    assert "description: not set → &lt;b&gt;Knows&lt;/b&gt; books." in page


def test_samples_are_written_in_lines_and_refused_in_words(admin_client):
    page = save(
        admin_client,
        ADD,
        name="librarian",
        samples="Which book?\n\n What is new? \n",
        placeholder="Ask",
    )

    assert page.status_code == 200
    agent = Agent.objects.get(name="librarian")
    assert (agent.samples, agent.placeholder) == (["Which book?", "What is new?"], "Ask")
    save(admin_client, url_of("librarian"))
    assert AgentChange.objects.count() == 1
    page = save(admin_client, url_of("librarian"), samples="1\n2\n3\n4\n5")
    assert errors(page) == {"samples": ["Enter at most 4 samples."]}
    reader = get_user_model().objects.create_user("reader", password="pw", is_staff=True)
    reader.user_permissions.set(Permission.objects.filter(codename="view_agent"))
    client = sign_in(reader)
    assert "Which book?" in client.get(url_of("librarian")).content.decode()

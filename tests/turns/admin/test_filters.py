"""The filters of the lists of history: by user, agent, process, source, tool, limit, duration and time, also in exports."""

import json
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from governance import call_filters
from governance.admin.readonly import CappedPaginator
from governance.models import Approval, Export, ToolCall
from tests.turns.row_factory import RowFactory, make_process
from turns.models import CancelRequest, Conversation, Repair, Turn

pytestmark = pytest.mark.django_db(transaction=True)

MODELS = (ToolCall, Approval, Turn, CancelRequest, Repair, Conversation)
OLD = timedelta(days=3)


@pytest.fixture
def admin_client(transactional_db):
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("boss"))
    return client


def plant(person, *, agent, tool, source, process, seconds, at=None):
    """Plant a turn with one row of each list."""
    at = at or timezone.now()
    factory = RowFactory(person)
    turn = factory.turn(
        "timed_out",
        agent=agent,
        source=source,
        owner=process,
        queued_at=at,
        duration_ms=seconds * 1_000,
        ended_by_reason="timeout",
    )
    Conversation.objects.filter(pk=factory.id).update(agent=agent, updated_at=at)
    factory.call(
        turn,
        "c1",
        "timed_out",
        tool_name=tool,
        requested_at=at,
        duration_ms=seconds * 1_000,
        error_type="timeout",
        limit_reached="idle",
    )
    Approval.objects.create(
        group=str(turn.pk),
        scope=str(factory.id),
        call_id="c1",
        tool_name=tool,
        rule="always",
        requested_at=at,
        decided_at=at + timedelta(seconds=seconds),
        decision="approved",
    )
    CancelRequest.objects.create(
        turn=turn, tool_id="c1", reason="user", source="button", requested_at=at
    )
    Repair.objects.create(
        conversation=factory.conversation, turn=turn, kind="missing_result", cause="crash", at=at
    )
    return turn


@pytest.fixture
def history(ada, eve):
    """Two turns that differ in everything, and a call that belongs to no turn."""
    ToolCall.objects.create(
        call_id="x", group="of another program", scope="its own", requested_at=timezone.now()
    )
    mine = plant(
        ada,
        agent="digger",
        tool="exec",
        source="voice",
        process=make_process(name="runner-1"),
        seconds=5,
    )
    plant(
        eve,
        agent="writer",
        tool="wait",
        source="typed",
        process=make_process(host="h", pid=77),
        seconds=200,
    )
    return mine


def name_of(model) -> str:
    return f"admin:{model._meta.app_label}_{model._meta.model_name}"


def found(client, model, **query):
    answer = client.get(reverse(f"{name_of(model)}_changelist"), query)
    assert answer.status_code == 200, query
    return list(answer.context["cl"].result_list)


def turn_ids(rows) -> set[str]:
    """The turns, or conversations, that rows belong to."""
    return {
        str(getattr(row, "group", None) or getattr(row, "turn_id", None) or row.pk) for row in rows
    }


FITTING = [
    (MODELS, {"user": "ada"}),
    (MODELS, {"agent": "digger"}),
    ((ToolCall, Approval, Turn, CancelRequest, Repair), {"process": "runner-1"}),
    ((ToolCall, Approval, CancelRequest, Repair), {"message_source": "voice"}),
    ((Turn,), {"source__exact": "voice"}),
    ((ToolCall, Approval, Turn, CancelRequest), {"tool": "exec"}),
    ((ToolCall, Turn), {"ran": "10"}),
    ((Approval,), {"took": "10"}),
]


@pytest.mark.parametrize(
    ("model", "query"),
    [
        pytest.param(model, query, id=f"{model.__name__}-{next(iter(query))}")
        for models, query in FITTING
        for model in models
    ],
)
def test_a_filter_finds_what_fits_and_so_does_its_export(admin_client, history, model, query):
    wanted = str(history.conversation_id if model is Conversation else history.pk)
    assert turn_ids(found(admin_client, model, **query)) == {wanted}
    exported = admin_client.get(reverse(f"{name_of(model)}_export", args=["json"]), query)
    rows = json.loads(exported.getvalue())
    assert len(rows) == 1
    assert rows[0]["user"] == "ada"
    record = Export.objects.get()
    assert (record.rows, record.filters | {k: [v] for k, v in query.items()}) == (1, record.filters)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "value", ["nobody", "ad", "\x00", "ada' OR 1=1 --", "%", "é" * 5000, "h:99999999999", ":"]
)
def test_no_other_value_finds_anything(admin_client, history, model, value):
    names = ["user", "agent", *(["process"] if model is not Conversation else [])]
    for name in names:
        assert found(admin_client, model, **{name: value}) == [], name


def test_a_process_without_a_name_is_found_by_host_and_pid_and_by_its_id(admin_client, history):
    other = Turn.objects.exclude(pk=history.pk).get()
    for value in ("h:77", str(other.owner_id)):
        assert found(admin_client, Turn, process=value) == [other]
        assert [row.group for row in found(admin_client, ToolCall, process=value)] == [
            str(other.pk)
        ]


def test_which_limit_fired(admin_client, history):
    assert len(found(admin_client, Turn, ran_out="time")) == 2
    Turn.objects.update(status="failed", error_code="step_limit")
    assert len(found(admin_client, Turn, ran_out="steps")) == 2
    assert found(admin_client, Turn, ran_out="time") == []
    assert len(found(admin_client, ToolCall, ran_out="idle")) == 2


def test_filters_go_together_and_are_kept_by_each_form(admin_client, history):
    query = {"user": "ada", "tool": "exec", "when": "24h", "agent": "digger"}
    assert turn_ids(found(admin_client, ToolCall, **query)) == {str(history.pk)}
    assert found(admin_client, ToolCall, **{**query, "agent": "writer"}) == []
    page = admin_client.get(reverse("admin:governance_toolcall_changelist"), query).content.decode()
    assert '<input type="hidden" name="user" value="ada">' in page
    assert '<input type="hidden" name="tool" value="exec">' in page


def test_long_lists_begin_with_the_last_day_and_search_looks_at_any_time(admin_client, ada):
    process = make_process(name="runner-1")
    old = plant(
        ada,
        agent="digger",
        tool="exec",
        source="typed",
        process=process,
        seconds=1,
        at=timezone.now() - OLD,
    )
    for model in (ToolCall, Approval, Turn, CancelRequest):
        assert found(admin_client, model) == [], model
        assert len(found(admin_client, model, when="any")) == 1, model
        assert len(found(admin_client, model, when="7d")) == 1, model
        assert len(found(admin_client, model, q=str(old.pk))) == 1, model
        until = f"{timezone.now():%Y-%m-%d}"
        assert len(found(admin_client, model, when_until=until)) == 1, model
    for model in (Repair, Conversation):
        assert len(found(admin_client, model)) == 1, model


def test_an_export_of_the_last_day_says_so(admin_client, history):
    address = reverse("admin:governance_toolcall_changelist")
    links = dict(admin_client.get(address).context["exports"])
    assert links["CSV"].endswith("?when=24h")
    ToolCall.objects.update(requested_at=timezone.now() - OLD)
    answer = admin_client.get(reverse("admin:governance_toolcall_export", args=["json"]))
    assert json.loads(answer.getvalue()) == []
    assert Export.objects.get().filters == {"when": ["24h"]}


def test_a_count_beyond_the_bound_says_that_it_is_more(admin_client, history, monkeypatch):
    monkeypatch.setattr(CappedPaginator, "most", 2)
    for model, words in ((ToolCall, "more than 2 tool calls"), (Turn, "2 turns")):
        page = admin_client.get(reverse(f"{name_of(model)}_changelist")).content.decode()
        assert words in " ".join(page.split())
        assert " results" not in page


def test_governance_knows_none_of_these_filters_by_itself(admin_client, history, monkeypatch):
    monkeypatch.setattr(call_filters, "_filters", {})
    page = admin_client.get(reverse("admin:governance_toolcall_changelist"))
    names = {
        spec.parameter_name
        for spec in page.context["cl"].filter_specs
        if hasattr(spec, "parameter_name")
    }
    assert not names & {"user", "agent", "process", "message_source"}

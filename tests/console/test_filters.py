"""The filters of the lists of history: by user, agent, process, source, tool, limit, duration and time, also in exports."""

import json
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from console.lists import CappedPaginator
from governance.models import Approval, Export, ToolCall
from tests.turns.row_factory import RowFactory, make_process, make_question, make_repair
from tests.turns.support import in_database, run_out_of_time
from turns.models import CancelledTurn, CancelRequest, Conversation, Process, Repair, Turn
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)

MODELS = (ToolCall, Approval, Turn, CancelRequest, Repair, Conversation)
OLD = timedelta(days=3)


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
    make_question(
        turn,
        "c1",
        tool_name=tool,
        rule="always",
        requested_at=at,
        decided_at=at + timedelta(seconds=seconds),
        decision="approved",
    )
    CancelRequest.objects.create(
        turn=turn, tool_id="c1", reason="user", source="button", requested_at=at
    )
    make_repair(turn, at=at)
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


TURNS = {  # by the limit reached; "" = none did
    "time": [{"status": "timed_out", "ended_by_reason": "timeout"}],
    "steps": [{"status": "failed", "error_code": "step_limit"}],
    "tokens": [{"status": "failed", "error_code": "token_limit"}],
    "": [
        {"status": "completed"},
        {"status": "cancelled", "ended_by_reason": "user"},
        {"status": "interrupted", "ended_by_reason": "shutdown"},
        {"status": "failed", "error_code": "chat_model_timed_out"},
        {"status": "running"},
    ],
}
CALLS = {
    "total": [
        {"status": "timed_out", "error_type": "timeout", "limit_reached": "total"},
        {"status": "abandoned", "error_type": "timeout", "limit_reached": "total"},
    ],
    "idle": [{"status": "timed_out", "error_type": "timeout", "limit_reached": "idle"}],
    "turn": [{"status": "cancelled", "error_type": "cancelled", "limit_reached": "turn"}],
    "approval": [{"status": "expired", "error_type": "expired", "limit_reached": "approval"}],
    "": [
        {"status": "succeeded"},
        {"status": "cancelled", "error_type": "cancelled"},
        {"status": "failed", "error_type": "execution_error"},
        {"status": "running"},
    ],
}
APPROVALS = {
    "open": [{"decision": ""}],
    "approved": [{"decision": "approved"}],
    "remembered": [{"decision": "approved", "remember": True}],
    "denied": [{"decision": "denied"}],
    "late": [{"decision": "denied", "is_late": True}],
    "expired": [{"decision": "expired"}],
    "cancelled": [{"decision": "cancelled"}, {"decision": "interrupted"}],
}


def plant_each(model, factory, rows):
    """Plant a row for each of these; return their keys by the filter's value that each belongs to."""
    planted = {}
    for value, many in rows.items():
        for fields in many:
            if model is Turn:
                row = factory.turn(**fields)
            elif model is ToolCall:
                row = factory.call(factory.turn(), f"c{len(planted)}", **fields)
            else:
                at = timezone.now()
                answered = {"decided_at": at} if fields["decision"] else {}
                row = Approval.objects.create(
                    group=f"g{len(planted)}", call_id="c", requested_at=at, **answered, **fields
                )
            planted[row.pk] = value
    return planted


def test_calls_that_were_cut_in_the_middle_of_side_effects_are_one_list(admin_client, ada):
    factory = RowFactory(ada)
    for effects in ("none", "possible", "cut"):
        factory.call(factory.turn(), effects, "cancelled", effects=effects, disposition="settled")
    [row] = found(admin_client, ToolCall, happened="cut")
    assert row.call_id == "cut"
    page = admin_client.get(reverse("admin:governance_toolcall_change", args=[row.pk]))
    assert "stopped midway: it may have had an effect" in page.content.decode()
    exported = admin_client.get(
        reverse("admin:governance_toolcall_export", args=["json"]), {"happened": "cut"}
    )
    assert [it["effects"] for it in json.loads(exported.getvalue())] == ["cut"]


@pytest.mark.parametrize(
    ("model", "name", "rows", "within"),
    [
        pytest.param(Turn, "ran_out", TURNS, {}, id="turns"),
        pytest.param(ToolCall, "ran_out", CALLS, {}, id="calls"),
        pytest.param(Approval, "decided", APPROVALS, {"remembered": "approved"}, id="approvals"),
    ],
)
def test_each_limit_and_decision_finds_its_rows_and_no_others(
    admin_client, ada, model, name, rows, within
):
    planted = plant_each(model, RowFactory(ada), rows)
    shown = admin_client.get(reverse(f"{name_of(model)}_changelist"))
    [spec] = [
        spec
        for spec in shown.context["cl"].filter_specs
        if getattr(spec, "parameter_name", "") == name
    ]
    assert [value for value, _words in spec.lookup_choices] == [value for value in rows if value]
    for value in filter(None, rows):
        wanted = {pk for pk, own in planted.items() if value in (own, within.get(own))}
        assert {row.pk for row in found(admin_client, model, **{name: value})} == wanted, value
        exported = admin_client.get(
            reverse(f"{name_of(model)}_export", args=["json"]), {name: value}
        )
        assert {row["id"] for row in json.loads(exported.getvalue())} == {
            pk if isinstance(pk, int) else str(pk) for pk in wanted
        }, value
    assert len(found(admin_client, model)) == len(planted)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (Turn, "ran_out"),
        (ToolCall, "ran_out"),
        (Approval, "decided"),
        (Turn, "happened"),
        (CancelRequest, "mode__exact"),
        (Process, "state"),
        (Process, "role__exact"),
    ],
)
def test_a_choice_that_there_is_not_finds_nothing(admin_client, history, model, name):
    """Else a slip in an address would export everything as what was asked for."""
    assert found(admin_client, model)
    assert found(admin_client, model, **{name: "nonsense"}) == []


def test_processes_are_found_by_their_state(admin_client):
    lives, gone = make_process(), make_process(ended_at=timezone.now())
    asked = {"": {lives}, "ended": {gone}, "all": {lives, gone}}
    for state, wanted in asked.items():
        assert set(found(admin_client, Process, **({"state": state} if state else {}))) == wanted


@pytest.mark.parametrize("model", [CancelRequest, CancelledTurn])
def test_cancels_are_found_by_their_mode(admin_client, ada, model):
    factory = RowFactory(ada)
    at, words = timezone.now(), ["immediately", "after the step", "after its report"]
    for mode in ("now", "after_step", "report"):
        CancelRequest.objects.create(
            turn=factory.turn("cancelled"), reason="user", source="api", mode=mode, requested_at=at
        )
    shown = admin_client.get(reverse(f"{name_of(model)}_changelist")).context["cl"]
    [spec] = [spec for spec in shown.filter_specs if getattr(spec, "field_path", "") == "mode"]
    choices = [(choice["query_string"], choice["display"]) for choice in spec.choices(shown)]
    assert [display for _query, display in choices[1:]] == words
    for mode, (query, _display) in zip(("now", "after_step", "report"), choices[1:], strict=True):
        assert query == f"?mode__exact={mode}"
        assert [row.mode for row in found(admin_client, model, mode__exact=mode)] == [mode]
        exported = admin_client.get(
            reverse(f"{name_of(model)}_export", args=["json"]), {"mode__exact": mode}
        )
        assert len(json.loads(exported.getvalue())) == 1
    assert found(admin_client, model, mode__exact="nonsense") == []


@pytest.mark.parametrize("asked", [{"q": "\0"}, {"status__exact": "completed\0"}])
def test_what_no_database_compares_finds_nothing(admin_client, history, asked):
    assert found(admin_client, Turn, **asked) == []
    assert admin_client.get("/admin/governance/toolpolicy/tool/%00/").status_code == 404


async def test_limits_that_ran_out_are_found_by_their_filters(
    admin_client, chat, fake_tools, settings
):
    settings.GOVERNANCE_APPROVAL, settings.GOVERNANCE_APPROVAL_TIMEOUT = {}, 0.05
    chat.use_script([call("a", "asked")], [text("Fine.")])
    expired = await chat.run()
    chat.use_script([call("b", "held", _meta={"timeout_ms": 50})], [text("Fine.")])
    total = await chat.run()
    settings.TURNS_STEP_LIMIT = 1
    chat.use_script([call("c", "quick")], [text("Fine.")])
    steps = await chat.run()
    settings.TURNS_STEP_LIMIT = 20
    chat.use_script([call("d", "held")], [text("Fine.")])
    turn_id = await chat.say()
    await chat.running(turn_id, "d")
    run_out_of_time(turn_id)
    time = await chat.ended(turn_id)

    def check():
        assert [row.pk for row in found(admin_client, Turn, ran_out="time")] == [time.pk]
        assert [row.pk for row in found(admin_client, Turn, ran_out="steps")] == [steps.pk]
        for value, turn in (("total", total), ("turn", time), ("approval", expired)):
            groups = [row.group for row in found(admin_client, ToolCall, ran_out=value)]
            assert groups == [str(turn.pk)], value
        [asked] = found(admin_client, Approval, decided="expired")
        assert asked.group == str(expired.pk)

    await in_database(check)


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
    for model in (ToolCall, Approval, Turn, CancelRequest, Repair):
        assert found(admin_client, model) == [], model
        assert len(found(admin_client, model, when="any")) == 1, model
        assert len(found(admin_client, model, when="7d")) == 1, model
        assert len(found(admin_client, model, q=str(old.pk))) == 1, model
        until = f"{timezone.now():%Y-%m-%d}"
        assert len(found(admin_client, model, when_until=until)) == 1, model
    assert len(found(admin_client, Conversation)) == 1


def test_a_long_list_says_what_a_wider_time_costs(admin_client, history):
    words = "If the range is longer than 24 hours, other filters may read every row in it"
    for model in (ToolCall, Approval, Turn, CancelRequest, Repair, Conversation):
        is_long = model is not Conversation
        for query in ({}, {"when": "30d"}):
            page = admin_client.get(reverse(f"{name_of(model)}_changelist"), query)
            assert (words in page.content.decode()) == is_long, model


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


def test_turns_that_an_edit_has_replaced_are_found_and_name_what_stands_in_their_place(
    admin_client, ada
):
    factory = RowFactory(ada)
    edited, behind, better = factory.turn(), factory.turn(), factory.turn(version=2)
    Turn.objects.filter(pk__in=[edited.pk, behind.pk]).update(replaced_by=better)
    assert turn_ids(found(admin_client, Turn, happened="replaced")) == {
        str(edited.pk),
        str(behind.pk),
    }
    page = admin_client.get(reverse("admin:turns_turn_change", args=[behind.pk])).content.decode()
    assert f'href="{reverse("admin:turns_turn_change", args=[better.pk])}"' in page

"""The admin's page of what runs now: everybody's turns and calls, and buttons that end, extend and decide them."""

import re
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from console import running_actions, running_results
from console.running_actions import EndOfMany, RunningFilter
from governance import CancelSource
from governance.models import Approval, ToolCall, ToolPolicy
from tests.staff import staff_client
from tests.turns.row_factory import RowFactory, make_process, make_question
from turns.cancelling import commands
from turns.cancelling.commands import CancelCommand
from turns.models import CancelRequest, DeadlineOrder, Turn

pytestmark = pytest.mark.django_db(transaction=True)

URL = reverse("admin:turns_runningturn_changelist")
EVERYTHING = ("view_turn", "cancel_any", "decide_any", "view_content")


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch):
    """Nothing runs here, so that nothing comes true while an answer waits for it."""
    monkeypatch.setattr(running_results, "SETTLES_WITHIN", 0.0)


@pytest.fixture
def staff(transactional_db):
    """Return a function that signs in a member of staff with these permissions."""

    def make(*permissions: str) -> Client:
        return staff_client(f"eve{len(permissions)}", *permissions)

    return make


def run(person, *, process=None, agent="digger"):
    """Plant a turn that has run for a minute, with one call of each open kind and an ended one."""
    factory = RowFactory(person)
    factory.conversation.title = "What the conversation began with"
    factory.conversation.save()
    since = timezone.now() - timedelta(seconds=60)
    turn = factory.turn(
        "running",
        user_message="Holes <b>and</b>\ngold",
        started_at=since,
        turn_timeout_ms=600_000,
        agent=agent,
        owner=process,
    )
    factory.call(turn, "over", tool_name="gone-tool")
    factory.call(
        turn,
        "runs",
        "running",
        tool_name="dig",
        started_at=since,
        timeout_ms=90_000,
        input={"where": "<here>", "how": "x" * 500},
    )
    factory.call(turn, "waits", "pending", tool_name="carry")
    return turn


def ask(turn, call_id="asks", *, command="rm -rf /"):
    """Plant a call of the turn that waiting for a person."""
    factory = RowFactory(conversation=turn.conversation)
    factory.call(turn, call_id, "awaiting_approval", tool_name="exec")
    return make_question(turn, call_id, tool_name="exec", input={"command": command}, rule="always")


def page(admin_client: Client, **query) -> str:
    response = admin_client.get(URL, query)
    assert response.status_code == 200
    return plain(response)


def plain(response) -> str:
    return response.content.decode().replace("\u00a0", " ")


def press(admin_client: Client, name: str, value: object, *, why: str = "", **more) -> str:
    """Press a button of the page, and return the page that comes after it."""
    answer = admin_client.post(URL, {name: str(value), "why": why, **more}, follow=True)
    assert answer.status_code == 200
    return plain(answer)


def result(html: str) -> str:
    """Return in plain text what the page says of what was done."""
    found = re.search(r'id="running-result"[^>]*>(.*?)</div>', html, re.DOTALL)
    assert found
    return " ".join(re.sub(r"<[^>]+>", "", found[1]).split())


def settle(request: CancelRequest, outcome: str, *, after: int) -> None:
    """Do what the owner of a turn does once a request has come true."""
    request.outcome, request.settled_ms = outcome, after
    request.settled_at = request.requested_at + timedelta(milliseconds=after)
    request.save()


def test_it_tells_who_where_since_when_and_what_is_left(admin_client, ada):
    run(ada, process=make_process(name="runner-2"))
    RowFactory(ada).turn("completed", agent="gone-agent")
    html = page(admin_client)
    assert "Running now, as of" in html
    for text in ("digger", "ada", "runner-2", "waiting to start", "Holes &lt;b&gt;and"):
        assert text in html, text
    assert "What the conversation began with" not in html  # a turn is known by its own message
    assert "for 1 min" in html
    assert "8 min 5" in html  # of ten minutes one has passed, and some seconds
    assert "&lt;here&gt;" in html
    assert "x" * 200 not in html
    for gone in ("gone-agent", "gone-tool"):
        assert gone not in html


@pytest.mark.parametrize(
    ("waits_for", "words"),
    [
        ({"kind": "call", "tool_id": "a", "tool_name": "dig"}, "waiting for dig to end"),
        (
            {"kind": "scope", "tool_id": "", "tool_name": ""},
            "waiting: this conversation has reached its limit of concurrent calls",
        ),
        (
            {"kind": "slot", "tool_id": "", "tool_name": ""},
            "waiting for a free slot on the server",
        ),
    ],
)
def test_a_call_that_waits_says_for_what(admin_client, ada, waits_for, words):
    factory = RowFactory(ada)
    turn = factory.turn("running")
    factory.call(turn, "waits", "pending", tool_name="carry", waits_for=waits_for)
    assert words in page(admin_client)


def test_what_nothing_can_end_is_only_waited_for_no_more(admin_client, ada):
    factory = RowFactory(ada)
    turn = factory.turn("running")
    factory.call(turn, "stuck", "running", tool_name="dig", isolation="thread")
    factory.call(turn, "waits", "pending", tool_name="carry", isolation="thread")
    html = page(admin_client)
    assert "Stop waiting for this call of dig" in html
    assert "Cancel this call of carry" in html


def test_a_turn_that_waits_for_a_person_says_so_and_its_clock_stands_still(admin_client, ada):
    factory = RowFactory(ada)
    ask(factory.turn("running", turn_timeout_ms=600_000))
    html = page(admin_client)
    assert "waiting for a person" in html
    assert "paused" in html


def test_a_button_ends_one_call_and_another_one_the_turn(admin_client, ada):
    turn = run(ada)
    html = press(admin_client, "cancel", f"{turn.pk}:runs", why="wrong customer")
    assert "is still being cancelled" in result(html)
    request = CancelRequest.objects.get(turn=turn)
    assert (request.tool_id, request.source, request.by_name) == ("runs", "admin", "boss")
    assert request.note == "wrong customer"
    press(admin_client, "cancel", turn.pk, why="all of it")
    turn.refresh_from_db()
    assert turn.status == "cancelling"
    assert CancelRequest.objects.get(turn=turn, tool_id="").note == "all of it"


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("cancelled", "stopped after 41 ms"),
        ("abandoned", "abandoned after 41 ms: it may still be running"),
        ("completed", "had ended on its own"),
    ],
)
def test_a_reload_says_how_it_has_ended_since(admin_client, ada, outcome, words):
    turn = run(ada)
    answer = admin_client.post(URL, {"cancel": str(turn.pk), "why": "stuck"})
    assert parse_qs(urlsplit(answer["Location"]).query)["did"]
    assert "data-open" in plain(admin_client.get(answer["Location"]))
    settle(CancelRequest.objects.get(), outcome, after=41)
    html = plain(admin_client.get(answer["Location"]))
    assert words in result(html)
    assert "data-open" not in html
    assert CancelRequest.objects.count() == 1  # a reload asks for nothing


def test_what_had_already_ended_says_how_and_by_whom(admin_client, ada):
    turn = run(ada)
    Turn.objects.update(status="completed", ended_at=timezone.now())
    html = press(admin_client, "cancel", turn.pk, why="late")
    assert "had already ended: completed" in result(html)
    assert "had already ended" in result(press(admin_client, "cancel", f"{turn.pk}:over", why="x"))
    assert not CancelRequest.objects.exists()
    request = CancelRequest.objects.create(
        turn=turn, reason="user", source="button", by_name="ada", requested_at=timezone.now()
    )
    settle(request, "cancelled", after=3)
    html = press(admin_client, "cancel", turn.pk, why="late")
    assert "had already been cancelled by ada" in result(html)


@pytest.mark.parametrize(
    "value", ["", "turn no longer exists", ":", "00000000-0000-4000-8000-000000000000", "\x00:\x00"]
)
@pytest.mark.parametrize("name", ["cancel", "extend", "allow", "deny", "all"])
def test_what_is_not_there_is_said_in_words(admin_client, ada, name, value):
    run(ada)
    press(admin_client, name, value, why="why")
    press(admin_client, name, f"30:{value}", why="why")
    assert not CancelRequest.objects.exists()
    assert not DeadlineOrder.objects.exists()


@pytest.mark.parametrize(
    "did",
    [
        "",
        "x",
        "cancel:",
        "extend:9:9:9",
        "extend:x",
        "decide:1",
        "all:::",
        "all:9:x",
        "all:9:" + "9" * 18,
        "\x00",
    ],
)
def test_an_address_may_name_anything(admin_client, did):
    page(admin_client, did=did)
    page(admin_client, **dict.fromkeys(("tool", "user", "agent", "owner", "q", "p"), did))


def test_a_denial_needs_a_reason_and_a_cancel_does_not(admin_client, ada):
    turn = run(ada)
    question = ask(turn)
    refused = press(admin_client, "deny", f"{question.pk}:{turn.pk}:asks", why="  ")
    assert "Enter a reason first" in refused
    question.refresh_from_db()
    assert question.decision == ""
    press(admin_client, "cancel", f"{turn.pk}:runs", why="  ")
    press(admin_client, "cancel", str(turn.pk), why="")
    requests = CancelRequest.objects.order_by("pk")
    wanted = [("runs", "boss", ""), ("", "boss", "")]
    assert list(requests.values_list("tool_id", "by_name", "note")) == wanted


def test_an_extension_is_stored_for_the_owner_with_who_and_why(admin_client, ada):
    turn = run(ada)
    html = press(admin_client, "extend", f"30:{turn.pk}:runs", why="nearly done")
    assert "has not received its new limit yet" in result(html)
    order = DeadlineOrder.objects.get()
    assert (order.extend_ms, order.by_name, order.note) == (30_000, "boss", "nearly done")
    did = f"extend:{order.pk}:0:120000"
    call = ToolCall.objects.get(call_id="runs")
    call.deadline_changes = [{"from_ms": 90_000, "to_ms": 120_000, "by": "boss"}]
    call.timeout_ms = 120_000
    call.save()
    assert "now has 2 min; it had 1 min 30 s" in result(page(admin_client, did=did))
    assert "nearly done" in plain(
        admin_client.get(reverse("admin:turns_turn_change", args=[turn.pk]))
    )
    for seconds in ("31", "-30", "0", "30.0"):
        press(admin_client, "extend", f"{seconds}:{turn.pk}:runs")
    assert DeadlineOrder.objects.count() == 1


def test_an_extension_beyond_the_ceiling_and_of_what_has_ended_says_so(admin_client, ada):
    turn = run(ada)
    press(admin_client, "extend", f"300:{turn.pk}:runs")
    order = DeadlineOrder.objects.get()
    DeadlineOrder.objects.update(settled_at=timezone.now())
    did = f"extend:{order.pk}:0:90000"
    assert "keeps 1 min 30 s" in result(page(admin_client, did=did))
    ToolCall.objects.filter(call_id="runs").update(status="succeeded")
    assert "had already ended: succeeded" in result(page(admin_client, did=did))
    html = press(admin_client, "extend", f"300:{turn.pk}:runs")
    assert "had already ended: succeeded" in result(html)
    assert DeadlineOrder.objects.count() == 1


def test_a_question_is_allowed_once_or_denied_with_a_reason(admin_client, ada):
    turn = run(ada)
    first, second = ask(turn, "a1"), ask(turn, "a2")
    html = page(admin_client)
    assert "rm -rf /" in html
    press(admin_client, "allow", f"{first.pk}:{turn.pk}:a1")
    html = press(admin_client, "deny", f"{second.pk}:{turn.pk}:a2", why="not on this machine")
    assert "denied" in result(html)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.decision, first.by_name, first.remember) == ("approved", "boss", False)
    assert (second.decision, second.reason) == ("denied", "not on this machine")
    html = press(admin_client, "allow", f"{second.pk}:{turn.pk}:a2")
    second.refresh_from_db()
    assert second.decision == "denied"
    assert "denied" in result(html)


def test_nothing_hides_in_what_a_person_is_to_allow(admin_client, ada):
    turn = run(ada)
    question = ask(turn, command="ls\u3164 \u202etxt.exe p\u0430ypal Удали файл")
    change = reverse("admin:governance_approval_change", args=[question.pk])
    for html in (page(admin_client), plain(admin_client.get(change))):
        assert r"ls\u{3164} \u{202e}txt.exe p\u{0430}ypal Удали файл" in html
        assert "\u202e" not in html


def test_what_was_asked_since_is_not_decided_by_an_old_page(admin_client, ada):
    turn = run(ada)
    shown = ask(turn, command="ls")
    Approval.objects.update(decision="approved", by_name="ada", decided_at=timezone.now())
    asked_since = make_question(
        turn, "asks", tool_name="exec", input={"command": "rm"}, rule="always"
    )
    html = press(admin_client, "allow", f"{shown.pk}:{turn.pk}:asks")
    assert "had already been decided by ada: " in result(html)
    asked_since.refresh_from_db()
    assert asked_since.decision == ""


def test_each_permission_has_buttons_of_its_own(staff, ada):
    turn = run(ada)
    ask(turn)
    looks, cancels = staff("view_turn"), staff("view_turn", "cancel_any")
    decides = staff("view_turn", "decide_any", "change_toolpolicy")
    allows = staff("view_turn", "decide_any", "view_content", "change_toolpolicy")
    names = {
        looks: set(),
        cancels: {"cancel", "extend", "all", "why"},
        decides: {"deny", "why"},
        allows: {"allow", "deny", "why"},
    }
    for client, wanted in names.items():
        html = page(client)
        found = {n for n in (*running_actions.ACTIONS, "all", "why") if f'name="{n}"' in html}
        assert found == wanted
        assert ("rm -rf" in html) is (client is allows)
    html = press(looks, "cancel", turn.pk, why="because")
    assert "You do not have permission to do this." in html


def test_a_form_of_another_site_does_nothing(admin_user, ada):
    turn = run(ada)
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    assert client.post(URL, {"cancel": str(turn.pk), "why": "x"}).status_code == 403
    assert not CancelRequest.objects.exists()


def test_who_may_not_see_content_sees_neither_titles_nor_arguments(staff, ada):
    run(ada)
    left_behind(ada)
    html = page(staff("view_turn", "view_toolcall", "cancel_any"))
    assert "dig" in html
    for content in ("Holes", "xxxx", "secret-path"):
        assert content not in html, content


def test_the_filters_show_what_fits(admin_client, ada, eve):
    here = make_process(name="runner-1")
    mine, other = run(ada, agent="digger", process=here), run(eve, agent="writer")
    ToolCall.objects.filter(group=str(other.pk), call_id="runs").update(tool_name="write")
    mine_only = [
        {"user": "ada"},
        {"agent": "digger"},
        {"tool": "dig"},
        {"owner": str(here.pk)},
        {"q": str(mine.pk)},
        {"q": mine.conversation_id.hex},
        {"q": "ada"},
        {"tool": "carry", "user": "ada"},
    ]
    for query in mine_only:
        html = page(admin_client, **query)
        assert f"/{mine.pk}/" in html, query
        assert f"/{other.pk}/" not in html, query
    html = page(admin_client, tool="nothing-like-it", user="ada")
    assert "No waiting or running turns match this filter." in html
    assert '<option value="nothing-like-it" selected>' in html


def test_all_of_a_filter_end_after_they_were_counted(admin_client, ada, eve):
    mine, also_mine, other = run(ada), run(ada), run(eve)
    answer = admin_client.post(f"{URL}?user=ada", {"all": "turns"})
    counted_at = answer.context["counted_at"]
    assert "<strong>2</strong>" in plain(answer)
    assert not CancelRequest.objects.exists()
    began_since = run(ada)
    Turn.objects.filter(pk=began_since.pk).update(queued_at=timezone.now())
    form = {"all": "turns", "counted_at": counted_at}
    refused = admin_client.post(f"{URL}?user=ada", form)
    assert "Enter a reason first" in plain(refused)
    assert not CancelRequest.objects.exists()
    done = admin_client.post(f"{URL}?user=ada", {**form, "why": "runaway"}, follow=True)
    asked = CancelRequest.objects.filter(tool_id="")
    assert {request.turn_id for request in asked} == {mine.pk, also_mine.pk}
    assert {(request.by_name, request.note) for request in asked} == {("boss", "runaway")}
    assert "Requested 2 cancels: 2 still being cancelled" in result(plain(done))
    for request in asked:
        settle(request, "cancelled", after=20)
    html = plain(admin_client.get(done.redirect_chain[-1][0]))
    assert "Requested 2 cancels: 2 stopped, the slowest after 20 ms." in result(html)
    other.refresh_from_db()
    assert other.status == "running"


def test_the_sum_says_what_became_of_what_somebody_was_ending_already(admin_client, ada):
    soft, out_of_time, stopping, fresh = (run(ada) for _ in range(4))
    for turn, mode in ((soft, "after_step"), (out_of_time, "report"), (stopping, "now")):
        command = CancelCommand(user=ada, source=CancelSource.BUTTON, mode=mode)
        commands.request_turn_cancel(turn.pk, command)
    counted_at = admin_client.post(URL, {"all": "turns"}).context["counted_at"]
    form = {"all": "turns", "counted_at": counted_at, "why": "runaway"}
    there = admin_client.post(URL, form)["Location"]
    earlier = "1 already being cancelled by an earlier request"
    asked = f"Requested 4 cancels: 3 still being cancelled, {earlier}."
    assert asked in result(plain(admin_client.get(there)))
    mine = CancelRequest.objects.filter(by_name="boss")
    assert {request.turn_id for request in mine} == {soft.pk, out_of_time.pk, fresh.pk}
    for request in mine:
        settle(request, "cancelled", after=20)
    ended = f"Requested 4 cancels: 3 stopped, the slowest after 20 ms, {earlier}."
    assert ended == result(plain(admin_client.get(there)))
    Turn.objects.exclude(pk=stopping.pk).update(status="cancelled", ended_at=timezone.now())
    again = press(admin_client, "all", "turns", why="again", counted_at=counted_at)
    assert result(again) == f"Requested 1 cancel: {earlier}."


def test_the_sum_says_that_calls_were_being_ended_already(admin_client, ada):
    turn = run(ada)
    press(admin_client, "cancel", f"{turn.pk}:runs", why="loops")
    address = f"{URL}?tool=dig"
    counted_at = admin_client.post(address, {"all": "calls"}).context["counted_at"]
    form = {"all": "calls", "counted_at": counted_at, "why": "again"}
    html = plain(admin_client.post(address, form, follow=True))
    assert result(html) == "Requested 1 cancel: 1 already being cancelled by an earlier request."


def test_the_sum_says_what_had_ended_before_it_was_asked_to(admin_user, ada):
    run(ada)
    many = EndOfMany(RunningFilter(), kind="turns", counted_at=timezone.now())
    Turn.objects.update(status="completed", ended_at=timezone.now())
    found = running_results.read(many.perform(admin_user, "late"), admin_user)
    assert found.text == "Requested 1 cancel: 1 had already ended, or were ended by another cancel."


def test_one_confirmation_ends_a_bounded_number(admin_client, ada, monkeypatch):
    monkeypatch.setattr(running_actions, "AT_ONCE", 2)
    for _ in range(3):
        run(ada)
    counted_at = admin_client.post(URL, {"all": "turns"}).context["counted_at"]
    html = press(admin_client, "all", "turns", why="stop", counted_at=counted_at)
    assert CancelRequest.objects.count() == 2
    assert "1 skipped: confirm again" in result(html)


def test_inside_a_transaction_of_the_host_nobody_waits_for_what_nobody_can_see(
    admin_user, ada, monkeypatch
):
    monkeypatch.setattr(running_results, "SETTLES_WITHIN", 3600.0)
    turn = run(ada)
    CancelRequest.objects.create(
        turn=turn, reason="admin", source="admin", by=admin_user, requested_at=timezone.now()
    )
    with transaction.atomic():
        running_results.wait(f"cancel:{turn.pk}:", admin_user)
        assert running_results.read(f"cancel:{turn.pk}:", admin_user).is_open


def left_behind(person, **fields):
    """Plant a call that was given up and may still run."""
    factory = RowFactory(person)
    turn = factory.turn("cancelled", owner=make_process(name="runner-9"))
    ended_at = timezone.now() - timedelta(minutes=5)
    return factory.call(
        turn,
        "stuck",
        "abandoned",
        tool_name="hang",
        isolation="thread",
        input={"path": "secret-path"},
        ended_at=ended_at,
        ended_by_reason="admin",
        ended_by_source="admin",
        ended_by_name="olga",
        **fields,
    )


def test_the_ledger_says_what_could_not_be_ended_where_and_since_when(admin_client, ada):
    call = left_behind(ada)
    html = page(admin_client).split('id="left-behind"')[1]
    for text in ("hang", "secret-path", "runner-9", "thread", "5 min", "ago", "olga"):
        assert text in html, text
    ToolCall.objects.filter(pk=call.pk).update(late_kind="returned")
    html = page(admin_client).split('id="left-behind"')[1]
    assert "runner-9" not in html
    assert "No abandoned calls." in html


def test_the_work_of_a_server_is_left_behind_there(admin_client, ada):
    left_behind(ada, tool_server="files")
    html = page(admin_client).split('id="left-behind"')[1]
    assert "MCP server files" in html


def test_a_long_ledger_leads_to_the_list(admin_client, ada):
    for _ in range(51):
        left_behind(ada)
    html = page(admin_client).split('id="left-behind"')[1]
    assert html.count("runner-9") == 50
    assert "happened=abandoned" in html


def test_the_front_page_leads_to_it(admin_client):
    html = admin_client.get(reverse("admin:index")).content.decode()
    assert f'href="{URL}"' in html
    assert "Running now" in html


def test_without_javascript_it_asks_again_only_where_that_was_chosen(admin_client, ada):
    run(ada)
    again = '<noscript><meta http-equiv="refresh" content="5"></noscript>'
    assert "http-equiv" not in page(admin_client)
    assert again in page(admin_client, refresh="5")
    assert "http-equiv" not in page(admin_client, refresh='0"><script>')


def test_it_counts_the_calls_of_each_tool_next_to_their_limits(admin_client, ada, settings):
    assert "Calls running" not in page(admin_client)
    assert "Cancel all turns" not in page(admin_client)
    settings.GOVERNANCE_MAX_RUNNING = 40
    ToolPolicy.objects.create(tool_name="dig", max_running=2)
    run(ada)
    run(ada)
    shown = page(admin_client)
    assert "Calls running: 2 (at most 40 in each process, 16 in each conversation)." in shown
    assert "carry: 0 running, 2 waiting; dig: 2 running (at most 2 in each process)." in shown
    assert "Cancel all turns" in shown


def test_more_turns_are_not_more_queries(admin_client, ada):
    def queries() -> int:
        with CaptureQueriesContext(connection) as made:
            page(admin_client)
        return len(made)

    run(ada, process=make_process())
    left_behind(ada)
    few = queries()
    assert few <= 21
    for _ in range(5):
        ask(run(ada, process=make_process()))
        left_behind(ada)
    assert queries() == few

"""The link web of the admin: from calls to what they belong to and back, and a turn's timeline."""

import json
import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.timezone import localtime

from console.timeline import MOST, facts_of
from governance import runtime, services
from governance.models import Approval, PolicyChange
from tests.staff import sign_in
from tests.turns.row_factory import RowFactory, make_process, make_repair
from turns.models import Agent, CancelRequest, Process, Repair
from turns.storage.groups import GROUPS

pytestmark = pytest.mark.django_db(transaction=True)

CALLS = reverse("admin:governance_toolcall_changelist")
TURNS = reverse("admin:turns_turn_changelist")
LIMITS = reverse("admin:governance_toolpolicy_changelist")
RUNNING = reverse("admin:turns_runningturn_changelist")


def staff_client(name, permissions):
    user = get_user_model().objects.create_user(name, is_staff=True)
    for permission in permissions:
        app, codename = permission.split(".")
        held = Permission.objects.get(content_type__app_label=app, codename=codename)
        user.user_permissions.add(held)
    return sign_in(user)


@pytest.fixture
def operator(transactional_db):
    return staff_client("olga", GROUPS["Governance operators"])


@pytest.fixture
def story(ada):
    """A turn to which everything has happened, a second each."""
    runtime._policies.reload()
    services.save_tool_policy(tool_name="wait", values={"timeout_ms": 30_000}, by=None)
    PolicyChange.objects.update(at=timezone.now() - timedelta(hours=1))
    Agent.objects.create(name="digger")
    factory = RowFactory(ada)
    at = timezone.now() - timedelta(minutes=5)

    def second(number):
        return at + timedelta(seconds=number)

    turn = factory.turn(
        "cancelled",
        agent="digger",
        owner=make_process(name="runner-1"),
        queued_at=at,
        started_at=second(1),
        ended_at=second(9),
        turn_timeout_ms=60_000,
    )
    call = factory.call(
        turn,
        "c1",
        "cancelled",
        tool_name="wait",
        error_type="cancelled",
        requested_at=second(2),
        started_at=second(4),
        ended_at=second(8),
        timeout_ms=30_000,
    )
    asked = {"group": call.group, "scope": call.scope, "call_id": "c1", "tool_name": "wait"}
    Approval.objects.create(
        **asked, requested_at=second(2), decision="approved", decided_at=second(4)
    )
    CancelRequest.objects.create(
        turn=turn,
        tool_id="c1",
        reason="user",
        source="api",
        requested_at=second(7),
        settled_at=second(8),
    )
    make_repair(turn, at=second(10))
    return turn, call


def page_of(row):
    name = f"admin:{row._meta.app_label}_{row._meta.model_name}_change"
    return reverse(name, args=[row.pk])


def links_on(client, address):
    """What the page itself links to, in the admin and in the chat."""
    page = client.get(address)
    assert page.status_code == 200, address
    main = page.content.decode().partition('id="content"')[2]
    found = {unescape(link).partition("#")[0] for link in re.findall(r'href="([^"]+)"', main)}
    return {link for link in found if link.startswith(("/admin/", "/c/"))}


def test_every_link_of_a_call_a_turn_and_their_lists_leads_somewhere(operator, story):
    turn, call = story
    change = PolicyChange.objects.get()
    factory = RowFactory(conversation=turn.conversation)
    running = factory.turn("running", agent="digger", owner=turn.owner)
    factory.call(running, "c2", "running", tool_name="wait", started_at=timezone.now())
    factory.call(turn, "c3", "abandoned", tool_name="wait", ended_at=timezone.now())
    CancelRequest.objects.create(
        turn=turn, reason="user", source="api", requested_at=timezone.now()
    )
    rows = (turn, call, change, turn.owner, turn.conversation, Approval.objects.get())
    rows += (Agent.objects.get(name="digger"), *CancelRequest.objects.all(), Repair.objects.get())
    pages = [page_of(row) for row in rows] + [CALLS, RUNNING, reverse("admin:turns_overview")]
    pages += [f"{LIMITS}?q=wait", reverse("admin:governance_toolpolicy_tool", args=["wait"])]
    names = ("turn", "conversation", "cancelrequest", "cancelledturn", "repair", "process")
    pages += [reverse(f"admin:turns_{name}_changelist") for name in names]
    some = {"turns.view_conversation", "turns.view_cancelrequest", "turns.view_repair"}
    readers = {
        "operator": operator,
        "auditor": staff_client("alma", GROUPS["Governance auditors"]),
        "limits": staff_client("lena", {"governance.view_toolpolicy"}),
        "turns": staff_client("tom", {"turns.view_turn"}),
        "calls": staff_client("carl", {"governance.view_toolcall", "governance.view_policychange"}),
        "others": staff_client("otto", some | {"turns.view_agent", "turns.view_process"}),
    }
    followed = set()
    for who, client in readers.items():
        for address in pages:
            if client is not operator and client.get(address).status_code == 403:
                continue
            for link in links_on(client, address) - {link for by, link in followed if by == who}:
                followed.add((who, link))
                if "/history/" not in link:
                    assert client.get(link, follow=True).status_code == 200, (who, address, link)


def test_a_call_leads_to_all_that_it_belongs_to_and_the_turn_back(operator, story):
    turn, call = story
    shared = {
        page_of(turn.conversation),
        page_of(turn.owner),
        page_of(Agent.objects.get(name="digger")),
        f"{reverse('admin:turns_turn_changelist')}?q=ada",
        reverse("webchat:conversation", args=[turn.conversation_id]),
    }
    tool = reverse("admin:governance_toolpolicy_tool", args=["wait"])
    assert shared | {page_of(turn), tool} <= links_on(operator, page_of(call))
    assert shared | {page_of(call)} <= links_on(operator, page_of(turn))
    assert tool in links_on(operator, page_of(PolicyChange.objects.get()))
    assert {page_of(turn), page_of(turn.owner)} <= links_on(operator, CALLS)
    live = f"{RUNNING}?owner={turn.owner.pk}"
    assert live in links_on(operator, page_of(turn.owner))
    assert page_of(PolicyChange.objects.get()) in links_on(operator, page_of(call))


def test_lists_and_pages_lead_to_users_agents_processes_and_chats_and_back(operator, story):
    turn, _call = story
    factory = RowFactory(conversation=turn.conversation)
    factory.turn("running", agent="digger", owner=turn.owner)
    agent = Agent.objects.get(name="digger")
    Process.objects.update(started_at=turn.queued_at)
    turn.conversation.agent = "digger"
    turn.conversation.save()
    chat = reverse("webchat:conversation", args=[turn.conversation_id])
    shared = {f"{TURNS}?q=ada", page_of(agent)}
    turns_of_conversation = f"{TURNS}?q={turn.conversation_id}"
    wanted = {
        TURNS: shared | {page_of(turn.owner), page_of(turn.conversation)},
        RUNNING: shared | {page_of(turn.owner), page_of(turn.conversation), chat},
        page_of(turn.conversation): shared | {chat, turns_of_conversation},
        reverse("admin:turns_conversation_changelist"): shared | {turns_of_conversation},
    }
    for address, links in wanted.items():
        assert links <= links_on(operator, address), address
    for row in (agent, turn.owner):
        [past] = [link for link in links_on(operator, page_of(row)) if link.startswith(f"{TURNS}?")]
        listed = {link.partition("?")[0] for link in links_on(operator, past)}
        assert page_of(turn) in listed


@pytest.mark.parametrize("address", ["turn", "conversation", "runningturn"])
def test_the_lists_of_turns_cost_the_same_for_many(operator, story, ada, address):
    page = reverse(f"admin:turns_{address}_changelist")
    RowFactory(ada).turn("running", agent="digger", owner=make_process(name="first"))
    operator.get(page)
    with CaptureQueriesContext(connection) as few:
        operator.get(page)
    for number in range(10):
        RowFactory(ada).turn("running", agent="digger", owner=make_process(name=f"r{number}"))
    with CaptureQueriesContext(connection) as many:
        operator.get(page)
    assert len(many) == len(few)


def test_the_list_of_calls_costs_the_same_for_many_turns(operator, story, ada):
    operator.get(CALLS)
    with CaptureQueriesContext(connection) as few:
        operator.get(CALLS)
    for number in range(10):
        factory = RowFactory(ada)
        owner = make_process(name=f"runner-{number}")
        factory.call(factory.turn(agent="digger", owner=owner), "c1")
    with CaptureQueriesContext(connection) as many:
        operator.get(CALLS)
    assert len(many) == len(few)


def test_who_may_not_see_turns_learns_nothing_of_them_from_calls(client, story, eve):
    turn, call = story
    eve.is_staff = True
    eve.save()
    eve.user_permissions.add(Permission.objects.get(codename="view_toolcall"))
    eve.user_permissions.add(Permission.objects.get(codename="export"))
    client.force_login(eve)
    for address in (CALLS, page_of(call)):
        text = client.get(address).content.decode()
        assert not any(words in text for words in ("digger", "runner-1", ">ada<", page_of(turn)))
    assert client.get(CALLS, {"user": "ada"}).url.endswith("?e=1")
    [row] = json.loads(b"".join(client.get(f"{CALLS}export/json/").streaming_content))
    assert not {"user", "agent", "turn_number", "process"} & row.keys()


def test_the_timeline_says_what_the_rows_say(operator, story):
    turn, call = story
    request, repair = CancelRequest.objects.get(), Repair.objects.get()
    question = Approval.objects.get()
    waited = question.decided_at - question.requested_at
    assert [(fact.begin, fact.end, fact.limit) for fact in facts_of(turn)] == [
        (turn.queued_at, turn.started_at, None),
        (turn.started_at, turn.ended_at, turn.started_at + timedelta(minutes=1) + waited),
        (question.requested_at, question.decided_at, None),
        (call.started_at, call.ended_at, call.started_at + timedelta(seconds=30)),
        (request.requested_at, request.settled_at, None),
        (turn.ended_at, None, None),
        (repair.at, None, None),
    ]
    text = operator.get(page_of(turn)).content.decode()
    chart, table = text[text.index('<svg class="governance-chart"') :].split("</svg>", 1)
    table = table[: table.index("</table>")]
    for fact in facts_of(turn):
        for moment in (fact.begin, fact.end, fact.limit):
            assert moment is None or localtime(moment).isoformat() in table
    assert (chart.count('class="ended"'), chart.count('class="cut"')) == (1, 1)
    assert chart.count('class="allowed"') == 2
    assert "style=" not in chart


def test_a_turn_that_waits_has_a_timeline_and_a_long_one_has_an_end(operator, ada):
    factory = RowFactory(ada)
    queued, long = factory.turn("queued"), factory.turn("running", turn_timeout_ms=0)
    for number in range(MOST + 5):
        factory.call(long, f"c{number}", "running", started_at=timezone.now(), timeout_ms=0)
    assert "not ended" in operator.get(page_of(queued)).content.decode()
    text = operator.get(page_of(long)).content.decode()
    assert "7 more are not shown." in text

"""Figures of the console against a recount in plain Python over all rows, without the product's queries."""

import math
import random
import re
from collections import Counter
from datetime import datetime, timedelta
from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.urls import reverse
from django.utils import timezone

from governance import rollups, runtime, services
from governance.models import Activity, Approval, ToolCall
from tests.console.test_top_lists import tables
from tests.turns.row_factory import RowFactory, make_question
from turns.models import CancelRequest, Conversation, Turn

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("whole_hour")]

SPANS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7)}
# No row is so near to the edge of a span that a slow test moves it across.
MINUTES = [*range(2, 55), *range(65, 1_430, 7), *range(1_450, 1_500)]
KINDS = ("limits", "agent", "token", "cancel", "decision", "export")
# Status, type of error, where the total limit came from, and the limit that ran out.
ENDS = (
    ("succeeded", "", "override", ""),
    ("succeeded", "", "declared", ""),
    ("succeeded", "", "hint", ""),
    ("failed", "error", "override", ""),
    ("timed_out", "timeout", "override", "total"),
    ("timed_out", "timeout", "override", "idle"),
    ("timed_out", "timeout", "hint", "total"),
    ("timed_out", "timeout", "manual", "total"),
    ("abandoned", "timeout", "override", "total"),
    ("cancelled", "cancelled", "override", ""),
    ("cancelled", "cancelled", "override", "turn"),
)
STATUSES = ("completed", "failed", "interrupted", "timed_out", "cancelled", "queued")
LIMITS = {"read_file": 6_000, "write_file": 60_000, "web_search": 0}  # ms by tool; 0 = none
OPEN = ("pending", "awaiting_approval", "running", "cancelling")


@pytest.fixture
def past(ada, eve):
    """Turns, calls, cancels and acts at random times in the last 25 hours."""
    dice = random.Random(37)
    now = timezone.now()

    def at():
        return now - timedelta(minutes=dice.choice(MINUTES))

    factories = [RowFactory(owner) for owner in (ada, eve, ada)]
    for factory, status in zip(factories, ("running", "cancelling", "running"), strict=True):
        factory.turn(status, agent="guide", usage={"input_tokens": 1}, queued_at=at())
    for number in range(90):
        usage = {"input_tokens": dice.randrange(500), "output_tokens": dice.randrange(90)}
        factory = dice.choice(factories)
        turn = factory.turn(
            dice.choice(STATUSES),
            agent=dice.choice(["planner", "clerk", "guide"]),
            usage=usage,
            queued_at=at(),
        )
        for call in range(dice.randrange(8)):
            status, error_type, source, reached = dice.choice(ENDS)
            factory.call(
                turn,
                f"c{number}-{call}",
                status,
                error_type=error_type,
                timeout_source=source,
                limit_reached=reached,
                duration_ms=dice.randrange(20, 8_000),
                disposition=dice.choice(["", "indeterminate"]),
                effects=dice.choice(["", "none", "cut"]),
                tool_name=dice.choice(list(LIMITS)),
                requested_at=at(),
            )
        factory.call(
            turn,
            f"o{number}",
            dice.choice([*OPEN, "not_started"]),
            tool_name=dice.choice(list(LIMITS)),
            requested_at=at(),
        )
        if dice.random() < 0.3:
            decision = dice.choice(["", "approved", "expired"])
            make_question(turn, f"q{number}", requested_at=at(), decision=decision)
        if dice.random() < 0.4:
            CancelRequest.objects.create(
                turn=turn, reason="user", source="button", by_name="x", requested_at=at()
            )
    runtime._policies.reload()
    for name, limit in LIMITS.items():
        services.save_tool_policy(tool_name=name, values={"timeout_ms": limit}, by=None)
    for _number in range(70):
        Activity.objects.create(kind=dice.choice(KINDS), action="change", at=at())


def differing(shown, expected):
    """Return the names whose figures differ: name → page, recount."""
    return {
        name: (shown.get(name), expected.get(name))
        for name in shown.keys() | expected.keys()
        if shown.get(name) != expected.get(name)
    }


def recounted(span):
    """Every figure of the top lists: (title, name) → total."""
    since = timezone.now() - SPANS[span]
    users = {row["id"]: row["username"] for row in get_user_model().objects.values()}
    owners = {str(row["id"]): users[row["owner_id"]] for row in Conversation.objects.values()}
    turns = {str(row["id"]): row for row in Turn.objects.values()}
    totals = Counter()
    for row in ToolCall.objects.values():
        if row["requested_at"] < since:
            continue
        if row["error_type"] == "timeout":
            totals["Timeouts by user", owners[row["scope"]]] += 1
            totals["Timeouts by agent", turns[row["group"]]["agent"]] += 1
            totals["Timeouts by tool", row["tool_name"]] += 1
        if row["error_type"] == "cancelled":
            totals["Cancelled calls by tool", row["tool_name"]] += 1
    for row in CancelRequest.objects.values():
        if row["requested_at"] >= since:
            turn = turns[str(row["turn_id"])]
            totals["Cancels by user", owners[str(turn["conversation_id"])]] += 1
            totals["Cancels by agent", turn["agent"]] += 1
    for turn in turns.values():
        if turn["queued_at"] >= since:
            tokens = sum(turn["usage"].get(name, 0) for name in ("input_tokens", "output_tokens"))
            totals["Tokens by user", owners[str(turn["conversation_id"])]] += tokens
            totals["Tokens by agent", turn["agent"]] += tokens
    return dict(totals)


class ClientOfSpan:
    """A client that asks for one span."""

    def __init__(self, client, span):
        self.client, self.span = client, span

    def get(self, address):
        return self.client.get(address, {"span": self.span})


@pytest.mark.parametrize("span", SPANS)
def test_the_top_lists_are_those_of_a_recount(admin_client, past, span):
    shown = {
        (title, name): total
        for title, lines in tables(ClientOfSpan(admin_client, span)).items()
        for name, (total, _link) in lines.items()
    }
    expected = recounted(span)
    assert expected
    assert not differing(shown, expected)


@pytest.mark.parametrize("span", SPANS)
def test_the_counts_of_activity_are_those_of_a_recount(admin_client, past, span):
    since = timezone.now() - SPANS[span]
    expected = Counter(
        row["kind"]
        for row in Activity.objects.values()
        if row["kind"] in KINDS and row["at"] >= since
    )
    address = reverse("admin:governance_activity_changelist")
    shown = {}
    for kind in KINDS:
        page = admin_client.get(address, {"kind__exact": kind, "when": span})
        shown[kind] = page.context["cl"].result_count
    assert expected
    assert not differing(shown, {kind: expected[kind] for kind in KINDS})


def hours_of(moments, now):
    """Return how many of these times lie in each of the last 24 hours, the oldest hour first."""
    ages = Counter(math.floor((now - at) / timedelta(hours=1)) for at in moments)
    return tuple(ages[ago] for ago in range(23, -1, -1))


def rows_at(client, address):
    """Return how many rows the list at this address has."""
    context = client.get(address).context
    return context["cl"].result_count if "cl" in context else context["page"].paginator.count


def test_the_overview_has_the_figures_of_a_recount_and_each_leads_to_its_rows(admin_client, past):
    now = timezone.now()
    calls, turns = list(ToolCall.objects.values()), list(Turn.objects.values())
    questions = list(Approval.objects.values())
    times = {
        "turns": [row["queued_at"] for row in turns],
        "waiting": [row["requested_at"] for row in questions],
        "badly": [row["queued_at"] for row in turns if row["status"] in ("failed", "interrupted")],
        "timeouts": [row["requested_at"] for row in calls if row["error_type"] == "timeout"],
        "unknown": [row["requested_at"] for row in calls if row["disposition"] == "indeterminate"],
        "cancels": [row["requested_at"] for row in CancelRequest.objects.values()],
    }
    expected = {
        name: [sum(at >= now - SPANS[span] for at in moments) for span in ("1h", "24h")]
        for name, moments in times.items()
    }
    expected["turns"].insert(0, sum(row["ended_at"] is None for row in turns))
    expected["waiting"].insert(0, sum(row["decision"] == "" for row in questions))
    figures = admin_client.get(reverse("admin:index")).context["figures"]
    shown = {figure.name: [count.value for count in figure.counts] for figure in figures}
    assert all(min(numbers) > 0 for numbers in expected.values())
    assert not differing(shown, expected)
    bars = {figure.name: figure.series.counts for figure in figures}
    assert not differing(bars, {name: hours_of(moments, now) for name, moments in times.items()})
    counts = [(count.address, count.value) for figure in figures for count in figure.counts]
    named = re.compile(r"(.+) (\d+)$")
    parts = [
        (link.address, int(found[2]))
        for figure in figures
        for link in figure.links
        if (found := named.match(link.text))
    ]
    assert len(parts) >= 7
    for address, number in counts + parts:
        assert rows_at(admin_client, address) == number, address


def percentile(judged, percent):
    """Return the percentile of durations by nearest rank; None if it lies among those of cut calls (infinity)."""
    found = sorted(judged)[math.ceil(len(judged) * percent / 100) - 1]
    return None if math.isinf(found) else found


def recounted_tool(name, since):
    """Return what a recount of a tool's calls knows: calls, timeouts and their share, and the durations to judge."""
    ran = [
        row
        for row in ToolCall.objects.filter(tool_name=name).values()
        if row["requested_at"] >= since and row["status"] not in OPEN and row["duration_ms"]
    ]
    timeouts = [row for row in ran if row["error_type"] == "timeout"]
    ended = [row for row in ran if row["status"] in ("succeeded", "failed")]
    governed = [row for row in ended if row["timeout_source"] not in ("hint", "manual")]
    cut = [
        row
        for row in timeouts
        if row["limit_reached"] == "total" and row["timeout_source"] not in ("hint", "manual")
    ]
    return {
        "calls": len(ran),
        "timeouts": (len(timeouts), len(timeouts) + len(ended)),
        "judged": [*(row["duration_ms"] for row in governed), *[math.inf] * len(cut)],
    }


def cells_of(html, name):
    """Return the cells of a tool's row: label → words and link."""
    row = next(row for row in re.split("<tr", html) if f"/tool/{name}/?" in row)
    cell = re.compile(r'<td[^>]*data-label="([^"]+)"[^>]*>(.*?)</td>', re.DOTALL)
    return {label: words_and_link(inner) for label, inner in cell.findall(row)}


def words_and_link(html):
    link = re.search(r'href="([^"]+)"', html)
    words = re.sub(r"<[^>]+>", "", html.partition('<span class="governance-quiet">')[0])
    plain = " ".join(unescape(words).replace("\u00a0", " ").split())
    return plain, unescape(link[1]) if link else ""


def milliseconds(words):
    number, unit = words.split()
    return float(number) * {"ms": 1, "s": 1_000}[unit]


def assert_duration(words, expected, *, is_exact):
    """Durations from hourly summaries are those of their bins, which are at most a sixteenth longer."""
    if expected is None:
        assert words == "unknown"
        return
    rounding = 50
    most = expected if is_exact else expected * 17 / 16
    assert expected - rounding <= milliseconds(words) <= most + rounding, (words, expected)


@pytest.mark.parametrize("is_rolled_up", [False, True])
@pytest.mark.parametrize("span", SPANS)
def test_tool_limits_have_the_figures_of_a_recount_and_each_leads_to_its_rows(
    admin_client, past, span, is_rolled_up
):
    if is_rolled_up:
        list(rollups.fill(timedelta(hours=30)))
    is_exact = span == "1h" or not is_rolled_up
    page = admin_client.get(reverse("admin:governance_toolpolicy_changelist"), {"span": span})
    since = datetime.fromisoformat(re.search(r'datetime="([^"]+)"', page.context["since"])[1])
    for name, limit in LIMITS.items():
        expected = recounted_tool(name, since)
        shown = cells_of(page.text, name)
        assert len(expected["judged"]) >= 5
        cut, ended = expected["timeouts"]
        assert shown["Calls"][0] == str(expected["calls"])
        assert shown["Timeouts"][0] == f"{cut} of {ended} ({100 * cut / ended:.1f} %)"
        usual = percentile(expected["judged"], 95)
        assert_duration(shown["p95"][0], usual, is_exact=is_exact)
        bar = shown["p95 of the limit"][0]
        if not limit:
            assert bar == ""
        elif usual is None:
            assert bar == "at or over the limit"
        else:
            most = usual if is_exact else usual * 17 / 16
            least, most = (min(100 * it / limit, 100) for it in (usual, most))
            assert least - 1 <= float(bar.removesuffix(" %")) <= most + 1
        address = reverse("admin:governance_toolpolicy_tool", args=[name])
        own = admin_client.get(address, {"span": span})
        shares = dict(own.context["row"].shares)
        for percent in (50, 95, 99):
            words = shares[f"p{percent}"].replace("\u00a0", " ")
            assert_duration(words, percentile(expected["judged"], percent), is_exact=is_exact)
        for label, number in (("Calls", expected["calls"]), ("Timeouts", cut)):
            assert rows_at(admin_client, shown[label][1]) == number, (name, label)
            assert unescape(own.text).count(shown[label][1]) == 1, (name, label)


def test_the_tools_near_the_limit_are_those_of_a_recount(admin_client, past):
    checks = admin_client.get(reverse("admin:index")).context["checks"]
    check = next(check for check in checks if str(check.label) == "Tools near the limit")
    page = admin_client.get(check.address)
    since = datetime.fromisoformat(re.search(r'datetime="([^"]+)"', page.context["since"])[1])
    usual = {name: percentile(recounted_tool(name, since)["judged"], 95) for name in LIMITS}
    near = [
        name
        for name, limit in LIMITS.items()
        if limit and (usual[name] is None or usual[name] >= 0.8 * limit)
    ]
    assert [link.text for link in check.links] == near
    assert [row.name for row in page.context["rows"]] == near
    assert str(len(near)) in str(check.status.words)

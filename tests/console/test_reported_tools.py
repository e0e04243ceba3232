"""Tools that only other processes have are rows of the page of limits like all others, while these processes live."""

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from console import tools
from governance import make_tool, tool_reports
from governance.db_clock import database_now
from governance.models import McpServer, ToolCall, ToolPolicy
from governance.policies import read_policies
from tests.turns.row_factory import make_process
from turns.models import Agent, ToolReport

pytestmark = pytest.mark.django_db(transaction=True)

LIMITS = reverse("admin:governance_toolpolicy_changelist")
ADD = reverse("admin:governance_toolpolicy_add")


async def elsewhere() -> str:
    """Run in another process."""
    return ""


def reported(*names, of="runner-1", age=-600.0, declared=None, **process):
    """A process that has these tools; its lease is far from its end, unless an age is given."""
    row = make_process(name=of, age=age, **process)
    tools = [make_tool(elsewhere, name=name, **(declared or {})) for name in names]
    ToolReport.objects.create(process=row, tools=tool_reports.describe(tools))
    return row


def rows_of(page):
    return {row.name: row for row in page.context["rows"]}


def shown(client, **query):
    return rows_of(client.get(LIMITS, query))


def test_a_tool_of_another_process_is_a_row_that_says_whose_it_is_and_none_is_stored(admin_client):
    reported("deploy", declared={"timeout": 45, "title": "Deploy it"})
    page = admin_client.get(LIMITS)
    row = rows_of(page)["deploy"]
    assert row.total_limit.replace("\xa0", " ") == "45 s (from: the tool)"
    assert row.other_limits == "reported by runner-1"
    assert rows_of(page)["deploy"].tool.isolation == "async"
    assert "reported by" not in rows_of(page)["wait"].in_force
    assert not ToolPolicy.objects.exists()
    tool_page = admin_client.get(reverse("admin:governance_toolpolicy_tool", args=["deploy"]))
    assert "Deploy it" in tool_page.content.decode()


def test_its_limits_are_set_like_those_of_any_other(admin_client):
    reported("deploy")
    form = {"deploy-timeout_ms": "20 s", "deploy-tool_enabled": "on", "deploy-revision": ""}
    admin_client.post(LIMITS, form, follow=True)
    policy = ToolPolicy.objects.get()
    assert (policy.tool_name, policy.timeout_ms) == ("deploy", 20_000)
    assert read_policies().levels_of("deploy").override.timeout == 20
    assert "20 s (from: admin limit for this tool)" in shown(admin_client)["deploy"].in_force
    detail = admin_client.get(reverse("admin:governance_toolpolicy_change", args=[policy.pk]))
    assert "reported by runner-1" in detail.content.decode()
    admin_client.post(LIMITS, {"_act": "1", "action": "reset", "chosen": "deploy"})
    assert not ToolPolicy.objects.exists()
    assert "deploy" in shown(admin_client)


def test_the_form_of_all_limits_offers_it_and_refuses_what_nobody_has(admin_client):
    reported("deploy", of="runner-1", declared={"timeout": 45})
    assert "deploy (declared limit: 45 s)" in admin_client.get(ADD).content.decode().replace(
        "\xa0", " "
    )
    form = {"tool_name": "nobody_has_it", "timeout_ms": "20 s", "is_active": "on"}
    assert admin_client.post(ADD, form).status_code == 200
    assert not ToolPolicy.objects.exists()


def test_what_it_declares_counts_against_an_idle_limit(admin_client):
    reported("deploy", declared={"timeout": 10})
    form = {"deploy-idle_timeout_ms": "20 s", "deploy-tool_enabled": "on", "deploy-revision": ""}
    assert admin_client.post(LIMITS, form).context["has_errors"]
    assert not ToolPolicy.objects.exists()


def test_only_processes_that_live_count(admin_client):
    reported("deploy", of="stale", age=3_600)
    reported("deploy", of="gone", ended_at=database_now())
    assert "deploy" not in shown(admin_client)
    reported("deploy", of="leaving", draining_at=database_now())
    assert shown(admin_client)["deploy"].in_force.endswith("reported by leaving")


def test_many_processes_are_counted(admin_client):
    for number in range(5):
        reported("deploy", of=f"runner-{number}")
    reported("deploy", of="runner-4")  # two of one name are one word
    assert shown(admin_client)["deploy"].in_force.endswith(
        "reported by runner-4, runner-3, runner-2 and 2 more"
    )


def test_a_tool_that_is_registered_here_is_not_called_reported(admin_client):
    reported("wait", declared={"timeout": 1})
    row = shown(admin_client)["wait"]
    assert row.tool.reported_by == ()
    assert "1 s (from" not in row.in_force


def test_a_tool_of_a_server_says_which_process_is_connected(admin_client):
    found = {"name": "fetch", "text": "Fetch a page.", "read_only": False}
    McpServer.objects.create(name="shop", command="shop", tools_found=[found])
    reported("shop_fetch", "shop_more", declared={"server": "shop"})
    rows = shown(admin_client)
    assert rows["shop_fetch"].in_force.endswith("not connected here, reported by runner-1")
    assert rows["shop_fetch"].tool.description == "Fetch a page."
    assert rows["shop_more"].tool.server == "shop"


def test_who_may_only_look_sees_it(client, operator):
    reported("deploy")
    client.force_login(operator)
    operator.user_permissions.add(Permission.objects.get(codename="view_toolpolicy"))
    row = shown(client)["deploy"]
    assert (row.form, row.tool.reported_by) == (None, ("runner-1",))
    form = {"deploy-timeout_ms": "20 s", "deploy-tool_enabled": "on", "deploy-revision": ""}
    client.post(LIMITS, form)
    assert not ToolPolicy.objects.exists()


def test_an_agent_is_given_it_by_a_tick(admin_client):
    reported("deploy", declared={"description": "Bring it out.\nAnd more."})
    add = reverse("admin:turns_agent_add")
    page = admin_client.get(add).content.decode()
    assert "<code>deploy</code> Bring it out, reported by runner-1" in page
    chosen = {"name": "shipper", "which_tools": "some", "ticked_tools": ["deploy"]}
    saved = admin_client.post(add, {**chosen, "is_enabled": "on"}, follow=True)
    assert Agent.objects.get(name="shipper").tools == ["deploy"]
    assert "There is no tool named" not in saved.content.decode()
    agent = reverse("admin:turns_agent_change", args=[Agent.objects.get(name="shipper").pk])
    assert "1 tool, about" in admin_client.get(agent).content.decode()


def test_the_warning_about_too_many_tools_counts_it(admin_client, settings):
    settings.TURNS_MAX_TOOLS = len(tools.offered())
    agents = reverse("admin:turns_agent_changelist")
    assert "but a request can contain at most" not in admin_client.get(agents).content.decode()
    reported("deploy")
    assert "but a request can contain at most" in admin_client.get(agents).content.decode()


def test_the_filter_of_calls_and_the_pages_of_its_calls_know_it(admin_client):
    reported("deploy")
    row = ToolCall.objects.create(
        tool_name="deploy", call_id="a", group="g", scope="s", requested_at=timezone.now()
    )
    calls = admin_client.get(reverse("admin:governance_toolcall_changelist")).content.decode()
    assert "?tool=deploy" in calls
    call = admin_client.get(
        reverse("admin:governance_toolcall_change", args=[row.pk])
    ).content.decode()
    assert reverse("admin:governance_toolpolicy_tool", args=["deploy"]) in call


def test_many_reports_cost_as_much_as_one(admin_client, django_assert_num_queries):
    reported("deploy")
    admin_client.get(LIMITS)
    with CaptureQueriesContext(connection) as few:
        admin_client.get(LIMITS)
    for number in range(10):
        reported(f"tool_{number}", of=f"runner-{number}")
    with django_assert_num_queries(len(few)):
        admin_client.get(LIMITS)


READS_OF_TOOLS = 1
PER_SAVED_ROW = 25  # statements: last calls, checks, savepoints, row, version, audit, what is said


def edited_rows(names, timeout):
    return {
        field: value
        for name in names
        for field, value in {
            f"{name}-timeout_ms": timeout,
            f"{name}-idle_timeout_ms": "5 s",
            f"{name}-tool_enabled": "on",
            f"{name}-revision": "",
        }.items()
    }


@pytest.mark.parametrize("timeout", ["20 s", ""], ids=["with a total limit", "idle limit only"])
def test_the_tools_of_others_are_read_once_however_many_rows_are_saved(admin_client, timeout):
    names = [f"tool_{number}" for number in range(10)]
    reported(*names, declared={"timeout": 30})
    with CaptureQueriesContext(connection) as one:
        admin_client.post(LIMITS, edited_rows(names[:1], timeout))
    with CaptureQueriesContext(connection) as nine:
        admin_client.post(LIMITS, edited_rows(names[1:], timeout))
    assert ToolPolicy.objects.count() == 10
    for table in (ToolReport._meta.db_table, McpServer._meta.db_table):
        reads = [query["sql"] for query in nine if f'FROM "{table}"' in query["sql"]]
        assert len(reads) == READS_OF_TOOLS, table
    more = len(before_the_commit(nine)) - len(before_the_commit(one))
    assert more <= 8 * PER_SAVED_ROW, "\n".join(query["sql"][:120] for query in nine)


def before_the_commit(captured):
    """The statements of a request without those after its commit, when every source of limits in this process reads
    each edit: also sources that earlier tests have left.
    """
    statements = [query["sql"] for query in captured]
    return statements[: statements.index("COMMIT")]


def test_tools_that_are_allowed_at_once_are_read_once(admin_client):
    names = [f"tool_{number}" for number in range(10)]
    reported(*names)
    with CaptureQueriesContext(connection) as asked:
        admin_client.post(LIMITS, {"_act": "1", "action": "forbid", "chosen": names})
    assert ToolPolicy.objects.filter(tool_enabled=False).count() == 10
    table = ToolReport._meta.db_table
    assert len([q for q in asked if f'FROM "{table}"' in q["sql"]]) == READS_OF_TOOLS


def test_a_report_is_bounded_and_what_the_site_itself_has_comes_first():
    declared = {"server": "evil", "raw_schema": {"type": "object"}}
    many = [make_tool(elsewhere, name=f"a{number}", **declared) for number in range(3_000)]
    odd = [make_tool(elsewhere, name=name) for name in ("x" * 129, "nul\x00", "\ud800")]
    titled = make_tool(elsewhere, name="own", title="\x00" + "long " * 100)
    report = tool_reports.describe([*many, *odd, titled])
    assert len(report) == tool_reports.MOST_TOOLS
    assert [report[0]["name"], len(report[0]["title"])] == ["own", 80]
    assert not {"x" * 129, "nul\x00", "\ud800"} & {tool["name"] for tool in report}
    ToolReport.objects.create(process=make_process(), tools=report)  # every database takes it


def test_a_report_of_another_version_is_read():
    later = {"name": "deploy", "colour": "red", "limits": {"approval": "on_fridays", "pace": 3}}
    earlier = {"name": "plain"}
    ToolReport.objects.create(process=make_process(age=-600), tools=[later, earlier])
    for name in ("deploy", "plain"):
        tool = tools.find(name)
        assert tool.limits.approval is None
        assert tool.reported_by == ("elsewhere:1",)

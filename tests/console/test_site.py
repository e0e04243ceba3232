"""The console in an `AdminSite` of somebody else, under a theme of somebody else, and governance's plain pages without it."""

import pytest
from django.contrib import admin
from django.contrib.admin import AdminSite, ModelAdmin
from django.urls import path, reverse

import governance.admin as plain
from console.admin_site import ConsoleSite
from console.site import PAGES, register
from governance import services
from governance.models import DefaultPolicy, McpServer, PolicyChange, ToolCall, ToolPolicy
from tests.console.planted import SECRET
from tests.staff import staff_client


class Dressed(ModelAdmin):
    """The `ModelAdmin` of a theme."""


own_site = AdminSite(name="ops")
register(own_site, base=Dressed)
guided_site = ConsoleSite(name="guided")
register(guided_site)
bare_site = ConsoleSite(name="bare")
plain_site = AdminSite(name="plain")
PLAIN = {
    DefaultPolicy: plain.DefaultPolicyAdmin,
    McpServer: plain.McpServerAdmin,
    PolicyChange: plain.PolicyChangeAdmin,
    ToolCall: plain.ToolCallAdmin,
    ToolPolicy: plain.ToolPolicyAdmin,
}
for model, page in PLAIN.items():
    plain_site.register(model, page)

SITES = (own_site, guided_site, bare_site, plain_site)
urlpatterns = [path(f"{site.name}/", site.urls) for site in SITES]


@pytest.fixture(autouse=True)
def _addresses(settings):
    settings.ROOT_URLCONF = __name__


def list_of(model, site):
    return reverse(f"{site.name}:{model._meta.app_label}_{model._meta.model_name}_changelist")


def test_every_list_is_in_ones_own_site_and_wears_its_theme(planted, admin_client):
    registered = own_site._registry.items()
    assert {model._meta.label for model, _page in registered} == set(PAGES)
    for model, page in registered:
        assert isinstance(page, Dressed)
        assert isinstance(page, PAGES[model._meta.label])
        answer = admin_client.get(list_of(model, own_site), follow=True)
        assert answer.status_code == 200
        assert "?e=1" not in answer.request["QUERY_STRING"]


def test_the_default_site_has_each_page_once_in_the_place_of_the_plain_one():
    for model in PLAIN:
        page = admin.site.get_model_admin(model)
        assert type(page) is PAGES[model._meta.label]


def test_plain_pages_show_what_there_is_and_keep_content_to_whom_it_belongs(planted, admin_client):
    call = ToolCall.objects.get(call_id="c1")
    address = reverse("plain:governance_toolcall_change", args=[call.pk])
    for model in PLAIN:
        assert admin_client.get(list_of(model, plain_site)).status_code == 200
    assert SECRET in admin_client.get(address).text
    auditor = staff_client("tom", "view_toolcall")
    assert SECRET not in auditor.get(address).text
    told = auditor.get(list_of(ToolCall, plain_site), {"result__contains": SECRET[:2]})
    assert told.status_code == 400


def test_a_plain_form_saves_limits_by_the_service(probe, admin_client):
    add = reverse("plain:governance_toolpolicy_add")
    fields = {"tool_name": "probe", "timeout_ms": "20 s", "is_active": "on", "why": "too long"}
    admin_client.post(add, {"approval": "", "tool_enabled": "on", **fields})
    row = ToolPolicy.objects.get()
    assert (row.timeout_ms, row.revision) == (20_000, 1)
    assert PolicyChange.objects.get().reason == "too long"
    change = reverse("plain:governance_toolpolicy_change", args=[row.pk])
    page = admin_client.post(
        change, {**fields, "timeout_ms": "20 s", "idle_timeout_ms": "1 h"}, follow=True
    )
    assert "idle" in page.text.casefold()
    assert ToolPolicy.objects.get().idle_timeout_ms is None
    admin_client.post(reverse("plain:governance_toolpolicy_delete", args=[row.pk]), {"post": "yes"})
    assert not ToolPolicy.objects.exists()
    assert services.save_tool_policy(tool_name="probe", values={"timeout_ms": 1_000}, by=None)


def test_the_overview_is_the_first_page_of_a_site_of_ones_own_and_stays_in_it(
    planted, admin_client
):
    page = admin_client.get(reverse("guided:index"))
    assert page.templates[0].name == "console/overview.html"
    figures = page.context["figures"]
    assert {count.address.partition("turns/")[0] for count in figures[0].counts} == {"/guided/"}
    menu = page.context["available_apps"]
    assert [str(group["name"]) for group in menu] == ["Now", "Limits", "Audit", "Set-up"]
    assert menu[0]["models"][0]["admin_url"] == "/guided/"
    empty = admin_client.get(reverse("bare:index"))  # nothing of the console is in it
    assert empty.context["app_list"] == []

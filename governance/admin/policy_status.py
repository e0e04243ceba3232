"""The line on the pages of limits that says where they are in force. It follows until every process obeys (B2)."""

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.text import capfirst

from governance import policy_reports, selectors
from governance.admin.links import address_of_list
from governance.call_links import Link

TEMPLATE = "admin/governance/in_force.html"


def context(opts: Any, reader: Any) -> dict[str, Any]:
    """Return what the line says now to its reader; `opts` are those of the model whose admin answers for it."""
    version = selectors.policy_version()
    reach = policy_reports.reach(version, is_settled=True)
    return {
        "version": version,
        "in_force": reach.words,
        "is_in_force_everywhere": reach.is_known,
        "in_force_address": reverse(f"admin:{view_name(opts)}"),
        "in_force_links": list(_links(reader)),
    }


def _links(reader: Any) -> Iterator[Link]:
    """The lists that say more, for those who may see them: the processes, and who changed the limits."""
    for name in (*policy_reports.models(), "governance_policychange"):
        if address := address_of_list(reader, name):
            model = apps.get_model(name.replace("_", ".", 1))
            yield Link(capfirst(model._meta.verbose_name_plural), address)


def view_name(opts: Any) -> str:
    """Return the name of the address that has the line alone."""
    return f"{opts.app_label}_{opts.model_name}_in_force"


def respond(request: HttpRequest, opts: Any) -> HttpResponse:
    """Return the line alone: what the script of the page reads, without the figures of all tools."""
    return TemplateResponse(request, TEMPLATE, context(opts, request.user))

"""The line on the pages of limits that says where they are in force; it follows until every process obeys (B2)."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from governance import policy_reports, selectors

TEMPLATE = "admin/governance/in_force.html"


def context(opts: Any) -> dict[str, Any]:
    """Return what the line says now; `opts` are those of the model whose admin answers for it."""
    version = selectors.policy_version()
    reach = policy_reports.reach(version, is_settled=True)
    return {
        "version": version,
        "in_force": reach.words,
        "is_in_force_everywhere": reach.is_known,
        "in_force_address": reverse(f"admin:{view_name(opts)}"),
        "processes": policy_reports.page(),
    }


def view_name(opts: Any) -> str:
    """Return the name of the address that has the line alone."""
    return f"{opts.app_label}_{opts.model_name}_in_force"


def respond(request: HttpRequest, opts: Any) -> HttpResponse:
    """Return the line alone: what the script of the page reads, without the figures of all tools."""
    return TemplateResponse(request, TEMPLATE, context(opts))

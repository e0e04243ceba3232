"""An admin site that starts with the overview and groups its menu by task.

To make it the project's admin, put `"console.admin_site.ConsoleAdminConfig"` into `INSTALLED_APPS` instead of
`"django.contrib.admin"`. A project with its own admin site derives it from `ConsoleSite`.
"""

from typing import Any

from django.apps import apps
from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

APPS = ("governance", "turns", "webchat")
# The menu, grouped by task. Each group has a key for its address, a heading and models. Models of Turnkeeper's apps that
# are missing here can be reached through links and from the page of their app.
MENU: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    (
        "now",
        gettext_lazy("Now"),
        ("turns.RunningTurn", "governance.Approval", "turns.Process"),
    ),
    (
        "limits",
        gettext_lazy("Limits"),
        ("governance.ToolPolicy", "governance.DefaultPolicy", "turns.DisconnectPolicy"),
    ),
    (
        "audit",
        gettext_lazy("Audit"),
        (
            "governance.Activity",
            "turns.Turn",
            "governance.ToolCall",
            "turns.CancelledTurn",
            "turns.Conversation",
            "turns.Repair",
        ),
    ),
    (
        "set-up",
        gettext_lazy("Set-up"),
        ("turns.Agent", "governance.McpServer", "webchat.ApiToken"),
    ),
)


class ConsoleSite(AdminSite):
    """An admin site whose index shows the overview to users who may view turns, and Django's index to all others."""

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        if not self._has_overview(request):
            return super().index(request, extra_context)
        pages = self.get_model_admin(apps.get_model("turns.Turn")).urls
        overview: Any = next(page for page in pages if page.name == "turns_overview")
        answer: TemplateResponse = overview.callback(request)
        return answer

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Return the menu by task, then the other apps. The page of a single app lists all its models."""
        entries: list[Any] = super().get_app_list(request, app_label)
        if app_label is not None:
            return entries
        ours = {
            f"{app['app_label']}.{model['object_name']}": model
            for app in entries
            if app["app_label"] in APPS
            for model in app["models"]
        }
        groups = [
            self._group(key, name, [ours[label] for label in labels if label in ours])
            for key, name, labels in MENU
        ]
        if self._has_overview(request):
            groups[0]["models"].insert(0, self._overview(request))
        others = [app for app in entries if app["app_label"] not in APPS]
        return [group for group in groups if group["models"]] + others

    def _has_overview(self, request: HttpRequest) -> bool:
        is_registered = self.is_registered(apps.get_model("turns.Turn"))
        return is_registered and request.user.has_perm("turns.view_turn")

    def _group(self, key: str, name: Any, models: list[Any]) -> dict[str, Any]:
        return {
            "name": name,
            "app_label": f"console-{key}",
            "app_url": f"{self._home}#menu-{key}",
            "has_module_perms": True,
            "models": models,
        }

    def _overview(self, request: HttpRequest) -> dict[str, Any]:
        """Return the menu entry of the overview.

        The address of the overview is a prefix of all others, so Django would mark the entry as current on every page.
        On other pages than the index, the address therefore has a fragment.
        """
        is_here = request.path == self._home
        return {
            "name": _("Overview"),
            "object_name": "Overview",
            "perms": {"view": True},
            "admin_url": self._home if is_here else f"{self._home}#content",
            "add_url": None,
            "view_only": True,
        }

    @property
    def _home(self) -> str:
        return reverse("admin:index", current_app=self.name)


class ConsoleAdminConfig(AdminConfig):
    """Django's admin with `ConsoleSite` as its site."""

    default_site = "console.admin_site.ConsoleSite"

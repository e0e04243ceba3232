"""Run by `test_declared_once` in a copy of `governance`, in which a limit and a reason are declared and nowhere else."""

import json
import sys
from typing import Any

import django
from django.core.management import call_command

django.setup()

from django.contrib.auth import get_user_model  # noqa: E402
from django.contrib.auth.models import Permission  # noqa: E402
from django.core.exceptions import ValidationError  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import setup_test_environment  # noqa: E402

from governance import Cancellation, CancelReason, services  # noqa: E402
from governance.core.outcomes import not_started_text  # noqa: E402
from governance.core.policy import resolve  # noqa: E402
from governance.core.registry import registry  # noqa: E402
from governance.models import ToolPolicy  # noqa: E402
from governance.policies import read_policies  # noqa: E402
from turns.core.repairs import Cause  # noqa: E402
from turns.core.turns import ending_of  # noqa: E402
from turns.models import CancelRequest  # noqa: E402
from webchat import page_texts  # noqa: E402
from webchat.protocol import generators  # noqa: E402

PAGE = "/admin/governance/toolpolicy/{}/change/"


def in_force() -> Any:
    """Return the limit of the tool `wait`."""
    policy: Any = resolve(read_policies().levels(registry.get("wait")))
    return policy.warning_after


def client_of(name: str, *permissions: str) -> Client:
    """Return a browser of a person who may do this; everything without a list."""
    users = get_user_model().objects
    if permissions:
        user = users.create_user(name, is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    else:
        user = users.create_superuser(name)
    client = Client()
    client.force_login(user)
    return client


def of_reason() -> dict[str, Any]:
    """Return what the reason `budget` is in each place that tells why something was cancelled."""
    reason = CancelReason("budget")
    cancellation = Cancellation(reason=reason)
    request = CancelRequest(reason=reason.value)
    ended = ending_of(cancellation)
    [reasons] = [line for line in generators.script().splitlines() if "} CancelReason */" in line]
    return {
        "to the model": not_started_text("wait", cancellation),
        "of a turn before": Cause.of_ending(ended).clause,
        "status": ended.status.value,
        "in the admin": str(request.get_reason_display()),
        "on the page": str(page_texts.CHAT_TEXTS["by_budget"]),
        "in JavaScript": '"budget"' in reasons,
        "no change of tables": not call_command("makemigrations", "--check", "turns", verbosity=0),
    }


def main() -> None:
    """Write what became of the limit and the reason in each place."""
    setup_test_environment()
    call_command("makemigrations", "governance", name="limit", verbosity=0)
    call_command("migrate", verbosity=0)
    found: dict[str, Any] = {"built in": in_force()}
    change: Any = services.save_tool_policy(
        tool_name="wait", values={"warning_after_ms": 5_000}, by=None
    )
    found |= {"edited": in_force(), "audited": change.summary}
    try:
        services.save_tool_policy(tool_name="wait", values={"warning_after_ms": -1}, by=None)
    except ValidationError as refused:
        found["refused"] = list(refused.message_dict)
    url = PAGE.format(ToolPolicy.objects.get().pk)
    client = client_of("root")
    form = client.get(url).context["adminform"].form
    field = form["warning_after_ms"]
    found["form"] = [str(field.label), field.field.prepare_value(field.value())]
    sent = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    answer = client.post(url, {**sent, "warning_after_ms": "2 min"}, follow=True)
    found["saved"] = " ".join(map(str, answer.context["messages"]))
    found["in force"] = in_force()
    page = client_of("vera", "view_toolpolicy").get(url).content.decode()
    found["reason"] = of_reason()
    found["viewer"] = "Warning after:" in page and "2 min" in page
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()

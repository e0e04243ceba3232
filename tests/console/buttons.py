"""The buttons of the admin that change something, each with the permissions that the docs ask for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from governance.models import Approval, DefaultPolicy, PolicyChange, ToolPolicy
from tests.console.permission_table import FORGET, Needs, edits, sees
from turns.models import Agent, Conversation, RunningTurn, Turn
from webchat.models import ApiToken

CANCEL, DECIDE = frozenset({"turns.cancel_any"}), frozenset({"turns.decide_any"})
CONTENT = frozenset({"governance.view_content"})
LIMITS = ("governance_toolpolicy_changelist", ())
TOOL = ("governance_toolpolicy_tool", ("exec",))
RUNNING = ("turns_runningturn_changelist", ())
AGENTS = ("turns_agent_changelist", ())


@dataclass(frozen=True, kw_only=True)
class Button:
    """What it is called, where it is, what it sends, and what it needs."""

    name: str
    page: tuple[str, tuple[Any, ...]]
    needs: Needs
    sends: Callable[[Turn], dict[str, Any]]

    def press(self, client: Client, turn: Turn) -> HttpResponse:
        """Send what the button sends, whether the page shows it or not."""
        name, args = self.page
        args = tuple(arg(turn) if callable(arg) else arg for arg in args)
        answer: Any = client.post(reverse(f"admin:{name}", args=args), self.sends(turn))
        return answer


def _button(name: str, page: Any, needs: Needs, /, **sends: Any) -> Button:
    """Return a button that sends these values; one that is a function is asked when the button is pressed."""

    def read(turn: Turn) -> dict[str, Any]:
        return {key: value(turn) if callable(value) else value for key, value in sends.items()}

    return Button(name=name, page=page, needs=needs, sends=read)


def _action(name: str, page: Any, needs: Needs, row: Callable[[Turn], Any], **more: Any) -> Button:
    return _button(name, page, needs, action=name, _selected_action=row, **more)


def _agent(_turn: Turn) -> int:
    return Agent.objects.get(name="planner").pk


def _parked(_turn: Turn) -> object:
    return Conversation.objects.get(parked_at__isnull=False).pk


def _runs(turn: Turn) -> str:
    return f"{turn.pk}:runs"


def _question(turn: Turn) -> str:
    return f"{Approval.objects.get(call_id='asks').pk}:{turn.pk}:asks"


def _limits(name: str, verb: str = "change", *more: frozenset[str], tool: str = "exec") -> Button:
    needs = (*sees(ToolPolicy), *edits(ToolPolicy, verb), *more)
    return _button(name, LIMITS, needs, _act="1", action=name, chosen=tool)


BUTTONS = [
    _action("cancel_turns", ("turns_turn_changelist", ()), (*sees(Turn), CANCEL), lambda turn: turn.pk, why="stop"),
    _action("resume_conversations", ("turns_conversation_changelist", ()), (*sees(Conversation), CANCEL), _parked),
    _action("make_default", AGENTS, edits(Agent, "change"), _agent),
    _action("delete_selected", AGENTS, (*sees(Agent), *edits(Agent, "delete")), _agent, post="yes"),
    _action(
        "revoke", ("webchat_apitoken_changelist", ()), (frozenset({"webchat.change_apitoken"}),),
        lambda _turn: ApiToken.objects.get().pk,
    ),
    _limits("forbid"),
    _limits("put_out_of_force"),
    _limits("reset", "change", *edits(ToolPolicy, "delete")),
    _button("save", TOOL, edits(ToolPolicy, "change"), **{
        "_save": "Save", "exec-timeout_ms": "20 s", "exec-tool_enabled": "on", "exec-revision": "1",
    }),
    _button("revert", TOOL, edits(ToolPolicy, "change"), _revert=lambda _turn: PolicyChange.objects.first().pk),
    _button("cancel", RUNNING, (*sees(RunningTurn), CANCEL), cancel=_runs, why="wrong customer"),
    _button("extend", RUNNING, (*sees(RunningTurn), CANCEL), extend=lambda turn: f"30:{_runs(turn)}"),
    _button("allow", RUNNING, (*sees(RunningTurn), DECIDE, CONTENT), allow=_question),
    _button("deny", RUNNING, (*sees(RunningTurn), DECIDE), deny=_question, why="not here"),
    _button(
        "all", RUNNING, (*sees(RunningTurn), CANCEL), all="turns", why="stop",
        counted_at=lambda _turn: timezone.now().isoformat(),
    ),
    _button("add_agent", ("turns_agent_add", ()), edits(Agent, "add"), name="librarian", is_enabled="on", which_tools="all"),
    _button("delete_limits", ("governance_toolpolicy_delete", (lambda _turn: ToolPolicy.objects.get().pk,)), edits(ToolPolicy, "delete"), post="yes"),
    _button("add_token", ("webchat_apitoken_add", ()), edits(ApiToken, "add"), name="nightly"),
    _button("forget", ("turns_forget_user", (lambda turn: turn.conversation.owner_id,)), FORGET, why="asked for it"),
    _button(
        "disconnects", ("turns_disconnectpolicy_change", (1,)), (frozenset({"turns.change_disconnectpolicy"}),),
        policy="detach", grace_ms="30 s", unattended_limit_ms="2 h",
    ),
    _button(
        "default_limits", ("governance_defaultpolicy_change", (1,)), (frozenset({"governance.change_defaultpolicy"}),),
        timeout_ms="50 s", tool_enabled="on", revision=lambda _turn: DefaultPolicy.objects.get().revision,
    ),
]  # fmt: skip

"""Checks a call before it runs: its tool, policy and arguments, and a person's approval where the policy requires
one.

It runs before the call is queued and before its clock starts (T5). `still_allows` checks again when the call leaves
the queue.
"""

import logging
from collections.abc import Container
from dataclasses import replace
from typing import Any, TypeAlias

from governance.core import outcomes
from governance.core.approvals import Decision, Question, Verdict
from governance.core.calls import CallStatus, ToolOutcome
from governance.core.containment import EXITS, contained_failure
from governance.core.exceptions import (
    ApprovalUnavailable,
    GovernanceError,
    InvalidToolInput,
    ToolDisabled,
    ToolExecutionError,
    UnknownTool,
)
from governance.core.live_call import LiveCall
from governance.core.policy import ApprovalRule, Hint, Policy, PolicyLevels, resolve, stricter
from governance.core.ports import Approver, Host, PolicySource
from governance.core.registry import ToolRegistry
from governance.core.tools import Isolation, Tool

logger = logging.getLogger(__name__)

CheckedCall: TypeAlias = tuple[Tool, dict[str, Any]]
_Given: TypeAlias = tuple[PolicyLevels, Hint | None, ApprovalRule]


class Preflight:
    """The checks of one executor. Tools of an isolation that is not in `isolations` cannot run here."""

    def __init__(
        self, *, registry: ToolRegistry, policies: PolicySource, isolations: Container[Isolation]
    ) -> None:
        self._registry = registry
        self._policies = policies
        self._isolations = isolations
        self._resolved: dict[str, tuple[_Given, Policy]] = {}  # the last one of each tool

    async def check(self, live: LiveCall, host: Host) -> CheckedCall | ToolOutcome:
        """Check the call, and request approval where its policy requires it; again if the tool changed meanwhile
        (D4).

        Raises:
            Exception: whatever the approver raised.
        """
        while True:
            checked = self._checked(live, host)
            if isinstance(checked, ToolOutcome):
                return checked
            tool, policy = checked[0], live.limits.policy
            if policy is None or live.approval.clears(tool, policy.approval):
                return checked
            if host.approver is None:
                return outcomes.refused(live, ApprovalUnavailable(tool.name))
            is_about_host = self._tool_policy(live, tool, host).approval is ApprovalRule.NEVER
            decision = await _request_approval(
                live, tool, policy, approver=host.approver, is_about_host=is_about_host
            )
            if decision.verdict is not Verdict.APPROVED:
                return outcomes.not_allowed(live, decision)

    def still_allows(self, live: LiveCall, tool: Tool, host: Host) -> bool:
        """Apply the present policy to a call that is about to start. Return False if it needs a new check.

        While it waited, an administrator may have disabled its tool, or required approval.
        """
        policy = self._apply_policy(live, tool, host)
        return policy.enabled and live.approval.clears(tool, policy.approval)

    def _apply_policy(self, live: LiveCall, tool: Tool, host: Host) -> Policy:
        policy = self.policy_for(live, tool, host)
        live.limits.set_policy(policy)
        return policy

    def policy_for(self, live: LiveCall, tool: Tool, host: Host) -> Policy:
        """Return the policy that the call has at this moment."""
        policy = self._tool_policy(live, tool, host)
        if not live.approval.unknown_host:
            return policy
        rule = stricter(policy.approval, ApprovalRule.ONCE_PER_CONVERSATION)
        return replace(policy, approval=rule)

    def _tool_policy(self, live: LiveCall, tool: Tool, host: Host) -> Policy:
        """Return the tool's policy, without regard to the host that the call reaches."""
        levels = self._policies.levels(tool)
        if tool.asks_for is not None and not tool.needs_approval(live.call.input):
            levels = replace(levels, declared=replace(levels.declared, approval=None))
        given = (levels, live.limits.hint, host.approval)
        known = self._resolved.get(tool.name)
        if known is None or known[0] != given:
            policy = resolve(levels, hint=live.limits.hint, at_least=host.approval)
            known = self._resolved[tool.name] = given, policy
        return known[1]

    def _checked(self, live: LiveCall, host: Host) -> CheckedCall | ToolOutcome:
        try:
            return self._find_tool(live, host)
        except GovernanceError as error:
            return outcomes.refused(live, error)
        except EXITS as error:
            return _not_checked(live, contained_failure(error))
        except Exception as error:  # noqa: BLE001 - it is logged
            return _not_checked(live, error)

    def _find_tool(self, live: LiveCall, host: Host) -> CheckedCall:
        """Find the tool, its policy and the arguments, and refuse what needs no person to refuse."""
        if host.allowed is not None and live.call.tool_name not in host.allowed:
            raise UnknownTool(live.call.tool_name)
        tool = live.tool = live.own_tool or self._registry.get(live.call.tool_name)
        if tool.off is not None and (reason := tool.disabled_reason()):
            raise ToolDisabled(tool.name, reason)
        if live.call.problem:
            raise InvalidToolInput(tool.name, live.call.problem)
        live.limits.hint = tool.hint(live.call.input)
        live.approval.unknown_host = tool.unapproved_host(live.call.input)
        if not self._apply_policy(live, tool, host).enabled:
            raise ToolDisabled(tool.name)
        if tool.isolation not in self._isolations:
            logger.warning(
                "The tool %r is refused: it runs as %r, and this ToolExecutor has no invoker for that in `invokers`",
                tool.name,
                tool.isolation.value,
                extra=outcomes.log_fields(live),
            )
            raise GovernanceError(f"The tool {tool.name!r} cannot be run here.")
        arguments = {name: value for name, value in live.call.input.items() if name != "_meta"}
        return tool, tool.validate(arguments)


def _not_checked(live: LiveCall, error: Exception) -> ToolOutcome:
    logger.error(
        "A tool call could not be checked",
        extra=outcomes.log_fields(live, error=error),
        exc_info=error,
    )
    return outcomes.refused(live, ToolExecutionError(live.call.tool_name, error))


async def _request_approval(
    live: LiveCall, tool: Tool, policy: Policy, *, approver: Approver, is_about_host: bool
) -> Decision:
    """Ask the question, wait for its end, and let the approver decide which answer was first (D4)."""
    question = live.approval.question = Question(
        rule=policy.approval,
        timeout=policy.approval_timeout,
        definition=tool.definition,
        description=tool.description,
        host=live.approval.unknown_host,
        is_about_host=is_about_host,
    )
    earlier = await approver.ask(live)
    if earlier is not None and earlier.verdict is Verdict.APPROVED:
        live.approval.clear(tool, rule=policy.approval)
        return earlier
    live.change_status(CallStatus.AWAITING_APPROVAL)
    if earlier is not None:
        return earlier
    decision = await approver.conclude(live, await question.decided(live.token))
    if decision.verdict is Verdict.APPROVED:  # approval of this very call satisfies any rule
        live.approval.clear(tool, rule=ApprovalRule.ALWAYS)
        live.change_status(CallStatus.PENDING)
    return decision

"""The limits that the project's settings give to single tools, and what each of them changes."""

import logging
from collections.abc import Iterator

from governance.conf import app_settings
from governance.core.policy import ToolLimits
from governance.core.registry import registry
from governance.durations import format_limit, limit_ms
from governance.policies import Policies

logger = logging.getLogger(__name__)


def log_limits(policies: Policies) -> None:
    """Write once, at the start of a process, which limits of the settings count and what they stand in for."""
    if app_settings.TOOL_TIMEOUTS:
        logger.info("Limits of GOVERNANCE_TOOL_TIMEOUTS: %s", "; ".join(_descriptions(policies)))


def _descriptions(policies: Policies) -> Iterator[str]:
    for name, timeout in sorted(app_settings.TOOL_TIMEOUTS.items()):
        text = f"{name} {format_limit(limit_ms(timeout))}"
        if policies.overrides.get(name, ToolLimits()).timeout is not None:
            text += " (without effect: an administrator's limit is stronger)"
        elif name not in registry:
            text += " (no tool of this name is known yet)"
        elif (declared := registry.get(name).limits.timeout) is not None:
            text += f" (the tool declares {format_limit(limit_ms(declared))})"
        yield text

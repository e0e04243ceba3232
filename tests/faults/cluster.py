"""Starts the usual processes of a scaled site, with leases short enough to wait for, or those of production."""

import time
from typing import Any

from tests.faults.site import Site
from tests.processes import Process
from tests.support import with_room
from turns.conf import TurnsSettings

TTL = 4.0
LEASE: dict[str, Any] = {
    "TURNS_LEASE_TTL": TTL,
    "TURNS_LEASE_FENCE_AFTER": TTL * 2 / 3,
    "TURNS_LEASE_RENEW_INTERVAL": TTL / 8,
    "TURNS_SWEEP_INTERVAL": 0.5,
}
DEFAULT_LEASE: dict[str, Any] = {
    f"TURNS_{name}": getattr(TurnsSettings, name)
    for name in ("LEASE_TTL", "LEASE_FENCE_AFTER", "LEASE_RENEW_INTERVAL")
}
REAPED = with_room(TTL + 3.0)  # seconds in which a process that is silent has lost its turns


def start_scaled(site: Site, *, runners: int = 2, **faults: Any) -> None:
    """Start one web process and some runners."""
    for number in range(runners):
        site.run_turns(f"runner{number}", **faults)
    site.serve(role="web", **faults)


def let_pass(seconds: float, *, since: float | None = None) -> None:
    """Let a fault last, from now or from a moment of the monotonic clock on.

    Only where the time that passes is the fault: who waits for something waits for that.
    """
    gone = 0.0 if since is None else time.monotonic() - since
    time.sleep(max(0.0, seconds - gone))


def other_runner(site: Site, than: Process) -> Process:
    """Return a runner that is not this one."""
    return next(
        process
        for process in site.processes.values()
        if process.name.startswith("runner") and process is not than
    )

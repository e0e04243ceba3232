"""A site's usual processes, and spans that are short enough to wait for."""

from typing import Any

from tests.faults.processes import Process
from tests.faults.site import Site

TTL = 4.0
LEASE: dict[str, Any] = {
    "TURNS_LEASE_TTL": TTL,
    "TURNS_LEASE_FENCE_AFTER": TTL * 2 / 3,
    "TURNS_LEASE_RENEW_INTERVAL": TTL / 8,
    "TURNS_SWEEP_INTERVAL": 0.5,
}
REAPED = TTL + 3.0  # seconds in which a process that is silent has lost its turns


def start_scaled(site: Site, *, runners: int = 2, **faults: Any) -> None:
    """Start one web process and some runners."""
    for number in range(runners):
        site.run_turns(f"runner{number}", **faults)
    site.serve_uvicorn(role="web", **faults)


def other_runner(site: Site, than: Process) -> Process:
    """Return a runner that is not this one."""
    return next(
        process
        for process in site.processes.values()
        if process.name.startswith("runner") and process is not than
    )

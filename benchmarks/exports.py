"""`python -m benchmarks.exports`: what a large export takes of a server's memory, and when it ends without its reader."""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.site import scratch_site
from scripts.servers import free_port

PATIENCE = 60.0
LEAVES_AFTER = 1_000_000  # bytes
QUIET = 2.0  # seconds without another row: it has ended
SERVERS = {
    "serve": ("manage.py", "serve", "--port", "{port}"),
    "uvicorn": (
        "-m",
        "uvicorn",
        "--log-level",
        "error",
        "--port",
        "{port}",
        "config.asgi:application",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server of the generated site, and somebody who is signed in there."""

    pid: int
    reader: httpx.Client

    def forget_peak(self) -> float:
        """Measure the peak from now on; return the memory of now, in MiB."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.peak

    @property
    def peak(self) -> float:
        """The most resident memory since then, in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        [kibibytes] = re.findall(r"VmHWM:\s+(\d+) kB", status)
        return int(kibibytes) / 1024


def main() -> None:
    """Generate the calls, then let each server export them twice: to its end, and to a reader who leaves."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exports", description=__doc__)
    parser.add_argument("--calls", type=int, default=200_000)
    options = parser.parse_args()
    os.environ["HTTPS"] = "false"  # the servers are asked without a proxy
    with scratch_site():
        from benchmarks import admin_past  # noqa: PLC0415 - its models want Django
        from governance import registry  # noqa: PLC0415

        admin_past.generate(options.calls, tools=sorted(tool.name for tool in registry)[:12])
        cookies = _signed_in()
        print(
            "\n| Server | rows | file | took | memory before | peak | rows after the reader left |"
        )
        print("|---|--:|--:|--:|--:|--:|--:|")
        for name, command in SERVERS.items():
            with _serving(command, cookies) as server:
                print(f"| {name} | {_read_whole(server)} | {_leave(server)} |", flush=True)


def _signed_in() -> dict[str, str]:
    from django.conf import settings  # noqa: PLC0415
    from django.contrib.auth import get_user_model  # noqa: PLC0415
    from django.test import Client  # noqa: PLC0415

    client = Client()
    client.force_login(get_user_model().objects.create_superuser("reader"))
    return {settings.SESSION_COOKIE_NAME: client.cookies[settings.SESSION_COOKIE_NAME].value}


@contextmanager
def _serving(command: tuple[str, ...], cookies: dict[str, str]) -> Iterator[Server]:
    port = free_port()
    words = [word.format(port=port) for word in command]
    process = subprocess.Popen([sys.executable, *words])
    try:
        base = f"http://127.0.0.1:{port}"
        with httpx.Client(
            base_url=base, cookies=cookies, timeout=PATIENCE, trust_env=False
        ) as reader:
            _until_ready(reader)
            yield Server(pid=process.pid, reader=reader)
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _until_ready(reader: httpx.Client) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            if reader.get("/healthz").is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise TimeoutError


@contextmanager
def _export(server: Server) -> Iterator[Iterator[bytes]]:
    from django.urls import reverse  # noqa: PLC0415

    address = reverse("admin:governance_toolcall_export", args=["csv"])
    with server.reader.stream("GET", address, params={"when": "any"}) as answer:
        answer.raise_for_status()
        yield answer.iter_raw()


def _last_export() -> Any:
    from governance.models import Export  # noqa: PLC0415

    return Export.objects.latest("pk")


def _read_whole(server: Server) -> str:
    with _export(server) as parts:  # what is loaded at the first request is no part of the next one
        next(parts)
    before, began = server.forget_peak(), time.perf_counter()
    with _export(server) as parts:
        size = sum(map(len, parts))
    took = time.perf_counter() - began
    rows = _last_export().rows
    return (
        f"{rows:,} | {size / 1e6:.0f} MB | {took:.0f} s | {before:.0f} MiB | {server.peak:.0f} MiB"
    )


def _leave(server: Server) -> str:
    """Read a little, go away, and return how many rows were read after that."""
    taken = 0
    with _export(server) as parts:
        for part in parts:
            taken += len(part)
            if taken > LEAVES_AFTER:
                break
        at_leaving = _last_export().rows
    rows, since = at_leaving, time.monotonic()
    while time.monotonic() - since < QUIET:
        export = _last_export()
        if export.finished_at is not None:
            return "all of them"
        if export.rows != rows:
            rows, since = export.rows, time.monotonic()
        time.sleep(0.1)
    return f"{rows - at_leaving:,}"


if __name__ == "__main__":
    main()

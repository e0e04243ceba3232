"""The site sends its traces where OpenTelemetry's variables say, and says what is missing."""

import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from tests.support import PATIENCE

ROOT = Path(__file__).parents[2]
PROGRAM = """
import django
django.setup()
from governance import Span
with Span("execute_tool look", {"gen_ai.tool.name": "look"}):
    pass
"""
WITHOUT_SDK = "import sys; sys.modules.update({'opentelemetry.sdk': None})"

Received = Queue[tuple[str, bytes]]


@pytest.fixture
def collector() -> Iterator[tuple[str, Received]]:
    received: Received = Queue()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.put((self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = Thread(target=server.serve_forever, name="collector of traces")
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    thread.join()
    server.server_close()


def run(program: str, tmp_path: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    ours = {"DJANGO_SETTINGS_MODULE": "config.settings", "ENV_FILE": str(tmp_path / ".env")}
    environment = {**os.environ, **ours, "VAR_DIR": str(tmp_path), **environment}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=ROOT
    )


def test_the_spans_of_the_site_reach_the_collector(collector, tmp_path):
    url, received = collector
    (tmp_path / ".env").write_text(f"OTEL_EXPORTER_OTLP_ENDPOINT={url}\n")
    ran = run(PROGRAM, tmp_path, OTEL_EXPORTER_OTLP_COMPRESSION="none")
    assert ran.returncode == 0, ran.stderr
    path, body = received.get(timeout=PATIENCE)
    assert path == "/v1/traces"
    for said in (b"execute_tool look", b"gen_ai.tool.name", b"turnkeeper", b"django-turnkeeper"):
        assert said in body


def test_an_endpoint_without_the_packages_says_what_to_install(tmp_path):
    ran = run(WITHOUT_SDK + PROGRAM, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert ran.returncode != 0
    assert "make base EXTRAS=otel" in ran.stderr

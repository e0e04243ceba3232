"""What a start leaves alone: libraries that only some processes need, so that every command and worker begins sooner."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support import LONG_PATIENCE

ROOT = Path(__file__).resolve().parents[2]
LATER = {  # imported where they are used
    "anthropic",
    "channels_redis",
    "google.genai",
    "httpx2",
    "jsonschema",
    "markdown_it",
    "mcp",
    "openai",
    "playwright",
    "psycopg",
    "pydantic_ai",
    "redis",
    "uvicorn",
    "websockets",
}
START = """
import json, sys
import config.asgi
print(json.dumps([*sys.modules]))
"""


def test_a_start_imports_nothing_that_only_some_processes_need(tmp_path):
    environment = {"PATH": os.environ["PATH"], "ENV_FILE": os.devnull, "VAR_DIR": str(tmp_path)}
    started = subprocess.run(
        [sys.executable, "-c", START],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG_PATIENCE,
        check=True,
    )
    imported = {*json.loads(started.stdout)}
    assert "turns.services" in imported  # the site is there
    assert LATER & imported == set()

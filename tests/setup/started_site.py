"""A site that a script starts in a process of its own, as `make run` does."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.governance.core.process_table import tagged
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def started_site(
    script: str, *, var: Path, port: int, is_up: Callable[[str], bool], **more: str
) -> Iterator[Path]:
    """Run a site until the block ends; Ctrl-C then has to end it, and everything that it started.

    `is_up` gets the site's output so far and returns whether the site serves. The block gets the file of the output. Any
    failure, in the block too, carries the output as a note: a site that hangs or starves can be understood only from it.
    """
    environment = {
        "PATH": os.environ["PATH"],
        "ENV_FILE": os.devnull,
        "VAR_DIR": str(var),
        "PORT": str(port),
        "TURNKEEPER_TEST": str(var),
        **more,
    }
    output = var / "output.txt"
    command = [sys.executable, "-m", script]
    with output.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=file)
    try:
        eventually_sync(
            lambda: is_up(output.read_text()) or process.poll() is not None, timeout=LONG_PATIENCE
        )
        assert process.poll() is None, f"the site ended with {process.returncode}"
        yield output
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 0
        tag = f"TURNKEEPER_TEST={var}"
        eventually_sync(lambda: not tagged(tag))
    except BaseException as error:
        state = "runs" if process.poll() is None else f"ended with {process.returncode}"
        error.add_note(f"{script} {state}. Its output:\n{output.read_text()}")
        raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextmanager
def signed_in(url: str, *, password: str) -> Iterator[httpx.Client]:
    """Sign the first user in, and give the block the client."""
    with httpx.Client(
        base_url=url, trust_env=False, timeout=LONG_PATIENCE, headers={"Referer": url}
    ) as client:
        page = client.get("/login/")
        [token] = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)[:1]
        form = {"username": "demo", "password": password, "csrfmiddlewaretoken": token}
        client.post("/login/", data=form)
        client.headers["X-CSRFToken"] = client.cookies.get("csrftoken") or ""
        yield client

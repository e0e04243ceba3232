"""The examples of docs/howto/pydantic-ai.md that need no Django."""

import asyncio
import importlib
import os
import subprocess
import sys

import pytest

from governance import Cancellation, CancellationToken, CancelReason
from governance.contrib.pydantic_ai import Governance
from tests.docs.pages import DOCS, python_blocks
from tests.governance.contrib.support import call, make_executor, scripted
from tests.support import eventually


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Import the page's examples as one module, as its reader would write them."""
    blocks = python_blocks(DOCS / "howto" / "pydantic-ai.md")
    module = "\n".join(block for block in blocks if "get_executor" not in block)
    (tmp_path / "rooms.py").write_text(module, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    # for the worker processes, and for another program
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(DOCS.parent))))
    yield importlib.import_module("rooms")
    sys.modules.pop("rooms")


async def test_the_agent_answers_with_both_of_its_tools(page, capsys):
    steps = [call("book", room="The attic"), call("primes_below", limit=100)]
    with page.agent.override(model=scripted(steps)):
        await page.main("A room, and how many?")

    assert capsys.readouterr().out == "The attic is Ada's.|25\n"


async def test_without_worker_processes_model_and_developer_are_told_so(page, caplog):
    model = scripted([call("primes_below", limit=100)])
    result = await page.agent.run("go", model=model, deps="", capabilities=[Governance()])

    assert "cannot be run here" in result.output
    assert "'primes_below' is refused: it runs as 'process'" in caplog.text


def test_nothing_of_django_is_imported(page):
    look = (
        "import sys, rooms; print([name for name in ('django', 'channels') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)

    assert ran.stdout == "[]\n"


async def test_one_call_is_cancelled(page):
    executor = make_executor()
    token = CancellationToken()

    @page.agent.tool_plain
    async def wait() -> None:
        await token.wait()

    async def cancelled():
        return page.cancel_call(executor, "a", by="Ada")

    running = asyncio.create_task(
        page.agent.run(
            "go",
            model=scripted([call("wait", "a")]),
            deps="",
            capabilities=[Governance(executor)],
        )
    )
    assert await eventually(cancelled)
    assert "by the user" in (await running).output
    token.cancel(Cancellation(reason=CancelReason.USER))


async def test_the_callable_adds_up(page):
    assert await page.total([1, 2], stop=CancellationToken()) == 3

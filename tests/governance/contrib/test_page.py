"""The examples of docs/howto/pydantic-ai.md that need no Django."""

import asyncio
import importlib
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
    (tmp_path / "agent_of_the_page.py").write_text(module, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # for the worker processes
    yield importlib.import_module("agent_of_the_page")
    sys.modules.pop("agent_of_the_page")


async def test_the_agent_answers(page):
    with page.agent.override(model=scripted([call("book", room="The attic")])):
        said = await page.answer("A room?", user="Ada", stop=CancellationToken())

    assert said == "The attic is Ada's."


async def test_without_worker_processes_the_model_is_told_so(page):
    with page.agent.override(model=scripted([call("primes_below", limit=100)])):
        said = await page.answer("How many?", user="Ada", stop=CancellationToken())

    assert "cannot be run here" in said


async def test_with_worker_processes_it_counts(page):
    executor = page.make_executor()
    model = scripted([call("primes_below", limit=100)])
    result = await page.agent.run("go", model=model, deps="", capabilities=[Governance(executor)])
    await executor.aclose()

    assert result.output == "25"
    assert isinstance(await page.make_rules(), Governance)


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

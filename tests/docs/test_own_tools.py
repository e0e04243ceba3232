"""The tools of docs/howto/own-tools.md, run as a model's calls are run."""

import importlib
import json

import pytest
import pytest_asyncio

from governance import (
    CallStatus,
    ErrorType,
    Host,
    Isolation,
    ToolCall,
    ToolExecutor,
    Unobserved,
    registry,
)
from governance.core.invokers.process import ProcessInvoker
from governance.core.invokers.thread import ThreadInvoker
from tests.docs.pages import DOCS, python_blocks

NAMES = {"order_status", "import_catalogue", "stock_report", "count_primes", "refund"}


class Progresses(Unobserved):
    """Remembers the tools' last signs of life."""

    def __init__(self):
        self.last = {}

    async def call_ended(self, call, outcome):
        self.last[call.call.tool_name] = call.last_progress


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Import the page's module as that of an app; its tools are in the registry while the test runs."""
    blocks = python_blocks(DOCS / "howto" / "own-tools.md")
    (tmp_path / "tools_of_the_page.py").write_text(blocks[0], "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # for the worker processes
    before = {tool.name for tool in registry}
    yield importlib.import_module("tools_of_the_page")
    for name in {tool.name for tool in registry} - before:
        registry.unregister(name)
    importlib.sys.modules.pop("tools_of_the_page")


@pytest_asyncio.fixture
async def executor():
    made = ToolExecutor(
        registry=registry,
        invokers={
            Isolation.THREAD: ThreadInvoker(max_threads=2, max_abandoned=1),
            Isolation.PROCESS: ProcessInvoker(max_workers=1, kill_grace=0.4),
        },
    )
    yield made
    await made.aclose()


async def run(executor, name, *, observer=None, **arguments):
    call = ToolCall(id="1", tool_name=name, input=arguments)
    return await executor.run(call, host=Host(observer=observer or Unobserved()))


async def test_every_tool_of_the_page_does_what_it_says(example, executor):
    progresses = Progresses()
    results = {
        name: await run(executor, name, observer=progresses, **arguments)
        for name, arguments in {
            "order_status": {"order": 7},
            "import_catalogue": {"pages": 2},
            "stock_report": {},
            "count_primes": {"below": 100},
            "refund": {"order": 7, "cents": 250},
        }.items()
    }
    assert set(results) == NAMES == {name for name in NAMES if name in registry}
    assert {outcome.status for outcome in results.values()} == {CallStatus.SUCCEEDED}
    assert results["order_status"].result == "Order 7 is on its way."
    assert results["count_primes"].result == "25"
    assert json.loads(results["stock_report"].result) == ["A: 3 left", "B: 3 left", "C: 3 left"]
    assert json.loads(results["refund"].result) == {"order": 7, "refunded_cents": 250}
    assert progresses.last["import_catalogue"].message == "page 2"


async def test_a_sentence_for_the_model_reaches_it_word_for_word(example, executor):
    outcome = await run(executor, "order_status", order=9001)
    assert outcome.status is CallStatus.FAILED
    assert outcome.result == "There is no order 9001. Ask the customer for the number."


async def test_input_that_does_not_fit_is_refused_before_the_tool_runs(example, executor):
    outcome = await run(executor, "refund", order=0, cents=-1)
    assert outcome.error_type is ErrorType.INVALID_INPUT
    assert "order" in outcome.result
    assert "cents" in outcome.result


def test_the_tools_run_where_the_page_says(example):
    assert {name: registry.get(name).isolation.value for name in NAMES} == {
        "order_status": "async",
        "import_catalogue": "async",
        "stock_report": "thread",
        "count_primes": "process",
        "refund": "async",
    }
    schema = registry.get("order_status").input_schema
    assert schema["properties"]["order"]["description"] == "The number on the invoice."
    assert "context" not in registry.get("import_catalogue").input_schema["properties"]

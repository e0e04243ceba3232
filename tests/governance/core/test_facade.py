"""The governance layer is usable in any program: its facade needs no framework (B8)."""

import sys

import governance
from tests.support import run_program

PROGRAM = """
import asyncio, sys
import governance

async def add(a: int, b: int) -> int:
    return a + b

async def main():
    tools = governance.ToolRegistry({"add": governance.make_tool(add)})
    executor = governance.ToolExecutor(registry=tools)
    call = governance.ToolCall(id="1", tool_name="add", input={"a": 2, "b": 3})
    print((await executor.run(call)).result)

asyncio.run(main())
frameworks = {"django", "channels", "asgiref", "ninja", "uvicorn"}
print(sorted(frameworks & {name.partition(".")[0] for name in sys.modules}))
"""


def test_a_tool_runs_under_its_rules_without_any_framework():
    process = run_program([sys.executable, "-W", "error", "-c", PROGRAM])

    assert (process.stdout.splitlines(), process.stderr) == (["5", "[]"], "")


def test_every_public_name_is_there():
    missing = [name for name in governance.__all__ if not hasattr(governance, name)]

    assert missing == []
    assert list(governance.__all__) == sorted(governance.__all__, key=_constants_first)


def _constants_first(name):
    return (not name.isupper(), name[0].islower(), name)

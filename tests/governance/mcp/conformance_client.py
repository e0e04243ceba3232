"""The client that the official conformance suite runs: connects to the URL that it gets and makes the calls that it names.

Without names, it calls each tool once. The person who is asked accepts each form as it is shown.
"""

import asyncio
import json
import os
import sys

import django

from governance import Decision, Host, ToolCall, ToolExecutor, ToolRegistry, Verdict
from governance.mcp.specs import ServerSpec, Transport
from governance.mcp.tools import McpTools
from tests.governance.mcp.support import QUICK, RecordingHealth
from tests.support import NoApprovals

SAMPLES = {"number": 5, "integer": 5, "string": "text", "boolean": True}


class Accepting:
    """The person."""

    async def ask(self, call):
        call.question.id = "1"
        fields = call.question.form["fields"]
        shown = {it["name"]: it["default"] for it in fields if it["default"] is not None}
        call.answer(Decision(verdict=Verdict.APPROVED, question="1", answers=shown))

    async def conclude(self, _call, decision):
        return decision


def calls(tools):
    """Return the calls to make; a tool that wants a schema gets that of the first tool."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    if named := context.get("toolCalls"):
        return [(call["name"], _without_null(call["arguments"])) for call in named]
    samples = {**SAMPLES, "object": tools[0].input_schema} if tools else SAMPLES
    return [
        (
            tool.name,
            {
                name: samples[part["type"]]
                for name, part in tool.input_schema.get("properties", {}).items()
                if part.get("type") in samples
            },
        )
        for tool in tools
    ]


def _without_null(arguments):
    """Leave null out, because a call whose argument does not match the tool's schema is refused here."""
    return {name: value for name, value in arguments.items() if value is not None}


async def main(url):
    registry, health = ToolRegistry(), RecordingHealth()
    tools = McpTools(registry=registry, health=health, timing=QUICK, allow_private=lambda: True)
    executor = ToolExecutor(registry=registry, policies=NoApprovals())
    spec = ServerSpec(
        id=1, name="suite", transport=Transport.HTTP, url=url, timeout=20.0, asks_people=True
    )
    try:
        tools.apply([spec])
        await tools.ready()
        assert not health.failures, health.failures
        for number, (name, arguments) in enumerate(calls(list(registry))):
            call = ToolCall(id=str(number), tool_name=name, input=arguments)
            outcome = await executor.run(call, host=Host(approver=Accepting()))
            sys.stdout.write(f"{name}: {outcome}\n")
    finally:
        await executor.aclose()
        await tools.aclose()


if __name__ == "__main__":
    django.setup()
    asyncio.run(main(sys.argv[-1]))

"""The same turn on the loops of installed libraries: three calls side by side, then an answer."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks import library
from benchmarks.core import Shape
from benchmarks.measurement import Subject
from benchmarks.progress import say

SHAPE = Shape(name="3", what="3 calls and an answer", parallel=3, steps=1)
PYDANTIC_AI, OPENAI_AGENTS, LANGGRAPH = "pydantic_ai", "openai_agents", "langgraph"
WORDS = {
    PYDANTIC_AI: "pydantic-ai's streamed turn in memory",
    OPENAI_AGENTS: "openai-agents' streamed turn in memory",
    LANGGRAPH: "LangGraph's turn with its SQLite checkpointer",
}
# What comes with the extra `peers`: what has to be there, and the module here that knows it.
OPTIONAL = {
    OPENAI_AGENTS: (("agents",), "benchmarks.peer_openai_agents"),
    LANGGRAPH: (("langgraph", "aiosqlite"), "benchmarks.peer_langgraph"),
}


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[dict[str, Subject]]:
    """Give what runs one turn of each library; what has a database has it in a directory."""
    async with AsyncExitStack() as stack:
        subjects: dict[str, Subject] = {PYDANTIC_AI: library.turn_of(SHAPE)}
        for name, (wanted, module) in OPTIONAL.items():
            if all(map(find_spec, wanted)):
                opening = import_module(module).opened(directory, calls=SHAPE.calls)
                subjects[name] = await stack.enter_async_context(opening)
            else:
                say(f"Without {name}, which is not installed (make bench EXTRAS=peers)")
        yield subjects

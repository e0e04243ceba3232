"""A durable turn of LangGraph: a node for the model, one for its tools, and a checkpoint in SQLite after each step."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from benchmarks.bare import noop
from benchmarks.measurement import Subject


class _Model(BaseChatModel):  # type: ignore[misc] # untyped where it is not installed
    calls: int

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **_how: Any) -> ChatResult:
        said = AIMessage("done")
        if isinstance(messages[-1], HumanMessage):
            asked = [
                {"name": "noop", "args": {"number": number}, "id": uuid4().hex}
                for number in range(self.calls)
            ]
            said = AIMessage("", tool_calls=asked)
        return ChatResult(generations=[ChatGeneration(message=said)])


@asynccontextmanager
async def opened(directory: Path, *, calls: int) -> AsyncIterator[Subject]:
    """Give what runs one turn, in a thread (a conversation) of its own each time."""
    model = _Model(calls=calls)

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", answer)
    graph.add_node("tools", ToolNode([tool(noop)]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    file = directory / "langgraph.sqlite3"
    async with AsyncSqliteSaver.from_conn_string(str(file)) as saver:
        app = graph.compile(checkpointer=saver)

        async def run() -> None:
            thread = {"configurable": {"thread_id": uuid4().hex}}
            ended = await app.ainvoke({"messages": [HumanMessage("go")]}, thread)
            if ended["messages"][-1].content != "done":
                raise RuntimeError("The turn did not come to its end.")

        yield run

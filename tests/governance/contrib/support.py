"""What the tests of governance for others use: a model that follows a script, tools, an executor."""

import threading
import time

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from governance import Isolation, Timing, ToolExecutor, ToolRegistry
from governance.core.invokers.process import ProcessInvoker
from governance.core.invokers.thread import ThreadInvoker


def call(name, tool_call_id=None, **arguments):
    """A model's request for a tool."""
    return ToolCallPart(name, arguments, tool_call_id=tool_call_id or f"call-{name}")


def scripted(*steps):
    """A model that asks for the tools of each step in turn, and then says what the last results were."""
    waiting = iter(steps)

    def answer(messages, info):
        if (step := next(waiting, None)) is not None:
            return ModelResponse(parts=list(step))
        results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        said = "|".join(part.model_response_str(wrap_if_error=False) for part in results)
        return ModelResponse(parts=[TextPart(said)])

    return FunctionModel(answer)


def returns_of(result):
    """What came back from every tool of a run, by the id of its call."""
    parts = [part for message in result.all_messages() for part in message.parts]
    return {part.tool_call_id: part for part in parts if isinstance(part, ToolReturnPart)}


def make_executor(*, policies=None, registry=None, processes=False, **limits):
    """An executor that gives up soon; with worker processes if a test wants them."""
    invokers = {Isolation.THREAD: ThreadInvoker(max_threads=4, max_abandoned=2)}
    if processes:
        invokers[Isolation.PROCESS] = ProcessInvoker(max_workers=1, kill_grace=0.2)
    return ToolExecutor(
        registry=ToolRegistry() if registry is None else registry,
        policies=policies,
        # A process is killed to end it, which takes a moment. A coroutine that goes on is given up at once.
        timing=Timing(cancel_grace=5.0 if processes else 0.1, notice_interval=0.01),
        invokers=invokers,
        **limits,
    )


def double(number: int) -> int:
    """Double a number, in whatever process this is."""
    return 2 * number


def spin() -> None:
    """Never end, and never listen."""
    while True:
        time.sleep(0.01)


def thread_name() -> str:
    """Say where this runs."""
    return threading.current_thread().name

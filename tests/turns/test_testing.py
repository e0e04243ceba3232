"""The chat model and the journal for tests do what their users rely on."""

import asyncio

import pytest

from tests.support import cancel
from turns.core.chat_model import ChatRequest, Reply, TextDelta
from turns.testing import (
    FunctionChatModel,
    ScriptedChatModel,
    call,
    failure,
    gate,
    partial_call,
    text,
)

REQUEST = ChatRequest(instructions="", messages=())


async def take_all(model):
    return [delta async for delta in model.stream(REQUEST)]


class TestFunctionChatModel:
    async def test_a_text_is_the_whole_answer(self):
        model = FunctionChatModel(lambda request: f"{len(request.messages)} messages")

        assert await take_all(model) == [TextDelta("0 messages")]

    async def test_what_a_generator_yields_is_passed_on(self):
        async def answer(_request):
            yield text("Hel")
            yield text("lo")

        assert await take_all(FunctionChatModel(answer)) == [TextDelta("Hel"), TextDelta("lo")]


class TestScriptedChatModel:
    async def test_gives_one_reply_after_the_other_and_remembers_the_requests(self):
        model = ScriptedChatModel([text("One")], [text("Two")])

        assert await take_all(model) == [TextDelta("One")]
        assert await take_all(model) == [TextDelta("Two")]
        assert model.requests == [REQUEST, REQUEST]
        assert (model.closed, model.cancelled) == (2, 0)

    async def test_a_request_too_many_fails(self):
        model = ScriptedChatModel()

        with pytest.raises(AssertionError, match="no reply to request 1"):
            await take_all(model)

    async def test_calls_are_numbered_by_their_ids(self):
        pieces = [
            call("a", "echo", text="x"),
            partial_call("b", "exec", arguments='{"command": '),
            partial_call("b", arguments='"ls"}'),
        ]
        reply = Reply()
        for delta in await take_all(ScriptedChatModel(pieces)):
            reply.take(delta)

        made = reply.calls(scope="")
        assert [(c.id, c.tool_name, dict(c.input)) for c in made] == [
            ("a", "echo", {"text": "x"}),
            ("b", "exec", {"command": "ls"}),
        ]

    async def test_raises_where_the_script_says_so(self):
        with pytest.raises(ConnectionError):
            await take_all(ScriptedChatModel([text("One"), failure(ConnectionError())]))

    async def test_waits_at_a_gate_until_it_opens(self):
        opening = asyncio.Event()
        closed = gate(opening)
        taking = asyncio.create_task(take_all(ScriptedChatModel([closed, text("One")])))
        await closed.reached.wait()
        assert not taking.done()

        opening.set()

        assert await taking == [TextDelta("One")]

    async def test_knows_that_it_was_cancelled(self):
        closed = gate()
        model = ScriptedChatModel([closed])
        taking = asyncio.create_task(take_all(model))
        await closed.reached.wait()

        await cancel(taking)

        assert (model.closed, model.cancelled) == (1, 1)

    async def test_knows_that_it_was_closed_before_its_end(self):
        model = ScriptedChatModel([text("One"), text("Two")])
        stream = model.stream(REQUEST)
        await anext(stream)

        await stream.aclose()

        assert (model.closed, model.cancelled) == (1, 1)

    async def test_can_ignore_its_cancellation(self):
        opening = asyncio.Event()
        deaf = gate(opening, ignores_cancel=True)
        taking = asyncio.create_task(take_all(ScriptedChatModel([deaf, text("One")])))
        await deaf.reached.wait()
        taking.cancel()
        await asyncio.sleep(0)

        opening.set()

        assert await taking == [TextDelta("One")]

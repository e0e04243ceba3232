"""The vendors' real SDKs against servers that speak their streams: what is asked, and what comes of the answers."""

import json
from dataclasses import replace

import pytest

from tests.turns.chat_models.dialects import ANTHROPIC, GOOGLE, KEY, OPENAI, model_of
from tests.turns.chat_models.servers import Hold, Response, completions, gemini, messages
from turns.core.chat_model import (
    ChatRequest,
    Reply,
    Stop,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from turns.core.messages import (
    AttachmentBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

WEATHER = ToolSpec(
    name="get_weather",
    description="Say how the weather is.",
    input_schema={
        "type": "object",
        "properties": {"location": {"type": "string", "minLength": 1}},
        "required": ["location"],
    },
)
HELLO = Message(role="user", content=(TextBlock(text="Hello"),))
ASKED = ChatRequest(instructions="Be brief.", messages=(HELLO,), tools=(WEATHER,))


async def deltas(model, request=ASKED):
    return [delta async for delta in model.stream(request)]


def reply_of(said):
    reply = Reply()
    for delta in said:
        reply.take(delta)
    return reply


async def test_text_comes_piece_by_piece_with_usage_and_the_reason_of_the_end(serve, dialect):
    await serve(dialect.answer(dialect.text("Hello", ", ", "world")))

    said = await deltas(model_of(dialect))

    texts = [delta.text for delta in said if isinstance(delta, TextDelta)]
    assert "".join(texts) == "Hello, world"
    assert len(texts) == 3
    assert said[-1] == Stop(StopReason.END)
    tokens = {
        "anthropic": (25, 15),
        "openai": (19, 10),
        "openai-responses": (37, 11),
        "google": (8, 4),
    }[dialect.provider]
    assert (reply_of(said).usage.input_tokens, reply_of(said).usage.output_tokens) == tokens


async def test_the_text_is_passed_on_while_the_answer_is_still_being_written(serve, dialect):
    hold = Hold()
    ending = dialect.wire.end()
    await serve(dialect.unfinished(*dialect.open_text("Hel"), hold, *ending))

    stream = model_of(dialect).stream(ASKED)
    assert await anext(stream) == Usage(requests=1)
    assert await anext(stream) == TextDelta("Hel")
    assert not hold.released.is_set()
    hold.released.set()
    assert [delta async for delta in stream][-1] == Stop(StopReason.END)


async def test_parallel_calls_come_with_their_arguments_in_pieces(serve, pieced):
    first = pieced.wire.call(1, "call_a", "get_weather", location="Paris")
    second = pieced.wire.call(2, "call_b", "get_weather", location="Kyōto")
    await serve(pieced.answer(pieced.text("Let me look."), first, second, calls=True))

    said = await deltas(model_of(pieced))

    pieces = [delta for delta in said if isinstance(delta, ToolCallDelta) and delta.arguments]
    assert len(pieces) > 4
    reply = reply_of(said)
    assert reply.stop_reason is not StopReason.LENGTH
    assert reply.text == "Let me look."
    calls = reply.calls(scope="s")
    assert [(call.id, call.tool_name, dict(call.input)) for call in calls] == [
        ("call_a", "get_weather", {"location": "Paris"}),
        ("call_b", "get_weather", {"location": "Kyōto"}),
    ]


@pytest.mark.parametrize(
    ("raw", "problem"), [('{"location": "Par', "the arguments are not valid JSON"), ("", "")]
)
async def test_arguments_that_are_no_json_are_a_problem_of_the_call_and_none_at_all_are_not(
    serve, pieced, raw, problem
):
    await serve(pieced.answer(pieced.wire.call(1, "call_a", "get_weather", raw=raw), calls=True))

    (call,) = reply_of(await deltas(model_of(pieced))).calls(scope="s")

    assert (call.problem, call.input) == (problem, {})


async def test_a_call_cut_off_before_its_first_argument_is_no_call_without_arguments(serve, pieced):
    reason = {
        "anthropic": "max_tokens",
        "openai": "length",
        "openai-responses": "max_output_tokens",
    }[pieced.provider]
    parts = pieced.wire.call(1, "call_a", "get_weather", raw="")
    await serve(pieced.ended_by(reason, parts))

    said = await deltas(model_of(pieced))

    (call,) = reply_of(said).calls(scope="s")
    assert "cut off" in call.problem
    assert Stop(StopReason.LENGTH) in said


def cuts(text, size):
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.parametrize("size", [1, 3, 7, 8, 1000])
@pytest.mark.parametrize(
    ("written", "thought", "text"),
    [
        ("<think>Let me see.</think>\n\nIt is 42.", "Let me see.", "It is 42."),
        ("<think>\n</think>\n\nIt is 42.", "\n", "It is 42."),
        ("It is <think>hm</think>42.", "hm", "It is 42."),
        ("<think>a < b</think>1 < 2 <thin", "a < b", "1 < 2 <thin"),
        ("<think>never done", "never done", ""),
        ("Write `<think>` first, <b>.", "", "Write `<think>` first, <b>."),
        ("```\n<think>a `b` c</think>\n```", "", "```\n<think>a `b` c</think>\n```"),
        ("`a` <think>x</think>``", "x", "`a` ``"),
    ],
)
async def test_thoughts_between_tags_are_no_part_of_the_answer(serve, written, thought, text, size):
    """Servers of one's own write them so; they may come in any pieces."""
    await serve(completions.answer(completions.text(*cuts(written, size))))

    said = await deltas(model_of(OPENAI))

    assert "".join(delta.text for delta in said if isinstance(delta, ThinkingDelta)) == thought
    assert reply_of(said).text == text


def piece_of_call(id: str | None, name: str | None, arguments: str):
    """A piece of a call, under the one index that some servers give to all."""
    function = {"name": name, "arguments": arguments}
    return completions.delta(
        tool_calls=[{"index": 0, "id": id, "type": "function", "function": function}]
    )


PARIS, ROME = '{"location": "Paris"}', '{"location": "Rome"}'
ODD_PIECES = {
    "every call is number 0": (
        [("call_a", "get_weather", PARIS), ("call_b", "get_weather", ROME)],
        ["Paris", "Rome"],
    ),
    "and none has an id": (
        [(None, "get_weather", PARIS), (None, "get_weather", ROME)],
        ["Paris", "Rome"],
    ),
    "the id and the name come with every piece": (
        [
            ("call_a", "get_weather", '{"location"'),
            ("call_a", "", ': "Paris"}'),
            ("call_a", "", ""),
        ],
        ["Paris"],
    ),
    "every piece has an id, and the first one the name": (
        [
            ("call_a", "get_weather", ""),
            ("call_b", None, '{"location"'),
            ("call_c", None, ': "Paris"}'),
            ("call_d", None, ""),
        ],
        ["Paris"],
    ),
}


@pytest.mark.parametrize("case", ODD_PIECES)
async def test_the_pieces_of_calls_of_compatible_servers_are_told_apart(serve, case):
    pieces, places = ODD_PIECES[case]
    written = [piece_of_call(*piece) for piece in pieces]
    await serve(completions.answer(*written, finish_reason="tool_calls"))

    calls = reply_of(await deltas(model_of(OPENAI))).calls(scope="s")

    assert [(call.problem, call.input["location"]) for call in calls] == [
        ("", place) for place in places
    ]
    assert calls[0].id == pieces[0][0] or pieces[0][0] is None
    assert len({call.id for call in calls}) == len(calls)


async def test_the_documented_stream_of_a_tool_call_is_understood_as_it_is_printed(serve):
    """The example of Anthropic's page on streaming: spaces, caller and all."""
    recorded = (
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_019Q1hrJbZG26Fb9BQhrkHEr",'
        b'"type":"message","role":"assistant","model":"claude-sonnet-4-20250514","content":[],"stop_reason":null,'
        b'"stop_sequence":null,"usage":{"input_tokens":377,"cache_creation_input_tokens":0,'
        b'"cache_read_input_tokens":0,"output_tokens":1,"service_tier":"standard"}}}\n\n'
        b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        b'"content_block":{"type":"text","text":""}}\n\nevent: ping\ndata: {"type": "ping"}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"I"}}\n\n'
        b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
        b'event: content_block_start\ndata: {"type":"content_block_start","index":1,"content_block":'
        b'{"type":"tool_use","id":"toolu_01NRLabsLyVHZPKxbKvkfSMn","name":"get_weather",'
        b'"caller":{"type":"direct"},"input":{}}}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,'
        b'"delta":{"type":"input_json_delta","partial_json":""}}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,'
        b'"delta":{"type":"input_json_delta","partial_json":"{\\"locati"}}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,'
        b'"delta":{"type":"input_json_delta","partial_json":"on\\": \\"Paris\\"}"}}\n\n'
        b'event: content_block_stop\ndata: {"type":"content_block_stop","index":1}\n\n'
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"tool_use",'
        b'"stop_sequence":null},"usage":{"output_tokens":65}}\n\n'
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )
    thirds = [recorded[:333], recorded[333:1000], recorded[1000:]]  # chunks end inside an event
    await serve(Response(thirds))

    reply = reply_of(await deltas(model_of(ANTHROPIC)))

    (call,) = reply.calls(scope="s")
    assert (call.id, call.input) == ("toolu_01NRLabsLyVHZPKxbKvkfSMn", {"location": "Paris"})
    assert reply.text == "I"
    assert reply.usage == Usage(
        input_tokens=377, output_tokens=65, requests=1, model="claude-sonnet-4-20250514"
    )


async def test_the_documented_chunks_are_understood_as_they_are_printed(serve):
    """The example of OpenAI's reference of the chunk object, after comments as gateways send them."""
    recorded = (
        b': OPENROUTER PROCESSING\n\ndata: {"id":"chatcmpl-123","object":"chat.completion.chunk",'
        b'"created":1694268190,"model":"gpt-4o-mini", "system_fingerprint": "fp_44709d6fcb", "choices":[{"index":0,'
        b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
        b'data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini", '
        b'"system_fingerprint": "fp_44709d6fcb", "choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,'
        b'"finish_reason":null}]}\n\n'
        b'data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini", '
        b'"system_fingerprint": "fp_44709d6fcb", "choices":[{"index":0,"delta":{},"logprobs":null,'
        b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    await serve(Response([recorded]))

    assert reply_of(await deltas(model_of(OPENAI))).text == "Hello"


async def test_gemini_answers_through_its_own_sdk(serve):
    weather = gemini.call(0, "c1", "get_weather", location="Paris")
    server = await serve(gemini.answer(gemini.text("Let me look."), weather))

    reply = reply_of(await deltas(model_of(GOOGLE)))

    (call,) = reply.calls(scope="s")
    assert (reply.text, call.tool_name, call.input) == (
        "Let me look.",
        "get_weather",
        {"location": "Paris"},
    )
    (request,) = server.requests
    assert ":streamGenerateContent" in request.line
    assert KEY not in request.line
    assert request.headers["x-goog-api-key"] == KEY


HISTORY = (
    HELLO,
    Message(
        role="assistant",
        content=(
            TextBlock(text="I look."),
            ToolUseBlock(id="c1", name="get_weather", input={"location": "Paris"}),
            ToolUseBlock(id="c2", name="get_weather", input={"location": "Rome"}),
        ),
    ),
    Message(
        role="user",
        content=(
            ToolResultBlock(tool_use_id="c1", content="sunny"),
            ToolResultBlock(tool_use_id="c2", content="[TIMEOUT] …", is_error=True),
        ),
    ),
    Message(role="assistant", content=(TextBlock(text="Sun"),), interrupted=True),
    Message(role="user", content=(TextBlock(text="  "), TextBlock(text="And now?"))),
    Message(role="assistant", content=(ToolUseBlock(id="c1", name="get_weather", input={}),)),
    Message(role="user", content=(ToolResultBlock(tool_use_id="c1", content=""),)),
)
ALL = ChatRequest(instructions="Be brief.", messages=HISTORY, tools=(WEATHER,))


async def test_anthropic_is_sent_the_whole_history(serve):
    server = await serve(messages.answer(messages.text(0, "Rain.")))

    await deltas(model_of(ANTHROPIC), ALL)

    (request,) = server.requests
    assert request.line.startswith("POST /v1/messages")
    assert request.headers["authorization"] == f"Bearer {KEY}"

    assert request.body["system"] == [{"type": "text", "text": "Be brief."}]
    assert request.body["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
    assert request.body["stream"] is True
    assert request.body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                _use("c1", location="Paris"),
                _use("c2", location="Rome"),
            ],
        },
        {"role": "user", "content": [_result("c1", "sunny"), _result("c2", "[TIMEOUT] …", True)]},
        {"role": "assistant", "content": [{"type": "text", "text": "Sun"}]},
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
        {"role": "assistant", "content": [_use("c1_2")]},
        {"role": "user", "content": [_result("c1_2", "(no output)")]},
    ]
    (tool,) = request.body["tools"]
    assert tool["name"] == "get_weather"
    assert tool["input_schema"] == WEATHER.input_schema


async def test_without_tools_anthropic_is_told_of_those_that_were_called(serve):
    """It refuses a history with calls in a request that names no tool."""
    server = await serve(*[messages.answer(messages.text(0, "Rain."))] * 2)
    model = model_of(ANTHROPIC)

    await deltas(model, replace(ALL, tools=()))
    await deltas(model, replace(ASKED, tools=()))

    called, hello = (request.body for request in server.requests)
    (tool,) = called["tools"]
    assert (tool["name"], tool["input_schema"]) == ("get_weather", {"type": "object"})
    assert called["tool_choice"] == {"type": "none"}
    assert not {"tools", "tool_choice"} & hello.keys()  # where nothing was called


async def test_openai_is_sent_the_whole_history(serve):
    server = await serve(completions.answer(completions.text("Rain.")))

    await deltas(model_of(OPENAI), ALL)

    (request,) = server.requests
    assert request.line.startswith("POST /v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["stream_options"] == {"include_usage": True}
    sent = request.body["messages"]
    assert sent[0] == {"role": "system", "content": "Be brief."}
    assert [message["role"] for message in sent[1:]] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "user",
        "assistant",
        "tool",
    ]
    assert [call["id"] for call in sent[2]["tool_calls"]] == ["c1", "c2"]
    assert [message.get("tool_call_id") for message in sent[3:5]] == ["c1", "c2"]
    assert sent[3]["content"] == "sunny"
    assert "[TIMEOUT] …" in sent[4]["content"]
    assert sent[8]["tool_call_id"] == sent[7]["tool_calls"][0]["id"] == "c1_2"
    (tool,) = request.body["tools"]
    assert tool["function"]["parameters"] == WEATHER.input_schema
    assert not tool["function"].get("strict")


async def test_openai_is_sent_no_two_messages_of_the_person_in_a_row(serve):
    """Templates of some compatible servers refuse them."""
    image = AttachmentBlock(
        type="image", attachment_id="1", name="a.png", media_type="image/png", content=b"pixels"
    )
    note = TextBlock(text="[INTERRUPTED] The previous turn was cancelled.")
    now = Message(role="user", content=(note, TextBlock(text="And now?")))
    shown = Message(role="user", content=(TextBlock(text="Look"), image))
    answered = Message(role="assistant", content=(TextBlock(text="Well."),))
    server = await serve(completions.answer(completions.text("Rain.")))

    messages = (HELLO, now, answered, HELLO, shown)
    await deltas(model_of(OPENAI), replace(ASKED, messages=messages))

    _, texts, _, mixed = server.requests[0].body["messages"]
    assert texts == {"role": "user", "content": f"Hello\n\n{note.text}\n\nAnd now?"}
    assert mixed["role"] == "user"
    assert [part["type"] for part in mixed["content"]] == ["text", "text", "image_url"]


@pytest.mark.parametrize(("left", "sent"), [(700, 700), (1_000_000, None), (None, None)])
async def test_what_is_left_of_a_token_limit_limits_the_answer(serve, dialect, left, sent):
    """A number beyond what a model can say is not sent: some providers refuse it."""
    server = await serve(dialect.answer(dialect.text("Hi.")))

    await deltas(model_of(dialect), replace(ASKED, max_tokens=left))

    (request,) = server.requests
    name = {
        "anthropic": "max_tokens",
        "openai": "max_completion_tokens",
        "openai-responses": "max_output_tokens",
        "google": "maxOutputTokens",
    }[dialect.provider]
    always = 128_000 if dialect is ANTHROPIC else None  # which has no request without it
    body = request.body.get("generationConfig", {}) if dialect is GOOGLE else request.body
    assert body.get(name) == (sent or always)


async def test_a_request_may_ask_a_model_not_to_think(serve, dialect):
    """Models that think by default would use up a short answer's tokens without a word."""
    server = await serve(*[dialect.answer(dialect.text("Hi."))] * 2)
    name = "gpt-5-mini" if "openai" in dialect.provider else dialect.model_name
    model = model_of(replace(dialect, model_name=name))

    await deltas(model, ASKED)
    await deltas(model, replace(ASKED, max_tokens=40, may_think=False))

    usual, short = (
        request.body.get("generationConfig", {}) if dialect is GOOGLE else request.body
        for request in server.requests
    )
    field, least = {
        "anthropic": ("thinking", {"type": "between_tools"}),
        "openai": ("reasoning_effort", "minimal"),
        "openai-responses": ("reasoning", {"effort": "minimal"}),
        "google": ("thinkingConfig", {"thinking_budget": 0}),
    }[dialect.provider]
    assert field not in usual
    assert short[field] == least


async def test_a_tool_whose_schema_has_alternatives_at_the_top_spoils_no_request(serve, dialect):
    """Anthropic and OpenAI answer 400 to all tools because of such a one, and servers of others have them."""
    schema = {**WEATHER.input_schema, "anyOf": [{"required": ["location"]}], "not": {}}
    server = await serve(dialect.answer(dialect.text("Hi.")))

    await deltas(model_of(dialect), replace(ASKED, tools=(replace(WEATHER, input_schema=schema),)))

    sent = str(server.requests[0].body["tools"])
    assert "minLength" in sent
    assert "anyOf" not in sent
    assert "'not'" not in sent


ODD_NAMES = ("filter[id]", "$top", "größe", "", "x" * 65)


def tool_with(**properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolSpec(name="list_apps", description="List the apps.", input_schema=schema)


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_a_name_of_a_property_that_anthropic_refuses_is_told_in_words(serve, name):
    """It answers 400 to all tools because of such a one."""
    odd = tool_with(**{name: {"type": "string"}, "page": {"type": "integer"}})
    call = messages.call(1, "call_a", "list_apps", **{name: "7"})
    server = await serve(ANTHROPIC.answer(call, calls=True))

    said = await deltas(model_of(ANTHROPIC), replace(ASKED, tools=(odd, WEATHER)))

    told, well = server.requests[0].body["tools"]
    assert told["input_schema"] == {"type": "object"}
    assert told["description"].startswith("List the apps.")
    assert json.dumps(odd.input_schema, ensure_ascii=False) in told["description"]
    assert well["input_schema"]["properties"] == WEATHER.input_schema["properties"]
    [(_, _, asked)] = reply_of(said).asked_for
    assert json.loads(asked) == {name: "7"}  # as the tool knows it


@pytest.mark.parametrize(
    ("spoken", "properties"),
    [
        (ANTHROPIC, {"a.b-c_D9": {"type": "object", "properties": {"filter[id]": {}}}}),
        (ANTHROPIC, {"x" * 64: {"type": "string"}}),
        (OPENAI, {"filter[id]": {"type": "string"}}),
    ],
)
async def test_a_name_of_a_property_that_a_vendor_takes_is_sent_as_it_is(serve, spoken, properties):
    server = await serve(spoken.answer(spoken.text("Hi.")))

    await deltas(model_of(spoken), replace(ASKED, tools=(tool_with(**properties),)))

    [told] = server.requests[0].body["tools"]
    sent = told["input_schema"] if spoken is ANTHROPIC else told["function"]["parameters"]
    assert sent["properties"] == properties


async def test_one_connection_serves_several_requests(serve, dialect):
    server = await serve(*(dialect.answer(dialect.text("Yes.")) for _ in range(3)))
    model = model_of(dialect)

    for _ in range(3):
        await deltas(model)

    assert (len(server.requests), server.connections) == (3, 1)


def _use(id, **input):
    return {"type": "tool_use", "id": id, "name": "get_weather", "input": input}


def _result(id, content, is_error=False):
    return {
        "type": "tool_result",
        "tool_use_id": id,
        "content": [{"type": "text", "text": content}],
        "is_error": is_error,
    }


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "TURNS_CHAT_MODEL_BASE_URL"])
async def test_a_compatible_server_needs_no_key(serve, monkeypatch, settings, variable):
    server = await serve(completions.answer(completions.text("Hi.")))
    monkeypatch.delenv("OPENAI_API_KEY")
    if variable == "OPENAI_BASE_URL":
        monkeypatch.setenv(variable, f"{server.url}/v1")
        settings.TURNS_CHAT_MODEL_BASE_URL = ""

    assert reply_of(await deltas(model_of(OPENAI))).text == "Hi."
    assert KEY not in str(server.requests)

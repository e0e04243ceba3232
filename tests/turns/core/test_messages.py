"""Messages keep the wire's shape, survive the way there and back, and are read if damaged."""

import json
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turns.core.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock, block_from_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "id", "name", "input", "content", "role"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
NAMES = st.text(min_size=1, max_size=8)
BLOCKS = (
    st.builds(TextBlock, text=st.text(max_size=20))
    | st.builds(
        ToolUseBlock,
        id=NAMES,
        name=NAMES,
        input=st.dictionaries(NAMES, JSON, max_size=3),
        is_complete=st.booleans(),
    )
    | st.builds(
        ToolResultBlock,
        tool_use_id=NAMES,
        content=st.text(max_size=20),
        is_error=st.booleans(),
        is_synthetic=st.booleans(),
    )
)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant"]),
    content=st.lists(BLOCKS, max_size=4).map(tuple),
    turn_id=st.none() | NAMES,
    interrupted=st.booleans(),
)


def test_wire_shape_is_the_protocols():
    message = Message(
        role="assistant",
        content=(
            TextBlock(text="Reading."),
            ToolUseBlock(id="c1", name="read_file", input={"path": "a"}),
        ),
    )
    assert message.to_json() == {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Reading."},
            {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "a"}},
        ],
    }
    result = ToolResultBlock(tool_use_id="c1", content="text")
    assert result.to_json() == {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": "text",
        "is_error": False,
    }


def test_flags_are_on_the_wire_only_where_they_are_set():
    result = ToolResultBlock(tool_use_id="c1", content="", is_error=True, is_synthetic=True)
    message = Message(role="user", content=(result,), turn_id="t1", interrupted=True)
    form = message.to_json()
    assert (form["turn_id"], form["interrupted"], form["content"][0]["is_synthetic"]) == (
        "t1",
        True,
        True,
    )
    assert ToolUseBlock(id="c", name="n", is_complete=False).to_json()["is_complete"] is False


@given(MESSAGES)
def test_the_way_there_and_back_changes_nothing(message):
    assert Message.from_json(json.loads(json.dumps(message.to_json()))) == message


@given(JSON)
def test_any_json_is_read_without_an_exception(raw):
    block_from_json(raw)
    if isinstance(raw, dict):
        Message.from_json(raw)


@pytest.mark.parametrize(
    "damage",
    [
        {"id": None},
        {"id": ""},
        {"name": None},
        {"name": 7},
        {"input": '{"path": "a'},
        {"input": '{"path": "a", "path": "b"}'},
        {"input": ""},
        {"input": [1]},
        {"input": "[1]"},
        {"input": None},
        {"input": "[" * 100_000},
        {"is_complete": False},
    ],
)
def test_a_damaged_call_is_not_complete(damage):
    raw = {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "a"}, **damage}
    block = ToolUseBlock.from_json(raw)
    assert not block.is_complete
    assert not block.is_answerable


@pytest.mark.parametrize("missing", ["id", "name"])
def test_a_call_without_id_or_name_is_not_complete(missing):
    raw = {"type": "tool_use", "id": "c1", "name": "read_file", "input": {}}
    del raw[missing]
    assert not ToolUseBlock.from_json(raw).is_complete


def test_an_input_that_came_as_whole_json_text_is_parsed():
    raw = {"type": "tool_use", "id": "c1", "name": "read_file", "input": '{"path": "a"}'}
    assert ToolUseBlock.from_json(raw) == ToolUseBlock(
        id="c1", name="read_file", input={"path": "a"}
    )


def test_an_unfinished_call_without_id_is_not_answerable_even_if_it_is_called_complete():
    assert not ToolUseBlock(id="", name="read_file").is_answerable
    assert ToolUseBlock(id="c1", name="read_file").is_answerable


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        (["a", "b"], "a\nb"),
        ([{"type": "image"}], '{"type": "image"}'),
        (None, ""),
        ({"ok": False}, '{"ok": false}'),
    ],
)
def test_result_content_of_other_shapes_becomes_text(content, text):
    raw = {"type": "tool_result", "tool_use_id": "c1", "content": content}
    assert ToolResultBlock.from_json(raw).content == text


def test_blocks_of_unknown_types_are_left_out_and_a_string_is_a_text():
    assert Message.from_json(
        {"role": "tool", "content": [{"type": "audio"}, 7, "hello"]}
    ) == Message(role="user", content=(TextBlock(text="hello"),))
    assert Message.from_json({"role": "assistant", "content": "hello"}).texts == (
        TextBlock(text="hello"),
    )
    assert Message.from_json({}).content == ()


def test_messages_sort_their_blocks_and_know_when_they_say_nothing():
    text, call = TextBlock(text="x"), ToolUseBlock(id="c", name="n")
    result = ToolResultBlock(tool_use_id="c", content="")
    message = Message(role="user", content=(text, call, result))
    assert (message.texts, message.tool_uses, message.tool_results) == ((text,), (call,), (result,))
    assert not message.is_empty
    assert Message(role="user", content=()).is_empty
    assert Message(role="user", content=(TextBlock(text=" \n"),)).is_empty


def test_values_are_frozen():
    with pytest.raises(FrozenInstanceError):
        TextBlock(text="x").text = "y"  # type: ignore[misc] # what is tested

"""Our history as providers take it: strings only, ids once, names that they allow, neighbours merged."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
)

from turns.chat_models.vendors.translation import history_of
from turns.core.messages import AttachmentBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock

ALLOWED = re.compile(r"[a-zA-Z0-9_-]{1,40}")


def said(*content):
    return Message(role="assistant", content=content)


def asked(*content):
    return Message(role="user", content=content)


def text(words):
    return TextBlock(text=words)


def use(id, name="echo"):
    return ToolUseBlock(id=id, name=name, input={})


def result(id, content="done"):
    return ToolResultBlock(tool_use_id=id, content=content)


def pairs(history):
    """The ids of the calls and of the results, in order."""
    parts = [part for message in history for part in message.parts]
    return (
        [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)],
        [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)],
    )


@given(st.lists(st.lists(st.text(min_size=1), min_size=1, max_size=3, unique=True), max_size=5))
def test_every_call_has_its_result_under_an_id_of_its_own_that_providers_allow(steps):
    messages = [asked(text("Hello"))]
    for ids in steps:
        messages += [said(*map(use, ids)), asked(*map(result, ids))]

    calls, results = pairs(history_of(messages))

    assert calls == results
    assert len(set(calls)) == len(calls) == sum(map(len, steps))
    assert all(ALLOWED.fullmatch(id) for id in calls)
    assert pairs(history_of(messages)) == (
        calls,
        results,
    )  # the same again: a provider's cache counts on it


def test_neighbours_of_one_role_are_one_message():
    history = history_of([asked(text("a")), asked(text("b")), said(text("c")), said(text("d"))])

    assert [type(message) for message in history] == [ModelRequest, ModelResponse]
    contents = [part.content for message in history for part in message.parts]
    assert contents == ["a\n\nb", "c", "d"]


def test_a_message_of_blank_texts_is_left_out():
    history = history_of([asked(text("a")), said(text(" \n")), asked(text("b"))])

    assert [part.content for message in history for part in message.parts] == ["a\n\nb"]


def test_results_come_before_what_the_person_said():
    history = history_of([asked(text("a")), said(use("c")), asked(text("b"), result("c"))])

    assert [part.part_kind for part in history[-1].parts] == ["tool-return", "user-prompt"]


def test_results_come_before_what_was_said_in_an_earlier_message():
    history = history_of([asked(text("a")), said(use("c")), asked(text("b")), asked(result("c"))])

    assert [part.part_kind for part in history[-1].parts] == ["tool-return", "user-prompt"]


@pytest.mark.parametrize("name", ["füße.gehen", "x" * 200, "a b"])
def test_a_name_that_no_provider_takes_is_written_differently(name):
    messages = [asked(text("a")), said(use("c", name)), asked(result("c"))]

    call, returned = history_of(messages)[1].parts[0], history_of(messages)[2].parts[0]

    assert call.tool_name == returned.tool_name
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call.tool_name)


def test_lone_surrogates_of_a_tools_output_can_be_sent():
    broken = ToolUseBlock(id="c", name="echo", input={"file\udcff": ["\ud800"]})
    history = history_of([asked(text("a\udc80")), said(broken), asked(result("c", "b\udcff"))])

    assert history[0].parts[0].content == "a?"
    assert history[1].parts[0].args == {"file?": ["?"]}
    assert history[2].parts[0].content == "b?"


def test_files_go_with_the_message_and_one_without_its_bytes_is_left_out():
    image = AttachmentBlock(
        type="image", attachment_id="1", name="a.png", media_type="image/png", content=b"pixels"
    )
    lost = AttachmentBlock(
        type="document", attachment_id="2", name="b.pdf", media_type="application/pdf"
    )
    [request] = history_of([asked(text("Look"), image, lost)])
    [part] = request.parts
    assert part.content == ["Look", BinaryContent(data=b"pixels", media_type="image/png")]


def test_arguments_stand_in_an_order_that_no_database_changes():
    def sent(input):
        call = ToolUseBlock(id="c", name="echo", input=input)
        return history_of([asked(text("Go.")), said(call), asked(result("c"))])

    first, other = sent({"b": 1, "a": {"z": 1, "y": 2}}), sent({"a": {"y": 2, "z": 1}, "b": 1})

    assert json.dumps(first[1].parts[0].args) == json.dumps(other[1].parts[0].args)


def test_a_message_that_was_sent_does_not_grow_where_the_vendor_keeps_them_apart():
    before, after = (
        history_of(messages, keeps_messages_apart=True)[0].parts
        for messages in ([asked(text("One"))], [asked(text("One")), asked(text("Two"))])
    )

    assert [part.content for part in before] == ["One"]
    assert [part.content for part in after] == ["One", "Two"]

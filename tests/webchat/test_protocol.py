"""Frames: what is understood, what is refused and how, and that the docs say what the code does."""

import json
import re
from pathlib import Path

import pytest

from webchat.api import api
from webchat.exceptions import ProtocolError
from webchat.operations import CancelTool, CancelTurn, SetDeadline
from webchat.protocol import generators
from webchat.protocol.client_frames import (
    Hello,
    Message,
    client_frames,
    parse,
)
from webchat.protocol.generators import objects_of, type_of
from webchat.protocol.server_frames import ANSWERS, event_frames
from webchat.validation_messages import validation_message

ROOT = Path(__file__).parents[2]
DOCS = ROOT / generators.PAGE
KIB_64 = 65_536


def refusal(text: str | bytes) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        parse(text, max_bytes=KIB_64)
    return caught.value


def test_frames_become_values_with_defaults():
    assert parse('{"type":"hello","protocol":1}', max_bytes=KIB_64) == Hello(
        type="hello", protocol=1
    )
    message = parse('{"type":"message","client_id":"a","text":"hi"}', max_bytes=KIB_64)
    assert message == Message(
        type="message", client_id="a", text="hi", source="typed", is_final=True
    )
    cancel = parse('{"type":"cancel_turn","op_id":"o","turn_id":"t"}', max_bytes=KIB_64)
    assert isinstance(cancel, CancelTurn)
    fields = {"type": "cancel_turn", "op_id": "o", "turn_id": "t", "mode": "now", "reason": ""}
    assert cancel.model_dump() == fields


@pytest.mark.parametrize("kind", ["cancel_turn", "cancel_tool"])
@pytest.mark.parametrize("reason", [7, None, ["slow"], "a\x00b", "x" * 501])
def test_no_cancel_is_refused_for_its_reason(kind, reason):
    ids = {"op_id": "o", "turn_id": "t", "tool_id": "c"}
    frame = parse(json.dumps({"type": kind, **ids, "reason": reason}), max_bytes=KIB_64)
    assert isinstance(frame, CancelTurn | CancelTool)
    assert frame.reason == ""
    given = parse(json.dumps({"type": kind, **ids, "reason": "too slow"}), max_bytes=KIB_64)
    assert isinstance(given, CancelTurn | CancelTool)
    assert given.reason == "too slow"


def test_unknown_fields_are_ignored_so_that_clients_may_be_newer():
    frame = parse('{"type":"hello","protocol":1,"theme":"dark"}', max_bytes=KIB_64)
    assert frame == Hello(type="hello", protocol=1)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_json"),
        ("{", "invalid_json"),
        ("[" * 5_000, "invalid_json"),
        (b"{}", "invalid_json"),
        ('{"type":"message","client_id":"a","text":"\\ud800"}', "invalid_json"),
        ("[]", "invalid_frame"),
        ("null", "invalid_frame"),
        ('"ping"', "invalid_frame"),
        ("{}", "unknown_type"),
        ('{"type":"shutdown"}', "unknown_type"),
        ('{"type":7}', "unknown_type"),
        ('{"type":"message","text":"hi"}', "invalid_field"),
        ('{"type":"message","client_id":"a","text":7}', "invalid_field"),
        ('{"type":"message","client_id":"","text":"hi"}', "invalid_field"),
        ('{"type":"message","client_id":"a","text":"a\\u0000b"}', "invalid_field"),
        ('{"type":"message","client_id":"a","text":"hi","source":"telepathy"}', "invalid_field"),
        ('{"type":"hello","protocol":"1"}', "invalid_field"),
        ('{"type":"hello","protocol":true}', "invalid_field"),
        ('{"type":"hello","protocol":1,"after":-1}', "invalid_field"),
        ('{"type":"hello","protocol":1,"after":1e3}', "invalid_field"),
        ('{"type":"cancel_turn","op_id":"o","turn_id":"t","mode":"later"}', "invalid_field"),
        ('{"type":"cancel_tool","op_id":"o","turn_id":"t"}', "invalid_field"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_stable_code(text: str | bytes, code: str):
    assert refusal(text).code == code


def test_a_refusal_says_in_words_which_field_is_wrong_and_repeats_nothing():
    said = refusal('{"type":"message","client_id":7,"text":["secret"]}').sentence
    assert said == "Please correct: client_id must be text; text must be text."


@pytest.mark.parametrize(
    "limits",
    [
        "",
        ',"timeout_ms":1,"extend_ms":1',
        ',"timeout_ms":0',
        ',"extend_ms":-5',
        ',"timeout_ms":1.5',
    ],
)
def test_a_deadline_needs_exactly_one_limit_above_zero(limits: str):
    frame = '{"type":"set_deadline","op_id":"o","turn_id":"t","tool_id":"c"'
    assert refusal(f"{frame}{limits}}}").code == "invalid_field"
    good = parse(f'{frame},"extend_ms":60000}}', max_bytes=KIB_64)
    assert isinstance(good, SetDeadline)
    assert good.extend_ms == 60_000


def test_size_is_counted_in_bytes():
    frame = '{"type":"message","client_id":"a","text":"%s"}'
    fits = "é" * ((KIB_64 - len(frame) + 2) // 2)
    parse(frame % fits, max_bytes=KIB_64)
    assert refusal(frame % (fits + "é")).code == "frame_too_large"
    assert refusal("x" * (KIB_64 + 1)).code == "frame_too_large"


def test_an_unknown_kind_of_problem_still_has_words():
    assert (
        validation_message([{"type": "brand_new", "loc": ("body", "x")}])
        == "Please correct: x is not valid."
    )


def test_the_docs_have_todays_schemas():
    page = DOCS.read_text("utf-8")
    assert generators.refresh_docs(page) == page, "run: python -m webchat.protocol"
    documented = set(re.findall(r"^#### `(\w+)`$", page, flags=re.MULTILINE))
    frames = (*client_frames(), *ANSWERS, *event_frames())
    assert documented == {type_of(frame) for frame in frames} | set(objects_of(frames))


def test_the_page_has_todays_constants_and_types():
    script = (ROOT / generators.SCRIPT).read_text("utf-8")
    assert generators.script() == script, "run: python -m webchat.protocol"
    for frame in (*client_frames(), *ANSWERS, *event_frames()):
        assert f'type: "{type_of(frame)}"' in script


def test_the_schemas_refer_to_nothing_that_is_not_there():
    page = DOCS.read_text("utf-8")
    referred = set(re.findall(r'"\$ref": "#/\$defs/(\w+)"', page))
    assert referred
    assert referred <= set(re.findall(r"^#### `(\w+)`$", page, flags=re.MULTILINE))


def test_the_schemas_are_json_and_name_every_required_field():
    for block in re.findall(r"```json\n(.*?)```", DOCS.read_text("utf-8"), flags=re.DOTALL):
        schema = json.loads(block)
        assert set(schema["required"]) <= set(schema["properties"])


def test_the_docs_list_the_http_api_as_it_is():
    page = DOCS.read_text("utf-8")
    documented = set(
        re.findall(r"^\| `(GET|POST|PATCH|DELETE) (/api/[^`?]*)` \|", page, flags=re.MULTILINE)
    )
    operations = {
        (method.upper(), path)
        for path, methods in api.get_openapi_schema(path_prefix="/api/")["paths"].items()
        for method in methods
    }
    assert documented == operations


def test_the_docs_list_every_code_of_an_error():
    page = DOCS.read_text("utf-8")
    source = "".join(
        path.read_text("utf-8")
        for path in (DOCS.parents[1] / "webchat").glob("*.py")
        if path.name != "views.py"
    )
    source += (DOCS.parents[1] / "turns" / "exceptions.py").read_text("utf-8")
    codes = set(
        re.findall(
            r'(?:error\(\d+|Refused\(\s*\d+|ProtocolError\(|not_understood\(|SignedOut\(|signed_out\(),?\s*"(\w+)"',
            source,
        )
    )
    codes |= set(re.findall(r'\bcode ?= ?"(\w+)"', source)) - {"error"}
    assert len(codes) > 15
    missing = {code for code in codes if f"`{code}`" not in page}
    assert not missing

"""The command language: what each line means, and what is said where it means nothing."""

import time
from contextlib import suppress

import pytest

from turns.chat_models.commands import Call, CommandProblem, Slowly, Thought, read


def call_of(command):
    call = read(command)
    assert isinstance(call, Call)
    return call.tool_name, dict(call.input)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("run ls -l | wc", ("exec", {"command": "ls -l | wc"})),
        ("RUN ls", ("exec", {"command": "ls"})),
        ("run cat <<END\nhello\nEND", ("exec", {"command": "cat <<END\nhello\nEND"})),
        ("fetch https://example.org/?q=a b", ("web_fetch", {"url": "https://example.org/?q=a b"})),
        ("read notes.txt", ("read_file", {"path": "notes.txt"})),
        ("list", ("list_files", {})),
        ("list src", ("list_files", {"path": "src"})),
        ("write a.txt: one: two", ("write_file", {"path": "a.txt", "content": "one: two"})),
        ("write a.txt:", ("write_file", {"path": "a.txt", "content": ""})),
        ("write a.txt:\none\n  two", ("write_file", {"path": "a.txt", "content": "one\n  two"})),
        ("write a.txt:\n\n  one", ("write_file", {"path": "a.txt", "content": "\n  one"})),
        ("write a.txt: one\ntwo", ("write_file", {"path": "a.txt", "content": "one\ntwo"})),
        ("edit a.txt: x => y", ("edit_file", {"path": "a.txt", "old": "x", "new": "y"})),
        ("edit a.txt: x=>", ("edit_file", {"path": "a.txt", "old": "x", "new": ""})),
        ("wait 20", ("wait", {"seconds": 20})),
        ("wait 0.5", ("wait", {"seconds": 0.5})),
        ("wait 250 ms", ("wait", {"seconds": 0.25})),
        ("wait 2min", ("wait", {"seconds": 120})),
        ("status", ("session_status", {})),
        (
            "ask assistant run date",
            ("sessions_ask", {"agent": "assistant", "message": "run date"}),
        ),
        (
            "ask digger\nrun date\nthen\nrun ls",
            ("sessions_ask", {"agent": "digger", "message": "run date\nthen\nrun ls"}),
        ),
        ("spawn digger wait 60", ("sessions_spawn", {"agent": "digger", "message": "wait 60"})),
        ("call wait", ("wait", {})),
        ('call wait {"seconds": 3}', ("wait", {"seconds": 3})),
        ('call wait {\n  "seconds": 3\n}', ("wait", {"seconds": 3})),
        ("call no.such-tool {}", ("no.such-tool", {})),
    ],
)
def test_a_command_is_a_call(command, expected):
    assert call_of(command) == expected


@pytest.mark.parametrize(
    ("prefix", "timeout_ms"),
    [
        ("within 500ms", 500),
        ("within 5s", 5_000),
        ("within 5 s", 5_000),
        ("Within 2.5 seconds", 2_500),
        ("within 2 min", 120_000),
        ("within 1 minute", 60_000),
        ("within 0s", 0),
        ("within 0.0004s", 1),  # 0 = no limit
    ],
)
def test_within_gives_the_call_its_own_limit(prefix, timeout_ms):
    expected = {"command": "sleep 60", "_meta": {"timeout_ms": timeout_ms}}

    assert call_of(f"{prefix} run sleep 60") == ("exec", expected)


def test_within_keeps_other_notes_of_the_call():
    command = 'within 1s call wait {"seconds": 3, "_meta": {"trace": "x", "timeout_ms": 9}}'

    assert call_of(command)[1]["_meta"] == {"trace": "x", "timeout_ms": 1_000}


@pytest.mark.parametrize(
    "command", ["repeat 3 within 1s run date", "within 1s repeat 3 run date", "repeat 3 run date"]
)
def test_repeat_counts_steps(command):
    assert read(command).times == 3


def test_prefixes_multiply():
    assert read("repeat 2 repeat 5 run date").times == 10


def test_speech_is_no_call():
    assert read("say Hello, Ada") == "Hello, Ada"
    assert not isinstance(read("say Hello, Ada"), Slowly)
    assert read("slowly one two") == Slowly("one two")
    assert isinstance(read("slowly one two"), Slowly)
    assert isinstance(read("think one two"), Thought)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("run", "`run` needs"),
        ("fetch", "`fetch` needs"),
        ("read", "`read` needs"),
        ("write notes.txt", "`write` needs"),
        ("write : text", "`write` needs"),
        ("edit notes.txt: milk", "`edit` needs"),
        ("edit notes.txt: => bread", "`edit` needs"),
        ("wait", "`wait` needs"),
        ("wait a moment", "`wait` needs"),
        ("wait -1", "`wait` needs"),
        ("wait 1.2.3", "`wait` needs"),
        ("status please", "`status` takes no arguments"),
        ("say", "`say` needs"),
        ("slowly", "`slowly` needs"),
        ("call", "`call` needs"),
        ("call wait [1]", "`call` needs"),
        ('call wait {"seconds": }', "not valid JSON"),
        ("call wait " + '{"a":' * 5_000, "not valid JSON"),
        ('call wait {"seconds": 1, "seconds": 2}', "contain “seconds” more than once"),
        ("within", "`within` needs"),
        ("within 5 run ls", "`within` needs"),
        ("within 5 status", "`within` needs"),
        ("within 5s", "`within` needs"),
        ("within 5s say hello", "`within` goes before"),
        ("repeat", "`repeat` needs"),
        ("repeat 3", "`repeat` needs"),
        ("repeat 0 run ls", "from 1 to 200"),
        ("repeat 201 run ls", "from 1 to 200"),
        ("repeat 20 repeat 20 run ls", "from 1 to 200"),
        ("repeat 2 slowly hello", "`repeat` goes before"),
        ("repeat 1 " * 1_000 + "run ls", "`repeat` needs"),
        ("dance with `me`", "`dance with 'me'` is not a command"),
    ],
)
def test_a_faulty_command_is_explained(command, hint):
    with pytest.raises(CommandProblem, match=None) as raised:
        read(command)

    assert hint in str(raised.value)


@pytest.mark.parametrize("piece", [" ", "x ", " =>", "=> x ", ":", "\n"])
def test_no_message_takes_long_to_be_read(piece):
    begun = time.thread_time()
    with suppress(CommandProblem):
        read("edit a:" + piece * (50_000 // len(piece)) + "x")
    assert time.thread_time() - begun < 1.0

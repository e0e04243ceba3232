"""The formatter of log lines: facts behind the message, in a form that a person and a program can read."""

import asyncio
import json
import logging
import logging.config
from uuid import UUID

import pytest
from django.test import Client

from governance.logs import JsonFormatter, KeyValueFormatter, ShortLines, bind

ID = UUID("123e4567-e89b-12d3-a456-426614174000")


def line(message="It happened", *args, **extra):
    record = logging.getLogger("x").makeRecord(
        "x", logging.INFO, __file__, 1, message, args, None, extra=extra
    )
    return KeyValueFormatter("%(levelname)s: %(message)s").format(record)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        (ID, str(ID)),
        (7, "7"),
        (0.25, "0.25"),
        (True, "True"),
        ("two words", '"two words"'),
        ('a"b', r'"a\"b"'),
        ("a=b", '"a=b"'),
        ("Zoë", '"Zoë"'),
        ("forged\nINFO: line", r'"forged\nINFO: line"'),
        ("\u202eturned", r'"\u202eturned"'),
        ("x" * 500, '"' + "x" * 199 + '…"'),
    ],
)
def test_a_fact_is_one_word_or_in_quotes(value, written):
    assert line(fact=value) == f"INFO: It happened fact={written}"


@pytest.mark.parametrize("value", [None, "", object(), {"a": 1}, [1]])
def test_what_is_no_fact_is_left_out(value):
    assert line(fact=value) == "INFO: It happened"


@pytest.mark.parametrize(
    ("sent", "written"),
    [
        ("a\nb\r\nc", r"a\nb\r\nc"),
        ("a\u2028b\u2029c\x85d\x0be", r"a\u2028b\u2029c\x85d\x0be"),
        ("\x1b[2J\x9b2J\x00", r"\x1b[2J\x9b2J\x00"),
        ("\u202eturned", r"\u202eturned"),
        ("\ud800", r"\ud800"),
        (r"C:\new Zoë ✓", r"C:\new Zoë ✓"),
    ],
)
def test_a_message_is_one_line_whatever_is_in_it(sent, written):
    assert line("Failed: %s", sent, id=1) == f"INFO: Failed: {written} id=1"


@pytest.mark.django_db
@pytest.mark.parametrize("formatter", [KeyValueFormatter(), JsonFormatter()])
def test_nobody_writes_a_line_into_the_log_by_the_name_of_a_sign_in(formatter, caplog, settings):
    settings.AXES_SENSITIVE_PARAMETERS = []  # of a site whose log shows who could not sign in
    forged = "2026-01-01 INFO turns.log_lines: An edit was saved"
    for end in ("\n", "\r", "\x1b[2K", "\x85", "\u2028", "\u2029"):
        Client().post("/login/", {"username": f"ada{end}{forged}", "password": "wrong"})
    records = [record for record in caplog.records if record.name.startswith("axes")]
    assert sum(forged in record.getMessage() for record in records) == 6
    for record in records:
        assert formatter.format(record).isprintable()


def test_the_message_and_a_traceback_stay_as_they_are():
    raised = (ValueError, ValueError("why"), None)
    record = logging.getLogger("x").makeRecord(
        "x", logging.ERROR, __file__, 1, "No %s", ("luck",), raised, extra={"id": 1}
    )
    first, *rest = KeyValueFormatter("%(message)s").format(record).splitlines()
    assert first == "No luck id=1"
    assert rest[-1] == "ValueError: why"


async def test_a_line_of_json_has_the_same_facts_and_what_is_bound():
    def formatted(**extra):
        raised = (ValueError, ValueError("why"), None)
        record = logging.getLogger("x").makeRecord(
            "x", logging.ERROR, __file__, 1, "No %s", ("luck\nat all",), raised, extra=extra
        )
        return JsonFormatter().format(record)

    async def in_a_turn():
        bind(turn_id=ID)
        return formatted(count=7, shape={"a": 1}, level="forged")

    text = await asyncio.create_task(in_a_turn())
    assert "\n" not in text
    found = json.loads(text)
    assert found.pop("at").endswith("+00:00")
    assert found.pop("exception") == "ValueError: why"
    said = {"level": "ERROR", "logger": "x", "message": "No luck\nat all"}
    assert found == {**said, "count": 7, "turn_id": str(ID)}


async def test_what_is_bound_holds_in_its_task_and_in_what_that_starts():
    async def inner():
        return await asyncio.to_thread(line, order=7)

    async def outer():
        bind(turn="t", order=1)
        bind(step=2)
        return await asyncio.create_task(inner())

    assert await asyncio.create_task(outer()) == "INFO: It happened order=7 turn=t step=2"
    assert line() == "INFO: It happened"


def test_it_can_be_named_in_the_settings_of_logging():
    shown = {"()": "governance.logs.KeyValueFormatter", "format": "{message}", "style": "{"}
    made = logging.config.DictConfigurator({"version": 1}).configure_formatter(shown)
    assert made.format(logging.makeLogRecord({"msg": "hello", "id": 1})) == "hello id=1"


@pytest.mark.parametrize(("status", "has_traceback"), [(403, False), (500, True)])
def test_a_page_that_somebody_may_not_see_is_one_line(status: int, has_traceback: bool):
    failure = PermissionError("not yours")
    about = (type(failure), failure, None)
    record = logging.LogRecord("django.request", logging.WARNING, __file__, 1, "x", (), about)
    record.status_code = status
    assert ShortLines().filter(record)
    assert bool(record.exc_info) is has_traceback

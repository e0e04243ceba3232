"""Sentences that rows keep in English, for readers of another language: new rows, old rows, and hostile ones."""

import pytest
from django.utils import translation

from governance import registry
from governance.labels import TOOL_TEXTS
from governance.toolbox import shell
from governance.translations import StoredSentences
from turns.chat_models.failures import FailureKind, Subject, failure
from turns.selectors.translations import STORED_SENTENCES, sentence, work_of_sub_agent


@pytest.fixture(autouse=True)
def german():
    with translation.override("de"):
        yield


@pytest.mark.parametrize("kind", list(FailureKind))
@pytest.mark.parametrize("has_begun", [False, True])
def test_every_failure_is_written_in_english_and_read_in_the_readers_language(kind, has_begun):
    subject = Subject(chat_model="openai:gpt (100 %)", key="KEY", extra="openai")
    stored = failure(kind, subject, retry_after=200, seconds=2.5, has_begun=has_begun).message
    with translation.override("en"):
        assert sentence(stored) == stored
    read = sentence(stored)
    assert read != stored
    for name in ("openai:gpt (100 %)", "KEY", "2.5"):
        assert (name in read) is (name in stored)


def test_a_key_whose_variable_is_unknown_is_not_named():
    stored = failure(FailureKind.KEY_REFUSED, Subject(chat_model="azure:gpt")).message
    assert stored.endswith("An administrator can check the key.")
    assert sentence(stored).endswith("Die Verwaltung kann den Schlüssel prüfen.")


def test_every_stored_sentence_has_a_german_one():
    assert {said for said in STORED_SENTENCES if translation.gettext(said) == said} == {
        "%(seconds)s s",
        "%(minutes)s min",
    }


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "A sentence of an earlier version.",
        "The task stopped at its limit of",
        "The task stopped at its limit of no steps.",
        f"The task stopped at its limit of {'9' * 5_000} steps.",
        "%(limit)s",
        "Cancelled. May still be running: %(tools)s",
        "%d %s %(x)s" * 50,
    ],
)
def test_what_is_no_known_sentence_stays_as_it_is(stored):
    assert sentence(stored) == stored


@pytest.mark.parametrize(
    ("language", "stored", "read"),
    [
        ("de", "1 step.", "Limit von 1 Schritt."),
        ("de", "2 steps.", "Limit von 2 Schritten."),
        ("de", "1 steps.", "Limit von 1 Schritt."),
        ("en", "1 steps.", "limit of 1 step."),
    ],
)
def test_a_number_has_the_form_of_the_readers_language_in_old_rows_too(language, stored, read):
    with translation.override(language):
        assert sentence(f"The task stopped at its limit of {stored}").endswith(read)


def test_a_name_in_a_sentence_is_taken_as_it_is():
    name = "a\nb %(tools)s {x} <b>"
    assert sentence(f"Cancelled. May still be running: {name}.") == (
        f"Abgebrochen. Läuft vielleicht noch: {name}."
    )


def test_a_name_that_comes_twice_is_the_same_twice():
    twice = StoredSentences(["%(a)s and %(a)s"])
    assert twice.translate("x and x") == "x and x"
    assert twice.translate("x and y") == "x and y"


def test_only_the_calls_of_sub_agents_tell_of_their_work():
    assert work_of_sub_agent("sessions_ask", "running exec") == "führt exec aus"
    assert work_of_sub_agent("run_tests", "running tests") == "running tests"


def test_every_tool_that_ships_has_its_words_in_the_catalogue():
    shipped = [tool for tool in registry if tool.title or tool.question]
    assert {"exec", "list_files", "sessions_ask"} <= {tool.name for tool in shipped}
    assert {tool.title for tool in shipped} | {tool.question for tool in shipped} <= {
        *TOOL_TEXTS,
        "",
    }
    asked = {shell._ASKS_FREE, shell._ASKS_KEPT_IN}
    assert asked <= set(TOOL_TEXTS)

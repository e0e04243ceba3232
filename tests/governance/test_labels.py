"""What people read in the admin: words, never the short names of rows and of the wire."""

import pytest
from django.apps import apps
from django.utils import translation
from django.utils.translation import gettext_lazy

from console.formats import format_actor, format_span
from governance.core.calls import CallStatus
from governance.labels import call_statuses, decisions, label_for
from governance.models import ToolCall


@pytest.mark.parametrize(
    "model",
    [*apps.get_app_config("governance").get_models(), *apps.get_app_config("turns").get_models()],
)
def test_every_choice_is_words(model):
    choices = [label for field in model._meta.fields for _value, label in field.flatchoices or ()]
    assert [label for label in choices if "_" in str(label)] == []


def test_every_decision_has_its_own_word_in_the_readers_language():
    with translation.override("de"):
        read = dict(decisions())
        assert (read["denied"], read["cancelled"]) == ("abgelehnt", "abgebrochen")
    assert {type(word) for word in read.values()} == {type(gettext_lazy(""))}


def test_a_name_that_nobody_has_put_into_words_is_shown_as_it_is():
    assert label_for("of_another_version", call_statuses()) == "of_another_version"
    assert dict(call_statuses()).keys() == set(CallStatus)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "—"),
        (
            {"ended_by_reason": "user", "ended_by_source": "typed", "ended_by_name": "ada"},
            "ada, typed",
        ),
        (
            {"ended_by_reason": "admin", "ended_by_source": "admin"},
            "an administrator, in the admin",
        ),
        ({"ended_by_reason": "timeout", "ended_by_source": "policy"}, "time limit"),
        ({"ended_by_reason": "disconnect", "ended_by_source": "policy"}, "nobody was connected"),
    ],
)
def test_who_ended_something_is_said_without_what_goes_without_saying(fields, words):
    assert format_actor(ToolCall(**fields)) == words


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(None, "—"), (0, "0 ms"), (999, "999 ms"), (38_322, "38.3 s"), (61_040, "1 min 1 s")],
)
def test_a_span_is_as_exact_as_people_read_it(milliseconds, words):
    assert format_span(milliseconds).replace("\u00a0", " ") == words

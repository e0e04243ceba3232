"""Chat models by name."""

import pytest

from turns.chat_models.catalog import LocalChatModel, get_chat_model
from turns.core.exceptions import ChatModelError
from turns.testing import ScriptedChatModel, text

NOT_CALLABLE = "a string"


def make_scripted():
    return ScriptedChatModel([text("made by a factory")])


def test_local_is_built_in():
    assert isinstance(get_chat_model("local"), LocalChatModel)


@pytest.mark.parametrize("separator", [":", "."])
def test_a_path_names_a_factory(separator):
    assert isinstance(get_chat_model(f"{__name__}{separator}make_scripted"), ScriptedChatModel)


def test_a_chat_model_is_made_once_for_each_name():
    name = f"{__name__}:make_scripted"
    first = get_chat_model(name)

    assert get_chat_model(name) is first
    get_chat_model.cache_clear()
    assert get_chat_model(name) is not first


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gpt",
        "no.such.module:factory",
        f"{__name__}:missing",
        f"{__name__}:NOT_CALLABLE",
        "a:b:c",
        "anthropic:",
        "openai",
        "mistral:large",
    ],
)
def test_an_unknown_name_says_what_to_do(name):
    with pytest.raises(ChatModelError) as raised:
        get_chat_model(name)

    assert raised.value.code == "unknown_chat_model"
    assert "TURNS_CHAT_MODEL" in raised.value.message
    assert "anthropic:…" in raised.value.message


async def test_why_the_code_of_a_chat_model_cannot_be_imported_is_in_the_log(
    chat, settings, tmp_path, monkeypatch, caplog
):
    (tmp_path / "own_model.py").write_text("import a_library_that_is_missing\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    settings.TURNS_CHAT_MODEL = "own_model:make"

    turn_id = await chat.say("hello")

    ended = await chat.sink.until("turn_end", turn_id=str(turn_id))
    assert ended["error_code"] == "unknown_chat_model"
    assert "No module named 'a_library_that_is_missing'" in caplog.text

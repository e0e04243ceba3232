"""A message that is nothing but a wish to stop is a cancel; no other is (C6, acceptance 41)."""

import pytest

from governance.core.cancel_intent import is_cancel_intent, vocabulary


@pytest.mark.parametrize(
    "text",
    [
        "stop",
        "ok nvm",
        "just stop it",
        "please cancel",
        "cancel",
        "never mind",
        "nevermind",
        "nvm",
        "forget it",
        "abort",
        "quit",
        "Stop!",
        "STOP!!!",
        "  stop  ",
        "stop.",
        "/stop",
        "ok, stop.",
        "oh no, wait — stop!",
        "hmm, actually never mind",
        "hey, just cancel everything",
        "cancel the turn",
        "stop all",
        "stop this now",
        "stop please",
        "stop now",
        "never mind, thanks",
        "forget it please",
        "stop stop stop",
        "stop, cancel that",
        "never\n mind",
        "ＳＴＯＰ",  # noqa: RUF001 - full width, folded by NFKC
        "st\u200bop",
        "stop 🛑",
        "stop it please",
        "stop that please",
        "cancel that please",
        "can you stop",
        "Can you please stop that now?",
        "could you please stop",
        "could you stop it, please?",
        "you can stop now",
        "halt",
        "stop the task",
        "cancel the command",
        "stop running",
        "please stop the current task",
        "cancel the running command",
        "stop all tasks",
        "stop the sub-agents",
        "stop what you're doing",
        "Stop what you are doing right now!",
        "stop doing that",
        "forget about it",
        "don't bother",
        "dont bother, thanks",
        "no, don\u2019t bother",
    ],
)
def test_whole_message_wish_is_a_cancel(text):
    assert is_cancel_intent(text)


@pytest.mark.parametrize(
    "text",
    [
        "don't stop the music",
        "can you cancel my subscription",
        "",
        "   ",
        "?!",
        "ok",
        "please",
        "wait",
        "no",
        "it",
        "the turn",
        "nonstop",
        "stopping",
        "stop using emojis",
        "stop don't do anything",
        "how do I quit vim",
        "quit smoking tips",
        "cancel order 17",
        "never mind the gap",
        "do not cancel",
        "don't stop",
        "please don't stop",
        "no, don't cancel it",
        "never stop",
        "you can't stop",
        "don't bother to stop",
        "don't bother cancelling",
        "no need to stop",
        "non-stop",
        "can you not stop",
        "can you stop the music",
        "could you please cancel the meeting",
        "forget about the deadline",
        "stop running the tests twice",
        "halt and catch fire",
        "stop it all the time",
        "why did you stop",
        "stop the server",
        "stop the running server",
        "cancel all meetings",
        "s t o p",
        "stop " * 1000,
    ],
)
def test_ordinary_message_is_no_cancel(text):
    assert not is_cancel_intent(text)


def test_a_pasted_megabyte_is_decided_without_reading_it():
    assert not is_cancel_intent("ok " * 500_000 + "stop")


def test_a_long_row_of_openers_is_decided_at_once():
    assert not is_cancel_intent("hmmm " * 40)


@pytest.mark.parametrize(
    "text",
    [
        *("Stopp!", "hör auf", "Hör bitte auf.", "abbrechen", "Brich das ab, bitte", "vergiss es"),
        *("nein, stopp", "kannst du bitte aufhören?", "hor auf", "Schluss jetzt", "stop bitte"),
        *(
            "arrête",
            "Arrêtez !",
            "arrete ça",
            "annule, s'il te plaît",
            "laisse tomber",
            "ça suffit",
        ),
        *("para", "¡Para ya!", "detente", "deténte", "cancela, por favor", "olvídalo", "basta"),
        *("pare", "para com isso", "cancela isso", "esquece", "deixa pra lá", "Chega!"),
        *("fermati", "basta così", "annulla tutto", "lascia perdere", "smettila per favore"),
        *("стоп", "Стой!", "остановись, пожалуйста", "отмена", "хватит", "забудь", "прекрати это"),
        *("توقف", "توقّف!", "أوقف هذا من فضلك", "اوقف هذا", "إلغاء", "الغاء", "كفى", "لا تهتم"),
        *("रुको", "कृपया रुकिए", "बंद करो!", "रद्द करें", "बस करो", "रहने दो"),
        *(
            "停止",
            "停",
            "停停停",
            "请停止",
            "请停下来。",
            "取消吧",
            "算了",
            "不用了,谢谢",
            "別說了",
            "終止",
        ),
        *(
            "やめて",
            "止めてください",
            "ストップ!",
            "キャンセルして下さい",
            "もういいです",
            "今すぐ止めて",
        ),
    ],
)
def test_the_usual_words_of_ten_other_languages_count_wherever_they_are_said(text):
    assert is_cancel_intent(text)


@pytest.mark.parametrize(
    "text",
    [
        *("nicht abbrechen", "hör nicht auf", "stopp nicht", "brich das Brot", "Halt die Klappe"),
        *(
            "n'arrête pas",
            "arrête pas",
            "ne pas annuler",
            "annule la commande",
            "arrête la musique",
        ),
        *("no pares", "no canceles", "no cancelar", "para mañana", "para qué sirve", "no, sigue"),
        *("não pare", "não cancelar", "não para", "para amanhã", "cancela o pedido"),
        *("non fermarti", "non annullare", "ferma la musica", "basta poco"),
        *("не останавливайся", "не отменять", "не надо отменить", "стоп-кран", "отмени заказ"),
        *("لا تتوقف", "لا توقف", "لا إلغاء", "ألغ الطلب"),
        *("मत रुको", "बंद मत करो", "गाना बंद करो"),
        *("不停", "别停", "不要停", "不要取消", "取消订单", "停车", "请不要停止", "停电了"),
        *("止めないで", "やめないで", "止めてはいけない", "キャンセルしないで", "電車を止めて"),
    ],
)
def test_do_not_stop_and_other_tasks_are_no_cancel_in_any_language(text):
    assert not is_cancel_intent(text)


def test_a_site_adds_phrases_of_its_own():
    also = ("Hou op!", "stopp'a det")
    assert is_cancel_intent("hou op", also=also)
    assert is_cancel_intent("  HOU  OP...", also=also)
    assert is_cancel_intent("Stopp'a det", also=also)
    assert not is_cancel_intent("hou op met de muziek", also=also)
    assert not is_cancel_intent("hou op")


def test_a_phrase_without_a_word_adds_nothing():
    assert not is_cancel_intent("?!", also=("!?", ""))


@pytest.mark.parametrize("filler", ["好的", "もう", "stop ", "halt ", "ok ", "停"])
def test_a_long_row_of_words_in_any_language_is_decided_at_once(filler):
    assert not is_cancel_intent(filler * (199 // len(filler)) + "x")


def test_a_page_gets_the_words_of_english_and_its_own_language():
    known = vocabulary("de-at", also=["Rote Ampel!"])
    assert {"stop", "hor auf"} <= set(known["commands"])
    assert "arrete" not in known["commands"]
    assert known["patterns"][-1] == "rote ampel"
    assert all("(?P" not in pattern for pattern in known["patterns"])
    assert set(vocabulary("en")["commands"]) < set(known["commands"])

"""A message that is nothing but a wish to stop is a cancel; no other is (C6, acceptance 41)."""

import pytest

from governance.core.cancel_intent import is_cancel_intent, vocabulary
from governance.core.cancel_phrases import CATALOGUE

NEGATIONS = {
    "en": ("don't", "do not", "not", "never"),
    "de": ("nicht", "niemals", "nie"),
    "fr": ("ne", "pas", "jamais"),
    "es": ("no", "nunca"),
    "pt": ("não", "nunca"),
    "it": ("non", "mai"),
    "ru": ("не", "никогда не"),
    "ar": ("لا", "لم"),
    "hi": ("मत", "नहीं"),
    "zh": ("不", "别", "不要"),
    "ja": ("決して",),
}


CANCELS = [
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
    "make it stop",
    "Please make it stop!",
    "make it all stop now",
    "that's enough",
    "That\u2019s enough, thanks.",
    "thats enough for now",
    "ok, that is enough",
    "Enough!",
    "enough already",
    "enough of this",
    "that's enough, stop",
    "please stop now",
    "stop everything",
    "stop everything right now",
    "ok stop",
    "stop!!",
    "stop it now",
    "stop it this instant",
    "stop for now",
    "stop it, will you?",
    "stop right there",
    "let's stop here",
    "can we stop?",
    "can we please stop this",
    "you need to stop",
    "I need you to stop now",
    "knock it off",
]


def test_whole_message_wish_is_a_cancel():
    assert [text for text in CANCELS if not is_cancel_intent(text)] == []


ORDINARY_MESSAGES = [
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
    "make it stop at 10",
    "make it not stop",
    "don't make it stop",
    "how do I make it stop",
    "make the music stop",
    "make it cancel the order",
    "that's enough sugar",
    "that's not enough",
    "is that enough?",
    "not enough",
    "enough to eat",
    "never enough",
    "that's enough sugar, stop at 10",
    "can we stop at the bakery",
    "can we not stop",
    "we can't stop",
    "you need not stop",
    "you don't need to stop",
    "stop here and turn left",
    "stop everything but the server",
    "please stop now and then",
    "stop it now and start it again",
    "ok stop using tabs",
    "cancel all meetings",
    "s t o p",
    "stop " * 1000,
]


def test_ordinary_message_is_no_cancel():
    assert [text for text in ORDINARY_MESSAGES if is_cancel_intent(text)] == []


def test_a_pasted_megabyte_is_decided_without_reading_it():
    assert not is_cancel_intent("ok " * 500_000 + "stop")


def test_a_long_row_of_openers_is_decided_at_once():
    assert not is_cancel_intent("hmmm " * 40)


FOREIGN_CANCELS = [
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
    *("Kannst du das bitte abbrechen?", "das reicht", "Genug!", "kannst du alles stoppen"),
    *(
        "Könntest du damit bitte aufhören",
        "brich das sofort ab",
        "du kannst aufhören",
        "halt stopp",
    ),
    *("Tu peux arrêter ça ?", "est-ce que tu peux arrêter", "C'est assez.", "fais arrêter ça"),
    *("¿Puedes parar eso, por favor?", "ya es suficiente", "haz que pare", "detén todo"),
    *("já chega", "pode cancelar isso, por favor?", "É suficiente.", "faz isso parar"),
    *("Puoi fermarlo, per favore?", "puoi smettere", "adesso basta", "fallo smettere"),
    *("Можешь это остановить?", "этого достаточно", "отменить всё, пожалуйста"),
    *("هذا يكفي", "هل يمكنك التوقف من فضلك؟", "اجعله يتوقف"),
    *("बस, इतना काफ़ी है", "क्या आप इसे रोक सकते हैं?", "बहुत हो गया"),
    *("可以停了", "你能停下来吗?", "讓它停下來", "全部取消"),
    *("もう十分です", "止めてくれますか?", "やめてもらえますか"),
]


def test_the_usual_words_of_ten_other_languages_count_wherever_they_are_said():
    assert [text for text in FOREIGN_CANCELS if not is_cancel_intent(text)] == []


FOREIGN_ORDINARY_MESSAGES = [
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
    *("das reicht nicht", "nicht genug", "genug Geld", "kannst du das bitte nicht abbrechen"),
    *("kannst du die Musik abbrechen", "das Brot reicht", "halt das fest", "das halt"),
    *("ça ne suffit pas", "pas assez", "assez bien", "tu peux arrêter la musique ?"),
    *("para eso", "no es suficiente", "suficiente dinero", "haz que no pare"),
    *("não é suficiente", "não chega", "chega amanhã", "pode parar a música"),
    *("non basta", "puoi fermare la musica", "puoi non smettere", "fermarlo domani"),
    *("недостаточно", "этого недостаточно", "не останавливать это", "можешь остановить музыку"),
    *("هذا لا يكفي", "هل يمكنك إيقاف الموسيقى", "لا تجعله يتوقف"),
    *("काफी नहीं है", "क्या आप गाना रोक सकते हैं", "मत रोको"),
    *("不够", "可以停车吗", "能停下来的车", "不能停下来吗", "不可以停了"),
    *("十分です", "十分後に止めて", "止めてくれなくていい", "まだ十分です"),
    *("止めないで", "やめないで", "止めてはいけない", "キャンセルしないで", "電車を止めて"),
]


def test_do_not_stop_and_other_tasks_are_no_cancel_in_any_language():
    assert [text for text in FOREIGN_ORDINARY_MESSAGES if is_cancel_intent(text)] == []


@pytest.mark.parametrize("phrases", CATALOGUE, ids=lambda phrases: phrases.language)
def test_no_command_counts_behind_a_word_for_not(phrases):
    blank = " " if phrases.is_spaced else ""
    openers = ("", *(f"{opener}{blank}" for opener in phrases.before))
    for negation in NEGATIONS[phrases.language]:
        for command in phrases.commands:
            if f"{negation} {command}" in ("no stop", "no basta", *phrases.commands):
                continue  # “No, stop!” in English, “No, basta!” in Italian, “Non fa niente”
            for opener in openers:
                said = f"{opener}{negation}{blank}{command}"
                assert not is_cancel_intent(said), said


@pytest.mark.parametrize("phrases", CATALOGUE, ids=lambda phrases: phrases.language)
def test_each_opener_and_each_closer_goes_with_each_command(phrases):
    blank = " " if phrases.is_spaced else ""
    for command in phrases.commands:
        for opener in phrases.before:
            assert is_cancel_intent(f"{opener}{blank}{command}")
        for closer in phrases.after:
            assert is_cancel_intent(f"{command}{blank}{closer}")


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


def test_a_page_gets_the_words_of_english_and_its_own_language_and_the_patterns_of_all():
    known = vocabulary("de-at", also=["Rote Ampel!"])
    assert {"stop", "hor auf"} <= set(known["commands"])
    assert "arrete" not in known["commands"]
    assert known["patterns"][-1] == "rote ampel"
    assert all("(?P" not in pattern for pattern in known["patterns"])
    assert set(vocabulary("en")["commands"]) < set(known["commands"])
    assert known["patterns"][:-1] == vocabulary("en")["patterns"]
    assert any("arrete" in pattern for pattern in known["patterns"])


def test_each_word_of_the_source_cancels_and_no_text_does_not():
    """`/^(?:stop|cancel|never\\s?mind|nevermind|nvm|forget\\s?it|abort|quit)$/i`."""
    source = [
        "stop",
        "cancel",
        "never mind",
        "nevermind",
        "nvm",
        "forget it",
        "forgetit",
        "abort",
        "quit",
    ]
    assert [word for word in source if not is_cancel_intent(word.title())] == []
    assert not is_cancel_intent(None)

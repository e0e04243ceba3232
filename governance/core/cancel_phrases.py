# ruff: noqa: RUF001 - the phrases are in several scripts
"""The phrases with which people ask to stop, typed or spoken, in English and ten other languages.

No list allows a word for “not” before or after a command, so “don't stop the music” is not a cancel. The only objects
in the lists are the agent's own work, so “cancel my subscription” and “stop the server” are treated as tasks.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelPhrases:
    """The phrases of one language: commands, openers, objects and closers.

    `is_spaced` is False if the language is written without spaces between words.
    """

    language: str
    commands: tuple[str, ...]
    before: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    is_spaced: bool = True


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(","))


ENGLISH = CancelPhrases(
    language="en",
    before=_phrases(
        "ok, okay, k, alright, all right, oh, ah, uh, um, hm, hmm, hey, no, nope, nah, well, sorry, wait, hold on, actually,"
        " please, pls, kindly, just, now, can you, could you, would you, will you, you can, you may, you should, you must,"
        " you need to, you have to, can we, could we, we can, we should, i said, i want you to, i need you to, i'd like you to,"
        " let's, stop, cancel, enough, that's enough, thats enough, that is enough"
    ),
    commands=_phrases("stop, cancel, halt, abort, quit, never mind, nevermind, nvm"),
    about=_phrases(
        "it, that, this, these, those, everything, all, it all, all of it, all of that, all of this, all that, all this,"
        " the turn, this turn, that turn, the run, this run, that run, the task, this task, that task, the tasks, all tasks,"
        " the current task, the running task, the command, this command, that command, the commands, all commands,"
        " the current command, the running command, the tool, this tool, that tool, the tools,"
        " the tool call, the search, this search, the agent, the agents, the sub-agent, the sub-agents, the subagent,"
        " the subagents,"
        " the work, your work, the answer, your answer, the response, the reply, the generation,"
        " running, working, generating, writing, talking, searching, doing it, doing that, doing this,"
        " running it, running that, running this, what you are doing, what you're doing, whatever you are doing,"
        " whatever you're doing, here, there, right here, right there"
    ),
    after=_phrases(
        "please, pls, now, right now, right away, at once, immediately, instantly, asap, this instant, this minute,"
        " this second, for now, already, thanks, thank you, ok, okay, will you, would you"
    ),
)
# These phrases need no object, and a command after one of them would reverse its meaning ("don't bother to stop").
ENGLISH_DISMISSALS = CancelPhrases(
    language="en",
    before=ENGLISH.before,
    commands=_phrases(
        "forget it, forgetit, forget that, forget this, forget about it, forget about that, forget about this, don't bother,"
        " dont bother, do not bother, no need, make it stop, make this stop, make that stop, make it all stop,"
        " make everything stop, enough, that's enough, thats enough, that is enough, enough of it, enough of that,"
        " enough of this, enough is enough, knock it off"
    ),
    after=ENGLISH.after,
)

GERMAN = CancelPhrases(
    language="de",
    before=_phrases(
        "ok, okay, nein, nee, ach, oh, äh, hey, bitte, jetzt, warte, moment, sofort, genug, das reicht, kannst du,"
        " kannst du das, kannst du es, kannst du damit, könntest du, könntest du das, könntest du es, könntest du damit,"
        " würdest du, würdest du das, würdest du es, würdest du damit, können sie, können sie das, könnten sie,"
        " könnten sie das, du kannst, du sollst, sie können"
    ),
    commands=_phrases(
        "stop, stopp, stoppe, stoppen, stopp das, stoppe das, stoppe es, halt, halte an, anhalten, halt an, hör auf, höre auf,"
        " hört auf, hören sie auf, hör bitte auf, hör jetzt auf, hör sofort auf, hör auf damit, hör damit auf, aufhören,"
        " damit aufhören, abbrechen, das abbrechen, es abbrechen, alles abbrechen, das stoppen, es stoppen, alles stoppen,"
        " stopp alles, stoppe alles, halt stopp, abbruch, brich ab, brich das ab, brich es ab, brich alles ab,"
        " brich bitte ab, brich jetzt ab, brich sofort ab, brich das bitte ab, brich das jetzt ab, brich das sofort ab,"
        " brechen sie ab, brechen sie das ab, das reicht, es reicht, jetzt reicht es, jetzt reicht's, das genügt, genug,"
        " genug davon, beende das, beende es, schluss, schluss damit, schluss jetzt, vergiss es,"
        " vergiss das, vergessen sie es, lass es, lass das, lass gut sein, lass es gut sein, lass mal, nicht mehr nötig"
    ),
    after=_phrases("bitte, mal, jetzt, sofort, gleich, danke, ok, okay"),
)
FRENCH = CancelPhrases(
    language="fr",
    before=_phrases(
        "ok, okay, bon, oh, euh, hé, s'il te plaît, s'il vous plaît, stp, svp, attends, attendez, maintenant, tu peux,"
        " peux-tu, pourrais-tu, tu pourrais, est-ce que tu peux, vous pouvez, pouvez-vous, pourriez-vous, vous pourriez,"
        " est-ce que vous pouvez"
    ),
    commands=_phrases(
        "stop, stoppe, stoppez, stopper, arrête, arrêtez, arrêter, arrête-toi, arrêtez-vous, t'arrêter, vous arrêter,"
        " arrête ça, arrêtez ça, arrêter ça, arrête tout, arrêtez tout, tout arrêter, non arrête, non arrêtez, annule,"
        " annulez, annuler, annule ça, annulez ça, annule tout, annuler tout, non annule, non annulez, interromps,"
        " interrompez, abandonne, abandonnez, halte, ça suffit, assez, c'est assez, en voilà assez, fais arrêter ça,"
        " fais que ça s'arrête, arrête cela, arrêtez cela, annule cela, annulez cela, annuler ça, laisse tomber, laissez tomber, laisse, laissez, oublie,"
        " oubliez, oublie ça, oubliez ça, tant pis"
    ),
    after=_phrases(
        "s'il te plaît, s'il vous plaît, stp, svp, maintenant, tout de suite, immédiatement, merci, ok"
    ),
)
SPANISH = CancelPhrases(
    language="es",
    before=_phrases(
        "ok, okay, vale, bueno, ay, oye, eh, por favor, espera, espere, ahora, ya, puedes, puede, podrías, podría"
    ),
    commands=_phrases(
        "stop, para, pare, párate, parar, para ya, para todo, detente, deténgase, detenerte, detener, detenlo, deténlo,"
        " alto ahí, cancela, cancele, cancelar, cancélalo, cancela eso, cancela todo, aborta, aborte, abortar, anula,"
        " anular, interrumpe, interrumpir, pararlo, parar eso, parar esto, parar todo, detenerlo, detener eso, detener todo,"
        " detén eso, detén esto, detén todo, cancelarlo, cancelar eso, cancelar esto, cancelar todo, haz que pare,"
        " haz que se detenga, suficiente, es suficiente, ya es suficiente, basta, ya basta, olvídalo, olvídate, olvídelo, olvida eso, déjalo, déjelo,"
        " déjalo así, no importa, da igual"
    ),
    after=_phrases("ya, ahora, ahora mismo, por favor, inmediatamente, gracias, ok, vale"),
)
PORTUGUESE = CancelPhrases(
    language="pt",
    before=_phrases(
        "ok, okay, tá, bom, ei, oi, por favor, espera, espere, agora, você pode, pode, podes, poderia, podia"
    ),
    commands=_phrases(
        "stop, para, pare, parar, para tudo, pare tudo, para com isso, pare com isso, pare isso, cancela, cancele, cancelar,"
        " cancela isso, cancele isso, cancela tudo, aborta, aborte, abortar, anula, anular, interrompe, interrompa,"
        " interromper, parar tudo, parar com isso, parar isso, cancelar isso, cancelar tudo, faz isso parar, faça isso parar,"
        " suficiente, é suficiente, já é suficiente, basta, já basta, chega, já chega, esquece, esqueça, esquece isso, esqueça isso, deixa, deixa isso, deixa pra lá,"
        " deixa para lá, deixe para lá, não importa, tanto faz"
    ),
    after=_phrases("já, agora, agora mesmo, por favor, imediatamente, obrigado, obrigada, ok"),
)
ITALIAN = CancelPhrases(
    language="it",
    before=_phrases(
        "ok, okay, no, va bene, ehi, oh, per favore, per piacere, aspetta, aspetti, ora, adesso, puoi, può, potresti,"
        " potrebbe"
    ),
    commands=_phrases(
        "stop, ferma, fermo, fermati, fermatevi, si fermi, fermare, fermarti, ferma tutto, fermalo, basta, basta così,"
        " così basta, smetti, smettila, smettere, smetterla, fallo smettere, fermarlo, fermare tutto, annullarlo,"
        " annullare tutto, annulla, annulli, annullare, annullalo, annulla tutto, interrompi, interrompere,"
        " interrompi tutto, lascia stare, lascia perdere, lasci stare, lasci perdere, dimenticalo, dimentica,"
        " non importa, fa niente, non fa niente"
    ),
    after=_phrases("ora, adesso, subito, immediatamente, per favore, per piacere, grazie, ok"),
)
RUSSIAN = CancelPhrases(
    language="ru",
    before=_phrases(
        "ок, окей, ладно, ну, нет, так, эй, пожалуйста, подожди, подождите, сейчас, всё, можешь, можете, мог бы ты"
    ),
    commands=_phrases(
        "стоп, стой, стойте, остановись, остановитесь, останови, остановите, остановить, остановиться, останови это,"
        " останови всё, прекрати, прекратите, прекратить, прекрати это, перестань, перестаньте, прерви, прервите, прервать,"
        " остановить это, остановить всё, это остановить, прекратить это, это прекратить, отменить это, отменить всё,"
        " это отменить, хватит, этого хватит, довольно, достаточно, этого достаточно, отмена, отмени, отмените, отменить, отмени это, отмени всё, отбой, забудь, забудьте,"
        " забудь об этом, забей, неважно, не важно, не надо, не нужно, брось"
    ),
    after=_phrases("пожалуйста, сейчас, сейчас же, немедленно, спасибо, уже, всё"),
)
ARABIC = CancelPhrases(
    language="ar",
    before=_phrases(
        "حسنا, طيب, أوكي, من فضلك, رجاء, الرجاء, يرجى, لو سمحت, أرجوك, انتظر, الآن, هل يمكنك"
    ),
    commands=_phrases(
        "توقف, توقفي, توقفوا, قف, قفي, أوقف, أوقفي, أوقفه, أوقف هذا, أوقف ذلك, أوقف كل شيء, إيقاف, وقف, ستوب, كفى, كفاية,"
        " يكفي, هذا يكفي, يكفي هذا, اجعله يتوقف, هل يمكنك التوقف, هل يمكنك إيقاف هذا, هل يمكنك إيقاف ذلك,"
        " هل يمكنك إلغاء هذا, هل يمكنك إلغاء ذلك, خلاص, إلغاء, ألغ, ألغي, ألغه, ألغيه, ألغ ذلك, ألغ هذا, ألغ الأمر, إلغ, انس الأمر, انسى الأمر, انسى, لا تهتم, لا يهم,"
        " لا داعي"
    ),
    after=_phrases("من فضلك, رجاء, لو سمحت, أرجوك, الآن, فورا, حالا, شكرا"),
)
HINDI = CancelPhrases(
    language="hi",
    before=_phrases(
        "ठीक है, अच्छा, अरे, सुनो, कृपया, प्लीज़, प्लीज, ज़रा, अब, इसे, यह, ये, सब, बस, क्या आप, क्या तुम, आप, तुम"
    ),
    commands=_phrases(
        "रुको, रुकिए, रुकिये, रुकें, रुक जाओ, रुक जाइए, रुक जा, रोको, रोकिए, रोकें, रोक दो, रोक दीजिए, बंद करो, बंद करें, बंद कीजिए,"
        " बंद कर दो, इसे रोक सकते हैं, इसे रोक सकते हो, रुक सकते हैं, रुक सकते हो, इतना काफी है, इतना काफ़ी है, काफी है, काफ़ी है, बहुत हो गया,"
        " बस, बस करो, बस कीजिए, रद्द, रद्द करो, रद्द करें, रद्द कीजिए, रद्द कर दो, कैंसल, कैंसल करो, कैंसिल, कैंसिल करो, स्टॉप,"
        " छोड़ो, छोड़ दो, छोड़िए, रहने दो, रहने दीजिए, जाने दो, भूल जाओ, भूल जाइए"
    ),
    after=_phrases("कृपया, प्लीज़, प्लीज, अभी, अब, तुरंत, धन्यवाद, शुक्रिया"),
)
CHINESE = CancelPhrases(
    language="zh",
    before=_phrases(
        "请, 請, 麻烦, 麻煩, 好, 好的, 好了, 行了, 嗯, 快, 等等, 等一下, 先, 马上, 馬上, 立即, 立刻, 现在, 現在, 你, 你可以"
    ),
    commands=_phrases(
        "停, 停止, 停下, 停下来, 停下來, 停一下, 停手, 停住, 住手, 打住, 取消, 取消任务, 取消任務, 取消吧, 中止, 终止, 終止,"
        " 中断, 中斷, 停止任务, 停止任務, 停止运行, 停止執行, 停止执行, 停止生成, 别说了, 別說了, 别做了, 別做了, 别弄了, 別弄了, 别跑了,"
        " 全部停止, 全部取消, 让它停下, 让它停下来, 讓它停下來, 可以停了, 能停下来吗, 能停下來嗎, 可以停下来吗, 可以停下來嗎, 能停一下吗, 可以停一下吗,"
        " 算了, 算了吧, 不用了, 不要了, 不必了, 够了, 夠了, 忘了吧, 忘掉吧"
    ),
    after=_phrases("吧, 啊, 谢谢, 謝謝, 谢谢你, 謝謝你"),
    is_spaced=False,
)
JAPANESE = CancelPhrases(
    language="ja",
    before=_phrases(
        "はい, あの, ちょっと, ちょっと待って, 待って, いや, いいえ, じゃあ, もう, すぐに, すぐ, 今すぐ, いますぐ, どうか, それ, それを, これ,"
        " これを, 全部"
    ),
    commands=_phrases(
        "止めて, 止めろ, とめて, 止まって, 止まれ, とまって, やめて, やめろ, やめよう, 辞めて, ストップ, ストップして, 停止, 停止して,"
        " キャンセル, キャンセルして, 中止, 中止して, 中断, 中断して, 取り消し, 取り消して, 取消, もう十分, もう十分です, もういい, もういいよ, もういいです, 忘れて,"
        " 結構です"
    ),
    after=_phrases(
        "ください, 下さい, くれ, くれますか, くれませんか, もらえますか, もらえませんか, いただけますか, よ, ね, お願い, お願いします, おねがいします, ありがとう"
    ),
    is_spaced=False,
)

CATALOGUE = (
    ENGLISH,
    ENGLISH_DISMISSALS,
    GERMAN,
    FRENCH,
    SPANISH,
    PORTUGUESE,
    ITALIAN,
    RUSSIAN,
    ARABIC,
    HINDI,
    CHINESE,
    JAPANESE,
)

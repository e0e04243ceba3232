/** The bar above the composer: the turn at work, its cancel button, and the way to the open questions. */

import { openQuestions } from "../state/overview.js";
import { activeTurn, queuedCount } from "../state/reducer.js";
import { elapsedOf, isCallOver, isStopUnderWay } from "../state/status.js";
import { byId, setText } from "./dom.js";
import { stoppingLabel } from "./labels.js";
import { QuestionCycler } from "./question_cycler.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./tool_call.js").View} View */

/** "21 s" is not torn apart where the bar is narrow. */
const NO_BREAK = "\u00a0";

export class RunningBar {
  #bar = byId("running-bar", HTMLElement);
  #barText = byId("running-text", HTMLElement);
  #queued = byId("running-queued", HTMLElement);
  #cancel = byId("cancel-turn", HTMLButtonElement);
  #cancelLabel = byId("cancel-turn-label", HTMLElement);
  #asked = byId("asked", HTMLButtonElement);
  #cycler = new QuestionCycler();

  /** @param {State} state @param {View} view */
  render(state, view) {
    const turn = activeTurn(state);
    const questions = openQuestions(state);
    const isAsking = questions.length > 0;
    const focused = document.activeElement;
    this.#bar.hidden = turn === null && !isAsking;
    this.#bar.classList.toggle("is-asking", isAsking);
    this.#renderQuestionButton(questions, view.i18n);
    this.#cancel.hidden = turn === null;
    const queued = queuedCount(state);
    setText(this.#queued, queued > 0 ? view.i18n.count("bar_queue", queued) : "");
    if (turn === null) setText(this.#barText, isAsking ? view.i18n.text("bar_asked") : "");
    else this.#renderTurn(turn, isAsking, view);
    const isGone = this.#bar.hidden || this.#cancel.hidden || this.#cancel.disabled;
    const isLost = focused === this.#cancel ? isGone : focused === this.#asked && this.#asked.hidden;
    if (isLost) this.#moveFocus();
  }

  /** Go on to the next question. @param {State} state @returns {string} its turn and call, empty if nothing is asked */
  nextQuestion(state) {
    return this.#cycler.step(openQuestions(state));
  }

  /** The button that leads from question to question. @param {ReadonlyArray<string>} questions @param {import("./i18n.js").I18n} i18n */
  #renderQuestionButton(questions, i18n) {
    const n = questions.length;
    this.#asked.hidden = n === 0;
    const place = { k: this.#cycler.next(questions) + 1, n };
    setText(this.#asked, i18n.text(n > 1 ? "show_question_of" : "show_question", place));
  }

  /** @param {import("../state/types.js").Turn} turn @param {boolean} isAsking @param {View} view */
  #renderTurn(turn, isAsking, { i18n, now, frozenAt }) {
    const tools = Object.values(turn.calls).filter((call) => !isCallOver(call.status)).length;
    const left = isAsking || turn.retry === null ? 0 : turn.retry.at - (frozenAt ?? now);
    const key = isAsking ? "bar_asked" : turn.status === "queued" ? "bar_queued" : "bar_working";
    const doing =
      left > 0 ? i18n.text("bar_retrying", { left: i18n.wholeClock(Math.ceil(left / 1000) * 1000) }) : i18n.text(key);
    const facts = [];
    if (tools > 0 && !isAsking) facts.push(i18n.count("bar_tools", tools));
    if (turn.status !== "queued" && left <= 0) facts.push(i18n.wholeClock(elapsedOf(turn, now, frozenAt)));
    setText(this.#barText, [doing, ...facts.map((fact) => fact.replaceAll(" ", NO_BREAK))].join(" · "));
    const { stoppingAt } = turn;
    this.#bar.classList.toggle("is-stopping", stoppingAt !== null);
    this.#cancel.disabled = isStopUnderWay(turn, { now, frozenAt });
    if (this.#cancel.disabled && stoppingAt !== null)
      setText(this.#cancelLabel, stoppingLabel(i18n, stoppingAt, { now, frozenAt }));
    else setText(this.#cancelLabel, i18n.text(stoppingAt === null ? "cancel_turn" : "cancel_again"));
  }

  /** To where writing goes on; not on a touch screen, where that would open its keyboard. */
  #moveFocus() {
    byId(matchMedia("(hover: hover)").matches ? "composer-input" : "transcript", HTMLElement).focus();
  }
}

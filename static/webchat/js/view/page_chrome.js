/** What stands around the transcript: the connection's state, the running bar, the notice, the first hints. */

import { openQuestions, questionsElsewhere } from "../state/overview.js";
import { activeTurn, queuedCount } from "../state/reducer.js";
import { elapsedOf, isCallOver, isStopUnderWay } from "../state/status.js";
import { showBadges, standingHere } from "./badges.js";
import { byId, setText } from "./dom.js";
import { stoppingLabel } from "./labels.js";
import { QuestionCycler } from "./question_cycler.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./tool_call.js").View} View */

/** States that the dot in the header shows well enough. */
const WITHOUT_BANNER = new Set(["online", "connecting", "slow"]);
const FINAL = new Set(["signed_out", "not_found", "outdated"]);
/** Catching up is over in a moment, mostly: a banner would only flash. */
const SHORT_LIVED = new Set(["resuming"]);
const SHORT_LIVED_MS = 700;
/** "21 s" is not torn apart where the bar is narrow. */
const NO_BREAK = "\u00a0";

/** Draws everything outside the transcript from the state. */
export class PageChrome {
  #dot = byId("connection", HTMLElement);
  #dotText = byId("connection-text", HTMLElement);
  #banner = byId("banner", HTMLElement);
  #bannerText = byId("banner-text", HTMLElement);
  #reconnect = byId("reconnect", HTMLButtonElement);
  #reload = byId("reload", HTMLButtonElement);
  #signIn = byId("sign-in", HTMLAnchorElement);
  #bar = byId("running-bar", HTMLElement);
  #barText = byId("running-text", HTMLElement);
  #queued = byId("running-queued", HTMLElement);
  #cancel = byId("cancel-turn", HTMLButtonElement);
  #cancelLabel = byId("cancel-turn-label", HTMLElement);
  #notice = byId("notice", HTMLElement);
  #noticeText = byId("notice-text", HTMLElement);
  #parked = byId("parked", HTMLElement);
  #app = byId("chat", HTMLElement);
  #empty = byId("empty", HTMLElement);
  #earlier = byId("earlier", HTMLElement);
  #skeleton = byId("skeleton", HTMLElement);
  #asked = byId("asked", HTMLButtonElement);
  #back = byId("back", HTMLAnchorElement);
  #title = document.title;
  #here = this.#app.dataset.conversationId ?? "";
  #cycler = new QuestionCycler();

  /** @param {State} state @param {View} view */
  render(state, view) {
    const isEmpty = state.phase === "ready" && state.turns.length === 0 && state.pendingMessages.length === 0;
    this.#empty.hidden = !isEmpty;
    this.#skeleton.hidden = state.phase === "ready" || FINAL.has(state.connection.status);
    this.#earlier.hidden = !state.hasEarlier;
    this.#earlier.toggleAttribute("data-loading", state.isLoadingEarlier);
    if (state.phase === "ready") this.#renderBadges(state, view);
    this.#parked.hidden = !state.parked;
    this.#app.toggleAttribute("data-parked", state.parked);
    this.#renderNotice(state, view);
    this.#callForAttention(state, view);
    this.tick(state, view);
  }

  /** Repaint what time changes. @param {State} state @param {View} view */
  tick(state, view) {
    this.#renderConnection(state, view);
    this.#renderBar(state, view);
  }

  /** A conversation that got its name. @param {string} title */
  name(title) {
    this.#title = `${title} · ${document.title.split(" · ").at(-1)}`;
  }

  /** The question to show next, as its turn and call. @param {State} state @returns {string} empty if nothing is asked */
  nextQuestion(state) {
    return this.#cycler.step(openQuestions(state));
  }

  /** Somebody who looks at another tab sees there that decisions are wanted, here or elsewhere. @param {State} state @param {View} view */
  #callForAttention(state, { i18n }) {
    const there = questionsElsewhere(state, this.#here);
    const asked = openQuestions(state).length + there;
    const title = asked > 0 ? i18n.text("title_asked", { n: asked, title: this.#title }) : this.#title;
    if (document.title !== title) document.title = title;
    this.#back.toggleAttribute("data-asked", there > 0);
    this.#back.setAttribute("aria-label", there > 0 ? i18n.count("back_asked", there) : i18n.text("back"));
  }

  /** @param {State} state @param {View} view */
  #renderBadges(state, { i18n }) {
    const badges = new Map(
      state.otherConversations.map(({ conversationId, standing, askedIn }) => [
        conversationId,
        { standing, asked: askedIn.length },
      ]),
    );
    showBadges(badges.set(this.#here, standingHere(state)), i18n);
  }

  /** @param {State} state @param {View} view */
  #renderConnection(state, { i18n, now }) {
    const { status, frozenAt } = state.connection;
    const isYoung = SHORT_LIVED.has(status) && now - (frozenAt ?? now) < SHORT_LIVED_MS;
    this.#dot.dataset.status = status;
    setText(this.#dotText, i18n.text(`connection_${status}`));
    this.#banner.hidden = WITHOUT_BANNER.has(status) || isYoung;
    this.#banner.dataset.status = status;
    const idle = activeTurn(state) === null ? `banner_${status}_idle` : "";
    const banner = i18n.has(idle) ? idle : `banner_${status}`;
    setText(this.#bannerText, i18n.has(banner) ? i18n.text(banner) : "");
    this.#reconnect.hidden = !["reconnecting", "offline", "restarting", "busy"].includes(status);
    this.#reload.hidden = status !== "outdated";
    this.#signIn.hidden = status !== "signed_out";
  }

  /** @param {State} state @param {View} view */
  #renderBar(state, view) {
    const turn = activeTurn(state);
    const questions = openQuestions(state);
    const isAsking = questions.length > 0;
    const focused = document.activeElement;
    this.#bar.hidden = turn === null && !isAsking;
    this.#bar.classList.toggle("is-asking", isAsking);
    this.#renderWay(questions, view.i18n);
    this.#cancel.hidden = turn === null;
    const queued = queuedCount(state);
    setText(this.#queued, queued > 0 ? view.i18n.count("bar_queue", queued) : "");
    if (turn === null) setText(this.#barText, isAsking ? view.i18n.text("bar_asked") : "");
    else this.#renderTurn(turn, isAsking, view);
    const isGone = this.#bar.hidden || this.#cancel.hidden || this.#cancel.disabled;
    const isLost = focused === this.#cancel ? isGone : focused === this.#asked && this.#asked.hidden;
    if (isLost) this.#moveFocus();
  }

  /** The button that leads from question to question. @param {ReadonlyArray<string>} questions @param {import("./i18n.js").I18n} i18n */
  #renderWay(questions, i18n) {
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

  /** @param {State} state @param {View} view */
  #renderNotice({ notice }, { i18n }) {
    this.#notice.hidden = notice === null;
    if (notice === null) return;
    this.#notice.dataset.level = notice.level;
    setText(this.#noticeText, i18n.text(notice.key, notice.params));
  }
}

/**
 * Draws the attention of a person in another tab to pending decisions and ended turns: by title, back link and
 * notification.
 */

import { askedCall, askedCount, newForms, openQuestions, questionsElsewhere } from "../state/overview.js";
import { isTurnOver } from "../state/status.js";
import { browserStorage } from "../state/storage.js";
import { byId } from "./dom.js";
import { askedLabel, formLabel } from "./labels.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./dom.js").View} View */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./i18n.js").I18n} I18n */

/** Shows in the title and at the back link that something waits for the person. */
export class Attention {
  #back = byId(document, "back", HTMLAnchorElement);
  #title = document.title;
  #conversationId;
  #hasEnded = false;

  /** @param {string} conversationId the conversation of this page */
  constructor(conversationId) {
    this.#conversationId = conversationId;
  }

  get title() {
    return this.#title;
  }

  /** Set the title of the conversation. @param {string} title */
  name(title) {
    this.#title = `${title} · ${document.title.split(" · ").at(-1)}`;
  }

  /** Return a long turn that ended while the page was hidden, if any. @param {State} before @param {State} after */
  ended(before, after) {
    if (document.visibilityState === "visible") return null;
    const wasAtWork = new Set(before.turns.filter(({ status }) => !isTurnOver(status)).map(({ id }) => id));
    const turn = after.turns.find(({ id, status }) => isTurnOver(status) && wasAtWork.has(id));
    if (!turn || !wasLong(turn)) return null;
    this.#hasEnded = true;
    return turn;
  }

  /**
   * Return the text of a new question, or "" if there is none.
   * @param {State} before
   * @param {State} after
   * @param {import("./i18n.js").I18n} i18n
   */
  asked(before, after, i18n) {
    const keysBefore = new Set(openQuestions(before));
    const key = before.phase === "ready" ? openQuestions(after).find((each) => !keysBefore.has(each)) : undefined;
    const call = key === undefined ? null : askedCall(after, key);
    if (call) return askedLabel(i18n, call);
    const form = before.phase === "ready" ? newForms(before, after)[0] : undefined;
    if (form) return formLabel(i18n, form);
    const here = this.#conversationId;
    const isElsewhere = before.latest && questionsElsewhere(after, here) > questionsElsewhere(before, here);
    return isElsewhere ? i18n.text("say_asked_elsewhere") : "";
  }

  /** @param {State} state @param {Pick<View, "i18n">} view */
  render(state, { i18n }) {
    if (document.visibilityState === "visible") this.#hasEnded = false;
    const elsewhere = questionsElsewhere(state, this.#conversationId);
    const count = askedCount(state) + elsewhere;
    const idleTitle = this.#hasEnded ? i18n.text("title_ended", { title: this.#title }) : this.#title;
    const title = count > 0 ? i18n.text("title_asked", { n: count, title: this.#title }) : idleTitle;
    if (document.title !== title) document.title = title;
    this.#back.toggleAttribute("data-asked", elsewhere > 0);
    this.#back.setAttribute("aria-label", elsewhere > 0 ? i18n.count("back_asked", elsewhere) : i18n.text("back"));
  }
}

const KEY = "webchat-notifications";
const LONG_MS = 10_000;

/** Return whether a turn took so long that the person may have left the page. @param {Turn} turn */
const wasLong = ({ durationMs }) => (durationMs ?? 0) >= LONG_MS;

/** Notifies a person in another tab, if that person has turned notifications on with the button. */
export class TurnNotification {
  #button = byId(document, "notifications", HTMLButtonElement);
  #i18n;
  #onProblem;

  /** @param {I18n} i18n @param {(text: string) => void} onProblem */
  constructor(i18n, onProblem) {
    this.#i18n = i18n;
    this.#onProblem = onProblem;
    this.#button.hidden = !("Notification" in window);
    this.#button.addEventListener("click", () => void this.#toggle());
    this.#show();
  }

  /** @param {string} title @param {string} text */
  tell(title, text) {
    if (!this.#isOn()) return;
    try {
      const notification = new Notification(title, { body: text, tag: location.pathname });
      notification.addEventListener("click", () => window.focus());
    } catch {
      // mobile browsers have this constructor, but calling it throws
    }
  }

  #isOn() {
    return !this.#button.hidden && Notification.permission === "granted" && browserStorage.getItem(KEY) === "on";
  }

  /** Turn notifications on or off. The browser's permission is requested only here. */
  async #toggle() {
    const isWanted = !this.#isOn();
    if (isWanted && (await Notification.requestPermission()) !== "granted")
      this.#onProblem(this.#i18n.text("notifications_denied"));
    else browserStorage.setItem(KEY, isWanted ? "on" : "off");
    this.#show();
  }

  #show() {
    this.#button.setAttribute("aria-pressed", String(this.#isOn()));
  }
}

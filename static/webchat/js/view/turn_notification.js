/** Tells a person in another tab that a long turn has ended: by a notification of the browser, where it was allowed by the button. */

import { browserStorage } from "../state/storage.js";
import { byId } from "./dom.js";

/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./i18n.js").I18n} I18n */

const KEY = "webchat-notifications";
const LONG_MS = 10_000;

/** Whether it took so long that somebody may have gone elsewhere meanwhile. @param {Turn} turn */
export const wasLong = ({ durationMs }) => (durationMs ?? 0) >= LONG_MS;

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
      const shown = new Notification(title, { body: text, tag: location.pathname });
      shown.addEventListener("click", () => window.focus());
    } catch {
      // a browser of a telephone has the name and shows none
    }
  }

  #isOn() {
    return !this.#button.hidden && Notification.permission === "granted" && browserStorage.getItem(KEY) === "on";
  }

  /** The browser is asked only here. */
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

/** The page's two live regions: one that waits its turn, one that does not. */

import { setText } from "./dom.js";

const GAP_MS = 400;
const MAX_WAITING = 3;

/** Says one thing at a time; what has waited too long is dropped for what is newer. */
export class Announcer {
  #status;
  #alert;
  /** @type {Array<string>} */
  #waiting = [];
  #isSpeaking = false;

  /** @param {HTMLElement} status @param {HTMLElement} alert */
  constructor(status, alert) {
    this.#status = status;
    this.#alert = alert;
  }

  /** @param {import("./announcements.js").Announcement} announcement */
  say({ text, urgent }) {
    if (urgent) {
      // What was said before it, or waits to be said, may not hold any more.
      this.#waiting = [];
      setText(this.#status, "");
      setText(this.#alert, text);
      return;
    }
    this.#waiting = [...this.#waiting, text].slice(-MAX_WAITING);
    if (!this.#isSpeaking) this.#next();
  }

  /** Take back what was urgent and no longer holds. */
  calm() {
    setText(this.#alert, "");
  }

  /** Take back what does not hold any more, if it is still said or waits to be. @param {string} text */
  takeBack(text) {
    this.#waiting = this.#waiting.filter((each) => each !== text);
    for (const region of [this.#status, this.#alert]) if (region.textContent === text) setText(region, "");
  }

  #next() {
    const text = this.#waiting.shift();
    this.#isSpeaking = text !== undefined;
    if (text === undefined) return;
    setText(this.#status, text);
    setTimeout(() => this.#next(), GAP_MS);
  }
}

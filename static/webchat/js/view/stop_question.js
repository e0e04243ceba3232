/** "Stop the turn?": asked before a message is sent that begins with a cancel word while something runs. No timer runs meanwhile. */

import { byId } from "./dom.js";

/** @typedef {import("./dom.js").Root} Root */
/** @typedef {Readonly<{send: () => void, keep: () => void}>} DoubtfulMessage `keep` is called where it is not sent. */

/** A second or held Enter, or a second click, was meant for what was sent: it answers nothing. */
const ARMED_AFTER_MS = 500;

export class StopQuestion {
  #box;
  #stop;
  #askedAt = 0;
  /** @type {DoubtfulMessage|null} */
  #message = null;

  /** @param {Root} root @param {{stop: () => void, leave: () => void, signal: AbortSignal}} answers */
  constructor(root, { stop, leave, signal }) {
    this.#box = byId(root, "stop-question", HTMLElement);
    this.#stop = byId(root, "stop-question-stop", HTMLButtonElement);
    const send = byId(root, "stop-question-send", HTMLButtonElement);
    const answer = (/** @type {HTMLButtonElement} */ button, /** @type {() => void} */ act) => {
      const clicked = () => {
        if (performance.now() - this.#askedAt < ARMED_AFTER_MS) return;
        act();
        leave();
      };
      button.addEventListener("click", clicked, { signal });
    };
    answer(this.#stop, () => {
      this.dismiss();
      stop();
    });
    answer(send, () => this.#take()?.send());
    this.#box.addEventListener(
      "keydown",
      (event) => {
        if (event.key === "Enter" && event.repeat) event.preventDefault();
        if (event.key !== "Escape") return;
        event.preventDefault();
        this.dismiss();
        leave();
      },
      { signal },
    );
  }

  /** @param {DoubtfulMessage} message */
  ask(message) {
    this.dismiss();
    this.#message = message;
    this.#askedAt = performance.now();
    this.#box.hidden = false;
    this.#stop.focus();
  }

  /** Nothing is sent; where the turn is over, there is nothing to stop any more. */
  dismiss() {
    this.#take()?.keep();
  }

  /** Close it without an answer; the focus stays where it is. @returns {boolean} whether it was open */
  closeOpen() {
    const isOpen = this.#message !== null;
    this.dismiss();
    return isOpen;
  }

  /** Close the question. @returns {DoubtfulMessage|null} the message that it was asked about */
  #take() {
    const message = this.#message;
    this.#message = null;
    this.#box.hidden = true;
    return message;
  }
}

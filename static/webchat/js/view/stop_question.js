/** "Stop the turn?": asked before a message is sent that begins with a cancel word while something runs. No timer runs meanwhile. */

import { byId } from "./dom.js";

/** @typedef {import("./dom.js").Root} Root */
/** @typedef {Readonly<{send: () => void, keep: () => void}>} DoubtfulMessage `keep` is called where it is not sent. */

export class StopQuestion {
  #box;
  #stop;
  /** @type {DoubtfulMessage|null} */
  #message = null;

  /** @param {Root} root @param {{stop: () => void, leave: () => void, signal: AbortSignal}} answers */
  constructor(root, { stop, leave, signal }) {
    this.#box = byId(root, "stop-question", HTMLElement);
    this.#stop = byId(root, "stop-question-stop", HTMLButtonElement);
    const send = byId(root, "stop-question-send", HTMLButtonElement);
    const answer = (/** @type {() => void} */ act) => () => {
      act();
      leave();
    };
    const close = answer(() => this.dismiss());
    const stopTurn = answer(() => {
      this.dismiss();
      stop();
    });
    this.#stop.addEventListener("click", stopTurn, { signal });
    send.addEventListener(
      "click",
      answer(() => this.#take()?.send()),
      { signal },
    );
    this.#box.addEventListener(
      "keydown",
      (event) => {
        if (event.key !== "Escape") return;
        event.preventDefault();
        close();
      },
      { signal },
    );
  }

  /** @param {DoubtfulMessage} message */
  ask(message) {
    this.dismiss();
    this.#message = message;
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

/** "Stop the turn?": asked before a message is sent that begins with a cancel word while something runs; nothing is held meanwhile. */

import { byId } from "./dom.js";

/** @typedef {import("./dom.js").Root} Root */

export class StopQuestion {
  #box;
  #stop;
  #send;

  /** @param {Root} root @param {{stop: () => void, send: () => void, leave: () => void, signal: AbortSignal}} answers */
  constructor(root, { stop, send, leave, signal }) {
    this.#box = byId(root, "stop-question", HTMLElement);
    this.#stop = byId(root, "stop-question-stop", HTMLButtonElement);
    this.#send = byId(root, "stop-question-send", HTMLButtonElement);
    const answer = (/** @type {() => void} */ act) => () => {
      this.#box.hidden = true;
      act();
      leave();
    };
    this.#stop.addEventListener("click", answer(stop), { signal });
    this.#send.addEventListener("click", answer(send), { signal });
    const close = answer(() => undefined);
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

  ask() {
    this.#box.hidden = false;
    this.#stop.focus();
  }

  /** The turn is over: there is nothing to stop any more. */
  dismiss() {
    this.#box.hidden = true;
  }
}

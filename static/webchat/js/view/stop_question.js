/**
 * Asks "Stop the task?" before a message is sent that begins with a cancel word while something is running. A similar
 * question asks whether "yes" or "no" is the answer to the open question. Neither has a time limit.
 */

import { byId, setText } from "./dom.js";

/** @typedef {import("./dom.js").Root} Root */
/**
 * @typedef {Readonly<{send: () => void, keep: () => void, drop?: () => void}>} DoubtfulMessage `keep` is called if the
 * message is not sent, and `drop` if it had the other meaning.
 */
/**
 * @typedef {Readonly<{title: string, label: string, about: string, act: () => void}>} OtherMeaning `about` is the key
 * of the question that the message may answer.
 */

/** Ignore input for this long, because a second Enter or click was meant for the message form. */
const ARMED_AFTER_MS = 500;

export class StopQuestion {
  #box;
  #stop;
  #title;
  #meantToStop;
  /** @type {OtherMeaning} */
  #meaning;
  #askedAt = 0;
  /** @type {DoubtfulMessage|null} */
  #message = null;

  /** @param {Root} root @param {{stop: () => void, leave: () => void, signal: AbortSignal}} answers */
  constructor(root, { stop, leave, signal }) {
    this.#box = byId(root, "stop-question", HTMLElement);
    this.#stop = byId(root, "stop-question-stop", HTMLButtonElement);
    this.#title = byId(root, "stop-question-title", HTMLElement);
    const { textContent: title } = this.#title;
    this.#meantToStop = { title: title ?? "", label: this.#stop.textContent ?? "", about: "", act: stop };
    this.#meaning = this.#meantToStop;
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
      this.#message?.drop?.();
      this.dismiss();
      this.#meaning.act();
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

  /** @param {DoubtfulMessage} message @param {OtherMeaning} [meaning] the question to ask instead of whether to stop */
  ask(message, meaning = this.#meantToStop) {
    this.dismiss();
    this.#meaning = meaning;
    setText(this.#title, meaning.title);
    setText(this.#stop, meaning.label);
    this.#message = message;
    this.#askedAt = performance.now();
    this.#box.hidden = false;
    this.#stop.focus();
  }

  /** Close the question without sending the message. */
  dismiss() {
    this.#take()?.keep();
  }

  /**
   * Close the question if it is about an answer to a question that is no longer open.
   * @param {string} key the key of the open question
   */
  dismissUnless(key) {
    if (this.#meaning.about && this.#meaning.about !== key) this.dismiss();
  }

  /** Close the question without an answer and without moving the focus. @returns {boolean} whether it was open */
  closeOpen() {
    const isOpen = this.#message !== null;
    this.dismiss();
    return isOpen;
  }

  /** Close the question. @returns {DoubtfulMessage|null} the message that it was about */
  #take() {
    const message = this.#message;
    this.#message = null;
    this.#box.hidden = true;
    return message;
  }
}

/** The form in which the person writes: sends with Enter, keeps what is unsent, grows with its text. */

import { setText } from "./dom.js";

/** @typedef {Readonly<{
 *   form: HTMLFormElement,
 *   input: HTMLTextAreaElement,
 *   send: HTMLButtonElement,
 *   storageKey: string,
 *   onSend: (text: string) => boolean,
 *   onEarly: () => void,
 *   signal: AbortSignal,
 * }>} ComposerParts `onSend` answers whether the text was taken; `onEarly` is told that Enter was pressed before this
 *   script was there, when it only made a new line. */

const MAX_HEIGHT_PX = 220;

/** One composer; its draft survives a reload of the page. */
export class Composer {
  #parts;

  /** @param {ComposerParts} parts */
  constructor(parts) {
    this.#parts = parts;
    const { form, input, signal, storageKey } = parts;
    if (input.value.trim() && input.value.endsWith("\n")) {
      input.value = input.value.trimEnd();
      parts.onEarly();
    }
    input.value ||= sessionStorage.getItem(storageKey) ?? "";
    input.addEventListener("input", () => this.#changed(), { signal });
    input.addEventListener("keydown", (event) => this.#pressed(event), { signal });
    form.addEventListener("submit", (event) => this.#submit(event), { signal });
    this.#changed();
  }

  focus() {
    this.#parts.input.focus();
  }

  /** Give a text back that could not be sent, unless something else is being written. @param {string} text */
  restore(text) {
    this.#parts.input.value ||= text;
    this.#changed();
  }

  /** While a turn runs a message waits in line, and the button says so. @param {string} label */
  label(label) {
    setText(this.#parts.send, label);
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.#parts.form.requestSubmit();
  }

  /** @param {Event} event */
  #submit(event) {
    event.preventDefault();
    const { input, onSend } = this.#parts;
    const text = input.value.trim();
    if (!text || !onSend(text)) return;
    input.value = "";
    this.#changed();
  }

  #changed() {
    const { input, send, storageKey } = this.#parts;
    send.disabled = input.value.trim() === "";
    sessionStorage.setItem(storageKey, input.value);
    input.style.height = "auto";
    input.style.height = `${Math.min(input.scrollHeight + input.offsetHeight - input.clientHeight, MAX_HEIGHT_PX)}px`;
  }
}

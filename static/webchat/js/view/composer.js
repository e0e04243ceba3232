/** The form in which the person writes: sends with Enter, keeps what is unsent, grows with its text. */

import { tabStorage } from "../state/storage.js";
import { isComposing, setText } from "./dom.js";

/** @typedef {Readonly<{
 *   form: HTMLFormElement,
 *   input: HTMLTextAreaElement,
 *   send: HTMLButtonElement,
 *   storageKey: () => string,
 *   onSend: (text: string) => boolean,
 *   files: () => {isEmpty: boolean, isBusy: boolean},
 *   signal: AbortSignal,
 * }>} ComposerParts `onSend` answers whether the text was taken. */

/** Where the style sheet lets the field grow, nothing is measured here. */
const GROWS_BY_ITSELF = CSS.supports("field-sizing", "content");
/** So many characters fill the field at any width: how high they are need not be known, and takes long to find out. */
const FILLS_FIELD = 4_000;
/** A long text is kept once nobody has typed for so long: to write it takes part of a key's time. */
const PAUSE_MS = 250;

/** One composer; its draft survives a reload of the page. */
export class Composer {
  #parts;
  /** Until the draft is kept; 0 if it is. */
  #pause = 0;

  /** @param {ComposerParts} parts */
  constructor(parts) {
    this.#parts = parts;
    const { form, input, signal, storageKey } = parts;
    input.value ||= tabStorage.getItem(storageKey()) ?? "";
    input.addEventListener("input", () => this.#changed(), { signal });
    input.addEventListener("keydown", (event) => this.#pressed(event), { signal });
    form.addEventListener("submit", (event) => this.#submit(event), { signal });
    window.addEventListener("pagehide", () => this.#keep(), { signal });
    signal.addEventListener("abort", () => this.#keep());
    this.#changed();
  }

  focus() {
    this.#parts.input.focus();
  }

  /** Send what Enter was pressed for before this script was there; see `early_enter.js`. */
  sendEarly() {
    const { form, input } = this.#parts;
    if (!input.readOnly) return;
    input.readOnly = false;
    form.requestSubmit();
  }

  /** Give a text back that was not sent; what is being written stays below it. @param {string} text */
  restore(text) {
    const { input } = this.#parts;
    input.value = [text, input.value].filter(Boolean).join("\n");
    this.#changed();
  }

  get text() {
    return this.#parts.input.value.trim();
  }

  /** The files that wait have changed. */
  refresh() {
    this.#changed();
  }

  /** What is being written is kept under another name from now on. @param {string} before its name until now */
  rename(before) {
    tabStorage.removeItem(before);
    this.#changed();
  }

  clear() {
    this.#parts.input.value = "";
    this.#changed();
  }

  /** While a turn runs a message waits in line, and the button says so. @param {string} label */
  label(label) {
    setText(this.#parts.send, label);
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    if (event.key !== "Enter" || event.shiftKey || isComposing(event)) return;
    event.preventDefault();
    this.#parts.form.requestSubmit();
  }

  /** @param {Event} event */
  #submit(event) {
    event.preventDefault();
    this.sendBy(this.#parts.onSend);
  }

  /** Send what is written, if it is ready. @param {(text: string) => boolean} send answers whether it was taken */
  sendBy(send) {
    if (this.#isReady && send(this.text)) this.clear();
  }

  /** A message has words or files, all of which have arrived. */
  get #isReady() {
    const { isEmpty, isBusy } = this.#parts.files();
    return !isBusy && !(isEmpty && this.text === "");
  }

  #changed() {
    const { input, send } = this.#parts;
    send.disabled = !this.#isReady;
    const isFull = input.textLength > FILLS_FIELD;
    clearTimeout(this.#pause);
    this.#pause = window.setTimeout(() => this.#keep(), PAUSE_MS);
    if (!isFull) this.#keep();
    input.toggleAttribute("data-full", isFull);
    if (GROWS_BY_ITSELF) return;
    input.style.height = "";
    if (!isFull) input.style.height = `${input.scrollHeight}px`; // without a border; the style sheet bounds it
  }

  /** Keep what is unsent for a reload of the page. */
  #keep() {
    if (this.#pause === 0) return;
    clearTimeout(this.#pause);
    this.#pause = 0;
    tabStorage.setItem(this.#parts.storageKey(), this.#parts.input.value);
  }
}

/** The message form. It sends with Enter, stores the draft, and grows with its text. */

import { spaced } from "../state/dictation.js";
import { tabStorage } from "../state/storage.js";
import { isComposing, setText } from "./dom.js";

/** @typedef {Readonly<{
 *   form: HTMLFormElement,
 *   input: HTMLTextAreaElement,
 *   send: HTMLButtonElement,
 *   storageKey: () => string,
 *   onSend: (text: string) => boolean,
 *   onEmptyCommand: () => void,
 *   files: () => {isEmpty: boolean, isBusy: boolean},
 *   signal: AbortSignal,
 * }>} ComposerParts `onSend` returns whether the text was accepted.
 * `onEmptyCommand` is called for Ctrl+Enter if there is nothing to send. */

/** Whether the style sheet makes the field grow, so that its height need not be measured. */
const GROWS_BY_ITSELF = CSS.supports("field-sizing", "content");
/** This many characters fill the field at any width, so that the height, which is slow to measure, is known. */
const FILLS_FIELD = 4_000;
/** A long draft is stored only after this pause, because storing it delays typing. */
const PAUSE_MS = 250;

/** A composer whose draft survives a reload of the page. */
export class Composer {
  #parts;
  /** The timer for storing the draft, or 0 if the draft is stored. */
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

  /** Send the text if Enter was pressed before this script had loaded (see `early_enter.js`). */
  sendEarly() {
    const { form, input } = this.#parts;
    if (!input.readOnly) return;
    input.readOnly = false;
    form.requestSubmit();
  }

  /** Put an unsent text back into the field, above the current draft. @param {string} text */
  restore(text) {
    const { input } = this.#parts;
    input.value = [text, input.value].filter(Boolean).join("\n");
    this.#changed();
  }

  /** Insert a dictated text at the cursor, or replace the selected text with it. @param {string} text */
  insert(text) {
    const { input } = this.#parts;
    const { value, selectionStart, selectionEnd } = input;
    const written = spaced(text, { before: value.slice(0, selectionStart), after: value.slice(selectionEnd) });
    input.setRangeText(written, selectionStart, selectionEnd, "end");
    this.#changed();
    if (input.selectionEnd === input.textLength) input.scrollTop = input.scrollHeight;
  }

  get text() {
    return this.#parts.input.value.trim();
  }

  /** Update the button after the files have changed. */
  refresh() {
    this.#changed();
  }

  /** Store the draft under another key from now on. @param {string} before the old key */
  rename(before) {
    tabStorage.removeItem(before);
    this.#changed();
  }

  clear() {
    this.#parts.input.value = "";
    this.#changed();
  }

  /** Label the button "Queue" while a turn runs, because messages then wait. @param {string} label */
  label(label) {
    setText(this.#parts.send, label);
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    if (event.key !== "Enter" || event.shiftKey || isComposing(event)) return;
    event.preventDefault();
    if ((event.ctrlKey || event.metaKey) && !this.#isReady) this.#parts.onEmptyCommand();
    else this.#parts.form.requestSubmit();
  }

  /** @param {Event} event */
  #submit(event) {
    event.preventDefault();
    this.sendBy(this.#parts.onSend);
  }

  /** Send the draft if it is ready. @param {(text: string) => boolean} send returns whether the text was accepted */
  sendBy(send) {
    if (this.#isReady && send(this.text)) this.clear();
  }

  /** Whether there is text or a file, and all files are uploaded. */
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
    if (!isFull) input.style.height = `${input.scrollHeight}px`; // the height without the border; the style sheet limits it
  }

  /** Store the draft, so that it survives a reload of the page. */
  #keep() {
    if (this.#pause === 0) return;
    clearTimeout(this.#pause);
    this.#pause = 0;
    tabStorage.setItem(this.#parts.storageKey(), this.#parts.input.value);
  }
}

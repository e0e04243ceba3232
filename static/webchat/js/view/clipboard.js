/** Copies texts to the clipboard, and creates the copy buttons of messages and code blocks. */

import { element } from "./dom.js";

/** @typedef {import("./i18n.js").I18n} I18n */

/**
 * Set the text of a copy button. Its accessible name begins with that text.
 * @param {HTMLButtonElement} button
 * @param {string} text
 * @param {string} label a description of the content that it copies
 */
export function sayOnCopyButton(button, text, label) {
  button.textContent = text;
  button.setAttribute("aria-label", label.startsWith(text) ? label : `${text}: ${label}`);
}

/** @param {string} text @returns {Promise<boolean>} whether the text was copied */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyFromField(text);
  }
}

/** Copy a text with a temporary field, and restore the selection and the focus. @param {string} text */
function copyFromField(text) {
  const focused = deepestFocus();
  const selection = document.getSelection();
  const marked = selection?.rangeCount ? selection.getRangeAt(0) : null;
  const field = document.createElement("textarea");
  field.value = text;
  field.readOnly = true; // so that no on-screen keyboard opens
  Object.assign(field.style, { position: "fixed", insetBlockStart: "0", opacity: "0" });
  // While a modal dialog is open, nothing outside it can be selected.
  (focused?.closest("dialog[open]") ?? document.body).append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  if (focused instanceof HTMLElement) focused.focus({ preventScroll: true });
  if (selection && marked) {
    selection.removeAllRanges();
    selection.addRange(marked);
  }
  return isCopied;
}

function deepestFocus() {
  let focused = document.activeElement;
  while (focused?.shadowRoot?.activeElement) focused = focused.shadowRoot.activeElement;
  return focused;
}

const SAID_MS = 2_000;

/** @param {I18n} i18n @param {() => string} text the content to copy @param {string} label describes the content for screen readers */
export function copyButton(i18n, text, label) {
  const button = element("button", { class: "message-action", type: "button" });
  const say = (/** @type {string} */ key) => sayOnCopyButton(button, i18n.text(key), label);
  say("copy");
  button.addEventListener("click", async () => {
    say((await copyText(text())) ? "copied" : "copy_failed");
    setTimeout(() => say("copy"), SAID_MS);
  });
  return button;
}

/** @param {Element} message a message that the server rendered @param {I18n} i18n */
export function addCopyButtons(message, i18n) {
  for (const head of message.querySelectorAll(".code-head")) {
    const code = head.parentElement?.querySelector("pre");
    head.append(copyButton(i18n, () => code?.textContent ?? "", i18n.text("copy_code")));
  }
}

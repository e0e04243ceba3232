/** A button on each piece of code that copies it. */

import { copyText, sayOnCopyButton } from "./clipboard.js";
import { element } from "./dom.js";

/** @typedef {import("./i18n.js").I18n} I18n */

const SAID_MS = 2_000;

/** @param {I18n} i18n @param {() => string} text what is copied @param {string} label for whoever does not see what stands beside it */
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

/** @param {Element} message what the server has rendered @param {I18n} i18n */
export function addCopyButtons(message, i18n) {
  for (const head of message.querySelectorAll(".code-head")) {
    const code = head.parentElement?.querySelector("pre");
    head.append(copyButton(i18n, () => code?.textContent ?? "", i18n.text("copy_code")));
  }
}

/** Edits a message where it stands: what is sent takes its place, and the place of all behind it. */

import { element, focusedBeside, isComposing } from "./dom.js";

/** @typedef {import("./i18n.js").I18n} I18n */
/** @typedef {Readonly<{turnId: string, text: string, tell: (isTaken: boolean) => void}>} Edit `tell` whether it was sent. */

/** @param {string} turnId @param {string} text @param {I18n} i18n */
export function editButton(turnId, text, i18n) {
  const label = i18n.text("edit_message");
  const button = element("button", { class: "message-action message-edit", type: "button", "aria-label": label });
  button.textContent = i18n.text("edit");
  button.addEventListener("click", () => {
    const article = button.closest("article");
    if (article && !article.querySelector(".message-editor")) open(article, button, { turnId, text, i18n });
  });
  return button;
}

/** @param {HTMLElement} article @param {HTMLElement} opener @param {{turnId: string, text: string, i18n: I18n}} message */
function open(article, opener, { turnId, text, i18n }) {
  const input = element("textarea", { class: "editor-input", "aria-label": i18n.text("edit_label") });
  const note = element("p", { class: "message-note", text: i18n.text("edit_note") });
  const cancel = element("button", { class: "button", type: "button", text: i18n.text("edit_cancel") });
  const send = element("button", { class: "button button-primary", type: "submit", text: i18n.text("send") });
  const buttons = element("div", { class: "editor-buttons" }, cancel, send);
  const form = element("form", { class: "message-editor", "aria-label": i18n.text("edit_message") });
  form.append(input, note, buttons);
  input.value = text;
  const close = () => {
    const hadFocus = form.contains(focusedBeside(form));
    form.remove();
    if (hadFocus) opener.focus();
  };
  cancel.addEventListener("click", close);
  form.addEventListener("keydown", (event) => pressed(event, form, close));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const edited = input.value.trim();
    const tell = (/** @type {boolean} */ isTaken) => isTaken && close();
    /** @type {Edit} */
    const detail = { turnId, text: edited, tell };
    if (edited) form.dispatchEvent(new CustomEvent("message-edit", { bubbles: true, detail }));
  });
  article.append(form);
  input.focus();
}

/** As in the composer: Enter sends; Esc closes what is open, and cancels no turn. @param {KeyboardEvent} event @param {HTMLFormElement} form @param {() => void} close */
function pressed(event, form, close) {
  if (isComposing(event)) return;
  if (event.key === "Escape") close();
  else if (event.key === "Enter" && !event.shiftKey && event.target instanceof HTMLTextAreaElement)
    form.requestSubmit();
  else return;
  event.preventDefault();
}

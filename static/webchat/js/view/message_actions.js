/** The actions on messages and answers, the editor of messages, and the line with the time and tokens of answers. */

import { isTurnOver } from "../state/status.js";
import { copyButton } from "./clipboard.js";
import { element, focusedBeside, isComposing } from "./dom.js";

/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./i18n.js").I18n} I18n */

/** The sources of messages that a person wrote or said. */
const SAID = new Set(["typed", "voice"]);

/** @param {Turn} turn @returns {Array<import("../state/types.js").TextItem>} */
const answersOf = ({ items }) => items.flatMap((item) => (item.kind === "agent" ? item : []));

/** Return whether a turn has an outcome to act on, which may be an empty answer. @param {Turn} turn */
export const hasOutcome = (turn) => turn.status === "completed" || (isTurnOver(turn.status) && turn.isBegun);

/**
 * Return the line of actions under the outcome of a turn. An empty answer has no copy button.
 * @param {Turn} turn
 * @param {I18n} i18n
 */
export function answerActions(turn, i18n) {
  const text = answersOf(turn)
    .map((answer) => answer.text)
    .join("\n\n");
  const copy = text ? [copyButton(i18n, () => text, i18n.text("copy_answer"))] : [];
  const facts = element("span", { class: "message-facts", text: factsOf(turn, i18n).join(" · ") });
  return element("div", { class: "message-actions" }, ...copy, ...againButton(turn, i18n), facts);
}

/**
 * Return the line of actions under a person's message. Messages that a button or an agent sent cannot be edited.
 * @param {Turn} turn
 * @param {string} text
 * @param {I18n} i18n
 */
export function messageActions(turn, text, i18n) {
  const copy = copyButton(i18n, () => text, i18n.text("copy_message"));
  const edit = SAID.has(turn.source) ? [editButton(turn.id, text, i18n)] : [];
  return element("div", { class: "message-actions" }, copy, ...edit);
}

/**
 * Return the button that shows the earlier versions of a message and their answers.
 * @param {Turn} turn
 * @param {I18n} i18n
 */
export function versionsButton(turn, i18n) {
  const button = element("button", { class: "message-action turn-versions", type: "button", "aria-expanded": "false" });
  button.textContent = i18n.count("earlier_versions", turn.version - 1);
  button.addEventListener("click", () => {
    button.dispatchEvent(new CustomEvent("turn-versions", { bubbles: true, detail: { turnId: turn.id } }));
  });
  return button;
}

/**
 * Return the button that sends the same message again in a new turn. The style sheet shows it only on the last turn. A
 * failed turn has a button of its own.
 * @param {Turn} turn
 * @param {I18n} i18n
 */
function againButton(turn, i18n) {
  const message = turn.items.find((item) => item.kind === "user");
  if (message?.kind !== "user" || turn.source === "agent" || turn.status === "failed") return [];
  const text = i18n.text("try_again");
  const button = element("button", { class: "message-action turn-again", type: "button", text });
  button.addEventListener("click", () =>
    button.dispatchEvent(
      new CustomEvent("turn-retry", {
        bubbles: true,
        detail: { text: message.text, attachments: message.attachments },
      }),
    ),
  );
  return [button];
}

/** Return the texts about a turn's last time, its duration and its tokens. @param {Turn} turn @param {I18n} i18n */
export function factsOf(turn, i18n) {
  const at = turn.items.flatMap((item) => ("at" in item ? item : [])).at(-1)?.at;
  const time = at ? i18n.time(at) : "";
  const took = turn.durationMs === null ? "" : i18n.duration(turn.durationMs);
  return [time, took, turn.tokens > 0 ? i18n.count("tokens", turn.tokens) : ""].filter(Boolean);
}

/**
 * @typedef {Readonly<{turnId: string, text: string, tell: (isTaken: boolean) => void}>} Edit `tell` is called with
 * whether the message was sent.
 */

/**
 * Return the button that edits a message in place. The edited message replaces it and everything after it.
 * @param {string} turnId
 * @param {string} text
 * @param {I18n} i18n
 */
function editButton(turnId, text, i18n) {
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

/**
 * Handle the keys of the editor: Enter sends, as in the composer, and Esc closes the editor without cancelling a turn.
 * @param {KeyboardEvent} event
 * @param {HTMLFormElement} form
 * @param {() => void} close
 */
function pressed(event, form, close) {
  if (isComposing(event)) return;
  if (event.key === "Escape") close();
  else if (event.key === "Enter" && !event.shiftKey && event.target instanceof HTMLTextAreaElement)
    form.requestSubmit();
  else return;
  event.preventDefault();
}

/** What a person can do with a message and with an answer, and what it took. */

import { isTurnOver } from "../state/status.js";
import { copyButton } from "./code_blocks.js";
import { element } from "./dom.js";
import { editButton } from "./message_editor.js";

/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./i18n.js").I18n} I18n */

/** Where the messages come from that a person has said. */
const SAID = new Set(["typed", "voice"]);

/** @param {Turn} turn @returns {Array<import("../state/types.js").TextItem>} */
const answersOf = ({ items }) => items.flatMap((item) => (item.kind === "agent" ? item : []));

/** Whether there is something to work with: what a turn has come to, if only that nothing came. @param {Turn} turn */
export const hasOutcome = (turn) => turn.status === "completed" || (isTurnOver(turn.status) && turn.isBegun);

/** The line under what came of a turn; an answer without a word has nothing to copy. @param {Turn} turn @param {I18n} i18n */
export function answerActions(turn, i18n) {
  const text = answersOf(turn)
    .map((answer) => answer.text)
    .join("\n\n");
  const copy = text ? [copyButton(i18n, () => text, i18n.text("copy_answer"))] : [];
  const facts = element("span", { class: "message-facts", text: factsOf(turn, i18n).join(" · ") });
  return element("div", { class: "message-actions" }, ...copy, ...againButton(turn, i18n), facts);
}

/** The line under one's own message; one that a button or an agent has sent is not edited. @param {Turn} turn @param {string} text @param {I18n} i18n */
export function messageActions(turn, text, i18n) {
  const copy = copyButton(i18n, () => text, i18n.text("copy_message"));
  const edit = SAID.has(turn.source) ? [editButton(turn.id, text, i18n)] : [];
  return element("div", { class: "message-actions" }, copy, ...edit);
}

/** The way to the earlier forms of a message, and to what came of them. @param {Turn} turn @param {I18n} i18n */
export function versionsButton(turn, i18n) {
  const button = element("button", { class: "message-action turn-versions", type: "button", "aria-expanded": "false" });
  button.textContent = i18n.count("earlier_versions", turn.version - 1);
  button.addEventListener("click", () => {
    button.dispatchEvent(new CustomEvent("turn-versions", { bubbles: true, detail: { turnId: turn.id } }));
  });
  return button;
}

/** Sends the same message again, as a new turn; the stylesheet offers it on the last turn only. A failure has its own button. @param {Turn} turn @param {I18n} i18n */
function againButton(turn, i18n) {
  const said = turn.items.find((item) => item.kind === "user");
  if (said?.kind !== "user" || turn.source === "agent" || turn.status === "failed") return [];
  const text = i18n.text("try_again");
  const button = element("button", { class: "message-action turn-again", type: "button", text });
  button.addEventListener("click", () =>
    button.dispatchEvent(
      new CustomEvent("turn-retry", { bubbles: true, detail: { text: said.text, attachments: said.attachments } }),
    ),
  );
  return [button];
}

/** When its last text came, how long it took, and how many tokens. @param {Turn} turn @param {I18n} i18n */
export function factsOf(turn, i18n) {
  const at = turn.items.flatMap((item) => ("at" in item ? item : [])).at(-1)?.at;
  const time = at ? i18n.time(at) : "";
  const took = turn.durationMs === null ? "" : i18n.duration(turn.durationMs);
  return [time, took, turn.tokens > 0 ? i18n.count("tokens", turn.tokens) : ""].filter(Boolean);
}

/** What a person can do with a message and with an answer, and what it took. */

import { copyButton } from "./code_blocks.js";
import { element } from "./dom.js";
import { editButton } from "./message_editor.js";

/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./i18n.js").I18n} I18n */

/** Where the messages come from that a person has said. */
const SAID = new Set(["typed", "voice"]);

/** @param {Turn} turn @returns {Array<import("../state/types.js").TextItem>} */
const answersOf = ({ items }) => items.flatMap((item) => (item.kind === "agent" ? item : []));

/** Whether a turn has come to an answer that can be worked with. @param {Turn} turn */
export const hasAnswer = (turn) => turn.status === "completed" && answersOf(turn).length > 0;

/** The line under an answer. @param {Turn} turn @param {I18n} i18n */
export function answerActions(turn, i18n) {
  const answers = answersOf(turn);
  const copy = copyButton(i18n, () => answers.map(({ text }) => text).join("\n\n"), i18n.text("copy_answer"));
  const facts = element("span", { class: "message-facts", text: factsOf(turn, i18n).join(" · ") });
  return element("div", { class: "message-actions" }, copy, ...againButton(turn, i18n), facts);
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

/** Sends the same message again, as a new turn; the stylesheet offers it on the last turn only. @param {Turn} turn @param {I18n} i18n */
function againButton(turn, i18n) {
  const said = turn.items.find((item) => item.kind === "user");
  if (said?.kind !== "user" || turn.source === "agent") return [];
  const text = i18n.text("try_again");
  const button = element("button", { class: "message-action turn-again", type: "button", text });
  button.addEventListener("click", () =>
    button.dispatchEvent(
      new CustomEvent("turn-retry", { bubbles: true, detail: { text: said.text, attachments: said.attachments } }),
    ),
  );
  return [button];
}

/** When, how long, and how many tokens. @param {Turn} turn @param {I18n} i18n */
function factsOf(turn, i18n) {
  const at = answersOf(turn).at(-1)?.at;
  const time = at ? i18n.time(at) : "";
  const took = turn.durationMs === null ? "" : i18n.duration(turn.durationMs);
  return [time, took, turn.tokens > 0 ? i18n.count("tokens", turn.tokens) : ""].filter(Boolean);
}

/** Sub-agents: who works for a call, and what they report. */

import { visible } from "./hidden_characters.js";

/** @typedef {import("./types.js").SubAgent} SubAgent */
/** @typedef {import("./types.js").ReportItem} ReportItem */

/** Who works for a call, from a snapshot's `sub_agent` or an event of that name. @param {any} wire @returns {SubAgent|null} */
export function subAgentFrom(wire) {
  if (!wire) return null;
  const conversationId = String(wire.child_conversation_id ?? wire.conversation_id ?? "");
  return conversationId ? { agent: visible(String(wire.agent ?? "")), conversationId } : null;
}

/** Whether a text block is a report, which nobody has typed. @param {any} block */
export const isReport = (block) => Boolean(block?.sub_agent);

/** @param {any} wire a report of `turn_start`, or the `sub_agent` of a block @returns {ReportItem} */
export function reportFrom(wire) {
  return {
    kind: "report",
    key: `r${wire.turn_id}`,
    text: String(wire.text ?? ""),
    html: String(wire.html ?? ""),
    status: String(wire.status ?? ""),
    subAgent: subAgentFrom(wire) ?? { agent: visible(String(wire.agent ?? "")), conversationId: "" },
  };
}

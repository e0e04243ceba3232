/** Sub-agents: who works for a call, and what they report. */

import { visible } from "./hidden_characters.js";

/** @typedef {import("./types.js").SubAgent} SubAgent */
/** @typedef {import("./types.js").ReportItem} ReportItem */

/** @typedef {Readonly<{agent: string, conversation_id?: string, child_conversation_id?: string}>} WireSubAgent */

/** Who works for a call, from a snapshot's `sub_agent` or an event of that name. @param {WireSubAgent|null|undefined} wire @returns {SubAgent|null} */
export function subAgentFrom(wire) {
  const conversationId = wire?.child_conversation_id ?? wire?.conversation_id;
  return wire && conversationId ? { agent: visible(wire.agent), conversationId } : null;
}

/** @param {import("../net/wire.js").SubAgentReport} wire @returns {ReportItem} */
export function reportFrom(wire) {
  return {
    kind: "report",
    key: `r${wire.turn_id}`,
    text: wire.text,
    html: wire.html ?? "",
    status: wire.status,
    subAgent: { agent: visible(wire.agent), conversationId: wire.conversation_id },
  };
}

/** Sub-agents: the link from a call to the conversation in which its agent works, and the reports that come from there. */

import { element, setSanitisedHtml, setText } from "./dom.js";
import { visible } from "./visible.js";

/** @typedef {import("./types.js").SubAgent} SubAgent */
/** @typedef {import("./types.js").ReportItem} ReportItem */
/** @typedef {import("./words.js").Words} Words */

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

/** Let a link lead to where a sub-agent works. @param {HTMLAnchorElement} link @param {SubAgent|null} subAgent @param {Words} words */
export function linkTo(link, subAgent, words) {
  link.hidden = !subAgent?.conversationId;
  if (!subAgent || link.hidden) return;
  link.href = `../${encodeURIComponent(subAgent.conversationId)}/`;
  setText(link, words.text("sub_agent_open", { agent: subAgent.agent }));
}

/** What a sub-agent has reported, as what it is; folded like a result, since the agent answers it. @param {ReportItem} item @param {Words} words */
export function reportNode(item, words) {
  const key = `report_${item.status}`;
  const title = words.text(words.has(key) ? key : "report_completed", { agent: item.subAgent.agent });
  const link = element("a", { class: "report-link" });
  linkTo(link, item.subAgent, words);
  const text = element("div", { class: "message-text" });
  if (item.html) {
    text.classList.add("prose");
    setSanitisedHtml(text, item.html);
  } else setText(text, item.text);
  return element(
    "article",
    { class: "message message-report", "aria-label": title, "data-status": item.status },
    element("p", { class: "report-title" }, element("span", { text: title }), link),
    element("details", { class: "report-text" }, element("summary", { text: words.text("report_text") }), text),
  );
}

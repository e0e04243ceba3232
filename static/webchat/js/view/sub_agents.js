/** Shows sub-agents: the links to their conversations, and their reports. */

import { element, sanitisedNodes, setText } from "./dom.js";

/** @typedef {import("../state/types.js").SubAgent} SubAgent */
/** @typedef {import("../state/types.js").ReportItem} ReportItem */
/** @typedef {import("./dom.js").View} View */

/** Point a link to the conversation of a sub-agent. @param {HTMLAnchorElement} link @param {SubAgent|null} subAgent @param {View} view */
export function linkTo(link, subAgent, { i18n, pageOf }) {
  link.hidden = !subAgent?.conversationId;
  if (!subAgent || link.hidden) return;
  link.href = pageOf(subAgent.conversationId);
  setText(link, i18n.text("open"));
  link.setAttribute("aria-label", i18n.text("sub_agent_open", { agent: subAgent.agent }));
}

/**
 * Return the report of a sub-agent. It is collapsed like a result, because it is meant for the agent.
 * @param {ReportItem} item
 * @param {View} view
 */
export function reportNode(item, view) {
  const { i18n } = view;
  const key = `report_${item.status}`;
  const title = i18n.text(i18n.has(key) ? key : "report_completed", { agent: item.subAgent.agent });
  const link = element("a", { class: "report-link" });
  linkTo(link, item.subAgent, view);
  const text = element("div", { class: "message-text" });
  if (item.html) {
    text.classList.add("prose");
    text.append(...sanitisedNodes(item.html));
  } else setText(text, item.text);
  return element(
    "article",
    { class: "message message-report", "aria-label": title, "data-status": item.status },
    element("p", { class: "report-title" }, element("span", { text: title }), link),
    element("details", { class: "report-text" }, element("summary", { text: i18n.text("report_text") }), text),
  );
}

/** Sub-agents on the page: the link to the conversation in which one works, and its report. */

import { element, setSanitisedHtml, setText } from "./dom.js";

/** @typedef {import("../state/types.js").SubAgent} SubAgent */
/** @typedef {import("../state/types.js").ReportItem} ReportItem */
/** @typedef {import("./i18n.js").Words} Words */

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

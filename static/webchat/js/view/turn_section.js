/**
 * Draws the section of a turn: its messages, cards and ending. Elements are kept while their content stays the same.
 */

import { isTurnOver } from "../state/status.js";
import { attachmentsOf } from "../state/turns.js";
import { attachmentList } from "./attachments.js";
import { element, icon, placeAfter, setText } from "./dom.js";
import { endingLabel } from "./labels.js";
import { answerActions, hasOutcome, messageActions, versionsButton } from "./message_actions.js";
import { answerNodes, drawStreamedText, finishStreamedText, streamedText } from "./streamed_text.js";
import { reportNode } from "./sub_agents.js";
import { ToolStepElement } from "./tool_step.js";

/** @typedef {import("../state/types.js").Item} Item */
/** @typedef {import("../state/types.js").TextItem} TextItem */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./dom.js").View} View */
/**
 * @typedef {Readonly<{turn: Turn, viewer: string, frozen: boolean, section: HTMLElement,
 *   parts: Map<string, HTMLElement>, newAgent: string}>} Drawn `newAgent` is the agent that answers from this turn on, or
 *   empty if it has not changed.
 */

/** @param {Drawn} drawn @param {View} view */
export function drawParts(drawn, view) {
  const { turn, section, parts } = drawn;
  const nodes = steps(turn.items).map((items) => stepNode(drawn, items, view));
  if (turn.thoughts) {
    const title = view.i18n.text(turn.partial ? "thoughts" : "thoughts_streaming");
    nodes.push(showThoughts(part(parts, "thoughts", thoughtsFold), title, turn.thoughts));
  }
  if (turn.partial) nodes.push(partialNode(drawn, view));
  const note = endingNode(turn, view);
  section.toggleAttribute("data-unsent", isTurnOver(turn.status) && !turn.isBegun);
  if (turn.status === "queued") nodes.push(part(parts, "queued", () => queued(view)));
  if (isThinking(turn)) nodes.push(part(parts, "thinking", () => thinking(view)));
  // The running bar shows the countdown to the retry.
  const problem = turn.retry?.reason ? view.i18n.text("retry_reason", turn.retry) : turn.errorMessage;
  if (problem && turn.status !== "failed") {
    nodes.push(part(parts, `error ${problem}`, () => element("p", { class: "turn-note", text: problem })));
  }
  if (turn.repairs > 0) nodes.push(part(parts, "repairs", () => element("p", { class: "turn-note" })));
  const repairs = parts.get("repairs");
  if (repairs) setText(repairs, view.i18n.count("history_repaired", turn.repairs));
  const answers = turn.acknowledgements.map((answer, place) => commandNode(drawn, answer, place, view));
  const actionsKey = `actions ${turn.items.length}`; // when earlier messages are loaded, more of the answer may be added
  const actions = hasOutcome(turn) ? [part(parts, actionsKey, () => answerActions(turn, view.i18n))] : [];
  const children = [...headNodes(drawn, view), ...nodes, ...(note ? [note] : []), ...actions, ...answers];
  for (const child of [...section.children]) if (!children.includes(/** @type {HTMLElement} */ (child))) child.remove();
  for (const [key, node] of parts) if (!children.includes(node)) parts.delete(key);
  /** @type {Element|null} */
  let previous = null;
  for (const node of children) {
    placeAfter(section, node, previous);
    previous = node;
  }
}

/** Return the lines above the messages of a turn. @param {Drawn} drawn @param {View} view @returns {HTMLElement[]} */
function headNodes({ turn, parts, newAgent }, { i18n }) {
  const head = [];
  if (newAgent) {
    const text = i18n.text("agent_from_here", { agent: newAgent });
    head.push(part(parts, `agent ${newAgent}`, () => element("p", { class: "turn-agent", text })));
  }
  const change = `prompt_changed_${turn.promptChange}`;
  if (i18n.has(change) && !(newAgent && turn.promptChange === "agent")) {
    head.push(part(parts, change, () => element("p", { class: "turn-agent", text: i18n.text(change) })));
  }
  if (turn.summary) {
    const fold = part(parts, "summary", thoughtsFold);
    head.push(showThoughts(fold, i18n.text("summary_of_oldest"), turn.summary));
  }
  if (turn.version > 1) head.push(part(parts, "versions", () => versionsButton(turn, i18n)));
  return head;
}

/** @template {HTMLElement} T @param {Map<string, HTMLElement>} parts @param {string} key @param {() => T} make @returns {T} */
function part(parts, key, make) {
  const existing = /** @type {T|undefined} */ (parts.get(key));
  if (existing) return existing;
  const created = make();
  parts.set(key, created);
  return created;
}

/** Return the items of a turn, with the calls of each step grouped. @param {ReadonlyArray<Item>} items @returns {Array<[Item, ...Item[]]>} */
function steps(items) {
  /** @type {Array<[Item, ...Item[]]>} */
  const groups = [];
  for (const item of items) {
    const last = groups.at(-1);
    if (item.kind === "call" && last?.[0].kind === "call") last.push(item);
    else groups.push([item]);
  }
  return groups;
}

/** @param {Drawn} drawn @param {[Item, ...Item[]]} items @param {View} view @returns {HTMLElement} */
function stepNode(drawn, items, view) {
  const { turn, parts } = drawn;
  const [item] = items;
  if (item.kind === "call") {
    const step = part(parts, `step ${item.toolId}`, () => new ToolStepElement());
    const toolIds = items.flatMap((each) => (each.kind === "call" ? each.toolId : []));
    step.show(turn, toolIds, view);
    return step;
  }
  if (item.kind === "thoughts") return finishedThoughts(parts, item, view);
  if (item.kind === "report") return part(drawn.parts, item.key, () => reportNode(item, view));
  return textNode(drawn, item, view);
}

/** @param {TextItem} item @param {import("./i18n.js").I18n} i18n */
const messageText = (item, i18n) =>
  isProse(item)
    ? element("div", { class: "message-text prose" }, ...answerNodes(item, i18n))
    : element("div", { class: "message-text", text: item.text });

/** @param {TextItem} item */
const isProse = ({ html, unstored }) => html !== "" || unstored !== null;

/** @param {Drawn} drawn @param {TextItem} item @param {View} view */
function textNode({ turn, parts }, item, { i18n, fileUrl = "" }) {
  return part(parts, item.key, () => {
    const streamed = finishedArticle(turn, item, parts, i18n);
    const article = streamed ?? messageArticle(authorOf(turn, item), item.at, i18n);
    if (item.attachments.length) article.append(attachmentList(item.attachments, i18n, fileUrl));
    if (item.text && !streamed) article.append(messageText(item, i18n));
    if (authorOf(turn, item) === "user") article.append(messageActions(turn, item.text, i18n));
    const cut = item.unstored === null ? "message_interrupted" : "message_unstored";
    if (item.interrupted) article.append(element("p", { class: "message-note", text: i18n.text(cut) }));
    if (item.kind === "user" && turn.source === "continue")
      article.append(element("p", { class: "message-note", text: i18n.text("message_continued") }));
    if (item.kind === "user" && turn.source === "agent")
      article.append(element("p", { class: "message-note", text: i18n.text("author_parent") }));
    return article;
  });
}

/** Return the article with the streaming text. @param {Drawn} drawn @param {View} view */
function partialNode({ turn, parts }, { i18n }) {
  const article = part(parts, "partial", () => {
    const created = messageArticle("agent", "", i18n);
    created.append(streamedText(i18n));
    created.setAttribute("aria-busy", "true");
    return created;
  });
  drawStreamedText(/** @type {Element} */ (article.lastElementChild), turn, i18n);
  return article;
}

/** Return a collapsed element for the model's thoughts or its summary. */
const thoughtsFold = () =>
  element(
    "details",
    { class: "thoughts" },
    element("summary"),
    element("div", { class: "thoughts-text", dir: "auto" }),
  );

/** @param {HTMLElement} fold @param {string} title @param {string} text */
function showThoughts(fold, title, text) {
  const [summary, shown] = /** @type {[HTMLElement, HTMLElement]} */ ([...fold.children]);
  setText(summary, title);
  setText(shown, text);
  return fold;
}

/**
 * Return the element with finished thoughts. The element in which they streamed is reused, so that it stays open or
 * closed.
 * @param {Drawn["parts"]} parts
 * @param {import("../state/types.js").ThoughtsItem} item
 * @param {View} view
 */
function finishedThoughts(parts, { key, text, durationMs }, { i18n }) {
  const fold = part(parts, key, () => {
    const streamed = parts.get("thoughts");
    parts.delete("thoughts");
    return streamed ?? thoughtsFold();
  });
  const seconds = Math.max(Math.round(durationMs / 1000), 1);
  return showThoughts(fold, i18n.text("thought_for", { time: i18n.wholeClock(seconds * 1000) }), text);
}

/**
 * Return the article of the streamed text for its message, so that the reading position and selection are kept. Return
 * null if there is none.
 * @param {Turn} turn
 * @param {TextItem} item
 * @param {Drawn["parts"]} parts
 * @param {import("./i18n.js").I18n} i18n
 */
function finishedArticle(turn, item, parts, i18n) {
  const article = parts.get("partial");
  if (!article || turn.partial || !isProse(item)) return null;
  parts.delete("partial");
  article.removeAttribute("aria-busy");
  article.setAttribute("aria-label", messageLabel("agent", item.at, i18n));
  finishStreamedText(/** @type {Element} */ (article.lastElementChild), item, i18n);
  return article;
}

/**
 * Return the author of a text. In a sub-agent's conversation, messages of the kind `user` come from the parent agent.
 * @param {Turn} turn
 * @param {TextItem} item
 */
const authorOf = (turn, { kind }) => (kind === "user" && turn.source === "agent" ? "parent" : kind);

/** @param {"user"|"parent"|"agent"} author @param {string} at @param {import("./i18n.js").I18n} i18n */
function messageLabel(author, at, i18n) {
  const label = i18n.text(author === "user" ? "author_you" : `author_${author}`);
  return at ? `${label}, ${i18n.time(at)}` : label;
}

/** @param {"user"|"parent"|"agent"} author @param {string} at @param {import("./i18n.js").I18n} i18n */
function messageArticle(author, at, i18n) {
  const place = author === "agent" ? "agent" : "user";
  return element("article", { class: `message message-${place}`, "aria-label": messageLabel(author, at, i18n) });
}

/**
 * Return a chip with a cancel word and its effect.
 * @param {Drawn} drawn
 * @param {import("../state/types.js").Acknowledgement} answer
 * @param {number} place
 * @param {View} view
 * @returns {HTMLElement}
 */
function commandNode({ turn, parts }, { said, text, source }, place, { i18n }) {
  const endedCalls = Object.values(turn.calls).filter(({ endedBy }) => endedBy?.source === source);
  const isPlain = endedCalls.length > 0 && endedCalls.every(({ status }) => status === "cancelled");
  // The acknowledgement of a spoken word is a sentence of the server, which is also spoken.
  const outcome = isPlain && source !== "voice" ? i18n.count("command_cancelled", endedCalls.length) : text;
  const chip = part(parts, `word ${place}`, () => {
    const article = messageArticle("user", "", i18n);
    article.classList.add("message-command");
    article.append(element("strong", { text: said }), element("span", { class: "command-outcome" }));
    return article;
  });
  const outcomeNode = chip.querySelector(".command-outcome");
  if (outcomeNode) setText(outcomeNode, outcome);
  return chip;
}

/** @param {Turn} turn @param {View} view @returns {HTMLElement|null} */
function endingNode(turn, { i18n, viewer }) {
  const ending = endingLabel(i18n, turn, viewer);
  if (!ending) return null;
  const note = element("p", { class: "turn-end", "data-status": turn.status });
  note.append(icon(turn.status === "failed" ? "warning" : turn.status === "timed_out" ? "clock" : "square"));
  const text = element("span", {}, element("strong", { text: ending.title }));
  if (ending.detail) text.append(element("span", { text: ending.detail }));
  note.append(text);
  if (turn.status === "failed") note.append(retryButton(turn, i18n, "try_again"));
  if (!turn.isBegun) note.append(retryButton(turn, i18n, "send_again"));
  if (turn.status === "interrupted" && turn.isBegun) note.append(continueButton(turn, i18n));
  return note;
}

/**
 * Return the button that sends the same message again in a new turn. The style sheet shows it only on the last turn.
 * @param {Turn} turn
 * @param {import("./i18n.js").I18n} i18n
 * @param {"try_again"|"send_again"} key
 */
function retryButton(turn, i18n, key) {
  const button = element("button", { class: `button turn-retry turn-${key}`, type: "button", text: i18n.text(key) });
  button.addEventListener("click", () => {
    const message = turn.items.find((item) => item.kind === "user");
    const detail = { text: message?.kind === "user" ? message.text : "", attachments: attachmentsOf(turn) };
    button.dispatchEvent(new CustomEvent("turn-retry", { bubbles: true, detail }));
  });
  return button;
}

/**
 * Return the button that continues the turn in a new one. The style sheet shows it only on the last turn.
 * @param {Turn} turn
 * @param {import("./i18n.js").I18n} i18n
 */
function continueButton(turn, i18n) {
  const button = element("button", {
    class: "button turn-retry turn-continue",
    type: "button",
    text: i18n.text("continue_turn"),
  });
  button.addEventListener("click", () => {
    button.dispatchEvent(new CustomEvent("turn-continue", { bubbles: true, detail: { turnId: turn.id } }));
  });
  return button;
}

/** Return whether the agent is working but has nothing to show at the moment. @param {Turn} turn */
function isThinking(turn) {
  if (isTurnOver(turn.status) || turn.status !== "running" || turn.partial || turn.thoughts) return false;
  return Object.values(turn.calls).every((call) => call.result !== null || call.durationMs !== null);
}

/** @param {View} view */
const queued = ({ i18n }) => element("p", { class: "message-note turn-queued", text: i18n.text("message_queued") });

/** @param {View} view */
function thinking({ i18n }) {
  return element(
    "p",
    { class: "thinking" },
    element("span", { class: "thinking-dot" }),
    element("span", { class: "thinking-dot" }),
    element("span", { class: "thinking-dot" }),
    element("span", { class: "visually-hidden", text: i18n.text("thinking") }),
  );
}

/** The section of one turn: its messages, its cards, and how it ended; elements stay while what they show does. */

import { isTurnOver } from "../state/status.js";
import { element, icon, placeAfter, setSanitisedHtml, setText } from "./dom.js";
import { endingLabel } from "./labels.js";
import { reportNode } from "./sub_agents.js";
import { ToolCallElement } from "./tool_call.js";

/** @typedef {import("../state/types.js").TextItem} TextItem */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./tool_call.js").View} View */
/** @typedef {Readonly<{turn: Turn, viewer: string, frozen: boolean, section: HTMLElement, parts: Map<string, HTMLElement>}>} Drawn */

/** @param {Drawn} drawn @param {View} view */
export function drawParts(drawn, view) {
  const { turn, section, parts } = drawn;
  const nodes = turn.items.map((item) => itemNode(drawn, item, view));
  if (turn.partial) nodes.push(partialNode(drawn, view));
  const note = endingNode(turn, view);
  section.toggleAttribute("data-unsent", isTurnOver(turn.status) && !turn.isBegun);
  if (turn.status === "queued") nodes.push(part(parts, "queued", () => queued(view)));
  if (isThinking(turn)) nodes.push(part(parts, "thinking", () => thinking(view)));
  // When it is tried again counts down in the running bar.
  const told = turn.retry?.reason ? view.i18n.text("retry_reason", turn.retry) : turn.errorMessage;
  if (told && turn.status !== "failed") {
    nodes.push(part(parts, `error ${told}`, () => element("p", { class: "turn-note", text: told })));
  }
  if (turn.repairs > 0) nodes.push(part(parts, "repairs", () => element("p", { class: "turn-note" })));
  const repairs = parts.get("repairs");
  if (repairs) setText(repairs, view.i18n.count("history_repaired", turn.repairs));
  const answers = turn.acknowledgements.flatMap((answer, place) => answerNodes(drawn, answer, place, view));
  const wanted = [...nodes, ...(note ? [note] : []), ...answers];
  for (const child of [...section.children]) if (!wanted.includes(/** @type {HTMLElement} */ (child))) child.remove();
  for (const [key, node] of parts) if (!wanted.includes(node)) parts.delete(key);
  /** @type {Element|null} */
  let previous = null;
  for (const node of wanted) {
    placeAfter(section, node, previous);
    previous = node;
  }
}

/** @template {HTMLElement} T @param {Map<string, HTMLElement>} parts @param {string} key @param {() => T} make @returns {T} */
function part(parts, key, make) {
  const known = /** @type {T|undefined} */ (parts.get(key));
  if (known) return known;
  const created = make();
  parts.set(key, created);
  return created;
}

/** @param {Drawn} drawn @param {import("../state/types.js").Item} item @param {View} view @returns {HTMLElement} */
function itemNode(drawn, item, view) {
  if (item.kind === "call") return callNode(drawn, item.toolId, view);
  if (item.kind === "report") return part(drawn.parts, item.key, () => reportNode(item, view.i18n));
  return textNode(drawn, item, view);
}

/** @param {Drawn} drawn @param {string} toolId @param {View} view */
function callNode({ turn, parts }, toolId, view) {
  const card = part(parts, `call ${toolId}`, () => new ToolCallElement());
  const call = turn.calls[toolId];
  if (call) card.show(turn.id, call, view);
  return card;
}

/** @param {Drawn} drawn @param {TextItem} item @param {View} view */
function textNode({ turn, parts }, item, { i18n }) {
  return part(parts, item.key, () => {
    const text = element("div", { class: "message-text" });
    if (item.html) {
      text.classList.add("prose");
      setSanitisedHtml(text, item.html);
    } else setText(text, item.text);
    const article = messageArticle(authorOf(turn, item), item.at, i18n);
    article.append(text);
    if (item.interrupted)
      article.append(element("p", { class: "message-note", text: i18n.text("message_interrupted") }));
    if (item.kind === "user" && turn.source === "continue")
      article.append(element("p", { class: "message-note", text: i18n.text("message_continued") }));
    if (item.kind === "user" && turn.source === "agent")
      article.append(element("p", { class: "message-note", text: i18n.text("author_parent") }));
    return article;
  });
}

/** The text that is being written; it only ever grows, so that a selection in it stays. @param {Drawn} drawn @param {View} view */
function partialNode({ turn, parts }, { i18n }) {
  const article = part(parts, "partial", () => {
    const created = messageArticle("agent", "", i18n);
    created.append(element("div", { class: "message-text" }));
    created.setAttribute("aria-busy", "true");
    return created;
  });
  const target = /** @type {HTMLElement} */ (article.lastElementChild);
  const known = target.firstChild;
  if (known instanceof Text && turn.partial.startsWith(known.data)) known.appendData(turn.partial.slice(known.length));
  else setText(target, turn.partial);
  return article;
}

/** Where a sub-agent works, the agent that set it to work speaks as the person does elsewhere. @param {Turn} turn @param {TextItem} item */
const authorOf = (turn, { kind }) => (kind === "user" && turn.source === "agent" ? "parent" : kind);

/** @param {"user"|"parent"|"agent"} author @param {string} at @param {import("./i18n.js").I18n} i18n */
function messageArticle(author, at, i18n) {
  const time = at ? new Date(at).toLocaleTimeString(document.documentElement.lang, { timeStyle: "short" }) : "";
  const label = i18n.text(author === "user" ? "author_you" : `author_${author}`);
  const place = author === "agent" ? "agent" : "user";
  return element("article", { class: `message message-${place}`, "aria-label": time ? `${label}, ${time}` : label });
}

/** A cancel word and the answer to it. @param {Drawn} drawn @param {import("../state/types.js").Acknowledgement} answer @param {number} place @param {View} view @returns {Array<HTMLElement>} */
function answerNodes({ parts }, { said, text }, place, { i18n }) {
  /** @param {"user"|"agent"} author @param {string} text */
  const node = (author, text) =>
    part(parts, `${author} word ${place}`, () => {
      const article = messageArticle(author, "", i18n);
      article.append(element("div", { class: "message-text", text }));
      return article;
    });
  return [node("user", said), node("agent", text)];
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
  if (turn.status === "failed") note.append(retryButton(turn, i18n));
  if (turn.status === "interrupted" && turn.isBegun) note.append(continueButton(turn, i18n));
  return note;
}

/** Sends the same message again, as a new turn; the stylesheet offers it on the last turn only. @param {Turn} turn @param {import("./i18n.js").I18n} i18n */
function retryButton(turn, i18n) {
  const button = element("button", { class: "button turn-retry", type: "button", text: i18n.text("try_again") });
  button.addEventListener("click", () => {
    const said = turn.items.find((item) => item.kind === "user");
    const detail = { text: said?.kind === "user" ? said.text : "" };
    button.dispatchEvent(new CustomEvent("turn-retry", { bubbles: true, detail }));
  });
  return button;
}

/** Lets the agent go on in a new turn; offered like the other. @param {Turn} turn @param {import("./i18n.js").I18n} i18n */
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

/** Whether the agent is at work with nothing to show for it yet. @param {Turn} turn */
function isThinking(turn) {
  if (isTurnOver(turn.status) || turn.status !== "running" || turn.partial) return false;
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

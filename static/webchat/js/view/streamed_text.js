/** The answer that is being written: its finished blocks as the server has rendered them, the growing one as text. */

import { renderedLength } from "../state/turns.js";
import { addCopyButtons } from "./code_blocks.js";
import { element, sanitisedNodes, setText } from "./dom.js";

/** @typedef {import("../state/types.js").Block} Block */
/** @typedef {import("../state/types.js").TextItem} TextItem */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./i18n.js").I18n} I18n */

/** The blocks that an element shows. @type {WeakMap<Element, ReadonlyArray<Block>>} */
const shownBlocks = new WeakMap();

export const streamedText = () => element("div", { class: "message-text prose" }, growingText());

const growingText = (text = "") => element("div", { class: "growing-text", text });

/** Blocks are added and the text grows, so that a selection in them stays. @param {Element} target @param {Turn} turn @param {I18n} i18n */
export function drawStreamedText(target, turn, i18n) {
  const growing = growingPart(target);
  let shown = shownBlocks.get(target) ?? [];
  if (shown.at(-1) !== turn.blocks[shown.length - 1]) {
    target.replaceChildren(growing);
    shown = [];
  }
  for (const { html } of turn.blocks.slice(shown.length)) growing.before(...nodesOf(html, i18n));
  shownBlocks.set(target, turn.blocks);
  const text = turn.partial.slice(renderedLength(turn));
  const known = growing.firstChild;
  if (known instanceof Text && text.startsWith(known.data)) known.appendData(text.slice(known.length));
  else setText(growing, text);
  growing.hidden = text.trim() === "";
}

/**
 * The message is whole, or was lost: what it begins with stays if it is shown already.
 * @param {Element} target
 * @param {Pick<TextItem, "html"|"unstored">} item
 * @param {I18n} i18n
 */
export function finishStreamedText(target, item, i18n) {
  const shown = (shownBlocks.get(target) ?? []).map((block) => block.html).join("");
  const growing = growingPart(target);
  if (item.html.startsWith(shown)) {
    growing.replaceWith(...answerNodes({ ...item, html: item.html.slice(shown.length) }, i18n));
  } else target.replaceChildren(...answerNodes(item, i18n));
}

/** An answer, and what is not rendered of one that was lost. @param {Pick<TextItem, "html"|"unstored">} item @param {I18n} i18n */
export const answerNodes = ({ html, unstored }, i18n) => [
  ...nodesOf(html, i18n),
  ...(unstored?.trim() ? [growingText(unstored)] : []),
];

/** @param {Element} target */
const growingPart = (target) => /** @type {HTMLElement} */ (target.lastElementChild);

/** @param {string} html @param {I18n} i18n */
function nodesOf(html, i18n) {
  const part = element("div", {}, ...sanitisedNodes(html));
  addCopyButtons(part, i18n);
  return [...part.childNodes];
}

/** The page's keys. Single letters work only on a focused card, so that they never surprise somebody who types. */

import { isComposing } from "./dom.js";
import { ToolCallElement } from "./tool_call.js";

/** @typedef {import("./dom.js").Root} Root */
/**
 * @typedef {Readonly<{
 *   cards: () => Array<ToolCallElement>,
 *   closeOpen: () => boolean,
 *   cancelTurn: () => void,
 *   focusComposer: () => void,
 *   showHelp: () => void,
 *   signal: AbortSignal,
 * }>} Keys `closeOpen` closes what stands open and answers whether anything did: Esc means that first, wherever the focus is.
 */

/** The whole page listens where the chat is the page; else only the chat does. @param {Root} root @param {Keys} keys */
export function listenToKeys(root, keys) {
  const listen = (/** @type {Event} */ event) => pressed(root, /** @type {KeyboardEvent} */ (event), keys);
  root.addEventListener("keydown", listen, { signal: keys.signal });
}

/** @param {Root} root @param {KeyboardEvent} event @param {Keys} keys */
function pressed(root, event, keys) {
  if (isComposing(event) || event.defaultPrevented || root.querySelector("dialog[open], :popover-open")) return;
  const isTyping = event.target instanceof HTMLTextAreaElement || event.target instanceof HTMLInputElement;
  const action = everywhere(root, event, keys) ?? (isTyping ? null : outsideText(root, event, keys));
  if (!action) return;
  event.preventDefault();
  action();
}

/** @param {Root} root @param {KeyboardEvent} event @param {Keys} keys @returns {(() => void)|null} */
function everywhere(root, event, keys) {
  const isCommand = event.ctrlKey || event.metaKey;
  if (event.key === "Escape") return () => keys.closeOpen() || keys.cancelTurn();
  if (isCommand && event.key === ".") return keys.cancelTurn;
  if (isCommand && event.key.toLowerCase() === "k") return keys.focusComposer;
  if (event.altKey && event.key === "ArrowUp") return () => move(root, keys, -1);
  if (event.altKey && event.key === "ArrowDown") return () => move(root, keys, 1);
  return null;
}

/** @param {Root} root @param {KeyboardEvent} event @param {Keys} keys @returns {(() => void)|null} */
function outsideText(root, event, keys) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  if (event.key === "/") return keys.focusComposer;
  if (event.key === "?") return keys.showHelp;
  const card = root.activeElement;
  const isCancel = event.key === "Delete" || event.key.toLowerCase() === "c";
  return isCancel && card instanceof ToolCallElement ? () => card.cancel() : null;
}

/** @param {Root} root @param {Keys} keys @param {-1|1} step */
function move(root, keys, step) {
  const cards = keys.cards();
  const current = cards.findIndex((card) => card.contains(root.activeElement));
  const next = current === -1 ? (step === 1 ? 0 : cards.length - 1) : current + step;
  cards[next]?.focus();
}

/** The page's keys. Single letters work only on a focused card, so that they never surprise somebody who types. */

import { ToolCallElement } from "./tool_call.js";

/**
 * @typedef {Readonly<{
 *   cards: () => Array<ToolCallElement>,
 *   cancelTurn: () => void,
 *   focusComposer: () => void,
 *   showHelp: () => void,
 *   signal: AbortSignal,
 * }>} Keys
 */

/** @param {Keys} keys */
export function listenToKeys(keys) {
  document.addEventListener("keydown", (event) => pressed(event, keys), { signal: keys.signal });
}

/** @param {KeyboardEvent} event @param {Keys} keys */
function pressed(event, keys) {
  if (event.isComposing || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  const isTyping = event.target instanceof HTMLTextAreaElement || event.target instanceof HTMLInputElement;
  const action = everywhere(event, keys) ?? (isTyping ? null : outsideText(event, keys));
  if (!action) return;
  event.preventDefault();
  action();
}

/** @param {KeyboardEvent} event @param {Keys} keys @returns {(() => void)|null} */
function everywhere(event, keys) {
  const isCommand = event.ctrlKey || event.metaKey;
  if (event.key === "Escape" || (isCommand && event.key === ".")) return keys.cancelTurn;
  if (isCommand && event.key.toLowerCase() === "k") return keys.focusComposer;
  if (event.altKey && event.key === "ArrowUp") return () => move(keys, -1);
  if (event.altKey && event.key === "ArrowDown") return () => move(keys, 1);
  return null;
}

/** @param {KeyboardEvent} event @param {Keys} keys @returns {(() => void)|null} */
function outsideText(event, keys) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  if (event.key === "/") return keys.focusComposer;
  if (event.key === "?") return keys.showHelp;
  const card = document.activeElement;
  const isCancel = event.key === "Delete" || event.key.toLowerCase() === "c";
  return isCancel && card instanceof ToolCallElement ? () => card.cancel() : null;
}

/** @param {Keys} keys @param {-1|1} step */
function move(keys, step) {
  const cards = keys.cards();
  const current = cards.findIndex((card) => card.contains(document.activeElement));
  const next = current === -1 ? (step === 1 ? 0 : cards.length - 1) : current + step;
  cards[next]?.focus();
}

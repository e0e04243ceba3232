/** Connects a chat to the keyboard, to the browser's events, and to the events of the transcript. */

import { fetchResult } from "../net/api.js";
import { attachmentsOf } from "../state/turns.js";
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
 * }>} Keys `closeOpen` closes what is open, such as a question, and returns whether there was anything. Esc does this
 *   first, regardless of the focus.
 */

/**
 * Listen to keys on the whole chat page, but only inside a chat that is embedded in another page.
 * @param {Root} root
 * @param {Keys} keys
 */
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

/**
 * @typedef {Readonly<{
 *   connection: Readonly<{revive: () => void, suspect: () => void}>,
 *   onInSight: () => void,
 *   hasUnsent: () => boolean,
 *   signal: AbortSignal,
 * }>} Page
 */

/** A navigation that does not begin within this time was stopped or is a download. */
const LEADS_FOR_MS = 1_000;

/**
 * Check the connection when the browser is online again or the page becomes visible, and warn before unsent messages
 * are lost.
 * @param {Page} page
 */
export function listenToBrowser({ connection, onInSight, hasUnsent, signal }) {
  const revive = () => connection.revive();
  window.addEventListener("online", revive, { signal });
  window.addEventListener("focus", revive, { signal });
  window.addEventListener("pageshow", (event) => event.persisted && revive(), { signal });
  window.addEventListener("offline", () => connection.suspect(), { signal });
  const look = () => {
    if (document.visibilityState !== "visible") return;
    revive();
    onInSight();
  };
  document.addEventListener("visibilitychange", look, { signal });
  warnOfUnsent(hasUnsent, signal);
}

/**
 * Warn before unsent messages are lost with a closed tab. Links and forms stay in the tab, which keeps them, so they
 * need no warning.
 * @param {() => boolean} hasUnsent
 * @param {AbortSignal} signal
 */
function warnOfUnsent(hasUnsent, signal) {
  let isLeading = false;
  let timer = 0;
  const lead = (/** @type {Event} */ event) => {
    const [target] = event.composedPath(); // outside the shadow tree of an embedded chat, the event's target is the whole chat
    const way = event.type === "submit" ? "form:not([method=dialog])" : "a[href]:not([target], [download])";
    const isAway = event instanceof MouseEvent && (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
    isLeading = !event.defaultPrevented && !isAway && target instanceof Element && target.closest(way) !== null;
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      isLeading = false;
    }, LEADS_FOR_MS);
  };
  // These listeners run last, because a form that a script has handled does not navigate.
  window.addEventListener("click", lead, { signal });
  window.addEventListener("submit", lead, { signal });
  window.addEventListener("beforeunload", (event) => !isLeading && hasUnsent() && event.preventDefault(), { signal });
}

/**
 * @typedef {Readonly<{
 *   conversation: import("../state/conversation.js").Conversation,
 *   sender: import("./message_sender.js").MessageSender,
 *   transcript: import("./transcript.js").ChatTranscriptElement,
 *   settings: import("./chat_settings.js").ChatSettings,
 * }>} Parts
 * @typedef {Readonly<{turnId: string, toolId: string}>} CallPlace
 * @typedef {Readonly<{
 *   "tool-call-cancel": CallPlace,
 *   "tool-call-extend": CallPlace & {extendMs: number},
 *   "tool-call-stop-work": {turnId: string},
 *   "tool-call-result": CallPlace & {tell: (text: string|null) => void},
 *   "turn-retry": {text: string, attachments?: ReadonlyArray<import("../state/types.js").Attachment>},
 *   "turn-continue": {turnId: string},
 *   "message-edit": import("./message_actions.js").Edit,
 * }>} TranscriptEvents The `detail` of each event.
 */

/** Handle the events of the transcript. @param {Parts} parts @param {AbortSignal} signal */
export function listenToTranscript({ conversation, sender, transcript, settings }, signal) {
  /** @type {{[Type in keyof TranscriptEvents]: (detail: TranscriptEvents[Type]) => void}} */
  const actions = {
    "tool-call-cancel": ({ turnId, toolId }) => conversation.cancelTool(turnId, toolId),
    "tool-call-extend": ({ turnId, toolId, extendMs }) => conversation.extend(turnId, toolId, extendMs),
    "tool-call-stop-work": ({ turnId }) => conversation.stopWork(turnId),
    "tool-call-result": ({ turnId, toolId, tell }) => void fetchResult(settings.resultUrl, turnId, toolId).then(tell),
    "turn-retry": ({ text, attachments }) => sender.sendOnce(text, attachments),
    "turn-continue": ({ turnId }) => {
      conversation.continueTurn(turnId);
      transcript.showNext();
    },
    "message-edit": ({ turnId, text, tell }) => {
      const turn = conversation.state.turns.find(({ id }) => id === turnId);
      tell(sender.send(text, { replaces: turnId, attachments: attachmentsOf(turn) }));
    },
  };
  for (const [type, act] of Object.entries(actions)) {
    transcript.addEventListener(type, (event) => act(/** @type {CustomEvent} */ (event).detail), { signal });
  }
}

/** Shows the badges of conversations in a list: a shape and a text for each status, and for unread conversations. */

import { askedCount } from "../state/overview.js";
import { activeTurn } from "../state/reducer.js";
import { setText } from "./dom.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("../state/storage.js").ReadMarks} ReadMarks */
/** @typedef {import("./i18n.js").I18n} I18n */
/**
 * @typedef {Readonly<{standing: string, asked: number, toolsRunning: number, isQueued: boolean}>} Badge `standing` is
 * empty if the conversation is idle.
 */

/** @type {Badge} */
const IDLE = { standing: "", asked: 0, toolsRunning: 0, isQueued: false };
const AT_WORK = new Set(["running", "cancelling"]);

/** Return the text of a badge. @param {Badge} badge @param {I18n} i18n */
export function badgeText({ standing, asked, toolsRunning, isQueued }, i18n) {
  if (standing === "asking") return i18n.count("mark_asking", asked);
  if (standing !== "working") return standing && i18n.text(`mark_${standing}`);
  if (toolsRunning > 0) return i18n.count("mark_tools", toolsRunning);
  return i18n.text(isQueued ? "mark_queued" : "mark_working");
}

/** @param {HTMLElement} mark @param {Badge} badge @param {I18n} i18n */
function showBadge(mark, badge, i18n) {
  mark.hidden = badge.standing === "";
  mark.dataset.standing = badge.standing;
  const words = mark.querySelector(".mark-words");
  if (words) setText(words, badgeText(badge, i18n));
}

/**
 * Show the badges of a list. A conversation that has no badge is idle, but may be unread.
 * @param {ReadonlyMap<string, Badge>} badges
 * @param {ReadMarks} readMarks
 * @param {I18n} i18n
 */
export function showBadges(badges, readMarks, i18n) {
  for (const entry of document.querySelectorAll("li.list-entry")) {
    const { key = "", seq } = /** @type {HTMLElement} */ (entry).dataset;
    const mark = entry.querySelector(".mark");
    if (!(mark instanceof HTMLElement)) continue;
    const isUnread = readMarks.isUnread(key, Number(seq));
    const badge = badges.get(key) ?? IDLE;
    showBadge(mark, badge.standing === "" && isUnread ? { ...IDLE, standing: "unread" } : badge, i18n);
  }
}

/** Return the status of the conversation on this page. @param {State} state @returns {Badge} */
export function standingHere(state) {
  const asked = askedCount(state);
  const turn = activeTurn(state);
  if (asked > 0) return { ...IDLE, standing: "asking", asked };
  if (state.parked) return { ...IDLE, standing: "parked" };
  if (turn !== null) {
    const toolsRunning = Object.values(turn.calls).filter(({ status }) => AT_WORK.has(status)).length;
    if (state.connection.frozenAt !== null) return { ...IDLE, standing: "unknown" };
    return { ...IDLE, standing: "working", toolsRunning, isQueued: turn.status === "queued" };
  }
  return { ...IDLE, standing: state.turns.at(-1)?.status === "interrupted" ? "interrupted" : "" };
}

/**
 * Return the badges for the list on a chat page.
 * @param {State} state
 * @param {string} conversationId the conversation of the page
 * @returns {Map<string, Badge>}
 */
export function badgesOf(state, conversationId) {
  const others = state.otherConversations.map(
    ({ conversationId: id, askedIn, ...badge }) => /** @type {const} */ ([id, { ...badge, asked: askedIn.length }]),
  );
  return new Map([...others, [conversationId, standingHere(state)]]);
}

/** The badges of conversations in a list: a shape and a text for each status. */

import { openQuestions } from "../state/overview.js";
import { activeTurn } from "../state/reducer.js";
import { setText } from "./dom.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./i18n.js").I18n} I18n */

/** @param {Element} link @param {string} standing empty = at rest @param {number} asked @param {I18n} i18n */
function showBadge(link, standing, asked, i18n) {
  const mark = /** @type {HTMLElement|null} */ (link.querySelector(".mark"));
  if (!mark) return;
  mark.hidden = standing === "";
  mark.dataset.standing = standing;
  const text = standing === "asking" ? i18n.count("mark_asking", asked) : i18n.text(`mark_${standing}`);
  const spoken = mark.querySelector(".mark-words");
  if (spoken) setText(spoken, standing ? text : "");
}

/** Show the badges of a list; a conversation without one is at rest. @param {Map<string, {standing: string, asked: number}>} badges @param {I18n} i18n */
export function showBadges(badges, i18n) {
  for (const link of document.querySelectorAll("[data-conversation-id] > .mark")) {
    const item = /** @type {HTMLElement} */ (link.parentElement);
    const { standing, asked } = badges.get(item.dataset.conversationId ?? "") ?? { standing: "", asked: 0 };
    showBadge(item, standing, asked, i18n);
  }
}

/** How the conversation stands that the page shows. @param {State} state @returns {{standing: string, asked: number}} */
export function standingHere(state) {
  const asked = openQuestions(state).length;
  if (asked > 0) return { standing: "asking", asked };
  if (state.parked) return { standing: "parked", asked };
  if (activeTurn(state) !== null) return { standing: "working", asked };
  return { standing: state.turns.at(-1)?.status === "interrupted" ? "interrupted" : "", asked };
}

/** The badges that a chat page shows. @param {State} state @param {string} conversationId the conversation of the page */
export function badgesOf(state, conversationId) {
  const others = state.otherConversations.map(
    ({ conversationId: id, standing, askedIn }) => /** @type {const} */ ([id, { standing, asked: askedIn.length }]),
  );
  return new Map([...others, [conversationId, standingHere(state)]]);
}

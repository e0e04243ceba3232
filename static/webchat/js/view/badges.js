/** The marks of conversations in a list: a shape for each way in which one stands, and words for it. */

import { openQuestions } from "../state/overview.js";
import { activeTurn } from "../state/reducer.js";
import { setText } from "./dom.js";

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./i18n.js").Words} Words */

/** @param {Element} link @param {string} standing empty = at rest @param {number} asked @param {Words} words */
export function showMark(link, standing, asked, words) {
  const mark = /** @type {HTMLElement|null} */ (link.querySelector(".mark"));
  if (!mark) return;
  mark.hidden = standing === "";
  mark.dataset.standing = standing;
  const text = standing === "asking" ? words.count("mark_asking", asked) : words.text(`mark_${standing}`);
  const spoken = mark.querySelector(".mark-words");
  if (spoken) setText(spoken, standing ? text : "");
}

/** Mark the links of a list; those of which nothing is said are at rest. @param {Map<string, {standing: string, asked: number}>} marks @param {Words} words */
export function showMarks(marks, words) {
  for (const link of document.querySelectorAll("[data-conversation-id] > .mark")) {
    const item = /** @type {HTMLElement} */ (link.parentElement);
    const { standing, asked } = marks.get(item.dataset.conversationId ?? "") ?? { standing: "", asked: 0 };
    showMark(item, standing, asked, words);
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

/** Earlier messages: asked for a page at a time, and put before what is shown. */

import { inOrder, numbersOf, turnsFromSnapshot } from "./snapshot.js";

/** @typedef {import("./types.js").Clock} Clock */
/** @typedef {import("./types.js").EarlierMessages} EarlierMessages */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Turn} Turn */

/** Where the first message of a snapshot, or of a page of earlier messages, stands. @param {EarlierMessages} frame @returns {number|null} */
export const firstPosition = (frame) => {
  return frame.messages[0]?.position ?? null;
};

/**
 * What a page of earlier messages makes of the state. Nothing, if it no longer is the page before the first message.
 * @param {State} state
 * @param {{before: number, frame: EarlierMessages}} page
 * @param {Clock} clock
 * @returns {State}
 */
export function withEarlier(state, { before, frame }, clock) {
  const known = { ...state, isLoadingEarlier: false };
  if (state.earliest !== before) return known;
  const shown = new Map(state.turns.map((turn) => [turn.id, turn]));
  const earlier = turnsFromSnapshot(frame, clock);
  const asked = askedFor(frame);
  const joined = new Map(earlier.map((turn) => [turn.id, joinedWith(turn, shown.get(turn.id), asked)]));
  const turns = [
    ...earlier.filter((turn) => !shown.has(turn.id)),
    ...state.turns.map((turn) => joined.get(turn.id) ?? turn),
  ];
  const numbers = { ...state.numbers, ...numbersOf(frame) };
  const isNumbered = (/** @type {Turn} */ turn) => turn.id in numbers;
  return {
    ...known,
    numbers,
    // What has begun since the page was opened has no number here, and comes last.
    turns: [...inOrder(turns.filter(isNumbered), numbers), ...turns.filter((turn) => !isNumbered(turn))],
    earliest: firstPosition(frame) ?? state.earliest,
    hasEarlier: frame.has_earlier && firstPosition(frame) !== null,
  };
}

/**
 * A turn of which the page had the end only: what came before goes first, and what is shown stays as it is. Both have
 * every call of the turn; it belongs to the message that asked for it.
 * @param {Turn} earlier
 * @param {Turn|undefined} shown
 * @param {ReadonlySet<string>} asked the calls that the earlier messages ask for
 * @returns {Turn}
 */
function joinedWith(earlier, shown, asked) {
  if (!shown) return earlier;
  const first = earlier.items.filter((item) => item.kind !== "call" || asked.has(item.toolId));
  const known = new Set(first.map((item) => item.key));
  const hasUser = first.some((item) => item.kind === "user");
  const later = shown.items.filter((item) => !known.has(item.key) && !(hasUser && item.kind === "user"));
  return { ...shown, items: [...first, ...later], calls: { ...earlier.calls, ...shown.calls } };
}

/** @param {EarlierMessages} frame @returns {Set<string>} */
function askedFor(frame) {
  const blocks = frame.messages.flatMap((message) => message.content);
  return new Set(blocks.flatMap((block) => (block.type === "tool_use" ? block.id : [])));
}

/** What a model thinks streams, and is kept with the message that it comes to. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ends, numbered, opened, play, START, TURN } from "../fixtures.js";

const THOUGHTS = { text: "Let me see.", duration_ms: 8_200 };
/** @type {import("../fixtures.js").SketchOf<import("../../../static/webchat/js/net/wire.js").MessageEvent>} */
const MESSAGE = {
  type: "message",
  role: "assistant",
  id: 3,
  step: 1,
  content: [{ type: "text", text: "Yes." }],
  thoughts: THOUGHTS,
};

/** @param {string} text @param {number} offset @param {number} [step] @returns {any} */
const thought = (text, offset, step = 1) => ({ type: "thought_delta", turn_id: TURN, text, offset, step });

/** @param {import("../../../static/webchat/js/state/types.js").State} state */
const turnOf = ({ turns }) => {
  const [turn] = turns;
  assert.ok(turn);
  return turn;
};

const begun = opened(...numbered([START]));

test("pieces are joined in their order, each once", () => {
  const state = play(begun, [thought("Let ", 0), thought("me ", 4), thought("me ", 4), thought("e see", 5)]);
  assert.equal(turnOf(state).thoughts, "Let me see");
});

test("what was missed is marked, and asks for nothing", () => {
  const turn = turnOf(play(begun, [thought("see", 7), thought(".", 10)]));
  assert.deepEqual([turn.thoughts, turn.needsResync], ["… see.", false]);
});

test("the message takes their place, above its text, and late pieces are dropped", () => {
  const state = play(begun, [thought("Let", 0), ...numbered([MESSAGE], 2), thought(" me", 3)]);
  const turn = turnOf(state);
  assert.equal(turn.thoughts, "");
  assert.deepEqual(
    turn.items.map((item) => [item.kind, item.kind === "call" ? "" : item.text]),
    [
      ["user", "wait 20"],
      ["thoughts", "Let me see."],
      ["agent", "Yes."],
    ],
  );
});

test("thoughts that came to nothing go with the end of their turn", () => {
  assert.equal(turnOf(play(begun, [thought("Let", 0), ...numbered([ends("cancelled")], 2)])).thoughts, "");
});

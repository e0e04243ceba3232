/** What works in the background: on its card, until it has ended; whoever asked for that learns who has. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { CLOCK, numbered, opened, play, START, starts } from "../fixtures.js";

const WORK = {
  turn_id: "child",
  conversation_id: "below",
  agent: "digger",
  status: "running",
  parent_turn_id: "turn-1",
  parent_tool_id: "a",
  elapsed_ms: 4_000,
  tools: [{ tool_name: "wait", tool_title: "Wait" }],
};

/** @param {Array<object>} background @returns {import("../fixtures.js").Sketch} */
const overview = (background) => ({ type: "overview", conversations: [], questions: [], background });

/** @param {string} turnId @param {"now"|"after_step"} [mode] */
const cancel = (turnId, mode = "now") => ({
  type: /** @type {const} */ ("local_operation"),
  operation: { kind: /** @type {const} */ ("cancel_turn"), opId: "op", turnId, toolId: "", extendMs: 0, mode },
});

const working = () => opened(...numbered([START, starts("a")]), overview([WORK]));

/** @param {import("../../../static/webchat/js/state/types.js").State} state */
const cardOf = (state) => state.turns[0]?.calls.a;

test("it stands on the card of the call that has led to it, over a new connection too, until it has ended", () => {
  const state = working();
  assert.equal(cardOf(state)?.work, state.background[0]);
  assert.equal(state.background[0]?.elapsedAt, CLOCK.now);
  assert.equal(cardOf(play(state, [overview([])]))?.work, null);
  const stopping = play(state, [cancel("child"), { type: "welcome", user: "ada" }]);
  assert.equal(cardOf(play(stopping, [overview([WORK])]))?.work?.stoppingAt, CLOCK.now);
});

test("what ends by itself is not told; what was asked to end is, whoever of both was asked", () => {
  assert.equal(play(working(), [overview([])]).notice, null);
  for (const turnId of ["child", "turn-1"]) {
    const asked = play(working(), [cancel(turnId), overview([{ ...WORK, tools: [] }])]);
    assert.equal(cardOf(asked)?.work?.stoppingAt, CLOCK.now);
    const { notice } = play(asked, [overview([])]);
    assert.deepEqual([notice?.key, notice?.params], ["background_ended", { agents: "digger" }]);
  }
});

test("a cancel after the step means the turn alone, and a refused one nothing", () => {
  assert.equal(cardOf(play(working(), [cancel("turn-1", "after_step")]))?.work?.stoppingAt, null);
  const refused = play(working(), [cancel("child"), { type: "op_result", op_id: "op", outcome: "denied" }]);
  assert.equal(refused.background[0]?.stoppingAt, null);
});

test("a cancel word that means one in the background means all of them", () => {
  const other = { ...WORK, turn_id: "other", parent_turn_id: "before", agent: "miner" };
  const state = play(working(), [overview([WORK, other])]);
  const said = play(state, [{ type: "message_result", client_id: "m", turn_id: "child", cancelled: true }]);
  assert.deepEqual(
    said.background.map(({ stoppingAt }) => stoppingAt),
    [CLOCK.now, CLOCK.now],
  );
});

test("names that a model has written show what is invisible in them", () => {
  const state = opened(
    overview([{ ...WORK, agent: "dig\u200bger", tools: [{ tool_name: "Wa\u202eit", tool_title: "" }] }]),
  );
  assert.ok(!/[\u200b\u202e]/.test(JSON.stringify(state.background)));
});

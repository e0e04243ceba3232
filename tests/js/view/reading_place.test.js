/** Which turns of a long conversation have elements. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { newTurn } from "../../../static/webchat/js/state/turns.js";
import { MAX_WEIGHT, rangeAround, TurnHeights } from "../../../static/webchat/js/view/reading_place.js";

/** @param {number} count @param {number} items */
const turns = (count, items) =>
  Array.from({ length: count }, (_, place) => ({
    ...newTurn(`t${place}`, { now: 0, wall: 0 }, "completed"),
    items: Array.from({ length: items }, (__, key) => ({
      kind: /** @type {const} */ ("call"),
      key: `${key}`,
      toolId: "",
    })),
  }));

test("a short conversation has all of its elements", () => {
  assert.deepEqual(rangeAround(turns(5, 3), 4), { from: 0, to: 5 });
  assert.deepEqual(rangeAround([], -1), { from: 0, to: 0 });
});

test("of a long one there are the turns on both sides of what is read, at an end more of the other side", () => {
  const many = turns(1_000, 3);
  const count = MAX_WEIGHT / 4;
  assert.deepEqual(rangeAround(many, 999), { from: 1_000 - count, to: 1_000 });
  assert.deepEqual(rangeAround(many, 0), { from: 0, to: count });
  const { from, to } = rangeAround(many, 500);
  assert.equal(to - from, count);
  assert.ok(500 - from > count / 3 && to - 500 > count / 3);
});

test("calls count, and a turn that weighs too much alone is shown all the same", () => {
  assert.deepEqual(rangeAround(turns(9, 2 * MAX_WEIGHT), 3), { from: 3, to: 4 });
});

test("what was drawn is as high as it was, and what stands where is found again", () => {
  const many = turns(100, 1);
  const heights = new TurnHeights();
  const guess = heights.sum(many, 0, 1);
  heights.note("t0", 1_000);
  assert.equal(heights.sum(many, 0, 100), 1_000 + 99 * guess);
  assert.equal(heights.at(many, 999), 0);
  assert.equal(heights.at(many, 1_000 + guess), 2);
  assert.equal(heights.at(many, 1_000_000), 99);
});

/** Dictated words meet what is written around them. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { spaced } from "../../../static/webchat/js/state/dictation.js";

const joined = (/** @type {string} */ before, /** @type {string} */ text, /** @type {string} */ after = "") =>
  before + spaced(text, { before, after }) + after;

test("a dictated text has one blank to each word beside it, and none where a sentence has none", () => {
  assert.equal(joined("", "milk"), "milk");
  assert.equal(joined("buy", "milk"), "buy milk");
  assert.equal(joined("buy ", "milk"), "buy milk");
  assert.equal(joined("buy\n", "milk"), "buy\nmilk");
  assert.equal(joined("buy", "milk", "and bread"), "buy milk and bread");
  assert.equal(joined("buy ", "milk", " and bread"), "buy milk and bread");
  assert.equal(joined("buy (", "milk", ")."), "buy (milk).");
  assert.equal(joined("“", "milk", "”, please"), "“milk”, please");
  assert.equal(joined("buy milk", ", and bread"), "buy milk, and bread");
  assert.equal(joined("Buy it.", "Now", "!"), "Buy it. Now!");
});

test("scripts without blanks get none", () => {
  assert.equal(joined("牛乳を", "買って", "ください"), "牛乳を買ってください");
  assert.equal(joined("买。", "好"), "买。好");
  assert.equal(joined("우유", "사세요"), "우유 사세요");
});

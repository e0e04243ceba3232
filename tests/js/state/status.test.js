import assert from "node:assert/strict";
import { test } from "node:test";
import { canBeCancelled, canOnlyBeLeft } from "../../../static/webchat/js/state/status.js";

test("what waits or runs can be cancelled, whatever its tool", () => {
  assert.equal(canBeCancelled({ status: "pending" }), true);
  assert.equal(canBeCancelled({ status: "running" }), true);
});

test("what has ended cannot be cancelled", () => {
  assert.equal(canBeCancelled({ status: "succeeded" }), false);
});

test("what runs where nothing can end it can only be left", () => {
  assert.equal(canOnlyBeLeft({ status: "running", interruptible: false }), true);
  assert.equal(canOnlyBeLeft({ status: "running", interruptible: true }), false);
  assert.equal(canOnlyBeLeft({ status: "pending", interruptible: false }), false);
});

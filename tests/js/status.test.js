import assert from "node:assert/strict";
import { test } from "node:test";
import { canBeCancelled } from "../../static/webchat/js/status.js";

test("what waits can be taken back, whatever its tool", () => {
  assert.equal(canBeCancelled({ status: "pending", cancellable: false }), true);
});

test("what runs can be cancelled only if its tool allows it", () => {
  assert.equal(canBeCancelled({ status: "running", cancellable: true }), true);
  assert.equal(canBeCancelled({ status: "running", cancellable: false }), false);
});

test("what has ended cannot be cancelled", () => {
  assert.equal(canBeCancelled({ status: "succeeded", cancellable: true }), false);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { isAsked } from "../../../static/webchat/js/state/calls.js";
import { openQuestions } from "../../../static/webchat/js/state/overview.js";
import { canBeCancelled } from "../../../static/webchat/js/state/status.js";
import { announcementsOf } from "../../../static/webchat/js/view/announcer.js";
import { I18n } from "../../../static/webchat/js/view/i18n.js";
import { verdictLabel } from "../../../static/webchat/js/view/labels.js";
import {
  asks,
  CLOCK,
  EMPTY_SNAPSHOT,
  ends,
  numbered,
  opened,
  play,
  results,
  START,
  starts,
  TURN,
} from "../fixtures.js";

/** @type {import("../fixtures.js").Sketch} */
const QUESTION = {
  type: "tool_approval",
  tool_id: "a",
  tool_name: "wait",
  input: { seconds: 20 },
  expires_in_ms: 600_000,
  can_remember: true,
  description: "Wait.",
};
/** @param {"approved"|"denied"|"expired"} decision @param {Record<string, unknown>} [more] */
const decided = (decision, more = {}) => ({
  type: /** @type {const} */ ("tool_decision"),
  tool_id: "a",
  decision,
  by: "ada",
  reason: "",
  remember: false,
  ...more,
});

/** @param {import("../../../static/webchat/js/state/types.js").State} state */
const callOf = (state) => {
  const call = state.turns[0]?.calls.a;
  assert.ok(call);
  return call;
};

test("a question makes the card ask, with what is left of its time", () => {
  const state = opened(...numbered([START, asks("a"), QUESTION]));
  const call = callOf(state);
  assert.ok(isAsked(call));
  assert.ok(canBeCancelled(call));
  assert.equal(openQuestions(state).length, 1);
  assert.equal(call.approval?.expiresAt, CLOCK.now + 600_000);
});

test("a call that was allowed goes on, and stays known as allowed when it starts and ends", () => {
  const state = opened(...numbered([START, asks("a"), QUESTION, decided("approved", { remember: true })]));
  assert.equal(callOf(state).status, "pending");
  assert.equal(openQuestions(state).length, 0);
  const ended = callOf(play(state, numbered([starts("a"), results("a"), ends()], 5)));
  assert.equal(ended.status, "succeeded");
  assert.equal(ended.approval?.remember, true);
});

test("a denied call asks nobody any more, and ends as denied", () => {
  const state = opened(...numbered([START, asks("a"), QUESTION, decided("denied", { reason: "no" })]));
  assert.ok(!isAsked(callOf(state)));
  const ended = callOf(play(state, numbered([results("a", "denied")], 5)));
  assert.equal(ended.status, "denied");
  assert.equal(ended.approval?.reason, "no");
});

test("a tool that has changed is asked about anew", () => {
  const again = { ...QUESTION, description: "Wait longer." };
  const state = opened(...numbered([START, asks("a"), QUESTION, decided("approved"), again]));
  assert.ok(isAsked(callOf(state)));
  assert.equal(callOf(state).approval?.description, "Wait longer.");
});

test("a snapshot has the question, too", () => {
  const approval = { expires_in_ms: 5_000, can_remember: false, description: "", decision: null };
  const call = { tool_id: "a", turn_id: TURN, tool_name: "wait", input: {}, status: "awaiting_approval", approval };
  const active = { turn_id: TURN, status: "running", calls: [call] };
  const state = play(opened(), [{ ...EMPTY_SNAPSHOT, active_turns: [active] }]);
  assert.ok(isAsked(callOf(state)));
  assert.equal(callOf(state).approval?.expiresAt, CLOCK.now + 5_000);
});

test("a decision is on its way until it is seen, and comes back if it was refused", () => {
  const operation = { kind: "decide_tool", opId: "op", turnId: TURN, toolId: "a", extendMs: 0, decision: "approve" };
  const asked = opened(...numbered([START, asks("a"), QUESTION]));
  const sent = play(asked, [{ type: "local_operation", operation: /** @type {any} */ (operation) }]);
  assert.equal(callOf(sent).isDeciding, true);
  const refused = play(sent, [{ type: "op_result", op_id: "op", outcome: "not_found" }]);
  assert.equal(callOf(refused).isDeciding, false);
  assert.equal(refused.notice?.key, "decide_tool_not_found");
  const accepted = play(sent, [{ type: "op_result", op_id: "op", outcome: "accepted" }]);
  assert.equal(callOf(accepted).isDeciding, true);
  assert.equal(callOf(play(accepted, numbered([decided("approved")], 4))).isDeciding, false);
});

test("a question is announced at once, and once", () => {
  const i18n = new I18n({ say_asked: "{tool} is waiting for your decision." }, "en");
  const before = opened(...numbered([START, asks("a")]));
  const after = play(before, numbered([QUESTION], 3));
  assert.deepEqual(announcementsOf(before, after, i18n), [
    { text: "wait is waiting for your decision.", urgent: true },
  ]);
  assert.deepEqual(announcementsOf(after, after, i18n), []);
});

test("who decided is told in words", () => {
  const texts = {
    by_user: "by you",
    by_name: "by {by}",
    verdict_approved: "Allowed {who}",
    verdict_remembered: "Allowed {who} for this conversation",
    verdict_denied: "Denied {who}",
    verdict_reason: "{said}: {reason}",
  };
  const i18n = new I18n(texts, "en");
  /** @param {Record<string, unknown>} decision @param {string} viewer */
  const told = (decision, viewer = "ada") =>
    verdictLabel(
      i18n,
      callOf(opened(...numbered([START, asks("a"), QUESTION, /** @type {any} */ (decision)]))),
      viewer,
    );
  assert.equal(told(decided("approved")), "Allowed by you");
  assert.equal(told(decided("approved", { remember: true }), "bob"), "Allowed by ada for this conversation");
  assert.equal(told(decided("denied", { reason: "{who}" })), "Denied by you: {who}");
  assert.equal(told(decided("expired")), "");
});

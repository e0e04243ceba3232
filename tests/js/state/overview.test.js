/** What the page knows beyond its own log: how other conversations stand, and what sub-agents ask. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { askedCall, openQuestions, questionsElsewhere } from "../../../static/webchat/js/state/overview.js";
import { announcementsOf } from "../../../static/webchat/js/view/announcer.js";
import { badgesOf, badgeText, standingHere } from "../../../static/webchat/js/view/badges.js";
import { I18n } from "../../../static/webchat/js/view/i18n.js";
import { asks, CLOCK, ends, numbered, opened, play, START, starts } from "../fixtures.js";

const QUESTION = {
  turn_id: "child",
  conversation_id: "below",
  agent: "digger",
  tool_id: "x",
  tool_name: "exec",
  input: { command: "dig" },
  expires_in_ms: 60_000,
  can_remember: true,
  description: "",
};
/** @type {import("../fixtures.js").Sketch} */
const own = { type: "tool_approval", tool_id: "a", tool_name: "wait", input: {}, expires_in_ms: 60_000 };

/** @param {Array<object>} questions @param {Array<object>} [conversations] @returns {import("../fixtures.js").Sketch} */
const overview = (questions, conversations = []) => ({ type: "overview", questions, conversations });

/** @param {"decide_tool"|"cancel_tool"} kind */
const asking = (kind) => ({
  type: /** @type {const} */ ("local_operation"),
  operation: { kind, opId: "op", turnId: "child", toolId: "x", extendMs: 0 },
});

test("what a sub-agent asks comes after the own questions, and counts like them", () => {
  const state = opened(...numbered([START, asks("a"), own]), overview([QUESTION]));
  assert.deepEqual(openQuestions(state), ["turn-1 a", "child x"]);
  const [question] = state.questions;
  assert.equal(question?.call.approval?.expiresAt, CLOCK.now + 60_000);
  assert.deepEqual(question?.call.subAgent, { agent: "digger", conversationId: "below" });
  assert.deepEqual(standingHere(state), { standing: "asking", asked: 2, toolsRunning: 0, isQueued: false });
});

test("a decision is on its way until the question is gone, also where the overview comes again", () => {
  const sent = opened(overview([QUESTION]), asking("decide_tool"), overview([QUESTION]));
  assert.equal(sent.questions[0]?.call.isDeciding, true);
  const refused = play(sent, [{ type: "op_result", op_id: "op", outcome: "already_finished" }]);
  assert.equal(refused.questions[0]?.call.isDeciding, false);
  assert.deepEqual(refused.notice?.params, { tool: "exec" });
  assert.deepEqual(play(sent, [overview([])]).questions, []);
});

test("a question that is asked anew, since its tool has changed, can be answered again", () => {
  const first = { ...QUESTION, requested_at: "2030-01-01T00:00:00Z" };
  const anew = { ...QUESTION, requested_at: "2030-01-01T00:00:05Z", description: "another" };
  const decided = play(opened(overview([first]), asking("decide_tool")), [
    { type: "op_result", op_id: "op", outcome: "accepted" },
    overview([anew]),
  ]);
  const [question] = decided.questions;
  assert.equal(question?.call.isDeciding, false);
  assert.equal(question?.call.approval?.description, "another");
});

test("a call that is cancelled while it asks is no question any more", () => {
  const state = opened(overview([QUESTION]), asking("cancel_tool"));
  assert.deepEqual(openQuestions(state), []);
});

test("what is known of elsewhere stands over a new connection until its overview comes", () => {
  const state = opened(overview([QUESTION], [{ conversation_id: "o", standing: "asking", asked_in: ["o"] }]));
  const again = play(state, [{ type: "welcome", user: "ada" }]);
  assert.deepEqual([again.questions, again.otherConversations], [state.questions, state.otherConversations]);
  assert.deepEqual(play(again, [overview([])]).questions, []);
});

test("a question that this page shows does not count a second time as one elsewhere", () => {
  const otherConversations = [
    { conversation_id: "root", standing: "asking", asked_in: ["below", "here"] },
    { conversation_id: "other", standing: "asking", asked_in: ["other"] },
    { conversation_id: "third", standing: "working", asked_in: [] },
  ];
  assert.equal(questionsElsewhere(opened(overview([QUESTION], otherConversations)), "here"), 1);
});

test("how this conversation stands follows from its state", () => {
  assert.deepEqual(standingHere(opened()), { standing: "", asked: 0, toolsRunning: 0, isQueued: false });
  assert.equal(standingHere(opened(...numbered([START]))).standing, "working");
  assert.equal(standingHere(opened(...numbered([START, ends("interrupted")]))).standing, "interrupted");
  assert.equal(standingHere(opened(...numbered([START, ends()]))).standing, "");
});

test("what sub-agents ask is urgent; what others ask is said once", () => {
  const texts = {
    say_asked_by: "{agent} is waiting for your decision on {tool}.",
    say_asked_elsewhere: "Another one.",
  };
  const i18n = new I18n(texts, "en");
  const before = opened();
  const after = play(before, [overview([QUESTION])]);
  const urgent = { text: "digger is waiting for your decision on exec.", urgent: true };
  assert.deepEqual(announcementsOf(before, after, i18n), [urgent]);
  assert.deepEqual(announcementsOf(after, play(after, [overview([QUESTION])]), i18n), []);
  const other = play(before, [overview([], [{ conversation_id: "o", standing: "asking", asked_in: ["o"] }])]);
  assert.deepEqual(announcementsOf(before, other, i18n), [{ text: "Another one.", urgent: false }]);
});

test("an open question leads to its call, wherever it was asked", () => {
  const state = opened({ type: "overview", questions: [QUESTION] });
  const [key = ""] = openQuestions(state);
  assert.equal(askedCall(state, key)?.name, "exec");
  assert.equal(askedCall(state, key)?.subAgent?.agent, "digger");
  assert.equal(askedCall(state, "child other"), null);
});

test("a badge says in words what works: how many tools run, that a turn is queued, that a person is waited for", () => {
  const texts = {
    mark_asking_one: "waiting for you",
    mark_tools_one: "{n} tool running",
    mark_tools_other: "{n} tools running",
    mark_queued: "queued",
    mark_working: "working",
  };
  const i18n = new I18n(texts, "en");
  const here = (/** @type {import("../fixtures.js").Sketch[]} */ ...events) =>
    badgeText(standingHere(opened(...numbered(events))), i18n);
  assert.equal(here(), "");
  assert.equal(here(START), "working");
  assert.equal(here(START, asks("a", "b"), starts("a"), starts("b")), "2 tools running");
  assert.equal(here(START, asks("a"), own), "waiting for you");
  assert.equal(here({ type: "turn_queued" }), "queued");
  const others = [
    { conversation_id: "busy", standing: /** @type {const} */ ("working"), tools_running: 1, is_queued: false },
    { conversation_id: "late", standing: /** @type {const} */ ("working"), tools_running: 0, is_queued: true },
  ];
  const badges = badgesOf(opened(overview([], others)), "here");
  const words = ["busy", "late", "here"].map((id) => {
    const badge = badges.get(id);
    return badge && badgeText(badge, i18n);
  });
  assert.deepEqual(words, ["1 tool running", "queued", ""]);
});

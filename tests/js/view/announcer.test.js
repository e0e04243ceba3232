import assert from "node:assert/strict";
import { test } from "node:test";
import { disagreement } from "../../../static/webchat/js/state/conversation.js";
import { Announcer, announcementsOf, TierWatch, withdrawnTexts } from "../../../static/webchat/js/view/announcer.js";
import { I18n } from "../../../static/webchat/js/view/i18n.js";
import { asks, ends, numbered, opened, play, results, START, starts, TURN } from "../fixtures.js";

const i18n = new I18n(
  {
    say_started: "working",
    say_finished_other: "finished, {n} words",
    say_call_succeeded: "{tool} finished",
    say_call_ended: "{tool}: {outcome}",
    say_calls_ended_other: "{n} tools finished",
    say_slow: "{tool} since {seconds} s",
    call_cancelled_after: "cancelled {by}",
    by_user: "by you",
    turn_cancelled: "Task cancelled",
    turn_failed: "Task failed",
    turn_failed_detail: "sorry",
    seconds: "{n} s",
    edit_busy: "something goes on",
  },
  "en",
);

/** @param {Array<import("../fixtures.js").Sketch>} before @param {Array<import("../fixtures.js").Sketch>} after */
const said = (before, after) => {
  const known = opened(...before);
  return announcementsOf(known, play(known, after), i18n);
};
const running = [START, asks("a", "b"), starts("a"), starts("b")];

test("boundaries are said: start, a call's end, the turn's end", () => {
  assert.deepEqual(said([], numbered([START])), [{ text: "working", urgent: false }]);
  assert.deepEqual(said(numbered(running), numbered([results("a")], 5)), [{ text: "wait finished", urgent: false }]);
  const cancelled = said(numbered(running), numbered([results("a", "cancelled")], 5));
  assert.deepEqual(cancelled, [{ text: "wait: cancelled by you", urgent: false }]);
  assert.deepEqual(said(numbered(running), numbered([ends()], 5)), [{ text: "finished, 2 words", urgent: false }]);
});

test("several ends at once are one sentence", () => {
  const both = said(numbered(running), numbered([results("a"), results("b")], 5));
  assert.deepEqual(both, [{ text: "2 tools finished", urgent: false }]);
});

test("the calls of a turn that is being ended are not told one by one", () => {
  /** @type {import("../fixtures.js").Sketch} */
  const aborted = { type: "turn_abort", reason: "user", source: "button", by: "ada" };
  assert.deepEqual(said(numbered([...running, aborted]), numbered([results("a", "cancelled")], 6)), []);
});

test("a cancelled turn is said calmly, a failed one is urgent", () => {
  assert.equal(said(numbered(running), numbered([ends("cancelled")], 5))[0]?.urgent, false);
  assert.deepEqual(said(numbered(running), numbered([ends("failed")], 5)), [
    { text: "Task failed: sorry", urgent: true },
  ]);
});

test("text and progress are not said", () => {
  const quiet = [
    { type: /** @type {const} */ ("text_delta"), turn_id: TURN, text: "Hello", offset: 0 },
    ...numbered([{ type: "tool_progress", tool_id: "a", elapsed_ms: 5_000, message: "x" }], 5),
  ];
  assert.deepEqual(said(numbered(running), quiet), []);
});

test("opening a page says nothing of what is already there", () => {
  const known = opened(...numbered(running));
  assert.deepEqual(announcementsOf({ ...known, phase: "loading", turns: [] }, known, i18n), []);
});

test("a crossing of ten and of thirty seconds is said once each", () => {
  const state = opened({ type: "local_connection", status: "online" }, ...numbered([START, asks("a"), starts("a")]));
  const watch = new TierWatch();
  const at = (/** @type {number} */ seconds) =>
    watch.crossings(state, 1_000 + seconds * 1_000, i18n).map(({ text }) => text);
  assert.deepEqual([1, 11, 12, 31, 32].map(at), [[], ["wait since 10 s"], [], ["wait since 30 s"], []]);
});

test("a heartbeat tells lost events from a lost turn", () => {
  const state = opened(...numbered(running));
  const beat = (/** @type {number} */ last, /** @type {Array<string>} */ active) =>
    disagreement(state, { type: "heartbeat", last_seq: last, active });
  assert.equal(beat(4, [TURN]), null);
  assert.equal(beat(6, []), "behind");
  assert.equal(beat(4, []), "different");
});

test("a sentence that holds no more is taken back, said or not; what was said since stays", () => {
  const told = opened(...numbered([START]), { type: "local_notice", level: "info", key: "edit_busy" });
  const texts = withdrawnTexts(told, play(told, numbered([ends()], 2)), i18n);
  assert.deepEqual(texts, ["something goes on"]);
  assert.deepEqual(withdrawnTexts(told, told, i18n), []);
  const [status, alert] = [{ textContent: "" }, { textContent: "" }];
  const announcer = new Announcer(/** @type {HTMLElement} */ (status), /** @type {HTMLElement} */ (alert));
  announcer.say({ text: "something goes on", urgent: false });
  announcer.takeBack("something else");
  assert.equal(status.textContent, "something goes on");
  for (const text of texts) announcer.takeBack(text);
  assert.equal(status.textContent, "");
});

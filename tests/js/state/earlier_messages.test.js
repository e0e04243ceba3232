import assert from "node:assert/strict";
import { test } from "node:test";
import { INITIAL_STATE } from "../../../static/webchat/js/state/reducer.js";
import { announcementsOf } from "../../../static/webchat/js/view/announcer.js";
import { I18n } from "../../../static/webchat/js/view/i18n.js";
import { EMPTY_SNAPSHOT, ends, numbered, play, START } from "../fixtures.js";

/** @param {string} turn @param {number} position @param {"user"|"assistant"} role @param {string} text @param {...string} calls */
const message = (turn, position, role, text, ...calls) => ({
  id: position,
  turn_id: turn,
  position,
  role,
  content: [{ type: "text", text }, ...calls.map((id) => ({ type: "tool_use", id, name: "wait", input: {} }))],
});

/** @param {string} turn @param {...string} ids */
const done = (turn, ...ids) =>
  ids.map((id) => ({ turn_id: turn, tool_id: id, tool_name: "wait", status: "succeeded" }));

/** @param {string} id @param {number} number @param {string} [status] */
const ended = (id, number, status = "completed") => ({ turn_id: id, number, status, user_message: `say ${number}` });

/** The last page: the end of turn two, all of turn three, and a turn that never began. */
const LAST = {
  ...EMPTY_SNAPSHOT,
  seq: 40,
  messages: [
    message("two", 5, "assistant", "second step", "b"),
    message("two", 6, "assistant", "the end"),
    message("three", 7, "user", "say 3"),
    message("three", 8, "assistant", "three"),
  ],
  calls: done("two", "a", "b"),
  turns: [{ ...ended("zero", 0, "cancelled"), started: false }, ended("two", 2), ended("three", 3)],
  has_earlier: true,
};
const EARLIER = {
  ...EMPTY_SNAPSHOT,
  messages: [
    message("one", 1, "user", "say 1"),
    message("one", 2, "assistant", "one"),
    message("two", 3, "user", "say 2"),
    message("two", 4, "assistant", "first step", "a"),
  ],
  calls: done("two", "a", "b"),
  turns: [ended("one", 1), ended("two", 2)],
};
const PAGE = /** @type {const} */ ({ type: "local_earlier", before: 5, frame: EARLIER });
const opened = play(INITIAL_STATE, [{ type: "welcome", user: "ada" }, LAST]);

/** @param {import("../../../static/webchat/js/state/types.js").State} state */
const ids = (state) => state.turns.map((turn) => turn.id);
/** @param {import("../../../static/webchat/js/state/types.js").State} state @param {string} id */
const said = (state, id) =>
  state.turns.find((turn) => turn.id === id)?.items.map((item) => (item.kind === "call" ? item.toolId : item.text));

test("earlier turns come before the ones that are shown, in the order of their numbers", () => {
  assert.deepEqual(ids(opened), ["zero", "two", "three"]);
  const after = play(opened, [PAGE]);
  assert.deepEqual(ids(after), ["zero", "one", "two", "three"]);
  assert.equal(after.earliest, 1);
  assert.equal(after.hasEarlier, false);
});

test("a turn that was cut in two is one again, each call beside the message that asked for it", () => {
  const after = play(opened, [PAGE]);
  assert.deepEqual(said(after, "two"), ["say 2", "first step", "a", "second step", "b", "the end"]);
  assert.equal(after.turns[2]?.calls.a?.status, "succeeded");
});

test("what happens meanwhile stays as it is, and comes last", () => {
  const live = play(opened, numbered([START], 41, "four"));
  const after = play(live, [PAGE]);
  assert.deepEqual(ids(after), ["zero", "one", "two", "three", "four"]);
  assert.equal(after.turns[4], live.turns[3]);
  assert.equal(after.lastSeq, 41);
});

test("a page that is not the one before the first message is dropped", () => {
  const asked = play(opened, [{ type: "local_earlier_asked" }]);
  assert.equal(asked.isLoadingEarlier, true);
  const after = play(asked, [{ ...PAGE, before: 7 }]);
  assert.equal(after.turns, opened.turns);
  assert.equal(after.isLoadingEarlier, false);
});

test("an empty page is the last one", () => {
  const after = play(opened, [{ ...PAGE, frame: { ...EMPTY_SNAPSHOT, has_earlier: true } }]);
  assert.deepEqual([after.hasEarlier, after.earliest], [false, 5]);
});

test("a new snapshot begins anew", () => {
  const after = play(play(opened, [PAGE]), [LAST]);
  assert.deepEqual([ids(after), after.earliest, after.hasEarlier], [["zero", "two", "three"], 5, true]);
});

test("nothing of what was earlier is said as if it happened now", () => {
  const running = play(opened, numbered([START], 41, "four"));
  const i18n = new I18n({}, "en");
  assert.deepEqual(announcementsOf(running, play(running, [PAGE]), i18n), []);
  assert.equal(announcementsOf(running, play(running, numbered([ends()], 42, "four")), i18n).length, 1);
});

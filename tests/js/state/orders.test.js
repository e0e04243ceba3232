/** One turn's events in every order in which they can come: out of order, twice, behind a gap, again after a reconnect. */

import assert from "node:assert/strict";
import test from "node:test";

import { TURN_CHANGES } from "../../../static/webchat/js/state/turn_events.js";
import { asks, EMPTY_SNAPSHOT, ends, numbered, opened, play, results, START, starts, TURN } from "../fixtures.js";

/** @typedef {import("../fixtures.js").Sketch} Sketch */
/** @typedef {import("../fixtures.js").State} State */

const WELCOME = /** @type {const} */ ({ type: "welcome", user: "ada" });
const ANSWER = "All is done.";
/** How many events that follow each other are put into every order. */
const WINDOW = 4;

/** @type {ReadonlyArray<Sketch>} */
const WORK = [
  START,
  { ...asks("a", "b"), id: 2, step: 1 },
  { type: "tool_approval", tool_id: "b", tool_name: "wait", input: { seconds: 20 }, can_remember: true },
  starts("a"),
  { type: "tool_deadline", tool_id: "a", timeout_ms: 60_000, timeout_source: "user", changed_by: "ada" },
  { type: "tool_progress", tool_id: "a", elapsed_ms: 500, progress: 2, total: 3, message: "2 of 3" },
  { type: "tool_decision", tool_id: "b", decision: "approved", by: "ada" },
  starts("b"),
  results("b", "cancelled"),
];
/** @type {Record<string, ReadonlyArray<Sketch>>} */
const TURNS = {
  "a call is cancelled": [
    ...WORK,
    results("a"),
    { type: "message", role: "assistant", id: 3, step: 2, content: [{ type: "text", text: ANSWER }] },
    ends(),
  ],
  "the turn is cancelled": [
    ...WORK,
    { type: "turn_ends_after_step", reason: "user", source: "button", by: "ada" },
    { type: "turn_abort", reason: "user", source: "button", by: "ada" },
    results("a", "cancelled"),
    ends("cancelled"),
    { type: "cancel_acknowledged", said: "stop", text: "Cancelled.", source: "typed" },
  ],
  "a call is given up and the history repaired": [
    { type: "turn_queued", user_message: "wait 20", source: "typed", version: 2, replaces: "earlier" },
    START,
    { type: "prompt_changed", reason: "tools" },
    { type: "error", code: "retrying", message: "The model is busy.", reason: "busy", wait_ms: 1_000 },
    { ...asks("a", "b", "c"), id: 2, step: 1 },
    starts("a"),
    { type: "tool_queued", tool_id: "b", tool_name: "wait", waits_for: { kind: "slot", tool_name: "wait" } },
    { type: "tool_timeout", tool_id: "a", tool_name: "wait", timeout_ms: 30_000, limit_reached: "total" },
    results("a", "abandoned"),
    starts("b"),
    { type: "tool_question", tool_id: "b", question_id: "7", form: { message: "Who?", fields: [] } },
    { type: "tool_answer", tool_id: "b", question_id: "7", action: "accept", by: "ada" },
    { type: "sub_agent", tool_id: "b", agent: "researcher", child_conversation_id: "c2", is_detached: false },
    results("b"),
    { type: "message", role: "assistant", id: 3, step: 2, content: [{ type: "text", text: ANSWER }] },
    ends(),
    { type: "tool_settled", tool_id: "a", tool_name: "wait", status: "abandoned", kind: "ended", after_ms: 900 },
    { type: "history_repaired", repairs: [{ tool_id: "c" }] },
    { type: "conversation_parked", reason: "crashes" },
    { type: "conversation_resumed", by: "ada" },
  ],
};

/** What the server sends to a page that names the last number it has. @param {State} state @param {ReadonlyArray<Sketch>} events */
const reconnected = (state, events) => play(state, [WELCOME, ...events.slice(state.lastSeq ?? 0)]);

/** @template Item @param {ReadonlyArray<Item>} items @returns {Array<Array<Item>>} */
const orders = (items) =>
  items.length === 0
    ? [[]]
    : items.flatMap((item, place) => orders(items.toSpliced(place, 1)).map((rest) => [item, ...rest]));

test("every type of event has its place in one of the turns", () => {
  const types = new Set(Object.values(TURNS).flatMap((turn) => turn.map(({ type }) => type)));
  for (const type of [...Object.keys(TURN_CHANGES), "conversation_parked", "conversation_resumed"])
    assert.ok(types.has(/** @type {Sketch["type"]} */ (type)), type);
});

for (const [name, turn] of Object.entries(TURNS)) {
  const events = numbered(turn);
  const plain = opened(...events);
  /** @param {State} state @param {string} [how] */
  const isPlain = (state, how) => assert.deepEqual(state, plain, how);
  const points = [...events.keys(), events.length];

  test(`${name}: neighbours in any order show the same after a reconnect`, () => {
    for (const point of events.keys()) {
      const [before, after] = [events.slice(0, point), events.slice(point + WINDOW)];
      for (const mixed of orders(events.slice(point, point + WINDOW))) {
        const state = opened(...before, ...mixed, ...after);
        isPlain(reconnected(state, events));
      }
    }
  });

  test(`${name}: an event that comes again, at any time, changes nothing`, () => {
    for (const point of points)
      for (const again of events.slice(0, point))
        isPlain(opened(...events.slice(0, point), again, ...events.slice(point)));
  });

  test(`${name}: after a reconnect at any point, events come from any earlier number on`, () => {
    for (const point of points)
      for (const from of points.slice(0, point + 1))
        isPlain(opened(...events.slice(0, point), WELCOME, ...events.slice(from)));
  });

  test(`${name}: behind a gap nothing is applied until the missing event is there`, () => {
    for (const lost of [...events.keys()].slice(1, -1)) {
      const state = opened(...events.slice(0, lost), ...events.slice(lost + 1));
      assert.deepEqual([state.gap, state.lastSeq], [true, lost]);
      isPlain(reconnected(state, events));
    }
  });

  test(`${name}: a snapshot ends any gap, and older events that come behind it change nothing`, () => {
    const whole = { ...EMPTY_SNAPSHOT, seq: events.length, turns: [{ turn_id: TURN, number: 1 }] };
    for (const lost of [...events.keys()].slice(1, -1)) {
      const seen = opened(...events.slice(0, lost), ...events.slice(lost + 1), WELCOME, whole);
      assert.deepEqual([seen.gap, seen.lastSeq], [false, events.length]);
      assert.deepEqual(play(seen, events), seen);
    }
  });

  test(`${name}: pieces of text that come twice or late, at any point, leave no trace`, () => {
    const said = turn.findLastIndex(({ type }) => type === "message");
    const [step, text] = said > 1 ? [2, ANSWER] : [1, "On it."];
    /** @type {(offset: number) => Sketch} */
    const piece = (offset) => ({
      type: "text_delta",
      turn_id: TURN,
      step,
      text: text.slice(offset, offset + 3),
      offset,
    });
    const pieces = [piece(0), piece(3)];
    for (const point of points.slice(1, said + 1))
      isPlain(opened(...events.slice(0, point), ...pieces, ...pieces, ...events.slice(point)));
    for (const point of points.slice(said + 1))
      for (const late of [pieces, [piece(0)], [piece(3)]])
        isPlain(opened(...events.slice(0, point), ...late, ...events.slice(point)), `late behind event ${point}`);
  });
}

/** Sub-agents on the page: a card knows who works for it, and a report is nothing that the person has typed. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { asks, EMPTY_SNAPSHOT, numbered, opened, starts, TURN } from "../fixtures.js";

const PLACE = "11111111-2222-3333-4444-555555555555";
const REPORT = { turn_id: "child", conversation_id: PLACE, agent: "researcher", status: "completed", text: "Gold." };
const BLOCK = { type: "text", text: "[SUB-AGENT] … Gold.", sub_agent: REPORT };
/** @type {Array<import("../fixtures.js").Sketch>} */
const carried = [
  { type: "turn_queued", user_message: "Report of researcher", client_id: null, source: "sub_agent" },
  { type: "turn_start", user_message: "Report of researcher", source: "sub_agent", reports: [REPORT] },
];

/** @param {import("../../../static/webchat/js/state/types.js").State} state */
const shown = (state) => state.turns[0]?.items.map((item) => [item.kind, "text" in item ? item.text : ""]);

test("a card learns where its sub-agent works", () => {
  /** @type {import("../fixtures.js").Sketch} */
  const started = { type: "sub_agent", tool_id: "c1", agent: "researcher", child_conversation_id: PLACE };
  const state = opened(...numbered([{ type: "turn_start", user_message: "go" }, asks("c1"), starts("c1"), started]));
  assert.deepEqual(state.turns[0]?.calls.c1?.subAgent, { agent: "researcher", conversationId: PLACE });
});

test("a snapshot says the same", () => {
  const call = { tool_id: "c1", turn_id: TURN, tool_name: "sessions_ask", status: "running", sub_agent: REPORT };
  const active = { turn_id: TURN, status: "running", user_message: "go", calls: [call], number: 1 };
  const state = opened({ ...EMPTY_SNAPSHOT, active_turns: [active] });
  assert.deepEqual(state.turns[0]?.calls.c1?.subAgent, { agent: "researcher", conversationId: PLACE });
});

test("a turn that carries a report shows the report, and nothing that was typed", () => {
  assert.deepEqual(shown(opened(...numbered(carried))), [["report", "Gold."]]);
});

test("a report that comes with a message stands before it, once", () => {
  /** @type {import("../fixtures.js").Sketch} */
  const start = { type: "turn_start", user_message: "and now?", source: "typed", reports: [REPORT, REPORT] };
  assert.deepEqual(shown(opened(...numbered([start]))), [
    ["report", "Gold."],
    ["user", "and now?"],
  ]);
});

test("after a reload it looks the same", () => {
  const message = { id: 1, turn_id: TURN, role: "user", content: [BLOCK, { type: "text", text: "and now?" }] };
  const turn = { turn_id: TURN, number: 1, status: "completed", user_message: "and now?", source: "typed" };
  assert.deepEqual(shown(opened({ ...EMPTY_SNAPSHOT, messages: [message], turns: [turn] })), [
    ["report", "Gold."],
    ["user", "and now?"],
  ]);
  const carrier = { ...turn, user_message: "Report of researcher", source: "sub_agent" };
  const alone = { ...message, content: [BLOCK] };
  assert.deepEqual(shown(opened({ ...EMPTY_SNAPSHOT, messages: [alone], turns: [carrier] })), [["report", "Gold."]]);
});

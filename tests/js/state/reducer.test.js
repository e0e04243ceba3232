import assert from "node:assert/strict";
import { test } from "node:test";

import { activeTurn, INITIAL_STATE, queuedCount, reduce } from "../../../static/webchat/js/state/reducer.js";
import { elapsedOf, isCallOver } from "../../../static/webchat/js/state/status.js";
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

/** @param {import("../../../static/webchat/js/state/types.js").State} state */
const only = (state) => {
  assert.equal(state.turns.length, 1);
  return /** @type {import("../../../static/webchat/js/state/types.js").Turn} */ (state.turns[0]);
};

test("a turn shows its user's message, its text and its calls in order", () => {
  const turn = only(opened(...numbered([START, asks("a", "b"), starts("a"), starts("b"), results("b")])));
  assert.deepEqual(
    turn.items.map((item) => item.kind),
    ["user", "agent", "call", "call"],
  );
  assert.equal(turn.calls.a?.status, "running");
  assert.equal(turn.calls.b?.status, "succeeded");
});

test("an event that comes twice changes nothing", () => {
  const events = numbered([START, asks("a"), starts("a"), results("a")]);
  const once = opened(...events);
  assert.equal(play(once, events), once);
});

test("a gap is noticed, nothing beyond it is applied, and filling it goes on", () => {
  const [start, message, running] = numbered([START, asks("a"), starts("a")]);
  assert.ok(start && message && running);
  const torn = opened(start, running);
  assert.equal(torn.gap, true);
  assert.equal(torn.lastSeq, 1);
  const healed = play(torn, [message, running]);
  assert.equal(healed.gap, false);
  assert.equal(only(healed).calls.a?.status, "running");
});

const RETRYING = {
  type: /** @type {const} */ ("error"),
  code: "retrying",
  message: "The model is busy; retrying in 4 s.",
  reason: "The model is busy",
  wait_ms: 4_000,
};

test("the note that a request is repeated stays until the answer comes, or the turn is ended", () => {
  const waiting = numbered([START, RETRYING]);
  const turn = only(opened(...waiting));
  assert.equal(turn.errorMessage, "The model is busy; retrying in 4 s.");
  assert.deepEqual(turn.retry, { reason: "The model is busy", at: CLOCK.now + 4_000 });
  /** @type {import("../fixtures.js").Sketch} */
  const text = { type: "text_delta", turn_id: TURN, text: "Here", offset: 0 };
  const [abort] = numbered([{ type: "turn_abort", reason: "user", source: "button", by: null }], 3);
  const [lost] = numbered([ends("interrupted")], 3);
  const [answer] = numbered([asks("a")], 3);
  assert.ok(abort && lost && answer);
  for (const next of [text, abort, lost, answer]) {
    const after = only(opened(...waiting, next));
    assert.deepEqual([after.errorMessage, after.retry], ["", null], next.type);
  }
});

test("a snapshot tells that a request is repeated, as the event did", () => {
  const active = {
    turn_id: TURN,
    status: "running",
    number: 1,
    elapsed_ms: 0,
    notice: { ...RETRYING, wait_ms: 1_500 },
  };
  const turn = only(opened({ ...EMPTY_SNAPSHOT, active_turns: [active] }));
  assert.equal(turn.errorCode, "retrying");
  assert.deepEqual(turn.retry, { reason: "The model is busy", at: CLOCK.now + 1_500 });
});

const AFTER_STEP = { type: /** @type {const} */ ("turn_ends_after_step"), reason: "user", source: "button", by: "ada" };

test("what somebody has asked to end after its step is known until it has ended", () => {
  const told = opened(...numbered([START, AFTER_STEP]));
  assert.equal(only(told).endsAfterStep, true);
  assert.equal(only(play(told, numbered([ends("cancelled")], 3))).endsAfterStep, false);
});

test("a refused cancel at once takes back nothing of what ends after its step", () => {
  const operation = { kind: /** @type {const} */ ("cancel_turn"), opId: "o", turnId: TURN, toolId: "", extendMs: 0 };
  const asked = opened(...numbered([START, AFTER_STEP]), { type: "local_operation", operation });
  assert.notEqual(only(asked).stoppingAt, null);
  const refused = only(play(asked, [{ type: "error", code: "invalid_field", op_id: "o", message: "no" }]));
  assert.deepEqual([refused.stoppingAt, refused.endsAfterStep], [null, true]);
});

test("a snapshot tells that a turn ends after its step, and none takes back what was asked for here", () => {
  const active = { turn_id: TURN, number: 1, ends_after_step: true };
  const known = opened({ ...EMPTY_SNAPSHOT, active_turns: [active] });
  assert.equal(only(known).endsAfterStep, true);
  const { ends_after_step: _unknown, ...ofOldServer } = active;
  const again = play(known, [{ ...EMPTY_SNAPSHOT, active_turns: [ofOldServer] }]);
  assert.equal(only(again).endsAfterStep, true);
});

test("how full the window is comes with each step, and with a snapshot of a running turn", () => {
  const usage = { context_tokens: 60, context_window: 100 };
  const active = { turn_id: TURN, number: 1, status: "running", usage };
  assert.equal(only(opened({ ...EMPTY_SNAPSHOT, active_turns: [active] })).fullness, 0.6);
  const fuller = { ...asks("a"), usage: { context_tokens: 70, context_window: 100 } };
  const state = opened(...numbered([START, { ...asks("b"), usage }, fuller]));
  assert.equal(only(state).fullness, 0.7);
  assert.equal(only(play(state, numbered([asks("c")], 4))).fullness, 0.7);
});

test("no call is left running by any end of its turn", () => {
  for (const status of /** @type {const} */ (["completed", "cancelled", "failed", "timed_out", "interrupted"])) {
    const turn = only(opened(...numbered([START, asks("a", "b"), starts("a"), ends(status)])));
    assert.ok(Object.values(turn.calls).every((call) => isCallOver(call.status)));
    assert.equal(turn.stoppingAt, null);
  }
});

test("a late event of a cancelled turn does not revive it", () => {
  const state = opened(...numbered([START, asks("a"), starts("a"), ends("cancelled"), starts("a"), results("a")]));
  const turn = only(state);
  assert.equal(turn.status, "cancelled");
  assert.equal(turn.calls.a?.status, "closed");
  assert.equal(state.lastSeq, 6);
  assert.equal(play(state, [{ type: "text_delta", turn_id: TURN, text: "ghost", offset: 0 }]).turns[0]?.partial, "");
});

test("the first result of a call stands", () => {
  const turn = only(opened(...numbered([START, asks("a"), starts("a"), results("a", "timed_out"), results("a")])));
  assert.equal(turn.calls.a?.status, "timed_out");
});

test("the same call id in two turns is two calls", () => {
  const first = numbered([START, asks("a"), starts("a"), results("a"), ends()]);
  const second = numbered([{ ...START, user_message: "again" }, asks("a"), starts("a")], 6, "turn-2");
  const state = opened(...first, ...second);
  assert.deepEqual(
    state.turns.map((turn) => turn.calls.a?.status),
    ["succeeded", "running"],
  );
});

test("a snapshot in the middle of a turn shows what live events show", () => {
  const live = only(opened(...numbered([START, asks("a", "b"), starts("a"), starts("b"), results("b", "cancelled")])));
  const snapshot = {
    ...EMPTY_SNAPSHOT,
    seq: 5,
    messages: [
      { id: 1, turn_id: TURN, role: "user", content: [{ type: "text", text: "wait 20" }], at: "" },
      { id: 2, turn_id: TURN, ...asks("a", "b"), at: "" },
    ],
    active_turns: [
      {
        turn_id: TURN,
        number: 1,
        status: "running",
        elapsed_ms: 0,
        turn_timeout_ms: 600_000,
        user_message: "wait 20",
        partial_text: "",
        calls: [
          { ...starts("a"), status: "running", elapsed_ms: 0 },
          { ...starts("b"), ...results("b", "cancelled") },
        ],
      },
    ],
  };
  const reloaded = only(opened(snapshot));
  const bare = (/** @type {typeof live} */ turn) => ({
    ...turn,
    items: turn.items.map(({ key, ...item }) => ({ ...item, at: "" })),
    calls: Object.fromEntries(Object.entries(turn.calls).map(([id, call]) => [id, { ...call, elapsedMs: 0 }])),
  });
  assert.deepEqual(bare(reloaded), bare(live));
});

test("after a snapshot of an ended turn no card is open, and its ending is known", () => {
  const state = opened({
    ...EMPTY_SNAPSHOT,
    seq: 9,
    messages: [{ id: 2, turn_id: TURN, ...asks("a", "b"), at: "" }],
    calls: [{ turn_id: TURN, ...starts("a"), ...results("a") }],
    turns: [
      {
        turn_id: TURN,
        number: 1,
        status: "cancelled",
        user_message: "wait 20",
        ended_by: { reason: "user", source: "typed", by: "ada" },
      },
    ],
  });
  const turn = only(state);
  assert.deepEqual(
    turn.items.map((item) => item.kind),
    ["user", "agent", "call", "call"],
  );
  assert.equal(turn.calls.a?.status, "succeeded");
  assert.equal(turn.calls.b?.status, "closed");
  assert.deepEqual(turn.endedBy, { reason: "user", source: "typed", by: "ada" });
  assert.equal(activeTurn(state), null);
});

test("streamed text counts code points, drops what it has, and asks again for what it lost", () => {
  const running = opened(...numbered([START]));
  const delta = (/** @type {string} */ text, /** @type {number} */ offset) => ({
    type: /** @type {const} */ ("text_delta"),
    turn_id: TURN,
    text,
    offset,
  });
  const said = play(running, [delta("a😀b", 0), delta("cd", 3)]);
  assert.equal(only(said).partial, "a😀bcd");
  assert.equal(only(play(said, [delta("bc", 2)])).partial, "a😀bcd");
  assert.equal(only(play(said, [delta("de", 4)])).partial, "a😀bcde");
  const torn = play(said, [delta("z", 9)]);
  assert.equal(only(torn).needsResync, true);
  const healed = play(torn, [delta("a😀bcdefghz", 0)]);
  assert.equal(only(healed).partial, "a😀bcdefghz");
  assert.equal(only(healed).needsResync, false);
});

test("a finished message replaces the streamed text; text that no message replaced stays, marked", () => {
  const streamed = [
    ...numbered([START]),
    { type: /** @type {const} */ ("text_delta"), turn_id: TURN, text: "On", offset: 0 },
  ];
  const finished = only(opened(...streamed, ...numbered([asks("a")], 2)));
  assert.equal(finished.partial, "");
  const cut = only(opened(...streamed, ...numbered([ends("interrupted")], 2)));
  const last = cut.items.at(-1);
  assert.equal(last?.kind === "agent" && last.text, "On");
  assert.equal(last?.kind === "agent" && last.interrupted, true);
});

test("a late piece of a finished message adds nothing while its calls run, nor after a snapshot; the next step's does", () => {
  /** @type {(step: number, text: string) => import("../fixtures.js").Sketch} */
  const piece = (step, text) => ({ type: "text_delta", turn_id: TURN, step, text, offset: 0 });
  const finished = opened(...numbered([START, { ...asks("a"), step: 1 }, starts("a")]));
  assert.deepEqual(play(finished, [piece(1, "On it.")]).turns, finished.turns);
  assert.equal(only(play(finished, [piece(2, "Next")])).partial, "Next");
  const message = { id: 1, turn_id: TURN, position: 1, step: 1, role: /** @type {const} */ ("assistant"), content: [] };
  /** @type {import("../fixtures.js").Sketch} */
  const snapshot = { type: "snapshot", seq: 2, messages: [message], active_turns: [{ turn_id: TURN, number: 1 }] };
  assert.equal(only(opened(snapshot, piece(1, "On it."))).partial, "");
});

test("progress never goes backwards", () => {
  const progress = (/** @type {number} */ done) => ({
    type: /** @type {const} */ ("tool_progress"),
    tool_id: "a",
    elapsed_ms: 5_000,
    progress: done,
    total: 8,
  });
  const turn = only(opened(...numbered([START, asks("a"), starts("a"), progress(3), progress(2)])));
  assert.equal(turn.calls.a?.progress, 3);
});

test("a replayed start counts the time that has passed since", () => {
  const live = opened(...numbered([START]));
  const later = { now: 21_000, wall: CLOCK.wall + 20_000 };
  const state = play(live, numbered([asks("a"), starts("a")], 2), later);
  const call = only(state).calls.a;
  assert.ok(call);
  assert.equal(elapsedOf(call, 21_000, null), 20_000);
});

test("a clock that is set forward makes nothing old that comes over a standing line", () => {
  const live = opened({ type: "local_connection", status: "online" }, ...numbered([START]));
  const later = { now: 11_000, wall: CLOCK.wall + 3_610_000 };
  const at = "2030-01-01T00:00:10Z";
  const events = numbered([asks("a"), starts("a")], 2).map((event) => ({ ...event, at }));
  const call = only(play(live, events, later)).calls.a;
  assert.ok(call);
  assert.equal(elapsedOf(call, 11_000, null), 0);
});

test("what follows the end of a turn that is not loaded begins none", () => {
  const [late] = numbered([{ type: "tool_settled", tool_id: "a", kind: "returned", after_ms: 90_000 }], 1, "long-ago");
  assert.ok(late);
  const state = opened(late);
  assert.deepEqual(state.turns, []);
  assert.equal(state.lastSeq, 1);
});

test("a clock stands still while nothing is known", () => {
  const running = opened({ type: "local_connection", status: "online" }, ...numbered([START, asks("a"), starts("a")]));
  const lost = reduce(running, { type: "local_connection", status: "reconnecting" }, { now: 6_000, wall: CLOCK.wall });
  const call = only(lost).calls.a;
  assert.ok(call);
  assert.equal(elapsedOf(call, 60_000, lost.connection.frozenAt), 5_000);
});

/** @param {string} kind @param {string} [toolId] @returns {import("../../../static/webchat/js/state/types.js").LocalEvent} */
const asked = (kind, toolId = "") => ({
  type: "local_operation",
  operation: { kind: /** @type {"cancel_tool"} */ (kind), opId: "op", turnId: TURN, toolId, extendMs: 0 },
});

test("a refused cancel is taken back with a notice; an accepted one goes on", () => {
  const running = opened(...numbered([START, asks("a"), starts("a")]));
  const stopping = play(running, [asked("cancel_tool", "a")]);
  assert.equal(only(stopping).calls.a?.stoppingAt, CLOCK.now);
  const refused = play(stopping, [{ type: "op_result", op_id: "op", outcome: "not_cancellable" }]);
  assert.equal(only(refused).calls.a?.stoppingAt, null);
  assert.equal(refused.notice?.key, "cancel_tool_not_cancellable");
  const accepted = play(stopping, [{ type: "op_result", op_id: "op", outcome: "accepted" }]);
  assert.equal(only(accepted).calls.a?.stoppingAt, CLOCK.now);
  assert.deepEqual(accepted.operations, []);
});

test("a cancel that was asked for is still visible after a snapshot", () => {
  const stopping = play(opened(...numbered([START])), [asked("cancel_turn")]);
  const active = { turn_id: TURN, number: 1, status: "running", calls: [], user_message: "wait 20" };
  const reloaded = play(stopping, [{ ...EMPTY_SNAPSHOT, seq: 1, active_turns: [active] }]);
  assert.equal(only(reloaded).stoppingAt, CLOCK.now);
  assert.equal(reloaded.operations.length, 1);
});

test("a sent message leaves the outbox when its turn is in the log, and only once", () => {
  const sent = opened({ type: "local_message", clientId: "c1", text: "hello" });
  const queued = numbered([{ type: "turn_queued", user_message: "hello", client_id: "c1" }]);
  const taken = play(sent, [...queued, { type: "message_result", client_id: "c1", turn_id: TURN, cancelled: false }]);
  assert.deepEqual(taken.pendingMessages, []);
  const begun = play(taken, numbered([{ ...START, user_message: "hello" }], 2));
  assert.equal(only(begun).items.length, 1);
});

test("a message that was queued and cancelled never began, live and after a reload", () => {
  const live = only(opened(...numbered([{ type: "turn_queued", user_message: "next" }, ends("cancelled")])));
  const ended = { turn_id: TURN, number: 1, status: "cancelled", started: false, user_message: "next" };
  const reloaded = only(opened({ ...EMPTY_SNAPSHOT, seq: 2, turns: [ended] }));
  for (const turn of [live, reloaded]) {
    assert.equal(turn.isBegun, false);
    assert.deepEqual(
      turn.items.map((item) => item.kind === "user" && item.text),
      ["next"],
    );
  }
  assert.equal(only(opened(...numbered([START, ends("cancelled")]))).isBegun, true);
});

test("a user's message has the time of its event", () => {
  const [item] = only(opened(...numbered([START]))).items;
  assert.equal(item?.kind === "user" && item.at, "2030-01-01T00:00:00Z");
});

test("a cancel word that took effect is no message", () => {
  const sent = opened(...numbered([START]), { type: "local_message", clientId: "c1", text: "stop" });
  const taken = play(sent, [{ type: "message_result", client_id: "c1", turn_id: TURN, cancelled: true }]);
  assert.deepEqual(taken.pendingMessages, []);
  assert.equal(only(taken).items.length, 1);
});

test("the answer to a cancel word comes after the end, and a page that is opened later has it too", () => {
  /** @type {import("../fixtures.js").Sketch} */
  const answer = { type: "cancel_acknowledged", said: "stop", text: "Cancelled.", source: "typed" };
  const live = only(opened(...numbered([START, ends("cancelled"), answer])));
  const turns = [{ turn_id: TURN, status: "cancelled", user_message: "wait 20", acknowledgements: [answer] }];
  const later = only(play(INITIAL_STATE, [{ ...EMPTY_SNAPSHOT, turns }]));
  for (const turn of [live, later]) {
    assert.deepEqual(turn.acknowledgements, [{ said: "stop", text: "Cancelled.", source: "typed" }]);
    assert.equal(turn.status, "cancelled");
    assert.equal(turn.items.length, 1);
  }
});

test("a note of a turn stays after its end, also on a page that is opened later", () => {
  const notice = { code: "answer_empty", message: "Not a word." };
  const live = only(opened(...numbered([START, { type: "error", ...notice }, ends("completed")])));
  const turns = [{ turn_id: TURN, status: "completed", user_message: "Hello", error_code: null, notice }];
  const later = only(play(INITIAL_STATE, [{ ...EMPTY_SNAPSHOT, turns }]));
  for (const turn of [live, later]) assert.deepEqual([turn.errorCode, turn.errorMessage], Object.values(notice));
});

test("the end of a call that was given up shows live what a page shows that is opened later", () => {
  /** @type {import("../fixtures.js").Sketch} */
  const settled = { type: "tool_settled", tool_id: "a", status: "abandoned", kind: "returned", after_ms: 7_300 };
  const events = numbered([START, asks("a"), starts("a"), results("a", "abandoned"), ends("cancelled"), settled]);
  assert.deepEqual(only(opened(...events)).calls.a?.late, { kind: "returned", afterMs: 7_300 });
  assert.equal(only(opened(...events.slice(0, -1))).calls.a?.late, null);
});

test("a call that waits shows for what, live and on a page that is opened meanwhile", () => {
  const waits = {
    waits_for: { kind: /** @type {const} */ ("call"), tool_id: "a", tool_name: "wait" },
    concurrency: "exclusive",
  };
  /** @type {import("../fixtures.js").Sketch} */
  const queued = { type: "tool_queued", tool_id: "b", ...waits };
  const live = only(opened(...numbered([START, asks("a", "b"), starts("a"), queued]))).calls.b;
  const wire = { tool_id: "b", tool_name: "wait", status: "pending", ...waits };
  const active_turns = [{ turn_id: TURN, status: "running", calls: [wire] }];
  const later = only(play(INITIAL_STATE, [{ ...EMPTY_SNAPSHOT, active_turns }])).calls.b;
  for (const call of [live, later]) assert.deepEqual(call?.waitsFor, { kind: "call", tool: "wait", isAlone: true });
  const started = only(opened(...numbered([START, asks("a", "b"), starts("a"), queued, starts("b")]))).calls.b;
  assert.equal(started?.waitsFor, null);
});

test("a refused message is not on its way any more", () => {
  const sent = opened({ type: "local_message", clientId: "c1", text: "hello" });
  const refused = play(sent, [{ type: "error", code: "queue_full", message: "Too many wait.", client_id: "c1" }]);
  assert.deepEqual(refused.pendingMessages, []);
  assert.equal(refused.notice?.level, "error");
});

test("what waits behind the running turn is counted", () => {
  const state = opened(
    ...numbered([START]),
    ...numbered([{ type: "turn_queued", user_message: "next", client_id: "x" }], 2, "turn-2"),
  );
  assert.equal(activeTurn(state)?.id, TURN);
  assert.equal(queuedCount(state), 1);
});

test("the limit that an admin changes is shown with who changed it", () => {
  const changed = {
    type: /** @type {const} */ ("tool_deadline"),
    tool_id: "a",
    timeout_ms: 60_000,
    timeout_source: "override",
    changed_by: "root",
  };
  const call = only(opened(...numbered([START, asks("a"), starts("a"), changed]))).calls.a;
  assert.equal(call?.timeoutMs, 60_000);
  assert.deepEqual(call?.limitChanges.at(-1), { timeoutMs: 60_000, isIdle: false, by: "root" });
  const silence = { ...changed, timeout_ms: 60_000, idle_timeout_ms: 5_000 };
  const both = only(opened(...numbered([START, asks("a"), starts("a"), changed, silence]))).calls.a;
  assert.deepEqual(both?.limitChanges.at(-1), { timeoutMs: 5_000, isIdle: true, by: "root" });
  assert.equal(both?.idleTimeoutMs, 5_000);
});

/** @param {string} toolId */
const missing = (toolId) => ({ tool_id: toolId, kind: "missing_result", cause: "crash" });

test("a repaired call says so, a settled one keeps its result", () => {
  /** @type {import("../fixtures.js").Sketch} */
  const repaired = { type: "history_repaired", repairs: ["a", "b"].map(missing) };
  const turn = only(
    opened(...numbered([START, asks("a", "b"), starts("a"), results("b"), ends("interrupted"), repaired])),
  );
  assert.equal(turn.calls.a?.status, "repaired");
  assert.equal(turn.calls.b?.status, "succeeded");
  assert.equal(turn.repairs, 2);
});

const EDITED = [
  ...numbered([{ type: "turn_queued", user_message: "one", version: 1 }, ends()], 1, "t1"),
  ...numbered([{ type: "turn_queued", user_message: "two", version: 1 }, ends()], 3, "t2"),
  ...numbered([{ type: "turn_queued", user_message: "two!", version: 2, replaces: "t2" }, ends()], 5, "t3"),
  ...numbered([{ type: "turn_queued", user_message: "one!", version: 2, replaces: "t1" }, ends()], 7, "t4"),
];

/** @param {import("../../../static/webchat/js/state/types.js").State} state */
const versions = ({ turns }) => turns.map(({ id, version, replacedBy }) => [id, version, replacedBy]);

test("an edited message replaces its turn and all behind it, live, replayed and in a snapshot", () => {
  const expected = [
    ["t1", 1, "t4"],
    ["t2", 1, "t3"],
    ["t3", 2, "t4"],
    ["t4", 2, ""],
  ];
  assert.deepEqual(versions(opened(...EDITED)), expected);
  assert.deepEqual(versions(play(opened(...EDITED), EDITED)), expected);
  const turns = expected.map(([id, version, by], place) => ({
    turn_id: String(id),
    number: place + 1,
    version: Number(version),
    replaced_by: String(by) || null,
    user_message: "hi",
  }));
  assert.deepEqual(versions(opened({ ...EMPTY_SNAPSHOT, turns })), expected);
});

test("where the edited message is not shown, all that is shown stands behind it", () => {
  const [, , queued, end] = numbered(
    [
      { type: "turn_queued", user_message: "late" },
      ends(),
      { type: "turn_queued", replaces: "gone", version: 2 },
      ends(),
    ],
    1,
    "t9",
  ).map((frame, place) => (place < 2 ? { ...frame, turn_id: "t8" } : frame));
  const before = numbered([{ type: "turn_queued", user_message: "late" }, ends()], 1, "t8");
  assert.ok(queued && end);
  assert.deepEqual(versions(opened(...before, queued, end)), [
    ["t8", 1, "t9"],
    ["t9", 2, ""],
  ]);
});

test("files of a message are shown once: queued, live, and from a snapshot", () => {
  /** @type {import("../../../static/webchat/js/state/types.js").Attachment} */
  const file = { type: "document", attachment_id: "f1", name: "a.txt", media_type: "text/plain", size: 5 };
  const alone = { user_message: " ", attachments: [file], client_id: null, source: "typed" };
  const facts = { id: 1, role: /** @type {const} */ ("user"), content: [file], interrupted: false, step: 0 };
  const said = { type: /** @type {const} */ ("message"), ...facts };
  const live = opened(...numbered([{ type: "turn_queued", ...alone }, { ...START, ...alone }, said, ends()]));
  const shown = (/** @type {import("../../../static/webchat/js/state/types.js").State} */ state) =>
    state.turns[0].items.map((item) => (item.kind === "user" ? [item.text, item.attachments] : item.kind));
  assert.deepEqual(shown(live), [["", [file]]]);
  const message = { ...facts, turn_id: TURN, position: 1, at: "2030-01-01T00:00:00Z" };
  const later = play(INITIAL_STATE, [{ ...EMPTY_SNAPSHOT, messages: [message] }]);
  assert.deepEqual(shown(later), shown(live));
});

test("that something goes on is not said after its end, and other notices stay", () => {
  /** @type {(key: string) => import("../fixtures.js").Sketch} */
  const notice = (key) => ({ type: "local_notice", level: "info", key });
  const told = opened(...numbered([START]), notice("edit_busy"));
  assert.equal(play(told, numbered([asks()], 2)).notice?.key, "edit_busy");
  assert.equal(play(told, numbered([asks(), ends()], 2)).notice, null);
  const queued = numbered([{ type: "turn_queued", user_message: "next" }], 2, "turn-2");
  assert.equal(play(told, [...queued, ...numbered([ends()], 3)]).notice?.key, "edit_busy");
  const other = opened(...numbered([START]), notice("server_error"));
  assert.equal(play(other, numbered([ends()], 2)).notice?.key, "server_error");
});

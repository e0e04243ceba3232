/** A short way to write down what a server sends. */

import { INITIAL_STATE, reduce } from "../../static/webchat/js/state/reducer.js";

/** @typedef {import("../../static/webchat/js/state/types.js").State} State */
/** @typedef {import("../../static/webchat/js/state/types.js").Frame} Frame */
/** @typedef {import("../../static/webchat/js/state/types.js").LocalEvent} LocalEvent */
/** @template Value @typedef {Value extends string ? string : Value extends ReadonlyArray<infer Item> ? ReadonlyArray<Partly<Item>>
 *   : Value extends object ? {[Name in keyof Value]?: Partly<Value[Name]>} : Value} Partly Some of the fields of an object in a frame. */
/** @template Value @typedef {[Value] extends [string|number|boolean|null|undefined] ? Value : Partly<Value>} FieldOf */
/** @template Each @typedef {Each extends {type: infer Type} ? {type: Type} & {[Name in keyof Each]?: FieldOf<Each[Name]>} : never} SketchOf */
/** @typedef {SketchOf<Frame|LocalEvent>} Sketch What a test says of a frame: its type, and the fields that matter to the test. */

export const TURN = "turn-1";
export const CLOCK = Object.freeze({ now: 1_000, wall: Date.parse("2030-01-01T00:00:00Z") });

/** @type {import("../../static/webchat/js/net/wire.js").SnapshotFrame} */
export const EMPTY_SNAPSHOT = {
  type: "snapshot",
  seq: 0,
  messages: [],
  calls: [],
  turns: [],
  active_turns: [],
  has_earlier: false,
  parked: null,
};

const QUESTION = { can_remember: false, host: "", description: "", question: "", expires_in_ms: null };
const ENDED = {
  agent: "",
  version: 1,
  replaced_by: null,
  status: "completed",
  started: true,
  source: "typed",
  user_message: "",
  acknowledgements: [],
};
const LIVE = {
  agent: "",
  version: 1,
  status: "running",
  elapsed_ms: 0,
  source: "typed",
  user_message: "",
  calls: [],
  partial_text: "",
};

/** What a frame says where the test leaves it out, by its type. @type {Record<string, object>} */
const UNSAID = {
  turn_queued: { user_message: "", client_id: null, source: "typed" },
  turn_start: { user_message: "", client_id: null, agent: "", turn_timeout_ms: null, source: "typed", reports: [] },
  message: { content: [], interrupted: false },
  tool_approval: QUESTION,
  tool_decision: { by: "", reason: "", remember: false },
  tool_deadline: { timeout_ms: null, idle_timeout_ms: null, timeout_source: "" },
  tool_progress: { elapsed_ms: 0 },
  tool_question: {
    tool_name: "wait",
    tool_title: "",
    tool_server: "",
    requested_at: "",
    expires_at: null,
    expires_in_ms: null,
  },
  tool_answer: { by: "" },
  tool_result: {
    result: "",
    is_error: false,
    error_type: null,
    limit_reached: null,
    duration_ms: null,
    ended_by: null,
  },
  turn_end: { error_code: null },
  history_repaired: { repairs: [] },
  snapshot: EMPTY_SNAPSHOT,
  overview: { conversations: [], questions: [], latest: null },
};

/** The frame that a test has sketched, whole. @param {Record<string, any>} sketch @returns {any} */
export function whole(sketch) {
  const frame = { ...UNSAID[sketch.type], ...sketch };
  /** @param {object} unsaid @param {ReadonlyArray<object>} [parts] */
  const filled = (unsaid, parts = []) => parts.map((part) => ({ ...unsaid, ...part }));
  switch (sketch.type) {
    case "local_earlier":
      return { ...frame, frame: whole(sketch.frame) };
    case "snapshot":
      return { ...frame, turns: filled(ENDED, frame.turns), active_turns: filled(LIVE, frame.active_turns) };
    case "overview":
      return {
        ...frame,
        conversations: filled({ asked_in: [], tools_running: 0, is_queued: false }, frame.conversations),
        questions: filled(QUESTION, frame.questions),
      };
    default:
      return frame;
  }
}

/** @param {State} state @param {ReadonlyArray<Sketch>} events @param {import("../../static/webchat/js/state/types.js").Clock} [clock] */
export const play = (state, events, clock = CLOCK) =>
  events.reduce((known, event) => reduce(known, whole(event), clock), state);

/** @param {...(Sketch)} events */
export const opened = (...events) => play(INITIAL_STATE, [{ type: "welcome", user: "ada" }, EMPTY_SNAPSHOT, ...events]);

/** Numbered events of one turn, from `first` on. @param {ReadonlyArray<Sketch>} events @param {number} [first] @param {string} [turnId] @returns {Array<Sketch>} */
export const numbered = (events, first = 1, turnId = TURN) =>
  events.map((event, index) => ({ seq: first + index, turn_id: turnId, at: "2030-01-01T00:00:00Z", ...event }));

/** @type {SketchOf<import("../../static/webchat/js/net/wire.js").TurnStartEvent>} */
export const START = { type: "turn_start", user_message: "wait 20", turn_timeout_ms: 600_000 };

/** @param {...string} ids @returns {SketchOf<import("../../static/webchat/js/net/wire.js").MessageEvent>} */
export const asks = (...ids) => ({
  type: "message",
  role: "assistant",
  content: [
    { type: "text", text: "On it." },
    ...ids.map((id) => ({ type: /** @type {const} */ ("tool_use"), id, name: "wait", input: { seconds: 20 } })),
  ],
  html: "<p>On it.</p>",
});

/** @param {string} id @returns {SketchOf<import("../../static/webchat/js/net/wire.js").ToolStartEvent>} */
export const starts = (id) => ({
  type: "tool_start",
  tool_id: id,
  tool_name: "wait",
  input: { seconds: 20 },
  timeout_ms: 30_000,
  timeout_source: "override",
  cancellable: true,
  interruptible: true,
});

/** @param {string} id @param {import("../../static/webchat/js/net/wire.js").CallStatus} [status] @returns {SketchOf<import("../../static/webchat/js/net/wire.js").ToolResultEvent>} */
export const results = (id, status = "succeeded") => ({
  type: "tool_result",
  tool_id: id,
  tool_name: "wait",
  result: "done",
  is_error: status !== "succeeded",
  status,
  duration_ms: 11_500,
  ended_by: status === "cancelled" ? { reason: "user", source: "button", by: "ada" } : null,
});

/** @param {import("../../static/webchat/js/net/wire.js").TurnEndEvent["status"]} [status] @returns {SketchOf<import("../../static/webchat/js/net/wire.js").TurnEndEvent>} */
export const ends = (status = "completed") => ({ type: "turn_end", status, duration_ms: 20_000, usage: {} });

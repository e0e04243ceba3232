/** Applies each numbered event of the protocol to its turn. */

import { EVENTS_AFTER_END } from "../net/wire.js";
import {
  callFromQuestion,
  callFromStart,
  callFromWire,
  endedByFrom,
  formFromWire,
  lateFrom,
  moveLimits,
  settleCall,
  subAgentFrom,
  waitsForFrom,
  withDecision,
} from "./calls.js";
import { visible } from "./hidden_characters.js";
import { isCallOver } from "./status.js";
import {
  addAcknowledgement,
  addCall,
  addMessage,
  addReports,
  closeOpenCalls,
  fullnessOf,
  stopOpenCalls,
  tokensOf,
  updateCall,
  userMessage,
  withNotice,
  withoutRetry,
} from "./turns.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Turn} Turn */
/** @typedef {import("../net/wire.js").EventFrame} EventFrame */
/** @typedef {import("../net/wire.js").EventType} EventType */
/** @typedef {import("./types.js").Clock} Clock */

/** The source of a turn that starts with reports of sub-agents instead of a person's message. */
const CARRIER = "sub_agent";

/** The types of events that may belong to a turn after its end. */
export const AFTER_END = new Set(EVENTS_AFTER_END);

/**
 * @template {EventFrame} [Frame=EventFrame]
 * @typedef {(turn: Turn, frame: Frame, clock: Clock, state: State) => Turn} Change
 */

/** @type {{[Type in EventType]?: Change<Extract<EventFrame, {type: Type}>>}} */
export const TURN_CHANGES = {
  turn_queued: (turn, frame) =>
    addMessage(
      { ...turn, status: "queued", isBegun: false, source: frame.source, version: frame.version ?? 1 },
      saidIn(frame),
      `u${frame.seq}`,
    ),
  turn_start: (turn, frame, clock, state) => {
    const elapsedMs = ageOf(frame, clock, state);
    const timeoutMs = frame.turn_timeout_ms;
    const times = { elapsedMs, elapsedAt: clock.now, timeoutMs };
    const started = { ...turn, ...times, status: "running", isBegun: true, source: frame.source, agent: frame.agent };
    return addMessage(addReports(started, frame.reports), saidIn(frame), `u${frame.seq}`);
  },
  message: (turn, frame, clock) =>
    addMessage(
      { ...withoutRetry(turn), fullness: fullnessOf(frame.usage ?? {}) || turn.fullness },
      frame,
      `m${frame.id}`,
      clock,
    ),
  tool_approval: (turn, frame, clock, state) =>
    addCall(turn, callFromQuestion(frame, ageOf(frame, clock, state), clock)),
  tool_decision: (turn, frame) => updateCall(turn, frame.tool_id, (call) => withDecision(call, frame)),
  tool_question: (turn, frame, clock, state) =>
    updateCall(turn, frame.tool_id, (call) => ({
      ...call,
      form: formFromWire(frame, ageOf(frame, clock, state), clock),
    })),
  tool_answer: (turn, frame) =>
    updateCall(turn, frame.tool_id, (call) =>
      call.form?.questionId === frame.question_id ? { ...call, form: null } : call,
    ),
  tool_queued: (turn, frame) =>
    updateCall(turn, frame.tool_id, (call) => ({
      ...call,
      waitsFor: waitsForFrom(frame.waits_for, frame.concurrency),
    })),
  tool_start: (turn, frame, clock, state) => addCall(turn, callFromStart(frame, ageOf(frame, clock, state), clock)),
  tool_progress: (turn, frame, clock, state) =>
    updateCall(turn, frame.tool_id, (call) => ({
      ...call,
      elapsedMs: frame.elapsed_ms + ageOf(frame, clock, state),
      elapsedAt: clock.now,
      progress: frame.progress == null ? call.progress : Math.max(call.progress ?? 0, frame.progress),
      total: frame.total ?? call.total,
      message: frame.message ? visible(frame.message) : call.message,
      tail: frame.tail ? visible(frame.tail) : call.tail,
    })),
  tool_deadline: (turn, frame) => updateCall(turn, frame.tool_id, (call) => moveLimits(call, frame)),
  sub_agent: (turn, frame) => updateCall(turn, frame.tool_id, (call) => ({ ...call, subAgent: subAgentFrom(frame) })),
  tool_timeout: (turn, frame, clock) =>
    updateCall(turn, frame.tool_id, (call) => ({
      ...call,
      status: "cancelling",
      stoppingAt: clock.now,
      errorType: "timeout",
      limitReached: frame.limit_reached ?? "",
    })),
  tool_result: (turn, frame, clock) => {
    const withStart = turn.calls[frame.tool_id] ? turn : addCall(turn, callFromWire(frame, clock));
    return updateCall(withStart, frame.tool_id, (call) => settleCall(call, frame));
  },
  turn_ends_after_step: (turn) => ({ ...turn, endsAfterStep: true }),
  turn_abort: (turn, frame, clock) => ({
    ...stopOpenCalls(withoutRetry(turn), clock.now),
    status: "cancelling",
    stoppingAt: turn.stoppingAt ?? clock.now,
    endedBy: endedByFrom(frame),
  }),
  turn_end: (turn, frame) => ({
    ...closeOpenCalls(withoutRetry(turn)),
    status: frame.status,
    errorCode: frame.error_code ?? turn.errorCode,
    durationMs: frame.duration_ms,
    tokens: tokensOf(frame.usage),
    fullness: fullnessOf(frame.usage),
    stoppingAt: null,
    endsAfterStep: false,
    needsResync: false,
  }),
  tool_settled: (turn, frame) => updateCall(turn, frame.tool_id, (call) => ({ ...call, late: lateFrom(frame) })),
  cancel_acknowledged: addAcknowledgement,
  history_repaired: (turn, frame) => {
    const { repairs } = frame;
    const marked = repairs.reduce(
      (next, repair) =>
        updateCall(next, repair.tool_id, (call) =>
          isCallOver(call.status) && call.status !== "closed" ? call : { ...call, status: "repaired" },
        ),
      turn,
    );
    return { ...marked, repairs: turn.repairs + repairs.length };
  },
  prompt_changed: (turn, frame) => ({
    ...turn,
    promptChange: frame.reason,
    summary: frame.summary || turn.summary,
  }),
  error: (turn, frame, clock, state) => withNotice(turn, frame, clock.now - ageOf(frame, clock, state)),
};

/**
 * Return the person's message in a frame. It is empty if the turn starts with reports of sub-agents.
 * @param {import("../net/wire.js").TurnQueuedEvent|import("../net/wire.js").TurnStartEvent} frame
 */
const saidIn = (frame) => userMessage(frame.source === CARRIER ? "" : frame.user_message, frame.at, frame.attachments);

/**
 * Return the age of a frame in milliseconds, which is significant only for replayed frames.
 * @param {EventFrame} frame
 * @param {Clock} clock
 * @param {State} state
 */
function ageOf(frame, clock, state) {
  const at = Date.parse(frame.at);
  if (Number.isNaN(at) || state.skewMs === null) return 0;
  return Math.max(0, clock.wall - at - state.skewMs);
}

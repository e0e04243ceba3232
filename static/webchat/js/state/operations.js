/** Handles the requests that the server has not answered yet, such as messages, cancels and changed limits. */

import { changeQuestion, endedAgents, withStopping } from "./overview.js";
import { addMessage, mapTurn, updateCall, userMessage } from "./turns.js";

/** @typedef {import("./types.js").Call} Call */
/** @typedef {import("./types.js").Turn} Turn */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("../net/wire.js").EventFrame} EventFrame */
/** @typedef {import("../net/wire.js").MessageResultFrame} MessageResultFrame */
/** @typedef {import("../net/wire.js").OpResultFrame} OpResultFrame */
/** @typedef {import("../net/wire.js").ProblemFrame} ProblemFrame */
/** @typedef {import("./types.js").Clock} Clock */
/** @typedef {import("./types.js").Operation} Operation */

/** The notice shown while requests are retried after server errors. */
const TRYING_AGAIN = "trying_again";

/**
 * Remove a pending message when an event of its turn arrives. If the turn does not show the message, which happens when
 * it was cancelled while it was queued, add the message to the turn.
 * @param {State} state
 * @param {EventFrame} frame
 * @returns {State}
 */
export function settlePending(state, frame) {
  if (state.pendingMessages.length === 0) return state;
  const pending = state.pendingMessages.find((message) => message.turnId === frame.turn_id) ?? sentHere(state, frame);
  if (!pending) return state;
  const pendingMessages = state.pendingMessages.filter((message) => message !== pending);
  const turns = mapTurn(state.turns, frame.turn_id, (turn) =>
    turn.items.some((item) => item.kind === "user")
      ? turn
      : addMessage(turn, userMessage(pending.text, frame.at, pending.attachments), "u"),
  );
  return { ...state, pendingMessages, turns };
}

/**
 * Return the pending message that an event contains, because the event may arrive before the reply that names its turn.
 * @param {State} state
 * @param {EventFrame} frame
 */
function sentHere(state, frame) {
  const isBegin = frame.type === "turn_queued" || frame.type === "turn_start";
  if (!isBegin && !(frame.type === "message" && frame.role === "user")) return undefined;
  const text = isBegin ? frame.user_message : textOf(frame.content);
  const clientId = "client_id" in frame ? frame.client_id : null;
  return state.pendingMessages.find((message) =>
    clientId ? message.clientId === clientId : message.turnId === null && message.text === text,
  );
}

/** @param {import("../net/wire.js").MessageEvent["content"]} content */
const textOf = (content) => content.map((block) => (block.type === "text" ? block.text : "")).join("");

/**
 * Remove the notice about retries, because the server has replied to a request.
 * @param {State} state
 * @returns {State}
 */
export const answered = (state) => (isTryingAgain(state) ? { ...state, notice: null } : state);

/** @param {State} state */
const isTryingAgain = (state) => state.notice?.key === TRYING_AGAIN;

/**
 * Record the turn of a message, or apply the effect of a cancel word.
 * @param {State} state
 * @param {MessageResultFrame} frame
 * @param {Clock} clock
 * @returns {State}
 */
export function settleMessage(state, frame, clock) {
  const isShown = state.turns.some(
    (turn) => turn.id === frame.turn_id && turn.items.some((item) => item.kind === "user"),
  );
  const isDone = frame.cancelled || isShown;
  const pendingMessages = isDone
    ? state.pendingMessages.filter((message) => message.clientId !== frame.client_id)
    : state.pendingMessages.map((message) =>
        message.clientId === frame.client_id ? { ...message, turnId: frame.turn_id ?? null } : message,
      );
  const settled = { ...state, pendingMessages };
  return frame.cancelled ? wordStops(settled, frame.turn_id, clock) : settled;
}

/**
 * Mark what a cancel word stops: a turn of this conversation, or all of its background work.
 * @param {State} state
 * @param {string|undefined} turnId
 * @param {Clock} clock
 * @returns {State}
 */
function wordStops(state, turnId, { now }) {
  const isInBackground = state.background.some((work) => work.turnId === turnId);
  const turnIds = isInBackground ? state.background.map((work) => work.turnId) : [turnId];
  return turnIds.reduce((next, each) => withStopping(next, each, now), state);
}

/**
 * Show a notice that names the sub-agents that have stopped as requested.
 * @param {State} before
 * @param {State} after
 * @returns {State}
 */
export function tellEnded(before, after) {
  const agents = endedAgents(before, after);
  return agents.length > 0 ? notify(after, "info", "background_ended", { agents: agents.join(", ") }) : after;
}

/** Return whether an error is temporary, so that the same request may succeed later. @param {unknown} code */
export const isServersFault = (code) => code === "server_error" || code === "unavailable";

/**
 * Return whether a failed request is kept, because it will be sent again with the same id.
 * @param {State} state
 * @param {ProblemFrame} frame
 */
const isUnanswered = ({ pendingMessages, operations }, frame) =>
  isServersFault(frame.code) &&
  (pendingMessages.some((message) => message.clientId === frame.client_id && message.turnId === null) ||
    operations.some((operation) => operation.opId === frame.op_id));

/**
 * Remove a refused request and show why. If only the server failed, keep it, because it will be sent again.
 * @param {State} state
 * @param {ProblemFrame} frame
 * @returns {State}
 */
export function refuse(state, frame) {
  if (isUnanswered(state, frame)) return isTryingAgain(state) ? state : notify(state, "info", TRYING_AGAIN, {});
  const pendingMessages = state.pendingMessages.filter((message) => message.clientId !== frame.client_id);
  const operation = state.operations.find((other) => other.opId === frame.op_id);
  const notified = notify({ ...state, pendingMessages }, "error", "server_error", {
    message: String(frame.message ?? ""),
  });
  return operation ? withdraw(notified, operation) : notified;
}

/**
 * The changes that pending requests make to their calls.
 * @type {Partial<Record<Operation["kind"], (call: Call, clock: Clock) => Call>>}
 */
const ASKED = {
  decide_tool: (call) => ({ ...call, isDeciding: true }),
  cancel_tool: (call, clock) => ({ ...call, stoppingAt: call.stoppingAt ?? clock.now }),
};

/**
 * The changes to calls that undo refused requests.
 * @type {Partial<Record<Operation["kind"], (call: Call) => Call>>}
 */
const WITHDRAWN = {
  decide_tool: (call) => ({ ...call, isDeciding: false }),
  cancel_tool: (call) => (call.status === "cancelling" ? call : { ...call, stoppingAt: null }),
};

/** @param {State} state @param {Operation} operation @param {Clock} clock @returns {State} */
export function askFor(state, operation, clock) {
  const next = { ...state, operations: [...state.operations, operation] };
  if (operation.kind === "cancel_turn") {
    const stop = (/** @type {Turn} */ turn) =>
      operation.mode === "after_step"
        ? { ...turn, endsAfterStep: true }
        : { ...turn, stoppingAt: turn.stoppingAt ?? clock.now };
    const stopping = { ...next, turns: mapTurn(state.turns, operation.turnId, stop) };
    return operation.mode === "after_step" ? stopping : withStopping(stopping, operation.turnId, clock.now);
  }
  const change = ASKED[operation.kind];
  return change ? changeCall(next, operation, (call) => change(call, clock)) : next;
}

/**
 * Change a call in a turn of this conversation or in the question of a sub-agent.
 * @param {State} state
 * @param {Operation} operation
 * @param {(call: Call) => Call} change
 * @returns {State}
 */
const changeCall = (state, operation, change) => ({
  ...state,
  turns: mapTurn(state.turns, operation.turnId, (turn) => updateCall(turn, operation.toolId, change)),
  questions: changeQuestion(state.questions, operation, change),
});

/** @param {State} state @param {OpResultFrame} frame @returns {State} */
export function settleOperation(state, frame) {
  const operation = state.operations.find((other) => other.opId === frame.op_id);
  if (!operation) return state;
  if (frame.outcome === "accepted") {
    return { ...state, operations: state.operations.filter((other) => other !== operation) };
  }
  const tool = toolOf(state, operation);
  const action = operation.mode === "queued" ? "withdraw" : operation.kind;
  return notify(withdraw(state, operation), "info", `${action}_${frame.outcome}`, { tool });
}

/** @param {State} state @param {Operation} operation */
function toolOf({ turns, questions }, { turnId, toolId }) {
  const own = turns.find((turn) => turn.id === turnId)?.calls[toolId];
  const question = questions.find((question) => question.turnId === turnId && question.call.toolId === toolId);
  return (own ?? question?.call)?.name ?? "";
}

/**
 * Remove a refused request, and undo its effect on the page, such as "Stopping…" after a cancel.
 * @param {State} state
 * @param {Operation} operation
 * @returns {State}
 */
function withdraw(state, operation) {
  const next = { ...state, operations: state.operations.filter((other) => other !== operation) };
  if (operation.kind === "cancel_turn") {
    if (operation.mode === "after_step")
      return { ...next, turns: mapTurn(state.turns, operation.turnId, (turn) => ({ ...turn, endsAfterStep: false })) };
    const goOn = (/** @type {Turn} */ turn) => (turn.status === "cancelling" ? turn : { ...turn, stoppingAt: null });
    return withStopping({ ...next, turns: mapTurn(state.turns, operation.turnId, goOn) }, operation.turnId, null);
  }
  const change = WITHDRAWN[operation.kind];
  return change ? changeCall(next, operation, change) : next;
}

/** @param {State} state @param {"info"|"error"} level @param {string} key @param {Record<string, string>} params @returns {State} */
export function notify(state, level, key, params) {
  return { ...state, notice: { id: (state.notice?.id ?? 0) + 1, level, key, params } };
}

/**
 * The pure reducer `(state, event) → state`. Start reading here.
 *
 * Every change of the page's state goes through it: live and replayed events, snapshots, and the person's actions (V3).
 */

import {
  answered,
  askFor,
  notify,
  refuse,
  settleMessage,
  settleOperation,
  settlePending,
  tellEnded,
} from "./operations.js";
import { withOverview, withWork } from "./overview.js";
import { firstPosition, numbersOf, turnsFromSnapshot, withEarlier } from "./snapshot.js";
import { isCallOver, isTurnOver } from "./status.js";
import { AFTER_END, TURN_CHANGES } from "./turn_events.js";
import { addBlocks, addDelta, addThoughts, mapTurn, newTurn, replaced } from "./turns.js";

/** The longest time that a frame takes on a working connection. */
const LINE_MS = 30_000;

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Turn} Turn */
/** @typedef {import("./types.js").Frame} Frame */
/** @typedef {import("../net/wire.js").EventFrame} EventFrame */
/** @typedef {import("./types.js").LocalEvent} LocalEvent */
/** @typedef {import("./types.js").Clock} Clock */

/** @type {State} */
export const INITIAL_STATE = {
  phase: "loading",
  lastSeq: null,
  gap: false,
  viewer: "",
  turns: [],
  pendingMessages: [],
  operations: [],
  notice: null,
  hasEarlier: false,
  earliest: null,
  numbers: {},
  isLoadingEarlier: false,
  parked: false,
  otherConversations: [],
  latest: null,
  listEditedAt: undefined,
  questions: [],
  forms: [],
  background: [],
  connection: { status: "connecting", frozenAt: null },
  skewMs: null,
};

/**
 * @param {State} state
 * @param {Frame|LocalEvent} event
 * @param {Clock} clock
 * @returns {State}
 */
export function reduce(state, event, clock) {
  if (event.type.startsWith("local_")) return reduceLocal(state, /** @type {LocalEvent} */ (event), clock);
  const frame = /** @type {Frame} */ (event);
  const withClock = withSkew(state, frame, clock);
  return withValidNotice(
    isEvent(frame) ? reduceNumbered(withClock, frame, clock) : reduceUnnumbered(withClock, frame, clock),
  );
}

/**
 * Remove the notice that a message cannot be edited now, once nothing runs any more.
 * @param {State} state
 * @returns {State}
 */
const withValidNotice = (state) =>
  state.notice?.key === "edit_busy" && !isBusy(state) ? { ...state, notice: null } : state;

/** Return whether a frame is in the log. @param {Frame} frame @returns {frame is EventFrame} */
const isEvent = (frame) => "seq" in frame && frame.type !== "snapshot";

/**
 * @param {State} state
 * @returns {Turn|null} the turn that a cancel applies to: the running one, or else the next one in the queue
 */
export function activeTurn(state) {
  const active = state.turns.filter((turn) => !isTurnOver(turn.status));
  return active.find((turn) => turn.status !== "queued") ?? active[0] ?? null;
}

/** Return whether there is something to cancel. @param {State} state */
export const isAtWork = (state) => activeTurn(state) !== null || state.background.length > 0;

/** Return whether something is running, waiting or being sent. @param {State} state */
export const isBusy = (state) => activeTurn(state) !== null || state.pendingMessages.length > 0;

/** @param {State} state @returns {Array<Turn>} the turns that wait for the active one */
export function queuedTurns(state) {
  const current = activeTurn(state);
  return state.turns.filter((turn) => turn.status === "queued" && turn !== current);
}

/** @param {State} state @returns {number} */
export function queuedCount(state) {
  return queuedTurns(state).length + state.pendingMessages.filter((message) => message.turnId !== null).length;
}

/** @param {State} state @param {EventFrame} frame @param {Clock} clock @returns {State} */
function reduceNumbered(state, frame, clock) {
  const { seq } = frame;
  const last = state.lastSeq ?? seq - 1;
  if (seq <= last) return state;
  if (seq > last + 1) return { ...state, gap: true };
  const next = { ...state, lastSeq: seq, gap: false, parked: isParked(state, frame) };
  const before = next.turns.find((turn) => turn.id === frame.turn_id);
  const mayFollowEnd = AFTER_END.has(frame.type);
  if (before ? isTurnOver(before.status) && !mayFollowEnd : mayFollowEnd) return next; // ignore events of ended turns, and late events of turns that are not loaded
  const change = /** @type {import("./turn_events.js").Change|undefined} */ (TURN_CHANGES[frame.type]);
  if (!change || !frame.turn_id) return next;
  return settlePending(withTurn(next, frame, clock, change), frame);
}

/** Return whether the conversation is parked after this event. @param {State} state @param {EventFrame} frame */
function isParked(state, frame) {
  return frame.type === "conversation_parked" || (state.parked && frame.type !== "conversation_resumed");
}

/** @param {State} state @param {Exclude<Frame, EventFrame>} frame @param {Clock} clock @returns {State} */
function reduceUnnumbered(state, frame, clock) {
  switch (frame.type) {
    case "welcome":
      // The missing events were requested with `hello`, so only a new gap matters. The overview stays until the next
      // one arrives.
      return { ...state, viewer: frame.user, gap: false };
    case "snapshot":
      return fromSnapshot(state, frame, clock);
    case "text_delta":
      return { ...state, turns: mapTurn(state.turns, frame.turn_id, (turn) => addDelta(turn, frame)) };
    case "thought_delta":
      return { ...state, turns: mapTurn(state.turns, frame.turn_id, (turn) => addThoughts(turn, frame)) };
    case "text_html":
      return { ...state, turns: mapTurn(state.turns, frame.turn_id, (turn) => addBlocks(turn, frame)) };
    case "overview":
      return tellEnded(state, withOverview(state, frame, clock));
    case "op_result":
      return settleOperation(answered(state), frame);
    case "error":
      return refuse(state, frame);
    case "message_result":
      return settleMessage(answered(state), frame, clock);
    default:
      return state;
  }
}

/** @param {State} state @param {LocalEvent} event @param {Clock} clock @returns {State} */
function reduceLocal(state, event, clock) {
  switch (event.type) {
    case "local_message":
      return {
        ...state,
        notice: null,
        pendingMessages: [
          ...state.pendingMessages,
          {
            clientId: event.clientId,
            text: event.text,
            source: event.source,
            turnId: null,
            ...(event.replaces ? { replaces: event.replaces } : {}),
            ...(event.attachments?.length ? { attachments: event.attachments } : {}),
          },
        ],
      };
    case "local_operation":
      return askFor(state, event.operation, clock);
    case "local_new":
      return { ...state, phase: "ready", connection: connectionAfter(state, "new", clock) };
    case "local_refused":
      return notify({ ...state, pendingMessages: [] }, "error", "server_error", { message: event.problem });
    case "local_connection":
      return { ...state, connection: connectionAfter(state, event.status, clock) };
    case "local_notice":
      return notify(state, event.level, event.key, event.params ?? {});
    case "local_notice_closed":
      return { ...state, notice: null };
    case "local_earlier_asked":
      return { ...state, isLoadingEarlier: true };
    case "local_earlier_failed":
      return notify({ ...state, isLoadingEarlier: false }, "error", "earlier_failed", {});
    case "local_earlier":
      return withEarlier(state, event, clock);
  }
}

/** @param {State} state @param {EventFrame} frame @param {Clock} clock @param {import("./turn_events.js").Change} change */
function withTurn(state, frame, clock, change) {
  const id = String(frame.turn_id);
  const turns = state.turns.some((turn) => turn.id === id) ? state.turns : [...state.turns, newTurn(id, clock)];
  const changed = mapTurn(turns, id, (turn) => change(turn, frame, clock, state));
  const from = frame.type === "turn_queued" && frame.replaces;
  return { ...state, turns: from ? replaced(changed, from, id) : changed };
}

/** @param {State} state @param {import("../net/wire.js").SnapshotFrame} frame @param {Clock} clock @returns {State} */
function fromSnapshot(state, frame, clock) {
  const turns = turnsFromSnapshot(frame, clock).map((turn) => keepStopping(turn, state));
  const shown = new Set(turns.map((turn) => turn.id));
  return withWork({
    ...state,
    phase: "ready",
    lastSeq: Number(frame.seq ?? 0),
    gap: false,
    turns,
    hasEarlier: Boolean(frame.has_earlier),
    earliest: firstPosition(frame),
    numbers: numbersOf(frame),
    parked: Boolean(frame.parked),
    pendingMessages: state.pendingMessages.filter((message) => message.turnId === null || !shown.has(message.turnId)),
  });
}

/**
 * Return the turn with the cancels that were requested before the connection was lost, so that they stay visible.
 * @param {Turn} turn
 * @param {State} state
 * @returns {Turn}
 */
function keepStopping(turn, state) {
  if (isTurnOver(turn.status)) return turn;
  const before = state.turns.find((other) => other.id === turn.id);
  if (!before) return turn;
  const calls = Object.fromEntries(
    Object.entries(turn.calls).map(([id, call]) => [
      id,
      isCallOver(call.status) ? call : { ...call, stoppingAt: call.stoppingAt ?? before.calls[id]?.stoppingAt ?? null },
    ]),
  );
  const endsAfterStep = turn.endsAfterStep || before.endsAfterStep;
  return { ...turn, calls, endsAfterStep, stoppingAt: turn.stoppingAt ?? before.stoppingAt };
}

/** @param {State} state @param {import("./types.js").ConnectionStatus} status @param {Clock} clock */
function connectionAfter(state, status, clock) {
  const isLive = status === "online" || status === "slow" || status === "new";
  return { status, frozenAt: isLive ? null : (state.connection.frozenAt ?? clock.now) };
}

/**
 * Update the upper bound of how far this machine's clock is ahead of the server's. Frames on a working connection are
 * recent, so one that seems old means that a clock was changed.
 * @param {State} state @param {Frame} frame @param {Clock} clock @returns {State}
 */
function withSkew(state, frame, clock) {
  const at = Date.parse(("at" in frame && frame.at) || "");
  if (Number.isNaN(at)) return state;
  const skew = clock.wall - at;
  if (state.skewMs === null || skew < state.skewMs) return { ...state, skewMs: skew };
  const hasJumped = state.connection.status === "online" && skew > state.skewMs + LINE_MS;
  return hasJumped ? { ...state, skewMs: skew } : state;
}

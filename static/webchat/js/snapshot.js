/** The turns of a `snapshot` frame, in the same shape in which live events leave them (V3). */

import { callFromWire, endedByFrom } from "./calls.js";
import { isTurnOver } from "./status.js";
import { addCall, addDelta, addMessage, closeOpenCalls, newTurn, updateCall, userMessageFrom } from "./turns.js";

/** @typedef {import("./types.js").Turn} Turn */
/** @typedef {import("./types.js").Clock} Clock */

/**
 * @param {Record<string, any>} frame
 * @param {Clock} clock
 * @returns {Array<Turn>}
 */
export function turnsFromSnapshot(frame, clock) {
  /** @type {Map<string, Turn>} */
  const turns = new Map();
  /** @param {string} id @param {(turn: Turn) => Turn} change */
  const change = (id, change) => turns.set(id, change(turns.get(id) ?? newTurn(id, clock, "completed")));
  for (const message of frame.messages ?? []) {
    change(String(message.turn_id ?? ""), (turn) => addMessage(turn, message, `s${message.id}`, clock));
  }
  for (const ended of frame.turns ?? []) change(String(ended.turn_id), (turn) => withEnding(turn, ended));
  for (const call of frame.calls ?? []) change(String(call.turn_id ?? ownerOf(turns, call)), (turn) => withCall(turn, call, clock));
  for (const active of frame.active_turns ?? []) {
    change(String(active.turn_id), (turn) => withActivity(turn, active, clock));
  }
  return [...turns.values()].map((turn) => (isTurnOver(turn.status) ? closeOpenCalls(turn) : turn));
}

/** @param {Turn} turn @param {Record<string, any>} ended @returns {Turn} */
function withEnding(turn, ended) {
  return {
    ...turn,
    status: String(ended.status ?? turn.status),
    endedBy: endedByFrom({ reason: ended.ended_reason, source: ended.ended_source, by: ended.ended_by }),
    errorMessage: String(ended.error ?? ""),
    repairs: Number(ended.repairs ?? 0),
  };
}

/** @param {Turn} turn @param {Record<string, any>} wire @param {Clock} clock @returns {Turn} */
function withCall(turn, wire, clock) {
  const id = String(wire.tool_id);
  const call = callFromWire(wire, clock);
  if (!turn.calls[id]) return addCall(turn, call);
  return updateCall(turn, id, (known) => ({ ...call, name: call.name || known.name, input: wire.input ?? known.input }));
}

/** @param {Turn} turn @param {Record<string, any>} active @param {Clock} clock @returns {Turn} */
function withActivity(turn, active, clock) {
  const status = String(active.status ?? "running");
  let next = {
    ...turn,
    status,
    elapsedMs: Number(active.elapsed_ms ?? 0),
    elapsedAt: clock.now,
    timeoutMs: active.turn_timeout_ms ?? null,
    stoppingAt: status === "cancelling" ? clock.now : null,
    endedBy: endedByFrom({ reason: active.ended_reason, by: active.ended_by }),
  };
  if (active.user_message) next = addMessage(next, userMessageFrom(active.user_message, active.started_at), "u");
  for (const call of active.calls ?? []) next = withCall(next, call, clock);
  const text = String(active.partial_text ?? "");
  return text && isStreaming(status) ? addDelta(next, { text, offset: 0 }) : next;
}

/** @param {string} status */
const isStreaming = (status) => status === "running" || status === "cancelling";

/** The last shown turn that asked for a call, where the call does not name it. @param {Map<string, Turn>} turns @param {Record<string, any>} call */
function ownerOf(turns, call) {
  const owners = [...turns.values()].filter((turn) => turn.calls[call.tool_id]);
  return owners[owners.length - 1]?.id ?? "";
}

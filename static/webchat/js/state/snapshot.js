/** The turns of a `snapshot` frame, in the same shape in which live events leave them (V3). */

import { callFromWire, endedByFrom } from "./calls.js";
import { isTurnOver } from "./status.js";
import {
  addAcknowledgement,
  addCall,
  addDelta,
  addMessage,
  closeOpenCalls,
  newTurn,
  tokensOf,
  updateCall,
  userMessage,
  withNotice,
  withoutRetry,
} from "./turns.js";

/** @typedef {import("./types.js").Turn} Turn */
/** @typedef {import("./types.js").Clock} Clock */
/** @typedef {import("../net/wire.js").EndedTurn} EndedTurn */
/** @typedef {import("../net/wire.js").LiveTurn} LiveTurn */

/**
 * @param {import("../net/wire.js").SnapshotFrame} frame
 * @param {Clock} clock
 * @returns {Array<Turn>}
 */
export function turnsFromSnapshot(frame, clock) {
  /** @type {Map<string, Turn>} */
  const turns = new Map();
  /** @param {string} id @param {(turn: Turn) => Turn} change */
  const change = (id, change) => turns.set(id, change(turns.get(id) ?? newTurn(id, clock, "completed")));
  for (const message of frame.messages) {
    change(message.turn_id, (turn) => addMessage(turn, message, `m${message.id}`, clock));
  }
  for (const ended of frame.turns) change(ended.turn_id, (turn) => withEnding(turn, ended));
  for (const call of frame.calls) change(call.turn_id, (turn) => withCall(turn, call, clock));
  for (const active of frame.active_turns) change(active.turn_id, (turn) => withActivity(turn, active, clock));
  const numbers = numbersOf(frame);
  return inOrder([...turns.values()], numbers).map((turn) => (isTurnOver(turn.status) ? closeOpenCalls(turn) : turn));
}

/** Where the turns of a snapshot stand in their conversation, by id. @param {import("../net/wire.js").SnapshotFrame} frame @returns {Record<string, number>} */
export function numbersOf(frame) {
  return Object.fromEntries([...frame.turns, ...frame.active_turns].map((turn) => [turn.turn_id, turn.number]));
}

/** A turn that was cancelled before it began has no message; its number says where it belongs. @param {Array<Turn>} turns @param {Record<string, number>} numbers */
export const inOrder = (turns, numbers) =>
  turns.sort((one, other) => (numbers[one.id] ?? 0) - (numbers[other.id] ?? 0));

/** @param {Turn} turn @param {EndedTurn} ended @returns {Turn} */
function withEnding(turn, ended) {
  const answered = ended.acknowledgements.reduce(addAcknowledgement, withUserMessage(turn, ended));
  const told = ended.notice ?? { code: ended.error_code, message: ended.error_message };
  return withoutRetry({
    ...answered,
    source: ended.source,
    agent: ended.agent,
    version: ended.version,
    replacedBy: ended.replaced_by ?? "",
    status: ended.status,
    isBegun: ended.started,
    endedBy: endedByFrom(ended.ended_by),
    durationMs: ended.duration_ms,
    tokens: tokensOf(ended.usage),
    errorCode: told.code ?? "",
    errorMessage: told.message ?? "",
  });
}

/** What the user said, where the message itself is not shown. @param {Turn} turn @param {EndedTurn|LiveTurn} described @returns {Turn} */
function withUserMessage(turn, described) {
  if (!described.user_message || turn.items.some((item) => item.kind === "user")) return turn;
  if (described.source === "sub_agent") return turn;
  const startedAt = "started_at" in described ? (described.started_at ?? "") : "";
  const { items } = addMessage(
    { ...turn, items: [] },
    userMessage(described.user_message, startedAt, described.attachments),
    "u",
  );
  return { ...turn, items: [...items, ...turn.items] };
}

/** @param {Turn} turn @param {import("../net/wire.js").Call} wire @param {Clock} clock @returns {Turn} */
function withCall(turn, wire, clock) {
  const id = wire.tool_id;
  const call = callFromWire(wire, clock);
  if (!turn.calls[id]) return addCall(turn, call);
  return updateCall(turn, id, (known) => ({
    ...call,
    name: call.name || known.name,
    title: call.title || known.title,
    input: wire.input ?? known.input,
  }));
}

/** @param {Turn} turn @param {LiveTurn} active @param {Clock} clock @returns {Turn} */
function withActivity(turn, active, clock) {
  const { status, partial_text: text } = active;
  /** @type {Turn} */
  let next = {
    ...withUserMessage(turn, active),
    source: active.source,
    agent: active.agent,
    version: active.version,
    status,
    isBegun: status !== "queued",
    elapsedMs: active.elapsed_ms,
    elapsedAt: clock.now,
    timeoutMs: active.turn_timeout_ms,
    stoppingAt: status === "cancelling" ? clock.now : null,
    endsAfterStep: Boolean(active.ends_after_step),
  };
  for (const call of active.calls) next = withCall(next, call, clock);
  if (active.notice) next = withNotice(next, active.notice, clock.now);
  return text && isStreaming(status) ? addDelta(next, { text, offset: 0 }) : next;
}

/** @param {string} status */
const isStreaming = (status) => status === "running" || status === "cancelling";

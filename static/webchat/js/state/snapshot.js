/**
 * Creates turns from a `snapshot` frame or a page of earlier messages, with the same state as from live events (V3).
 */

import { callFromWire, endedByFrom } from "./calls.js";
import { isTurnOver } from "./status.js";
import {
  addAcknowledgement,
  addCall,
  addDelta,
  addMessage,
  closeOpenCalls,
  fullnessOf,
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
/** @typedef {import("./types.js").EarlierMessages} EarlierMessages */
/** @typedef {import("./types.js").State} State */

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

/** Return the positions of a snapshot's turns in their conversation, by id. @param {import("../net/wire.js").SnapshotFrame} frame @returns {Record<string, number>} */
export function numbersOf(frame) {
  return Object.fromEntries([...frame.turns, ...frame.active_turns].map((turn) => [turn.turn_id, turn.number]));
}

/**
 * Sort turns by their numbers, because a turn that was cancelled before it began has no message with a position.
 * @param {Array<Turn>} turns
 * @param {Record<string, number>} numbers
 */
const inOrder = (turns, numbers) => turns.sort((one, other) => (numbers[one.id] ?? 0) - (numbers[other.id] ?? 0));

/** @param {Turn} turn @param {EndedTurn} ended @returns {Turn} */
function withEnding(turn, ended) {
  const answered = ended.acknowledgements.reduce(addAcknowledgement, withUserMessage(turn, ended));
  const notice = ended.notice ?? { code: ended.error_code, message: ended.error_message };
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
    fullness: fullnessOf(ended.usage),
    promptChange: ended.prompt_change ?? "",
    summary: ended.summary ?? "",
    errorCode: notice.code ?? "",
    errorMessage: notice.message ?? "",
  });
}

/**
 * Return the turn with the user's message, even if the message itself is not in the snapshot.
 * @param {Turn} turn
 * @param {EndedTurn|LiveTurn} described
 * @returns {Turn}
 */
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
  return updateCall(turn, id, (before) => ({
    ...call,
    name: call.name || before.name,
    title: call.title || before.title,
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
    fullness: fullnessOf(active.usage),
    promptChange: active.prompt_change ?? "",
    summary: active.summary ?? "",
  };
  for (const call of active.calls) next = withCall(next, call, clock);
  if (active.notice) next = withNotice(next, active.notice, clock.now);
  return text && isStreaming(status) ? addDelta(next, { text, offset: 0 }) : next;
}

/** @param {string} status */
const isStreaming = (status) => status === "running" || status === "cancelling";

/** Return the position of the first message of a snapshot or page. @param {EarlierMessages} frame @returns {number|null} */
export const firstPosition = (frame) => {
  return frame.messages[0]?.position ?? null;
};

/**
 * Add a page of earlier messages to the state, unless it is no longer the page before the first message.
 * @param {State} state
 * @param {{before: number, frame: EarlierMessages}} page
 * @param {Clock} clock
 * @returns {State}
 */
export function withEarlier(state, { before, frame }, clock) {
  const next = { ...state, isLoadingEarlier: false };
  if (state.earliest !== before) return next;
  const turnsById = new Map(state.turns.map((turn) => [turn.id, turn]));
  const earlier = turnsFromSnapshot(frame, clock);
  const callIds = askedFor(frame);
  const joined = new Map(earlier.map((turn) => [turn.id, joinedWith(turn, turnsById.get(turn.id), callIds)]));
  const turns = [
    ...earlier.filter((turn) => !turnsById.has(turn.id)),
    ...state.turns.map((turn) => joined.get(turn.id) ?? turn),
  ];
  const numbers = { ...state.numbers, ...numbersOf(frame) };
  const isNumbered = (/** @type {Turn} */ turn) => turn.id in numbers;
  return {
    ...next,
    numbers,
    // Turns that began after the snapshot have no number here and come last.
    turns: [...inOrder(turns.filter(isNumbered), numbers), ...turns.filter((turn) => !isNumbered(turn))],
    earliest: firstPosition(frame) ?? state.earliest,
    hasEarlier: frame.has_earlier && firstPosition(frame) !== null,
  };
}

/**
 * Complete a turn of which only the end was shown. The earlier items come first, and the shown items stay. Both parts
 * contain all calls of the turn, but a call is shown only after the message that requested it.
 * @param {Turn} earlier
 * @param {Turn|undefined} shown
 * @param {ReadonlySet<string>} callIds the calls in the earlier messages
 * @returns {Turn}
 */
function joinedWith(earlier, shown, callIds) {
  if (!shown) return earlier;
  const first = earlier.items.filter((item) => item.kind !== "call" || callIds.has(item.toolId));
  const keys = new Set(first.map((item) => item.key));
  const hasUser = first.some((item) => item.kind === "user");
  const later = shown.items.filter((item) => !keys.has(item.key) && !(hasUser && item.kind === "user"));
  return { ...shown, items: [...first, ...later], calls: { ...earlier.calls, ...shown.calls } };
}

/** @param {EarlierMessages} frame @returns {Set<string>} */
function askedFor(frame) {
  const blocks = frame.messages.flatMap((message) => message.content);
  return new Set(blocks.flatMap((block) => (block.type === "tool_use" ? block.id : [])));
}

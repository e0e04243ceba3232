/** One tool call as the page knows it: made from the wire's fields, and brought to its one end. */

import { approvalFromWire } from "./approval.js";
import { visible, visibleTitle } from "./hidden_characters.js";
import { isCallOver } from "./status.js";
import { subAgentFrom } from "./sub_agents.js";

/** @typedef {import("./types.js").Call} Call */
/** @typedef {import("./types.js").EndedBy} EndedBy */
/** @typedef {import("./types.js").Clock} Clock */

/**
 * What the frames say of a call: a snapshot's call says all of it, an event some of it.
 * @typedef {Partial<Omit<import("../net/wire.js").Call, "status"|"sub_agent">>
 *   & {tool_id: string, status?: string, sub_agent?: import("./sub_agents.js").WireSubAgent|null}} WireCall
 */

/**
 * @param {Readonly<WireCall>} wire
 * @param {Clock} clock
 * @returns {Call}
 */
export function callFromWire(wire, clock) {
  const status = wire.status ?? "pending";
  return {
    toolId: wire.tool_id,
    name: visible(wire.tool_name ?? ""),
    title: visibleTitle(wire.tool_title ?? ""),
    server: visible(wire.tool_server ?? ""),
    input: wire.input ?? {},
    status,
    elapsedMs: wire.elapsed_ms ?? 0,
    elapsedAt: clock.now,
    timeoutMs: wire.timeout_ms ?? null,
    timeoutSource: wire.timeout_source ?? "",
    idleTimeoutMs: wire.idle_timeout_ms ?? null,
    limitReached: wire.limit_reached ?? "",
    waitsFor: wire.waits_for ? waitsForFrom(wire.waits_for, wire.concurrency) : null,
    interruptible: wire.interruptible !== false,
    progress: wire.progress ?? null,
    total: wire.total ?? null,
    message: visible(wire.message ?? ""),
    tail: visible(wire.tail ?? ""),
    result: wire.result ?? null,
    resultLength: wire.result_length ?? lengthOf(wire.result ?? ""),
    images: wire.images ?? [],
    isError: Boolean(wire.is_error),
    errorType: wire.error_type ?? "",
    durationMs: wire.duration_ms ?? null,
    endedBy: endedByFrom(wire.ended_by),
    stoppingAt: status === "cancelling" ? clock.now : null,
    expectedMs: wire.expected_ms ?? null,
    late: wire.late ? lateFrom(wire.late) : null,
    allowedEarlierBy: wire.allowed_earlier_by ?? "",
    limitChanges: (wire.limit_changes ?? []).map(limitChangeFrom),
    subAgent: subAgentFrom(wire.sub_agent),
    approval: approvalFromWire(wire.approval, 0, clock),
    isDeciding: false,
  };
}

/** How many characters a text has, as the server counts them; a JS string's length counts some of them twice. @param {string} text */
export const lengthOf = (text) => Array.from(text).length;

/**
 * What a call waits for before it starts; `isAlone`: it is one that runs alone.
 * @param {import("../net/wire.js").WaitsFor} wire
 * @param {string|undefined} concurrency
 */
export const waitsForFrom = (wire, concurrency) => ({
  kind: wire.kind,
  tool: visible(wire.tool_name),
  isAlone: concurrency === "exclusive",
});

/** A limit that was moved. @param {import("../net/wire.js").LimitChange} wire */
const limitChangeFrom = ({ timeout_ms: timeoutMs, is_idle: isIdle, changed_by: by }) => ({ timeoutMs, isIdle, by });

/** How an abandoned call ended. @param {Readonly<{kind: string, after_ms: number|null}>} wire */
export const lateFrom = (wire) => ({ kind: wire.kind, afterMs: wire.after_ms ?? null });

/**
 * @param {Readonly<Omit<import("../net/wire.js").ToolApprovalEvent, "type"|"seq"|"at"|"position"> & {sub_agent?: import("./sub_agents.js").WireSubAgent}>} frame
 * @param {number} ageMs
 * @param {Clock} clock
 * @returns {Call}
 */
export function callFromQuestion(frame, ageMs, clock) {
  const call = callFromWire({ ...frame, status: "awaiting_approval" }, clock);
  return { ...call, approval: approvalFromWire(frame, ageMs, clock) };
}

/** @param {import("../net/wire.js").ToolStartEvent} frame @param {number} ageMs @param {Clock} clock @returns {Call} */
export function callFromStart(frame, ageMs, clock) {
  return callFromWire({ ...frame, status: "running", elapsed_ms: ageMs }, clock);
}

/** Other limits, in force at once. @param {Call} call @param {import("../net/wire.js").ToolDeadlineEvent} frame @returns {Call} */
export function moveLimits(call, frame) {
  const { timeout_ms: timeoutMs, idle_timeout_ms: idleTimeoutMs } = frame;
  const isIdle = (timeoutMs || null) === (call.timeoutMs || null) && idleTimeoutMs !== call.idleTimeoutMs;
  return {
    ...call,
    timeoutMs,
    idleTimeoutMs,
    timeoutSource: frame.timeout_source,
    limitChanges: [
      ...call.limitChanges,
      { timeoutMs: isIdle ? idleTimeoutMs : timeoutMs, isIdle, by: frame.changed_by },
    ],
  };
}

/** The one result of a call; a second one changes nothing. @param {Call} call @param {import("../net/wire.js").ToolResultEvent} frame @returns {Call} */
export function settleCall(call, frame) {
  if (isCallOver(call.status) && call.status !== "closed") return call;
  return {
    ...call,
    status: frame.status,
    result: frame.result,
    resultLength: frame.result_length ?? lengthOf(frame.result),
    images: frame.images ?? [],
    isError: frame.is_error,
    errorType: frame.error_type ?? "",
    durationMs: frame.duration_ms,
    limitReached: frame.limit_reached ?? call.limitReached,
    endedBy: endedByFrom(frame.ended_by),
    stoppingAt: null,
  };
}

/** @param {Readonly<{reason: string, source: string, by?: string|null}>|null|undefined} wire @returns {EndedBy|null} */
export const endedByFrom = (wire) => (wire ? { reason: wire.reason, source: wire.source, by: wire.by ?? "" } : null);

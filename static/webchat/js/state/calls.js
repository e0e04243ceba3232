/** One tool call as the page knows it: made from the wire's fields, and brought to its one end. */

import { CANCEL_REASONS } from "../net/wire.js";
import { approvalFromWire } from "./approval.js";
import { visible } from "./hidden_characters.js";
import { isCallOver } from "./status.js";
import { subAgentFrom } from "./sub_agents.js";

/** @typedef {import("./types.js").Call} Call */
/** @typedef {import("./types.js").EndedBy} EndedBy */
/** @typedef {import("./types.js").Clock} Clock */

/**
 * A call from any object with the wire's names: a snapshot's call, a `tool_result` nobody announced, a tool_use block.
 * @param {Record<string, any>} wire
 * @param {Clock} clock
 * @returns {Call}
 */
export function callFromWire(wire, clock) {
  const status = String(wire.status ?? "pending");
  return {
    toolId: String(wire.tool_id ?? wire.id),
    name: visible(String(wire.tool_name ?? wire.name ?? "")),
    input: wire.input ?? {},
    status,
    elapsedMs: Number(wire.elapsed_ms ?? 0),
    elapsedAt: clock.now,
    timeoutMs: wire.timeout_ms ?? null,
    timeoutSource: String(wire.timeout_source ?? ""),
    idleTimeoutMs: wire.idle_timeout_ms ?? null,
    limitReached: String(wire.limit_reached ?? ""),
    waitsFor: wire.waits_for ? waitsForFrom(wire) : null,
    interruptible: wire.interruptible !== false,
    progress: wire.progress ?? null,
    total: wire.total ?? null,
    message: visible(String(wire.message ?? "")),
    result: wire.result ?? null,
    isError: Boolean(wire.is_error),
    errorType: String(wire.error_type ?? ""),
    durationMs: wire.duration_ms ?? null,
    endedBy: endedByFrom(wire.ended_by),
    stoppingAt: status === "cancelling" ? clock.now : null,
    expectedMs: wire.expected_ms ?? null,
    late: wire.late ? lateFrom(wire.late) : null,
    limitChange: null,
    subAgent: subAgentFrom(wire.sub_agent),
    approval: approvalFromWire(wire.approval, 0, clock),
    isDeciding: false,
  };
}

/** What a call waits for before it starts; `isAlone`: it is one that runs alone. @param {Record<string, any>} wire */
export const waitsForFrom = (wire) => ({
  kind: String(wire.waits_for?.kind ?? ""),
  tool: visible(String(wire.waits_for?.tool_name ?? "")),
  isAlone: wire.concurrency === "exclusive",
});

/** How a call ended that had been given up. @param {Record<string, any>} wire */
export const lateFrom = (wire) => ({ kind: String(wire.kind ?? ""), afterMs: wire.after_ms ?? null });

/** @param {import("../net/wire.js").ToolApprovalEvent} frame @param {number} ageMs @param {Clock} clock @returns {Call} */
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
  const timeoutMs = frame.timeout_ms ?? null;
  const idleTimeoutMs = frame.idle_timeout_ms ?? null;
  const isIdle = (timeoutMs || null) === (call.timeoutMs || null) && idleTimeoutMs !== call.idleTimeoutMs;
  return {
    ...call,
    timeoutMs,
    idleTimeoutMs,
    timeoutSource: String(frame.timeout_source ?? ""),
    limitChange: { timeoutMs: isIdle ? idleTimeoutMs : timeoutMs, isIdle, by: nameOf(frame.changed_by) },
  };
}

/** @param {unknown} user @returns {string} */
export function nameOf(user) {
  if (typeof user === "string") return user;
  if (user && typeof user === "object") {
    const named = /** @type {Record<string, unknown>} */ (user);
    return String(named.username ?? named.name ?? "");
  }
  return "";
}

/** The one result of a call; a second one changes nothing. @param {Call} call @param {import("../net/wire.js").ToolResultEvent} frame @returns {Call} */
export function settleCall(call, frame) {
  if (isCallOver(call.status) && call.status !== "closed") return call;
  return {
    ...call,
    status: String(frame.status ?? (frame.is_error ? "failed" : "succeeded")),
    result: frame.result ?? null,
    isError: Boolean(frame.is_error),
    errorType: String(frame.error_type ?? ""),
    durationMs: frame.duration_ms ?? null,
    limitReached: String(frame.limit_reached ?? call.limitReached),
    endedBy: endedByFrom(frame.ended_by),
    stoppingAt: null,
  };
}

/**
 * Who ended it, from `{reason, source, by}`, from a bare reason, or from a bare name.
 * @param {any} wire
 * @returns {EndedBy|null}
 */
export function endedByFrom(wire) {
  if (!wire) return null;
  if (typeof wire === "string") {
    return CANCEL_REASONS.includes(wire) ? { reason: wire, source: "", by: "" } : { reason: "", source: "", by: wire };
  }
  const reason = String(wire.reason ?? wire.ended_reason ?? "");
  const source = String(wire.source ?? "");
  const by = wire.by ?? wire.ended_by ?? "";
  const name = typeof by === "string" ? by : String(by.username ?? by.name ?? "");
  return reason || source || name ? { reason, source, by: name } : null;
}

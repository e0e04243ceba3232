/** Creates and updates the page's state of tool calls, with their questions, forms and sub-agents. */

import { visible, visibleTitle } from "./hidden_characters.js";
import { isCallOver } from "./status.js";

/** @typedef {import("./types.js").Call} Call */
/** @typedef {import("./types.js").EndedBy} EndedBy */
/** @typedef {import("./types.js").Clock} Clock */
/** @typedef {import("./types.js").Approval} Approval */
/** @typedef {import("./types.js").CallForm} CallForm */
/** @typedef {import("./types.js").SubAgent} SubAgent */

/**
 * The fields of a call in frames. A snapshot contains all of them, and an event only some.
 * @typedef {Partial<Omit<import("../net/wire.js").Call, "status"|"sub_agent">>
 *   & {tool_id: string, status?: string, sub_agent?: WireSubAgent|null}} WireCall
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
    arguments: argumentsFrom(wire.arguments),
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
    effects: wire.effects ?? "",
    late: wire.late ? lateFrom(wire.late) : null,
    allowedEarlierBy: wire.allowed_earlier_by ?? "",
    limitChanges: (wire.limit_changes ?? []).map(limitChangeFrom),
    subAgent: subAgentFrom(wire.sub_agent),
    approval: approvalFromWire(wire.approval, 0, clock),
    form: formFromWire(wire.form, 0, clock),
    isDeciding: false,
  };
}

/**
 * Return the arguments of a call as the server formatted them, because JavaScript would round some numbers. Hidden
 * characters are escaped.
 * @param {import("../net/wire.js").Call["arguments"]} [wires]
 */
const argumentsFrom = (wires = []) =>
  wires.map(({ name, value, is_text: isText }) => ({ name: visible(name), value: visible(value), isText }));

/**
 * Return the length of a text in code points, which the server counts too. The length of a JS string counts some of
 * them twice.
 * @param {string} text
 */
export const lengthOf = (text) => Array.from(text).length;

/**
 * Return the reason why a call has not started yet. `isAlone` is true if the call itself must run alone.
 * @param {import("../net/wire.js").WaitsFor} wire
 * @param {string|undefined} concurrency
 */
export const waitsForFrom = (wire, concurrency) => ({
  kind: wire.kind,
  tool: visible(wire.tool_name),
  isAlone: concurrency === "exclusive",
});

/** Return a change of a limit. @param {import("../net/wire.js").LimitChange} wire */
const limitChangeFrom = ({ timeout_ms: timeoutMs, is_idle: isIdle, changed_by: by }) => ({ timeoutMs, isIdle, by });

/** Return the late end of an abandoned call. @param {Readonly<{kind: string, after_ms: number|null}>} wire */
export const lateFrom = (wire) => ({ kind: wire.kind, afterMs: wire.after_ms ?? null });

/**
 * @param {Readonly<Omit<import("../net/wire.js").ToolApprovalEvent, "type"|"seq"|"at"|"position"> & {sub_agent?: WireSubAgent}>} frame
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

/**
 * Return the call with its changed limits.
 * @param {Call} call
 * @param {import("../net/wire.js").ToolDeadlineEvent} frame
 * @returns {Call}
 */
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

/**
 * Return the call with its result. A second result is ignored.
 * @param {Call} call
 * @param {import("../net/wire.js").ToolResultEvent} frame
 * @returns {Call}
 */
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
    effects: frame.effects ?? "",
    stoppingAt: null,
  };
}

/** @param {Readonly<{reason: string, source: string, by?: string|null}>|null|undefined} wire @returns {EndedBy|null} */
export const endedByFrom = (wire) => (wire ? { reason: wire.reason, source: wire.source, by: wire.by ?? "" } : null);

/**
 * @typedef {Pick<import("../net/wire.js").Question, "can_remember"|"host"|"description"|"expires_in_ms">
 *   & Partial<import("../net/wire.js").Question>} WireQuestion A question about a call, with the decision if there is
 * one.
 */

/**
 * @param {Readonly<WireQuestion>|null|undefined} wire
 * @param {number} ageMs the age of the frame in milliseconds
 * @param {Clock} clock
 * @returns {Approval|null}
 */
function approvalFromWire(wire, ageMs, clock) {
  if (!wire) return null;
  const remaining = wire.expires_in_ms ?? null;
  return {
    requestedAt: wire.requested_at ?? "",
    canRemember: wire.can_remember,
    host: visible(wire.host),
    description: visible(wire.description),
    question: visible(wire.question ?? ""),
    expiresAt: remaining === null ? null : clock.now + remaining - ageMs,
    decision: wire.decision ?? "",
    by: wire.by ?? "",
    reason: wire.reason ?? "",
    remember: wire.remember ?? false,
  };
}

/** @param {Call} call @param {import("../net/wire.js").ToolDecisionEvent} frame @returns {Call} */
export function withDecision(call, frame) {
  const { decision, by, reason, remember } = frame;
  const unknown = { requestedAt: "", canRemember: false, host: "", description: "", question: "", expiresAt: null };
  const approval = { ...(call.approval ?? unknown), decision, by, reason, remember };
  const goesOn = call.status === "awaiting_approval" && decision === "approved";
  return { ...call, approval, isDeciding: false, status: goesOn ? "pending" : call.status };
}

/** Return whether the call is waiting for a decision. @param {Call} call */
export const isAsked = (call) =>
  call.status === "awaiting_approval" && !call.approval?.decision && call.stoppingAt === null;

/**
 * @param {import("../net/wire.js").CallForm|null|undefined} wire
 * @param {number} ageMs the age of the frame in milliseconds
 * @param {Clock} clock
 * @returns {CallForm|null}
 */
export function formFromWire(wire, ageMs, clock) {
  if (!wire) return null;
  const left = wire.expires_in_ms;
  return {
    questionId: wire.question_id,
    server: visible(wire.tool_server),
    message: visible(wire.form.message),
    fields: wire.form.fields.map(({ title, description, options, ...field }) => ({
      ...field,
      title: visible(title),
      description: visible(description),
      options: options.map(({ value, title: shown }) => ({ value, title: visible(shown) })),
    })),
    expiresAt: left === null ? null : clock.now + left - ageMs,
  };
}

/** @typedef {Readonly<{agent: string, conversation_id?: string, child_conversation_id?: string}>} WireSubAgent */

/**
 * Return the sub-agent of a call from the field `sub_agent` of a snapshot or from the event of that name.
 * @param {WireSubAgent|null|undefined} wire
 * @returns {SubAgent|null}
 */
export function subAgentFrom(wire) {
  const conversationId = wire?.child_conversation_id ?? wire?.conversation_id;
  return wire && conversationId ? { agent: visible(wire.agent), conversationId } : null;
}

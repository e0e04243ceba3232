/** A person's decision on a call: what was asked and how it was answered, as the page knows it. */

import { visible } from "./hidden_characters.js";

/** @typedef {import("./types.js").Approval} Approval */
/** @typedef {import("./types.js").Call} Call */
/** @typedef {import("./types.js").Clock} Clock */

/**
 * @typedef {Pick<import("../net/wire.js").Question, "can_remember"|"host"|"description"|"expires_in_ms">
 *   & Partial<import("../net/wire.js").Question>} WireQuestion A question with its decision, or before it has one.
 */

/**
 * @param {Readonly<WireQuestion>|null|undefined} wire
 * @param {number} ageMs how long ago the server wrote it
 * @param {Clock} clock
 * @returns {Approval|null}
 */
export function approvalFromWire(wire, ageMs, clock) {
  if (!wire) return null;
  const left = wire.expires_in_ms ?? null;
  return {
    requestedAt: wire.requested_at ?? "",
    canRemember: wire.can_remember,
    host: visible(wire.host),
    description: visible(wire.description),
    question: visible(wire.question ?? ""),
    expiresAt: left === null ? null : clock.now + left - ageMs,
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

/** Whether a person is asked about the call now. @param {Call} call */
export const isAsked = (call) =>
  call.status === "awaiting_approval" && !call.approval?.decision && call.stoppingAt === null;

/**
 * The arguments of a call, one by one, each as it would be used. What would hide something is written out.
 * @param {unknown} input
 * @returns {Array<{name: string, value: string}>}
 */
export function readableInput(input) {
  if (input === null || typeof input !== "object" || Array.isArray(input)) {
    return [{ name: "", value: readable(input) }];
  }
  return Object.entries(input).map(([name, value]) => ({ name: visible(name), value: readable(value) }));
}

/** @param {unknown} value */
const readable = (value) => visible(typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? ""));

/** The meaning of statuses: which are final, and the tiers of a call's age (V2). */

import { FINAL_CALL_STATUSES, FINAL_TURN_STATUSES } from "../net/wire.js";

export const SLOW_AFTER_MS = 10_000;
export const VERY_SLOW_AFTER_MS = 30_000;
const STILL_STOPPING_AFTER_MS = 3_000;

/**
 * The page's own status of a call that was still open when its turn ended, so its outcome is unknown.
 * The server never sends it (acceptance: no card is left running after any terminal turn).
 */
export const CLOSED = "closed";

/** @param {string} status */
export const isCallOver = (status) => FINAL_CALL_STATUSES.includes(status) || status === CLOSED;

/**
 * Whether to show a Cancel button.
 * @param {Readonly<{status: string}>} call
 */
export const canBeCancelled = (call) => !isCallOver(call.status);

/**
 * Whether a cancel would only stop waiting for the call, because nothing can interrupt it.
 * @param {Readonly<{status: string, interruptible: boolean}>} call
 */
export const canOnlyBeLeft = (call) =>
  !call.interruptible && (call.status === "running" || call.status === "cancelling");

/**
 * Whether the last stop request is old enough to repeat it.
 * @param {Readonly<{stoppingAt: number|null}>} stopping
 * @param {number} now
 */
export const isStillStopping = ({ stoppingAt }, now) =>
  stoppingAt !== null && now - stoppingAt > STILL_STOPPING_AFTER_MS;

/**
 * Whether to disable a Cancel button, because a stop is pending or impossible.
 * @param {Readonly<{stoppingAt: number|null}>} stopping
 * @param {Readonly<{now: number, frozenAt: number|null}>} at
 */
export const isStopUnderWay = (stopping, { now, frozenAt }) =>
  stopping.stoppingAt !== null && (frozenAt !== null || !isStillStopping(stopping, now));

/** @param {string} status */
export const isTurnOver = (status) => FINAL_TURN_STATUSES.includes(status);

/**
 * Whether a message was withdrawn before it was sent, so that the page hides it. Messages ended by other cancels stay.
 * @param {Readonly<{isBegun: boolean, endedBy: Readonly<{source: string}>|null}>} turn
 */
export const isWithdrawn = ({ isBegun, endedBy }) => !isBegun && endedBy?.source === "withdrawn";

/**
 * A tool is not slow before its expected duration has passed.
 * @param {number} elapsedMs
 * @param {number|null} [expectedMs]
 * @returns {"running"|"slow"|"very_slow"}
 */
export function tierOf(elapsedMs, expectedMs = null) {
  if (elapsedMs > Math.max(VERY_SLOW_AFTER_MS, expectedMs ?? 0)) return "very_slow";
  return elapsedMs >= Math.max(SLOW_AFTER_MS, expectedMs ?? 0) ? "slow" : "running";
}

/**
 * The known running time in milliseconds. It is frozen while the connection is down.
 * @param {{elapsedMs: number, elapsedAt: number}} running
 * @param {number} now
 * @param {number|null} frozenAt
 */
export function elapsedOf(running, now, frozenAt) {
  const until = frozenAt === null ? now : Math.min(now, frozenAt);
  return running.elapsedMs + Math.max(0, until - running.elapsedAt);
}

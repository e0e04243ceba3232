/** Interprets the statuses of calls and turns, and how long a call has been running (V2). */

import { FINAL_CALL_STATUSES, FINAL_TURN_STATUSES } from "../net/wire.js";

export const SLOW_AFTER_MS = 10_000;
export const VERY_SLOW_AFTER_MS = 30_000;
const STILL_STOPPING_AFTER_MS = 3_000;

/**
 * The status that the page gives to a call that was still open when its turn ended, so that no card seems to be running
 * afterwards. The server never sends it.
 */
export const CLOSED = "closed";

/** @param {string} status */
export const isCallOver = (status) => FINAL_CALL_STATUSES.includes(status) || status === CLOSED;

/**
 * Return whether a call can be cancelled, so that its card has a Cancel button.
 * @param {Readonly<{status: string}>} call
 */
export const canBeCancelled = (call) => !isCallOver(call.status);

/**
 * Return whether a cancel would only stop waiting for the call, because nothing can interrupt it.
 * @param {Readonly<{status: string, interruptible: boolean}>} call
 */
export const canOnlyBeLeft = (call) =>
  !call.interruptible && (call.status === "running" || call.status === "cancelling");

/**
 * Return whether the last cancel was requested so long ago that it can be repeated.
 * @param {Readonly<{stoppingAt: number|null}>} stopping
 * @param {number} now
 */
export const isStillStopping = ({ stoppingAt }, now) =>
  stoppingAt !== null && now - stoppingAt > STILL_STOPPING_AFTER_MS;

/**
 * Return whether a cancel is under way, so that its button is disabled. It cannot be repeated while the connection is
 * down.
 * @param {Readonly<{stoppingAt: number|null}>} stopping
 * @param {Readonly<{now: number, frozenAt: number|null}>} at
 */
export const isStopUnderWay = (stopping, { now, frozenAt }) =>
  stopping.stoppingAt !== null && (frozenAt !== null || !isStillStopping(stopping, now));

/** @param {string} status */
export const isTurnOver = (status) => FINAL_TURN_STATUSES.includes(status);

/**
 * Return whether a queued message was withdrawn, so that the page hides it. Messages that other cancels ended stay
 * visible.
 * @param {Readonly<{isBegun: boolean, endedBy: Readonly<{source: string}>|null}>} turn
 */
export const isWithdrawn = ({ isBegun, endedBy }) => !isBegun && endedBy?.source === "withdrawn";

/**
 * Return how slow a call is. No call is slow before the expected duration of its tool has passed.
 * @param {number} elapsedMs
 * @param {number|null} [expectedMs]
 * @returns {"running"|"slow"|"very_slow"}
 */
export function tierOf(elapsedMs, expectedMs = null) {
  if (elapsedMs > Math.max(VERY_SLOW_AFTER_MS, expectedMs ?? 0)) return "very_slow";
  return elapsedMs >= Math.max(SLOW_AFTER_MS, expectedMs ?? 0) ? "slow" : "running";
}

/**
 * Return the known running time in milliseconds. It does not grow while the connection is down.
 * @param {{elapsedMs: number, elapsedAt: number}} running
 * @param {number} now
 * @param {number|null} frozenAt
 */
export function elapsedOf(running, now, frozenAt) {
  const until = frozenAt === null ? now : Math.min(now, frozenAt);
  return running.elapsedMs + Math.max(0, until - running.elapsedAt);
}

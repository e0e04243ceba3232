/** What the names of statuses mean to the page: which are over, and how a call's age is graded (V2). */

import { FINAL_CALL_STATUSES, FINAL_TURN_STATUSES } from "../net/wire.js";

export const SLOW_AFTER_MS = 10_000;
export const VERY_SLOW_AFTER_MS = 30_000;
const STILL_STOPPING_AFTER_MS = 3_000;

/**
 * The page's own status of a call that its turn's end left open: nothing is known of it but that it is over.
 * The server never sends it (acceptance: no card is left running after any terminal turn).
 */
export const CLOSED = "closed";

/** @param {string} status */
export const isCallOver = (status) => FINAL_CALL_STATUSES.includes(status) || status === CLOSED;

/**
 * Whether a Cancel button is of use.
 * @param {Readonly<{status: string}>} call
 */
export const canBeCancelled = (call) => !isCallOver(call.status);

/**
 * Whether a cancel would only stop waiting for the call: it runs where nothing can end it.
 * @param {Readonly<{status: string, interruptible: boolean}>} call
 */
export const canOnlyBeLeft = (call) =>
  !call.interruptible && (call.status === "running" || call.status === "cancelling");

/**
 * Whether a stop was asked for so long ago that it may be asked for again.
 * @param {Readonly<{stoppingAt: number|null}>} stopping
 * @param {number} now
 */
export const isStillStopping = ({ stoppingAt }, now) =>
  stoppingAt !== null && now - stoppingAt > STILL_STOPPING_AFTER_MS;

/**
 * Whether a Cancel button has to wait: a stop is on its way, or there is no way.
 * @param {Readonly<{stoppingAt: number|null}>} stopping
 * @param {Readonly<{now: number, frozenAt: number|null}>} at
 */
export const isStopUnderWay = (stopping, { now, frozenAt }) =>
  stopping.stoppingAt !== null && (frozenAt !== null || !isStillStopping(stopping, now));

/** @param {string} status */
export const isTurnOver = (status) => FINAL_TURN_STATUSES.includes(status);

/**
 * A tool that is expected to take long is not slow before that.
 * @param {number} elapsedMs
 * @param {number|null} [expectedMs]
 * @returns {"running"|"slow"|"very_slow"}
 */
export function tierOf(elapsedMs, expectedMs = null) {
  if (elapsedMs > Math.max(VERY_SLOW_AFTER_MS, expectedMs ?? 0)) return "very_slow";
  return elapsedMs >= Math.max(SLOW_AFTER_MS, expectedMs ?? 0) ? "slow" : "running";
}

/**
 * Milliseconds that something has been running, as far as is known: while the connection is down it stands still.
 * @param {{elapsedMs: number, elapsedAt: number}} running
 * @param {number} now
 * @param {number|null} frozenAt
 */
export function elapsedOf(running, now, frozenAt) {
  const until = frozenAt === null ? now : Math.min(now, frozenAt);
  return running.elapsedMs + Math.max(0, until - running.elapsedAt);
}

/** Compares what the server's heartbeat says with what the page shows. */

import { isTurnOver } from "./status.js";

/** A heartbeat may overtake the last events; only what still differs after this pause is a loss. */
export const GRACE_MS = 1_500;

/**
 * "behind": events are missing. "different": another set of turns is active, so only a whole snapshot helps.
 * @param {import("./types.js").State} state
 * @param {import("../net/wire.js").HeartbeatFrame} heartbeat
 * @returns {"behind"|"different"|null}
 */
export function disagreement(state, heartbeat) {
  if (state.lastSeq === null) return null;
  if (Number(heartbeat.last_seq ?? 0) > state.lastSeq) return "behind";
  if (Number(heartbeat.last_seq ?? 0) < state.lastSeq || !Array.isArray(heartbeat.active)) return null;
  const active = new Set(heartbeat.active.map(String));
  const lost = state.turns.some((turn) => !isTurnOver(turn.status) && turn.status !== "queued" && !active.has(turn.id));
  return lost ? "different" : null;
}

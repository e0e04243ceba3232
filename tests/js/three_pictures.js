/** Reads moments as JSON, and answers with the page's state as each of its three ways makes it; see `tests/turns/test_three_pictures.py`. */

import { readFileSync } from "node:fs";

import { INITIAL_STATE, reduce } from "../../static/webchat/js/state/reducer.js";
import { isTurnOver } from "../../static/webchat/js/state/status.js";
import { CLOCK, EMPTY_SNAPSHOT } from "./fixtures.js";

/** What depends on the moment at which a page looks, or is a name that only this page knows. */
const OF_THE_PAGE = new Set([
  "elapsedMs",
  "elapsedAt",
  "at",
  "expiresAt",
  "key",
  "skewMs",
  "numbers",
  "earliest",
  "partialLength",
]);
/** What is known of a turn only from its start on, and counts only to its end. */
const OF_ITS_RUN = { agent: "", timeoutMs: null };
/** Of these moments only whether there is one. */
const MOMENTS = new Set(["stoppingAt"]);

/** @param {unknown} value @returns {unknown} */
function compared(value) {
  if (Array.isArray(value)) return value.map(compared);
  if (value === null || typeof value !== "object") return value;
  const kept = Object.entries(value).filter(([name]) => !OF_THE_PAGE.has(name));
  return Object.fromEntries(kept.map(([name, part]) => [name, MOMENTS.has(name) ? part !== null : compared(part)]));
}

/** @param {ReadonlyArray<any>} frames */
function stateAfter(frames) {
  const welcome = { type: "welcome", user: "ada", server_version: "", last_seq: 0 };
  const state = [welcome, ...frames].reduce((known, frame) => reduce(known, frame, CLOCK), INITIAL_STATE);
  return { ...state, turns: state.turns.map(comparedTurn) };
}

/** @param {import("../../static/webchat/js/state/types.js").Turn} turn */
function comparedTurn(turn) {
  const { repairs: _repairs, ...kept } = turn; // a snapshot shows what a repair has led to, and does not count them
  if (turn.status === "queued") return { ...kept, ...OF_ITS_RUN };
  return isTurnOver(turn.status) ? { ...kept, timeoutMs: null } : kept;
}

/** @type {Array<{live: Array<object>, log: Array<object>, snapshot: object}>} */
const moments = JSON.parse(readFileSync(0, "utf-8"));
const pictures = moments.map(({ live, log, snapshot }) => ({
  live: compared(stateAfter([EMPTY_SNAPSHOT, ...live])),
  replayed: compared(stateAfter([EMPTY_SNAPSHOT, ...log])),
  reloaded: compared(stateAfter([snapshot])),
}));
process.stdout.write(JSON.stringify(pictures));

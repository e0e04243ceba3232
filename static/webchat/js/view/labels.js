/** What the page says of a call or a turn, made from the state and the page's texts. */

import { MAIN_ARGUMENTS } from "../net/wire.js";
import { isStillStopping, tierOf } from "../state/status.js";
import { visible } from "../state/visible.js";

/** @typedef {import("../state/types.js").Call} Call */
/** @typedef {import("../state/types.js").EndedBy} EndedBy */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./i18n.js").Words} Words */

const MAX_INPUT = 120;
/** Whether a call failed after 0.3 s or after 0.4 s tells nobody anything. */
const NOTEWORTHY_MS = 1_000;

/** "12 s of 30 s". @param {Words} words @param {number} elapsedMs @param {number|null} timeoutMs */
export function clockWords(words, elapsedMs, timeoutMs) {
  const elapsed = words.clock(elapsedMs);
  return timeoutMs ? words.text("clock_of_limit", { elapsed, limit: words.duration(timeoutMs) }) : elapsed;
}

/** Where the limit of a call comes from. @param {Words} words @param {Call} call */
export function limitWords(words, call) {
  const source = call.timeoutMs ? `limit_${call.timeoutSource}` : "limit_none";
  const total = words.has(source) ? words.text(source) : "";
  if (!call.idleTimeoutMs) return total;
  return [total, words.text("limit_idle", { limit: words.duration(call.idleTimeoutMs) })].filter(Boolean).join(", ");
}

/** @param {Words} words @param {Call} call */
export function limitChangeWords(words, call) {
  const change = call.limitChange;
  if (!change) return "";
  const limit = change.timeoutMs ? words.duration(change.timeoutMs) : words.text("limit_none");
  const key = change.isIdle ? "limit_idle_changed" : "limit_changed";
  return words.text(change.by ? `${key}_by` : key, { limit, by: change.by });
}

/** What an open call is doing. @param {Words} words @param {Call} call @param {number} elapsedMs @param {{now: number, frozenAt: number|null}} at */
export function activityWords(words, call, elapsedMs, at) {
  if (call.stoppingAt !== null) {
    if (call.errorType === "timeout") return words.text("timing_out");
    return stoppingWords(words, call.stoppingAt, at);
  }
  if (call.status === "pending" && call.waitsFor) return waitingWords(words, call.waitsFor);
  if (call.status !== "running") return words.text(`call_${call.status}`);
  return words.text(`tier_${tierOf(elapsedMs, call.expectedMs)}`);
}

/** @param {Words} words @param {NonNullable<Call["waitsFor"]>} waitsFor */
function waitingWords(words, { kind, tool, isAlone }) {
  return words.text(kind === "call" && isAlone ? "waits_for_call_alone" : `waits_for_${kind}`, { tool });
}

/** @param {Words} words @param {number} stoppingAt @param {{now: number, frozenAt: number|null}} at */
export function stoppingWords(words, stoppingAt, { now, frozenAt }) {
  if (frozenAt !== null && stoppingAt >= frozenAt) return words.text("stopping_later");
  return words.text(isStillStopping({ stoppingAt }, now) ? "still_stopping" : "stopping");
}

/** Who let a call run, or did not. @param {Words} words @param {Call} call @param {string} viewer */
export function verdictWords(words, call, viewer) {
  const { decision = "", by = "", reason = "", remember = false } = call.approval ?? {};
  if (decision !== "approved" && decision !== "denied") return "";
  const who = by && by !== viewer ? words.text("by_name", { by }) : words.text("by_you");
  const said = words.text(remember ? "verdict_remembered" : `verdict_${decision}`, { who });
  return reason ? words.text("verdict_reason", { said, reason }) : said;
}

/** How a call ended, in one line. @param {Words} words @param {Call} call @param {string} viewer */
export function outcomeWords(words, call, viewer) {
  const by = byWords(words, call.endedBy, viewer);
  const after = call.durationMs === null ? "" : words.duration(call.durationMs);
  const reached = call.limitReached === "idle" ? call.idleTimeoutMs : call.timeoutMs;
  const limit = words.duration(reached ?? call.durationMs ?? 0);
  if (call.status === "abandoned" && call.late !== null) return words.text("call_abandoned_settled");
  const key = `call_${call.status}_${call.limitReached}`;
  if (words.has(key)) return words.text(key, { limit, after });
  switch (call.status) {
    case "succeeded":
      return after;
    case "timed_out":
      return words.text("call_timed_out", { limit });
    case "cancelled":
      return words
        .text(after && call.durationMs ? "call_cancelled_after" : "call_cancelled", { by, after })
        .replace("  ", " ");
    case "failed":
      return failureWords(words, call, after);
    default:
      return words.text(`call_${call.status}`, { by });
  }
}

/** @param {Words} words @param {Call} call @param {string} after */
function failureWords(words, call, after) {
  const key = `error_${call.errorType}`;
  if (words.has(key)) return words.text(key);
  const isWorthSaying = (call.durationMs ?? 0) >= NOTEWORTHY_MS;
  return isWorthSaying ? words.text("call_failed_after", { after }) : words.text("call_failed");
}

/** "by you", "by an admin", "at its time limit" … @param {Words} words @param {EndedBy|null} endedBy @param {string} viewer */
export function byWords(words, endedBy, viewer) {
  if (!endedBy) return "";
  const { reason, by } = endedBy;
  if (reason && reason !== "user") {
    const named = reason === "admin" && by ? "by_admin_named" : `by_${reason}`;
    return words.has(named) ? words.text(named, { by }) : "";
  }
  return by && by !== viewer ? words.text("by_name", { by }) : words.text("by_you");
}

/** What a turn is told and goes on. */
const NOTES = new Set(["answer_cut_off", "answer_empty", "tools_left_out"]);

/** The line under a turn that did not simply complete. @param {Words} words @param {Turn} turn @param {string} viewer @returns {{title: string, detail: string}|null} */
export function endingWords(words, turn, viewer) {
  const failure = NOTES.has(turn.errorCode) ? "" : turn.errorMessage; // a note says nothing about the end
  switch (turn.status) {
    case "cancelled": {
      const by = byWords(words, turn.endedBy, viewer);
      if (!turn.isBegun) return { title: words.text("turn_not_sent"), detail: words.text("call_cancelled", { by }) };
      return { title: words.text("turn_cancelled"), detail: by };
    }
    case "timed_out":
      return { title: words.text("turn_cancelled"), detail: words.text("by_timeout") };
    case "interrupted":
      return { title: words.text("turn_interrupted"), detail: failure || words.text("by_restart") };
    case "failed":
      return { title: words.text("turn_failed"), detail: failure || failedTurnWords(words, turn.errorCode) };
    default:
      return null;
  }
}

/** @param {Words} words @param {string} code */
function failedTurnWords(words, code) {
  const key = `turn_failed_${code}`;
  return words.text(words.has(key) ? key : "turn_failed_detail");
}

/** @param {Words} words @param {Call} call */
export const lateWords = (words, call) =>
  call.late === null
    ? ""
    : words.text(call.late.kind === "process_ended" ? "late_process" : "late", {
        after: words.duration(call.late.afterMs ?? 0),
      });

/** A call's arguments in a few words. @param {unknown} input @returns {string} */
export function shortInput(input) {
  if (input === null || typeof input !== "object") return input === null ? "" : visible(String(input));
  const given = /** @type {Record<string, unknown>} */ (input);
  const keys = Object.keys(given).filter((key) => key !== "_meta");
  const main = MAIN_ARGUMENTS.find((key) => keys.includes(key)) ?? keys[0];
  if (main === undefined) return "";
  const value = given[main];
  const text = typeof value === "string" ? value : `${main}: ${JSON.stringify(value)}`;
  const head = text.slice(0, MAX_INPUT).replace(/[\ud800-\udbff]$/, ""); // half of a character is none
  return visible(text.length > MAX_INPUT ? `${head}…` : text);
}

/** Creates the texts about calls and turns from the state and the page's texts. */

import { MAIN_ARGUMENTS } from "../net/wire.js";
import { visible } from "../state/hidden_characters.js";
import { isStillStopping, tierOf } from "../state/status.js";

/** @typedef {import("../state/types.js").Call} Call */
/** @typedef {import("../state/types.js").EndedBy} EndedBy */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./i18n.js").I18n} I18n */

const MAX_INPUT = 120;
const NO_ARGUMENT = { name: "", value: "", isText: true };
const MAX_REASON = 200;
/** Durations of failed calls that are shorter than this are not shown, because they are not interesting. */
const NOTEWORTHY_MS = 1_000;

/** Return the name of a call's tool for people. @param {Call} call */
export const toolLabel = (call) => call.title || call.name;

/**
 * Return the text that says that a call waits for a decision, and which sub-agent asks, if any.
 * @param {I18n} i18n
 * @param {Call} call
 */
export function askedLabel(i18n, call) {
  const agent = call.subAgent?.agent ?? "";
  return i18n.text(agent ? "say_asked_by" : "say_asked", { tool: toolLabel(call), agent });
}

/**
 * Return the title of a form, which says which tool asks for details.
 * @param {I18n} i18n
 * @param {import("../state/types.js").AskedForm} asked
 */
export const formLabel = (i18n, { tool, agent }) => i18n.text(agent ? "form_title_of" : "form_title", { tool, agent });

/**
 * Return the running time and the limit of a call, such as "12 s / 30 s".
 * @param {I18n} i18n
 * @param {number} elapsedMs
 * @param {number|null} timeoutMs
 */
export function clockLabel(i18n, elapsedMs, timeoutMs) {
  const elapsed = i18n.clock(elapsedMs);
  return timeoutMs ? i18n.text("clock_of_limit", { elapsed, limit: i18n.duration(timeoutMs) }) : elapsed;
}

/** Return the source of a call's limit, and its idle limit. @param {I18n} i18n @param {Call} call */
export function limitLabel(i18n, call) {
  const source = call.timeoutMs ? `limit_${call.timeoutSource}` : "limit_none";
  const total = i18n.has(source) ? i18n.text(source) : "";
  if (!call.idleTimeoutMs) return total;
  return [total, i18n.text("limit_idle", { limit: i18n.duration(call.idleTimeoutMs) })].filter(Boolean).join(", ");
}

/** Return the current limit and its source. @param {I18n} i18n @param {Call} call */
export function limitFact(i18n, call) {
  const source = limitLabel(i18n, call);
  if (!call.timeoutMs || !source) return source;
  return i18n.text("limit_fact", { limit: i18n.duration(call.timeoutMs), source });
}

/** @param {I18n} i18n @param {Call["limitChanges"][number]} change @param {string} viewer */
export function limitChangeLabel(i18n, change, viewer) {
  const by = change.by === viewer ? i18n.text("author_you_lower") : change.by;
  const limit = change.timeoutMs ? i18n.duration(change.timeoutMs) : i18n.text("limit_none");
  const key = change.isIdle ? "limit_idle_changed" : "limit_changed";
  return i18n.text(by ? `${key}_by` : key, { limit, by });
}

/**
 * Return the text about the activity of an open call.
 * @param {I18n} i18n
 * @param {Call} call
 * @param {number} elapsedMs
 * @param {{now: number, frozenAt: number|null}} at
 */
export function activityLabel(i18n, call, elapsedMs, at) {
  if (call.stoppingAt !== null) {
    if (call.errorType === "timeout") return i18n.text("timing_out");
    return stoppingLabel(i18n, call.stoppingAt, at);
  }
  if (call.status !== "running") return i18n.text(`call_${call.status}`);
  return i18n.text(`tier_${tierOf(elapsedMs, call.expectedMs)}`);
}

/** Return the reason why an open call is waiting, or "" if it is not. @param {I18n} i18n @param {Call} call */
function waitingLabel(i18n, { status, name, waitsFor, stoppingAt }) {
  if (status !== "pending" || waitsFor === null || stoppingAt !== null) return "";
  const { kind, tool, isAlone } = waitsFor;
  return i18n.text(kind === "call" && isAlone ? "waits_for_call_alone" : `waits_for_${kind}`, { tool, own: name });
}

/**
 * Return the most important note to show beside the state of a call.
 * @param {I18n} i18n
 * @param {Call} call
 * @param {string} viewer
 */
export function noteLabel(i18n, call, viewer) {
  if (call.late !== null) return lateLabel(i18n, call);
  const waits = waitingLabel(i18n, call);
  if (waits) return waits;
  if (call.status === "failed" && call.result) return reasonIn(call.result);
  if (call.effects === "cut") return i18n.text("note_cut");
  if (call.status === "running" && call.message) return call.message;
  return verdictLabel(i18n, call, viewer);
}

/** Return the first line of an error, without the prefix that is meant for the model. @param {string} result */
function reasonIn(result) {
  const line = result
    .replace(/^\[[A-Z_]+\]\s*/, "")
    .split("\n")
    .find((text) => text.trim());
  return visible(beginning(line ?? "", MAX_REASON));
}

/** @param {I18n} i18n @param {number} stoppingAt @param {{now: number, frozenAt: number|null}} at */
export function stoppingLabel(i18n, stoppingAt, { now, frozenAt }) {
  if (frozenAt !== null && stoppingAt >= frozenAt) return i18n.text("stopping_later");
  return i18n.text(isStillStopping({ stoppingAt }, now) ? "still_stopping" : "stopping");
}

/** Return the decision on a call and who made it. @param {I18n} i18n @param {Call} call @param {string} viewer */
export function verdictLabel(i18n, call, viewer) {
  const { decision = "", by = "", reason = "", remember = false } = call.approval ?? {};
  if (!decision && call.allowedEarlierBy) {
    const { allowedEarlierBy: by } = call;
    return i18n.text("verdict_earlier", {
      who: by === viewer ? i18n.text("by_user") : i18n.text("by_name", { by }),
    });
  }
  if (decision !== "approved" && decision !== "denied") return "";
  const who = by && by !== viewer ? i18n.text("by_name", { by }) : i18n.text("by_user");
  const verdict = i18n.text(remember ? "verdict_remembered" : `verdict_${decision}`, { who });
  return reason ? i18n.text("verdict_reason", { said: verdict, reason }) : verdict;
}

/** Return the outcome of a call in one line. @param {I18n} i18n @param {Call} call @param {string} viewer */
export function outcomeLabel(i18n, call, viewer) {
  const by = byLabel(i18n, call.endedBy, viewer);
  const after = call.durationMs === null ? "" : i18n.duration(call.durationMs);
  const reached = call.limitReached === "idle" ? call.idleTimeoutMs : call.timeoutMs;
  const limit = i18n.duration(reached ?? call.durationMs ?? 0);
  if (call.status === "abandoned" && call.late !== null) return i18n.text("call_abandoned_settled");
  const key = `call_${call.status}_${call.limitReached}`;
  if (i18n.has(key)) return i18n.text(key, { limit, after });
  switch (call.status) {
    case "succeeded":
      return after;
    case "timed_out":
      return i18n.text("call_timed_out", { limit });
    case "cancelled":
      return i18n
        .text(after && call.durationMs ? "call_cancelled_after" : "call_cancelled", { by, after })
        .replace("  ", " ");
    case "failed":
      return failureLabel(i18n, call, after);
    default:
      return i18n.text(`call_${call.status}`, { by });
  }
}

/** @param {I18n} i18n @param {Call} call @param {string} after */
function failureLabel(i18n, call, after) {
  const key = `error_${call.errorType}`;
  if (i18n.has(key)) return i18n.text(key);
  const isWorthSaying = (call.durationMs ?? 0) >= NOTEWORTHY_MS;
  return isWorthSaying ? i18n.text("call_failed_after", { after }) : i18n.text("call_failed");
}

/**
 * Return who or what ended a call or a turn, for example "by you", "by an admin" or "at its time limit".
 * @param {I18n} i18n
 * @param {EndedBy|null} endedBy
 * @param {string} viewer
 */
export function byLabel(i18n, endedBy, viewer) {
  if (!endedBy) return "";
  const { reason, by } = endedBy;
  if (reason && reason !== "user") {
    const named = reason === "admin" && by ? "by_admin_named" : `by_${reason}`;
    return i18n.has(named) ? i18n.text(named, { by }) : "";
  }
  return by && by !== viewer ? i18n.text("by_name", { by }) : i18n.text("by_user");
}

/** The codes of notices after which the turn continues. */
const NOTES = new Set(["answer_cut_off", "answer_empty", "fallback", "tools_left_out", "tools_starting"]);

/**
 * Return the line under a turn that did not complete normally, or null if it did.
 * @param {I18n} i18n
 * @param {Turn} turn
 * @param {string} viewer
 * @returns {{title: string, detail: string}|null}
 */
export function endingLabel(i18n, turn, viewer) {
  const failure = NOTES.has(turn.errorCode) ? "" : turn.errorMessage; // such a notice is not the reason why the turn ended
  switch (turn.status) {
    case "cancelled": {
      const by = byLabel(i18n, turn.endedBy, viewer);
      if (!turn.isBegun) return { title: i18n.text("turn_not_sent"), detail: i18n.text("call_cancelled", { by }) };
      return { title: i18n.text("turn_cancelled"), detail: by };
    }
    case "timed_out":
      return { title: i18n.text("turn_cancelled"), detail: i18n.text("by_timeout") };
    case "interrupted":
      return { title: i18n.text("turn_interrupted"), detail: failure || i18n.text("by_restart") };
    case "failed":
      return { title: i18n.text("turn_failed"), detail: failure || failedTurnLabel(i18n, turn.errorCode) };
    default:
      return null;
  }
}

/** @param {I18n} i18n @param {string} code */
function failedTurnLabel(i18n, code) {
  const key = `turn_failed_${code}`;
  return i18n.text(i18n.has(key) ? key : "turn_failed_detail");
}

/** @param {I18n} i18n @param {Call} call */
const lateLabel = (i18n, call) =>
  call.late === null
    ? ""
    : i18n.text(call.late.kind === "process_ended" ? "late_process" : "late", {
        after: i18n.duration(call.late.afterMs ?? 0),
      });

/** Return the most important argument of a call, shortened. @param {ReadonlyArray<import("../state/types.js").Argument>} all @returns {string} */
export function shortInput(all) {
  const others = all.filter(({ name }) => name !== "_meta");
  const rankOf = (/** @type {string} */ name) => MAIN_ARGUMENTS.indexOf(name) + 1 || Infinity;
  const main = others.reduce(
    (best, each) => (rankOf(each.name) < rankOf(best.name) ? each : best),
    others[0] ?? NO_ARGUMENT,
  );
  const { name, value, isText } = main;
  return beginning(isText || !name ? value : `${name}: ${value.replace(/\n\s*/g, "")}`, MAX_INPUT);
}

/** Return a text, shortened to a length. @param {string} text @param {number} length */
function beginning(text, length) {
  const head = text.slice(0, length).replace(/[\ud800-\udbff]$/, ""); // drop half of a surrogate pair
  return text.length > length ? `${head}…` : text;
}

/**
 * Return the text about the activity of a background sub-agent.
 * @param {I18n} i18n
 * @param {import("../state/types.js").Work} work
 * @param {Parameters<typeof stoppingLabel>[2]} at
 */
export function workLabel(i18n, { agent, status, tools, stoppingAt }, at) {
  const waits = i18n.text(status === "queued" ? "work_queued" : "work_thinking");
  const doing = stoppingAt === null ? tools.join(", ") || waits : stoppingLabel(i18n, stoppingAt, at);
  return i18n.text("work_doing", { agent, doing });
}

import assert from "node:assert/strict";
import { test } from "node:test";

import { callFromWire } from "../../../static/webchat/js/state/calls.js";
import { tierOf } from "../../../static/webchat/js/state/status.js";
import { newTurn } from "../../../static/webchat/js/state/turns.js";
import { I18n } from "../../../static/webchat/js/view/i18n.js";
import {
  activityLabel,
  byLabel,
  clockLabel,
  endingLabel,
  limitLabel,
  noteLabel,
  outcomeLabel,
  shortInput,
} from "../../../static/webchat/js/view/labels.js";
import { CLOCK } from "../fixtures.js";

const i18n = new I18n(
  {
    seconds: "{n} s",
    minutes: "{n} min",
    under_tenth: "< 0.1 s",
    clock_of_limit: "{elapsed} / {limit}",
    tier_running: "running",
    note_cut: "stopped midway: it may have had an effect",
    tier_slow: "slow",
    tier_very_slow: "very slow",
    call_pending: "waiting to start",
    waits_for_call: "waiting for {tool}, which must run alone",
    waits_for_call_alone: "waiting for {tool}, because {own} must run alone",
    verdict_earlier: "allowed earlier {who}",
    waits_for_slot: "waiting for a free slot on the server",
    call_abandoned_settled: "abandoned; it has since ended",
    call_timed_out: "timed out after {limit}",
    call_timed_out_idle: "timed out: no progress for {limit}",
    call_abandoned_idle: "no progress for {limit}; it may still be running",
    call_cancelled: "cancelled {by}",
    call_cancelled_after: "cancelled {by} after {after}",
    call_failed: "failed",
    call_failed_after: "failed after {after}",
    call_abandoned: "may still be running",
    error_unknown_tool: "no such tool",
    stopping: "Stopping…",
    still_stopping: "Still stopping…",
    stopping_later: "Will be cancelled when connected",
    limit_none: "no limit",
    limit_override: "admin limit for this tool",
    by_user: "by you",
    by_name: "by {by}",
    by_admin: "by an admin",
    by_admin_named: "by an admin ({by})",
    by_timeout: "because it reached its time limit",
    by_restart: "the server restarted",
    turn_cancelled: "Task cancelled",
    turn_not_sent: "Not sent",
    turn_interrupted: "Task interrupted",
    turn_failed: "Task failed",
    turn_failed_detail: "Something went wrong.",
    turn_failed_step_limit: "Too many steps.",
    tools_one: "{n} tool",
    tools_other: "{n} tools",
  },
  "en",
);
const live = { now: 0, frozenAt: null };

/** @param {Record<string, unknown>} wire */
const call = (wire) => callFromWire({ tool_id: "a", tool_name: "wait", ...wire }, CLOCK);

test("a clock shows tenths under ten seconds, then seconds, then minutes", () => {
  assert.deepEqual(
    [0, 1_240, 9_999, 12_400, 59_999, 65_000, 312_000, 3_725_000].map((ms) => i18n.clock(ms)),
    ["0.0 s", "1.2 s", "9.9 s", "12 s", "59 s", "01:05", "05:12", "1:02:05"],
  );
});

test("a duration is short and exact", () => {
  assert.deepEqual(
    [40, 8_700, 30_004, 59_960, 60_000, 90_000, 600_000].map((ms) => i18n.duration(ms)),
    ["< 0.1 s", "8.7 s", "30 s", "60 s", "1 min", "01:30", "10 min"],
  );
});

test("the clock names the limit, and an unlimited call has none", () => {
  assert.equal(clockLabel(i18n, 12_400, 30_000), "12 s / 30 s");
  assert.equal(clockLabel(i18n, 12_400, null), "12 s");
  assert.equal(limitLabel(i18n, call({ timeout_ms: 30_000, timeout_source: "override" })), "admin limit for this tool");
  assert.equal(limitLabel(i18n, call({ timeout_ms: 0 })), "no limit");
});

test("the tiers turn at ten and at thirty seconds, later where a tool is expected to take long", () => {
  assert.deepEqual(
    [9_999, 10_000, 30_000, 30_001].map((ms) => tierOf(ms)),
    ["running", "slow", "slow", "very_slow"],
  );
  assert.deepEqual(
    [50_000, 60_000, 60_001].map((ms) => tierOf(ms, 60_000)),
    ["running", "slow", "very_slow"],
  );
});

test("a call that is asked to stop says so, and after three seconds that it still tries", () => {
  const stopping = { ...call({ status: "running" }), stoppingAt: 0 };
  assert.equal(activityLabel(i18n, stopping, 5_000, { ...live, now: 2_000 }), "Stopping…");
  assert.equal(activityLabel(i18n, stopping, 5_000, { ...live, now: 3_500 }), "Still stopping…");
  assert.equal(activityLabel(i18n, stopping, 5_000, { now: 9_000, frozenAt: 0 }), "Will be cancelled when connected");
});

test("a call that waits says for what", () => {
  const said = (/** @type {Record<string, unknown>} */ wire) =>
    noteLabel(i18n, call({ status: "pending", ...wire }), "ada");
  assert.equal(activityLabel(i18n, call({ status: "pending" }), 0, live), "waiting to start");
  assert.equal(said({}), "");
  const waits_for = { kind: "call", tool_id: "a", tool_name: "exec" };
  assert.equal(said({ waits_for }), "waiting for exec, which must run alone");
  assert.equal(said({ waits_for, concurrency: "exclusive" }), "waiting for exec, because wait must run alone");
  assert.equal(said({ waits_for: { kind: "slot" } }), "waiting for a free slot on the server");
});

test("what is worth reading beside a call is one line: a reason, its progress, or who allowed it", () => {
  const said = (/** @type {Record<string, unknown>} */ wire) => noteLabel(i18n, call(wire), "ada");
  assert.equal(said({ status: "failed", result: "[ERROR] \nNo such\u202e file.\nMore." }), "No such\\u{202e} file.");
  assert.equal(said({ status: "failed", result: "x".repeat(500) }), `${"x".repeat(200)}…`);
  assert.equal(said({ status: "running", message: "2 of 3" }), "2 of 3");
  assert.equal(said({ status: "running", allowed_earlier_by: "ada", message: "2 of 3" }), "2 of 3");
  assert.equal(said({ status: "running", allowed_earlier_by: "ada" }), "allowed earlier by you");
  assert.equal(said({ status: "succeeded", allowed_earlier_by: "eve" }), "allowed earlier by eve");
  assert.equal(said({ status: "succeeded", message: "2 of 3" }), "");
  assert.equal(said({ status: "cancelled", effects: "cut" }), "stopped midway: it may have had an effect");
  assert.equal(said({ status: "cancelled", effects: "none" }), "");
});

test("every end of a call has its words", () => {
  const byAda = { reason: "user", source: "button", by: "ada" };
  const said = (/** @type {Record<string, unknown>} */ wire) => outcomeLabel(i18n, call(wire), "ada");
  assert.equal(said({ status: "succeeded", duration_ms: 8_700 }), "8.7 s");
  assert.equal(said({ status: "timed_out", duration_ms: 30_004, timeout_ms: 30_000 }), "timed out after 30 s");
  const idle = { timeout_ms: 30_000, idle_timeout_ms: 1_500, limit_reached: "idle", duration_ms: 1_503 };
  assert.equal(said({ status: "timed_out", ...idle }), "timed out: no progress for 1.5 s");
  assert.equal(said({ status: "abandoned", ...idle }), "no progress for 1.5 s; it may still be running");
  const late = { kind: "returned", after_ms: 7_300 };
  assert.equal(said({ status: "abandoned", ...idle, late }), "abandoned; it has since ended");
  assert.equal(said({ status: "cancelled", duration_ms: 11_500, ended_by: byAda }), "cancelled by you after 11.5 s");
  assert.equal(said({ status: "cancelled", duration_ms: 0, ended_by: byAda }), "cancelled by you");
  assert.equal(said({ status: "failed", duration_ms: 1_200 }), "failed after 1.2 s");
  assert.equal(said({ status: "failed", duration_ms: 3 }), "failed");
  assert.equal(said({ status: "failed", error_type: "unknown_tool" }), "no such tool");
  assert.equal(said({ status: "abandoned", duration_ms: 30_000 }), "may still be running");
});

test("who ended it is told from the viewer's side", () => {
  assert.equal(byLabel(i18n, { reason: "user", source: "button", by: "ada" }, "ada"), "by you");
  assert.equal(byLabel(i18n, { reason: "user", source: "button", by: "eve" }, "ada"), "by eve");
  assert.equal(byLabel(i18n, { reason: "admin", source: "admin", by: "" }, "ada"), "by an admin");
  assert.equal(byLabel(i18n, { reason: "admin", source: "admin", by: "root" }, "ada"), "by an admin (root)");
});

test("a turn's end has a line, a completed one has none", () => {
  const turn = newTurn("t", CLOCK);
  const by = { reason: "user", source: "button", by: "ada" };
  assert.equal(endingLabel(i18n, { ...turn, status: "completed" }, "ada"), null);
  assert.deepEqual(endingLabel(i18n, { ...turn, status: "cancelled", endedBy: by }, "ada"), {
    title: "Task cancelled",
    detail: "by you",
  });
  assert.deepEqual(endingLabel(i18n, { ...turn, status: "cancelled", endedBy: by, isBegun: false }, "ada"), {
    title: "Not sent",
    detail: "cancelled by you",
  });
  assert.equal(endingLabel(i18n, { ...turn, status: "timed_out" }, "ada")?.detail, "because it reached its time limit");
  assert.equal(
    endingLabel(i18n, { ...turn, status: "failed", errorCode: "step_limit" }, "ada")?.detail,
    "Too many steps.",
  );
  assert.equal(endingLabel(i18n, { ...turn, status: "failed", errorMessage: "No key." }, "ada")?.detail, "No key.");
  const interrupted = { ...turn, status: "interrupted" };
  assert.equal(endingLabel(i18n, interrupted, "ada")?.detail, "the server restarted");
  const noted = { ...interrupted, errorCode: "tools_left_out", errorMessage: "This agent has 200 tools." };
  assert.equal(endingLabel(i18n, noted, "ada")?.detail, "the server restarted");
  assert.doesNotMatch(endingLabel(i18n, { ...noted, status: "failed" }, "ada")?.detail ?? "", /200 tools/);
  const notStored = { ...interrupted, errorMessage: "It may have been applied." };
  assert.equal(endingLabel(i18n, notStored, "ada")?.detail, "It may have been applied.");
});

test("numbers choose their form, and a text that is missing shows its name", () => {
  assert.equal(i18n.count("tools", 1), "1 tool");
  assert.equal(i18n.count("tools", 3), "3 tools");
  assert.equal(i18n.text("unknown"), "unknown");
});

test("every number in a sentence is written as the language writes it", () => {
  const german = new I18n({ tokens_one: "{n} Token", tokens_other: "{n} Tokens", place: "{k} von {n}" }, "de");
  const english = new I18n({ tokens_one: "{n} token", tokens_other: "{n} tokens" }, "en");
  assert.equal(english.count("tokens", 1234), "1,234 tokens");
  assert.equal(german.count("tokens", 1234), "1.234 Tokens");
  assert.equal(german.text("place", { k: 3, n: 12_345 }), "3 von 12.345");
});

test("what a person typed cannot name a parameter of a text", () => {
  assert.equal(i18n.text("by_name", { by: "{n} $& $1" }), "by {n} $& $1");
});

test("arguments are told by the one that says most", () => {
  const text = (/** @type {string} */ name, /** @type {string} */ value) => ({ name, value, isText: true });
  const json = (/** @type {string} */ name, /** @type {string} */ value) => ({ name, value, isText: false });
  assert.equal(shortInput([json("timeout_ms", "5"), text("path", "."), text("command", "ls -l")]), "ls -l");
  assert.equal(shortInput([json("order", "9007199254740993"), json("seconds", "1.0")]), "order: 9007199254740993");
  assert.equal(shortInput([json("list", '[\n  "x"\n]')]), 'list: ["x"]');
  assert.equal(shortInput([json("_meta", "{}")]), "");
  assert.equal(shortInput([text("", "bare")]), "bare");
  assert.equal(shortInput([text("text", "x".repeat(500))]).length, 121);
});

test("a name that runs from right to left leaves the words beside it in their places", () => {
  const sentences = new I18n({ asks: "{tool} wants to run. Allow it?" }, "en");
  assert.equal(sentences.text("asks", { tool: "wait" }), "wait wants to run. Allow it?");
  assert.equal(sentences.text("asks", { tool: "\u05d0 1" }), "\u2068\u05d0 1\u2069 wants to run. Allow it?");
});

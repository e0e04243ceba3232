import assert from "node:assert/strict";
import { test } from "node:test";

import { newTurn } from "../../../static/webchat/js/state/turns.js";
import { I18n } from "../../../static/webchat/js/view/i18n.js";
import { factsOf, hasOutcome } from "../../../static/webchat/js/view/message_actions.js";
import { CLOCK } from "../fixtures.js";

const i18n = new I18n({ seconds: "{n} s", tokens_one: "{n} token", tokens_other: "{n} tokens" }, "en");

/** @param {"user"|"agent"} kind @param {string} at @returns {import("../../../static/webchat/js/state/types.js").TextItem} */
const said = (kind, at) => ({
  kind,
  at,
  key: `${kind} ${at}`,
  text: "Tulips",
  html: "",
  attachments: [],
  interrupted: false,
  unstored: null,
  streaming: false,
});
const asked = said("user", "2030-01-01T09:30:00");
const answered = said("agent", "2030-01-01T09:41:00");

test("The facts are the time of the answer, the duration and the tokens.", () => {
  const turn = { ...newTurn("t1", CLOCK, "completed"), items: [asked, answered], durationMs: 2_500, tokens: 1 };
  assert.match(factsOf(turn, i18n).join(" · "), /^9:41\sAM · 2.5 s · 1 token$/u);
  assert.equal(factsOf({ ...turn, tokens: 12 }, i18n)[2], "12 tokens");
});

test("A fact that is not known is left out.", () => {
  assert.deepEqual(factsOf(newTurn("t1", CLOCK, "cancelled"), i18n), []);
  const turn = { ...newTurn("t1", CLOCK, "cancelled"), items: [asked], durationMs: 1_000 };
  assert.match(factsOf(turn, i18n).join(" · "), /^9:30\sAM · 1 s$/u);
});

test("Each turn that has begun and is over has a line, with or without an answer.", () => {
  for (const status of ["cancelled", "failed", "interrupted", "timed_out"]) {
    assert.equal(hasOutcome(newTurn("t1", CLOCK, status)), true, status);
    assert.equal(hasOutcome({ ...newTurn("t1", CLOCK, status), isBegun: false }), false, status);
  }
  for (const status of ["queued", "running", "cancelling"])
    assert.equal(hasOutcome(newTurn("t1", CLOCK, status)), false, status);
  for (const items of [[asked], [asked, answered]])
    assert.equal(hasOutcome({ ...newTurn("t1", CLOCK, "completed"), items }), true);
});

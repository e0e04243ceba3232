/** The finished blocks of a streaming answer. Their frames and those of the text come in any order. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { renderedLength } from "../../../static/webchat/js/state/turns.js";
import { asks, EMPTY_SNAPSHOT, ends, numbered, opened, play, START, starts, TURN } from "../fixtures.js";

/** @typedef {import("../fixtures.js").Sketch} Sketch */
/** @typedef {import("../../../static/webchat/js/state/types.js").State} State */

const TEXT = "# 😀\n\nSaid.\n\nMore";
const HEAD = "<h1>😀</h1>\n";
const SAID = "<p>Said.</p>\n";

/** @param {string} text @param {number} offset @param {number} [step] @returns {Sketch} */
const piece = (text, offset, step = 1) => ({ type: "text_delta", turn_id: TURN, text, offset, step });

/** @param {number} offset @param {number} end @param {string} html @returns {Sketch} */
const blocks = (offset, end, html) => ({ type: "text_html", turn_id: TURN, offset, end, html });

const FIRST = blocks(0, 5, HEAD);
const SECOND = blocks(5, 12, SAID);
const RUNNING = opened(...numbered([START]));
const SHOWN = play(RUNNING, [piece(TEXT, 0), FIRST, SECOND]);

/** What the page shows of the answer that streams: what is rendered, and the rest as text. @param {State} state */
function shown({ turns: [turn] }) {
  assert.ok(turn);
  return [turn.blocks.map(({ html }) => html).join(""), turn.partial.slice(renderedLength(turn))];
}

test("what is rendered stands before the rest of the text, which goes on", () => {
  assert.deepEqual(shown(SHOWN), [HEAD + SAID, "More"]);
  assert.deepEqual(shown(play(SHOWN, [piece(" of it", 16)])), [HEAD + SAID, "More of it"]);
});

test("blocks count once, however often they come, and only behind those before them", () => {
  assert.deepEqual(play(SHOWN, [FIRST, SECOND, FIRST]), SHOWN);
  const early = play(RUNNING, [piece(TEXT, 0), SECOND]);
  assert.deepEqual(shown(early), ["", TEXT]);
  assert.deepEqual(play(early, [FIRST, SECOND]), SHOWN);
});

test("blocks whose text is not there yet change nothing", () => {
  const begun = play(RUNNING, [piece("# 😀\n", 0)]);
  assert.deepEqual(play(begun, [FIRST]), begun);
  assert.deepEqual(play(RUNNING, [FIRST]), RUNNING);
});

test("a gap in the text leaves what is rendered; the whole text leaves it, too, if it begins so", () => {
  const torn = play(SHOWN, [piece("lost", 90)]);
  assert.equal(torn.turns[0]?.needsResync, true);
  const longer = play(torn, [piece(`${TEXT} of it`, 0)]);
  assert.deepEqual(shown(longer), [HEAD + SAID, "More of it"]);
  assert.deepEqual(play(longer, [FIRST, SECOND]), longer);
  const shorter = play(SHOWN, [piece("# 😀\n\nSa", 0)]);
  assert.deepEqual(shown(shorter), ["", "# 😀\n\nSa"]);
  const other = play(SHOWN, [piece("Next", 0, 2)]);
  assert.deepEqual(shown(other), ["", "Next"]);
});

test("the message takes the place of all of it, and what comes late changes nothing", () => {
  const finished = play(SHOWN, numbered([{ ...asks("a"), step: 1 }, starts("a")], 2));
  assert.deepEqual(shown(finished), ["", ""]);
  assert.deepEqual(play(finished, [FIRST, SECOND, piece(TEXT, 0), FIRST]).turns, finished.turns);
  const next = play(finished, [piece("# 😀\n\n", 0, 2), FIRST]);
  assert.deepEqual(shown(next), [HEAD, ""]);
});

test("a turn that ends without its message keeps the text as it was shown, and says that it is lost", () => {
  const cut = play(SHOWN, numbered([ends("interrupted")], 2));
  assert.deepEqual(shown(cut), ["", ""]);
  const last = cut.turns[0]?.items.at(-1);
  assert.ok(last?.kind === "agent");
  assert.equal(last.text, TEXT);
  assert.deepEqual([last.html, last.unstored], shown(SHOWN));
  assert.deepEqual(play(cut, [FIRST]), cut);
});

test("who comes in the middle sees what the others see", () => {
  const live = { turn_id: TURN, number: 1, user_message: "wait 20", partial_text: "# 😀\n\nSa" };
  /** @type {Sketch} */
  const snapshot = { ...EMPTY_SNAPSHOT, seq: 1, active_turns: [live] };
  const late = play(opened(), [snapshot, piece(TEXT, 0), FIRST, SECOND]);
  assert.deepEqual(shown(late), shown(SHOWN));
});

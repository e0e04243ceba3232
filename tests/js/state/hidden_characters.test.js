import assert from "node:assert/strict";
import { test } from "node:test";

import { callFromQuestion, callFromWire } from "../../../static/webchat/js/state/calls.js";
import { visible } from "../../../static/webchat/js/state/hidden_characters.js";
import { shortInput } from "../../../static/webchat/js/view/labels.js";
import { asks, CLOCK, numbered, opened, START } from "../fixtures.js";

/** @param {number} code */
const written = (code) => `\\u{${code.toString(16).padStart(4, "0")}}`;

test("what cannot be seen, or looks like a space, is written out", () => {
  const hidden = [
    ...[0x00, 0x07, 0x0d, 0x1b, 0x7f, 0x85, 0xa0, 0xad, 0x034f, 0x061c, 0x115f, 0x1160, 0x1680, 0x17b4, 0x17b5],
    ...[0x180b, 0x180e, 0x180f, 0x2000, 0x2003, 0x200a, 0x200b, 0x200d, 0x200e, 0x2028, 0x2029, 0x202e, 0x202f],
    ...[0x205f, 0x2060, 0x2064, 0x2066, 0x206f, 0x2800, 0x3000, 0x3164, 0xe000, 0xfe00, 0xfe0f, 0xfeff, 0xffa0],
    ...[0xfff9, 0xffff, 0x13441, 0x16fe4, 0x1d159, 0x1d173, 0xe0001, 0xe0020, 0xe0100, 0xf0000],
  ];
  for (const code of hidden) {
    assert.equal(visible(`rm${String.fromCodePoint(code)}-rf`), `rm${written(code)}-rf`);
    assert.equal(visible(String.fromCodePoint(code)), written(code));
  }
  assert.equal(visible("a\ud800b"), "a\\u{d800}b");
});

test("lines and tabs stay as they are", () => {
  assert.equal(visible("if x:\n\tprint('ok')  # done\n"), "if x:\n\tprint('ok')  # done\n");
  assert.equal(visible(""), "");
});

test("plain text of any language stays plain", () => {
  for (const text of [
    "Où est le garçon\u2009?".replace("\u2009", " "),
    "de\u0301ja\u0300 vu, cœur, naïveté",
    "Удали файл отчёт_v2.pdf из папки",
    "USB-кабель, п'ять, ещё 5й раз",
    "Αθήνα και Ελλάδα",
    "Größe, Straße, İstanbul, Łódź, Đà Nẵng",
    "東京タワーでTシャツを買う、データbase",
    "한국KBS 뉴스",
    "3D打印",
    "שלום עולם, السلام عليكم ۱۲۳",
    "नमस्ते दुनिया, สวัสดี, ᏣᎳᎩ",
    "5 µm ± 2 °C → 50 % … “quoted” – done ✓ 😀",
  ]) {
    assert.equal(visible(text), text);
  }
});

test("look-alikes are written out in words that mix scripts, and nowhere else", () => {
  assert.equal(visible("curl https://p\u0430yp\u0430l.com/файл"), "curl https://p\\u{0430}yp\\u{0430}l.com/файл");
  assert.equal(visible("g\u043e\u043egle"), "g\\u{043e}\\u{043e}gle");
  assert.equal(visible("\u03bfpen"), "\\u{03bf}pen");
  assert.equal(visible("\u0430\u03bf"), "\\u{0430}\\u{03bf}");
  assert.equal(visible("\u0410PI \u0410ПИ"), "\\u{0410}PI АПИ");
  assert.equal(visible("\u13a0bc"), "\\u{13a0}bc");
  assert.equal(visible("p\u200b\u0430"), "p\\u{200b}\u0430"); // two words, and what parts them is seen
});

test("the same holds in a question: name, agent, host, description and arguments", () => {
  const frame = {
    tool_id: "a",
    tool_name: "re\u200bad",
    arguments: [
      { name: "na\u3164me", value: "x\u00a0y", is_text: true },
      { name: "order", value: "9007199254740993", is_text: false },
    ],
    host: "p\u0430ypal.com",
    description: "Reads.\nNo\u202eting.",
    sub_agent: { child_conversation_id: "c", agent: "help\u2800er" },
  };
  const call = callFromQuestion(/** @type {any} */ (frame), 0, CLOCK);
  assert.equal(call.name, "re\\u{200b}ad");
  assert.equal(call.subAgent?.agent, "help\\u{2800}er");
  assert.equal(call.approval?.host, "p\\u{0430}ypal.com");
  assert.equal(call.approval?.description, "Reads.\nNo\\u{202e}ting.");
  assert.deepEqual(call.arguments, [
    { name: "na\\u{3164}me", value: "x\\u{00a0}y", isText: true },
    { name: "order", value: "9007199254740993", isText: false },
  ]);
});

test("the same holds on a card: its head line and what its tool says meanwhile", () => {
  const wire = { name: "command", value: "ls\u115f -l", is_text: true };
  assert.equal(shortInput(callFromWire({ tool_id: "a", arguments: [wire] }, CLOCK).arguments), "ls\\u{115f} -l");
  const long = shortInput([{ name: "command", value: `${"x".repeat(119)}😀 and more`, isText: true }]);
  assert.equal(long, `${"x".repeat(119)}…`);
  assert.equal(callFromWire({ tool_id: "a", message: "50\u200b %" }, CLOCK).message, "50\\u{200b} %");
  /** @type {import("../fixtures.js").Sketch} */
  const progress = { type: "tool_progress", tool_id: "a", message: "half\u2800way" };
  const state = opened(...numbered([START, asks("a")]), ...numbered([progress], 3));
  assert.equal(state.turns[0]?.calls.a?.message, "half\\u{2800}way");
});

test("marks that are piled up on a letter do not cover what stands around it", () => {
  assert.equal(visible(`a${"\u0301".repeat(4)}b`), `a${"\u0301".repeat(4)}b`);
  assert.equal(visible(`a${"\u0301".repeat(6)}b`), `a${"\u0301".repeat(4)}\\u{0301}\\u{0301}b`);
  assert.equal(visible("Việt กี่ שָׁ"), "Việt กี่ שָׁ");
});

test("a title that is long when it is written out leaves room for the answers below it", () => {
  const { title } = callFromWire(
    { tool_id: "a", tool_name: "x_a", tool_title: "Z".padEnd(80, "\u0300"), input: {} },
    CLOCK,
  );
  assert.equal(title.length, 100);
  assert.ok(title.endsWith("…"));
});

/** When a list of conversations is behind what was said of them. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { listedConversations } from "../../../static/webchat/js/state/overview.js";
import { ConversationList, KnownConversations } from "../../../static/webchat/js/view/conversation_list.js";
import { opened } from "../fixtures.js";

/** @param {string} id @param {string} [title] @param {string} [standing] */
const told = (id, title = "", standing = "") => ({ id, title, standing });

test("a conversation that is not shown is news, once", () => {
  const known = new KnownConversations([told("a", "One")]);
  assert.equal(known.update([told("b", "", "working")]), true);
  assert.equal(known.update([told("b", "", "working")]), false);
  assert.equal(known.update([told("b"), told("a")]), true);
  assert.equal(known.update([told("b"), told("a")]), false);
});

test("a title is news where it is said and another one", () => {
  const known = new KnownConversations([told("a", "New conversation")]);
  assert.equal(known.update([told("a")]), false);
  assert.equal(known.update([told("a", "wait 20")]), true);
  assert.equal(known.update([told("a", "wait 20")]), false);
});

test("what begins to work or comes to rest is news; what works on is not", () => {
  const known = new KnownConversations([told("a", "One", "working"), told("b", "Two")]);
  assert.equal(known.update([told("a", "", "asking")]), false);
  assert.equal(known.update([told("a", "", "working"), told("b", "", "working")]), true);
  assert.equal(known.update([told("b", "", "working")]), true);
  assert.equal(known.update([told("b", "", "asking")]), false);
  assert.equal(known.update([]), true);
  assert.equal(known.update([]), false);
});

test("what an overview says of the list: all that are not at rest, and the latest with its title", () => {
  const conversations = [{ conversation_id: "a", standing: "working", asked_in: [] }];
  const overview = { type: /** @type {const} */ ("overview"), conversations, questions: [] };
  const of = (/** @type {object|null} */ latest) => listedConversations(opened({ ...overview, latest }));
  assert.deepEqual(of(null), [told("a", "", "working")]);
  assert.deepEqual(of({ conversation_id: "a", title: "One" }), [told("a", "One", "working")]);
  assert.deepEqual(of({ conversation_id: "b", title: "" }), [told("a", "", "working"), told("b")]);
});

test("of two answers that wait for the pointer the later one is shown, whichever wakes first", async () => {
  let now = 0;
  /** @type {Array<() => void>} */
  const pauses = [];
  const page = (/** @type {string} */ search) => ({ querySelector: () => null, childNodes: [search] });
  mock.method(performance, "now", () => now);
  mock.method(globalThis, "setTimeout", (/** @type {() => void} */ wake) => pauses.push(wake));
  mock.method(
    globalThis,
    "fetch",
    async (/** @type {URL} */ address) => new Response(address.searchParams.get("search")),
  );
  Object.assign(globalThis, {
    document: { activeElement: null },
    location: { href: "http://here/" },
    HTMLElement: class {},
    DOMParser: class {
      parseFromString = (/** @type {string} */ text) => ({ getElementById: () => page(text) });
    },
  });
  let move = () => {};
  let shown = "";
  const region = {
    dataset: { listUrl: "/" },
    addEventListener: (/** @type {string} */ _event, /** @type {() => void} */ listener) => {
      move = listener;
    },
    contains: () => false,
    querySelector: () => null,
    querySelectorAll: () => [],
    replaceChildren: (/** @type {string} */ search) => {
      shown = search;
    },
  };
  const list = new ConversationList(/** @type {any} */ (region));
  move();
  const looks = [];
  for (const search of ["tul", "tulips"]) {
    looks.push(list.search(search));
    while (pauses.length < looks.length) await new Promise(setImmediate);
  }
  now = 10_000;
  for (const wake of pauses.toReversed()) {
    wake();
    await new Promise(setImmediate);
  }
  await Promise.all(looks);
  assert.equal(shown, "tulips");
  mock.restoreAll();
});

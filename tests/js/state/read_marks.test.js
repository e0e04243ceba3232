/** How far a person has looked at each conversation, over reloads and in every tab. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ReadMarks } from "../../../static/webchat/js/state/storage.js";

/** A storage like the browser's. */
function storage() {
  /** @type {Map<string, string>} */
  const kept = new Map();
  return {
    getItem: (/** @type {string} */ key) => kept.get(key) ?? null,
    setItem: (/** @type {string} */ key, /** @type {string} */ value) => void kept.set(key, value),
  };
}

test("what a list shows for the first time counts as looked at; what happens after is unread until it is seen", () => {
  const shared = storage();
  const marks = new ReadMarks(shared, "ada");
  assert.equal(marks.isUnread("a", 7), false);
  assert.equal(marks.isUnread("a", 9), true);
  const reloaded = new ReadMarks(shared, "ada");
  assert.equal(reloaded.isUnread("a", 9), true);
  reloaded.see("a", 9);
  assert.equal(reloaded.isUnread("a", 9), false);
  assert.equal(marks.isUnread("a", 9), true);
  marks.reload();
  assert.equal(marks.isUnread("a", 9), false);
});

test("two tabs keep each other's marks, and an older number takes nothing back", () => {
  const shared = storage();
  const [one, other] = [new ReadMarks(shared, "ada"), new ReadMarks(shared, "ada")];
  one.see("a", 5);
  other.see("b", 6);
  other.see("a", 3);
  const later = new ReadMarks(shared, "ada");
  assert.deepEqual([later.isUnread("a", 5), later.isUnread("b", 6)], [false, false]);
  assert.deepEqual([later.isUnread("a", 6), later.isUnread("b", 7)], [true, true]);
});

test("another user of the browser has marks of their own, and a broken storage has none", () => {
  const shared = storage();
  new ReadMarks(shared, "ada").see("a", 5);
  const eve = new ReadMarks(shared, "eve");
  assert.equal(eve.isUnread("a", 9), false);
  shared.setItem("seen:bob", "{broken");
  assert.equal(new ReadMarks(shared, "bob").isUnread("a", 1), false);
  shared.setItem("seen:bob", '{"a": 1}');
  assert.equal(new ReadMarks(shared, "bob").isUnread("a", 1), false);
});

test("the oldest marks go first where there are many", () => {
  const shared = storage();
  const marks = new ReadMarks(shared, "ada");
  for (let number = 0; number <= 500; number += 1) marks.see(`c${number}`, 1);
  const later = new ReadMarks(shared, "ada");
  assert.deepEqual([later.isUnread("c0", 2), later.isUnread("c500", 2)], [false, true]);
});

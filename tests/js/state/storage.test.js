/** What a page keeps where its browser keeps nothing. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { SafeStorage } from "../../../static/webchat/js/state/storage.js";

const PAGE = new URL("../../../static/webchat/js/", import.meta.url).pathname;
const OWN = ["state/storage.js", "theme.js"]; // the theme is a classic script

test("a full storage keeps what it had, and the page what came then", () => {
  /** @type {Map<string, string>} */
  const kept = new Map();
  let isFull = false;
  const browser = {
    getItem: (/** @type {string} */ key) => kept.get(key) ?? null,
    setItem: (/** @type {string} */ key, /** @type {string} */ value) => {
      if (isFull) throw new Error("QuotaExceededError");
      kept.set(key, value);
    },
    removeItem: (/** @type {string} */ key) => void kept.delete(key),
  };
  const storage = new SafeStorage(() => browser);
  storage.setItem("a", "1");
  isFull = true;
  storage.setItem("a", "2");
  assert.deepEqual([storage.getItem("a"), kept.get("a")], ["2", "1"]);
  isFull = false;
  storage.setItem("a", "3");
  assert.deepEqual([storage.getItem("a"), kept.get("a")], ["3", "3"]);
  isFull = true;
  storage.setItem("a", "4");
  storage.removeItem("a");
  assert.deepEqual([storage.getItem("a"), kept.size], [null, 0]);
});

test("a storage that is forbidden or not there lasts as long as the page", () => {
  const forbidden = () => {
    throw new Error("SecurityError");
  };
  for (const browser of [forbidden, () => /** @type {any} */ (null)]) {
    const storage = new SafeStorage(browser);
    assert.equal(storage.getItem("a"), null);
    storage.setItem("a", "1");
    assert.equal(storage.getItem("a"), "1");
    storage.removeItem("a");
    assert.equal(storage.getItem("a"), null);
  }
});

test("nothing on the page keeps anything in another way", () => {
  const files = readdirSync(PAGE, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".js"));
  const users = files.filter((name) => /(local|session)Storage\b/.test(readFileSync(join(PAGE, name), "utf8")));
  assert.deepEqual(users.sort(), OWN);
});

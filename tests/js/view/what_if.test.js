/** What is said beside a limit while it is typed: of this number and of no other, whatever else is typed meanwhile. */

import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

/** @type {Array<{tool: string, answer: (told: string) => void, fail: () => void}>} */
let asked = [];
/** @type {Map<string, (event: {target: Field}) => void>} */
const listeners = new Map();

class Field {
  /** @param {string} tool */
  constructor(tool) {
    this.name = `${tool}-timeout_ms`;
  }
}

class Place {
  textContent = "";
}

class Form {
  /** @type {Record<string, Place>} */
  places = {};
  /** @param {string} event @param {(event: {target: Field}) => void} listener */
  addEventListener(event, listener) {
    listeners.set(event, listener);
  }
  /** @param {string} selector */
  querySelector(selector) {
    return this.places[selector.slice('[data-told="'.length, -'"]'.length)];
  }
}

const form = new Form();

Object.assign(globalThis, {
  document: {
    addEventListener: (/** @type {string} */ _event, /** @type {() => void} */ listener) =>
      listeners.set("loaded", listener),
    getElementById: () => form,
    querySelector: () => null,
  },
  window: globalThis,
  location: { href: "/page" },
  CSS: { escape: (/** @type {string} */ text) => text },
  HTMLFormElement: Form,
  HTMLInputElement: Field,
  HTMLElement: Place,
  FormData: class {
    fields = new Map();
    /** @param {string} name @param {string} value */
    set(name, value) {
      this.fields.set(name, value);
    }
  },
  fetch: (
    /** @type {string} */ _address,
    /** @type {{body: {fields: Map<string, string>}, signal: AbortSignal}} */ request,
  ) =>
    new Promise((resolve, reject) => {
      const headers = new Headers({ "Content-Type": "application/json" });
      const answer = (/** @type {string} */ told) => resolve({ ok: true, headers, json: async () => ({ told }) });
      const fail = () => reject(new TypeError("away"));
      request.signal.addEventListener("abort", () => reject(request.signal.reason));
      asked.push({ tool: request.body.fields.get("_tell") ?? "", answer, fail });
    }),
});

mock.timers.enable({ apis: ["setTimeout"] });
await import("../../../static/console/what_if.js");
listeners.get("loaded")?.({ target: new Field("") });

/** @param {string} tool */
const type = (tool) => listeners.get("input")?.({ target: new Field(tool) });
/** @param {string} tool */
const told = (tool) => form.places[tool]?.textContent;

async function settle() {
  for (let step = 0; step < 20; step += 1) await Promise.resolve(); // the answers are read
}

beforeEach(() => {
  form.places = { wait: new Place(), fetch: new Place() };
  asked = [];
});

test("what is typed at one tool takes no words from another", async () => {
  type("wait");
  mock.timers.tick(100);
  type("fetch");
  mock.timers.tick(400);
  assert.deepEqual(
    asked.map(({ tool }) => tool),
    ["wait", "fetch"],
  );
  for (const { tool, answer } of asked) answer(`of ${tool}`);
  await settle();
  assert.deepEqual([told("wait"), told("fetch")], ["of wait", "of fetch"]);
});

test("words about another number go with the first key", async () => {
  type("wait");
  mock.timers.tick(400);
  asked[0]?.answer("of 1 s");
  await settle();
  assert.equal(told("wait"), "of 1 s");
  type("wait");
  assert.equal(told("wait"), "");
  mock.timers.tick(400);
  asked[1]?.fail();
  await settle();
  assert.equal(told("wait"), "");
});

test("a late answer about another number is not shown, and keys in a row ask once", async () => {
  type("wait");
  mock.timers.tick(400);
  type("wait");
  mock.timers.tick(100);
  type("wait");
  asked[0]?.answer("of 1 s");
  await settle();
  assert.equal(told("wait"), "");
  mock.timers.tick(400);
  assert.equal(asked.length, 2);
});

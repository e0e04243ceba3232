/** How a page of the admin follows by itself: what it takes over, what it leaves alone, and when it stops. */

import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";

/** What a page says now: the text of its parts, and whether one of them is open. */
let server = { text: "", isOpen: false, status: 200, redirected: false };
/** @type {string[]} */
let asked = [];
/** @type {Map<string, () => void>} */
const listeners = new Map();
let now = 0;

class Control {
  /** @param {string} name @param {Record<string, string>} [dataset] */
  constructor(name, dataset = {}) {
    this.name = name;
    this.value = "";
    this.dataset = dataset;
    this.textContent = "going";
    this.hidden = true;
    /** @type {() => void} */
    this.click = () => {};
  }
  /** @param {string} _event @param {() => void} listener */
  addEventListener(_event, listener) {
    this.click = listener;
  }
  focus() {
    page.activeElement = this;
  }
}

class Part {
  /** @param {string} id @param {string} text @param {boolean} isOpen */
  constructor(id, text, isOpen) {
    Object.assign(this, { id, isOpen });
    this.innerHTML = text;
    this.isOpen = isOpen;
    this.button = new Control("cancel");
  }
  get childNodes() {
    return [this];
  }
  /** @param {Part} fresh */
  replaceChildren(fresh) {
    this.innerHTML = fresh.innerHTML;
    this.isOpen = fresh.isOpen;
    this.button = new Control("cancel");
    if (page.activeElement !== page.pause) page.activeElement = null; // what had the focus is gone
  }
  /** @param {unknown} element */
  contains(element) {
    return element === this || element === this.button || element === this.innerHTML;
  }
  querySelectorAll() {
    return [this.button];
  }
  focus() {
    page.activeElement = this;
  }
}

const page = {
  hidden: false,
  /** @type {unknown} */
  activeElement: null,
  pause: new Control("", {}),
  part: new Part("part", "", false),
  /** @type {unknown} */
  selected: null,
  /** What the mouse is on, and what it presses. @type {{hover: unknown, active: unknown}} */
  aimedAt: { hover: null, active: null },
  addEventListener: (/** @type {string} */ event, /** @type {() => void} */ listener) => listeners.set(event, listener),
  querySelectorAll: () => [page.part],
  getElementById: () => page.part,
  importNode: (/** @type {unknown} */ node) => node,
  getSelection: () => ({ isCollapsed: page.selected === null, anchorNode: page.selected }),
  querySelector(/** @type {string} */ selector) {
    if (selector.startsWith("button")) return page.pause;
    if (selector.endsWith(":hover")) return page.aimedAt.hover;
    if (selector.endsWith(":active")) return page.aimedAt.active;
    if (selector.includes("data-open")) return page.part.isOpen ? page.part : null;
    return null;
  },
};

Object.assign(globalThis, {
  document: page,
  window: globalThis,
  location: { href: "http://localhost/page" },
  HTMLButtonElement: Control,
  DOMParser: class {
    parseFromString() {
      const fresh = new Part("part", server.text, server.isOpen);
      return { getElementById: () => fresh, querySelector: () => null };
    }
  },
  fetch: async (/** @type {string} */ address) => {
    asked.push(String(address));
    const { status, redirected, text } = server;
    return { ok: status === 200, status, redirected, text: async () => text };
  },
});

mock.timers.enable({ apis: ["setTimeout"] });
mock.method(performance, "now", () => now);
await import("../../../static/console/refresh.js");
const begin = listeners.get("DOMContentLoaded");
const moveMouse = listeners.get("pointermove");

/** @param {number} seconds */
async function pass(seconds) {
  now += seconds * 1000;
  mock.timers.tick(seconds * 1000);
  for (let step = 0; step < 20; step += 1) await Promise.resolve(); // the answer is read
}

/** @param {Record<string, string>} dataset @param {boolean} isOpen */
function open(dataset, isOpen) {
  page.pause = new Control("", { seconds: "2", paused: "paused", ...dataset });
  page.part = new Part("part", "1 of 2", isOpen);
  begin?.();
}

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
  Object.assign(page, { hidden: false, activeElement: null, selected: null, aimedAt: { hover: null, active: null } });
  server = { text: "1 of 2", isOpen: true, status: 200, redirected: false };
  asked = [];
});

test("what is open is followed until it is known, and then nothing more is asked", async () => {
  open({ untilKnown: "", from: "/part" }, true);
  assert.equal(page.pause.hidden, false);
  await pass(2);
  assert.deepEqual(asked, ["/part"]);
  server = { ...server, text: "2 of 2", isOpen: false };
  await pass(2);
  assert.equal(page.part.innerHTML, "2 of 2");
  assert.equal(page.pause.hidden, true);
  await pass(600);
  assert.equal(asked.length, 2);
});

test("what is known from the start is not asked for", async () => {
  open({ untilKnown: "", from: "/part" }, false);
  assert.equal(page.pause.hidden, true);
  await pass(600);
  assert.deepEqual(asked, []);
});

test("the focus stays on the same control, and goes to the part where its own is hidden", async () => {
  open({ untilKnown: "", from: "/part" }, true);
  const before = page.part.button;
  before.focus();
  server = { ...server, text: "2 of 3" };
  await pass(2);
  assert.equal(page.activeElement, page.part.button);
  assert.notEqual(page.activeElement, before);
  page.pause.focus();
  server = { ...server, text: "3 of 3", isOpen: false };
  await pass(2);
  assert.equal(page.activeElement, page.part);
});

test("a part in which somebody selects text waits for them", async () => {
  open({ untilKnown: "", from: "/part" }, true);
  page.selected = page.part;
  server = { ...server, text: "2 of 2", isOpen: false };
  await pass(2);
  assert.equal(page.part.innerHTML, "1 of 2");
  page.selected = null;
  await pass(2);
  assert.equal(page.part.innerHTML, "2 of 2");
});

test("nothing moves between the press of a button and its release", async () => {
  open({ untilKnown: "", from: "/part" }, true);
  page.aimedAt.active = page.part.button;
  server = { ...server, text: "2 of 2", isOpen: false };
  await pass(60);
  assert.equal(page.part.innerHTML, "1 of 2");
  page.aimedAt.active = null;
  await pass(2);
  assert.equal(page.part.innerHTML, "2 of 2");
});

test("nothing moves while the mouse is on a button and has moved in the last seconds", async () => {
  open({ untilKnown: "", from: "/part" }, true);
  page.aimedAt.hover = page.part.button;
  server = { ...server, text: "2 of 3" };
  for (let round = 0; round < 3; round += 1) {
    moveMouse?.();
    await pass(4);
    assert.equal(page.part.innerHTML, "1 of 2");
  }
  await pass(2);
  assert.equal(page.part.innerHTML, "2 of 3"); // a mouse that was left there holds nothing up
  moveMouse?.();
  page.aimedAt.hover = null;
  server = { ...server, text: "3 of 3", isOpen: false };
  await pass(2);
  assert.equal(page.part.innerHTML, "3 of 3");
});

test("it can be paused, and goes on when it is asked to", async () => {
  open({ untilKnown: "", from: "/part" }, true);
  page.pause.click();
  assert.equal(page.pause.textContent, "paused");
  await pass(60);
  assert.deepEqual(asked, []);
  page.pause.click();
  await pass(2);
  assert.deepEqual(asked, ["/part"]);
});

test("who was signed out is asked for nothing more", async () => {
  open({ untilKnown: "", from: "/part" }, true);
  server = { ...server, status: 403 };
  await pass(2);
  await pass(60);
  assert.equal(asked.length, 1);
});

test("a server that is away for a moment, and a hidden tab, end nothing", async () => {
  open({ untilKnown: "", from: "/part" }, true);
  server = { ...server, status: 503 };
  await pass(2);
  page.hidden = true;
  await pass(2);
  assert.equal(asked.length, 1);
  page.hidden = false;
  server = { ...server, status: 200, text: "2 of 2", isOpen: false };
  await pass(2);
  assert.equal(page.part.innerHTML, "2 of 2");
});

test("a page of what is now goes on without an end, and reads itself", async () => {
  open({}, false);
  server = { ...server, isOpen: false };
  for (let round = 1; round < 4; round += 1) {
    await pass(2);
    assert.equal(asked.length, round);
  }
  assert.deepEqual(new Set(asked), new Set(["http://localhost/page"]));
  assert.equal(page.pause.hidden, false);
});

test("a page of what is now asks sooner while something is open", async () => {
  open({}, true);
  await pass(1);
  assert.equal(asked.length, 1);
});

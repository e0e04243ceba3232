import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Conversation, GRACE_MS } from "../../../static/webchat/js/state/conversation.js";
import { Outbox } from "../../../static/webchat/js/state/storage.js";
import { whole } from "../fixtures.js";

const TURN = "t1";
const START = { type: "turn_start", seq: 1, turn_id: TURN, user_message: "hi", agent: "", client_id: "c" };

/** Sockets as the page opens them. */
class Line {
  /** @type {Array<Line>} */
  static all = [];
  static OPEN = 1;
  readyState = 0;
  /** @type {Array<any>} */
  sent = [];
  onopen = () => {};
  onmessage = (/** @type {{data: string}} */ _message) => {};
  onclose = (/** @type {{code: number}} */ _closing) => {};

  constructor() {
    Line.all.push(this);
  }

  /** @param {string} text */
  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.readyState = 3;
  }

  /** @param {number} lastSeq */
  welcome(lastSeq) {
    this.readyState = 1;
    this.onopen();
    this.bring({ type: "welcome", protocol: 1, last_seq: lastSeq, user: "ada" });
  }

  /** @param {object} frame */
  bring(frame) {
    this.onmessage({ data: JSON.stringify(whole(frame)) });
  }

  static get last() {
    return /** @type {Line} */ (Line.all.at(-1));
  }
}

/** @type {Map<string, string>} */
const stored = new Map();
const storage = {
  getItem: (/** @type {string} */ key) => stored.get(key) ?? null,
  setItem: (/** @type {string} */ key, /** @type {string} */ value) => void stored.set(key, value),
  removeItem: (/** @type {string} */ key) => void stored.delete(key),
};

/** @param {(conversation: Conversation) => void} body */
function inConversation(body) {
  mock.timers.enable({ apis: ["setTimeout"] });
  Object.assign(globalThis, { WebSocket: Line });
  Line.all = [];
  try {
    const conversation = new Conversation(
      () => {},
      () => {},
      new Outbox(storage, "ada", "one"),
    );
    conversation.restore();
    conversation.connect("ws://test/");
    Line.last.welcome(0);
    Line.last.bring({ type: "snapshot", seq: 0, messages: [], calls: [], turns: [], active_turns: [] });
    body(conversation);
  } finally {
    mock.timers.reset();
  }
}

test("after a gap in the numbers it asks from the last event, and for everything if that did not help", () => {
  inConversation((conversation) => {
    Line.last.bring(START);
    Line.last.bring({ type: "turn_end", seq: 4, turn_id: TURN, status: "completed" });
    assert.equal(conversation.state.connection.status, "resuming");
    Line.last.welcome(4);
    assert.deepEqual(Line.last.sent[0], { type: "hello", protocol: 1, html: true, acks: true, after: 1 });
    Line.last.bring({ type: "turn_end", seq: 4, turn_id: TURN, status: "completed" });
    Line.last.welcome(4);
    assert.deepEqual(Line.last.sent[0], { type: "hello", protocol: 1, html: true, acks: true });
    assert.equal(Line.all.length, 3);
  });
});

test("after a gap in the text it asks for all of it, once, and shows what comes", () => {
  inConversation((conversation) => {
    Line.last.bring(START);
    const delta = { type: "text_delta", turn_id: TURN };
    Line.last.bring({ ...delta, text: "Hello", offset: 0 });
    Line.last.bring({ ...delta, text: "ld", offset: 10 });
    Line.last.bring({ ...delta, text: "!", offset: 12 });
    const asked = Line.last.sent.filter((frame) => frame.type === "resync");
    assert.deepEqual(asked, [{ type: "resync", turn_id: TURN }]);
    assert.equal(conversation.state.turns[0]?.partial, "Hello");
    Line.last.bring({ ...delta, text: "Hello, world!", offset: 0 });
    assert.equal(conversation.state.turns[0]?.partial, "Hello, world!");
    assert.equal(conversation.state.turns[0]?.needsResync, false);
    assert.equal(Line.all.length, 1);
  });
});

test("text that was asked for in vain is asked for again when the connection is back", () => {
  inConversation((conversation) => {
    Line.last.bring(START);
    Line.last.bring({ type: "text_delta", turn_id: TURN, text: "ld", offset: 10 });
    conversation.connection.catchUp({ whole: false });
    Line.last.welcome(1);
    const asked = Line.last.sent.filter((frame) => frame.type === "resync");
    assert.deepEqual(asked, [{ type: "resync", turn_id: TURN }]);
    assert.equal(Line.all.length, 2);
  });
});

test("a heartbeat that knows of more makes it ask for that, unless it comes by itself", () => {
  inConversation((conversation) => {
    Line.last.bring({ type: "heartbeat", last_seq: 1, active: [TURN] });
    Line.last.bring(START);
    mock.timers.tick(GRACE_MS);
    assert.equal(Line.all.length, 1);
    Line.last.bring({ type: "heartbeat", last_seq: 2, active: [] });
    mock.timers.tick(GRACE_MS);
    assert.equal(Line.all.length, 2);
    Line.last.welcome(2);
    assert.deepEqual(Line.last.sent[0], { type: "hello", protocol: 1, html: true, acks: true, after: 1 });
    Line.last.bring({ type: "turn_end", seq: 2, turn_id: TURN, status: "completed" });
    assert.equal(conversation.state.connection.status, "online");
  });
});

const sentSince = (/** @type {number} */ count) => Line.last.sent.slice(count);
const FAILED = { type: "error", code: "server_error", message: "Something went wrong." };

test("what a failing server has not answered goes out again under the same id, later each time, until it is", () => {
  inConversation((conversation) => {
    Line.last.bring(START);
    conversation.send("hello");
    conversation.cancelTurn();
    const [, message, cancel] = Line.last.sent;
    const failed = [
      { ...FAILED, client_id: message.client_id },
      { ...FAILED, code: "unavailable", op_id: cancel.op_id },
    ];
    for (const pause of [500, 1_000, 2_000]) {
      const before = Line.last.sent.length;
      for (const error of failed) Line.last.bring(error);
      assert.equal(conversation.state.notice?.key, "trying_again");
      assert.equal(conversation.state.pendingMessages.length, 1);
      assert.notEqual(conversation.state.turns[0]?.stoppingAt, null);
      mock.timers.tick(pause / 2 - 1);
      assert.deepEqual(sentSince(before), []);
      mock.timers.tick(pause / 2 + 1);
      assert.deepEqual(sentSince(before), [message, cancel]);
    }
    const before = Line.last.sent.length;
    Line.last.bring({ type: "message_result", client_id: message.client_id, turn_id: "t2", cancelled: false });
    Line.last.bring({ type: "op_result", op_id: cancel.op_id, outcome: "accepted" });
    assert.equal(conversation.state.notice, null);
    mock.timers.tick(60_000);
    assert.deepEqual(
      sentSince(before).filter((frame) => frame.type !== "ping"),
      [],
    );
  });
});

test("a message that a failing server has not taken is not given back to be sent twice", () => {
  /** @type {Array<string>} */
  const given = [];
  mock.timers.enable({ apis: ["setTimeout"] });
  Object.assign(globalThis, { WebSocket: Line });
  const conversation = new Conversation(
    () => {},
    (text) => given.push(text),
    new Outbox(storage, "ada", "two"),
  );
  conversation.connect("ws://test/");
  Line.last.welcome(0);
  conversation.send("hello");
  const clientId = Line.last.sent.at(-1).client_id;
  Line.last.bring({ ...FAILED, client_id: clientId });
  assert.deepEqual(given, []);
  Line.last.bring({ ...FAILED, code: "queue_full", client_id: clientId });
  assert.deepEqual(given, ["hello"]);
  mock.timers.reset();
});

test("a stop that takes too long can be asked for again: under its id while it has no answer, else anew", () => {
  const now = mock.method(performance, "now", () => 0);
  inConversation((conversation) => {
    Line.last.bring(START);
    const cancels = () => Line.last.sent.filter((frame) => frame.type === "cancel_turn");
    conversation.cancelTurn();
    conversation.cancelTurn();
    assert.equal(cancels().length, 1);
    now.mock.mockImplementation(() => 3_001);
    conversation.cancelTurn();
    assert.deepEqual(cancels()[1], cancels()[0]);
    Line.last.bring({ type: "op_result", op_id: cancels()[0].op_id, outcome: "accepted" });
    conversation.cancelTurn();
    assert.equal(cancels().length, 3);
    assert.notEqual(cancels()[2].op_id, cancels()[0].op_id);
  });
  mock.restoreAll();
});

/** @param {object} messages @param {boolean} hasEarlier */
const page = (messages, hasEarlier) => ({
  type: "snapshot",
  seq: 0,
  messages,
  calls: [],
  turns: [],
  active_turns: [],
  has_earlier: hasEarlier,
});
/** @param {number} position */
const line = (position) => ({
  id: position,
  turn_id: `t${position}`,
  position,
  role: "user",
  content: [{ type: "text", text: "hi" }],
});

/** @param {() => Promise<object>} answer @returns {Array<string>} */
function answering(answer) {
  /** @type {Array<string>} */
  const asked = [];
  mock.method(globalThis, "fetch", async (/** @type {string} */ url) => {
    asked.push(url);
    return answer();
  });
  return asked;
}

test("earlier messages are asked for once at a time, from the first one that is shown", async () => {
  const asked = answering(async () => ({ ok: true, json: async () => page([line(3), line(4)], false) }));
  let counts = Promise.resolve([0]);
  inConversation((conversation) => {
    Line.last.bring(page([line(5)], true));
    counts = Promise.all([conversation.showEarlier("/messages"), conversation.showEarlier("/messages")]);
    assert.equal(conversation.state.isLoadingEarlier, true);
    counts = counts.then(async (known) => [...known, await conversation.showEarlier("/messages")]);
    counts = counts.then((known) => {
      assert.deepEqual(
        conversation.state.turns.map((turn) => turn.id),
        ["t3", "t4", "t5"],
      );
      return known;
    });
  });
  assert.deepEqual(await counts, [2, 0, 0]);
  assert.deepEqual(asked, ["/messages?before=5"]);
  mock.restoreAll();
});

test("earlier messages that cannot be fetched are said, and can be asked for again", async () => {
  const asked = answering(async () => ({ ok: false, status: 503 }));
  let known = Promise.resolve();
  inConversation((conversation) => {
    Line.last.bring(page([line(5)], true));
    known = conversation
      .showEarlier("/messages")
      .then((count) => {
        assert.deepEqual([count, conversation.state.notice?.key], [0, "earlier_failed"]);
        assert.equal(conversation.state.isLoadingEarlier, false);
        return conversation.showEarlier("/messages");
      })
      .then(() => {});
  });
  await known;
  assert.equal(asked.length, 2);
  mock.restoreAll();
});

test("what was promised is kept over a reload until the server has it, and is sent under its id", () => {
  stored.clear();
  const clientIds = new Set();
  const sent = () => Line.last.sent.filter((frame) => frame.type === "message");
  inConversation((conversation) => {
    conversation.send("Keep me.");
    for (const { client_id } of sent()) clientIds.add(client_id);
  });
  inConversation((conversation) => {
    for (const { client_id } of sent()) clientIds.add(client_id);
    assert.equal(clientIds.size, 1);
    assert.equal(conversation.hasUnsent, true);
    Line.last.bring({ type: "message_result", client_id: [...clientIds][0], turn_id: TURN, cancelled: false });
    assert.equal(conversation.hasUnsent, false);
    assert.equal(stored.size, 0);
  });
});

test("a text is on its way from the click until the server has made a turn of it: a second click sends nothing", () => {
  inConversation((conversation) => {
    Line.last.bring({ type: "snapshot" });
    conversation.send("Again.");
    const [message] = Line.last.sent.filter((frame) => frame.type === "message");
    assert.deepEqual([conversation.isPending("Again."), conversation.isPending("Else.")], [true, false]);
    Line.last.bring({ type: "message_result", client_id: message.client_id, turn_id: TURN, cancelled: false });
    assert.equal(conversation.isPending("Again."), true);
    Line.last.bring({ ...START, user_message: "Again.", client_id: message.client_id });
    assert.equal(conversation.isPending("Again."), false);
  });
});

test("nothing of one user is sent under another", () => {
  stored.clear();
  new Outbox(storage, "ada", "one").write([{ clientId: "a", text: "Mine.", source: "typed" }]);
  inConversation((conversation) => {
    Line.last.bring({ type: "welcome", protocol: 1, last_seq: 0, user: "eve" });
    assert.equal(conversation.state.connection.status, "other_user");
    assert.equal(conversation.connection.isReady, false);
    assert.equal(new Outbox(storage, "eve", "one").read().length, 0);
  });
});

/** The CPU time, in µs, of many pieces of text behind so many turns. @param {number} count */
function costOfPieces(count) {
  let micros = 0;
  inConversation(() => {
    const turns = Array.from({ length: count }, (_, place) => ({ turn_id: `old-${place}`, number: place + 1 }));
    Line.last.bring({ type: "snapshot", seq: 0, turns });
    Line.last.bring(START);
    const began = process.cpuUsage();
    for (let offset = 0; offset < 300; offset += 1)
      Line.last.bring({ type: "text_delta", turn_id: TURN, text: "x", offset });
    micros = process.cpuUsage(began).user;
  });
  return micros;
}

test("a piece of text does not cost the square of the turns that are shown", () => {
  costOfPieces(300);
  const costs = [costOfPieces(300), costOfPieces(3_000)];
  assert.ok(/** @type {number} */ (costs[1]) < 40 * Math.max(1_000, costs[0] ?? 0), costs.join(" µs, "));
});

import assert from "node:assert/strict";
import { test } from "node:test";

import { CONNECT_MS, Connection, PROBE_MS, SILENCE_MS } from "../../../static/webchat/js/net/connection.js";

/** Time, sockets and the network as a test moves them. */
class World {
  now = 0;
  isOnline = true;
  /** @type {Array<{at: number, callback: () => void}>} */
  timers = [];
  /** @type {Array<FakeSocket>} */
  sockets = [];
  /** @type {Array<string>} */
  statuses = [];
  /** @type {number|null} */
  seen = null;

  connection = new Connection({
    lastSeq: () => this.seen,
    onFrame: (frame) => {
      if ("seq" in frame) this.seen = frame.seq;
    },
    onStatus: (status) => this.statuses.push(status),
    environment: {
      open: () => {
        this.sockets.push(new FakeSocket());
        return /** @type {WebSocket} */ (/** @type {unknown} */ (this.socket));
      },
      after: (callback, ms) => {
        const timer = { at: this.now + ms, callback };
        this.timers.push(timer);
        return timer;
      },
      forget: (timer) => {
        this.timers = this.timers.filter((known) => known !== timer);
      },
      random: () => 1,
      isOnline: () => this.isOnline,
    },
  });

  get socket() {
    return /** @type {FakeSocket} */ (this.sockets.at(-1));
  }

  get status() {
    return this.statuses.at(-1);
  }

  /** @param {number} ms */
  pass(ms) {
    const until = this.now + ms;
    for (;;) {
      const due = this.timers.filter((timer) => timer.at <= until).sort((one, other) => one.at - other.at)[0];
      if (!due) break;
      this.timers = this.timers.filter((timer) => timer !== due);
      this.now = due.at;
      due.callback();
    }
    this.now = until;
  }

  goLive() {
    this.connection.start("ws://test/");
    this.welcome(0);
    this.socket.receive({ type: "snapshot", seq: 0 });
  }

  /** @param {number} lastSeq */
  welcome(lastSeq) {
    this.socket.accept();
    this.socket.receive({ type: "welcome", protocol: 1, last_seq: lastSeq });
  }
}

class FakeSocket {
  readyState = 0;
  /** @type {Array<any>} */
  sent = [];
  onopen = () => {};
  onmessage = (/** @type {{data: string}} */ _message) => {};
  onclose = (/** @type {{code: number}} */ _closing) => {};

  accept() {
    this.readyState = 1;
    this.onopen();
  }

  /** @param {string} text */
  send(text) {
    this.sent.push(JSON.parse(text));
  }

  /** @param {object} frame */
  receive(frame) {
    this.onmessage({ data: JSON.stringify(frame) });
  }

  /** @param {number} code */
  fail(code) {
    this.readyState = 3;
    this.onclose({ code });
  }

  closedWith = 0;

  /** @param {number} code */
  close(code) {
    this.readyState = 3;
    this.closedWith = code;
  }
}

test("the first hello asks for everything, the next one for what came after", () => {
  const world = new World();
  world.goLive();
  assert.deepEqual(world.socket.sent[0], { type: "hello", protocol: 1, html: true, acks: true });
  assert.equal(world.status, "online");
  world.socket.receive({ type: "turn_start", seq: 7 });
  world.socket.fail(1006);
  world.pass(250);
  world.socket.accept();
  assert.deepEqual(world.socket.sent[0], { type: "hello", protocol: 1, html: true, acks: true, after: 7 });
});

test("it is catching up until it has what the server has", () => {
  const world = new World();
  world.goLive();
  world.socket.fail(1006);
  world.pass(250);
  world.welcome(2);
  assert.equal(world.status, "resuming");
  world.socket.receive({ type: "message", seq: 1 });
  assert.equal(world.status, "resuming");
  world.socket.receive({ type: "message", seq: 2 });
  assert.equal(world.status, "online");
});

test("it never gives up, and never waits longer than ten seconds", () => {
  const world = new World();
  world.goLive();
  world.socket.fail(1006);
  for (let attempt = 2; attempt < 40; attempt += 1) {
    world.pass(10_000);
    assert.equal(world.sockets.length, attempt);
    world.socket.fail(1006);
  }
  assert.equal(world.status, "reconnecting");
});

test("the pauses grow from a quarter of a second", () => {
  const world = new World();
  world.goLive();
  for (const pause of [250, 500, 1_000, 2_000]) {
    world.socket.fail(1006);
    const before = world.sockets.length;
    world.pass(pause - 1);
    assert.equal(world.sockets.length, before);
    world.pass(1);
    assert.equal(world.sockets.length, before + 1);
  }
});

test("silence beyond one and a half heartbeats is doubted, then given up", () => {
  const world = new World();
  world.goLive();
  world.pass(SILENCE_MS);
  assert.equal(world.status, "slow");
  assert.deepEqual(world.socket.sent.at(-1), { type: "ping" });
  world.pass(PROBE_MS);
  assert.equal(world.status, "reconnecting");
  assert.equal(world.sockets[0]?.readyState, 3);
});

test("a heartbeat in time keeps the line, and one after the doubt restores it", () => {
  const world = new World();
  world.goLive();
  world.pass(SILENCE_MS - 1);
  world.socket.receive({ type: "heartbeat", last_seq: 0, active: [] });
  world.pass(SILENCE_MS - 1);
  assert.equal(world.status, "online");
  world.pass(1);
  assert.equal(world.status, "slow");
  world.socket.receive({ type: "heartbeat", last_seq: 0, active: [] });
  assert.equal(world.status, "online");
});

test("a socket that never opens is given up", () => {
  const world = new World();
  world.connection.start("ws://test/");
  world.pass(CONNECT_MS);
  assert.equal(world.status, "reconnecting");
});

test("who was signed out is asked about again when the browser is back, and not before", () => {
  const world = new World();
  world.goLive();
  world.socket.fail(4401);
  world.pass(60_000);
  assert.deepEqual([world.status, world.sockets.length], ["signed_out", 1]);
  world.connection.revive();
  world.socket.fail(4401);
  world.pass(60_000);
  assert.deepEqual([world.status, world.sockets.length], ["signed_out", 2]);
});

test("no such conversation and a wrong protocol are final", () => {
  for (const [code, status] of /** @type {Array<[number, string]>} */ ([
    [4404, "not_found"],
    [4400, "outdated"],
  ])) {
    const world = new World();
    world.goLive();
    world.socket.fail(code);
    assert.equal(world.status, status);
    world.connection.revive();
    world.pass(60_000);
    assert.equal(world.sockets.length, 1);
  }
  const world = new World();
  world.connection.start("ws://test/");
  world.socket.accept();
  world.socket.receive({ type: "welcome", protocol: 2, last_seq: 0 });
  assert.equal(world.status, "outdated");
});

test("a restarting server is waited for", () => {
  const world = new World();
  world.goLive();
  world.socket.fail(1012);
  assert.equal(world.status, "restarting");
  world.pass(250);
  assert.equal(world.sockets.length, 2);
  world.socket.fail(1006);
  assert.equal(world.status, "restarting");
});

test("a browser that is back tries at once, or asks whether the line still stands", () => {
  const world = new World();
  world.goLive();
  world.connection.revive();
  assert.deepEqual(world.socket.sent.at(-1), { type: "ping" });
  world.pass(PROBE_MS);
  assert.equal(world.status, "reconnecting");
  world.connection.revive();
  assert.equal(world.sockets.length, 2);
});

test("a browser without a network says so, and still tries", () => {
  const world = new World();
  world.goLive();
  world.isOnline = false;
  world.connection.suspect();
  assert.equal(world.status, "offline");
  world.socket.receive({ type: "heartbeat", last_seq: 0, active: [] });
  assert.equal(world.status, "online");
  world.connection.suspect();
  world.pass(PROBE_MS);
  assert.equal(world.status, "offline");
  world.pass(250);
  assert.equal(world.sockets.length, 2);
});

test("catching up asks from the last event, or for everything", () => {
  const world = new World();
  world.goLive();
  world.socket.receive({ type: "turn_start", seq: 3 });
  world.connection.catchUp({ whole: false });
  world.socket.accept();
  assert.deepEqual(world.socket.sent[0], { type: "hello", protocol: 1, html: true, acks: true, after: 3 });
  world.connection.catchUp({ whole: true });
  world.socket.accept();
  assert.deepEqual(world.socket.sent[0], { type: "hello", protocol: 1, html: true, acks: true });
});

test("nothing is sent before the welcome", () => {
  const world = new World();
  world.connection.start("ws://test/");
  world.socket.accept();
  assert.equal(world.connection.send({ type: "ping" }), false);
  world.socket.receive({ type: "welcome", protocol: 1, last_seq: 0 });
  assert.equal(world.connection.send({ type: "ping" }), true);
});

test("what an old socket still brings is not listened to", () => {
  const world = new World();
  world.goLive();
  const old = world.socket;
  world.connection.reconnect();
  old.receive({ type: "turn_start", seq: 9 });
  old.fail(4401);
  assert.equal(world.seen, 0);
  assert.notEqual(world.status, "signed_out");
});

test("a socket that is followed by another one says so, the last one says goodbye", () => {
  const world = new World();
  world.goLive();
  const [first] = world.sockets;
  world.connection.catchUp({ whole: false });
  assert.equal(first?.closedWith, 4000);
  const second = world.socket;
  world.connection.close();
  assert.equal(second.closedWith, 1000);
});

test("a line that is left while it waits for the next try stays closed", () => {
  const world = new World();
  world.goLive();
  world.socket.fail(1006);
  world.connection.close();
  world.pass(60_000);
  assert.equal(world.sockets.length, 1);
});

test("what has arrived is acknowledged after as many bytes as the server wants", () => {
  const world = new World();
  world.connection.start("ws://test/");
  world.socket.accept();
  const welcome = { type: "welcome", protocol: 1, last_seq: 0, ack_bytes: 80 };
  const frames = [welcome, { type: "heartbeat", last_seq: 0 }, { type: "turn_start", seq: 1 }];
  for (const frame of frames) world.socket.receive(frame);
  const message = { type: "message", seq: 2, html: "ä".repeat(50) };
  world.socket.receive(message);
  const size = (/** @type {Array<object>} */ sent) =>
    sent.reduce((sum, frame) => sum + Buffer.byteLength(JSON.stringify(frame)), 0);
  assert.deepEqual(
    world.socket.sent.filter((frame) => frame.type === "ack"),
    [
      { type: "ack", seq: 0, received: size(frames.slice(0, 2)) },
      { type: "ack", seq: 2, received: size([...frames, message]) },
    ],
  );
});

import assert from "node:assert/strict";
import { test } from "node:test";

import { ECHO_MS, EchoFilter, RestartPolicy } from "../../../static/webchat/js/state/voice.js";

test("what the page says itself is no word of the person", () => {
  const echo = new EchoFilter();
  assert.equal(echo.isEcho("all done", 0), false);
  echo.begin("Okay, all of it is done.", 0);
  assert.equal(echo.isEcho("OKAY all of", 5), true);
  assert.equal(echo.isEcho("stop", 5), false);
  assert.equal(echo.isEcho("okay stop", 5), false);
});

test("a recogniser that is a little late is an echo, too, and then no more", () => {
  const echo = new EchoFilter();
  echo.begin("It is done.", 0);
  echo.end(1000);
  assert.equal(echo.isEcho("it is done", 1000 + ECHO_MS - 1), true);
  assert.equal(echo.isEcho("it is done", 1000 + ECHO_MS), false);
});

test("an answer whose end nobody tells is no echo for ever", () => {
  const echo = new EchoFilter();
  echo.begin("It is done.", 1000);
  assert.equal(echo.isEcho("done", 11_000), true);
  assert.equal(echo.isEcho("done", 30_000), false);
});

test("a microphone that ends after silence goes on at once", () => {
  const restarts = new RestartPolicy();
  for (let round = 0; round < 20; round += 1) {
    restarts.started(round * 10_000);
    assert.equal(restarts.ended(round * 10_000 + 8_000), 0);
  }
});

test("a microphone that ends at once waits longer each time, then gives up", () => {
  const restarts = new RestartPolicy();
  restarts.started(0);
  assert.equal(restarts.ended(10), 250);
  restarts.started(300);
  assert.equal(restarts.ended(310), 500);
  restarts.started(900);
  assert.equal(restarts.ended(910), null);
  restarts.reset();
  restarts.started(2000);
  assert.equal(restarts.ended(2010), 250);
});

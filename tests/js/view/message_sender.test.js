/** What merely begins with a cancel word is told from what only asks to stop. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { StopWords } from "../../../static/webchat/js/view/message_sender.js";

const words = new StopWords({
  commands: ["stop", "never mind"],
  patterns: ["(?:(?:please) )*(?<command>never mind|stop)(?: \\k<command>)*(?: (?:it))?(?: (?:now)){0,3}", "red light"],
});

test("only a message that goes on after a cancel word is doubtful", () => {
  for (const text of ["Stop, don't do anything", "stop using emojis", "NEVER  MIND the gap", "stóp thém"])
    assert.equal(words.isDoubtful(text), true, text);
  for (const text of [
    "stop",
    "Stop!",
    "stop it now",
    "please stop",
    "stop stop",
    "stopwatch please",
    "do not stop",
    "",
  ])
    assert.equal(words.isDoubtful(text), false, text);
});

test("only a whole message asks to stop", () => {
  for (const text of ["stop", "Stop!", "Please STOP it now", "never mind never mind", "Red light."])
    assert.equal(words.isStop(text), true, text);
  for (const text of ["stop using emojis", "do not stop", "stopwatch", ""])
    assert.equal(words.isStop(text), false, text);
});

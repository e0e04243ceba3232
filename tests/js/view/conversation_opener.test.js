import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { ConversationOfAgent } from "../../../static/webchat/js/view/conversation_opener.js";

/** A server that answers when the test says so, and what the chat was told. */
function asked() {
  /** @type {Array<{method: string, answer: (body: object, status?: number) => Promise<void>, fail: () => Promise<void>}>} */
  const requests = [];
  globalThis.fetch = (_url, { method = "GET" } = {}) =>
    new Promise((resolve, reject) => {
      const answer = async (/** @type {object} */ body, status = 200) => {
        resolve(/** @type {any} */ ({ ok: status === 200, status, json: async () => body }));
        await settled();
      };
      const fail = async () => {
        reject(new Error("not reached"));
        await settled();
      };
      requests.push({ method, answer, fail });
    });
  /** @type {string[]} */
  const told = [];
  /** @type {ConversationOfAgent} */
  const search = new ConversationOfAgent({
    url: "/api/conversations",
    agent: "florist",
    id: "c2",
    root: /** @type {any} */ ({ querySelector: () => null }),
    onFound: (id) => told.push(`found ${id}`),
    onNone: () => {
      told.push("none");
      void search.create(); // as the chat does where something was written meanwhile
    },
    onLost: (status) => told.push(`lost: ${status}`),
    onRefused: (problem) => told.push(`refused: ${problem}`),
  });
  return { search, requests, told };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));
const listOf = (/** @type {string[]} */ ...ids) => ({
  conversations: ids.map((id) => ({ conversation_id: id, updated_at: "2026-01-01T00:00:00Z" })),
});

test("what is sent while the latest is looked for goes there, not into a new one", async () => {
  const { search, requests, told } = asked();
  void search.find();
  void search.create();
  await requests[0].answer(listOf("c1"));
  assert.deepEqual(
    requests.map(({ method }) => method),
    ["GET"],
  );
  assert.deepEqual(told, ["found c1"]);
});

test("where there is none, one is made, once", async () => {
  const { search, requests, told } = asked();
  void search.find();
  void search.create();
  await requests[0].answer(listOf());
  void search.create();
  await requests[1].answer({ conversation_id: "c2" });
  assert.equal(requests.length, 2);
  assert.deepEqual(told, ["none", "found c2"]);
});

test("after a failure the same is asked again, whatever is wanted meanwhile", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const { search, requests, told } = asked();
  void search.find();
  await requests[0].fail();
  void search.create();
  mock.timers.tick(1_000);
  await requests[1].answer(listOf("c1"));
  mock.timers.reset();
  assert.deepEqual(
    requests.map(({ method }) => method),
    ["GET", "GET"],
  );
  assert.deepEqual(told, ["lost: reconnecting", "found c1"]);
});

test("where nobody is signed in, it is asked again when the browser is back, and not by the clock", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const { search, requests, told } = asked();
  void search.create();
  await requests[0].answer({ error: "Sign in.", code: "signed_out" }, 401);
  mock.timers.tick(60_000);
  assert.equal(requests.length, 1);
  search.revive();
  search.revive();
  await requests[1].answer({ conversation_id: "c2" });
  search.revive();
  mock.timers.reset();
  assert.deepEqual([requests.length, told], [2, ["lost: signed_out", "found c2"]]);
});

test("a chat that was taken out of its page is told nothing more", async () => {
  const { search, requests, told } = asked();
  void search.find();
  search.close();
  await requests[0].answer(listOf("c1"));
  assert.deepEqual(told, []);
});

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";

import { request } from "../../../static/webchat/js/net/api.js";

const PAGE = new URL("../../../static/webchat/js/", import.meta.url).pathname;

test("a server that never answers is as one that was not reached", async (t) => {
  const server = createServer(() => {});
  await new Promise((listening) => server.listen(0, "127.0.0.1", () => listening(null)));
  t.after(() => server.closeAllConnections() ?? server.close());
  const address = /** @type {import("node:net").AddressInfo} */ (server.address());
  await assert.rejects(request(`http://127.0.0.1:${address.port}/`, {}, 50), { name: "TimeoutError" });
});

test("nothing on the page asks in another way", () => {
  const files = readdirSync(PAGE, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".js"));
  const others = files.filter((name) => /[^#\w]fetch\(/.test(readFileSync(join(PAGE, name), "utf8")));
  assert.deepEqual(others, ["net/api.js"]);
});

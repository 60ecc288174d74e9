// Against a real server (MEMORY_URL, MEMORY_KEY: a key that may do everything a key may): tests/integrations/test_typescript.py
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Memory, MemoryAnchorError } from "../dist/index.js";

const { MEMORY_URL: url, MEMORY_KEY: key } = process.env;
const memory = new Memory({ url, key, project: "support-bot" });
const description = JSON.parse(readFileSync(new URL("../../../docs/openapi.json", import.meta.url)));

test("what is saved is found, corrected, read and forgotten", async () => {
  const saved = await memory.save("Refunds over 500 need a second signature", { type: "rule", tags: ["refunds"] });
  assert.equal(saved.outcome, "added");
  const found = await memory.search("who signs refunds over 500?", { limit: 3 });
  assert.equal(found.snippets[0].text, "Refunds over 500 need a second signature");
  const next = await memory.save("Refunds over 900 need a second signature now", { type: "rule", replaces: saved.id });
  assert.equal((await memory.get(saved.id)).status, "superseded");
  assert.ok((await memory.history(next.id)).versions.length >= 1);
  assert.equal((await memory.list({ layer: "L3" })).memories[0].content, "Refunds over 900 need a second signature now");
  assert.equal(typeof (await memory.context("answer about refunds", 500)).text, "string");
  assert.equal((await memory.forget(next.id, "test")).status, "archived");
});

test("events, conversations and rules", async () => {
  const event = await memory.log("Refund 41 failed: card expired", { who: ["bot"], when: "2026-11-01T10:00:00Z" });
  assert.deepEqual((await memory.events({ start: "2026-11-01", end: "2026-11-02" })).events.map(e => e.id), [event.id]);
  assert.ok((await memory.promote(event.id, { content: "Expired cards make refunds fail" })).id);
  const said = [{ role: "user", content: "I prefer phone calls to letters, always." }];
  assert.ok((await memory.remember(said)).outcomes.length >= 1);
  assert.ok(Array.isArray((await memory.constitution()).entries));
});

test("a write that is sent again is one write", async () => {
  const again = { request_id: "once" };
  const [one, two] = [await memory.log("Sent twice", again), await memory.log("Sent twice", again)];
  assert.equal(one.id, two.id);
});

test("a failure has a code and one sentence", async () => {
  await assert.rejects(memory.get("0000000000000"), (error) =>
    error instanceof MemoryAnchorError && error.status === 404 && error.code === "not_found" && error.message.length > 9);
  const stranger = new Memory({ url, key: "ma_wrong" });
  await assert.rejects(stranger.search("x"), { code: "no_credential" });
});

const id = "0000000000000";
const bodies = {
  "/v1/context": { messages: [{ role: "user", content: "refunds" }] }, "/v1/memory/search": { query: "x" },
  "/v1/memory/store": { content: "Parcels need a form" }, "/v1/memory/log": { content: "x" },
  "/v1/memory/promote": { event_id: id }, "/v1/memory/remember": { messages: [{ role: "user", content: "hello" }] },
  "/v1/memory/context": { task: "x" }, "/v1/knowledge/search": { query: "x" }, "/v1/knowledge/get": { citation: id },
  "/v1/knowledge/add": { name: "a.md", text: "Whales" }, "/v1/knowledge/ingest": { name: "b.md", text: "Seals" },
  "/v1/knowledge/remove": { source: id }, "/v1/ingest": { items: [{ kind: "memory", content: "A batch" }] },
  "/v1/review/settle": { id, resolution: "keep_new" },
};
const needsId = ["get", "history", "forget", "sides", "accept", "reject"];

for (const [path, ways] of Object.entries(description.paths)) {
  for (const [way, operation] of Object.entries(ways)) {
    test(`${operation.operationId}: answered as it is described`, async () => {
      const body = bodies[path] ?? (needsId.includes(path.split("/").pop()) ? { id } : {});
      const init = way === "get" ? { params: { path: { batch: id } } } : { body };
      const { response, error } = await memory.api[way.toUpperCase()](path, { ...init, parseAs: "text" });
      const described = Object.keys(operation.responses);
      assert.ok(described.includes(String(response.status)), `${response.status} ${error}`);
      assert.ok(response.status < 500 || response.status === 503, String(error));
    });
  }
}

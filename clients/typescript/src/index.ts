/**
 * A served memory (`memory-anchor serve`) for TypeScript. Paths and bodies are typed from docs/openapi.json
 * (`npm run generate`); answers have the names of the tools and of `--json`.
 *
 *     const memory = new Memory({ url: "http://127.0.0.1:8377", key, project: "support-bot" });
 *     await memory.save("Refunds over 500 need a second signature", { type: "rule" });
 *     for (const hit of (await memory.search("may I refund 700?")).snippets) console.log(hit.text, hit.relevance);
 */
import createClient, { type Client } from "openapi-fetch";
import type { paths } from "./schema.js";

export type { paths } from "./schema.js";

/** A failure of the server: its status, a code such as `not_found`, and one sentence that says what to do. */
export class MemoryAnchorError extends Error {
  constructor(readonly status: number, readonly code: string, message: string) {
    super(message);
    this.name = "MemoryAnchorError";
  }
}

export interface Snippet {
  id: string; text: string; score: number; layer: string; type: string; when?: string; relevance?: number;
  weak?: boolean; tags?: { name: string; weight?: number }[]; status?: string; citations?: object[];
}
export interface WriteOutcome {
  outcome: string; id: string | null; layer: string; status: string | null; reason: string; target_id?: string;
  relation?: string; similar?: { id: string; text: string; score: number }[]; redactions?: string[];
}
export interface StoredMemory {
  id: string; content: string; layer: string; type: string; key?: string; status?: string; when?: string;
  recorded_at?: string; version?: number; who?: string[]; where?: string;
}

type Post = { [P in keyof paths]: paths[P] extends { post: unknown } ? P : never }[keyof paths];
type Body<P extends Post> = paths[P]["post"] extends { requestBody: { content: { "application/json": infer B } } }
  ? B : never;
type Rest<P extends Post, K extends string> = Partial<Omit<Body<P>, K>>;

export interface Options {
  url: string;
  key?: string;
  project?: string;
  user?: string;
  agent?: string;
  conversation?: string;
  fetch?: typeof globalThis.fetch;
}

export class Memory {
  /** Every path, typed, for what has no method here. */
  readonly api: Client<paths>;
  private readonly claims: Record<string, string>;

  constructor({ url, key, project, user, agent, conversation, fetch }: Options) {
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    this.api = createClient<paths>({ baseUrl: url.replace(/\/+$/, ""), headers, ...(fetch ? { fetch } : {}) });
    const claims = { project_id: project, user_id: user, agent_id: agent, conversation_id: conversation };
    this.claims = Object.fromEntries(Object.entries(claims).filter(([, said]) => said)) as Record<string, string>;
  }

  /** Save what lasts. A write that is sent again after a lost answer is one write. */
  save(content: string, more: Rest<"/v1/memory/store", "content"> = {}): Promise<WriteOutcome> {
    return this.post("/v1/memory/store", { request_id: crypto.randomUUID(), ...more, content });
  }
  log(content: string, more: Rest<"/v1/memory/log", "content"> = {}): Promise<WriteOutcome> {
    return this.post("/v1/memory/log", { request_id: crypto.randomUUID(), ...more, content });
  }
  remember(messages: { role: string; content: string }[], more: Rest<"/v1/memory/remember", "messages"> = {}):
    Promise<{ outcomes: WriteOutcome[] }> {
    return this.post("/v1/memory/remember", { request_id: crypto.randomUUID(), ...more, messages });
  }
  promote(event_id: string, more: Rest<"/v1/memory/promote", "event_id"> = {}): Promise<WriteOutcome> {
    return this.post("/v1/memory/promote", { ...more, event_id });
  }
  forget(id: string, reason = ""): Promise<WriteOutcome> {
    return this.post("/v1/memory/forget", { id, reason });
  }
  search(query: string, more: Rest<"/v1/memory/search", "query"> = {}):
    Promise<{ snippets: Snippet[]; conflicts?: string[][]; notes?: string[] }> {
    return this.post("/v1/memory/search", { ...more, query });
  }
  events(more: Rest<"/v1/memory/events", never> = {}): Promise<{ events: StoredMemory[] }> {
    return this.post("/v1/memory/events", more);
  }
  list(more: Rest<"/v1/memory/list", never> = {}): Promise<{ memories: StoredMemory[] }> {
    return this.post("/v1/memory/list", more);
  }
  get(id: string): Promise<StoredMemory> {
    return this.post("/v1/memory/get", { id });
  }
  history(id: string): Promise<{ versions: StoredMemory[]; steps: object[] }> {
    return this.post("/v1/memory/history", { id });
  }
  /** What a task needs to know, as one text for a prompt. */
  context(task: string, budget_tokens?: number):
    Promise<{ text: string; report: object; report_id: string; citations: object[]; notes: string[] }> {
    return this.post("/v1/memory/context", { task, ...(budget_tokens ? { budget_tokens } : {}) });
  }
  constitution():
    Promise<{ entries: { id: string; content: string; priority: number }[]; version: string; tokens: number;
      warnings: string[] }> {
    return this.post("/v1/constitution", {});
  }

  /** Any path of the API by a POST, with this memory's claims; `api` has the rest. */
  async post<T>(path: Post, body: object): Promise<T> {
    const send = this.api.POST as (path: Post, init: object) => Promise<{ data?: T; error?: unknown; response: Response }>;
    return answered(await send(path, { body: { ...this.claims, ...body } }));
  }
}

/** Return the data of an answer. Throws MemoryAnchorError. */
export function answered<T>({ data, error, response }: { data?: T; error?: unknown; response: Response }): T {
  if (response.ok) return data as T;
  const said = (error ?? {}) as { code?: string; message?: string };
  throw new MemoryAnchorError(response.status, said.code ?? "failure", said.message ?? response.statusText);
}

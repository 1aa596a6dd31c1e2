// Code that TypeScript must accept, and code that it must reject: checked by `tsc --strict`, and by being run.
import assert from "node:assert/strict";
import { test } from "node:test";

import {
  type Appended,
  type Approval,
  type CompactReport,
  type Context,
  type Messages,
  NotFoundError,
  type Policy,
  type Prepared,
  type RunRow,
  Session,
  Store,
  type StoreSearchOptions,
  type WindowWarning,
} from "loopstore";

test("a program in TypeScript compiles, and does what its types say", async () => {
  const policy: Policy = {
    window: 6000,
    keepFirst: 1,
    keepRecent: 1,
    summarizer: async ({ prompt, maxTokens, signal }) => {
      signal.throwIfAborted();
      return { text: `${prompt.length} of ${maxTokens}`, model: "stand-in" };
    },
    approve: async ({ blocks, tokensAfter, signal }): Promise<Approval> => {
      signal.throwIfAborted();
      const at = blocks.findIndex(({ text }) => text !== null);
      return tokensAfter > 5000 ? { refuse: "too large" } : { rewrite: { [at]: "A text." } };
    },
    warn: ({ percent }: WindowWarning) => console.error(`${percent} %`),
    warnAt: 0.8,
  };
  await using store = await Store.inMemory({ policy });
  const chat: Session = store.session("chat", { policy: { window: 200_000 } });
  const messages: Messages = [{ role: "user", content: "Will it rain?" }];
  const done: Appended = await chat.append(messages, { format: "openai", key: "first" });
  const [first, end]: [number, number] = done.seqs;
  assert.deepEqual([first, end, done.loopId], [0, 1, "loop-1"]);

  const own: Context = await chat.context();
  const { messages: sent } = await chat.context({ format: "anthropic", maxTokens: 1000 });
  assert.equal(sent.length, own.messages.length);
  const ready: Prepared<"responses"> = await chat.prepare({ format: "responses" });
  assert.deepEqual(ready.request.input, ready.messages);
  const report: CompactReport = await chat.compact({ force: true, dryRun: true });
  assert.equal(typeof report.tokens_before, "number");
  const runs: RunRow[] = await store.history("chat");
  assert.equal(runs.length, 0);
  const rows = await store.sql<{ n: number }>("SELECT 1 AS n");
  assert.equal(rows[0]?.n, 1);
  const options: StoreSearchOptions = { session: "chat", hidden: false, limit: 5 };
  assert.equal((await store.search("rain", options)).hits[0]?.session_id, "chat");
  try {
    await store.session("nobody").undo();
  } catch (error) {
    if (!(error instanceof NotFoundError)) throw error;
    const what: string | null = error.what;
    const code: string = error.code;
    assert.deepEqual([code, typeof what], ["ERR_LOOPSTORE_NOT_FOUND", "string"]);
  }
  {
    using other = await Store.inMemory();
    assert.equal(other.closed, false);
  }
});

/** Lines that must not compile: each is rejected, or the check fails. */
export async function refused(store: Store, chat: Session): Promise<void> {
  // @ts-expect-error: a path is no number.
  await Store.open(5);
  // @ts-expect-error: there is no such option.
  await Store.open("x.db", { readonly: true });
  // @ts-expect-error: the names of tools are a list.
  chat.withPolicy({ clearToolResults: { excludeTools: "ls" } });
  // @ts-expect-error: there is no such form.
  await chat.append([], { format: "gemini" });
  // @ts-expect-error: messages are no number.
  await chat.append(5);
  // @ts-expect-error: a point in time is one of three.
  await chat.asOf({ loopId: "loop-1" });
  // @ts-expect-error: a context in the form of Responses has no messages.
  (await chat.context({ format: "responses" })).messages;
  // @ts-expect-error: a session comes from a store.
  new Session();
  // @ts-expect-error: the text of a search is a text.
  await store.search(5);
}

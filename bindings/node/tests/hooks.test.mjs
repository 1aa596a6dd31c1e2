// A person in the loop: the approval of a compaction, and the warning before one.
import assert from "node:assert/strict";
import { test } from "node:test";

import { InvalidInputError, NeedsCompactionError, Store } from "loopstore";

import { assistant, fill, openai, own, place, run } from "./support.mjs";

const POLICY = { window: 3000, keepFirst: 1, keepRecent: 1 };
const TEXT = "Twelve files were read.";

/** Opens a store with a session that a compaction shortens. */
async function filled(t, turns = 12) {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await fill(chat, turns);
  return chat;
}

const withText = ({ blocks }) => blocks.findIndex(({ text }) => text !== null);
const later = () => new Promise((done) => setTimeout(done, 5));

for (const [kind, wrapped] of [
  ["a function", (value) => value],
  ["an async function", (value) => later().then(() => value)],
]) {
  test(`${kind} sees what a commit makes`, async (t) => {
    const chat = await filled(t);
    let seen;
    const approve = (proposal) => ((seen = proposal), wrapped(true));
    const report = await chat.compact({ policy: { ...POLICY, approve } });
    assert.equal(report.outcome, "committed");
    const sizes = [seen.tokensBefore, seen.tokensAfter, seen.bytesBefore, seen.bytesAfter, seen.messagesBefore];
    const { tokens_before, tokens_after, bytes_before, bytes_after, messages_before } = report;
    assert.deepEqual(sizes, [tokens_before, tokens_after, bytes_before, bytes_after, messages_before]);
    assert.equal(seen.messagesAfter, report.messages_after);
    assert.deepEqual([seen.sessionId, seen.loopId, seen.strategy], ["chat", (await chat.leaf()), report.strategy]);
    assert.deepEqual(seen.messages, (await chat.context()).messages);
    assert.ok(JSON.stringify(seen.messages).includes(JSON.stringify(seen.blocks[withText(seen)].text)));
    assert.deepEqual(Object.keys(seen.blocks[0]).sort(), ["kind", "loopId", "text", "turns"]);
  });

  test(`each decision of ${kind} has its effect`, async (t) => {
    const chat = await filled(t);
    const before = await chat.context();
    const decisions = [{ postpone: "later" }, { postpone: "later" }, { refuse: "never" }];
    const held = chat.withPolicy({ ...POLICY, approve: () => wrapped(decisions.shift()) });
    for (const error of ["postponed: later", "postponed: later", "never"]) {
      const report = await held.compact();
      assert.deepEqual([report.outcome, report.error], ["vetoed", error]);
    }
    assert.equal((await held.compact()).outcome, "not_needed");
    assert.deepEqual(await chat.context(), before);
    await assert.rejects(held.prepare(), (error) => error instanceof NeedsCompactionError && /never/.test(error.message));
    const rewrite = (proposal) => wrapped({ rewrite: { [withText(proposal)]: TEXT } });
    await chat.append(assistant("And one more."), openai);
    const ready = await chat.withPolicy({ ...POLICY, approve: rewrite }).prepare();
    assert.ok(ready.wasCompacted);
    assert.match(JSON.stringify(ready.messages), new RegExp(TEXT));
    await chat.undo();
    assert.doesNotMatch(JSON.stringify(await chat.context()), new RegExp(TEXT));
  });

  test(`an error of ${kind} commits nothing, and is thrown`, async (t) => {
    const chat = await filled(t);
    const before = await chat.context();
    const control = new AbortController();
    for (const error of [new RangeError("no person"), "only a text", undefined]) {
      const approve = () => (kind === "a function" ? raise(error) : later().then(() => raise(error)));
      const held = chat.withPolicy({ ...POLICY, approve });
      for (const call of [() => held.compact(), () => held.prepare(), () => held.prepare({ signal: control.signal })]) {
        const thrown = await call().then(
          () => assert.fail("it was committed"),
          (own) => ({ own }),
        );
        assert.equal(thrown.own, error);
      }
    }
    assert.deepEqual(await chat.context(), before);
    const rows = await chat.history();
    assert.ok(rows.every(({ outcome }) => outcome === "vetoed") && /no person/.test(rows.at(-1).error));
    // The same plan is proposed again.
    const report = await chat.compact({ policy: { ...POLICY, approve: () => true } });
    assert.equal(report.outcome, "committed");
  });
}

function raise(error) {
  throw error;
}

test("an answer that is no decision commits nothing", async (t) => {
  const chat = await filled(t);
  const before = await chat.context();
  const wrong = [undefined, null, 1, "yes", [], {}, { reject: "x" }, { refuse: 1 }, { rewrite: ["text"] }, 1n, NaN];
  for (const answer of [...wrong, { refuse: "x", postpone: "y" }, { rewrite: { first: "text" } }]) {
    const policy = { ...POLICY, approve: () => answer };
    await assert.rejects(chat.compact({ policy }), InvalidInputError, String(answer));
  }
  assert.deepEqual(await chat.context(), before);
});

test("an approval may use the store, and calls at the same time have their own errors", async (t) => {
  const store = await own(t, Store.inMemory());
  const results = await Promise.allSettled(
    Array.from({ length: 8 }, async (_, at) => {
      const chat = store.session(`chat-${at}`);
      await fill(chat);
      const approve = async ({ messagesBefore }) => {
        assert.equal((await chat.context()).messages.length, messagesBefore);
        if (at % 2) throw new Error(`error ${at}`);
        return true;
      };
      return (await chat.compact({ policy: { ...POLICY, approve } })).outcome;
    }),
  );
  for (const [at, { value, reason }] of results.entries()) {
    assert.deepEqual([value, reason?.message], at % 2 ? [undefined, `error ${at}`] : ["committed", undefined]);
  }
});

test("a call that is aborted while a person thinks commits nothing", async (t) => {
  const chat = await filled(t);
  const before = await chat.context();
  for (const call of ["compact", "prepare"]) {
    const control = new AbortController();
    let told = false;
    const approve = ({ signal }) => {
      setTimeout(() => control.abort(), 20);
      return new Promise((_, failed) => signal.addEventListener("abort", () => ((told = true), failed(signal.reason))));
    };
    const begun = Date.now();
    await assert.rejects(chat.withPolicy({ ...POLICY, approve })[call]({ signal: control.signal }), { name: "AbortError" });
    assert.ok(Date.now() - begun < 5000);
    for (let wait = 0; wait < 100 && !told; wait++) await later();
    assert.ok(told, "the function is told that nobody waits");
  }
  assert.deepEqual(await chat.context(), before);
  const rows = await chat.history();
  assert.deepEqual(rows.map(({ outcome, error }) => [outcome, error]), [["failed", "cancelled"], ["failed", "cancelled"]]);
});

test("a process may end while a person thinks", async (t) => {
  const path = place(t);
  const program = `import { Store } from "loopstore"; import { fill } from "./tests/support.mjs";
    const store = await Store.open(${JSON.stringify(path)});
    const chat = store.session("chat"); await fill(chat);
    const policy = { window: 3000, keepFirst: 1, keepRecent: 1, approve: () => new Promise(() => {}) };
    chat.compact({ policy }); setTimeout(() => process.exit(5), 300);`;
  const { code, err } = await run(program);
  assert.equal(code, 5, err);
  const store = await own(t, Store.open(path));
  const chat = store.session("chat");
  assert.equal((await chat.compact({ policy: POLICY })).outcome, "committed");
  assert.equal((await store.verify()).ok, true);
});

test("a warning comes before the compaction", async (t) => {
  const chat = await filled(t, 6);
  const { tokens } = await chat.prepare();
  const warnings = [];
  for (const [window, expected] of [[tokens * 4, 0], [tokens * 2, 1]]) {
    const warn = async ({ signal, ...warning }) => {
      await later();
      warnings.push(warning);
    };
    await chat.withPolicy({ window, warn, warnAt: 0.4 }).prepare();
    assert.equal(warnings.length, expected);
  }
  assert.deepEqual(warnings[0], { sessionId: "chat", tokens, window: tokens * 2, percent: 50 });
  const error = new Error("nobody hears it");
  const held = chat.withPolicy({ window: tokens * 2, warn: () => raise(error), warnAt: 0.4 });
  await assert.rejects(held.prepare(), (own) => own === error);
});

test("hooks that cannot work are refused", async (t) => {
  const chat = await filled(t, 1);
  const warn = () => {};
  for (const warnAt of [0, 0.001, 1.5, 80, -1, NaN]) {
    assert.throws(() => chat.withPolicy({ warn, warnAt }), (error) => /from 0.01 to 1/.test(error.message));
  }
  for (const wrong of [{ warn }, { warnAt: 0.8 }, { approve: true }, { warn: "x", warnAt: 0.8 }, { warn, warnAt: "x" }]) {
    assert.throws(() => chat.withPolicy(wrong), InvalidInputError, JSON.stringify(wrong));
  }
});

test("prompts are kept within their tokens", async (t) => {
  const chat = await filled(t);
  const report = await chat.compact({ force: true, policy: { ...POLICY, window: 20_000, keepPrompts: 700 } });
  assert.ok(report.prompts_kept > 0 && report.prompts_left_out > 0, JSON.stringify(report));
  const quoted = JSON.stringify((await chat.context()).messages).match(/\[Kept prompt, /g);
  assert.equal(quoted.length, report.prompts_kept);
});

// Arguments: what is taken, and errors that name the argument.
import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { inspect } from "node:util";
import { pathToFileURL } from "node:url";

import { InvalidInputError, Store } from "loopstore";

import { assistant, fill, openai, own, place, run, user } from "./support.mjs";

/** Words of serde, of Rust and of napi. */
const INNARDS = /line \d+ column|u64|u32|usize|i64|struct|napi|expected a sequence/;

/** Checks that a call is refused, and that the error names the argument. */
async function refused(call, name) {
  await assert.rejects(async () => await call(), (error) => {
    assert.ok(error instanceof InvalidInputError, `${error?.constructor?.name}: ${error?.message}`);
    assert.ok(error.message.includes(`\`${name}`), error.message);
    assert.doesNotMatch(error.message, INNARDS);
    return true;
  });
}

test("places in memory leave no file, and home folders and URLs are understood", async (t) => {
  const folder = dirname(place(t));
  const program = `
    import { Store } from "loopstore";
    process.chdir(${JSON.stringify(folder)});
    const absolute = "sqlite:///" + process.cwd() + "/c.db";
    for (const place of [":memory:", "sqlite://", "sqlite:///:memory:", "~/a.db", absolute, "sqlite:///d.db", "sqlite:///~/e.db",
      new URL("file://" + process.cwd() + "/f.db")]) {
      const store = await Store.open(place);
      await store.session("weather").append({ role: "user", content: "Will it rain?" }, { format: "openai" });
      if (place === "~/a.db") {
        await store.session("weather").exportTo("~/out.jsonl", "jsonl");
        if ((await store.import(["~/out.jsonl"])).files !== 1) throw new Error("not imported");
      }
      await store.close();
    }`;
  const { code, err } = await run(program, [], { env: { ...process.env, HOME: folder } });
  assert.equal(code, 0, err);
  const names = readdirSync(folder).filter((name) => !/-(wal|shm)$|\.lock$/.test(name));
  assert.deepEqual(names.filter((name) => name.endsWith(".db")).sort(), ["a.db", "c.db", "d.db", "e.db", "f.db"]);
});

test("a place that is no file says what to do", async () => {
  for (const [at, way] of [
    ["postgres://ann@db/x", /Store\.connect/],
    ["mysql://db/x", /sqlite:\/\/\/PATH/],
    ["sqlite://db.db", /sqlite:\/\/\/relative\.db/],
    ["sqlite:///db.db?mode=ro", /without a host and options/],
    ["file:db.db?mode=ro", /not a URI/],
    ["", /a path/],
    ["a\0b", /zero character/],
    [new URL("https://db/x"), /URL of a file/],
  ]) {
    await assert.rejects(Store.open(at), (error) => error instanceof InvalidInputError && way.test(error.message));
  }
  await assert.rejects(Store.connect("sqlite:///x.db"), /Store\.open/);
  for (const options of [{ key: "k" }, { readOnly: true }, { durability: "full" }]) {
    await assert.rejects(Store.open(":memory:", options), /in memory/);
  }
});

test("a time is a Date or ISO text wherever one is taken", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("old");
  await chat.append([
    { ...user("rain in March"), timestamp: 1_772_366_400_250 },
    { ...assistant("rain indeed"), timestamp: 1_772_366_401_000 },
  ]);
  await store.session("now").append(user("rain today"), openai);
  const hourAgo = new Date(Date.now() - 3_600_000);
  for (const since of [hourAgo, hourAgo.toISOString(), hourAgo.getTime()]) {
    assert.deepEqual((await store.search("rain", { since })).hits.map((hit) => hit.session_id), ["now"]);
  }
  for (const until of ["2026-03-01", "2026-03-01T14:00:01+02:00", "2026-03-01 12:00:01", new Date("2026-03-02")]) {
    assert.equal((await store.search("rain", { until })).hits.length, 2, String(until));
    assert.doesNotMatch((await store.recall("rain", 400, { until })).text, /today/);
  }
  assert.equal((await store.search("rain", { until: "2026-03-01T12:00:00.250Z" })).hits.length, 1);
  assert.equal((await store.sessions({ since: hourAgo })).length, 2);
  assert.deepEqual(await store.sessions({ since: new Date(Date.now() + 86_400_000) }), []);
  const soon = new Date(Date.now() + 2000);
  for (const time of [soon, soon.toISOString()]) {
    assert.equal((await store.session("now").asOf({ time })).messages.length, 1);
  }
  for (const wrong of ["yesterday", "2026-13-01", "2026-02-30", "2026-01-01T25:00", "", "12:00", true, [1], new Date(NaN)]) {
    await refused(() => store.search("rain", { since: wrong }), "since");
    await refused(() => chat.search("rain", { until: wrong }), "until");
    await refused(() => store.sessions({ since: wrong }), "since");
    await refused(() => chat.asOf({ time: wrong }), "time");
  }
});

test("an error names the argument and its unit", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await chat.append(user("x"), openai);
  for (const [name, call] of [
    ["maxTokens` is a whole number of tokens", () => chat.context({ maxTokens: 1.5 })],
    ["maxBytes` is a whole number of bytes", () => chat.context({ maxBytes: -1 })],
    ["maxTokens` is a whole number of tokens", () => chat.recall("x", "many")],
    ["maxRows` is a whole number of rows", () => store.sql("SELECT 1", null, { maxRows: -1 })],
    ["timeout` is a number of seconds", () => store.sql("SELECT 1", null, { timeout: "60" })],
    ["limit` is a whole number of sessions", () => store.sessions({ limit: 1.5 })],
    ["format` \"opneai\"; known are loopstore, openai", () => chat.append(user("x"), { format: "opneai" })],
    ["turn` is the position of a turn", () => chat.fork("loop-1", 2 ** 33)],
    ["first` is the position of a turn", () => chat.expand("0", 1)],
    ["start` is `SEQ` or `SEQ:OFFSET`", () => chat.expand(0, 1, { start: "x" })],
    ["seqs` is the first sequence", () => chat.entries({ loopId: "loop-1", seqs: 3 })],
    ["roles` is a list of texts", () => chat.entries({ roles: "user" })],
    ["larger` is a whole number of bytes", () => chat.drop([], { larger: "big" })],
    ["targets[0].turn` is the position of a turn", () => chat.drop([{ loop_id: "loop-1", turn: "0" }])],
    ["targets[0]` has no field `loopId`", () => chat.drop([{ loopId: "loop-1", turn: 0 }])],
    ["format` \"pdf\"; known are json", () => chat.export("pdf")],
    ["status` \"Done\"; known are Completed", () => chat.endLoop("Done")],
    ["title` is not Unicode text: character 1", () => chat.setTitle("a\ud800")],
    ["messages[1]` is a message", () => chat.append([user("x"), 5], openai)],
    ["signal` is an AbortSignal", () => chat.entries({ signal: {} })],
    ["kind` is `Default`", () => chat.beginLoop({ kind: { Rerun: 5 } })],
    ["kind` is `Default`", () => chat.beginLoop({ kind: { Other: { tag: "x" } } })],
    ["kind` is `Default`", () => chat.beginLoop({ kind: "Other" })],
  ]) {
    await refused(call, name);
  }
  assert.equal(await chat.countEntries({ wholeSession: true }), 1);
});

test("the error of a message has no position in JSON that nobody wrote", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  for (const bad of [{ role: "user", content: 5 }, {}, { role: 5, content: "x" }, { role: "toolResult", content: "x" }]) {
    for (const call of [() => chat.append(bad), () => chat.appendBatch([{ messages: bad }])]) {
      await assert.rejects(call(), (error) => {
        assert.ok(error instanceof InvalidInputError);
        assert.doesNotMatch(error.message, INNARDS);
        assert.match(error.message, /^message 0 is not in loopstore's own form/);
        return true;
      });
    }
  }
  await assert.rejects(chat.append('{"role":5}'), /line 1 column 9/);
});

test("a wrong policy fails at once, not at the first compaction", async (t) => {
  for (const [name, policy] of [
    ["window` is a whole number of tokens", { window: "200k" }],
    ["window` is a whole number of tokens from 1", { window: 0 }],
    ["window` of 1,000 tokens leaves none for messages: `systemTokens` take 2,000", { window: 1000, systemTokens: 2000 }],
    ["window` of 10,000 tokens leaves none", { window: 10_000, trigger: "reserves" }],
    ["trigger` \"never\"; known are headroom", { trigger: "never" }],
    ["keepRecent` is a number of turns", { keepRecent: "all" }],
    ["keepRecent` is a number of turns", { keepRecent: "messages:99999999999999999999" }],
    ["scope` is `fixed:N`", { scope: "everything" }],
    ["triggerParams[\"share\"]` is a share from 0 to 1", { triggerParams: { share: 85 } }],
    ["models[\"own\"]` is a whole number of tokens", { models: { own: -5 } }],
    ["summarizer` is a function of a SummaryRequest", { summarizer: "gpt" }],
    ["approve` is a function of a Proposal", { approve: true }],
    ["warnAt` is a fraction", { warnAt: "0.8" }],
    ["clearToolResults.keep` is a whole number of results", { clearToolResults: { keep: 1.5 } }],
    ["own` is not known; add it to `models`", { model: "own" }],
    ["policy` is an object", "headroom"],
  ]) {
    await refused(() => Store.inMemory({ policy }), name);
  }
  const store = await own(t, Store.inMemory({ policy: { window: 12_000, trigger: "reserves", keepRecent: "user-turns:3" } }));
  assert.throws(() => store.session("x", { policy: { window: -1 } }), InvalidInputError);
});

test("a misspelt format names the one that was meant", async (t) => {
  const store = await own(t, Store.inMemory());
  await assert.rejects(store.import(".", { format: "claude" }), /did you mean `claude-code`\?/);
  await assert.rejects(store.importBytes("{}", { format: "Codex-cli" }), /did you mean `codex`\?/);
  await assert.rejects(store.importBytes("{}", { format: "nothing-like-it" }), (error) => !/did you mean/.test(error.message));
});

test("an export may be JSON or a page", async (t) => {
  const file = place(t, "page.html");
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  await chat.append([user("Will it rain?"), assistant("It will.")], openai);
  assert.equal(JSON.parse((await chat.export("json")).toString()).session_id, "chat");
  assert.match((await chat.export("html")).toString(), /<html/i);
  await chat.exportTo(file, "html");
  assert.ok(existsSync(file));
  assert.match((await chat.export("html", { loopId: "loop-1" })).toString(), /<html/i);
});

test("whole numbers of SQL beyond 2^53 come as BigInt, and nothing else does", async (t) => {
  const store = await own(t, Store.inMemory());
  const query = `SELECT 9007199254740993 AS big, -9223372036854775808 AS least, 9007199254740991 AS safe, 1.5e300 AS real,
    '9007199254740993, "9007199254740993" \\"' AS text, NULL AS none`;
  assert.deepEqual(await store.sql(query), [
    {
      big: 9007199254740993n,
      least: -9223372036854775808n,
      safe: 9007199254740991,
      real: 1.5e300,
      text: '9007199254740993, "9007199254740993" \\"',
      none: null,
    },
  ]);
  const marks = "\u0001\u0001 9007199254740993";
  assert.deepEqual(await store.sql("SELECT ? AS text, ? AS big", [marks, 2n ** 62n]), [{ text: marks, big: 2n ** 62n }]);
});

test("parameters of SQL are values, whatever is in them", async (t) => {
  const store = await own(t, Store.inMemory());
  for (const value of [null, 0, -1, 1.5, 2n ** 60n, "", "it's", "?", ":name", "é😀", "a--b", '"', "1e5"]) {
    assert.deepEqual(await store.sql("SELECT ? AS it", [value]), [{ it: value }]);
    assert.deepEqual(await store.sql("SELECT :it AS it, :it AS same", { it: value }), [{ it: value, same: value }]);
  }
  const [row] = await store.sql("SELECT ? AS time, hex(?) AS bytes, ? + 1 AS yes", [new Date(0), Buffer.from("ab"), true]);
  assert.deepEqual(row, { time: "1970-01-01T00:00:00.000Z", bytes: "6162", yes: 2 });
  const kept = `SELECT '?' AS "a?", ':x' AS b -- ?\n, 1 /* :y ? */ AS c`;
  assert.deepEqual(await store.sql(kept, []), [{ "a?": "?", b: ":x", c: 1 }]);
  assert.deepEqual(await store.sql("SELECT ?2 AS b, ?1 AS a", ["x", "y"]), [{ b: "y", a: "x" }]);
  for (const [query, params, why] of [
    ["SELECT ?", [], /needs `params\[0\]`, which `params` lacks/],
    ["SELECT ?", [1, 2], /no parameter for `params\[1\]`/],
    ["SELECT :a", { b: 1 }, /needs `:a`, which `params` lacks/],
    ["SELECT :a", [1], /give `params` as an object/],
    ["SELECT ?", { a: 1 }, /give `params` as an array/],
    ["SELECT :constructor", {}, /lacks/],
    ["SELECT ?", [NaN], /`params\[0\]` is/],
    ["SELECT ?", [undefined], /`params\[0\]` is/],
    ["SELECT ?", [[1]], /`params\[0\]` is/],
    ["SELECT ?", ["a\0b"], /zero character/],
    ["SELECT ?", "x", /`params` is an array/],
    ["SELECT 1", { maxRows: 5 }, /no parameter for `:maxRows`/],
  ]) {
    await assert.rejects(store.sql(query, params), (error) => error instanceof InvalidInputError && why.test(error.message));
  }
});

test("bytes of a parameter are bytes on a server too", () => {
  const { withParams } = createRequire(import.meta.url)("../dist/core/sql.js");
  const bytes = Buffer.from([0, 255]);
  assert.equal(withParams("SELECT ?", [bytes], "sqlite"), "SELECT X'00ff'");
  // PostgreSQL reads `X'00ff'` as bits, and cannot compare them with bytes.
  assert.equal(withParams("SELECT ?", [bytes], "postgres"), "SELECT '\\x00ff'::bytea");
  assert.equal(withParams("SELECT a[1: n], ?", [1], "postgres"), "SELECT a[1: n], (1)");
});

/** A query that runs for minutes. */
const ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1e12) SELECT count(*) FROM n";

test("a query ends with its signal, and holds back neither the store nor the process", async (t) => {
  const path = place(t);
  const store = await Store.open(path);
  const control = new AbortController();
  const query = store.sql(ENDLESS, null, { signal: control.signal });
  const reason = new Error("enough");
  setTimeout(() => control.abort(reason), 50);
  await assert.rejects(query, (error) => error === reason);
  await store.close();
  for (const [end, options] of [
    ["process.exit(3)", ""],
    ["control.abort(); await store.close(); process.exitCode = 3", ", null, { signal: control.signal }"],
  ]) {
    const program = `
      import { Store } from "loopstore";
      const store = await Store.open(process.argv.at(-1)), control = new AbortController();
      store.sql(${JSON.stringify(ENDLESS)}${options}).catch(() => {});
      await new Promise((done) => setTimeout(done, 100));
      ${end};`;
    const child = run(program, [path], { timeout: 30_000 });
    assert.equal((await child).code, 3, end);
  }
});

test("a Date in a message is text, half of a surrogate pair is replaced, and NaN is refused with its place", async (t) => {
  const store = await own(t, Store.inMemory());
  const chat = store.session("chat");
  const at = new Date(0);
  const call = { id: "c-1", type: "function", function: { name: "f", arguments: "{}" }, at };
  await chat.append([user("x"), { role: "assistant", content: null, tool_calls: [call] }], openai);
  for (const given of [user("a\ud800b"), '{"role":"user","content":"a\\ud800b"}', Buffer.from('{"role":"user","content":"a\\uD800b"}')]) {
    const { notes } = await chat.append(given, openai);
    assert.deepEqual(notes, ["half of a surrogate pair, replaced by U+FFFD"]);
    assert.equal((await chat.context(openai)).messages.at(-1).content, "a\ufffdb");
  }
  for (const given of [user("😀"), '{"role":"user","content":"\\ud83d\\ude00"}', Buffer.from('{"role":"user","content":"\\ud83d\\ude00"}')]) {
    assert.deepEqual((await chat.append(given, openai)).notes, []);
    assert.equal((await chat.context(openai)).messages.at(-1).content, "😀");
  }
  const [, batched] = await chat.appendBatch([{ messages: user("x") }, { messages: user("\udc00") }], openai);
  assert.equal(batched.notes.length, 1);
  const before = await chat.countEntries();
  for (const [bad, where] of [
    [{ ...user("x"), score: NaN }, "score cannot be written as JSON: JSON has no NaN"],
    [[user("x"), { ...user("y"), extra: { list: [1, -Infinity] } }], "[1].extra.list[1] cannot be written as JSON: JSON has no -Infinity"],
    [{ ...user("x"), big: 10n }, "big cannot be written as JSON: JSON has no bigint 10"],
    [{ ...user("x"), at: new Date(NaN) }, "at cannot be written as JSON: the Date is invalid"],
  ]) {
    await assert.rejects(chat.append(bad, openai), (error) => error.message.startsWith(where));
  }
  assert.equal(await chat.countEntries(), before);
});

test("a system message comes back in every form", async (t) => {
  const store = await own(t, Store.inMemory());
  for (const role of ["system", "developer"]) {
    const chat = store.session(role);
    await chat.append([{ role, content: "Be brief." }, user("Will it rain?")], openai);
    assert.match((await chat.context(openai)).messages[0].content, /Be brief\./);
    assert.match(JSON.stringify((await chat.context({ format: "anthropic" })).system), /Be brief\./);
    assert.match((await chat.context({ format: "responses" })).instructions, /Be brief\./);
  }
});

test("objects print on one line for people, and keep their fields", async (t) => {
  const store = await own(t, Store.inMemory({ policy: { window: 6000, keepFirst: 1, keepRecent: 1 } }));
  const chat = store.session("chat");
  const done = await chat.append(user("Will it rain?"), { ...openai, key: "k" });
  assert.match(inspect(done), /^Appended \{ 1 message, \d+ tokens: loop-1, turn 0, began loop-1 \}$/);
  assert.match(inspect(await chat.append(user("Will it rain?"), { ...openai, key: "k" })), /a duplicate of an earlier append/);
  assert.match(inspect(await chat.appended("k")), /^Appended/);
  assert.match(inspect((await chat.appendKeys())[0]), /key: 'k',\s+appended: Appended \{/);
  assert.deepEqual(Object.keys(done).sort(), ["begun", "duplicate", "loopId", "notes", "seqs", "tokens", "turns"]);
  assert.equal(inspect(chat), 'Session { "chat" }');
  await fill(chat);
  const ready = await chat.prepare();
  assert.match(inspect(ready), /^Prepared \{ \d+ messages, [\d,]+ tokens, compacted: loop-\d+ \}$/);
  assert.ok(!JSON.stringify(ready).includes("Prepared"));
  assert.match(inspect(await chat.recall("rain", 300)), /^Recall \{ \d+ parts?, \d+ tokens: "/);
  assert.match(inspect(store), /^Store \{/);
});

test("a file URL names a file", async (t) => {
  const file = join(dirname(place(t)), "with space.db");
  const store = await own(t, Store.open(pathToFileURL(file)));
  await store.session("x").setTitle("x");
  assert.ok(existsSync(file));
});

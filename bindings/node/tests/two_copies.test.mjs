// better-sqlite3 on the databases of open stores: another copy of SQLite in the same process.
// `LOOPSTORE_TWO_COPIES=2000` plays that number of random histories, `LOOPSTORE_SEED=17` one.
import assert from "node:assert/strict";
import { copyFileSync, existsSync, rmSync } from "node:fs";
import { test } from "node:test";

import Database from "better-sqlite3";
import { Store } from "loopstore";

import { openai, place, user } from "./support.mjs";

const count = Number(process.env.LOOPSTORE_TWO_COPIES ?? 40);
const only = process.env.LOOPSTORE_SEED;
const seeds = only === undefined ? Array.from({ length: count }, (_, seed) => seed) : [Number(only)];

/** Returns a generator of the same numbers for the same seed (mulberry32). */
function randoms(seed) {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

async function template(t) {
  const path = place(t, "template.db");
  await (await Store.open(path)).close();
  const other = new Database(path);
  other.exec("CREATE TABLE own_notes (n INTEGER PRIMARY KEY)");
  other.close();
  return path;
}

/** Plays a history, and returns the acknowledged rows. */
async function play(path, seed) {
  const random = randoms(seed);
  const stores = new Array(2 + (seed % 3)).fill(null);
  const others = [null, null];
  const kept = { messages: [], notes: [] };
  let next = 0;
  const holds = () => others.some((other) => other?.database.inTransaction);
  async function withStore(at) {
    if (stores[at] === null) {
      stores[at] = await Store.open(path);
      return;
    }
    const act = random(6);
    if (act === 0) {
      await stores[at].close();
      stores[at] = null;
    } else if (act === 1) {
      await stores[at].sql("SELECT count(*) AS n FROM v_messages");
    } else if (!holds()) {
      // A store waits for five seconds while the other copy writes.
      const text = `message ${next++}`;
      await stores[at].session(`s-${at}`).append(user(text), openai);
      kept.messages.push(text);
    }
  }
  function withOther(at) {
    if (others[at] === null) {
      others[at] = { database: new Database(path, { timeout: 10 }), notes: [] };
      return;
    }
    const { database, notes } = others[at];
    const acts = [
      () => database.prepare("SELECT count(*) FROM v_messages").all(),
      () => {
        others[at] = null;
        database.close();
      },
      () => database.exec("BEGIN IMMEDIATE"),
      () => database.exec("VACUUM"),
      () => database.pragma("wal_checkpoint(TRUNCATE)"),
    ];
    if (database.inTransaction) {
      acts.splice(2, 3, () => {
        database.exec(`INSERT INTO own_notes VALUES (${next})`);
        notes.push(next++);
      });
      acts.push(() => {
        database.exec("COMMIT");
        kept.notes.push(...notes.splice(0));
      });
      acts.push(() => {
        database.exec("ROLLBACK");
        notes.length = 0;
      });
    }
    try {
      acts[random(acts.length)]();
    } catch (error) {
      if (!/^SQLITE_(BUSY|LOCKED)/.test(error.code)) throw error;
    }
  }
  for (let step = 0; step < 50; step++) {
    const who = random(stores.length + others.length);
    if (who < stores.length) await withStore(who);
    else withOther(who - stores.length);
  }
  const open = [...stores, ...others.map((other) => other?.database)].filter((one) => one);
  if (random(2)) open.reverse();
  for (const one of open) await one.close();
  return kept;
}

test("nothing is lost beside another copy of SQLite", async (t) => {
  const from = await template(t);
  for (const seed of seeds) {
    const path = place(t, "shared.db");
    copyFileSync(from, path);
    const kept = await play(path, seed);
    const other = new Database(path);
    assert.equal(other.pragma("integrity_check", { simple: true }), "ok", `seed ${seed}`);
    const column = (sql) => other.prepare(sql).pluck().all().sort();
    assert.deepEqual(column("SELECT n FROM own_notes"), kept.notes.sort(), `seed ${seed}`);
    assert.deepEqual(column("SELECT text FROM v_messages"), kept.messages.sort(), `seed ${seed}`);
    other.close();
    const store = await Store.open(path);
    assert.equal((await store.verify()).ok, true, `seed ${seed}`);
    await store.close();
  }
});

test("a reader beside an open store leaves its log alone; one that was removed is never written back", async (t) => {
  const path = place(t);
  const old = await Store.open(path);
  await old.session("s").append(user("one"), openai);
  const other = new Database(path);
  assert.equal(other.prepare("SELECT count(*) FROM v_messages").pluck().get(), 1);
  other.close();
  assert.ok(existsSync(`${path}-wal`));
  await old.session("s").append(user("two"), openai);

  rmSync(`${path}-wal`);
  await assert.rejects(old.session("s").append(user("three"), openai), /open the database again/);
  const again = await Store.open(path);
  for (let at = 0; at < 5; at++) await again.session("s").append(user(`again ${at}`), openai);
  await old.close();
  await again.close();
  const store = await Store.open(path);
  assert.equal((await store.verify()).ok, true);
  assert.equal(await store.session("s").countEntries(), 5);
  await store.close();
});

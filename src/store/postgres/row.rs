//! Rows as plain values.

use std::collections::BTreeMap;

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::model::{LoopId, LoopStatus, SessionId};
use crate::store::codec::role_from_number;
use crate::store::error::{StoreError, StoreResult};
use crate::store::*;

/// A row read by column name, with damage reported instead of passed on.
pub(super) struct Fields<'r>(pub(super) &'r Row);

pub(super) fn damaged<E: std::fmt::Display>(error: E) -> StoreError {
    StoreError::Damaged(error.to_string())
}

impl Fields<'_> {
    pub(super) fn get<'s, T: FromSql<'s>>(&'s self, column: &str) -> StoreResult<T> {
        self.0.try_get(column).map_err(|error| {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            StoreError::Damaged(format!("{column}: {}", why.unwrap_or(error.to_string())))
        })
    }

    pub(super) fn unsigned(&self, column: &str) -> StoreResult<u64> {
        let value: i64 = self.get(column)?;
        u64::try_from(value).map_err(|_| StoreError::Damaged(format!("{column} is {value}")))
    }

    pub(super) fn small(&self, column: &str) -> StoreResult<u32> {
        let value: i64 = self.get(column)?;
        u32::try_from(value).map_err(|_| StoreError::Damaged(format!("{column} is {value}")))
    }

    pub(super) fn maybe_small(&self, column: &str) -> StoreResult<Option<u32>> {
        let value: Option<i64> = self.get(column)?;
        value
            .map(u32::try_from)
            .transpose()
            .map_err(|_| StoreError::Damaged(format!("{column} is {value:?}")))
    }

    pub(super) fn maybe_bytes<const N: usize>(&self, column: &str) -> StoreResult<Option<[u8; N]>> {
        let value: Option<&[u8]> = self.get(column)?;
        let fits = |bytes: &[u8]| {
            let length = bytes.len();
            bytes
                .try_into()
                .map_err(|_| StoreError::Damaged(format!("{column} has {length} bytes")))
        };
        value.map(fits).transpose()
    }

    pub(super) fn bytes<const N: usize>(&self, column: &str) -> StoreResult<[u8; N]> {
        self.maybe_bytes(column)?
            .ok_or_else(|| StoreError::Damaged(format!("{column} is missing")))
    }

    fn turns(&self, first: &str, last: &str) -> StoreResult<Option<Turns>> {
        Ok(match (self.maybe_small(first)?, self.maybe_small(last)?) {
            (Some(first), Some(last)) => Some(Turns { first, last }),
            _ => None,
        })
    }

    fn size(&self, tokens: &str, bytes: &str, messages: &str) -> StoreResult<Size> {
        Ok(Size {
            tokens: self.unsigned(tokens)?,
            bytes: self.unsigned(bytes)?,
            messages: self.unsigned(messages)?,
        })
    }
}

pub(super) const SESSION: &str =
    "SELECT s.session, s.session_id, s.agent_id, s.title, s.created_at,
    s.last_active_at, s.current_loop, s.tick, s.source, s.meta FROM sessions s";

pub(super) fn session_row(row: &Fields<'_>) -> StoreResult<SessionRow> {
    Ok(SessionRow {
        key: SessionKey(row.get("session")?),
        session_id: SessionId::new(row.get::<String>("session_id")?).map_err(damaged)?,
        agent_id: row.get("agent_id")?,
        title: row.get("title")?,
        created_at: row.get("created_at")?,
        last_active_at: row.get("last_active_at")?,
        current_loop: row.get::<Option<i64>>("current_loop")?.map(LoopKey),
        tick: row.get("tick")?,
        source: row.get("source")?,
        meta: row.get("meta")?,
    })
}

pub(super) const LOOP_COLUMNS: &str = "l.session, l.key, l.loop_id, l.parent, l.parent_loop_id,
    l.parent_turn, l.kind, l.status, l.started_at, l.ended_at, l.tick, l.next_seq, l.sealed_seq,
    l.turns, l.complete, l.messages, l.tokens, l.bytes, l.system_tokens, l.generation,
    l.last_turn_index, l.open_calls, l.chain";

pub(super) const CORE_COLUMNS: &str = "l.session, l.key, l.loop_id, l.parent, l.parent_turn,
    l.status, l.next_seq, l.sealed_seq, l.turns, l.complete, l.messages, l.tokens, l.bytes,
    l.generation";

pub(super) fn loop_row(row: &Fields<'_>) -> StoreResult<LoopRow> {
    let open_calls: Option<&str> = row.get("open_calls")?;
    let open_calls: BTreeMap<String, u32> = match open_calls {
        Some(json) => serde_json::from_str(json).map_err(damaged)?,
        None => BTreeMap::new(),
    };
    let parent_loop_id: Option<String> = row.get("parent_loop_id")?;
    Ok(LoopRow {
        core: loop_core(row)?,
        parent_loop_id: parent_loop_id
            .map(LoopId::new)
            .transpose()
            .map_err(damaged)?,
        kind: row.get("kind")?,
        started_at: row.get("started_at")?,
        ended_at: row.get("ended_at")?,
        tick: row.get("tick")?,
        progress: LoopProgress {
            system_tokens: row.unsigned("system_tokens")?,
            last_turn_index: row.get("last_turn_index")?,
            open_calls,
            chain: row.bytes("chain")?,
        },
    })
}

pub(super) fn loop_core(row: &Fields<'_>) -> StoreResult<LoopCore> {
    Ok(LoopCore {
        key: LoopKey(row.get("key")?),
        session: SessionKey(row.get("session")?),
        loop_id: LoopId::new(row.get::<String>("loop_id")?).map_err(damaged)?,
        parent: row.get::<Option<i64>>("parent")?.map(LoopKey),
        parent_turn: row.maybe_small("parent_turn")?,
        status: LoopStatus::from(row.get::<&str>("status")?),
        totals: LoopTotals {
            next_seq: row.small("next_seq")?,
            sealed_seq: row.small("sealed_seq")?,
            turns: row.small("turns")?,
            complete: row.small("complete")?,
            messages: row.unsigned("messages")?,
            tokens: row.unsigned("tokens")?,
            bytes: row.unsigned("bytes")?,
            generation: row.small("generation")?,
        },
    })
}

pub(super) fn call_sites(row: &Fields<'_>) -> StoreResult<Vec<CallSite>> {
    let json: Option<&str> = row.get("answers")?;
    let Some(json) = json else {
        return Ok(Vec::new());
    };
    let pairs: Vec<(i64, u32)> = serde_json::from_str(json).map_err(damaged)?;
    let site = |(key, turn)| CallSite {
        loop_key: LoopKey(key),
        turn,
    };
    Ok(pairs.into_iter().map(site).collect())
}

pub(super) const TURN: &str =
    "SELECT turn, first_seq, messages, prompts, tokens, bytes, turn_index,
    answered, answers, tick, started_at, ended_at FROM turns";

pub(super) fn turn_row(row: &Fields<'_>) -> StoreResult<TurnRow> {
    Ok(TurnRow {
        turn: row.small("turn")?,
        first_seq: row.small("first_seq")?,
        messages: row.unsigned("messages")?,
        prompts: row.unsigned("prompts")?,
        tokens: row.unsigned("tokens")?,
        bytes: row.unsigned("bytes")?,
        turn_index: row.get("turn_index")?,
        answered: row.get("answered")?,
        answers: call_sites(row)?,
        tick: row.get("tick")?,
        started_at: row.get("started_at")?,
        ended_at: row.get("ended_at")?,
    })
}

pub(super) const MESSAGE: &str = "SELECT seq, turn, role, tick, tokens, bytes, lines, created_at,
    body_block, origin, salt, digest, chain, head, body, escaped FROM messages";

fn stored_message(row: &Fields<'_>, lines: Option<u32>) -> StoreResult<StoredMessage> {
    let body: Option<String> = row.get("body")?;
    let text = match row.get("escaped")? {
        true => body.as_deref().map(unescaped).transpose()?,
        false => body,
    };
    Ok(StoredMessage {
        role: role_from_number(row.get("role")?)?,
        tokens: row.unsigned("tokens")?,
        bytes: row.unsigned("bytes")?,
        lines,
        text_block: row.maybe_small("body_block")?,
        salt: row.maybe_bytes("salt")?,
        digest: row.bytes("digest")?,
        head: row.get("head")?,
        text,
    })
}

/// Returns a text without U+0000, if it has any: PostgreSQL does not take it.
pub(super) fn escaped(text: Option<&str>) -> Option<String> {
    let text = text.filter(|text| text.contains('\0'))?;
    let mut safe = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\0' => safe.push_str("\u{1}0"),
            '\u{1}' => safe.push_str("\u{1}1"),
            _ => safe.push(letter),
        }
    }
    Some(safe)
}

pub(super) fn unescaped(text: &str) -> StoreResult<String> {
    let mut whole = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        whole.push(match (letter, letter == '\u{1}') {
            (letter, false) => letter,
            _ => match letters.next() {
                Some('0') => '\0',
                Some('1') => '\u{1}',
                _ => return Err(StoreError::Damaged("a text is escaped wrongly".into())),
            },
        });
    }
    Ok(whole)
}

pub(super) fn message_row(row: &Fields<'_>) -> StoreResult<MessageRow> {
    let lines = row.maybe_small("lines")?;
    Ok(MessageRow {
        seq: row.small("seq")?,
        turn: row.maybe_small("turn")?,
        tick: row.get("tick")?,
        body: stored_message(row, lines)?,
        created_at: row.get("created_at")?,
        origin: row.maybe_bytes("origin")?,
        chain: row.bytes("chain")?,
    })
}

pub(super) fn message_size(row: &Fields<'_>) -> StoreResult<MessageSize> {
    Ok(MessageSize {
        seq: row.small("seq")?,
        turn: row.maybe_small("turn")?,
        role: role_from_number(row.get("role")?)?,
        size: Size {
            tokens: row.unsigned("tokens")?,
            bytes: row.unsigned("bytes")?,
            messages: 1,
        },
        lines: row.maybe_small("lines")?,
    })
}

pub(super) const RUN_COLUMNS: &str = "key, session, run_id, loop, turns, tick, trigger, strategy,
    round, outcome, fallback, error, scope, older_loops, counter, tokens_before, tokens_after,
    bytes_before, bytes_after, messages_before, messages_after, started_at, duration_ms, config,
    usage, plan, record, events, digest";

pub(super) fn run_row(row: &Fields<'_>) -> StoreResult<RunRow> {
    let outcome: String = row.get("outcome")?;
    Ok(RunRow {
        key: RunKey(row.get("key")?),
        session: SessionKey(row.get("session")?),
        run_id: row.get("run_id")?,
        point: Point {
            loop_key: LoopKey(row.get("loop")?),
            turns: row.small("turns")?,
        },
        tick: row.get("tick")?,
        trigger: row.get("trigger")?,
        strategy: row.get("strategy")?,
        round: row.small("round")?,
        outcome: Outcome::from_word(&outcome).ok_or_else(|| damaged(outcome))?,
        fallback: row.get("fallback")?,
        error: row.get("error")?,
        scope: row.get("scope")?,
        older_loops: row.get("older_loops")?,
        counter: row.get("counter")?,
        before: row.size("tokens_before", "bytes_before", "messages_before")?,
        after: row.size("tokens_after", "bytes_after", "messages_after")?,
        started_at: row.get("started_at")?,
        duration_ms: row.unsigned("duration_ms")?,
        config: row.get("config")?,
        usage: row.get("usage")?,
        plan: row.bytes("plan")?,
        record: row.get("record")?,
        events: row.get("events")?,
    })
}

pub(super) const FLIP: &str = "SELECT run, kind, loop, turns, tick, at, reason, digest FROM flips";

pub(super) fn flip_row(row: &Fields<'_>) -> StoreResult<FlipRow> {
    Ok(FlipRow {
        run: RunKey(row.get("run")?),
        redo: row.get::<&str>("kind")? == "redo",
        point: Point {
            loop_key: LoopKey(row.get("loop")?),
            turns: row.small("turns")?,
        },
        tick: row.get("tick")?,
        at: row.get("at")?,
        reason: row.get("reason")?,
    })
}

pub(super) const BLOCK_COLUMNS: &str = "b.key, b.loop, b.generation, b.run, b.kind, b.extends,
    b.first_start, b.first_end, b.compacted_start, b.compacted_end, b.recent_start, b.recent_end,
    b.through, b.tokens_covered, b.tokens_block, b.bytes_block, b.messages_block, b.strategy,
    b.shaping, b.created_at, b.extra, b.digest";

pub(super) const BLOCK_CORE_COLUMNS: &str = "b.key, b.loop, b.generation, b.run, b.kind, b.extends,
    b.first_start, b.first_end, b.compacted_start, b.compacted_end, b.recent_start, b.recent_end,
    b.through, b.tokens_block, b.bytes_block, b.messages_block";

pub(super) fn block_row(row: &Fields<'_>) -> StoreResult<BlockRow> {
    Ok(BlockRow {
        core: block_core(row)?,
        tokens_covered: row.unsigned("tokens_covered")?,
        strategy: row.get("strategy")?,
        shaping: row.get("shaping")?,
        created_at: row.get("created_at")?,
        extra: row.get("extra")?,
    })
}

fn block_core(row: &Fields<'_>) -> StoreResult<BlockCore> {
    let kind: &str = row.get("kind")?;
    Ok(BlockCore {
        key: BlockKey(row.get("key")?),
        loop_key: LoopKey(row.get("loop")?),
        generation: row.small("generation")?,
        run: RunKey(row.get("run")?),
        kind: BlockKind::from_word(kind).ok_or_else(|| damaged(kind))?,
        extends: row.get::<Option<i64>>("extends")?.map(BlockKey),
        layout: Layout {
            first: row.turns("first_start", "first_end")?,
            compacted: row.turns("compacted_start", "compacted_end")?,
            recent: row.turns("recent_start", "recent_end")?,
        },
        through: row.small("through")?,
        size: row.size("tokens_block", "bytes_block", "messages_block")?,
    })
}

pub(super) fn generation(row: &Fields<'_>) -> StoreResult<Generation> {
    Ok(Generation {
        block: block_core(row)?,
        point: Point {
            loop_key: LoopKey(row.get("run_loop")?),
            turns: row.small("run_turns")?,
        },
        tick: row.get("run_tick")?,
    })
}

pub(super) fn block_message(row: &Fields<'_>) -> StoreResult<BlockMessage> {
    let body = match row.get::<Option<i64>>("role")? {
        None => None,
        Some(_) => Some(stored_message(row, None)?),
    };
    let section: i64 = row.get("section")?;
    Ok(BlockMessage {
        section: if section == 1 {
            Section::Compacted
        } else {
            Section::Recent
        },
        replaces: row.maybe_small("replaces")?,
        body,
    })
}

pub(super) fn coverage_row(row: &Fields<'_>) -> StoreResult<CoverageRow> {
    let pair = |from: &str, to: &str| -> StoreResult<Option<(u32, u32)>> {
        Ok(row.turns(from, to)?.map(|range| (range.first, range.last)))
    };
    let disposition: String = row.get("disposition")?;
    Ok(CoverageRow {
        loop_key: LoopKey(row.get("loop")?),
        seqs: pair("from_seq", "to_seq")?,
        turns: pair("from_turn", "to_turn")?,
        disposition: Disposition::from_word(&disposition).ok_or_else(|| damaged(disposition))?,
    })
}

/// A part of a manifest as it is stored: loop, section, block, first and last sequence, messages.
pub(super) type StoredPart = (i64, String, Option<i64>, Option<u32>, Option<u32>, u64);

pub(super) const MANIFEST_COLUMNS: &str = "key, manifest_id, session, loop, tick, recorded_at,
    older_loops, parts, messages, tokens, bytes, counter, sha256, digest";

pub(super) fn manifest_row(row: &Fields<'_>) -> StoreResult<ManifestRow> {
    let parts: Vec<StoredPart> = serde_json::from_str(row.get("parts")?).map_err(damaged)?;
    let part = |(loop_key, section, block, from, to, messages): StoredPart| ManifestPart {
        loop_key: LoopKey(loop_key),
        section,
        block: block.map(BlockKey),
        seqs: from.zip(to),
        messages,
    };
    Ok(ManifestRow {
        key: ManifestKey(row.get("key")?),
        manifest_id: row.get("manifest_id")?,
        session: SessionKey(row.get("session")?),
        leaf: LoopKey(row.get("loop")?),
        tick: row.get("tick")?,
        recorded_at: row.get("recorded_at")?,
        older_loops: row.get("older_loops")?,
        parts: parts.into_iter().map(part).collect(),
        size: row.size("tokens", "bytes", "messages")?,
        counter: row.get("counter")?,
        sha256: row.bytes("sha256")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_zeros_is_escaped_and_comes_back() {
        for text in ["\0", "a\0b\u{1}c", "\u{1}0\0", "\0\0\u{1}1"] {
            let safe = escaped(Some(text)).unwrap();
            assert!(!safe.contains('\0'));
            assert_eq!(unescaped(&safe).unwrap(), text);
        }
        assert_eq!(escaped(Some("a\u{1}b")), None);
        assert_eq!(escaped(None), None);
        assert!(unescaped("\u{1}2").is_err() && unescaped("\u{1}").is_err());
    }
}

//! Random histories and random queries: the hits are those of a scan of all messages, and `hidden` is true if the
//! current context does not contain the message.

use loopstore::compaction::{CompactionConfig, CompactionScope, ContextConfig, OlderLoops};
use loopstore::search::{SearchQuery, search};
use loopstore::{
    CompactRequest, CompactTrigger, KeepRecent, Policy, SqliteStore, compact_session_loops,
};

use crate::search::reference::{Everything, QueryTerms, Term, words};
use crate::support::amount::amount;
use crate::support::histories::{History, Random, loop_id, user};

const SAID: [&str; 12] = [
    "note", "word", "line", "long", "Café", "退款", "款", "foo_bar", "src/a.rs", "E0382", "x",
    "tool",
];

fn text(random: &mut Random, step: u64) -> String {
    let count = 1 + random.below(6);
    let glue = [" ", ", ", "\n", " (", "/"];
    (0..count).fold(format!("step-{step}"), |text, _| {
        let glue = glue[random.below(5) as usize];
        text + glue + SAID[random.below(12) as usize]
    })
}

/// Returns a term and its text in a query.
fn term(random: &mut Random) -> (Term, String) {
    let said = |random: &mut Random| match random.below(6) {
        0 => format!("{}", random.below(40)),
        1 => ["of", "words", "a", "12"][random.below(4) as usize].to_owned(),
        _ => SAID[random.below(12) as usize].to_owned(),
    };
    let mut typed = said(random);
    let is_phrase = random.one_in(3);
    if is_phrase {
        typed = format!("{typed} {}", said(random));
    }
    let is_prefix = random.one_in(4);
    if is_prefix && !is_phrase && typed.is_ascii() && typed.len() > 2 {
        typed.pop();
    }
    if random.one_in(3) {
        typed = typed.to_uppercase();
    }
    let words = words(&typed);
    let star = if is_prefix { "*" } else { "" };
    let typed = match is_phrase {
        true => format!("\"{typed}\"{star}"),
        false if is_prefix => format!("{typed}*"),
        false => format!("+{typed}"),
    };
    (Term { words, is_prefix }, typed)
}

fn query(random: &mut Random) -> (QueryTerms, String) {
    let (mut wanted, mut typed) = (QueryTerms::default(), Vec::new());
    for _ in 0..1 + random.below(2) {
        let (first, text) = term(random);
        let mut sides = vec![first];
        typed.push(text);
        if random.one_in(3) {
            let (side, text) = term(random);
            sides.push(side);
            typed.push(format!("OR {text}"));
        }
        wanted.all.push(sides);
    }
    if random.one_in(3) {
        let (term, text) = term(random);
        let term_is_prefix = term.is_prefix;
        wanted.none.push(term);
        // Without quotes, a short word with a dash is a flag.
        let star = if term_is_prefix { "*" } else { "" };
        let word = text.trim_start_matches('+').trim_matches(['"', '*']);
        typed.push(format!("-\"{word}\"{star}"));
    }
    (wanted, typed.join(" "))
}

/// Compacts so that loops before the scope leave the context, and messages too if the window is small.
fn compact_skipping(history: &History<'_>, at: usize, random: &mut Random) {
    let scope = match random.below(4) {
        3 => CompactionScope::TokenBudget,
        count => CompactionScope::FixedCount(count as usize),
    };
    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig {
                max_context_tokens: 200 + 400 * random.below(5),
                ..ContextConfig::default()
            },
            CompactionConfig {
                keep_first_turns: 1,
                keep_recent: KeepRecent::Turns(1),
                older_loops: OlderLoops::Skip,
                compaction_scope: scope,
                ..CompactionConfig::default()
            },
        ),
        leaf: Some(loop_id(at)),
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    // If nothing fits the window, the compaction fails, and the history continues.
    let _ = compact_session_loops(history.store, &history.session, &request);
}

/// Compares the block of a hit with the rows of that block.
fn check_block(store: &SqliteStore, hit: &loopstore::SearchHit, seed: u64) {
    let (Some(run), Some(block_loop)) = (&hit.run_id, &hit.block_loop_id) else {
        assert!(hit.generation.is_none() && hit.disposition.is_none());
        return;
    };
    let disposition = hit.disposition.unwrap().as_str();
    // The coverage of an older loop may be recorded with the rollup that this one extends.
    let covered = if hit.loop_id == *block_loop {
        "c.loop_id = ?3 AND ?4 + 0 BETWEEN c.from_seq AND c.to_seq AND c.disposition = ?5"
    } else {
        "?5 IN ('rolled_up', 'kept') AND ?3 <> '' AND ?4 <> ''"
    };
    let sql = format!(
        "SELECT b.run_id, b.generation FROM v_compaction_blocks b
             JOIN v_coverage c ON c.block_loop_id = b.loop_id AND c.generation = b.generation
         WHERE b.run_id = ?1 AND b.loop_id = ?2 AND {covered}"
    );
    let (loop_id, seq) = (hit.loop_id.as_str(), hit.seq.to_string());
    let values = [
        run.as_str(),
        block_loop.as_str(),
        loop_id,
        &seq,
        disposition,
    ];
    let rows = store.query_with(&sql, &values).unwrap().records();
    let generation = rows.first().and_then(|row| row.number("generation"));
    assert_eq!(
        generation,
        hit.generation.map(i64::from),
        "seed {seed}: {hit:?}"
    );
}

fn compare(store: &SqliteStore, history: &History<'_>, random: &mut Random, seed: u64) -> usize {
    let everything = Everything::read(store, &history.session);
    let mut hidden_hits = 0;
    for _ in 0..6 {
        let (wanted, typed) = query(random);
        let expected = everything.search(&wanted);
        let ask = SearchQuery {
            limit: Some(10_000),
            ..SearchQuery::new(&*typed)
        };
        let results = search(store, &ask).unwrap();
        let hit = |hit: &loopstore::SearchHit| {
            assert!(!hit.snippet.marks.is_empty(), "seed {seed}: {typed}");
            check_block(store, hit, seed);
            (format!("{}:{}", hit.loop_id, hit.seq), hit.hidden)
        };
        let mut found: Vec<_> = results.hits.iter().map(hit).collect();
        // Near duplicates of a hit may be hidden or not.
        for also in results.hits.iter().flat_map(|hit| &hit.also) {
            let place = format!("{}:{}", also.loop_id, also.seq);
            let hidden = expected.iter().find(|(other, _)| *other == place);
            found.push((place, hidden.is_some_and(|(_, hidden)| *hidden)));
        }
        found.sort();
        assert_eq!(found, expected, "seed {seed}: {typed}");
        for hidden in [true, false] {
            let ask = SearchQuery {
                hidden: Some(hidden),
                ..ask.clone()
            };
            let hits = search(store, &ask).unwrap().hits;
            let count = hits.iter().map(|hit| 1 + hit.also.len()).sum::<usize>();
            let right = expected.iter().filter(|(_, is)| *is == hidden).count();
            assert_eq!(count, right, "seed {seed}: {typed}, hidden {hidden}");
            hidden_hits += if hidden { count } else { 0 };
        }
    }
    hidden_hits
}

#[test]
fn hits_are_those_of_a_scan_and_hidden_is_what_the_context_lacks() {
    let histories = amount("LOOPSTORE_HISTORIES", 25);
    let (mut hidden, mut committed) = (0, 0);
    for seed in 0..histories {
        let mut random = Random::new(seed);
        let store = SqliteStore::in_memory().unwrap();
        let mut history = History::new(&store, "s");
        for step in 0..40 {
            history.step(&mut random);
            let last = history.loops - 1;
            if random.one_in(3) {
                let said = text(&mut random, step);
                history.append(last, vec![user(&said, 200 + step as u32)]);
            }
            if random.one_in(15) {
                compact_skipping(&history, last, &mut random);
            }
            if step % 8 == 7 {
                hidden += compare(&store, &history, &mut random, seed);
            }
        }
        committed += history.committed;
    }
    assert!(
        hidden > 50 && committed > 10,
        "{hidden} hidden, {committed} runs"
    );
}

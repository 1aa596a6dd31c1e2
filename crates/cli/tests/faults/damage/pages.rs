//! Pages with flipped bits, zeroed, swapped or truncated pages, and logs of other files.

use std::collections::BTreeMap;
use std::path::Path;

use loopstore::OpenError;
use loopstore_admin::salvage::salvage;
use loopstore_verify::verify;

use crate::damage::reading::{Answers, answers, read, wrong};
use crate::damage::stage::{Stage, companion, record};
use crate::support::amount::amount;
use crate::support::histories::Random;
use crate::support::plain::open;

const PAGE: usize = 512;

/// The command for a long run.
const FLIPS: &str = "LOOPSTORE_FLIPS=300 cargo test --test faults damage";

/// Returns how often each kind of damage is applied to each kind of page.
fn times() -> u64 {
    amount("LOOPSTORE_FLIPS", 3)
}

/// Returns the pages of each kind.
fn kinds(bytes: &[u8]) -> BTreeMap<&'static str, Vec<usize>> {
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut free = Vec::new();
    let mut trunk = number(32);
    while trunk > 0 {
        let at = (trunk - 1) * PAGE;
        free.push(trunk - 1);
        free.extend((0..number(at + 4)).map(|leaf| number(at + 8 + 4 * leaf) - 1));
        trunk = number(at);
    }
    let mut kinds = BTreeMap::<_, Vec<usize>>::from([("header", vec![0])]);
    for page in 1..bytes.len() / PAGE {
        let kind = match bytes[page * PAGE] {
            _ if free.contains(&page) => "free",
            2 => "index interior",
            5 => "table interior",
            10 => "index leaf",
            13 => "table leaf",
            _ => "overflow",
        };
        kinds.entry(kind).or_default().push(page);
    }
    kinds
}

/// Checks the answers of a damaged file: each is correct, a typed error, or the damage is named by `verify`; and a
/// salvage of the file is valid.
fn check(stage: &Stage, bytes: &[u8], right: &Answers, what: &str) {
    let path = stage.put("damaged.db", bytes);
    check_file(stage, &path, &[right], what);
}

fn check_file(stage: &Stage, path: &Path, right: &[&Answers], what: &str) {
    // Before anything is opened for writing: a salvage reads the file as it is.
    let to = stage.folder.path().join("salvaged.db");
    match salvage(path, None, &to, true) {
        Ok(report) => {
            let found = verify(&open(&to)).unwrap();
            assert!(found.ok, "{what}: {:#?}", found.problems);
            assert_eq!(report.kept, found.checked, "{what}");
        }
        Err(error) => {
            let told = format!("{error:?}");
            assert!(!told.contains("Damaged(VerifyReport"), "{what}: {told}");
        }
    }
    let found = read(path);
    match found.answers {
        Ok(answers) => {
            let wrong = right.iter().map(|right| wrong(right, &answers));
            let fewest = wrong.min_by_key(Vec::len).unwrap();
            assert!(
                fewest.is_empty() || found.is_named,
                "{what}: another answer of {fewest:?}, and `verify` finds nothing"
            );
        }
        Err(OpenError::Other { cause, .. }) => panic!("{what}: {cause}"),
        Err(_) => {}
    }
}

#[test]
fn a_damaged_page_is_an_error_or_named() {
    let stage = Stage::new();
    let right = answers(&open(&stage.file));
    assert!(right.values().all(Result::is_ok), "{right:#?}");
    let whole = std::fs::read(&stage.file).unwrap();
    let kinds = kinds(&whole);
    let mut trials = 0;
    for kind in [
        "header",
        "free",
        "index interior",
        "index leaf",
        "overflow",
        "table interior",
        "table leaf",
    ] {
        let pages = kinds.get(kind).unwrap_or_else(|| panic!("no page: {kind}"));
        for seed in 0..times() {
            let mut random = Random::new(seed);
            let page = pages[random.below(pages.len() as u64) as usize];
            let other = random.below((whole.len() / PAGE) as u64) as usize;
            let at = page * PAGE;
            let named = |what: &str| format!("{kind}, seed {seed}, page {page}: {what}");

            let mut flipped = whole.clone();
            for _ in 0..=random.below(3) {
                let byte = at + random.below(PAGE as u64) as usize;
                flipped[byte] ^= 1 << random.below(8);
            }
            check(&stage, &flipped, &right, &named("flipped"));

            let mut emptied = whole.clone();
            emptied[at..at + PAGE].fill(0);
            check(&stage, &emptied, &right, &named("emptied"));

            let mut swapped = whole.clone();
            swapped[at..at + PAGE].copy_from_slice(&whole[other * PAGE..(other + 1) * PAGE]);
            swapped[other * PAGE..(other + 1) * PAGE].copy_from_slice(&whole[at..at + PAGE]);
            check(&stage, &swapped, &right, &named("swapped"));
            trials += 3;
        }
    }
    crate::support::proof::tally("page flipped, emptied or swapped", trials, FLIPS);
}

/// A changed letter is consistent with everything except its digest.
#[test]
fn a_letter_that_changed_is_named() {
    let stage = Stage::new();
    let right = answers(&open(&stage.file));
    let whole = std::fs::read(&stage.file).unwrap();
    let text = b"please look at the kite number";
    let places: Vec<usize> = (0..whole.len() - text.len())
        .filter(|at| whole[*at..].starts_with(text))
        .collect();
    assert!(places.len() > 20, "{places:?}");
    for seed in 0..times() {
        let mut random = Random::new(seed);
        let at = places[random.below(places.len() as u64) as usize];
        let at = at + random.below(6) as usize;
        let mut changed = whole.clone();
        changed[at] ^= 1;
        check(&stage, &changed, &right, &format!("a letter at {at}"));
    }
    crate::support::proof::tally("letter of a text changed", times(), FLIPS);
}

#[test]
#[cfg(debug_assertions)]
fn a_digest_that_nobody_compares_is_found_out() {
    let test = "damage::pages::a_letter_that_changed_is_named";
    crate::support::proof::catches(test, "unchecked-digest", &[], "`verify` finds nothing");
}

#[test]
fn a_file_that_is_cut_off_is_an_error_or_named() {
    let stage = Stage::new();
    let right = answers(&open(&stage.file));
    let whole = std::fs::read(&stage.file).unwrap();
    for seed in 0..times() * 3 {
        let length = Random::new(seed).below(whole.len() as u64) as usize;
        check(
            &stage,
            &whole[..length],
            &right,
            &format!("cut to {length}"),
        );
    }
}

/// A log ends at its first wrong checksum: later commits are lost, and nothing can detect that. So the answers are
/// those of an earlier state, or the damage is named.
#[test]
fn a_damaged_log_loses_the_last_commits_or_is_named() {
    let stage = Stage::new();
    let file = stage.folder.path().join("logged.db");
    std::fs::copy(&stage.file, &file).unwrap();
    let store = open(&file);
    let mut moments = vec![answers(&store)];
    let mut random = Random::new(5);
    for session in ["u", "v"] {
        record(&store, session, &mut random);
        moments.push(answers(&store));
    }
    let (base, log) = (
        std::fs::read(&file).unwrap(),
        std::fs::read(companion(&file, "-wal")).unwrap(),
    );
    assert!(log.len() > 10 * PAGE);
    // The intermediate states are not known here; only those before both sessions are.
    for answers in &mut moments {
        answers.retain(|name, _| !["sessions", "show", "history", "search"].contains(&&**name));
    }
    let right: Vec<&Answers> = moments.iter().collect();
    for seed in 0..times() {
        let mut random = Random::new(seed);
        let mut flipped = log.clone();
        let at = random.below(log.len() as u64) as usize;
        flipped[at] ^= 1 << random.below(8);
        let cut = &log[..random.below(log.len() as u64) as usize];
        for (what, log) in [("flipped", &flipped[..]), ("cut", cut)] {
            let path = stage.put("damaged.db", &base);
            std::fs::write(companion(&path, "-wal"), log).unwrap();
            let found = read(&path);
            let Ok(mut found_answers) = found.answers else {
                continue;
            };
            found_answers
                .retain(|name, _| !["sessions", "show", "history", "search"].contains(&&**name));
            let is_right = right
                .iter()
                .any(|right| wrong(right, &found_answers).is_empty());
            assert!(is_right || found.is_named, "{what}, seed {seed}, byte {at}");
        }
    }
}

/// The log of another file, or of an earlier state of this file, is either not used, or named.
#[test]
fn a_log_of_something_else_is_not_believed() {
    let stage = Stage::new();
    let right = answers(&open(&stage.file));
    let whole = std::fs::read(&stage.file).unwrap();
    let other = stage.put("other.db", &whole);
    let store = open(&other);
    record(&store, "u", &mut Random::new(9));
    let log = std::fs::read(companion(&other, "-wal")).unwrap();
    let theirs = answers(&store);
    drop(store);
    let later = std::fs::read(&other).unwrap();
    let grown = answers(&crate::support::plain::try_open(&other).unwrap());
    for (what, bytes) in [("of a copy", &whole), ("old", &later)] {
        let path = stage.put("damaged.db", bytes);
        std::fs::write(companion(&path, "-wal"), &log).unwrap();
        check_file(&stage, &path, &[&right, &theirs, &grown], what);
    }
    let stranger = Stage::new();
    let path = stranger.put("damaged.db", &std::fs::read(&stranger.file).unwrap());
    let before = answers(&open(&stranger.file));
    std::fs::write(companion(&path, "-wal"), &log).unwrap();
    check_file(&stranger, &path, &[&before], "of another database");
}

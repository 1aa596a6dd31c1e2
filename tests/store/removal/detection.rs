//! The rates of detected secrets and of false positives: the table in `docs/guide.md`.
//!
//! `cargo test --test store detection -- --nocapture` prints it. Secrets are generated from a seed (`LOOPSTORE_SEED`),
//! 200 of each kind (`LOOPSTORE_SECRETS`), each in one of the contexts in which secrets occur. Clean lines are the
//! sources and documents of this project and prose made of its words, 100,000 in total. `LOOPSTORE_CLEAN` names a
//! folder of other texts, whose findings are printed.

mod planted;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loopstore_redact::{Confidence, RedactionPolicy, Redactor};

use crate::support::amount::amount;
use crate::support::histories::Random;
use planted::{KINDS, Kind, plant};

/// The number of clean lines.
const LINES: usize = 100_000;

/// The maximum number of false positives in a thousand clean lines.
const MOST_FALSE_OF_THOUSAND: f64 = 0.1;

fn redactor() -> Redactor {
    Redactor::new(b"the key of a measurement")
}

/// Returns the numbers of planted secrets of a kind that are replaced and that are found, and those that are not found.
fn measure(kind: &Kind, random: &mut Random, count: u64) -> (u64, u64, Vec<String>) {
    let (mut replaced, mut found, mut missed) = (0, 0, Vec::new());
    for _ in 0..count {
        let (text, value) = plant(kind, random);
        let left = redactor().text(&text).unwrap_or_else(|| text.clone());
        let is_replaced = !left.contains(&value);
        replaced += u64::from(is_replaced);
        let policy = RedactionPolicy::default().min_confidence(Confidence::Low);
        let mut all = redactor().with_policy(policy);
        let is_found = all.text(&text).is_some_and(|left| !left.contains(&value));
        found += u64::from(is_found);
        if !is_replaced {
            missed.push(text);
        }
    }
    (replaced, found, missed)
}

#[test]
fn planted_secrets_of_each_kind_are_found() {
    let mut random = Random::new(amount("LOOPSTORE_SEED", 1));
    let count = amount("LOOPSTORE_SECRETS", 200);
    let mut table =
        "| kind | replaced of 200 |\n| --- | --- |\n".replace("200", &count.to_string());
    let mut failed = Vec::new();
    for kind in KINDS {
        let (replaced, found, missed) = measure(kind, &mut random, count);
        table += &format!("| {} | {replaced} |\n", kind.name);
        if replaced * 100 < count * kind.least_percent {
            failed.push((kind.name, replaced, found, missed));
        }
    }
    println!("{table}");
    assert!(failed.is_empty(), "{failed:#?}");
    if (amount("LOOPSTORE_SEED", 1), count) == (1, 200) {
        let guide = std::fs::read_to_string(crate::support::root::path("docs/guide.md")).unwrap();
        let told = guide.split_once("<!-- detection -->").unwrap().1;
        let told = told.split_once("<!-- /detection -->").unwrap().0;
        assert_eq!(
            told.trim(),
            table.trim(),
            "the table in docs/guide.md is another one"
        );
    }
}

/// Returns the files below a folder with one of these ends.
fn files(folder: &Path, ends: &[&str], out: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            // The sources about secrets contain some, and `target` is not part of the project.
            if !matches!(&*name, "target" | "redact" | "tests" | "node_modules") {
                files(&path, ends, out);
            }
        } else if ends.iter().any(|end| name.ends_with(end)) {
            out.push(path);
        }
    }
}

/// Returns texts without secrets, with this number of lines in total.
fn clean_texts() -> Vec<(String, String)> {
    let root = crate::support::root::path("");
    let mut paths = Vec::new();
    for folder in ["src", "crates", "docs", "bindings", "migrations", "benches"] {
        files(
            &root.join(folder),
            &[".rs", ".md", ".sql", ".py", ".ts", ".toml", ".js"],
            &mut paths,
        );
    }
    let (mut texts, mut lines) = (Vec::new(), 0);
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        lines += text.lines().count();
        let name = path.strip_prefix(&root).unwrap_or(&path);
        texts.push((name.display().to_string(), text));
        if lines >= LINES * 9 / 10 {
            break;
        }
    }
    let mut random = Random::new(7);
    let prose: Vec<String> = (lines..LINES)
        .map(|_| planted::prose(&mut random))
        .collect();
    texts.extend(
        prose
            .chunks(100)
            .map(|lines| ("prose".to_owned(), lines.join("\n"))),
    );
    texts
}

#[test]
fn clean_code_and_prose_stay() {
    let mut redactor = redactor();
    let (mut lines, mut replaced, mut reported) = (0, Vec::new(), BTreeMap::new());
    for (name, text) in clean_texts() {
        lines += text.lines().count();
        for finding in redactor.findings(&text) {
            match finding.replaced {
                true => replaced.push(format!("{}: {name}: {}", finding.rule, finding.context)),
                false => *reported.entry(finding.rule).or_insert(0) += 1,
            }
        }
    }
    println!(
        "{lines} clean lines: {} replaced, reported only: {reported:?}",
        replaced.len()
    );
    println!("{}", replaced.join("\n"));
    assert!(lines >= LINES, "{lines}");
    let of_thousand = replaced.len() as f64 * 1000.0 / lines as f64;
    assert!(
        of_thousand <= MOST_FALSE_OF_THOUSAND,
        "{of_thousand}: {replaced:#?}"
    );
}

#[test]
fn a_folder_of_other_texts_is_measured() {
    let Some(folder) = std::env::var_os("LOOPSTORE_CLEAN") else {
        return;
    };
    let mut paths = Vec::new();
    files(Path::new(&folder), &[""], &mut paths);
    let (mut lines, mut counts) = (0, BTreeMap::new());
    for path in paths {
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        lines += text.lines().count();
        for one in redactor().findings(&text) {
            let key = (one.replaced, one.rule.clone());
            let count = counts.entry(key).or_insert(0);
            *count += 1;
            if *count <= 10 {
                println!(
                    "{} ({}): {}: {}",
                    one.rule,
                    one.confidence.name(),
                    path.display(),
                    one.context
                );
            }
        }
    }
    println!("{lines} lines: {counts:#?}");
}

//! Decisions about single secrets.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use loopstore_admin::retention::FoundSecret;
use loopstore_redact::{FoundBy, RedactionPolicy};
use loopstore_terminal::output::note;
use loopstore_terminal::{CliError, text};

use super::finding_lines;

/// An answer to a question.
#[derive(Clone, Copy)]
enum ReviewAnswer {
    Yes,
    No,
    /// Yes for all secrets of this rule.
    All,
    /// No for all secrets of this rule.
    None,
    Quit,
}

/// Asks about each secret, and adds the answers to the policy. Returns true if any secret is to be replaced.
pub(super) fn choose(
    policy: &mut RedactionPolicy,
    found: &[FoundSecret],
) -> Result<bool, CliError> {
    // A part of a secret is decided with the secret.
    let found = found
        .iter()
        .filter(|one| one.finding.found_by != FoundBy::Part);
    let found: Vec<&FoundSecret> = found.collect();
    if found.is_empty() {
        note("found no secrets");
        return Ok(false);
    }
    let mut of_rules: BTreeMap<&str, bool> = BTreeMap::new();
    let mut any = false;
    for (at, one) in found.iter().enumerate() {
        let rule = one.finding.rule.as_str();
        let answer = match of_rules.get(rule) {
            Some(true) => ReviewAnswer::Yes,
            Some(false) => ReviewAnswer::No,
            None => ask(at + 1, found.len(), one)?,
        };
        let replace = match answer {
            ReviewAnswer::Quit => return Ok(false),
            ReviewAnswer::All => *of_rules.entry(rule).or_insert(true),
            ReviewAnswer::None => *of_rules.entry(rule).or_insert(false),
            ReviewAnswer::Yes => true,
            ReviewAnswer::No => false,
        };
        any |= replace;
        let ids = match replace {
            true => &mut policy.confirm,
            false => &mut policy.allow,
        };
        ids.insert(one.finding.id.clone());
    }
    Ok(any)
}

fn ask(number: usize, all: usize, one: &FoundSecret) -> Result<ReviewAnswer, CliError> {
    let rule = text::line(&one.finding.rule);
    loop {
        note(&format!(
            "{number} of {all}\n{}\nReplace it? y yes, n no, a all of {rule}, s none of {rule}, q quit:",
            finding_lines(one).join("\n")
        ));
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(ReviewAnswer::Quit);
        }
        return Ok(match line.trim() {
            "y" | "yes" => ReviewAnswer::Yes,
            "n" | "no" => ReviewAnswer::No,
            "a" | "all" => ReviewAnswer::All,
            "s" | "none" => ReviewAnswer::None,
            "q" | "quit" => ReviewAnswer::Quit,
            _ => continue,
        });
    }
}
